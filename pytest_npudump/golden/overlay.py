"""A variant as only what differs from the common golden beside it.

Its file is a golden with the rows that differ, and the key ``variant``: the common golden's name, the tensors
of that which the variant does not have (``without``), and those that only it has, by the tensor that they
stand behind (``added``). All else of its head is its own. A row of the common golden brings its noise along
only where both files have one calibration.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import GoldenError
from pytest_npudump.record.noise import CALIBRATION
from pytest_npudump.record.record import EDGES, Record, rows_of
from pytest_npudump.record.rows import by_name, common_columns, lines_by_key, render_projections
from pytest_npudump.record.text import render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.dump.table import StatsTable

VARIANT = "variant"
"""Key of a variant's file that holds only what differs."""
_BASE, _WITHOUT, _ADDED = "base", "without", "added"
_NOTHING = "-"
_START = ""


def base_name(golden: Record) -> str:
    """Return the file name of the common golden that a variant's file differs from; "" for other files.

    Raises:
        GoldenError: the key ``variant`` is not as it is written.
    """
    if VARIANT not in golden.extra:
        return ""
    return str(_told(golden)[_BASE])


def laid_over(own: Record, base: Record) -> Record:
    """Return the whole golden that a variant's file stands for.

    Args:
        own: the file as it was read.
        base: the common golden.

    Raises:
        GoldenError: the two do not fit each other.
    """
    told = _told(own)
    if own.test != base.test:
        raise _unfit(own, base, f"is of {base.test!r}, this one of {own.test!r}")
    seen = _with_noise_of(base, own.extra.get(CALIBRATION))
    tables = (_full(seen, own.table), _full(own.table, seen))
    order = _order(own, base, told)
    places = [{key: row for row, key in enumerate(table.keys)} for table in tables]
    rows = [(1, places[1][key]) if key in places[1] else (0, places[0][key]) for key in order]
    table = rows_of(tables, rows)
    table = replace(table, noise=table.noise if set(table.noise) - {_NOTHING} else ())
    if not any(table.digests):
        table = replace(table, digests=())
    extra = {name: value for name, value in own.extra.items() if name != VARIANT}
    edges = own.blocks.get(EDGES) or base.blocks.get(EDGES, "")
    digest = sha256(f"{own.digest} {base.digest}".encode()).hexdigest()
    blocks = {EDGES: edges} if edges else {}
    changed = {key: stamp for key, stamp in base.changed.items() if key not in places[1]} | {**own.changed}
    whole = replace(own, table=table, extra=extra, blocks=blocks, digest=digest, changed=changed)
    return replace(whole, base=base, own_digest=own.digest)


def as_written(golden: Record) -> Record:
    """Return what a golden's file holds: only what differs from its base where it has one.

    A golden that cannot be told by its base, as where tensors run in another order, is written whole.
    """
    base = golden.base
    if base is None:
        return golden
    whole = replace(golden, base=None)
    try:
        own = _difference(whole, base)
        back = replace(laid_over(own, base), base=None, changed={})
        same = render(back) == render(replace(whole, changed={}))
    except (GoldenError, KeyError):
        return whole
    return own if same else whole


def differing(golden: Record, base: Record) -> list[str]:
    """Return the keys of a golden's tensors that are other ones than in the base, or not in it."""
    seen = _with_noise_of(base, golden.extra.get(CALIBRATION))
    columns = common_columns([golden.table, seen])
    before, now = lines_by_key(seen, columns), lines_by_key(golden.table, columns)
    sums = [by_name(render_projections(table)) for table in (seen, golden.table)]
    return [
        key for key, line in now.items() if before.get(key) != line or sums[0].get(key) != sums[1].get(key)
    ]


def _difference(golden: Record, base: Record) -> Record:
    keys = set(differing(golden, base))
    there = set(base.table.keys)
    added: dict[str, list[str]] = {}
    anchor = _START
    for key in golden.table.keys:
        if key in there:
            anchor = key
        else:
            added.setdefault(anchor, []).append(key)
    without = sorted(there - set(golden.table.keys))
    told: dict[str, Any] = {_BASE: base.path.name}
    told |= ({_WITHOUT: without} if without else {}) | ({_ADDED: added} if added else {})
    rows = [(0, row) for row, key in enumerate(golden.table.keys) if key in keys]
    table = rows_of((golden.table, golden.table), rows)
    noise = table.noise if set(table.noise) - {_NOTHING} else ()
    table = replace(table, noise=noise, digests=table.digests if any(table.digests) else ())
    blocks = {} if golden.blocks.get(EDGES) == base.blocks.get(EDGES) else dict(golden.blocks)
    return replace(golden, table=table, extra={VARIANT: told, **golden.extra}, blocks=blocks)


def _order(own: Record, base: Record, told: Mapping[str, Any]) -> list[str]:
    without, there = set(told.get(_WITHOUT, ())), set(base.table.keys)
    added = {at: [key for key in keys if key not in there] for at, keys in told.get(_ADDED, {}).items()}
    order = list(added.pop(_START, ()))
    for key in base.table.keys:
        if key not in without:
            order.append(key)
        order += added.pop(key, ())
    if homeless := next((key for key, names in added.items() if names), ""):
        raise _unfit(own, base, f"has no tensor {homeless!r}, behind which tensors of this one stand")
    lost = set(own.table.keys) - set(order)
    if lost or len(set(order)) < len(order):
        some = min(lost) if lost else "a tensor"
        raise _unfit(own, base, f"does not tell where {some!r} of this one stands, or tells it twice")
    unknown = set(order) - set(own.table.keys) - set(base.table.keys)
    if unknown:
        raise _unfit(own, base, f"has no tensor {min(unknown)!r}, of which this one says that it is added")
    return order


def _with_noise_of(base: Record, calibration: object) -> StatsTable:
    """Return a base's table as a variant sees it: without noise that another calibration has measured."""
    same = base.extra.get(CALIBRATION) == calibration
    return base.table if same else replace(base.table, noise=())


def _full(table: StatsTable, other: StatsTable) -> StatsTable:
    """Return a table with the columns that either has."""
    noise = table.noise or ((_NOTHING,) * len(table) if other.noise else ())
    return replace(table, noise=noise)


def _told(golden: Record) -> Mapping[str, Any]:
    found = golden.extra.get(VARIANT)
    if isinstance(found, dict) and not found.keys() - {_BASE, _WITHOUT, _ADDED}:
        name, without, added = found.get(_BASE), found.get(_WITHOUT, []), found.get(_ADDED, {})
        plain = isinstance(name, str) and name.endswith(".yaml") and not {"/", "\\", "@"} & set(name)
        if plain and _names(without) and isinstance(added, dict) and all(map(_names, added.values())):
            return found
    raise GoldenError(
        f"{golden.path}: {VARIANT} is {found!r}, expected a mapping with {_BASE} (the file name of the "
        f"golden beside it), {_WITHOUT} and {_ADDED}. Restore the file from version control, or approve anew "
        f"with --npudump-update-golden"
    )


def _names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _unfit(own: Record, base: Record, reason: str) -> GoldenError:
    return GoldenError(
        f"{own.path}: holds only what differs from {base.path.name}, and that {reason}. Restore both from "
        f"version control, or approve anew with --npudump-update-golden"
    )
