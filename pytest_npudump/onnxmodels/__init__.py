"""ONNX models for their users: the emulator, the reference, and readers of graphs.

``sessions`` of onnxruntime, that hand out inner tensors or compute in float32 too, and models kept ready for
them; the ``graph`` as a dump knows it, and operators that draw random numbers; ``tensor_types``, and tensors
as bytes; the ``variation`` that runs may have; ``loaded_files``: whether they are still what a test loaded.
"""
