"""Calls of pyACL as a table: which arguments each takes, and what it answers where it is refused.

A call is a function with the kinds of its arguments before it::

    @RT("Ii", own_stream)
    def launch(number: int, flag: int, stream: Stream) -> None: ...

    RT.table({"get_run_mode": ((), (0, CODE), lambda: 1)})

A kind is a string of the codes of ``PyArg_ParseTuple`` (:data:`CONVERTERS`), one an argument; a class, for a
handle of such a thing (100000 for any other); or a function that makes of a handle what it stands for. A call
without kinds looks at none of its arguments, as in pyACL. Arguments are read before any handle is looked up.

What a call returns follows from ``refused``, its answer to a :class:`RefusedError`: :data:`CODE` alone for a
call that returns a code; a tuple that ends with it where results come before the code; else the result of
a call that returns no code. It may be a function that makes that of the arguments. The call's own function
gives its results without the code, or the code where nothing else is returned.
"""

from __future__ import annotations

import operator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.codes import RefusedError
from pytest_npudump.emulator.process import process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Kind = str | type | Callable[[int], object]

T = TypeVar("T")

CODE: Any = object()
"""Stands for the code in what a call answers."""
_CALLED = {
    "DeviceContext": "context",
    "DataBuffer": "data buffer",
    "LoadConfig": "configuration",
    "ModelDesc": "model description",
    "OperatorAttributes": "operator attribute",
    "OperatorHandle": "operator handle",
    "Stream": "stream",
    "TensorDesc": "tensor description",
}


def _masked(bits: int) -> Callable[[Any], int]:
    return lambda value: operator.index(value) & ((1 << bits) - 1)


def _signed(bits: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = operator.index(value)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise OverflowError(number)
        return number

    return convert


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(value)
    value.encode()
    return value


def _list(member: Callable[[Any], T], *, arrays: bool = False) -> Callable[[Any], list[T]]:
    def convert(values: Any) -> list[T]:
        if arrays and isinstance(values, np.ndarray):
            values = values.reshape(-1).tolist()
        if not isinstance(values, list):
            raise TypeError(values)
        return [member(value) for value in values]

    return convert


CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "k": _masked(64),  # unsigned, masked as in C
    "K": _masked(64),
    "I": _masked(32),
    "B": _masked(8),
    "i": _signed(32),  # signed, checked
    "L": _signed(64),
    "f": lambda value: float(np.float32(float(value))),  # rounded as in C
    "d": float,
    "s": _text,
    "O": lambda value: value,
    "v": _list(_signed(64)),  # lists; those below may be arrays, too
    "S": _list(_text),
    "V": _list(_signed(64), arrays=True),
    "F": _list(lambda value: float(np.float32(float(value))), arrays=True),
    "T": _list(lambda value: int(bool(value)), arrays=True),
}


def parse(call: str, kinds: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``args`` as :data:`CONVERTERS` reads them; what follows ``|`` may be missing.

    Raises:
        TypeError: with pyACL's text, for a wrong number of arguments or a wrong type.
    """
    required, _, optional = kinds.partition("|")
    every = required + optional
    if not len(required) <= len(args) <= len(every):
        raise TypeError(f"{call} args parse failed!")
    try:
        return tuple(CONVERTERS[kind](value) for kind, value in zip(every, args, strict=False))
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{call} args parse failed!") from None


def known(kind: type[T], handle: int) -> T:
    """Return the object of a handle; 100000 for NULL, for a destroyed one, and for any other value."""
    found = process().handles.get(handle, kind)
    if found is None:
        called = _CALLED.get(kind.__name__, kind.__name__.lower())
        raise RefusedError(codes.INVALID_PARAM, f"{handle:#x} is no {called}")
    return found


def destroy(kind: type) -> Callable[[int], None]:
    """Return the call that destroys a thing of that kind."""

    def destroyed(handle: int) -> None:
        known(kind, handle)
        process().handles.remove(handle, kind)

    return destroyed


class Face:
    """A module of pyACL, and its calls by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: dict[str, Callable[..., Any]] = {}

    def __call__(
        self, *kinds: Kind, refused: Any = CODE
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make a call of the function that follows, under its name."""
        return lambda body: self._define(body.__name__, kinds, refused, body)

    def table(self, rows: Mapping[str, tuple[tuple[Kind, ...] | Kind, Any, Callable[..., Any]]]) -> None:
        """Make calls, each of its kinds (or its only one), what it answers where refused, and a function."""
        for name, (kinds, refused, body) in rows.items():
            self._define(name, kinds if isinstance(kinds, tuple) else (kinds,), refused, body)

    def _define(
        self, name: str, kinds: tuple[Kind, ...], refused: Any, body: Callable[..., Any]
    ) -> Callable[..., Any]:
        full, read = f"{self.name}.{name}", "".join(kind if isinstance(kind, str) else "k" for kind in kinds)
        resolvers: list[Callable[[Any], Any] | None] = []
        for kind in kinds:
            if isinstance(kind, str):
                resolvers += [None] * len(kind.replace("|", ""))
            else:
                resolvers.append(partial(known, kind) if isinstance(kind, type) else kind)

        @wraps(body)
        def call(*args: object) -> Any:
            given = parse(full, read, args) if kinds else ()
            answer = refused(*given) if callable(refused) else refused
            try:
                found = (v if to is None else to(v) for to, v in zip(resolvers, given, strict=False))
                result = body(*found)
            except RefusedError as error:
                code = process().explain(error.code, f"{full}: {error.why}")
                if isinstance(answer, tuple):
                    return tuple(code if part is CODE else part for part in answer)
                return code if answer is CODE else answer
            if isinstance(answer, tuple):
                return (*(result if len(answer) > len((result, CODE)) else (result,)), codes.SUCCESS)
            return codes.SUCCESS if answer is CODE and result is None else result

        call.__name__ = name
        self.calls[name] = call
        return call


ACL, MDL, OP, RT, UTIL = map(Face, ("acl", "acl.mdl", "acl.op", "acl.rt", "acl.util"))
