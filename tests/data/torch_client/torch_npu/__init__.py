"""A stand-in for torch_npu 2.13 without a device: the calls this project makes, kept in order.

What it answers was observed with the real client over a libascendcl.so that records its calls.
"""

from torch_npu import _device, npu

__all__ = ["_device", "npu"]
__version__ = "2.13.0"
