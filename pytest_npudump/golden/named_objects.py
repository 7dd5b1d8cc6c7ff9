"""What goldens name in a store, which of it is there, and what brings it there or here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from pytest_npudump.errors import GoldenError, StoreError
from pytest_npudump.golden.kept_tensors import stored_tensors
from pytest_npudump.golden.objects.stored_golden import pointers_of, stage_stored
from pytest_npudump.golden.pair import KEY, left_out, recorded_tensors, source_layers
from pytest_npudump.golden.store import read_golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pytest_npudump.golden.objects.tensor_store import TensorStore
    from pytest_npudump.record.pointer_lines import Pointer

    Steps = Callable[[int, int], None]

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
    """Where an object is.

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


def look(named: list[Named], store: TensorStore, steps: Steps, *, verify: bool = False) -> list[State]:
    """Return where objects are.

    Args:
        named: the objects.
        store: where they may be.
        steps: called with (how many are known, of how many).
        verify: read all of each, here and there, and look at its hash.

    Raises:
        StoreError: the store cannot be asked.
    """

    def state(one: Named) -> State:
        digest, size = one.pointer.digest, one.pointer.size
        cached = (store.cache.read(digest, size) is not None) if verify else store.cache.has(digest, size)
        there = store.objects.size(digest)
        if there != size:
            return State(one, cached, stored=False, problem="" if there is None else f"only {there} bytes")
        if verify and _hash(store, digest) != digest:
            return State(one, cached, stored=False, problem="damaged")
        return State(one, cached, stored=True)

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
    """Have objects in the cache, whole; of each whether it was fetched, or why it could not be."""

    def fetch(one: Named) -> bool | str:
        if store.cache.read(one.pointer.digest, one.pointer.size) is not None:
            return False
        try:
            store.array(one.pointer)
        except GoldenError as error:
            return f"{one.golden}: {error}"
        return True

    return _each(fetch, named, steps)


def move(path: Path, store: TensorStore) -> int:
    """Put the tensors beside a golden into the store, and name them in the golden; return how many.

    The file with the tensors is removed when the golden names them in the store.

    Raises:
        NpudumpError: they are not all there, or the golden cannot be written; both files are as they were.
        OSError: the golden is written, and the file with the tensors cannot be removed.
    """
    golden = read_golden(path)
    beside = recorded_tensors(golden)
    if beside is None:
        return 0
    arrays = {key: tensor.array() for key, tensor in stored_tensors(golden).items()}
    tensors = {key: (array, array.dtype.name) for key, array in arrays.items()}
    alike = left_out(golden)
    extra = {name: value for name, value in golden.extra.items() if name != KEY}
    stage_stored(replace(golden, extra=extra), tensors, alike, store, source_layers(golden)).commit()
    beside.unlink()
    return len(tensors)


def _hash(store: TensorStore, digest: str) -> str:
    found = sha256()
    for piece in store.objects.read(digest):
        found.update(piece)
    return found.hexdigest()


def _each(work: Callable[[Named], Result], named: list[Named], steps: Steps) -> list[Result]:
    found = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for number, result in enumerate(pool.map(work, named), 1):
            found.append(result)
            steps(number, len(named))
    return found
