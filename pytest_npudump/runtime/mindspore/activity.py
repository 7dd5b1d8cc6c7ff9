"""What MindSpore left beside its tensors says of a run, above all of one that dumped nothing.

MindSpore copies the configuration it has read to ``rank_{r}/.dump_metadata``, and lists each graph's kernels
in ``rank_{r}/execution_order/ms_execution_order_graph_{g}.csv``. Once a run matched ``iteration``, its number
stands in ``ms_global_execution_order_graph_{g}.csv`` beside it, whatever ``kernels`` selects.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.dump.bytes.textfile import read_small
from pytest_npudump.errors import FormatError
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.runtime.base import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_METADATA = "rank_[0-9]*/.dump_metadata"
_KERNELS = "rank_[0-9]*/execution_order/ms_execution_order_graph_*.csv"
_RUNS = "rank_[0-9]*/execution_order/ms_global_execution_order_graph_*.csv"
_NO_GRAPH = (
    "MindSpore compiled no graph while the dump was on, and dumps nothing of what runs in PyNative mode: "
    "call the network under mindspore.jit, or after mindspore.set_context(mode=mindspore.GRAPH_MODE), inside "
    "the test or a function-scoped fixture (a graph that this process compiled before the test began has the "
    "same effect: MindSpore reads its configuration with the first one)"
)
_NO_OPERATOR = (
    "no aclop kernel ran on Ascend while the dump was on: scene='op' dumps those alone, by the file that "
    "MS_ACL_DUMP_CFG_PATH names; most operators of MindSpore 2.7 and later are aclnn: use scene='model'"
)


@dataclass(slots=True)
class MindSporeActivity:
    """What happened since the dump was asked for.

    Attributes:
        dump_path: where MindSpore was told to dump; None where no dump was asked for.
        models: MindIR files that were loaded.
        kernels: what the configuration selects; empty for everything.
        iteration: which runs of graphs the configuration selects.
        released: False: nobody but MindSpore can switch the dump on.
        programs: programs that inherited the configuration.
        operators: whether single operators are dumped, which leave none of these files.
        evidence: what shows that programs ran under the dump.
    """

    dump_path: Path | None = None
    models: tuple[Path, ...] = ()
    kernels: tuple[str, ...] = ()
    iteration: str = "all"
    released: bool = False
    programs: tuple[str, ...] = ()
    operators: bool = False
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def was_read(self) -> bool:
        """Whether MindSpore has read the configuration, with its first operator or graph."""
        return any(self._left(_METADATA))

    @property
    def initialised(self) -> bool:
        """Whether MindSpore has read the configuration."""
        return self.was_read

    @property
    def executions(self) -> int:
        """How many runs of graphs MindSpore lists; at least one where any graph ran, some are not listed."""
        return sum(len(lines) for lines in map(_lines, self._left(_RUNS)))

    @property
    def likely_cause(self) -> str:
        """What most likely left the dump empty."""
        return next(self._causes())

    def _causes(self) -> Iterator[str]:
        path = self.dump_path
        if self.operators:
            yield _NO_OPERATOR
        if path is None or not path.is_dir() or not os.access(path, os.W_OK):
            yield f"MindSpore cannot write to {path}, which it does not count as an error"
        if not self._left(_KERNELS):
            yield _NO_GRAPH
        if not self.executions and self.iteration != "all":
            yield (
                f"MindSpore compiled a graph, and dump_step={self.iteration!r} selects none of its runs "
                f"(they count from 0 in each process)"
            )
        if not self.executions:
            yield "MindSpore compiled a graph which then never ran"
        if self.kernels:
            yield f"no operator that ran has a name that the marker's layers select; {self._known()}"
        yield (
            "MindSpore ran a graph under the dump and wrote no tensor: look for its [ERROR] lines in the "
            "captured output, such as a full disk or a dump path that became unwritable"
        )

    def _known(self) -> str:
        names = dict.fromkeys(name for path in self._left(_KERNELS) for name in _lines(path)[1:])
        return f"MindSpore lists {len(names)}: {first_of(names)}" if names else "MindSpore lists none"

    def _left(self, pattern: str) -> list[Path]:
        return sorted(self.dump_path.glob(pattern)) if self.dump_path is not None else []


def _lines(path: Path) -> list[str]:
    """Return the lines of a file that hold something; none where it cannot be read."""
    try:
        return read_small(path).decode("utf-8", "replace").split()
    except FormatError:
        return []
