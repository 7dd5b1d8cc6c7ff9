"""Where the exception dumps of a run lie: in its own directory, or where the environment sends them.

CANN takes ``ASCEND_DUMP_PATH``, else ``ASCEND_WORK_PATH`` in place of ``dump_path`` (8.5.0 knows the second
only). ``NPU_COLLECT_PATH``, ``NPU_COLLECT_PATH_EXE`` (to GE) and ``ASCEND_DUMP_SCENE`` switch a dump of their
own on, beside which the test's is ignored; so is it beside a dump that ``acl.init`` switched on and that
cannot be ended, which goes to the working directory unless its file says otherwise. All of them are looked
at, for what is newer than the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.dump.tree.find import Tree, find_files
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pytest_npudump.dump.places import DumpFile
    from pytest_npudump.regression.attempt import Attempt

_PATHS = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE")
_SWITCH = "ASCEND_DUMP_SCENE"
ANOTHER = "another exception dump"
"""What sends a dump to the working directory where no variable does: torch_npu's own acl.json, for one."""
_FOLDER = "data-dump"
_BELOW = Path("extra-info", _FOLDER)
_CAPTURE = "dump-"


@dataclass(frozen=True, slots=True)
class Found:
    """A tree that may hold exception dumps.

    Attributes:
        root: its directory.
        tree: its files.
        capture: name of the capture it belongs to; "" for the test itself.
        outside: what sent it there, a variable or a dump other than the run's; "" for the run's own.
    """

    root: Path
    tree: Tree
    capture: str = ""
    outside: str = ""

    @property
    def dumps(self) -> list[DumpFile]:
        """The exception dumps among the files, in the order of time."""
        return sorted(filter(self._holds, [*self.tree.files, *self.tree.cores]), key=_order)

    def _holds(self, file: DumpFile) -> bool:
        by_name = file.name is not None and file.name.kind in {"exception", "core"}
        below = file.path.relative_to(self.root).parts
        return by_name or bool(self.outside) or _FOLDER in below

    def without(self, paths: Collection[Path]) -> Found:
        """Return the tree with some of its files left out."""
        return replace(self, tree=_kept(self.tree, self.root, lambda path: path not in paths))

    @property
    def others(self) -> Iterator[Path]:
        """Files that are no dump files: objects and descriptions of kernels."""
        return (self.root / name for name in self.tree.other)


def _order(file: DumpFile) -> tuple[int, Path]:
    return (file.name.time if file.name else 0, file.path)


def find_dumps(attempt: Attempt, environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield the trees of a run, those outside of its directory without what is older than the run.

    Raises:
        DumpError: a directory cannot be listed.
    """
    if not attempt.directory.is_dir():
        return
    for folder in sorted(path for path in attempt.directory.iterdir() if path.is_dir()):
        capture = folder.name.removeprefix(_CAPTURE) if folder.name.startswith(_CAPTURE) else ""
        yield Found(folder, find_files(folder), capture)
    since = _began(attempt.directory)
    for variable, base in _bases(environ):
        root = base / _BELOW
        if root.is_dir() and not root.is_relative_to(attempt.directory.resolve()):
            yield Found(root, _since(find_files(root), root, since), outside=variable)


def _bases(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the directories that variables name, once each, and the current one, CANN's last resort."""
    seen = set()
    named = [(variable, environ.get(variable, "")) for variable in _PATHS]
    switched = (_SWITCH, ".") if environ.get(_SWITCH) else (ANOTHER, ".")
    for variable, value in [*named, switched]:
        if value:
            base = Path(value).resolve()
            if base not in seen:
                seen.add(base)
                yield variable, base


def _began(directory: Path) -> int:
    """Return when the run's first configuration was written, in nanoseconds; 0 if none is left."""
    return min((path.stat().st_mtime_ns for path in directory.glob("*.json")), default=0)


def _since(tree: Tree, root: Path, began: int) -> Tree:
    def newer(path: Path) -> bool:
        try:
            return path.stat().st_mtime_ns >= began
        except FileNotFoundError:  # gone meanwhile: others may clean up what is theirs
            return False
        except OSError as error:
            raise DumpError(f"{path}: cannot be looked at: {error.strerror}") from error

    return _kept(tree, root, newer)


def _kept(tree: Tree, root: Path, wanted: Callable[[Path], bool]) -> Tree:
    return replace(
        tree,
        files=[file for file in tree.files if wanted(file.path)],
        cores=[file for file in tree.cores if wanted(file.path)],
        other=[name for name in tree.other if wanted(root / name)],
        problems=[problem for problem in tree.problems if wanted(Path(problem.path))],
    )


def dumps_of_others(found: Found, is_foreign: Callable[[int], bool]) -> frozenset[Path]:
    """Return the files of a tree outside of the run's own that lie in the folders of others' devices.

    Args:
        found: the tree; its folders are named by device.
        is_foreign: whether a device is used by others, and not by this process.
    """
    if not found.outside:
        return frozenset()
    tree = found.tree
    paths = {*(file.path for file in (*tree.files, *tree.cores)), *(found.root / name for name in tree.other)}
    paths |= {Path(problem.path) for problem in tree.problems}
    devices = {path: _device_of(path, found.root) for path in paths}
    return frozenset(path for path, device in devices.items() if device is not None and is_foreign(device))


def _device_of(path: Path, root: Path) -> int | None:
    """Return the number of the device in whose folder a file lies, None where that is no number."""
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    return int(parts[0]) if len(parts) > 1 and parts[0].isascii() and parts[0].isdigit() else None


def refused_environment(environ: Mapping[str, str], inherited: Mapping[str, str]) -> str:
    """Return why a program cannot be run for an exception dump with these variables; "" if it can.

    Args:
        environ: what the program gets in addition.
        inherited: the environment of this process.
    """
    named = [name for name in (*_PATHS, _SWITCH) if name in environ and environ[name] != inherited.get(name)]
    if named:
        return (
            f"{', '.join(named)}: the program's exception dump would go where this test does not look; leave "
            f"it out, or set it for pytest itself"
        )
    set_here = {name: inherited[name] for name in _PATHS if inherited.get(name)}
    relative = [name for name, value in set_here.items() if not Path(value).is_absolute()]
    if inherited.get(_SWITCH) and not set_here.keys() & set(_PATHS[:2]):
        relative.append(_SWITCH)
    if relative:
        return (
            f"{', '.join(relative)}: the program's exception dump would go below its own working directory; "
            f"set ASCEND_DUMP_PATH to an absolute path"
        )
    return ""
