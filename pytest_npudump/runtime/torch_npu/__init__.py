"""PyTorch on the NPU: the ``adapter``, the ``client``, and ``varied_modules`` of a calibration."""
