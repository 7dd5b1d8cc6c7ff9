"""MindSpore: the ``adapter`` and what shows that something ran, and a MindIR ``model``."""
