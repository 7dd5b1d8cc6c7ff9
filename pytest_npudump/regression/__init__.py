"""The main flow of one marked test, without pytest: read ``session`` first.

``case`` is what is fixed about the test, ``attempt`` one run of it under dump, with what models were given
and gave in the test's own memory, ``result`` what has come of it: one value that all steps hand on, and that
every report is made of.

``run_record`` is what any run left, and writes a golden of it. What its dump does not tell: ``diagnose`` why
it holds nothing, ``dataflow`` which tensor feeds which, and so which layers keep tensors.
``first_run`` settles what the first run is judged by and judges it, ``judgement`` holds it against its golden
and its ONNX model. ``run_plan`` decides whether the test runs again, in what that run differs, and whether
its golden is one of tensors. ``second_run`` is what that dumped, and why the test failed.

``calibration`` is how far healthy runs stray. ``scenes`` have judges of their own.
"""
