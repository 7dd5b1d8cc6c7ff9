"""The main flow of one marked test, without pytest: read ``session`` first.

``case`` is what is fixed about the test, ``attempt`` one run of it under dump, ``result`` what has come of
it: one value that all steps hand on, and that every report is made of.

``run_record`` is what any run left. What its dump does not tell: ``diagnose`` why it holds nothing,
``unwritten`` what no kernel wrote, ``dataflow`` which tensor feeds which. ``first_run`` settles what the
first run is judged by and judges it, ``judgement`` holds it against its golden, ``recording`` writes a golden
instead, with tensors of ``kept_layers``, and ``second_run`` explains a failure.

``calibration`` and ``measured_noise`` are how far healthy runs stray. ``scenes`` have judges of their own,
and ``operator_checks`` are what one of them is about; ``shared_by_ranks`` and ``reference_outcome`` say what
other ranks and an ONNX model add.
"""
