"""The main flow of one marked test, without pytest: read ``session`` first.

``case`` is what is fixed about the test, ``case_state`` how far it has come, ``attempt`` one run of it under
dump, ``run_dump`` what that left. ``judge`` says what becomes of the first run, ``record`` of an update;
``second_run_plan``, ``agreed_plan`` and ``second_run`` explain a failure, ``outcome`` has the results that
all of these hand on. ``abnormal_end`` is for runs that never got that far, ``dumps_folder`` for what is left.
``scenes`` have judges of their own; ``ranks`` and ``reference_outcome`` say what other ranks and an ONNX
model add.
"""
