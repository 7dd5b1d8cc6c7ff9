"""Identity of a test: its repetitions, which plugins number by a mere parameter, have one golden."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pytest_npudump.plugin import _compat

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest


@dataclass(frozen=True, slots=True)
class Identity:
    """What a golden's name is made of; never pytest's nodeid, which plugins rewrite.

    Attributes:
        test_file: relative to rootdir.
        classes: names of the classes around the test, outermost first.
        name: of the function, without parameters.
        param_id: id of the parameters, without the number of a repetition; None for a test without.
    """

    test_file: PurePath
    classes: tuple[str, ...]
    name: str
    param_id: str | None

    @classmethod
    def of(cls, item: pytest.Item) -> Identity:
        """Return the identity of ``item``."""
        parents = [node for node in item.listchain() if getattr(node, "cls", None) is getattr(node, "obj", 0)]
        relative = os.path.relpath(item.path, item.config.rootpath)
        return cls(
            test_file=PurePath(Path(relative).as_posix()),
            classes=tuple(node.name for node in parents),
            name=getattr(item, "originalname", None) or item.name,
            param_id=parameters_id(item),
        )

    def __str__(self) -> str:
        """Return the test as a user types it on pytest's command line."""
        parameters = "" if self.param_id is None else f"[{self.param_id}]"
        return "::".join((self.test_file.as_posix(), *self.classes, self.name)) + parameters


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
