"""Runtimes, which run models and switch the dump on: one folder each, behind one protocol.

``base`` is the protocol, ``registry`` the index of the runtimes, and the decision for one of them,
``concurrency`` says what ran at the same time, and ``inventory`` which devices there are.

``pyacl/``, ``torch_npu/``, ``mindspore/``: each runtime is a folder, its provider, which knows where the
client is and whether it can be used without importing it. Its adapter has the protocol's ``Runtime``,
``Activity`` and ``ModelSession``, and what leaves a dump empty.

``modules/`` watches modules of torch on any device, by hooks. ``emulator/`` is pyACL's adapter over another
module ``acl``. To add a runtime, add such a folder and its line in ``registry``; one in another package is
an entry point instead.

Shared between them: ``acl`` by those over ACL (and by what stands for one that lived in another process),
``graphs`` by those in whose process torch may run, ``aten`` by those that can keep what its operators are
given, ``programs`` (of their own process, and the configuration that these read) and ``replacement`` (calls
that are looked at, inputs that a calibration perturbs) by all.
"""
