"""Whether a run computes as its golden did: the same numerics, or other ones, which round otherwise.

A run of the same runtime, SoC, CANN, driver, frameworks and switches repeats the golden, but for operators
that are not deterministic. Any other one may sum in another order, fuse, or use another kernel, and all its
layers differ a little. One bound cannot serve both: what passes the second hides faults from the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.language import mark
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Mapping


SAME = "same"
OTHER = "other"
HF32 = "hf32"
AUTO = "auto"
"""What is asked for: bounds for one of these, or those that fit."""

UNKNOWN = "-"
"""What a fact that one side does not tell is written as."""
_ASKED = ("scene", "dump_mode", "dump_data")
"""Facts of a golden that are about what is dumped, not about how it is computed."""
_SWITCHES = ("hf32",)


@dataclass(frozen=True, slots=True)
class Numerics:
    """Which bounds a comparison goes by where its preset is ``default``.

    Attributes:
        bounds: ``same``, ``other`` or ``hf32``, each a preset.
        differs: facts that both sides tell and in which they differ, as ``name: (golden, this run)``.
        untold: facts that one side only tells.
        fixed: who chose the bounds, ``option``; "" where the facts or a preset decided.
        preset: the one that was named, and that applies whatever the numerics; "" for ``default``.
    """

    bounds: str = SAME
    differs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    untold: tuple[str, ...] = ()
    fixed: str = ""
    preset: str = ""

    def describe(self) -> str:
        """The decision and its reason in one line."""
        differs = ", ".join(f"{name} {golden} -> {now}" for name, (golden, now) in self.differs.items())
        untold = (
            _("; unknown on one side: {names}").format(names=", ".join(self.untold)) if self.untold else ""
        )
        if self.preset:
            words = _("of the preset {preset}, whatever the numerics").format(preset=self.preset)
            return words + (f" ({differs})" if differs else "")
        words = {
            SAME: _("for the same numerics"),
            OTHER: _("for other numerics"),
            HF32: _("for HF32 numerics"),
        }[self.bounds]
        if self.fixed:
            said = _("{words}, set by the {who}").format(words=words, who=_(self.fixed))
            return said + (f" ({differs})" if differs else "")
        reason = differs or _("the producers are alike")
        return _("{words}: {reason}{untold}").format(words=words, reason=reason, untold=untold)

    def to_json(self) -> dict[str, object]:
        """Plain JSON data."""
        return {
            "bounds": self.bounds,
            "differs": {name: list(pair) for name, pair in self.differs.items()},
            "untold": list(self.untold),
            "fixed_by": self.fixed or None,
        }


def numerics_of(
    differences: Mapping[str, tuple[str, str]],
    switches: Mapping[str, str],
    *,
    option: str = AUTO,
    preset: str = "default",
) -> Numerics:
    """Decide by the facts of origin in which a golden and a run differ.

    A fact that one side does not tell decides nothing: bounds are the tight ones unless something is known to
    differ.

    Args:
        differences: those facts, as ``name: (golden, this run)``, :data:`UNKNOWN` for one not told.
        switches: facts of this run, of which ``hf32`` is looked at.
        option: the run's choice.
        preset: of the tolerances; one that is called as bounds are chooses them.
    """
    named = "" if preset == "default" else preset
    told = {name: pair for name, pair in differences.items() if name not in _ASKED}
    differs = {name: pair for name, pair in told.items() if UNKNOWN not in pair}
    untold = tuple(name for name in told if name not in differs)
    if named in {SAME, OTHER, HF32}:
        return Numerics(named, differs, untold, preset=named)
    if option and option != AUTO:
        return Numerics(option, differs, untold, mark("option npudump_preset"), named)
    values = [*(value for name in _SWITCHES for value in told.get(name, ()))]
    values += [switches[name] for name in _SWITCHES if name in switches]
    on = any(value not in {"off", UNKNOWN} for value in values)
    bounds = SAME if not differs else HF32 if on else OTHER
    return Numerics(bounds, differs, untold, preset=named)
