"""Edges as lines of a golden file: ``consumer < producer:output.0 producer2:output.1``.

Inputs stand in the order of their slots, each with what feeds it, if need be through operators that were not
dumped. ``-`` is one that nothing feeds (a constant), ``?`` one of which that is not known, ``*`` one that
several feed, which come behind the last slot.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN, Edges, Port

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

BLOCK = "edges"
"""Name of the block of a golden file."""
_SIGN = "<"
_MARKS: Mapping[Port | None, str] = MappingProxyType({None: "-", UNKNOWN: "?", SEVERAL: "*"})
_MEANT: Mapping[str, Port | None] = MappingProxyType({word: port for port, word in _MARKS.items()})
_NAME = re.compile(r"[^\s#\x00-\x1f\x7f-\x9f]+")


def render(edges: Edges, layers: Collection[str]) -> str:
    """Return the lines for some layers, in their order; "" where nothing is known of any of them."""
    spelt = {sanitise(layer): layer for layer in layers}
    found = edges.restricted(spelt.values())
    lines = (
        " ".join([TensorKey(layer, "", 0).name_text, _SIGN, *map(_word, found.feeds[name])])
        for name, layer in spelt.items()
        if name in found.feeds
    )
    return "".join(f"{line}\n" for line in lines if line.isprintable())


def _word(port: Port | None) -> str:
    if port is None or port in _MARKS:
        return _MARKS[port]
    return str(TensorKey(port.layer, "output", port.slot))


def parse(text: str, path: Path) -> Edges:
    """Read the lines.

    Args:
        text: the block.
        path: the golden file, for errors.

    Raises:
        GoldenError: a line is none of these, or an operator has two of them.
    """
    feeds: dict[str, tuple[Port | None, ...]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[1] != _SIGN or not _NAME.fullmatch(words[0]):  # noqa: PLR2004 - name and sign
            raise _bad(path, f"{line[:120]!r} is no edge, expected: layer < producer:output.0")
        name = sanitise(TensorKey.parse(f"{words[0]}:output.0").layer)
        if name in feeds:
            raise _bad(path, f"{words[0]!r} stands in two lines, remove one of them")
        feeds[name] = tuple(_port(word, path) for word in words[2:])
    return Edges(feeds, path.name)


def _port(word: str, path: Path) -> Port | None:
    if word in _MEANT:
        return _MEANT[word]
    try:
        key = TensorKey.parse(word)
    except RequestError as error:
        raise _bad(path, str(error)) from None
    if key.io != "output" or key.qualifiers_text:
        raise _bad(path, f"{word!r} is no output of a layer, expected such as conv1:output.0")
    return Port(key.layer, key.slot)


def _bad(path: Path, reason: str) -> GoldenError:
    return GoldenError(
        f"{path}: {BLOCK}: {reason}. Restore the file from version control, or approve anew with "
        f"--npudump-update-golden"
    )
