"""PyTorch on the NPU: where torch_npu is, and whether it has a device, without importing torch.

``adapter`` switches the dump and perturbs modules.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.registry import Probe, imported

if TYPE_CHECKING:
    from pytest_npudump.runtime.base import Runtime


NPU = True
REMEDY = "install it with CANN on a machine with an NPU, if the tests use it"


def find(option: str) -> str:
    """Look for the module."""
    if "torch_npu" not in sys.modules and find_spec("torch_npu") is None:
        raise RuntimeUnavailableError(f"{option}: no module 'torch_npu' can be imported")
    return ""


def load(option: str, device: int) -> Runtime:
    """Import torch_npu and load its adapter."""
    from pytest_npudump.runtime.torch_npu.adapter import TorchNpuRuntime  # noqa: PLC0415 - only where chosen

    torch_npu = imported("torch_npu", option, "; is set_env.sh of CANN sourced?")
    if not _has_device(torch_npu):
        raise RuntimeUnavailableError(f"{option}: torch_npu is installed but finds no NPU")
    return TorchNpuRuntime(torch_npu, device)


def probe() -> Probe:
    """Import torch_npu, and ask for its chip.

    Raises:
        RuntimeUnavailableError: it cannot be imported, or finds no device.
    """
    option = "--npudump-runtime=torch_npu"
    find(option)
    return Probe(works=True, why="a device answers", soc=load(option, 0).producer().get("soc", ""))


def needs_process(scene: str) -> bool:
    """CANN decides with a process's first operator whether overflows are dumped."""
    return scene == "overflow"


def is_imported_with_device() -> bool:
    """Return whether torch_npu has been imported, and has a device."""
    torch_npu = sys.modules.get("torch_npu")
    return torch_npu is not None and _has_device(torch_npu)


def _has_device(torch_npu: Any) -> bool:
    try:
        return bool(torch_npu.npu.is_available())
    except (AttributeError, RuntimeError):  # an import that failed half-way, or a driver that does not answer
        return False
