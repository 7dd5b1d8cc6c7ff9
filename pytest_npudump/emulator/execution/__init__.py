"""What runs, by onnxruntime: an ``onnx_model`` or a ``single_op``.

``dynamic_shapes`` are the gears of a model, ``failed_operator`` says which operator fails and what it saw,
``distorted_model`` has one that computes wrongly.
"""
