"""A stand-in for torch_npu 2.13 without a device: the calls this project makes, kept in order.

What it answers was observed with the real client over a libascendcl.so that records its calls.
"""

from types import SimpleNamespace

from torch_npu import _device, npu

__all__ = ["_C", "_device", "npu"]
__version__ = "2.13.0"
_C = SimpleNamespace(
    _npu_hasPrimaryContext=lambda device: device in _device.used,
    _npu_initDump=lambda: _device.ask("aclmdlInitDump"),
    _npu_setDump=lambda path: _device.ask("aclmdlSetDump", path),
    _npu_finalizeDump=lambda: _device.ask("aclmdlFinalizeDump"),
    _npu_setOption=_device.options,
    _NPUGraph=npu.graphs._NPUGraph,
)
