"""Explanations of a failure: the same ONNX model on the CPU in float32, and each suspect recomputed.

``reference`` is the model as a test has it and what comes of it, over a ``reference_model``. ``matches`` find
the tensor that a layer is to equal; ``comparison`` feeds the model what the device was given, and judges its
values. ``rounding`` says whether a difference is the device's or its number format's, ``module_ratio``
the same of modules of torch.
``operator_alone`` judges an operator under suspicion by what its own inputs give: one of a model
(``dumped_operators``) or one that torch called (``called_operators``). ``reproduction/`` hands it over.
"""
