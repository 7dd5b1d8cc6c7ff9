"""A golden file and the tensors beside it, replaced as one: what is read belongs together.

That holds whatever is killed, and when. The golden file names the recording that its tensors are of. A new
golden file and new tensors are written beside the old ones, and wait there until the test has passed;
replacing the golden file makes the new pair count; then the new tensors take the old ones' place. Whoever
reads between these steps finds the recording that the golden file names in one of the two places. A golden
file that names none is of an earlier writer, and so are its tensors.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import GoldenError, MisplacedTensorsError
from pytest_npudump.golden.store import (
    has_digest,
    read_golden,
    refuse_change,
    refuse_links,
    refuse_others,
    stage_golden,
)
from pytest_npudump.golden.tensor_content import tensors_digest
from pytest_npudump.golden.tensors import read_metadata, save_tensors
from pytest_npudump.storage.atomic import locked, move_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.golden.tensors import Tensor
    from pytest_npudump.record.record import Record

KEY = "golden_tensors"
"""The golden file's key for what is said of the tensors beside it."""

_RECORDING = "recording"
LEFT_OUT = "left_out"
SOURCES = "sources"
HASH = "sha256"
STORED = "stored"
"""What that key tells: layers left out, and that the tensors lie in a store, each under its hash."""


def tensors_path(golden: Path) -> Path:
    """Return the place of the tensors of the golden file at ``golden``."""
    return golden.with_suffix(".safetensors")


def left_out(golden: Record) -> tuple[str, ...]:
    """Return the layers, as file names spell them, whose tensors the recording could not tell apart.

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
    """Whether the golden's tensors lie in a store, and not beside it.

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
        f"restore both from version control, or approve anew with --npudump-update-golden"
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
        """Put what was recorded in the place of what was there; another run may have recorded the same.

        Args:
            replacing: digest of the golden file that it is to replace, "" for no file; None for any.

        Raises:
            MisplacedTensorsError: it counts, and the tensors cannot be put in their place.
            GoldenError: it cannot be put there, or another recording has taken its place since: what was
                there counts.
        """
        with ExitStack() as stack:
            beside = tensors_path(self.path)
            target = stack.enter_context(locked(beside)) if self.tensors else beside
            golden = stack.enter_context(locked(self.path)) if self.staged is not None else self.path
            if self._is_lost(target):
                if self._counts(target):
                    return
                raise GoldenError(
                    f"{self.path}: what was recorded is not there any more: another run has recorded the "
                    f"golden meanwhile, or removed its files; approve again, with one run at a time"
                )
            if self.tensors:
                refuse_others(target)
            if self.staged is not None:
                refuse_others(golden)
                refuse_change(golden, replacing)
                move_file(self.staged, golden)
            if self.tensors:
                self._place_tensors(target)

    def _is_lost(self, target: Path) -> bool:
        staged = has_digest(self.path, self.digest) if self.staged is None else self.staged.exists()
        return not staged or bool(self.tensors and _recording_if_any(waiting_path(target)) != self.tensors)

    def _counts(self, target: Path) -> bool:
        """Whether another run has recorded the same."""
        same = not self.tensors or _recording_if_any(target) == self.tensors
        return same and has_digest(self.path, self.digest)

    def _place_tensors(self, target: Path) -> None:
        try:
            move_file(waiting_path(target), target)
        except GoldenError as error:
            raise MisplacedTensorsError(
                f"{self.path} is recorded and counts, but {error}; move it there before both are committed"
            ) from error

    def discard(self) -> None:
        """Remove what was recorded; what cannot be removed goes with the next recording of the golden."""
        with suppress(GoldenError, OSError):
            if self.staged is not None:
                self.staged.unlink(missing_ok=True)
            if self.tensors:
                with locked(tensors_path(self.path)) as target:
                    _settle(self.path, target, waiting_path(target))


def stage_pair(
    golden: Record,
    tensors: Mapping[str, tuple[Tensor, str]],
    metadata: Mapping[str, str],
    left_out: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> Recording:
    """Write what is to replace the golden file and the tensors beside it.

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
            staged = stage_golden(golden.path, golden)
        except BaseException:
            _settle(golden.path, target, waiting)
            raise
    return Recording(golden.path, staged.file, staged.digest, recording)


def facts_of(where: Mapping[str, Any], left_out: Sequence[str], sources: Sequence[str]) -> dict[str, Any]:
    """Return what a golden says of the tensors that are kept with it: where they are, and of which layers."""
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
        _remove(waiting)


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise GoldenError(
            f"{path}: left by a recording that did not end, and cannot be removed: "
            f"{error.strerror or error}; remove it"
        ) from error


def waiting_path(tensors: Path) -> Path:
    """Return where new tensors lie until they take the place of those at ``tensors``."""
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
        f"approve anew with --npudump-update-golden"
    )


def _recording(tensors: Path) -> str | None:
    return read_metadata(tensors).get(_RECORDING)


def _recording_if_any(tensors: Path) -> str | None:
    try:
        return _recording(tensors)
    except GoldenError:
        return None
