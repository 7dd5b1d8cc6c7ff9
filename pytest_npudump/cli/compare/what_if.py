"""What other tolerances would have made of the same two sides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tolerances.presets import PRESETS
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.errors import RequestError
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Alternative:
    """The comparison under other tolerances, beside the one that counts.

    Attributes:
        name: the preset or file, as it was given.
        failing: tensors that fail under it.
        missed: keys of tensors that fail as judged, and would pass.
        caught: keys of tensors that pass as judged, and would fail.
    """

    name: str
    failing: int
    missed: tuple[str, ...]
    caught: tuple[str, ...]

    @classmethod
    def of(cls, name: str, judged: Comparison, other: Comparison) -> Alternative:
        """Return what ``other`` makes of the two sides that ``judged`` is of."""
        ours = [str(verdict.key) for verdict in judged.failing]
        theirs = [str(verdict.key) for verdict in other.failing]
        known, wanted = frozenset(theirs), frozenset(ours)
        missed = tuple(key for key in ours if key not in known)
        return cls(name, len(theirs), missed, tuple(key for key in theirs if key not in wanted))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "tolerances": self.name,
            "failing": self.failing,
            "missed": list(self.missed),
            "caught": list(self.caught),
        }


def other_tolerances(name: str) -> Tolerances:
    """Return the tolerances called ``name``: a preset, or a YAML file of rules.

    Raises:
        RequestError: it is neither.
    """
    if name in PRESETS:
        return Tolerances(name)
    if not Path(name).exists():
        raise RequestError(
            _("--what-if {name}: neither a file nor a preset, expected one of {presets}").format(
                name=name, presets=", ".join(PRESETS)
            )
        )
    from pytest_npudump.compare.tolerances.rules import load_tolerances  # noqa: PLC0415 - yaml only where asked for

    return load_tolerances(Path(name))


def given(name: str) -> str:
    """Return the option that gave the tolerances called ``name``, before what is said of these."""
    return f"--what-if {name}"


def lines(alternatives: Sequence[Alternative]) -> Iterator[str]:
    """Yield a line for each, in the order they were given."""
    for one in alternatives:
        found = [
            f"{_(verb)} {len(keys)} ({first_of(keys, _SHOWN)})"
            for verb, keys in ((mark("misses"), one.missed), (mark("catches"), one.caught))
            if keys
        ]
        yield _("what if {name}: {failing} would differ").format(name=one.name, failing=one.failing) + (
            _("; it {found}").format(found=_(" and ").join(found)) if found else _(", the same ones")
        )
