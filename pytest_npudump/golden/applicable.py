"""Which variant of a golden applies to a run: what the common golden says, by facts of what ran.

``variants: {a3: {soc: Ascend910_9391}}`` in the common golden names each variant and the facts that a run
must have. Where several fit, the one counts whose facts hold those of all others; else there is an error, as
none may be guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.record.record import Record

VARIANTS = "variants"
"""Key of a common golden: the facts of each of its variants, by its name."""
FACTS = ("soc", "cann", "runtime")
"""Facts of a producer by which variants are chosen."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a run.

    Attributes:
        name: of the variant; "" for the common golden.
        why: in words.
        foreign: in which facts the common golden was produced by something else than the run; "" where it was
            not, or a variant applies.
    """

    name: str
    why: str
    foreign: str = ""


def variant_path(common: Path, name: str) -> Path:
    """Return the file of a variant, by its name as files spell it."""
    return common.with_name(f"{common.stem}@{name}{common.suffix}")


def names_variants(common: Path) -> bool:
    """Whether a golden file has the key, told by its head: most have none, and tables are long."""
    seen = b"\n"
    try:
        with common.open("rb") as file:
            while chunk := file.read(_CHUNK):
                head, table, _ = (seen + chunk).partition(b"\ntensors:")
                if f"\n{VARIANTS}:".encode() in head:
                    return True
                if table:
                    return False
                seen = (seen + chunk)[-len(VARIANTS) - 16 :]
    except OSError:
        return False  # who reads it tells what is wrong
    return False


def variants_of(common: Record) -> dict[str, dict[str, str]]:
    """Return the facts of each variant that a common golden names.

    Raises:
        GoldenError: the key is not as it is written, or two variants would fit one run.
    """
    found = common.extra.get(VARIANTS, {})
    if not isinstance(found, dict) or not all(map(_is_entry, found.items())):
        raise GoldenError(
            f"{common.path}: {VARIANTS} is {found!r}, expected a mapping such as "
            f"{{a3: {{soc: Ascend910_9391}}}}, by any of {', '.join(FACTS)}. Restore the file from "
            f"version control"
        )
    for name, facts in found.items():
        for other, others in found.items():
            if name < other and _clash(facts, others):
                both = f"{name!r} ({_words(facts)}) and {other!r} ({_words(others)})"
                raise GoldenError(
                    f"{common.path}: the variants {both} fit one run, and neither is for a part of the "
                    f"other's runs: give one of them more facts"
                )
    return {name: dict(facts) for name, facts in found.items()}


def choose(common: Record, facts: Mapping[str, str]) -> Choice:
    """Return the variant that a run is compared with.

    Args:
        common: the golden beside which the variants are.
        facts: of the run's producer.

    Raises:
        GoldenError: as :func:`variants_of`.
    """
    found = variants_of(common)
    fitting = [name for name, asked in found.items() if asked.items() <= dict(facts).items()]
    own = _words({name: facts.get(name, "unknown") for name in FACTS})
    if not fitting:
        told = "; ".join(f"{name}: {_words(asked)}" for name, asked in found.items())
        asked_by = {fact: facts.get(fact, "unknown") for asked in found.values() for fact in asked}
        recorded = {fact: str(common.producer.get(fact, "unknown")) for fact in asked_by}
        foreign = "" if recorded == asked_by else f"of {_words(recorded)}, and this run of {_words(asked_by)}"
        return Choice(
            "", f"compared with {common.path.name}: none of its variants ({told}) is for {own}", foreign
        )
    name = max(fitting, key=lambda one: len(found[one]))
    words = f"compared with the variant {name!r}, which {common.path.name} names for {_words(found[name])}"
    return Choice(name, words)


def _clash(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    if any(one[name] != other[name] for name in one.keys() & other.keys()):
        return False
    return one == other or not (one.items() < other.items() or other.items() < one.items())


def _is_entry(entry: tuple[object, object]) -> bool:
    name, facts = entry
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(facts, dict) or not facts:
        return False
    return all(fact in FACTS and isinstance(value, str) and value for fact, value in facts.items())


def _words(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
