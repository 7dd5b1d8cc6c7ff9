"""What a scene is to the rest: the arguments it goes with, and its part of acl.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.request import DumpRequest


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene.

    Attributes:
        name: as in the marker.
        statistics: whether statistics are compared with a golden; the others have a judge of their own.
        takes: without statistics, the marker's arguments that it takes beside those that any scene takes.
        alone: arguments that no other scene takes, and why.
        problems: what is wrong with the arguments, where they are those that it takes.
        acl_json: its keys of acl.json's ``dump``: beside those of statistics where it compares these,
            else all but ``dump_path``.
        of_failures: whether what it looks for makes the test's body fail, so that such a run is judged, too.
        own_process: whether each run of a test has to have a process of its own.
    """

    name: str
    statistics: bool = False
    takes: frozenset[str] = frozenset()
    alone: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: Callable[[DumpRequest], list[str]] = lambda _: []
    acl_json: Callable[[DumpRequest], dict[str, Any]] = lambda _: {}
    of_failures: bool = False
    own_process: bool = False
