"""What is wrong with golden files as they lie there: found by reading them, without a test and a device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.applicable import VARIANTS, variant_path, variants_of
from pytest_npudump.golden.kept_tensors import stored_tensors
from pytest_npudump.golden.objects.stored_golden import pointers_of
from pytest_npudump.golden.pair import KEY, is_stored, recorded_tensors, tensors_path
from pytest_npudump.golden.store import read_golden
from pytest_npudump.record.noise import calibration_of, repeats_of
from pytest_npudump.record.record import OVERFLOW, UNWRITTEN
from pytest_npudump.record.unwritten_entries import LEFT_OUT, entries_of, left_out_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_npudump.record.record import Record

SUFFIX = ".yaml"
TENSORS = ".safetensors"
_OWN = ".npudump-"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a file.

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
    """Yield what is wrong with goldens and tensors: one fault a file, and each test that two files claim.

    Args:
        files: goldens, and tensors, of which is asked whether a golden is beside them.
    """
    places: dict[str, Path] = {}
    for path in files:
        if path.suffix == TENSORS:
            yield from _without_golden(path)
            continue
        try:
            golden = read_golden(path)
            _check(golden)
        except GoldenError as error:
            yield Fault(path, str(error))
            continue
        place = path.with_name(path.stem.partition("@")[0])
        other = places.setdefault(golden.test, place)
        if other != place:
            yield Fault(
                path,
                f"{path}: claims the test {golden.test!r}, and so does {other}{SUFFIX}: remove the one whose "
                f"test is no more, or correct its key 'test'",
            )


def _without_golden(tensors: Path) -> Iterator[Fault]:
    if not tensors.with_suffix(SUFFIX).exists():
        yield Fault(
            tensors,
            f"{tensors}: tensors without a golden, expected {tensors.stem}{SUFFIX} beside them: remove the "
            f"file, or restore the golden from version control",
        )


def _check(golden: Record) -> None:
    """Look at what reading a golden leaves to whoever asks for it.

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
            f"version control, or approve anew with --npudump-update-golden"
        )
    if LEFT_OUT in entries_of(golden).values() and not left_out_of(golden, golden.facts):
        raise GoldenError(
            f"{golden.path}: {UNWRITTEN!r} leaves tensors out, which only MindSpore on a CPU can record: "
            f"remove the key, or approve anew with --npudump-update-golden"
        )
    repeats_of(golden.extra, golden.path)
    calibration_of(golden.extra, golden.path)
    beside = tensors_path(golden.path)
    if recorded_tensors(golden) is not None or (pointers_of(golden) and not beside.exists()):
        stored_tensors(golden, foreign=True)
    elif KEY in golden.extra and not is_stored(golden):
        raise GoldenError(
            f"{golden.path}: the tensors of its recording are not beside it, expected {beside.name}: restore "
            f"both from version control, or approve anew with --npudump-update-golden"
        )
    elif beside.exists():
        raise GoldenError(
            f"{beside}: belongs to no recording that {golden.path.name} names: restore both from version "
            f"control, or remove it"
        )
