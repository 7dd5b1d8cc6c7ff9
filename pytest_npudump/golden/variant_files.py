"""Making a variant of a golden that holds only what differs, and taking it back: one file written at a time.

Killed in between, every golden is as it was or as it is to be: a variant that the common golden does not name
counts only where an option names it, and means the same whole or as what differs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.applicable import FACTS, VARIANTS, variants_of
from pytest_npudump.golden.overlay import differing
from pytest_npudump.golden.pair import KEY, tensors_path
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.storage.atomic import locked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.record.record import Record


@dataclass(frozen=True, slots=True)
class Part:
    """A variant and its common golden.

    Attributes:
        path: the variant's file.
        base: the common golden's.
        facts: for which runs it is; none where the common golden does not name it.
        differing: the number of its tensors that are other ones than in the common golden.
        tensors: the number of its tensors.
    """

    path: Path
    base: Path
    facts: Mapping[str, str]
    differing: int
    tensors: int


def split(path: Path, by: Sequence[str] = ()) -> Part:
    """Write a variant as what differs from the common golden, which then names it for runs like its own.

    Args:
        path: the variant's golden file, ``test@NAME.yaml``.
        by: the facts by which it is chosen; none for the first in which the two were produced differently.

    Raises:
        GoldenError: it cannot be told when it is to count, or a file cannot be read or written.
    """
    base_path, name = _common(path)
    variant, base = read_golden(path), read_golden(base_path)
    if KEY in variant.extra or tensors_path(path).exists():
        raise GoldenError(
            f"{path}: keeps tensors, which belong to all of its values: it stays a golden of its own"
        )
    if variant.test != base.test:
        raise GoldenError(f"{path}: is of {variant.test!r}, and {base_path.name} of {base.test!r}")
    facts = _facts(variant, base, by)
    known = {**variants_of(base), name: facts}
    named = replace(base, extra={**base.extra, VARIANTS: known})
    variants_of(named)  # refuses what would be ambiguous
    write_golden(path, replace(variant, base=base), replacing=variant.file_digest)
    write_golden(base_path, named, replacing=base.digest)
    return _part(variant, base, facts)


def fold(path: Path, *, whole: bool = False, dry: bool = False) -> Part:
    """Take a variant back: its runs are compared with the common golden; or write it whole again.

    Args:
        path: the variant's golden file.
        whole: write it as a golden of its own, which stays and counts as before.
        dry: only say what it comes to.

    Raises:
        GoldenError: a file cannot be read, written or removed.
    """
    base_path, name = _common(path)
    variant, base = read_golden(path), read_golden(base_path)
    known = variants_of(base)
    part = _part(variant, base, known.get(name, {}))
    if dry:
        return part
    if whole:
        write_golden(path, replace(variant, base=None), replacing=variant.file_digest)
        return part
    if KEY in variant.extra or tensors_path(path).exists():
        raise GoldenError(f"{path}: keeps tensors beside it: remove both files yourself, if they are to go")
    if name in known:
        rest = {other: facts for other, facts in known.items() if other != name}
        extra = {key: value for key, value in base.extra.items() if key != VARIANTS}
        named = replace(base, extra=extra | ({VARIANTS: rest} if rest else {}))
        write_golden(base_path, named, replacing=base.digest)
    with locked(path):
        try:
            path.unlink()
        except OSError as error:
            raise GoldenError(f"{path}: cannot be removed: {error.strerror or error}") from error
    return part


def _part(variant: Record, base: Record, facts: Mapping[str, str]) -> Part:
    gone = len({*base.table.keys} - {*variant.table.keys})
    return Part(variant.path, base.path, facts, len(differing(variant, base)) + gone, len(variant.table))


def _common(path: Path) -> tuple[Path, str]:
    place, sign, name = path.stem.partition("@")
    if not sign or "@" in name or path.suffix != ".yaml":
        raise GoldenError(
            f"{path}: is no variant, expected a file such as test_small@NAME.yaml beside test_small.yaml, "
            f"which pytest --npudump-golden-variant=NAME --npudump-update-golden writes"
        )
    return path.with_name(f"{place}.yaml"), name


def _facts(variant: Record, base: Record, by: Sequence[str]) -> dict[str, str]:
    told = [{name: str(one.producer.get(name, "")) for name in FACTS} for one in (variant, base)]
    names = by or [name for name in FACTS if told[0][name] and told[0][name] != told[1][name]][:1]
    if not names:
        raise GoldenError(
            f"{variant.path}: was produced by the same {', '.join(FACTS)} as {base.path.name}: nothing tells "
            f"when it is to count; keep it for --npudump-golden-variant"
        )
    if missing := [name for name in names if not told[0][name]]:
        raise GoldenError(f"{variant.path}: does not say by which {missing[0]} it was produced")
    facts = {name: told[0][name] for name in names}
    if all(told[1][name] == value for name, value in facts.items()):
        raise GoldenError(
            f"{variant.path}: {base.path.name} was itself produced by {', '.join(facts.values())}, and would "
            f"count for no run that it is of; choose by another fact"
        )
    return facts
