"""pyACL for a machine without an NPU.

``install`` puts ``acl``, the face that applications see, in the place of pyACL; ``faults`` and ``gears`` are
for tests that inject a fault or say what ATC was told, ``unsupported`` for what is refused. Each folder knows
those below it:

* ``acl``: pyACL's calls, a private module a family of them.
* ``process``: what pyACL keeps for a process, its life cycle, and the function that takes dumps.
* ``execution``: models and single operators, run by onnxruntime, and how they fail.
* ``dumps``: what a run under dump leaves.
* ``machine``: memory, streams, events, callbacks, injected faults; return codes, handles and arguments.
"""
