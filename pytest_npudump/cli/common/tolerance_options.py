"""The tolerances that a command is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import to_stderr
from pytest_npudump.compare.tolerances.presets import SAME
from pytest_npudump.compare.tolerances.rules import chosen_preset, load_tolerances, parse_fact, undecided
from pytest_npudump.compare.tolerances.tolerance import GOLDEN, Rule, Tolerances
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.settings import BOUNDS

if TYPE_CHECKING:
    import argparse


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
    chosen = Tolerances(preset, base.rules).under(arguments.preset if arguments.preset in BOUNDS else SAME)
    return for_told_run(chosen, {**(facts or {}), **told_facts(arguments)})


def for_told_run(tolerances: Tolerances, facts: Mapping[str, str]) -> Tolerances:
    """Return the tolerances for a run of these facts; stderr names rules that they do not decide.

    Args:
        tolerances: as they were read.
        facts: what is known of the run's producer.
    """
    words = _("rule {rule} skipped: {facts} of this run unknown; give --producer FACT=VALUE")
    for rule, untold in undecided(tolerances.rules, facts):
        to_stderr(f"npudump: {words.format(rule=rule.describe(), facts=', '.join(untold))}")
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
