"""Plain data out of YAML that nobody vouches for: no tags, no anchors or aliases, no duplicate keys.

Built on the parser's events, so that one pass both judges the document and constructs it: an alias is
refused before it can multiply anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEPTH = 32
_UNBROKEN = 2**31 - 1


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
        YamlError: the text is not YAML, not a mapping, or uses tags, anchors, aliases or a key twice.
    """
    try:
        events = yaml.parse(text, Loader=_LOADER)
        return _Builder(iter(events)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise YamlError(line, _conflict(text) or f"not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise YamlError(_bad_character_line(text, error), f"not YAML: {error}".split("\n")[0]) from None


def dump_mapping(data: Mapping[str, Any]) -> str:
    """Block-style YAML of ``data`` in its own order, innermost collections on one line each.

    Raises:
        YamlError: the data holds something that YAML has no plain form for.
    """
    try:
        text: str = yaml.dump(
            dict(data),
            Dumper=_Dumper,
            default_flow_style=None,
            sort_keys=False,
            allow_unicode=True,
            width=_UNBROKEN,
        )
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlError(1, f"not plain data: {error}") from error
    return text


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes a value out wherever it stands: an alias would not be read back."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


class _Builder:
    """Turns parser events into dicts, lists and scalars."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._scalars: Any = yaml.SafeLoader("")

    def document(self) -> Document:
        event = self._content()
        if not isinstance(event, yaml.MappingStartEvent):
            raise YamlError(_line(event), "expected a mapping at the top level")
        self._plain(event)
        lines: dict[str, int] = {}
        data = self._mapping(event, 0, lines)
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
            if not isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent)):
                return event
        raise YamlError(1, "the file is empty")

    def _value(self, event: Any, depth: int) -> Any:
        self._plain(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if depth >= _DEPTH:
            raise YamlError(_line(event), f"nested deeper than {_DEPTH} levels")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth + 1)
        return [self._value(item, depth + 1) for item in self._until(yaml.SequenceEndEvent)]

    def _mapping(self, start: Any, depth: int, lines: dict[str, int] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            key = self._value(event, depth) if isinstance(event, yaml.ScalarEvent) else None
            if not isinstance(key, str):
                raise YamlError(_line(event), f"a key must be text, in the mapping of line {_line(start)}")
            if key in result:
                raise YamlError(_line(event), f"the key {key!r} occurs twice")
            value = next(self._events)
            if lines is not None:
                lines[key] = _line(value)
            result[key] = self._value(value, depth)
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

    def _scalar(self, event: Any) -> Any:
        if not event.implicit[0]:
            return event.value
        tag = self._scalars.resolve(yaml.ScalarNode, event.value, (True, False))
        if tag == "tag:yaml.org,2002:str":
            return event.value
        try:
            node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):
            raise YamlError(_line(event), f"{event.value[:80]!r} is not a value YAML can read") from None


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _conflict(text: str) -> str:
    if text.startswith("<<<<<<< ") or "\n<<<<<<< " in text or "\n>>>>>>> " in text:
        return "the conflict markers of a git merge are still in the file, resolve them"
    return ""


def _bad_character_line(text: str, error: yaml.YAMLError) -> int:
    position = getattr(error, "position", None)
    return text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
