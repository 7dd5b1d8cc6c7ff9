"""TorchAir's own dump of graphs, asked for beside the dump of tensors: it tells which tensor feeds which.

Source: ``debug_config.py`` and ``_ge_concrete_graph/fx2ge_converter.py``, which writes the graph that GE is
handed as ``dynamo_optimized_NAME_rank_R_pid_P_ts_T.txt``.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

GRAPHS = "torchair"
"""The folder of the graphs, beside the configuration of the dump."""
OPTIMISED = "dynamo_optimized_*.txt"
"""Names of the graphs as GE is handed them."""

_REFUSALS = (ValueError, TypeError, OSError, AttributeError)


def ask_for_graphs(config: Any, folder: Path) -> None:
    """Have TorchAir write its graphs as text, unless its user wants them elsewhere, or it cannot.

    Without them a failure names the first tensor that differs, and says that its sources are not known.

    Args:
        config: a ``CompilerConfig``.
        folder: where the configuration of the dump lies.
    """
    dump: Any = getattr(getattr(config, "debug", None), "graph_dump", None)
    if not hasattr(dump, "path") or not hasattr(dump, "type"):
        return
    taken = getattr(dump.type, "value", dump.type) is not None
    if taken and Path(str(dump.path)).name != GRAPHS:
        return
    with suppress(*_REFUSALS):
        target = folder / GRAPHS
        target.mkdir(exist_ok=True)
        dump.path = str(target)
        dump.type = "txt"
