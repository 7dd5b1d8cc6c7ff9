"""``npudump golden remote``: golden tensors in a store: what is there, and what brings it there or here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import complain, emit, present, to_stderr
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.cli.golden.upkeep import golden_files, named_or_usual
from pytest_npudump.doctor.pytest_config import tensor_place
from pytest_npudump.errors import NpudumpError, RequestError
from pytest_npudump.golden.census import SUFFIX, look, move, named_objects, pull, push
from pytest_npudump.golden.objects import cached_objects, remove
from pytest_npudump.language.text import byte_size
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.golden.census import Named, State
    from pytest_npudump.golden.stored_tensors import TensorStore


_SHOWN = 5


def run(arguments: argparse.Namespace) -> int:
    """Do it; 1 where something is not where it is to be, 2 where a golden cannot be read.

    Raises:
        RequestError: there is no store, or no golden.
        NpudumpError: the store cannot be asked.
    """
    paths = named_or_usual(arguments.paths)
    store = tensor_place(paths[0], arguments.store, arguments.cache)
    if arguments.action == "clear":
        return _clear(store)
    if not store.url and arguments.action != "pull":
        raise RequestError(
            "no store of golden tensors is named: set npudump_tensor_store in pytest's ini file, or "
            "give --store, such as s3://bucket/folder"
        )
    files = [path for path in golden_files(paths) if path.suffix == SUFFIX]
    if arguments.action == "move":
        return _move(files, store)
    named, unread = named_objects(files)
    complain(unread)
    code = _ACTIONS[arguments.action](named, store, arguments)
    return 2 if unread else code


def _status(named: list[Named], store: TensorStore, arguments: argparse.Namespace) -> int:
    with progress("looking at the store") as steps:
        states = look(named, store, steps, verify=arguments.verify)
    held = cached_objects(store.cache)
    cached_bytes = sum(one.size for one in held)
    size = byte_size(sum(one.pointer.size for one in named))
    told = f"{sum(one.tensors for one in named)} tensors, {len(named)} contents of {size}"
    stored, cached = sum(state.stored for state in states), sum(state.cached for state in states)
    lines = [
        f"store: {store.url}",
        f"cache: {store.cache.folder}, {len(held)} contents of {byte_size(cached_bytes)}",
        *_lacking(states),
        f"{told}: {stored} in the store, {cached} cached",
    ]
    present(arguments, lambda: _as_json(states, store, cached_bytes), lines)
    return 0 if all(state.stored for state in states) else 1


def _clear(store: TensorStore) -> int:
    held = cached_objects(store.cache)
    freed = remove(held)
    emit([f"{byte_size(freed)} removed from {store.cache.folder}"])
    return 0 if freed == sum(one.size for one in held) else 1


def _lacking(states: Iterable[State]) -> Iterable[str]:
    for state in states:
        if state.stored:
            continue
        push_here = f"npudump golden remote push{' --replace' if state.problem else ''}"
        way_out = push_here if state.cached else "not cached here: push it where it is, or record it anew"
        yield f"{state.problem or 'not'} in the store: {state.named.words}: {way_out}"


def _as_json(states: Sequence[State], store: TensorStore, cached_bytes: int) -> dict[str, Any]:
    return {
        "store": store.url,
        "cache": str(store.cache.folder),
        "cache_bytes": cached_bytes,
        "objects": [
            {
                "sha256": state.named.pointer.digest,
                "bytes": state.named.pointer.size,
                "golden": str(state.named.golden),
                "tensor": state.named.pointer.key,
                "tensors": state.named.tensors,
                "stored": state.stored,
                "cached": state.cached,
                "problem": state.problem or None,
            }
            for state in states
        ],
    }


def _push(named: list[Named], store: TensorStore, arguments: argparse.Namespace) -> int:
    store.objects.look()
    with progress("putting tensors into the store") as steps:
        results = push(named, store, steps, anew=arguments.replace)
    return _told(results, "{count} put into the store, {before} there before")


def _pull(named: list[Named], store: TensorStore, _arguments: argparse.Namespace) -> int:
    if store.url:
        store.objects.look()
    with progress("fetching tensors") as steps:
        results = pull(named, store, steps)
    return _told(results, "{count} fetched, {before} cached before")


def _told(results: Sequence[bool | str], words: str) -> int:
    failed = [result for result in results if isinstance(result, str)]
    complain(failed[:_SHOWN])
    if len(failed) > _SHOWN:
        to_stderr(f"npudump: ... and {len(failed) - _SHOWN} more")
    count = sum(result is True for result in results)
    rest = f", {len(failed)} failed" if failed else ""
    emit([_(words).format(count=count, before=len(results) - count - len(failed)) + rest])
    return 1 if failed else 0


def _move(files: Sequence[Path], store: TensorStore) -> int:
    moved = failed = 0
    for path in files:
        try:
            count = move(path, store)
        except (NpudumpError, OSError) as error:
            to_stderr(f"npudump: {path}: its tensors are not moved: {error}")
            failed += 1
            continue
        moved += count
        if count:
            emit([f"moved: {count} tensors of {path}"])
    rest = f", of {failed} goldens they are not" if failed else ""
    emit([f"{moved} tensors moved into the store" + rest])
    return 1 if failed else 0


_ACTIONS = {"status": _status, "push": _push, "pull": _pull}
