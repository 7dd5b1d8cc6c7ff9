"""Layers by name: which ones a request selects, and their raw names behind the sanitised ones.

Files of a dump carry sanitised names (``a/b.c`` as ``a_b_c``); acl.json and people want the raw ones. The
model, an ``.om`` or ``.onnx`` file, holds these as length-prefixed protobuf strings: ``OpDef.name`` of GE is
field 1, ``NodeProto.name`` of ONNX field 3. They are found without the schema, by tag, length and content.
"""

from __future__ import annotations

import mmap
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from heapq import nlargest
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from pytest_npudump.dump.records import Dump, Stats, TensorKey, sanitise
from pytest_npudump.errors import DumpError, FormatError, RequestError, said
from pytest_npudump.language.text import first_of
from pytest_npudump.request import DumpRequest, KnownNames, is_glob
from pytest_npudump.storage.regular_file import open_regular, read_small

_FIELDS = {
    "Max": "max",
    "Min": "min",
    "Avg": "avg",
    "Nan": "nan",
    "Negative Inf": "neg_inf",
    "Positive Inf": "pos_inf",
    "L2norm": "l2norm",
}
"""Fields of :class:`Stats` by the name that ``dump_stats`` has for them."""


_COMPARED = 200
"""Names that difflib looks at for a hint: it needs 1.7 s for 10,000."""


def select_layers(dump: Dump, request: DumpRequest) -> Dump:
    """Keep the tensors of the layers that ``request`` names, whichever spelling the dump has."""
    if not request.layers or request.scene == "watcher":
        return dump
    wanted = layers_meant(request.layers, (record.key.layer for record in dump.records))
    return replace(dump, records=tuple(record for record in dump.records if record.key.layer in wanted))


def layers_meant(patterns: Iterable[str], layers: Iterable[str]) -> set[str]:
    """Return the ``layers`` that names and globs mean, either side raw or as file names spell it."""
    return KnownNames(layers, sanitise).meant(patterns)


def layers_called(patterns: Iterable[str], layers: Iterable[str]) -> set[str]:
    """Return the ``layers`` that people mean by names, globs and keys of tensors, as reports show them."""
    known, found = [*layers], set[str]()
    for pattern in patterns:
        meant = layers_meant([pattern], known)
        with suppress(RequestError):
            meant = meant or layers_meant([TensorKey.parse(pattern).layer], known)
        found |= meant
    return found


def alike_layers(*dumps: Dump) -> frozenset[str]:
    """Names, as file names spell them, that several layers of one dump share."""
    layers = [{record.key.layer for record in dump.records} for dump in dumps]
    counts = [Counter(map(sanitise, names)) for names in layers]
    return frozenset(name for count in counts for name, times in count.items() if times > 1)


def asked_statistics(dump: Dump, names: Collection[str]) -> Dump:
    """Drop statistics that only an earlier test of the process asked for.

    CANN adds the statistics of every configuration to those of the ones before, for the life of the process.
    Statistics computed here, from tensors, stay.

    Args:
        dump: what CANN wrote.
        names: what the test asked for, as ``dump_stats`` has it; none for all but L2norm.
    """
    asked = names or tuple(_FIELDS.keys() - {"L2norm"})
    unasked: dict[str, Any] = {field: None for name, field in _FIELDS.items() if name not in asked}

    def tells_more(stats: Stats | None) -> bool:
        told = stats is not None and stats.digits is not None
        return told and any(getattr(stats, field) is not None for field in unasked)

    if not unasked or not any(tells_more(record.stats) for record in dump.records):
        return dump
    records = tuple(
        replace(record, stats=replace(record.stats, **unasked))
        if record.stats is not None and tells_more(record.stats)
        else record
        for record in dump.records
    )
    return replace(dump, records=records)


def absent_layers(layers: Iterable[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the names and globs that none of a dump's layers answers to."""
    present = KnownNames(layers, sanitise)
    return tuple(pattern for pattern in patterns if not present.meant([pattern]))


def resolve_raw_names(
    sanitised: Collection[str],
    *,
    request: DumpRequest,
    golden_keys: Iterable[str],
    models: Iterable[Path],
    tree: Path | None = None,
) -> dict[str, tuple[str, ...]]:
    """Find the raw names that the marker, the golden, the dump or the model's file have for sanitised ones.

    Args:
        sanitised: layer names as files carry them.
        request: its layer names are raw where CANN itself was given them, that is without a glob.
        golden_keys: text of the golden's keys; their layers are raw where they differ from sanitised.
        models: model files that ran; searched only for what the others do not know.
        tree: the dump's directory, where MindSpore lists its operators' names; None where there is none.

    Returns:
        Raw names by sanitised name. Several raw names may share one; a name that nothing knows is left out.
    """
    found: dict[str, dict[str, None]] = {}
    wanted = set(sanitised)
    given = request.layers if request.exact_layers else ()
    known = [name for name in request.layers if not is_glob(name)]
    known += [TensorKey.parse(key).layer for key in golden_keys]
    known += [name for name in wanted if "_" not in name]  # nothing can have been replaced
    for name in known:
        if sanitise(name) in wanted and (name != sanitise(name) or name in given or "_" not in name):
            found.setdefault(sanitise(name), {})[name] = None
    listed = {} if tree is None else mindspore_raw_names(wanted - found.keys(), tree)
    for name, raw in listed.items():
        found[name] = dict.fromkeys(raw)
    for path in models:
        missing = wanted - found.keys()
        if not missing:
            break
        beside = path.with_suffix(".onnx")
        files = [file for file in dict.fromkeys((path, beside)) if file.is_file()]
        for name, raw in (find_raw_names(missing, files[0]) if files else {}).items():
            found.setdefault(name, {}).update(dict.fromkeys(raw))
    return {name: tuple(raw) for name, raw in found.items()}


def with_raw_names(dump: Dump, raw: Mapping[str, tuple[str, ...]]) -> Dump:
    """Put raw names into the keys of a dump where exactly one is known."""
    if dump.raw_names:
        return dump
    single = {name: names[0] for name, names in raw.items() if len(names) == 1}
    records = tuple(
        replace(record, key=replace(record.key, layer=single.get(record.key.layer, record.key.layer)))
        for record in dump.records
    )
    return replace(dump, records=records)


def by_file_names(layers: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return layers by the names that files have for them, as :func:`with_raw_names` takes them."""
    names: dict[str, dict[str, None]] = {}
    for layer in layers:
        names.setdefault(sanitise(layer), {})[layer] = None
    return {name: tuple(told) for name, told in names.items()}


def suggest(name: str, layers: Iterable[str], where: str = said("the dump")) -> str:
    """Return a hint which layers' names come close to ``name``, or how many there are, and where.

    Those come first that it means, or that end as it does, in letters of another case; of a glob one of the
    same end below the nearest name.
    """
    known = list(dict.fromkeys(layers))
    lower, named = {layer: layer.lower() for layer in known}, name.lower()
    alike = partial(nlargest, _COMPARED, key=partial(_shared_ends, sanitise(name)))
    likely, meant = alike(known), layers_meant([named], lower.values())
    close = [layer for layer in known if lower[layer] in meant][:3]
    if is_glob(name) and not close:
        *above, last = name.split("/")
        globs = dict.fromkeys("/".join([*layer.split("/")[: len(above)], last]) for layer in known)
        close = [glob for glob in get_close_matches(name, alike(globs), 1) if layers_meant([glob], known)]
    close = close or get_close_matches(name, likely, n=3, cutoff=0.6)
    close = close or get_close_matches(sanitise(name), likely, n=3)
    close = close or [layer for layer in known if lower[layer].endswith(named)][:3]
    if close:
        return said("did you mean {names}?", names=", ".join(close))
    return said("{where} has {names}", where=where, names=first_of(known) or said("no layers"))


def _shared_ends(name: str, layer: str) -> int:
    """Count the characters that both names begin and end with."""
    other = sanitise(layer)
    return _shared(name, other) + _shared(reversed(name), reversed(other))


def _shared(one: Iterable[str], other: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


_CHUNK = 1 << 20
_HEAD = 3
_MORE = 0x80
_LONGEST = 1 << 14


def find_raw_names(wanted: Collection[str], path: Path) -> dict[str, tuple[str, ...]]:
    """Return, for each sanitised name of ``wanted`` that ``path`` has, its raw names, sorted.

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
        for tag in (0x0A, 0x1A):
            for at, length in _candidates(chunk, tag, wanted):
                raw = data[start + at : start + at + length]
                with suppress(UnicodeDecodeError):
                    yield from [raw.decode("utf-8")] if len(raw) == length else ()


def _candidates(chunk: np.ndarray, tag: int, wanted: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield possible strings of a wanted length in ``chunk``: beginning and length."""
    tagged = np.flatnonzero(chunk[: 1 - _HEAD] == tag)
    low, high = chunk[tagged + 1].astype(np.intp), chunk[tagged + 2].astype(np.intp)
    two_bytes = low >= _MORE
    lengths = np.where(two_bytes, low & (_MORE - 1) | high << 7, low)
    hits = np.flatnonzero(~(two_bytes & (high >= _MORE)) & wanted[lengths % _LONGEST])
    starts = tagged[hits] + 2 + two_bytes[hits]
    yield from zip(starts.tolist(), lengths[hits].tolist(), strict=True)


_RANKS = "rank_[0-9]*"
_TITLE = "NodeExecutionOrder-FullNameWithScope"
_NUMBER = re.compile(r"-op\d+\Z", re.ASCII)


def mindspore_raw_names(wanted: Collection[str], root: Path) -> dict[str, tuple[str, ...]]:
    """Return, for each sanitised name of ``wanted`` in MindSpore's own files, its raw names, sorted.

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
        if (number := _NUMBER.search(name)) is not None:
            found[name] |= {scope + number[0] for scope in scopes.get(name[: number.start()], ())}
    missing = {name for name in wanted if not found.get(name)}
    for graph in sorted(root.glob(f"{_RANKS}/graphs/ms_output_trace_code_graph_*.pb")) if missing else ():
        with suppress(DumpError):
            for name, names in find_raw_names(missing, graph).items():
                found[name].update(names)
    return {name: tuple(sorted(raw)) for name, raw in found.items() if raw}


def _listed(root: Path) -> Iterator[str]:
    for path in sorted(root.glob(f"{_RANKS}/execution_order/ms_execution_order_graph_*.csv")):
        try:
            lines = read_small(path).decode("utf-8", "surrogateescape").splitlines()
        except FormatError:
            continue
        yield from (line.strip() for line in lines if line.strip() not in {"", _TITLE})
