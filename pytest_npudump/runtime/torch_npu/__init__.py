"""PyTorch on the NPU.

Beside the files that each runtime has: its ``device``, the ``switches`` that decide how its operators round,
and what is ``released``: a dump that a test itself switches on.
"""
