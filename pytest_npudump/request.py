"""Requests of a marker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import filter as filter_names
from pathlib import Path
from typing import Any

AUTO_LAYERS = "auto"
"""In place of layers that keep tensors: those that tell most."""
GRAPH_SUFFIXES = (".om", ".json", ".txt", ".pbtxt", ".onnx")
"""Suffixes by which a graph's file is read: an om, ATC's JSON of one, GE's text, an ONNX model."""


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """One test's wish: what is dumped, and how it is judged.

    Attributes named as keys of acl.json mean what CANN means by them; the marker has them as ``acl_json``.

    Attributes:
        layers: operator names or globs; empty means every layer.
        scene: ``model`` (a model's operators), ``op`` (single operators, ``dump_op_switch``), ``check_op``
            (the calls of ``npu_dump.check_op``, each against a reference of its own), ``overflow``
            (operators that overflow, ``dump_debug``), ``watcher`` (outputs of ``watcher_nodes`` after each
            of ``layers``) or ``exception`` (the operator that fails on the device).
        dump_scene: with ``scene="exception"`` one of its ``EXCEPTION_SCENES``; None for the first.
        dump_data: None for what the scene needs: statistics of ``model`` and ``op``, else full tensors.
        chosen: whether it was chosen when the golden was recorded, and is written there.
        golden_tensors: names or globs of layers whose tensors are kept with the golden; :data:`AUTO_LAYERS`
            among them stands for outputs of the graph and sources of past failures.
        rtol, atol: tolerance of this test's floating-point statistics; one given alone makes the other 0.
        preset: name of a tolerance preset; None for the run's. ``default`` is ``same`` or ``other``, as fits
            what produced the golden and the run.
        tolerances: further rules, as in a tolerance file.
        escalate: whether a failure is followed by a tensor dump of the failing layers.
        isolation: ``process`` for a child process, ``none`` for pytest's own, None for what the scene and the
            runtime need.
        timeout: seconds an isolated run may take; None for the run's. The marker gives it as ``isolation``.
        repeats: how often the test runs where it is recorded; None for the run's.
        reference: an ONNX model to compare the layers with; relative to the test file's folder.
        reference_map: the marker's ``map``, a YAML file of layers named otherwise than in it, or without
            reference than in the golden; the same.
        graph: file that tells which tensor feeds which, with one of :data:`GRAPH_SUFFIXES`; the same.
        data_dump: further keys of MindSpore's data_dump.json, under its own names; None for none.
        ranks: of a distributed run: ``each`` has a golden of its own, or all share the ``same``.
        devices: how many devices the test uses.
        modules: whether its layers are modules of torch, and nothing else is dumped.
    """

    layers: tuple[str, ...] = ()
    scene: str = "model"
    dump_scene: str | None = None
    model_name: str | None = None
    dump_mode: str = "output"
    dump_level: str | None = None
    dump_step: str | None = None
    dump_data: str | None = None
    chosen: bool = False
    dump_stats: tuple[str, ...] = ()
    dump_kernel_data: str | None = None
    optype_blacklist: tuple[Mapping[str, Any], ...] = ()
    opname_blacklist: tuple[Mapping[str, Any], ...] = ()
    opname_range: tuple[Mapping[str, Any], ...] = ()
    watcher_nodes: tuple[str, ...] = ()
    golden_tensors: tuple[str, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    preset: str | None = None
    tolerances: tuple[Mapping[str, Any], ...] = ()
    escalate: bool = True
    isolation: str | None = None
    timeout: float | None = None
    repeats: int | None = None
    reference: str | None = None
    reference_map: str | None = None
    graph: str | None = None
    data_dump: Mapping[str, Any] | None = None
    ranks: str = "each"
    devices: int = 1
    modules: bool = False

    @property
    def exact_layers(self) -> bool:
        """Return whether CANN itself can select the layers: it takes exact names only."""
        return bool(self.layers) and not any(is_glob(name) for name in self.layers)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Request of one run: tensors to dump, and their place.

    Attributes:
        test: what the test asks for.
        dump_path: existing directory that the dump goes to.
        layers: raw operator names to dump instead of the test's; empty for all of them.
        dump_data: ``stats`` or ``tensor`` instead of the test's.
    """

    test: DumpRequest
    dump_path: Path
    layers: tuple[str, ...] | None = None
    dump_data: str | None = None


_WILDCARD, _INDEX = re.compile(r"[*?]|\[(?!\w\])"), re.compile(r"\[(?=\w\])")


def as_glob(pattern: str) -> str:
    """Return a glob for :mod:`fnmatch`, in which an index, as in ``a[1]*``, is no choice of characters."""
    return _INDEX.sub("[[]", pattern)


def is_glob(name: str) -> bool:
    """Return whether ``name`` has a wildcard of :mod:`fnmatch`; one character in brackets is an index."""
    return bool(_WILDCARD.search(name))


class KnownNames:
    """Known names of one kind: a name that is known means itself alone, any other is a glob."""

    def __init__(
        self, names: Iterable[str], spelling: Callable[[str], str] = str, *, choices: bool = True
    ) -> None:
        """Take the known names.

        Args:
            names: of tests or layers.
            spelling: how else each may be written, as files write layers.
            choices: whether brackets in a glob are a choice of characters; names of tests have their own.
        """
        self._names = {name for name in names if name}
        self._spelling = spelling
        self._as_glob = as_glob if choices else lambda pattern: pattern.replace("[", "[[]")
        self._spelt: dict[str, set[str]] = {}
        for name in self._names:
            self._spelt.setdefault(spelling(name), set()).add(name)

    def called(self, name: str) -> set[str]:
        """Return the names equal to ``name``, in its own spelling before the other one."""
        if name in self._names:
            return {name}
        return self._spelt.get(name) or self._names & {self._spelling(name)}

    def meant(self, patterns: Iterable[str]) -> set[str]:
        """Return the names that patterns mean."""
        return set().union(*(self.called(pattern) or self._matching(pattern) for pattern in patterns))

    def _matching(self, pattern: str) -> set[str]:
        """Return the matches of a glob, either of them as it is or in its other spelling."""
        if not is_glob(pattern):
            return set()
        glob = self._as_glob(pattern)
        plain = self._names.intersection(filter_names(self._spelt, self._spelling(glob)))
        spelt = (self._spelt[name] for name in filter_names(self._spelt, glob))
        return plain.union(filter_names(self._names, glob), *spelt)
