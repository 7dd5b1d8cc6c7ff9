"""ONNX models for whoever runs them: the emulator, the reference, and those who ask what a graph holds.

``sessions`` of onnxruntime, that hand out inner tensors or compute in float32 too, and models kept ready for
them; the ``graph`` as a dump knows it, and operators that draw random numbers; ``tensor_types``, and tensors
as bytes; the ``variation`` that runs may have; ``loaded_files``: whether they are still what a test loaded.
"""
