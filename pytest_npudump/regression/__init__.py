"""The main flow of one marked test, without pytest: read ``session`` first.

``case`` is what is fixed about the test, ``case_state`` how far it has come, ``attempt`` one run of it under
dump, ``run_dump`` what that left, ``outcome`` the results that all steps hand on.

The first run: ``judge`` reads it, ``judge_snapshot`` compares its ``snapshot`` with the golden by the
``bounds`` that hold, ``golden_elements`` its tensors; ``record`` writes a golden instead. ``diagnose``,
``definitions``, ``empty_operators`` and ``unwritten`` say what a dump does not tell; ``abnormal_end`` is for
runs without one, ``dumps_folder`` for what is left.

A failure: ``dataflow`` finds where it begins, ``second_run_plan`` and ``agreed_plan`` which tensors explain
it, ``second_run``, ``second_run_patterns`` and ``second_run_reference`` what they show, ``suspected``
which operators are wrong alone.

``calibration/`` and ``measured_noise`` are how far healthy runs stray. ``scenes`` have judges of their own;
``ranks`` and ``reference_outcome`` say what other ranks and an ONNX model add.
"""
