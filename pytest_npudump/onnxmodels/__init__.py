"""ONNX models for whoever runs them: the emulator, the reference, and those who ask what a graph holds.

``sessions`` of onnxruntime, that hand out inner tensors or compute in float32 too; a ``model_cache`` of
models made ready to run; the ``graph`` as a dump knows it; ``tensor_types`` and tensors as bytes; the
``variation`` that runs may have; ``random_operators`` by name; ``loaded_files``: whether they are still what
a test loaded.
"""
