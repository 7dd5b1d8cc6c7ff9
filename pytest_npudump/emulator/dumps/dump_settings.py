"""What a dump configuration means for the models and operators that run under it.

The rules are GE's (hicann/ge ``dump_manager.cc``, ``dump_properties.cc``, ``dump_callback.cc``), which reads
the configuration after adump has accepted it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.dumps import stats_text

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY_MODEL = ""
"""Key of what a ``dump_list`` item without ``model_name`` asks for: it holds for every model."""

_POSITION = re.compile(r"(input|output)(\d+)\Z")

Blacklist = dict[str, set[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """An accepted configuration that dumps data.

    Attributes:
        root: ``{dump_path}/{time}/``.
        mode: ``input``, ``output`` or ``all``.
        statistics: mask of the statistics to write; 0 for full tensors.
        step: intervals of ``data_index`` that are dumped; empty for all.
        layers: per model (:data:`EVERY_MODEL` for all) the exact names to dump; empty for all of them.
        ranges: per model the ``opname_range`` pairs.
        watcher_nodes: names of the nodes that are watched; empty outside the watcher scene.
        name_blacklist, type_blacklist: per model and name the slots that are left out.
        all_models: whether ``dump_list`` is empty, so that everything is dumped.
        operators: whether single operators are dumped.
        overflow: whether only operators that overflow are dumped (``dump_debug``).
    """

    root: str
    mode: str
    statistics: int
    step: tuple[tuple[int, int], ...]
    layers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    watcher_nodes: frozenset[str] = frozenset()
    name_blacklist: Mapping[str, Blacklist] = field(default_factory=dict)
    type_blacklist: Mapping[str, Blacklist] = field(default_factory=dict)
    all_models: bool = False
    operators: bool = False
    overflow: bool = False

    def step_selected(self, index: int) -> bool:
        """Whether the execution with this ``data_index`` is dumped."""
        return not self.step or any(first <= index <= last for first, last in self.step)


def settings(dump: Mapping[str, Any], root: str, statistics: int) -> DumpSettings:
    """Return what ``dump``, the object of that name in an accepted configuration, asks for.

    ``statistics`` is the process-wide mask; it is ignored for full tensors.
    """
    # GE skips an empty model_name or layer, which only operators' scene allows.
    every = dump.get("dump_list", ())
    items = [item for item in every if item.get("model_name") != "" and item.get("layer") != []]
    blacklists: dict[str, dict[str, Blacklist]] = {
        key: defaultdict(lambda: defaultdict(set)) for key in ("opname_blacklist", "optype_blacklist")
    }
    layers: dict[str, frozenset[str]] = {}
    ranges: dict[str, tuple[tuple[str, str], ...]] = {}
    watched: frozenset[str] = frozenset()
    for item in items:
        model = item.get("model_name", EVERY_MODEL)
        layers[model] = frozenset(item.get("layer", ()))
        watched = frozenset(item.get("watcher_nodes", ())) or watched
        if item.get("opname_range"):
            ranges[model] = tuple((pair["begin"], pair["end"]) for pair in item["opname_range"])
        for key, lists in blacklists.items():
            for entry in item.get(key, ()):
                slots = (_POSITION.match(position) for position in entry.get("pos", ()))
                found = {(slot[1], int(slot[2])) for slot in slots if slot is not None}
                lists[model][entry.get("name", "")] |= found
    return DumpSettings(
        root=root,
        mode=dump.get("dump_mode", "output"),
        statistics=statistics if dump.get("dump_data") == "stats" else 0,
        step=steps(dump.get("dump_step", "")),
        layers=layers,
        ranges=ranges,
        watcher_nodes=watched,
        name_blacklist={model: found for model, found in blacklists["opname_blacklist"].items() if found},
        type_blacklist={model: found for model, found in blacklists["optype_blacklist"].items() if found},
        all_models=not items,
        operators=dump.get("dump_op_switch") == "on",
    )


def statistics_mask(dump: Mapping[str, Any]) -> int:
    """Return the statistics a configuration adds to the process's mask (``dump_setting.cpp``)."""
    if dump.get("dump_data") != "stats":
        return 0
    return stats_text.mask(dump["dump_stats"]) if dump.get("dump_stats") else stats_text.DEFAULT_MASK


def steps(text: str) -> tuple[tuple[int, int], ...]:
    """Return the intervals of ``dump_step``, both ends included: ``0|2-5`` is ``((0, 0), (2, 5))``."""
    pairs = (interval.partition("-") for interval in text.split("|") if interval)
    return tuple((int(first), int(last or first)) for first, _, last in pairs)
