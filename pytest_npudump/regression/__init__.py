"""The main flow of one marked test: read ``session`` first.

``case`` is what is fixed about the test, ``attempt`` one run of it under dump, ``run_dump`` what that left,
``judge`` what becomes of the first run, ``record`` an update, ``second_run_plan`` and ``second_run`` the
explanation, ``outcome`` the results that all of these hand on. ``scenes`` have judges of their own;
``ranks`` and ``reference_outcome`` say what other ranks and an ONNX model add.
"""
