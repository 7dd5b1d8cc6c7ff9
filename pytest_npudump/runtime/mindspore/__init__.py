"""MindSpore: the ``adapter``, what shows that something ran (``activity``), a MindIR ``model``."""
