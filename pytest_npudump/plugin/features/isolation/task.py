"""Task of a child process: one run of one test, in a pytest configured as the parent is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.marker import Identity, indices_of
from pytest_npudump.storage.atomic import dump_bytes, load_bytes

LINES = 60
"""Last lines of a process's output: enough for Python's own words on a crash, whose first lines say most."""
GRACE = 15.0
"""Seconds in which a child undoes what it has begun: ends programs, which get 5, and puts files back."""
_NEEDED, _OTHERS = ("pytest_npudump.", "_pytest."), frozenset({"onnx", "asyncio"})
"""Modules that children need and that touch no device, by how their names begin, and by name."""
_DEVICE = tuple(f"pytest_npudump.emulator.{name}" for name in ("acl", "install", "process"))
"""Modules that stand for a device, belong to one process, and read its environment."""

_ONLY_IN_THE_PARENT: Mapping[str, Any] = {
    "capture": "no",
    "numprocesses": None,
    "maxprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
    "usepdb": False,
    "trace": False,
    "maxfail": 0,
    "collectonly": False,
    "pyargs": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "cacheclear": False,
    "cacheshow": None,
    "reruns": None,
    "no_cov": True,
    "log_file": os.devnull,
    "xmlpath": None,
    "htmlpath": None,
    "report_log": None,
    "json_report": None,
    "pastebin": None,
}
"""Options of pytest and widespread plugins that choose among tests, or write a file for a session.

What pytest captures could not be read after a crash: the child's output goes to files of its parent.
"""


def needed() -> list[str]:
    """Return the modules of this process that every child needs, and that touch no device."""
    known = [name for name in sys.modules if name.startswith(_NEEDED) or name in _OTHERS]
    return [name for name in known if not name.startswith(_DEVICE)]


@dataclass(frozen=True, slots=True)
class Task:
    """One run of one test.

    Attributes:
        run: 1 for the run that is judged, 2 for the one that explains.
        directory: of the test's dumps; ``run1`` and ``run2`` lie in it.
        file: the test's file.
        identity: which test of the file, as :class:`pytest_npudump.plugin.marker.Identity` spells it.
        indices: which case of the test, where several have one id.
        options: of pytest and its plugins, plain values only.
        path: Python's module search path.
        meeting_place: folder in which the ranks of a distributed run meet; None where it is no such run.
        worker: what pytest-xdist told the parent, where that is a worker; else None.
    """

    run: int
    directory: Path
    file: Path
    identity: str
    indices: tuple[tuple[str, int], ...]
    options: Mapping[str, Any]
    path: tuple[str, ...]
    meeting_place: Path | None = None
    worker: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        item: pytest.Item,
        run: int,
        directory: Path,
        meeting_place: Path | None,
    ) -> Task:
        """Return the task of running ``item`` in a process of its own."""
        config = item.config
        given = {name: value for name, value in vars(config.option).items() if name != "file_or_dir"}
        options = {name: value for name, value in given.items() if _is_plain(value)}
        options |= {name: value for name, value in _ONLY_IN_THE_PARENT.items() if name in options}
        item.ihook.pytest_npudump_child_options(item=item, options=options)
        options["plugins"] = [*options.get("plugins", ()), "no:terminal"]
        options["basetemp"] = str(_compat.folder_for_a_child(config))
        worker = getattr(config, "workerinput", None)
        return cls(
            run=run,
            directory=directory,
            file=item.path,
            identity=str(Identity.of(item)),
            indices=indices_of(item),
            options=options,
            path=tuple(sys.path),
            meeting_place=meeting_place,
            worker={name: value for name, value in worker.items() if _is_plain(value)} if worker else None,
        )

    @property
    def mailbox(self) -> Path:
        """The file of the child's messages."""
        return self.directory / f"child{self.run}.messages"

    @property
    def judged(self) -> Path:
        """File of the first run's state for the second one, or the parent."""
        return self.directory / "child1.judged"

    @property
    def called(self) -> Path:
        """The file in which a run leaves what its body came to, before its teardown."""
        return self.directory / f"child{self.run}.called"

    def write(self) -> Path:
        """Write the task into its folder and return the file."""
        path = self.directory / f"child{self.run}.task"
        path.write_bytes(dump_bytes(self))
        return path

    @classmethod
    def read(cls, path: Path) -> Task:
        """Read the file that :meth:`write` wrote."""
        task = load_bytes(path.read_bytes())
        assert isinstance(task, cls)  # noqa: S101 - nobody else writes there
        return task


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)
