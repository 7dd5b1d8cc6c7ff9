"""What runs models and switches the dump on: one folder a runtime, behind one protocol.

``base`` is the protocol, ``registry`` the index of the runtimes, ``select`` decides for one of them,
``remote`` stands for one that lived in another process, ``other_processes`` are those that ran beside a test,
and ``thread_order`` says what no order of executions tells apart.

``pyacl/``, ``torch_npu/``, ``mindspore/``: each runtime has the same files, and others for what is its own:

    provider.py   where the client is and whether it can be used, known without importing it
    adapter.py    the protocol's ``Runtime``
    activity.py   the protocol's ``Activity``, and what leaves a dump empty
    client.py     the client's own functions, and what their answers mean
    model.py      the protocol's ``ModelSession``, where the runtime loads model files
    varied_*.py   whose calls get perturbed inputs in a calibration

``emulator/`` is pyACL's adapter over another module ``acl``. To add a runtime, add
such a folder and its line in ``registry``; one in another package is an entry point instead.

``operator_call`` is what a runtime that runs single operators is asked for.

Shared between them: ``acl/`` by those over ACL, ``graphs/`` by those in whose process torch may run,
``aten/`` by those that can keep what its operators are given,
``external/`` (programs of their own process), ``replaced`` (functions that are looked at),
``switch_variables`` (that CANN reads) and ``perturbed_inputs`` (of a calibration) by all.
"""
