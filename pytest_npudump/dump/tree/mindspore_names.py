"""Raw operator names of MindSpore's dump trees: files carry ``_`` where names have ``/`` and ``.``.

Beside the tensors MindSpore leaves the names of the kernels of each graph, in order, in
``rank_{r}/execution_order/ms_execution_order_graph_{g}.csv``, and parameters in
``rank_{r}/graphs/ms_output_trace_code_graph_{g}.pb``. The number behind ``-op`` is not the same in these
files as in the names of dump files (MindSpore 2.10 lists ``Cast-op3`` for the file ``Cast-op0``): that of the
dump files is what the key ``kernels`` of data_dump.json wants.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_npudump.dump.bytes.textfile import read_small
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.tree.raw_names import find_raw_names
from pytest_npudump.errors import DumpError, FormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_RANKS = "rank_[0-9]*"
_ORDERS = f"{_RANKS}/execution_order/ms_execution_order_graph_*.csv"
_GRAPHS = f"{_RANKS}/graphs/ms_output_trace_code_graph_*.pb"
_TITLE = "NodeExecutionOrder-FullNameWithScope"
_NUMBER = re.compile(r"-op\d+\Z", re.ASCII)


def mindspore_raw_names(wanted: Collection[str], root: Path) -> dict[str, tuple[str, ...]]:
    """Return, for each sanitised name of ``wanted`` that MindSpore's own files tell, its raw names, sorted.

    Several raw names may share a sanitised one. Files that cannot be read tell nothing.

    Args:
        wanted: operators' names as files of the dump carry them, and parameters'.
        root: a dump path; any other than MindSpore's tells nothing.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    scopes: defaultdict[str, set[str]] = defaultdict(set)
    for name in _listed(root):
        scope = _NUMBER.sub("", name)
        scopes[sanitise(scope)].add(scope)
    for name in wanted:
        number = _NUMBER.search(name)
        if number is not None:
            found[name] |= {scope + number[0] for scope in scopes.get(name[: number.start()], ())}
    missing = {name for name in wanted if not found.get(name)}
    for graph in sorted(root.glob(_GRAPHS)) if missing else ():
        for name, raw in _in_graph(missing, graph).items():
            found[name] |= raw
    return {name: tuple(sorted(raw)) for name, raw in found.items() if raw}


def _in_graph(wanted: Collection[str], graph: Path) -> dict[str, set[str]]:
    try:
        return {name: set(raw) for name, raw in find_raw_names(wanted, graph).items()}
    except DumpError:
        return {}


def _listed(root: Path) -> Iterator[str]:
    for path in sorted(root.glob(_ORDERS)):
        try:
            lines = read_small(path).decode("utf-8", "surrogateescape").splitlines()
        except FormatError:
            continue
        yield from (line.strip() for line in lines if line.strip() not in {"", _TITLE})
