"""The tolerances that a command is given, and what others would have made of the same two sides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import to_stderr
from pytest_npudump.compare.tolerances.presets import PRESETS, SAME
from pytest_npudump.compare.tolerances.rules import chosen_preset, load_tolerances, parse_fact, undecided
from pytest_npudump.compare.tolerances.tolerance import GOLDEN, Rule, Tolerances
from pytest_npudump.errors import RequestError
from pytest_npudump.language import mark
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.settings import BOUNDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison


def told_facts(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the facts of the run's producer in the command line.

    Raises:
        RequestError: one of them is no fact.
    """
    return dict(map(parse_fact, arguments.producer))


def tolerances_of_file(arguments: argparse.Namespace, against: str = GOLDEN) -> Tolerances | None:
    """Read the file of ``--tolerances``; None without one.

    Raises:
        RequestError: it cannot be read, or holds a rule that is refused.
    """
    return load_tolerances(Path(arguments.tolerances), against=against) if arguments.tolerances else None


def chosen_tolerances(arguments: argparse.Namespace, facts: Mapping[str, str] | None = None) -> Tolerances:
    """Return the tolerances that the options give; the preset of the command line overrides the file's.

    ``same``, ``other`` and ``hf32`` say what ``default`` stands for: another preset of the file stays.

    Rules for other producers are left out. So is a rule of which nothing tells whether it is for this run,
    and stderr says so.

    Args:
        arguments: with ``--preset``, ``--tolerances`` and ``--producer``.
        facts: what is known of the run's producer, where the command line tells nothing else.

    Raises:
        RequestError: an unknown preset, or a file that cannot be read or holds a rule that is refused.
    """
    base = tolerances_of_file(arguments) or Tolerances()
    preset = chosen_preset(arguments.preset or "", base.preset)
    chosen = Tolerances(preset, base.rules).under(default_of(arguments))
    return for_told_run(chosen, {**(facts or {}), **told_facts(arguments)})


def default_of(arguments: argparse.Namespace) -> str:
    """Return the preset that ``default`` means where no producers are known."""
    return arguments.preset if arguments.preset in BOUNDS else SAME


def for_told_run(tolerances: Tolerances, facts: Mapping[str, str], given: str = "") -> Tolerances:
    """Return the tolerances for a run of these facts; stderr names rules that they do not decide.

    Args:
        tolerances: as they were read.
        facts: what is known of the run's producer.
        given: the option that gave the tolerances, with its value, as it is put before what stderr says.
    """
    words = _("rule {rule} skipped: {facts} of this run unknown; give --producer FACT=VALUE")
    for rule, untold in undecided(tolerances.rules, facts):
        told = words.format(rule=rule.describe(), facts=", ".join(untold))
        to_stderr(f"npudump: {given}: {told}" if given else f"npudump: {told}")
    return tolerances.for_run(facts)


def typed_rules(arguments: argparse.Namespace, against: str = GOLDEN) -> tuple[Rule, ...]:
    """Return the rule that ``--rtol`` and ``--atol`` make, if they are given.

    Raises:
        RequestError: one of them is no bound.
    """
    given = {name: getattr(arguments, name) for name in ("rtol", "atol")}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if not 0 <= value < float("inf"):
            raise RequestError(
                _("--{name} {value}: expected a finite number, 0 or greater").format(name=name, value=value)
            )
    none = {"rtol": 0.0, "atol": 0.0}
    return (Rule(**none | given, source="command line", against=against),) if given else ()


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
        """Judge the sides of ``judged`` by ``other`` too, and list the differences."""
        ours = [str(verdict.key) for verdict in judged.mismatches]
        theirs = [str(verdict.key) for verdict in other.mismatches]
        known, wanted = frozenset(theirs), frozenset(ours)
        missed = tuple(key for key in ours if key not in known)
        return cls(name, len(theirs), missed, tuple(key for key in theirs if key not in wanted))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        missed, caught = list(self.missed), list(self.caught)
        return {"tolerances": self.name, "failing": self.failing, "missed": missed, "caught": caught}

    def __str__(self) -> str:
        """Return a line for people."""
        found = [
            f"{_(verb)} {len(keys)} ({first_of(keys, _SHOWN)})"
            for verb, keys in ((mark("misses"), self.missed), (mark("catches"), self.caught))
            if keys
        ]
        words = _("what if {name}: {failing} would mismatch").format(name=self.name, failing=self.failing)
        return words + (
            _("; it {found}").format(found=_(" and ").join(found)) if found else _(", the same ones")
        )


def other_tolerances(names: Sequence[str]) -> dict[str, Tolerances]:
    """Return the tolerances of ``--what-if`` by name: of a preset, or of a YAML file of rules.

    Raises:
        RequestError: a name is of neither, or the file cannot be read.
    """
    found: dict[str, Tolerances] = {}
    for name in names:
        if name in PRESETS:
            found[name] = Tolerances(name)
            continue
        if not Path(name).exists():
            raise RequestError(
                _("--what-if {name}: neither a file nor a preset, expected one of {presets}").format(
                    name=name, presets=", ".join(PRESETS)
                )
            )
        found[name] = load_tolerances(Path(name))
    return found
