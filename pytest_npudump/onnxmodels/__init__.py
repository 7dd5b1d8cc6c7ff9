"""ONNX models for whoever runs them: the emulator, the reference, and those who ask what a graph holds.

``sessions`` of onnxruntime, an ``exposed_session`` that hands out inner tensors, a ``model_cache`` of those
made ready to run, the ``graph`` as a dump knows it, ``tensor_types`` and tensors as bytes, ``precision`` in
float32, the ``variation`` that runs may have, ``random_operators`` by name, and ``loaded_files``: whether
they are still what a test loaded.
"""
