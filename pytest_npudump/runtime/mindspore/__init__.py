"""MindSpore: the ``adapter``, what shows that something ran (``activity``), a MindIR ``model``.

``varied_cells`` are those that a calibration feeds.
"""
