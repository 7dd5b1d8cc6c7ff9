"""Rules for the runs of some producers only: ``{soc: "Ascend910B*", cann: "9.1*"}``.

A fact is what a golden's head records of its origin. A run must tell all that a rule names, and match it.
A rule for other producers says nothing of a run, and is no misspelling there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_npudump.compare.tolerances.tolerance import Rule

FACTS = (
    *("runtime", "soc", "cann", "driver", "torch", "torch_npu", "mindspore", "device_target", "onnxruntime"),
    *("machine", "vector", "deterministic", "hf32", "inf_nan_mode", "hccl_deterministic"),
)
"""What rules may ask of a producer. What was asked of it, such as the scene, is no fact of it."""


def parse_producer(value: object, where: str) -> tuple[tuple[str, str], ...]:
    """Return the names of facts and their globs, in the order of :data:`FACTS`.

    Args:
        value: a mapping of at least one fact to text.
        where: the rule, for errors.

    Raises:
        RequestError: it is none, names what no producer tells, or holds another value than text.
    """
    expected = 'a mapping of facts to globs, such as {soc: "Ascend910B*"}'
    if not isinstance(value, dict) or not value:
        raise RequestError(f"{where}: producer is {excerpt(value)}, expected {expected}")
    for name, glob in value.items():
        if name not in FACTS:
            known = ", ".join(FACTS)
            raise RequestError(f"{where}: no producer tells {excerpt(name)}, expected one of {known}")
        if not isinstance(glob, str) or not glob.strip():
            quoted = "text, in quotes where YAML reads a number or a switch"
            raise RequestError(f"{where}: {name} of the producer is {excerpt(glob)}, expected {quoted}")
    return tuple((name, value[name]) for name in FACTS if name in value)


def parse_fact(text: str) -> tuple[str, str]:
    """Return name and value of ``soc=Ascend910B3``.

    Raises:
        RequestError: it is not of that form, or no producer tells such a fact.
    """
    name, _, value = text.partition("=")
    if name not in FACTS or not value:
        raise RequestError(f"--producer {text}: expected FACT=VALUE with one of {', '.join(FACTS)}")
    return name, value


def undecided(rules: Iterable[Rule], facts: Mapping[str, str]) -> Iterator[tuple[Rule, list[str]]]:
    """Yield rules that are left out as nothing tells whether they are for a run, and the facts that would.

    Args:
        rules: before :meth:`Tolerances.for_run` has chosen among them.
        facts: what is known of the run.
    """
    for rule in rules:
        untold = [name for name, _ in rule.producer if name not in facts]
        told = tuple(fact for fact in rule.producer if fact[0] in facts)
        if untold and replace(rule, producer=told).suits(facts):
            yield rule, untold


def excerpt(value: object) -> str:
    """Return what a message shows of a value that somebody gave."""
    try:
        return repr(value)[:80]
    except ValueError:  # Python prints no integer of so many digits
        return "an integer of thousands of digits"
