"""Census of the files below the folder of goldens: those of a test, of none, and unjudged ones.

What is not known to be left over is never told to be: a test that was not collected is no test that is gone.
"""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from pytest_npudump.errors import GoldenError, StoreError
from pytest_npudump.golden.path import is_variant
from pytest_npudump.golden.store import (
    KEY,
    is_stored,
    read_golden,
    recorded_tensors,
    tensors_path,
    waiting_path,
)
from pytest_npudump.golden.stored_tensors import TensorStore, pointers_of, stored_tensors
from pytest_npudump.golden.tensors import is_foreign
from pytest_npudump.golden.variants import VARIANTS, variant_path, variants_of
from pytest_npudump.record.noise import calibration_of, repeats_of
from pytest_npudump.record.record import LEFT_OUT, OVERFLOW, UNWRITTEN, Record, entries_of, left_out_of
from pytest_npudump.storage.atomic import STALE_SECONDS, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.record.rows import Pointer

    Steps = Callable[[int, int], None]


_RANK = re.compile(r"(?:^|[@_])rank[0-9]")
_INI_FILES = (
    ".pytest.ini",
    ".pytest.toml",
    "pyproject.toml",
    "pytest.ini",
    "pytest.toml",
    "setup.cfg",
    "tox.ini",
)


@dataclass(frozen=True)
class Collection:
    """Findings of a collection of tests.

    Attributes:
        root: the folder of goldens.
        rootdir: what names of test files are relative to.
        goldens: by golden file, the test it belongs to.
        files: test files all of whose tests are known.
        unclear: test functions, as users type them, of which cases may be hidden.
    """

    root: Path
    rootdir: Path
    goldens: Mapping[Path, str]
    files: frozenset[str]
    unclear: frozenset[str] = frozenset()

    def elsewhere(self, file: str) -> str:
        """Return why a test file may be of another rootdir that shares the folder of goldens; "" if not.

        Args:
            file: the test file that a golden names, relative to the rootdir of its run.
        """
        if self._neighbours is None:
            return f"{self.root} lies outside of {self.rootdir} and may have goldens of other projects"
        named = PurePosixPath(file).parts
        parts = tuple(part for part in named if part != "..")
        for found in self._neighbours.get(parts[-1] if parts else "", ()):
            rootdir = found.parents[len(parts) - 1]
            if found.parts[-len(parts) :] != parts or rootdir == self.rootdir.resolve():
                continue
            # Tests below this rootdir are run with its configuration where none of their own is there.
            own = any((rootdir / name).is_file() for name in _INI_FILES)
            if ".." in named or own or not rootdir.is_relative_to(self.rootdir.resolve()):
                return f"{found} may be its test file, from another rootdir"
        return ""

    @cached_property
    def _neighbours(self) -> dict[str, list[Path]] | None:
        """Files of the repository by name; None where the goldens are outside of it."""
        root, rootdir = self.root.resolve(), self.rootdir.resolve()
        top = next((path for path in (rootdir, *rootdir.parents) if (path / ".git").exists()), None)
        top = top or Path(os.path.commonpath([rootdir, root.parent]))
        if top.parent == top or not root.is_relative_to(top):
            return None
        found: dict[str, list[Path]] = {}
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name[:1] != "." and name != "node_modules"]
            for name in names:
                found.setdefault(name, []).append(Path(folder, name))
        return found


@dataclass(frozen=True, slots=True)
class GoldenFinding:
    """A file, and what was found of it.

    Attributes:
        path: the file.
        why: the reason, in words; of a file that is used, the test.
        stamp: inode, size and time of the file, which tell whether it is still the one that was judged.
    """

    path: Path
    why: str
    stamp: tuple[int, ...]

    def remove(self) -> None:
        """Remove the file.

        Raises:
            GoldenError: it cannot be removed, or is another one meanwhile; it is as it was.
        """
        with locked(self.path):
            if _stamp(self.path) != self.stamp:
                raise GoldenError(f"{self.path}: was written meanwhile: it is as it is; look again")
            try:
                self.path.unlink()
            except OSError as error:
                raise GoldenError(f"{self.path}: cannot be removed: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Census:
    """The files below the folder of goldens.

    Attributes:
        used: goldens that tests have, with them.
        stale: files that nothing reads, in the order in which they may be removed: variants before the
            goldens that they differ from, goldens before tensors.
        unjudged: files of which neither is known.
    """

    used: tuple[GoldenFinding, ...]
    stale: tuple[GoldenFinding, ...]
    unjudged: tuple[GoldenFinding, ...]


def census(collection: Collection, variants: Sequence[str] = ()) -> Census:
    """Judge each file.

    Args:
        collection: of all tests.
        variants: names of the variants that runs select, besides those that a common golden names; none
            for any.

    Raises:
        OSError: a folder cannot be looked at.
        GoldenError: no golden of a test here is of one of the variants, whose name may be misspelt.
    """
    found: dict[str, list[GoldenFinding]] = {"used": [], "stale": [], "unjudged": []}
    kinds: dict[Path, str] = {}
    named: dict[Path, frozenset[str]] = {}
    places = {path.with_suffix("") for path in collection.goldens}
    files = files_below(collection.root) if collection.root.is_dir() else []
    files.sort(key=lambda path: "@" not in path.name)
    _refuse_unknown(variants, (path for path in files if _place(path) in places))
    for path in (path for path in files if path.suffix == SUFFIX):
        try:
            if _place(path) not in places:
                kinds[path], why = of_test(read_golden(path).test, collection)
            elif variants and not _is_selected(path, variants, named):
                kinds[path], why = "stale", f"the variant {_variant(path)!r}, which no run selects"
            else:
                kinds[path], why = "used", collection.goldens.get(_common(path), "")
        except GoldenError as error:
            kinds[path], why = "unjudged", str(error)
        found[kinds[path]].append(GoldenFinding(path, why, _stamp(path)))
    tensors = (path for path in files if path.suffix == TENSORS)
    others = ((path, *_of_tensors(path, kinds.get(path.with_suffix(SUFFIX), ""))) for path in tensors)
    for path, kind, why in chain(others, _staged(collection.root, kinds)):
        if kind != "used":
            found[kind].append(GoldenFinding(path, why, _stamp(path)))
    return Census(*(tuple(found[kind]) for kind in ("used", "stale", "unjudged")))


def _place(path: Path) -> Path:
    """Return a golden's place, which its variants and tensors share."""
    return path.with_name(path.stem.partition("@")[0])


def _common(path: Path) -> Path:
    return path.with_name(_place(path).name + SUFFIX)


def _variant(path: Path) -> str:
    return path.stem.partition("@")[2]


def _refuse_unknown(variants: Sequence[str], files: Iterable[Path]) -> None:
    """Refuse a name of which no golden is: the files of all variants would be stale by a slip of the pen."""
    known = dict.fromkeys(_variant(path) for path in files if _variant(path))
    for name in variants:
        if not any(is_variant(spelled, name) for spelled in known):
            raise GoldenError(
                f"the variant {name!r}: no golden of these tests is of it; these variants are there: "
                f"{', '.join(known) or 'none'}"
            )


def _is_selected(path: Path, variants: Sequence[str], named: dict[Path, frozenset[str]]) -> bool:
    """Return whether a run may choose a golden of a test: by an option, a rank, or the common golden.

    Raises:
        GoldenError: the common golden, which may name it, cannot be read.
    """
    variant = _variant(path)
    if not variant or _RANK.search(variant) or any(is_variant(variant, name) for name in variants):
        return True
    common = _common(path)
    if common not in named:
        named[common] = frozenset(variants_of(read_golden(common)) if common.exists() else ())
    return variant in named[common]


def of_test(test: str, collection: Collection) -> tuple[str, str]:
    """Return whether what no collected test has there is stale or unjudged, and why."""
    file = test.partition("::")[0]
    for place in (path for path, name in collection.goldens.items() if name == test):
        if place.exists():
            return "stale", f"{test} reads {os.path.relpath(place)}"
        return "unjudged", f"{test} reads {os.path.relpath(place)}, which is missing: move the file there"
    if test.partition("[")[0] in collection.unclear:
        return "unjudged", f"{test}: has no parameters on this machine, and may have some on another"
    is_collected = file in collection.files
    if not is_collected and (collection.rootdir / file).exists():
        return "unjudged", f"{file} was not collected: it is skipped as a whole, or lies outside of testpaths"
    if elsewhere := collection.elsewhere(file):
        return "unjudged", f"{test}: {elsewhere}"
    return "stale", f"{file} has no {test.partition('::')[2]}" if is_collected else f"no test file {file}"


def _of_tensors(path: Path, golden: str) -> tuple[str, str]:
    """Judge tensors by what was found of the golden beside them, "" for none."""
    if not golden:
        if is_foreign(path):
            return "unjudged", "tensors that this plugin has not written, without a golden"
        return "stale", "tensors without a golden"
    if golden != "used":
        return golden, f"tensors of {path.stem}{SUFFIX}"
    try:
        read = recorded_tensors(read_golden(path.with_suffix(SUFFIX)))
    except GoldenError as error:
        return "unjudged", str(error)
    return ("used", "") if read else ("stale", f"tensors that {path.stem}{SUFFIX} does not name")


def _staged(root: Path, goldens: Mapping[Path, str]) -> Iterator[tuple[Path, str, str]]:
    """Yield leftovers of updates beside goldens, and whether each is stale."""
    waiting = {str(waiting_path(path.with_suffix(TENSORS))): path for path in goldens}
    for path in sorted([*root.rglob(f".npudump-*{TENSORS}"), *root.rglob(".npudump-*.tmp")]):
        real = os.path.realpath(path)
        golden = waiting.get(real)
        try:
            if golden is not None and str(recorded_tensors(read_golden(golden))) == real:
                continue
        except GoldenError as error:
            yield path, "unjudged", str(error)
            continue
        if path.lstat().st_mtime < time.time() - STALE_SECONDS:
            yield path, "stale", "left by an update that did not end"
        else:
            yield path, "unjudged", "may belong to an update that goes on: not a day old"


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.lstat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


_AT_ONCE = 8
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Named:
    """An object that goldens name.

    Attributes:
        pointer: of the first tensor that has it.
        golden: the file that names that.
        tensors: how many tensors are it.
    """

    pointer: Pointer
    golden: Path
    tensors: int = 1

    @property
    def words(self) -> str:
        """The tensor, and what its content is known by."""
        more = f" and {self.tensors - 1} more" if self.tensors > 1 else ""
        pointer = self.pointer
        return f"{self.golden}: {pointer.key}{more} (sha256 {pointer.digest}, {pointer.size} bytes)"


@dataclass(frozen=True, slots=True)
class State:
    """Place of an object.

    Attributes:
        named: the object.
        cached: whether this machine has it.
        stored: whether the store has it.
        problem: what is wrong with it there; "" for nothing.
    """

    named: Named
    cached: bool
    stored: bool
    problem: str = ""


def named_objects(goldens: Iterable[Path]) -> tuple[list[Named], list[str]]:
    """Return the objects that goldens name, each once, and why goldens cannot be read."""
    found: dict[str, Named] = {}
    problems = []
    for path in goldens:
        try:
            pointers = pointers_of(read_golden(path))
        except GoldenError as error:
            problems.append(str(error))
            continue
        for pointer in filter(lambda one: one.size, pointers.values()):
            known = found.get(pointer.digest, Named(pointer, path, 0))
            found[pointer.digest] = replace(known, tensors=known.tensors + 1)
    return [*found.values()], problems


def look(named: list[Named], store: TensorStore, steps: Steps) -> list[State]:
    """Return the places of objects.

    Args:
        named: the objects.
        store: where they may be.
        steps: called with (how many are known, of how many).

    Raises:
        StoreError: the store cannot be asked.
    """

    def state(one: Named) -> State:
        digest, size = one.pointer.digest, one.pointer.size
        there = store.objects.size(digest)
        problem = "" if there in {None, size} else f"only {there} bytes"
        return State(one, store.cache.has(digest, size), stored=there == size, problem=problem)

    return _each(state, named, steps)


def push(named: list[Named], store: TensorStore, steps: Steps, *, anew: bool = False) -> list[bool | str]:
    """Put cached objects into the store, also those that are there where ``anew``.

    Returns:
        Of each whether it was put there, or why it could not be.
    """

    def put(one: Named) -> bool | str:
        try:
            return store.push(one.pointer.digest, one.pointer.size, replace=anew)
        except StoreError as error:
            return f"{one.words}: {error}"

    return _each(put, named, steps)


def pull(named: list[Named], store: TensorStore, steps: Steps) -> list[bool | str]:
    """Fetch objects to the cache, whole; return for each whether it was fetched, or why it could not be."""

    def fetch(one: Named) -> bool | str:
        if store.cache.read(one.pointer.digest, one.pointer.size) is not None:
            return False
        try:
            store.array(one.pointer)
        except GoldenError as error:
            return f"{one.golden}: {error}"
        return True

    return _each(fetch, named, steps)


def _each(work: Callable[[Named], Result], named: list[Named], steps: Steps) -> list[Result]:
    found = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for number, result in enumerate(pool.map(work, named), 1):
            found.append(result)
            steps(number, len(named))
    return found


SUFFIX = ".yaml"
TENSORS = ".safetensors"
_OWN = ".npudump-"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a file.

    Attributes:
        path: the file.
        reason: what, where and what to do about it, the file's name included.
    """

    path: Path
    reason: str


def files_below(root: Path) -> list[Path]:
    """Return the goldens and tensors in a folder and those below it, sorted; not what waits beside them.

    Raises:
        OSError: a folder cannot be looked at.
    """

    def refuse(error: OSError) -> None:
        raise error

    return sorted(
        root.__class__(folder, name)
        for folder, _, names in os.walk(root, onerror=refuse)
        for name in names
        if name.endswith((SUFFIX, TENSORS)) and not name.startswith(_OWN)
    )


def faults(files: Iterable[Path]) -> Iterator[Fault]:
    """Yield the faults of goldens and tensors: one per file, and each test that two files claim.

    Args:
        files: goldens, and tensors, of which is asked whether a golden is beside them.
    """
    places: dict[str, Path] = {}
    for path in files:
        if path.suffix == TENSORS:
            if not path.with_suffix(SUFFIX).exists():
                yield Fault(
                    path,
                    f"{path}: tensors without a golden, expected {path.stem}{SUFFIX} beside them: remove the "
                    f"file, or restore the golden from version control",
                )
            continue
        try:
            golden = read_golden(path)
            _check(golden)
        except GoldenError as error:
            yield Fault(path, str(error))
            continue
        if (other := places.setdefault(golden.test, _place(path))) != _place(path):
            yield Fault(
                path,
                f"{path}: claims the test {golden.test!r}, and so does {other}{SUFFIX}: remove the one whose "
                f"test is no more, or correct its key 'test'",
            )


def _check(golden: Record) -> None:
    """Check the parts of a golden that reading leaves open.

    Raises:
        GoldenError: something of it is not as it is written, or its tensors are not those of its recording.
    """
    for name in variants_of(golden):
        if not variant_path(golden.path, name).exists():
            raise GoldenError(
                f"{golden.path}: names the variant {name!r}, which is not beside it: restore it from version "
                f"control, or take the name out of {VARIANTS!r}"
            )
    if golden.base is not None and golden.path.stem.partition("@")[2] not in variants_of(golden.base):
        raise GoldenError(
            f"{golden.path}: {golden.base.path.name} names no such variant, so that no run chooses it: name "
            f"it with npudump golden split, or remove it with npudump golden fold"
        )
    if not len(golden.table) and OVERFLOW not in golden.extra:
        raise GoldenError(
            f"{golden.path}: lists no tensor, so that nothing is compared with it: restore the file from "
            f"version control, or accept anew with --npudump-update-golden"
        )
    if LEFT_OUT in entries_of(golden).values() and not left_out_of(golden, golden.facts):
        raise GoldenError(
            f"{golden.path}: {UNWRITTEN!r} leaves tensors out, which only MindSpore on a CPU can record: "
            f"remove the key, or accept anew with --npudump-update-golden"
        )
    repeats_of(golden.extra, golden.path)
    calibration_of(golden.extra, golden.path)
    beside = tensors_path(golden.path)
    if recorded_tensors(golden) is not None or (pointers_of(golden) and not beside.exists()):
        stored_tensors(golden, foreign=True)
    elif KEY in golden.extra and not is_stored(golden):
        raise GoldenError(
            f"{golden.path}: the tensors of its recording are not beside it, expected {beside.name}: restore "
            f"both from version control, or accept anew with --npudump-update-golden"
        )
    elif beside.exists():
        raise GoldenError(
            f"{beside}: belongs to no recording that {golden.path.name} names: restore both from version "
            f"control, or remove it"
        )
