"""The answer of a checker about one configuration, and the interpreter of the tables that its rules are in.

A rule is a row of two: when it counts, and what is said then, :class:`Refusal` or text of a warning. What a
row says depends on what is judged alone, and rows are read in order: those behind a refusal at which the
real checker stops may rely on what stands before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeAlias, TypeVar

from pytest_npudump.errors import nearest

_T = TypeVar("_T")
_S = TypeVar("_S")
Row: TypeAlias = tuple[Callable[[_S], object], Callable[[_S], Iterable[_T]]]

_SHOWN = 60
_MOST_UNKNOWN = 20
_LONGEST_KEY = 80
MOST_REASONS = 50
"""Number of reasons in a verdict, and of warnings of one kind."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that is refused.

    Attributes:
        item: where, as CANN writes it: ``dump_list[2].opname_range[0].begin``; ``""`` for the whole text.
        problem: what is wrong, with the value that was found.
        remedy: what to write instead.
        code: CANN's reason code, ``EP0001`` to ``EP0005``; ``""`` where the real checker gives none.
    """

    item: str
    problem: str
    remedy: str
    code: str = ""

    def __str__(self) -> str:
        """One line: place, problem, way out, code."""
        place = f"{self.item}: " if self.item else ""
        code = f" [{self.code}]" if self.code else ""
        return f"{place}{self.problem}; {self.remedy}{code}"


@dataclass(frozen=True, slots=True)
class CheckerVerdict:
    """The answer of one checker.

    Attributes:
        accepted: whether the real checker lets this pass; None where that cannot be checked here.
        reasons: why not, the one that the real checker stops at first; ``()`` if accepted.
        warnings: what is accepted, and yet does nothing or less than it says.
        need_dump: whether anything is switched on.
        dump_type: what is switched on; ``""`` if nothing.
    """

    accepted: bool | None
    reasons: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    need_dump: bool = False
    dump_type: str = ""

    @property
    def reason_code(self) -> str:
        """CANN's code for the first reason (``EP0003``), or ``""``."""
        return self.reasons[0].code if self.reasons else ""

    @property
    def message(self) -> str:
        """All reasons, one a line; ``""`` if accepted."""
        return "\n".join(str(reason) for reason in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """The object that ``npudump config check --json`` prints."""
        return {
            "accepted": self.accepted,
            "code": self.reason_code or None,
            "reasons": [str(reason) for reason in self.reasons],
            "warnings": list(self.warnings),
            "need_dump": self.need_dump,
            "dump_type": self.dump_type or None,
        }


@dataclass(frozen=True, slots=True)
class AdumpVerdict(CheckerVerdict):
    """The answer of adump, the checker inside ``aclmdlSetDump`` and ``aclInit``.

    Attributes:
        code: what ``aclmdlSetDump`` returns for this content: 0, 100009 or 500000.
        dump_type: ``OPERATOR``, ``OP_OVERFLOW``, ``ARGS_EXCEPTION``, ``EXCEPTION``, ``AIC_ERR_DETAIL_DUMP``
            or ``""``.
        dump: the parsed ``dump`` object; ``{}`` if there is none.
        dump_path: the directory that will be used, after the environment's overrides; ``""`` if none.
        kernel_data: which kinds of kernel data (printf, assert ...) are switched on.
    """

    code: int = 0
    dump: Mapping[str, Any] = field(default_factory=dict)
    dump_path: str = ""
    kernel_data: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON, with the return code of ``aclmdlSetDump`` and its effect."""
        return {
            **CheckerVerdict.to_json(self),
            "acl_code": self.code,
            "dump_path": self.dump_path or None,
            "kernel_data": list(self.kernel_data),
        }


def few(warnings: Iterable[str], kind: str) -> Iterator[str]:
    """Yield the first :data:`MOST_REASONS` of ``warnings``, and one line for the rest, not worked out."""
    remaining = iter(warnings)
    yield from islice(remaining, MOST_REASONS)
    if next(remaining, None) is not None:
        yield f"{kind}: more warnings of this kind, not listed"


def shown(value: object) -> str:
    """``value`` as JSON, cut to a length that fits a message."""
    text = as_json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def as_json(value: object) -> str:
    """``value`` as JSON, whatever its depth."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "[...]"


def one_of(options: Iterable[str], value: object = None) -> str:
    """Suggest one of ``options`` for ``value``: the nearest one, else all of them."""
    names = sorted(options)
    meant = None
    if isinstance(value, str):
        folded = {name.lower(): name for name in names}
        meant = folded.get(nearest(value.strip().lower()[:_SHOWN], folded, 0.75))
    return f'write "{meant}"' if meant else "write one of " + ", ".join(f'"{name}"' for name in names)


def read(table: Iterable[Row[_S, _T]], judged: _S) -> Iterator[_T]:
    """Yield the findings of a table's rows, in order; a row is asked once those before were consumed."""
    for counts, says in table:
        if counts(judged):
            yield from says(judged)


def always(_: object) -> bool:
    """Be the condition of a row that counts everywhere."""
    return True


def says(text: _T) -> Callable[[object], tuple[_T]]:
    """Return the second half of a row that yields one thing, whatever is judged."""
    return lambda _: (text,)


def wrong_types(value: Any, shape: Any, path: str = "") -> Iterator[tuple[str, object, str]]:
    """Yield the place, the value and the JSON type wanted of all that has another type than ``shape`` says.

    Args:
        value: of the type that ``shape`` has, where it is an object.
        shape: ``"string"``, a list of the shape of all members, or a dictionary of shapes by key.
        path: where ``value`` stands; members of the wrong type come before what the others hold, but in
            ``dump_list``, which is gone through member by member.
    """
    if isinstance(shape, dict):
        for key, inner in shape.items():
            if key in value:
                yield from wrong_types(value[key], inner, f"{path}.{key}" if path else key)
    elif not isinstance(shape, list):
        if not isinstance(value, str):
            yield path, value, "string"
    elif not isinstance(value, list):
        yield path, value, "array"
    else:
        kind, expected = (dict, "object") if isinstance(shape[0], dict) else (str, "string")
        within = []
        for index, member in enumerate(value):
            if not isinstance(member, kind):
                yield f"{path}[{index}]", member, expected
            elif kind is dict:
                within.append(wrong_types(member, shape[0], f"{path}[{index}]"))
                if path == "dump_list":
                    yield from within.pop()
        yield from chain.from_iterable(within)


def unknown_keys(held: Mapping[str, Any], known: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield warnings of the keys of an object that nothing reads, with the known one that was meant."""
    unknown = [key for key in held if key not in known]
    for key in unknown[:_MOST_UNKNOWN]:
        close = nearest(key[:_LONGEST_KEY].strip().lower(), known, 0.8)
        hint = f", {close} was meant?" if close else ""
        yield f"{prefix}{key[:_LONGEST_KEY]}: unknown key, ignored{hint}"
    if len(unknown) > _MOST_UNKNOWN:
        rest = len(unknown) - _MOST_UNKNOWN
        yield f"{prefix.rstrip('.') or 'dump'}: {rest} more unknown keys, ignored"
