"""Repeated tests: plugins parametrise them with a mere number, and all repetitions have one golden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.plugin import _compat
from pytest_npudump.regression.result import RECORDED, UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from pytest_npudump.settings import Settings

COMPARES = pytest.StashKey[bool]()
"""Whether a repetition is compared in an update, with what an earlier one has recorded."""


def repetition_parameters(item: pytest.Item) -> frozenset[str]:
    """Return the parameters that only number the repetitions of a test.

    Nothing asks for them by name: neither the test, nor its marks, nor a fixture that it uses; pytest keeps
    such names out of the fixtures of the test. Their value is a number. What asks while it runs, with
    ``request.getfixturevalue``, cannot be known here: such a parameter is taken for a repetition.
    """
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None:
        return frozenset()
    asked: Collection[str] = getattr(item, "fixturenames", ())
    return frozenset(name for name, value in callspec.params.items() if name not in asked and _counts(value))


def _counts(value: object) -> bool:
    return type(value) is int


def parameters_id(item: pytest.Item) -> str | None:
    """Return the id of a test's parameters without that of its repetition; None for a test without."""
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None:
        return None
    repeated = repetition_parameters(item)
    ids, names = _compat.ids_of_parameters(callspec), list(callspec.params)
    if not repeated:
        return str(callspec.id)
    if len(ids) == len(names):
        kept = [one for one, name in zip(ids, names, strict=True) if name not in repeated]
    elif repeated == {*names[-len(repeated) :]}:  # one id may stand for several names, before them
        kept = ids[: -len(repeated)]
    else:
        return str(callspec.id)
    return "-".join(kept) or None


def are_one_case(one: pytest.Item, other: pytest.Item) -> bool:
    """Whether two items of one test have the same parameters; pytest lets two cases share an id."""
    specs: list[Any] = [getattr(item, "callspec", None) for item in (one, other)]
    if None in specs:
        return specs[0] is specs[1]
    if specs[0].indices == specs[1].indices:
        return True
    repeated = repetition_parameters(one)
    if not repeated or repeated != repetition_parameters(other):
        return False
    values = [{n: v for n, v in spec.params.items() if n not in repeated} for spec in specs]
    return values[0].keys() == values[1].keys() and all(values[0][n] is values[1][n] for n in values[0])


class Repetitions:
    """What tests have recorded in an update: later items of the same test are compared with it."""

    def __init__(self, golden: Callable[[pytest.Item, str], Path]) -> None:
        self._path = golden
        self._recorded: dict[Path, pytest.Item] = {}

    def settings_for(self, item: pytest.Item, settings: Settings) -> Settings:
        """Return the settings under which a test runs: those of the session, mostly."""
        if not settings.update_golden or self._recorded.get(self._golden(item, settings), item) is item:
            return settings
        item.stash[COMPARES] = True
        return settings._replace(update_golden="", calibrate=0)

    def note(self, item: pytest.Item, settings: Settings, reports: Sequence[pytest.TestReport]) -> None:
        """Remember what a repetition has recorded, and say with what a later one was compared."""
        if item.stash.get(COMPARES, False):
            words = "an earlier repetition recorded the golden in this run, and this one is compared with it"
            for report in reports:
                report.sections.append(("npudump", words))
        elif settings.update_golden:
            said = {vars(report).get("npudump", {}).get("status") for report in reports}
            if said & {RECORDED, UNCHANGED}:
                self._recorded[self._golden(item, settings)] = item

    def _golden(self, item: pytest.Item, settings: Settings) -> Path:
        return self._path(item, settings.golden_variant)
