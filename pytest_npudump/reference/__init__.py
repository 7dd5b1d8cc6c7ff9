"""The layers of a run against the same ONNX model, computed by onnxruntime on the CPU in float32.

``reference`` is what a test has of it, over a ``reference_model``. ``inputs`` and ``feeds`` give that what
the device was given; ``matches``, ``counterparts`` and ``name_map`` find the tensor that a layer is to
equal, ``expected`` its values; ``comparison`` judges them by ``tolerances``. ``result``, ``coverage`` and
``notes`` are what comes of it. ``blame`` says whether a difference is the device's or its number format's:
``rounding`` and ``rounded_model`` round as the device does, ``three_way`` compares the three.
``suspects`` are operators recomputed alone, each as a ``single_operator`` (a ``piece`` of the model) from
what the dump has of their inputs, ``dumped_operators``; ``operator_alone`` judges them,
and what is ``upstream`` of those it acquits.
``called_operators`` are those that torch called, recomputed on the CPU from what it gave them;
``call_alone`` judges these, and ``call_archive`` keeps those it convicts.
"""
