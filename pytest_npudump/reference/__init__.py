"""The layers of a run against the same ONNX model, computed by onnxruntime on the CPU in float32.

``reference`` is what a test has of it, over a ``reference_model``. ``feeds`` give that what the device was
given; ``matches`` find the tensor that a layer is to equal, ``expected`` its values; ``comparison`` judges
them by ``tolerances``. ``result``, ``coverage`` and ``notes`` are what comes of it. ``rounding`` says whether
a difference is the device's or its number format's.
``operator_alone`` judges an operator under suspicion by what its own inputs give: one of a model
(``dumped_operators``) or one that torch called (``called_operators``).
"""
