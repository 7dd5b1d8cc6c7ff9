"""What a test did through torch_npu since its dump was asked for, and what leaves a dump empty there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.runtime.base import Evidence

if TYPE_CHECKING:
    from pathlib import Path

_IDLE = (
    "either no operator ran on the NPU while the dump was on, or CANN wrote nothing of those that did: make "
    "the test's tensors on the device 'npu', and run them inside the test or a function-scoped fixture (CANN "
    "writes no statistics for operators captured into a graph, and none of eager operators with "
    "dump_level='op')"
)
_UNSEEN = (
    "no operator ran on the NPU in the test's own thread while the dump was on: move the model to the device "
    "'npu' as well as its input (copies and newly made tensors do not count), and run it eagerly, inside the "
    "test or a function-scoped fixture; operators in other threads, in a replayed graph or in a graph of "
    "torch.compile are not seen here: run one of them in the test's thread, or test with scene='op'"
)
_RELEASED = (
    "the test took npu_dump.config_path or torchair_config(), so it has to switch the dump on itself: "
    "compile its model with that configuration, or call init_dump() and set_dump(path) of "
    "torch_npu.npu.utils, which raise where torch_npu.npu.set_dump says nothing. TorchAir reads "
    "dump_config_path only with the first graph of a process: give such tests isolation='process'"
)


@dataclass(slots=True)
class TorchNpuActivity:
    """What happened since the dump was asked for; operators and models are not counted.

    Attributes:
        watched: whether operators were looked for; the rest as in
            :class:`pytest_npudump.runtime.base.Activity`.
    """

    initialised: bool = False
    models: tuple[Path, ...] = ()
    executions: int = 0
    released: bool = False
    programs: tuple[str, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    watched: bool = False

    @property
    def likely_cause(self) -> str:
        """What most likely left the dump empty."""
        return _RELEASED if self.released else _UNSEEN if self.watched else _IDLE
