"""PyTorch on the NPU: its ``device``, and what is ``released``: a dump that a test itself switches on."""
