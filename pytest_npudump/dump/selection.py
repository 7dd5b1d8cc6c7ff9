"""Layers by name: which ones a request selects, and their raw names behind the sanitised ones.

Files of a dump carry sanitised names (``a/b.c`` as ``a_b_c``); acl.json and people want the raw ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from heapq import nlargest
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.records import Dump, TensorKey, sanitise
from pytest_npudump.dump.tree.raw_names import find_raw_names, mindspore_raw_names
from pytest_npudump.language.text import first_of
from pytest_npudump.request import KnownNames, is_glob

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

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from pytest_npudump.request import DumpRequest

_COMPARED = 200
"""Names that difflib looks at for a hint: it needs 1.7 s for 10,000."""


def select_layers(dump: Dump, request: DumpRequest) -> Dump:
    """Keep the tensors of the layers that ``request`` names, whichever spelling the dump has."""
    if not request.layers or request.scene == "watcher":
        return dump
    wanted = layers_meant(request.layers, (record.key.layer for record in dump.records))
    return replace(dump, records=tuple(record for record in dump.records if record.key.layer in wanted))


def layers_meant(patterns: Iterable[str], layers: Iterable[str]) -> set[str]:
    """Return those of ``layers`` that names and globs mean, either side raw or as file names spell it."""
    return KnownNames(layers, sanitise).meant(patterns)


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
    records = tuple(
        replace(record, stats=replace(record.stats, **unasked))
        if record.stats is not None and record.stats.digits is not None
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
        for name, raw in _in_model(missing, path).items():
            found.setdefault(name, {}).update(dict.fromkeys(raw))
    return {name: tuple(raw) for name, raw in found.items()}


def _in_model(wanted: Collection[str], path: Path) -> Mapping[str, tuple[str, ...]]:
    beside = path.with_suffix(".onnx")
    files = [file for file in dict.fromkeys((path, beside)) if file.is_file()]
    return find_raw_names(wanted, files[0]) if files else {}


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


def suggest(name: str, layers: Iterable[str]) -> str:
    """Return a hint which layers' names come close to ``name``, or how many there are."""
    known = list(dict.fromkeys(layers))
    likely = nlargest(_COMPARED, known, key=partial(_shared_ends, sanitise(name)))
    close = get_close_matches(name, likely, n=3, cutoff=0.6) or get_close_matches(sanitise(name), likely, n=3)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"the dump has {len(known)} layers: {first_of(known)}"


def _shared_ends(name: str, layer: str) -> int:
    """Count the characters that both names begin and end with."""
    other = sanitise(layer)
    return _shared(name, other) + _shared(reversed(name), reversed(other))


def _shared(one: Iterable[str], other: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
