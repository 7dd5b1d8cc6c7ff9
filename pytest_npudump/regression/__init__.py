"""The main flow of one marked test, without pytest: read ``session`` first.

``case`` is what is fixed about the test, ``attempt`` one run of it under dump, ``result`` what has come of
it: one value that all steps hand on, and that every report is made of. ``host_copies`` are what models were
given and gave in the test's own memory.

``run_record`` is what any run left. What its dump does not tell: ``diagnose`` why it holds nothing,
``dataflow`` which tensor feeds which, and so which layers keep tensors.
``first_run`` settles what the first run is judged by and judges it, ``judgement`` holds it against its golden
and its ONNX model, ``recording`` writes a golden instead, and ``auto_tensors`` decides whether that is one of
tensors. ``run_plan`` decides whether the test runs again, ``second_run`` is what that dumped, and
``explanation`` says why the test failed: by its run folder alone, so that it can be said later, too.

``calibration`` and ``measured_noise`` are how far healthy runs stray, and what no kernel wrote. ``scenes``
have judges of their own.
"""
