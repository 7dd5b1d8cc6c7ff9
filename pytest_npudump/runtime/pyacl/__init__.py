"""pyACL, and whatever stands in for it.

``switch`` is the dump itself; ``observed`` calls are those of the test, ``model_directory`` one of them.
``model`` rests on ``model_tensors`` and ``memory``, as does ``single_operators``, which runs one that belongs
to no model. A calibration feeds the ``varied_models``.
"""
