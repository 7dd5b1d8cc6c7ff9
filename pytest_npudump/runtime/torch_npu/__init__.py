"""PyTorch on the NPU: what an ``adapter`` needs, and its ``device``; ``released`` is a dump of the test's own."""
