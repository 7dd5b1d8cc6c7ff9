"""``npudump golden remote``: golden tensors in a store: what is there, and what brings it there or here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import byte_size, emit, to_stderr, write_json
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.cli.common.tensor_place import tensor_place
from pytest_npudump.cli.golden.verify import golden_files
from pytest_npudump.errors import NpudumpError, RequestError
from pytest_npudump.golden.integrity import SUFFIX
from pytest_npudump.golden.objects.named_objects import look, move, named_objects, pull, push

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.golden.objects.named_objects import Named, State
    from pytest_npudump.golden.objects.tensor_store import TensorStore

_SHOWN = 5
PULL, PUSH, MOVE = "pull", "push", "move"


def run(arguments: argparse.Namespace) -> int:
    """Do it; 1 where something is not where it is to be, 2 where a golden cannot be read.

    Raises:
        RequestError: there is no store, or no golden.
        NpudumpError: the store cannot be asked.
    """
    store = tensor_place(arguments.paths[0], arguments.store, arguments.cache)
    if not store.url and arguments.action != PULL:
        raise RequestError(
            "no store of golden tensors is named: set npudump_tensor_store in pytest's ini file, or give "
            "--store, such as s3://bucket/folder"
        )
    files = [path for path in golden_files(arguments.paths) if path.suffix == SUFFIX]
    if arguments.action == MOVE:
        return _move(files, store)
    named, unread = named_objects(files)
    for problem in unread:
        to_stderr(f"npudump: {problem}")
    code = _ACTIONS[arguments.action](named, store, arguments)
    return 2 if unread else code


def _status(named: list[Named], store: TensorStore, arguments: argparse.Namespace) -> int:
    with progress("looking at the store") as steps:
        states = look(named, store, steps, verify=arguments.verify)
    if arguments.json:
        write_json(_as_json(states, store), arguments.json)
    if arguments.json != "-":
        size = sum(one.pointer.size for one in named)
        emit([f"store: {store.url}", f"cache: {store.cache.folder}"])
        emit(_lacking(states))
        stored, cached = (sum(getattr(state, name) for state in states) for name in ("stored", "cached"))
        tensors = sum(one.tensors for one in named)
        told = f"{tensors} tensors, {len(named)} contents of {byte_size(size)}"
        emit([f"{told}: {stored} in the store, {cached} cached"])
    return 0 if all(state.stored for state in states) else 1


def _lacking(states: Iterable[State]) -> Iterable[str]:
    for state in states:
        if state.stored:
            continue
        push_here = f"npudump golden remote push{' --replace' if state.problem else ''}"
        way_out = push_here if state.cached else "not cached here: push it where it is, or record it anew"
        yield f"{state.problem or 'not'} in the store: {state.named.words}: {way_out}"


def _as_json(states: Sequence[State], store: TensorStore) -> dict[str, Any]:
    return {
        "store": store.url,
        "cache": str(store.cache.folder),
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
        return _told(push(named, store, steps, anew=arguments.replace), "put into the store", "there")


def _pull(named: list[Named], store: TensorStore, _arguments: argparse.Namespace) -> int:
    if store.url:
        store.objects.look()
    with progress("fetching tensors") as steps:
        return _told(pull(named, store, steps), "fetched", "cached")


def _told(results: Sequence[bool | str], done: str, before: str) -> int:
    failed = [result for result in results if isinstance(result, str)]
    for reason in failed[:_SHOWN]:
        to_stderr(f"npudump: {reason}")
    if len(failed) > _SHOWN:
        to_stderr(f"npudump: ... and {len(failed) - _SHOWN} more")
    count = sum(result is True for result in results)
    rest = f", {len(failed)} failed" if failed else ""
    emit([f"{count} {done}, {len(results) - count - len(failed)} {before} before{rest}"])
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
    emit([f"{moved} tensors moved into the store{f', of {failed} goldens they are not' if failed else ''}"])
    return 1 if failed else 0


_ACTIONS = {"status": _status, PUSH: _push, PULL: _pull}
