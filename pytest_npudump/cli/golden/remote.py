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
from pytest_npudump.language.translation import mark, spoken

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
            _(
                "no store of golden tensors is named: set npudump_tensor_store in pytest's ini file, or "
                "give --store, such as s3://bucket/folder"
            )
        )
    files = [path for path in golden_files(paths) if path.suffix == SUFFIX]
    if arguments.action == "move":
        return _move(files, store)
    named, unread = named_objects(files)
    complain(unread)
    code = _ACTIONS[arguments.action](named, store, arguments)
    return 2 if unread else code


def _status(named: list[Named], store: TensorStore, arguments: argparse.Namespace) -> int:
    with progress(_("looking at the store")) as steps:
        states = look(named, store, steps, verify=arguments.verify)
    held = cached_objects(store.cache)
    cached_bytes = sum(one.size for one in held)
    told = _("{tensors} tensors, {count} contents of {size}").format(
        tensors=sum(one.tensors for one in named),
        count=len(named),
        size=byte_size(sum(one.pointer.size for one in named)),
    )
    lines = [
        _("store: {url}").format(url=store.url),
        _("cache: {folder}, {count} contents of {size}").format(
            folder=store.cache.folder, count=len(held), size=byte_size(cached_bytes)
        ),
        *_lacking(states),
        _("{told}: {stored} in the store, {cached} cached").format(
            told=told,
            stored=sum(state.stored for state in states),
            cached=sum(state.cached for state in states),
        ),
    ]
    present(arguments, lambda: _as_json(states, store, cached_bytes), lines)
    return 0 if all(state.stored for state in states) else 1


def _clear(store: TensorStore) -> int:
    held = cached_objects(store.cache)
    freed = remove(held)
    emit([_("{size} removed from {folder}").format(size=byte_size(freed), folder=store.cache.folder)])
    return 0 if freed == sum(one.size for one in held) else 1


def _lacking(states: Iterable[State]) -> Iterable[str]:
    for state in states:
        if state.stored:
            continue
        push_here = f"npudump golden remote push{' --replace' if state.problem else ''}"
        way_out = push_here if state.cached else _("not cached here: push it where it is, or record it anew")
        yield _("{problem} in the store: {what}: {way_out}").format(
            problem=spoken(state.problem) or _("not"), what=state.named.words, way_out=way_out
        )


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
    with progress(_("putting tensors into the store")) as steps:
        results = push(named, store, steps, anew=arguments.replace)
    return _told(results, mark("{count} put into the store, {before} there before"))


def _pull(named: list[Named], store: TensorStore, _arguments: argparse.Namespace) -> int:
    if store.url:
        store.objects.look()
    with progress(_("fetching tensors")) as steps:
        results = pull(named, store, steps)
    return _told(results, mark("{count} fetched, {before} cached before"))


def _told(results: Sequence[bool | str], words: str) -> int:
    failed = [result for result in results if isinstance(result, str)]
    complain(failed[:_SHOWN])
    if len(failed) > _SHOWN:
        to_stderr(_("npudump: ... and {left} more").format(left=len(failed) - _SHOWN))
    count = sum(result is True for result in results)
    rest = _(", {count} failed").format(count=len(failed)) if failed else ""
    emit([_(words).format(count=count, before=len(results) - count - len(failed)) + rest])
    return 1 if failed else 0


def _move(files: Sequence[Path], store: TensorStore) -> int:
    moved = failed = 0
    for path in files:
        try:
            count = move(path, store)
        except (NpudumpError, OSError) as error:
            to_stderr(_("npudump: {path}: its tensors are not moved: {error}").format(path=path, error=error))
            failed += 1
            continue
        moved += count
        if count:
            emit([_("moved: {count} tensors of {path}").format(count=count, path=path)])
    rest = _(", of {failed} goldens they are not").format(failed=failed) if failed else ""
    emit([_("{moved} tensors moved into the store").format(moved=moved) + rest])
    return 1 if failed else 0


_ACTIONS = {"status": _status, "push": _push, "pull": _pull}
