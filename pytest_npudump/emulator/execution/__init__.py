"""What runs: ``model`` and ``single_op`` by onnxruntime, ``gears`` of a model, ``failures`` of operators."""
