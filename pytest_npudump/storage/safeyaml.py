"""Unquoted words of YAML, by the core schema of YAML 1.2.

PyYAML has the types of YAML 1.1, to which ``1:30`` is 90, ``010`` is 8, ``no`` is false and ``1e-3`` is text.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_npudump.errors import RequestError
from pytest_npudump.storage.regular_file import open_regular

Scalar = str | int | float | bool | None

INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NUMBER_STARTS = "-+.0123456789"
"""First characters of what the two patterns match."""

_LONGEST = 64
"""Characters of a number: those of 64 bits need at most 25, and 4,300 digits Python refuses to print."""

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}


def plain_value(text: str) -> Scalar:
    """The value of ``text`` without quotes around it.

    Raises:
        ValueError: a number that is too long to be one of ours, or beyond float64; says so.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in NUMBER_STARTS:
        return text
    integer = INTEGER.fullmatch(text)
    if not integer and not FLOAT.fullmatch(text):
        return text
    if len(text) > _LONGEST:
        raise ValueError(
            f"a number of {len(text):,} characters, expected {_LONGEST} at most; put text in quotes"
        )
    if integer:
        return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text!r} is beyond the range of float64")
    return number


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNBROKEN = 2**31 - 1

_MARKERS = ("<<<<<<< ", ">>>>>>> ", "||||||| ")
_MARKER = re.compile(rf"^(?:{'|'.join(map(re.escape, _MARKERS))})", re.MULTILINE)
_DEPTH = 32
_VALUES = 100_000
"""A list of as many numbers takes half a second; the overflows of 30,000 operators are fewer values."""

SIZE = 1 << 22
"""Characters a document may have outside of literal blocks, which cost little."""

_BREAKS = "\x85\u2028\u2029\ufeff"
"""Ends of a line to YAML 1.1 and not to 1.2, which editors count as neither; and the byte order mark."""


class YamlError(ValueError):
    """A document that is not plain data.

    Attributes:
        line: 1-based line of the fault.
        reason: what is wrong there.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Document:
    """The top-level mapping of a document.

    Attributes:
        data: keys and values, in the file's order.
        lines: 1-based line of each top-level value; of a literal block the line of its ``|``.
    """

    data: Mapping[str, Any]
    lines: Mapping[str, int]


def load_mapping(text: str) -> Document:
    """Read a document whose top level is a mapping.

    Raises:
        YamlError: the text is not YAML, not a mapping, larger or deeper than anything that is read here, or
            uses tags, anchors, aliases, directives, merge keys or a key twice.
    """
    if any(map(text.__contains__, _MARKERS)) and (found := _MARKER.search(text)):  # 15 times as fast
        raise YamlError(
            _line_of(text, found.start()),
            "the conflict markers of a git merge are still in the file, resolve them",
        )
    _refuse_breaks(text)
    try:
        events: Iterable[Any] = yaml.parse(text, Loader=_LOADER)
        return _Builder(events).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _refuse_large(text[: mark.index if mark else 0])
        line = mark.line + 1 if mark else 1
        raise YamlError(line, f"not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise YamlError(
            _line_of(text, getattr(error, "position", 0)), f"not YAML: {error}".split("\n")[0]
        ) from None
    except UnicodeEncodeError as error:
        raise YamlError(_line_of(text, error.start), f"not YAML: {error.reason}") from None


def read_mapping(path: Path, called: str) -> Document:
    """Read a file of UTF-8 whose top level is a mapping, as :func:`load_mapping` does.

    Args:
        path: the file.
        called: its name in the message on a file that cannot be read.

    Raises:
        RequestError: it is no such document, no UTF-8 or no regular file, or cannot be read.
    """
    content = b""
    try:
        with open_regular(path) as file:
            content = file.read(SIZE + 1)
        if len(content) > SIZE:
            raise _too_large(1)
        return load_mapping(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{path}, line {line}: byte {error.start} is not UTF-8") from None
    except YamlError as error:
        raise RequestError(f"{path}, line {error.line}: {error.reason}") from error
    except OSError as error:
        raise RequestError(f"{called} cannot be read: {error.strerror or error}") from error


def dump_mapping(data: Mapping[str, Any]) -> str:
    """Block-style YAML of ``data`` in its own order, innermost collections on one line each.

    Raises:
        YamlError: the data holds something that YAML has no plain form for.
    """
    try:
        text = _dumped(data, allow_unicode=True)
        return _dumped(data, allow_unicode=False) if any(map(text.__contains__, _BREAKS)) else text
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise YamlError(1, f"not plain data: {error}") from error


def _dumped(data: Mapping[str, Any], *, allow_unicode: bool) -> str:
    text: str = yaml.dump(
        dict(data),
        Dumper=_Dumper,
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=allow_unicode,
        width=_UNBROKEN,
    )
    return text


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes a value out wherever it stands, as an alias would not be read back.

    Text that YAML 1.1 or 1.2 takes for something else is put in quotes.
    """

    def ignore_aliases(self, _data: object) -> bool:
        return True


_Dumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(str.__str__(text)))
for _tag, _pattern in (("int", INTEGER), ("float", FLOAT)):
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern.pattern})\Z"), list(NUMBER_STARTS)
    )


class _Builder:
    """Turns parser events into dicts, lists and scalars."""

    def __init__(self, events: Iterable[Any]) -> None:
        self._events = _within_limits(events)

    def document(self) -> Document:
        event = self._content()
        if not isinstance(event, yaml.MappingStartEvent):
            raise YamlError(_line(event), "expected a mapping at the top level")
        self._plain(event)
        lines: dict[str, int] = {}
        data = self._mapping(event, lines)
        following = next(self._events)
        if not isinstance(following, yaml.DocumentEndEvent) or following.explicit:
            raise YamlError(_line(following), "expected one document without an end marker")
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise YamlError(_line(following), "expected one document, a second one follows")
        return Document(data, lines)

    def _content(self) -> Any:
        for event in self._events:
            if isinstance(event, yaml.StreamEndEvent):
                break
            if isinstance(event, yaml.DocumentStartEvent):
                if event.version or event.tags:
                    raise YamlError(_line(event), "directives are not accepted, remove the lines with %")
            elif not isinstance(event, yaml.StreamStartEvent):
                return event
        raise YamlError(1, "the file is empty")

    def _value(self, event: Any) -> Any:
        self._plain(event)
        if isinstance(event, yaml.ScalarEvent):
            try:
                return plain_value(event.value) if event.implicit[0] else event.value
            except ValueError as error:
                raise YamlError(_line(event), str(error)) from None
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event)
        return [self._value(item) for item in self._until(yaml.SequenceEndEvent)]

    def _mapping(self, start: Any, lines: dict[str, int] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise YamlError(_line(event), f"a key must be text, in the mapping of line {_line(start)}")
            key = self._value(event)
            if not isinstance(key, str):
                raise YamlError(_line(event), f"a key must be text, put {event.value!r} in quotes")
            if key == "<<" and event.implicit[0]:
                raise YamlError(_line(event), "merge keys (<<) are not accepted, write the keys out")
            if key in result:
                raise YamlError(_line(event), f"the key {key!r} occurs twice")
            value = next(self._events)
            if lines is not None:
                lines[key] = _line(value)
            result[key] = self._value(value)
        return result

    def _until(self, end: type) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _plain(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise YamlError(_line(event), "anchors and aliases are not accepted, write the value out")
        if event.tag is not None:
            raise YamlError(_line(event), f"tags are not accepted, remove {event.tag!r}")


def _within_limits(events: Iterable[Any]) -> Iterator[Any]:
    """Hand ``events`` on until the document is larger or deeper than anything that is read here."""
    values = literal = depth = 0
    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            values += 1
        elif isinstance(event, yaml.CollectionStartEvent):
            values += 1
            depth += 1
            if depth > _DEPTH + 1:
                raise YamlError(_line(event), f"nested deeper than {_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if values > _VALUES:
            raise YamlError(
                _line(event), f"more than {_VALUES:,} values, which no file that is read here has"
            )
        if getattr(event, "style", None) == "|":
            literal += event.end_mark.index - event.start_mark.index
        if event.end_mark.index - literal > SIZE:
            raise _too_large(_line(event))
        yield event


def _refuse_large(text: str) -> None:
    """Raise if ``text``, at whose end a parser gave up, is too large or too deep by our own limits.

    A parser looks 1024 characters ahead for the colon of a key, and so meets limits of its own before it
    hands on what exceeds ours.
    """
    with suppress(yaml.YAMLError):
        deque(_within_limits(yaml.parse(text, Loader=_LOADER)), maxlen=0)


def _too_large(line: int) -> YamlError:
    """The error for a document of more than :data:`SIZE` characters."""
    return YamlError(line, f"more than {SIZE:,} characters, which no file that is read here has")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _refuse_breaks(text: str) -> None:
    if text.isascii():
        return
    for character in _BREAKS:
        if (at := text.find(character, 1)) >= 0:
            code = f"{ord(character):04X}"
            reason = f"the character U+{code}, which readers of YAML disagree about: "
            raise YamlError(_line_of(text, at), f"{reason}remove it, or write \\u{code} in double quotes")
