"""PyTorch on the NPU.

Beside the files that each runtime has: its ``device``, the ``switches`` that decide how its operators round,
what is ``released``: a dump that a test itself switches on, and the ``varied_modules`` that a calibration
feeds.
"""
