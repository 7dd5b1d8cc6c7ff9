"""A variant as only what differs from the common golden beside it.

Its file is a golden with the rows that differ, and the key ``variant``: the common golden's name, the tensors
of that which the variant does not have (``without``), and those that only it has, by the tensor that they
stand behind (``added``). All else of its head is its own. A row of the common golden brings its noise along
only where both files have one calibration.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import GoldenError, GoldenMissingError, MisplacedTensorsError, said
from pytest_npudump.golden.tensors import read_metadata, save_tensors, tensors_digest
from pytest_npudump.record.noise import CALIBRATION, are_texts
from pytest_npudump.record.record import EDGES, MODELS, OUTPUTS, Record, rows_of
from pytest_npudump.record.rows import differing_keys
from pytest_npudump.record.text import parse, render
from pytest_npudump.storage.atomic import locked, move_file, refuse_link, replace_file, stage_file
from pytest_npudump.storage.regular_file import open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.golden.tensors import Tensor


VARIANT = "variant"
"""Key of a variant's file that holds only what differs."""
_BASE, _WITHOUT, _ADDED = "base", "without", "added"
_NOTHING = "-"
_START = ""
_INHERITED = (EDGES, MODELS, OUTPUTS)


def base_name(golden: Record) -> str:
    """Return the file name of the common golden that a variant's file differs from; "" for other files.

    Raises:
        GoldenError: the key ``variant`` is not as it is written.
    """
    return str(_told(golden)[_BASE]) if VARIANT in golden.extra else ""


def laid_over(own: Record, base: Record) -> Record:
    """Return the whole golden of a variant's file.

    Args:
        own: the file as it was read.
        base: the common golden.

    Raises:
        GoldenError: the two do not fit each other.
    """
    told = _told(own)
    if own.test != base.test:
        raise _unfit(own, base, f"is of {base.test!r}, this one of {own.test!r}")
    seen = _with_noise_of(base, own.extra.get(CALIBRATION))
    tables = (_full(seen, own.table), _full(own.table, seen))
    order = _order(own, base, told)
    places = [{key: row for row, key in enumerate(table.keys)} for table in tables]
    rows = [(1, places[1][key]) if key in places[1] else (0, places[0][key]) for key in order]
    table = _slim(rows_of(tables, rows))
    extra = {name: value for name, value in own.extra.items() if name != VARIANT}
    digest = sha256(f"{own.digest} {base.digest}".encode()).hexdigest()
    blocks = {name: text for name in _INHERITED if (text := own.blocks.get(name) or base.blocks.get(name))}
    changed = {key: stamp for key, stamp in base.changed.items() if key not in places[1]} | {**own.changed}
    whole = replace(own, table=table, extra=extra, blocks=blocks, digest=digest, changed=changed)
    return replace(whole, base=base, own_digest=own.digest)


def as_written(golden: Record) -> Record:
    """Return the content of a golden's file: only differences from its base where it has one.

    A golden that cannot be told by its base, as where tensors run in another order, is written whole.
    """
    base = golden.base
    if base is None:
        return golden
    whole = replace(golden, base=None)
    try:
        own = _difference(whole, base)
        back = replace(laid_over(own, base), base=None, changed={})
        same = render(back) == render(replace(whole, changed={}))
    except (GoldenError, KeyError):
        return whole
    return own if same else whole


def differing(golden: Record, base: Record) -> list[str]:
    """Return the keys of a golden's tensors that are other ones than in the base, or not in it."""
    seen = _with_noise_of(base, golden.extra.get(CALIBRATION))
    return differing_keys(seen, golden.table, summed_by_both=False)


def _difference(golden: Record, base: Record) -> Record:
    keys = set(differing(golden, base))
    there = set(base.table.keys)
    added: dict[str, list[str]] = {}
    anchor = _START
    for key in golden.table.keys:
        if key in there:
            anchor = key
        else:
            added.setdefault(anchor, []).append(key)
    without = sorted(there - set(golden.table.keys))
    told: dict[str, Any] = {_BASE: base.path.name}
    told |= ({_WITHOUT: without} if without else {}) | ({_ADDED: added} if added else {})
    rows = [(0, row) for row, key in enumerate(golden.table.keys) if key in keys]
    table = _slim(rows_of((golden.table, golden.table), rows))
    alike = {name for name in _INHERITED if golden.blocks.get(name) == base.blocks.get(name)}
    blocks = {name: text for name, text in golden.blocks.items() if name not in alike}
    return replace(golden, table=table, extra={VARIANT: told, **golden.extra}, blocks=blocks)


def _order(own: Record, base: Record, told: Mapping[str, Any]) -> list[str]:
    without, there = set(told.get(_WITHOUT, ())), set(base.table.keys)
    added = {at: [key for key in keys if key not in there] for at, keys in told.get(_ADDED, {}).items()}
    order = list(added.pop(_START, ()))
    for key in base.table.keys:
        if key not in without:
            order.append(key)
        order += added.pop(key, ())
    if homeless := next((key for key, names in added.items() if names), ""):
        raise _unfit(own, base, f"has no tensor {homeless!r}, behind which tensors of this one stand")
    if (lost := set(own.table.keys) - set(order)) or len(set(order)) < len(order):
        some = min(lost) if lost else "a tensor"
        raise _unfit(own, base, f"does not tell where {some!r} of this one stands, or tells it twice")
    if unknown := set(order) - set(own.table.keys) - set(base.table.keys):
        raise _unfit(own, base, f"has no tensor {min(unknown)!r}, of which this one says that it is added")
    return order


def _with_noise_of(base: Record, calibration: object) -> StatsTable:
    """Return a base's table as a variant sees it: without noise that another calibration has measured."""
    same = base.extra.get(CALIBRATION) == calibration
    return base.table if same else replace(base.table, noise=())


def _full(table: StatsTable, other: StatsTable) -> StatsTable:
    """Return a table with the columns that either has."""
    return replace(table, noise=table.noise or ((_NOTHING,) * len(table) if other.noise else ()))


def _slim(table: StatsTable) -> StatsTable:
    """Return a table without empty columns."""
    noise = table.noise if set(table.noise) - {_NOTHING} else ()
    return replace(table, noise=noise, digests=table.digests if any(table.digests) else ())


def _told(golden: Record) -> Mapping[str, Any]:
    found = golden.extra.get(VARIANT)
    if isinstance(found, dict) and not found.keys() - {_BASE, _WITHOUT, _ADDED}:
        name, without, added = found.get(_BASE), found.get(_WITHOUT, []), found.get(_ADDED, {})
        plain = isinstance(name, str) and name.endswith(".yaml") and not {"/", "\\", "@"} & set(name)
        if plain and are_texts(without) and isinstance(added, dict) and all(map(are_texts, added.values())):
            return found
    raise GoldenError(
        f"{golden.path}: {VARIANT} is {found!r}, expected a mapping with {_BASE} (the file name of the "
        f"golden beside it), {_WITHOUT} and {_ADDED}. Restore the file from version control, or accept anew "
        f"with --npudump-update-golden"
    )


def _unfit(own: Record, base: Record, reason: str) -> GoldenError:
    return GoldenError(
        f"{own.path}: holds only what differs from {base.path.name}, and that {reason}. Restore both from "
        f"version control, or accept anew with --npudump-update-golden"
    )


KEY = "golden_tensors"
"""The golden file's key for what is said of the tensors beside it."""

_RECORDING = "recording"
LEFT_OUT = "left_out"
SOURCES = "sources"
HASH = "sha256"
STORED = "stored"
"""Facts under that key: layers left out, and that the tensors lie in a store, each under its hash."""


def tensors_path(golden: Path) -> Path:
    """Return the place of the tensors of the golden file at ``golden``."""
    return golden.with_suffix(".safetensors")


def left_out(golden: Record) -> tuple[str, ...]:
    """Return the layers, as in file names, whose tensors the recording could not tell apart.

    Raises:
        GoldenError: the golden's key ``golden_tensors`` is not as it is written.
    """
    return tuple(_facts(golden).get(LEFT_OUT, ()))


def source_layers(golden: Record) -> tuple[str, ...]:
    """Return the layers whose tensors are kept because they were sources of failures, the latest first.

    Raises:
        GoldenError: the golden's key ``golden_tensors`` is not as it is written.
    """
    return tuple(_facts(golden).get(SOURCES, ()))


def is_stored(golden: Record) -> bool:
    """Return whether the golden's tensors lie in a store, and not beside it.

    Raises:
        GoldenError: the golden's key ``golden_tensors`` is not as it is written.
    """
    return STORED in _facts(golden)


def recorded_tensors(golden: Record) -> Path | None:
    """Return the file that holds the tensors recorded with ``golden``; None where there is none.

    Raises:
        GoldenError: there are tensors, and they are of another recording or cannot be read.
    """
    path = tensors_path(golden.path)
    if is_stored(golden):
        return None
    named = _facts(golden).get(_RECORDING)
    if named is None:
        return path if path.exists() and _recording(path) is None else None
    places = [place for place in (path, waiting_path(path)) if place.exists()]
    for place in places:
        with suppress(GoldenError):
            if _recording(place) == named:
                return place
    for place in places:
        _recording(place)  # a file that cannot be read is the more telling error
    if places:
        raise other_recording(golden)
    return None


def other_recording(golden: Record) -> GoldenError:
    """Return the error for tensors that were not recorded with ``golden``."""
    return GoldenError(
        f"{tensors_path(golden.path)} was recorded with other statistics than {golden.path.name} beside it: "
        f"restore both from version control, or accept anew with --npudump-update-golden"
    )


@dataclass(frozen=True, slots=True)
class Recording:
    """A golden that was recorded and does not count yet: it lies beside the one that it is to replace.

    Attributes:
        path: the golden file.
        staged: what is to replace it; None where it stays as it is.
        digest: of the golden file's content where the recording counts.
        tensors: which recording the tensors are of that wait beside the golden file; "" where none do.
    """

    path: Path
    staged: Path | None
    digest: str
    tensors: str = ""

    def commit(self, replacing: str | None = None) -> None:
        """Replace the golden by the recording; another run may have recorded the same.

        Args:
            replacing: digest of the golden file that it is to replace, "" for no file; None for any.

        Raises:
            MisplacedTensorsError: it counts, and the tensors cannot be put in their place.
            GoldenError: it cannot be put there, or another recording has taken its place since: what was
                there counts, and the recording is discarded.
        """
        try:
            self._commit(replacing)
        except MisplacedTensorsError:
            raise
        except GoldenError:
            self.discard()
            raise

    def _commit(self, replacing: str | None) -> None:
        with ExitStack() as stack:
            beside = tensors_path(self.path)
            target = stack.enter_context(locked(beside)) if self.tensors else beside
            golden = stack.enter_context(locked(self.path)) if self.staged is not None else self.path
            staged = has_digest(self.path, self.digest) if self.staged is None else self.staged.exists()
            if not staged or bool(self.tensors and _recording_if_any(waiting_path(target)) != self.tensors):
                same = not self.tensors or _recording_if_any(target) == self.tensors
                if same and has_digest(self.path, self.digest):  # which another run has recorded
                    return
                raise GoldenError(
                    f"{self.path}: what was recorded is not there any more: another run has recorded the "
                    "golden meanwhile, or removed its files; accept again, with one run at a time"
                )
            if self.tensors:
                refuse_others(target)
            if self.staged is not None:
                refuse_others(golden)
                refuse_change(golden, replacing)
                move_file(self.staged, golden)
            if self.tensors:
                try:
                    move_file(waiting_path(target), target)
                except GoldenError as error:
                    raise MisplacedTensorsError(
                        f"{self.path} is recorded and counts, but {error}; move it there before both are "
                        f"committed"
                    ) from error

    def discard(self) -> None:
        """Remove the recording; files that cannot be removed go with the next one of the golden."""
        with suppress(GoldenError, OSError):
            if self.staged is not None:
                self.staged.unlink(missing_ok=True)
            if self.tensors:
                with locked(tensors_path(self.path)) as target:
                    if _recording_if_any(waiting := waiting_path(target)) == self.tensors:
                        _settle(self.path, target, waiting)


def stage_pair(
    golden: Record,
    tensors: Mapping[str, tuple[Tensor, str]],
    metadata: Mapping[str, str],
    left_out: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> Recording:
    """Write the new golden file and its tensors beside the present ones.

    Args:
        golden: its path is that of the golden file.
        tensors: by key text, the values and the name of the type they had on the device.
        metadata: further texts to keep with the tensors.
        left_out: layers whose tensors could not be told apart, as file names spell them.
        sources: layers that are kept as sources of past failures.

    Raises:
        GoldenError: they cannot be written; the old pair is as it was.
    """
    refuse_links(golden)
    recording = tensors_digest(tensors)
    facts = facts_of({_RECORDING: recording}, left_out, sources)
    golden = replace(golden, extra={**golden.extra, KEY: facts})
    with locked(tensors_path(golden.path)) as target:
        refuse_others(target)
        waiting = waiting_path(target)
        _settle(golden.path, target, waiting)
        save_tensors(waiting, tensors, {**metadata, _RECORDING: recording})
        try:
            staged = stage_golden(golden)
        except BaseException:
            _settle(golden.path, target, waiting)
            raise
    return replace(staged, tensors=recording)


def facts_of(where: Mapping[str, Any], left_out: Sequence[str], sources: Sequence[str]) -> dict[str, Any]:
    """Return a golden's facts of its tensors: their place, and their layers."""
    told = {LEFT_OUT: list(left_out), SOURCES: list(sources)}
    return {**where, **{name: layers for name, layers in told.items() if layers}}


def _settle(golden: Path, target: Path, waiting: Path) -> None:
    """Finish or undo what a writer that was killed has begun: the golden file decides."""
    if not waiting.exists():
        return
    named = None
    with suppress(GoldenError):
        named = _facts(read_golden(golden)).get(_RECORDING)
    held = [_recording_if_any(place) for place in (target, waiting)]
    if named is not None and held[1] == named != held[0]:
        move_file(waiting, target)
    else:
        try:
            waiting.unlink()
        except OSError as error:
            raise GoldenError(
                f"{waiting}: left by a recording that did not end, and cannot be removed: "
                f"{error.strerror or error}; remove it"
            ) from error


def waiting_path(tensors: Path) -> Path:
    """Return the path of new tensors until they replace those at ``tensors``."""
    target = Path(os.path.realpath(tensors.parent), tensors.name)
    digest = blake2b(os.fsencode(target.name), digest_size=8).hexdigest()
    return target.with_name(f".npudump-{digest}.safetensors")


def _facts(golden: Record) -> Mapping[str, Any]:
    found = golden.extra.get(KEY, {})
    if isinstance(found, dict):
        named, lists = found.get(_RECORDING), [found.get(name, []) for name in (LEFT_OUT, SOURCES)]
        listed = all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in lists)
        how = found.get(STORED, HASH)
        if listed and isinstance(named, str | None) and how == HASH and not (named and STORED in found):
            return found
    raise GoldenError(
        f"{golden.path}: {KEY} is {found!r}, expected a mapping with {_RECORDING} (text), or {STORED} "
        f"({HASH}), {LEFT_OUT} and {SOURCES} (lists of names). Restore the file from version control, or "
        f"accept anew with --npudump-update-golden"
    )


def _recording(tensors: Path) -> str | None:
    return read_metadata(tensors).get(_RECORDING)


def _recording_if_any(tensors: Path) -> str | None:
    try:
        return _recording(tensors)
    except GoldenError:
        return None


LARGEST = 1 << 28
"""Bytes a golden file may have: a million tensors take half of it."""


def read_golden(path: Path) -> Record:
    """Read the golden file at ``path``; of a variant that holds only differences, the whole golden.

    Raises:
        GoldenMissingError: there is no such file.
        GoldenError: it cannot be read, is not a golden file, or is damaged; names the line.
    """
    own = _read_alone(path)
    name = base_name(own)
    if not name:
        return own
    base = _read_alone(path.with_name(name))
    if base_name(base):
        raise GoldenError(
            f"{path}: differs from {name}, which is a variant itself; restore the common golden"
        )
    return laid_over(own, base)


def _read_alone(path: Path) -> Record:
    content = _read(path)
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise GoldenError(
            f"{path}, line {line}: byte {error.start} is not UTF-8; restore the file from version control"
        ) from None
    return replace(parse(text, path), digest=content_digest(content))


def content_digest(content: bytes) -> str:
    """Return the digest of a golden file's content."""
    return sha256(content).hexdigest()


def is_there(path: Path) -> bool:
    """Return whether anything lies at ``path``; an unreadable path does, and reading it gives the reason."""
    try:
        path.stat()
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def stage_golden(golden: Record) -> Recording:
    """Write what is to replace a golden file beside it.

    Args:
        golden: its path is that of the file.

    Raises:
        GoldenError: the golden cannot be written; the old file is as it was.
    """
    refuse_links(golden)
    path, content = golden.path, _content(golden)
    digest = content_digest(content)
    if has_digest(path, digest):  # asked before the lock, which a folder that is read-only has no place for
        return Recording(path, None, digest)
    with locked(path) as target:
        refuse_others(target)
        held = has_digest(target, digest)
        return Recording(path, None if held else stage_file(target, [content], digest[:16]), digest)


def _content(golden: Record) -> bytes:
    """Return the bytes of a golden's file.

    Raises:
        GoldenError: it cannot be written, or what it is to differ from is another golden meanwhile.
    """
    if (base := golden.base) is not None and not has_digest(base.path, base.digest):
        raise GoldenError(
            f"{base.path}: was written meanwhile, and {golden.path.name} differs from it: run again"
        )
    return render(as_written(golden)).encode()


def has_digest(path: Path, digest: str) -> bool:
    """Return whether the content of the file at ``path`` has the :func:`content_digest`."""
    try:
        return content_digest(read_regular(path)) == digest
    except OSError:
        return False


def write_golden(golden: Record, *, replacing: str | None = None) -> bool:
    """Make ``golden`` the content of its file, atomically.

    Args:
        golden: its path is that of the file.
        replacing: digest of the content that it is to replace, "" for no file; None for any.

    Returns:
        Whether the content changed; where it did not, the file is not touched.

    Raises:
        GoldenError: the golden cannot be written, or would replace another one; the old file is as it was.
    """
    refuse_links(golden)
    path, content = golden.path, _content(golden)
    digest = content_digest(content)
    if has_digest(path, digest):  # as above
        return False
    with locked(path) as target:
        refuse_others(target)
        changed = not has_digest(target, digest)
        if changed:
            refuse_change(target, replacing)
            replace_file(target, [content])
    return changed


def refuse_links(golden: Record) -> None:
    """Refuse to write a golden through a symbolic link below the folder of goldens, which may be one itself.

    Raises:
        GoldenError: the file, or a folder that stands for a part of its test's file, is a link.
    """
    folders = len(PurePosixPath(golden.test.partition("::")[0]).parts)
    for place in (golden.path, *golden.path.parents[:folders]):
        refuse_link(place)


def refuse_change(target: Path, replacing: str | None) -> None:
    """Refuse to replace a file whose content is not the one that is to be replaced; its lock is held.

    Args:
        target: the file.
        replacing: digest of that content, "" for no file; None for any.

    Raises:
        GoldenError: it has other content.
    """
    if replacing is None:
        return
    found = content_digest(_read(target)) if is_there(target) else ""
    if found != replacing:
        raise GoldenError(f"{target}: was written meanwhile: it is as it is; look again at what differs")


def refuse_others(target: Path) -> None:
    """Refuse to replace what is no file: a directory has content, a link may lead to a device.

    Raises:
        GoldenError: there is something else than a file at ``target``.
    """
    if kind := _kind(target):
        raise GoldenError(
            said(
                "{target}: cannot be written: it is {kind}; move it elsewhere and accept again",
                target=target,
                kind=kind,
            )
        )


def _kind(path: Path) -> str:
    """Return the kind of a path that is neither a file nor absent; else ""."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return ""
    return "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"


def _read(path: Path) -> bytes:
    if kind := _kind(path):
        raise GoldenError(f"{path}: the golden file cannot be read: it is {kind}; move it elsewhere")
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise GoldenMissingError(
            said(
                "{path}: the golden file does not exist; write it with pytest --npudump-update-golden, "
                "review its values and commit it",
                path=path,
            )
        ) from None
    except OSError as error:
        raise GoldenError(
            said(
                "{path}: the golden file cannot be read: {error}",
                path=path,
                error=error.strerror or error,
            )
        ) from error
    if len(content) > LARGEST:
        raise GoldenError(f"{path}: more than {LARGEST} bytes, which is no golden file of ours")
    return content
