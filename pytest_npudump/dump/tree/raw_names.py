"""Raw operator names for the sanitised ones of a dump, found in the model file.

Statistics dumps know operators by file names only, where CANN replaced characters. The model, an ``.om``
or ``.onnx`` file, holds the raw names as length-prefixed protobuf strings: ``OpDef.name`` of GE is field
1, ``NodeProto.name`` of ONNX field 3. They are found without the schema, by tag, length and content.
"""

from __future__ import annotations

import mmap
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.textfile import read_small
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import DumpError, FormatError
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_TAGS = (0x0A, 0x1A)
_CHUNK = 1 << 20
_HEAD = 3
_MORE = 0x80
_LONGEST = 1 << 14


def find_raw_names(wanted: Collection[str], path: Path) -> dict[str, tuple[str, ...]]:
    """Return, for each sanitised name of ``wanted`` that ``path`` has, the raw names it stands for, sorted.

    Sanitising keeps a name's length in characters, so that only strings of a wanted length are looked
    at. Memory does not grow with the file. Names of 16,384 bytes and more are not found.

    Raises:
        DumpError: the file cannot be read.
    """
    names = {name: len(name.encode("utf-8", "surrogateescape")) for name in wanted}
    found: defaultdict[str, set[str]] = defaultdict(set)
    if not names:
        return {}
    try:
        with open_regular(path) as file:
            if file.seek(0, 2) == 0:
                return {}
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for raw in _strings(data, set(names.values())):
                    name = sanitise(raw)
                    if name in names:
                        found[name].add(raw)
    except OSError as error:
        raise DumpError(f"{path}: cannot be read for operator names: {error.strerror}") from error
    return {name: tuple(sorted(raw)) for name, raw in found.items()}


def _strings(data: mmap.mmap, lengths: Collection[int]) -> Iterator[str]:
    """Yield every UTF-8 string of one of ``lengths`` (bytes) that stands behind a tag and its length."""
    wanted = np.zeros(_LONGEST, dtype=bool)
    wanted[[length for length in lengths if length < _LONGEST]] = True
    for start in range(0, len(data), _CHUNK):
        chunk = np.frombuffer(data[start : start + _CHUNK + _HEAD - 1].ljust(_HEAD, b"\0"), dtype=np.uint8)
        for tag in _TAGS:
            for at, length in _candidates(chunk, tag, wanted):
                yield from _string(data, start + at, length)


def _candidates(chunk: np.ndarray, tag: int, wanted: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield where a string of a wanted length would begin in ``chunk``, and its length."""
    tagged = np.flatnonzero(chunk[: 1 - _HEAD] == tag)
    low, high = chunk[tagged + 1].astype(np.intp), chunk[tagged + 2].astype(np.intp)
    two_bytes = low >= _MORE
    lengths = np.where(two_bytes, low & (_MORE - 1) | high << 7, low)
    hits = np.flatnonzero(~(two_bytes & (high >= _MORE)) & wanted[lengths % _LONGEST])
    starts = tagged[hits] + 2 + two_bytes[hits]
    yield from zip(starts.tolist(), lengths[hits].tolist(), strict=True)


def _string(data: mmap.mmap, start: int, length: int) -> Iterator[str]:
    raw = data[start : start + length]
    if len(raw) == length:
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            return


_RANKS = "rank_[0-9]*"
_ORDERS = f"{_RANKS}/execution_order/ms_execution_order_graph_*.csv"
_GRAPHS = f"{_RANKS}/graphs/ms_output_trace_code_graph_*.pb"
_TITLE = "NodeExecutionOrder-FullNameWithScope"
_NUMBER = re.compile(r"-op\d+\Z", re.ASCII)


def mindspore_raw_names(wanted: Collection[str], root: Path) -> dict[str, tuple[str, ...]]:
    """Return, for each sanitised name of ``wanted`` that MindSpore's own files tell, its raw names, sorted.

    Several raw names may share a sanitised one. Files that cannot be read tell nothing.

    Args:
        wanted: operators' names as files of the dump carry them, and parameters'.
        root: a dump path; any other than MindSpore's tells nothing.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    scopes: defaultdict[str, set[str]] = defaultdict(set)
    for name in _listed(root):
        scope = _NUMBER.sub("", name)
        scopes[sanitise(scope)].add(scope)
    for name in wanted:
        number = _NUMBER.search(name)
        if number is not None:
            found[name] |= {scope + number[0] for scope in scopes.get(name[: number.start()], ())}
    missing = {name for name in wanted if not found.get(name)}
    for graph in sorted(root.glob(_GRAPHS)) if missing else ():
        for name, raw in _in_graph(missing, graph).items():
            found[name] |= raw
    return {name: tuple(sorted(raw)) for name, raw in found.items() if raw}


def _in_graph(wanted: Collection[str], graph: Path) -> dict[str, set[str]]:
    try:
        return {name: set(raw) for name, raw in find_raw_names(wanted, graph).items()}
    except DumpError:
        return {}


def _listed(root: Path) -> Iterator[str]:
    for path in sorted(root.glob(_ORDERS)):
        try:
            lines = read_small(path).decode("utf-8", "surrogateescape").splitlines()
        except FormatError:
            continue
        yield from (line.strip() for line in lines if line.strip() not in {"", _TITLE})
