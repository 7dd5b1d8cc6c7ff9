"""Judging statistics and tensors against a golden. Knows nothing of pytest."""
