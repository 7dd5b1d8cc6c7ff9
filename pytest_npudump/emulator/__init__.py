"""pyACL for a machine without an NPU.

``install`` puts ``acl``, the face that applications see, in the place of pyACL; ``faults`` are for tests that
inject one. Below them:

* ``acl``: pyACL's calls, as tables of names and kinds of arguments.
* ``process``: what pyACL keeps for a process, its memory included.
* ``onnx_model``: what runs, by onnxruntime, and which operator fails.
* ``dumps``: what a run under dump leaves.
* ``streams``, ``codes``: the machine, and how its calls answer.
"""
