"""``npudump golden show``: what a golden says of its origin, of repetition, and of measured noise."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import byte_size, columns, emit, write_json
from pytest_npudump.compare.tolerances.calibrated import calibrated_of
from pytest_npudump.golden.applicable import variants_of
from pytest_npudump.golden.content.noise import MEASURABLE, calibration_of, repeats_of
from pytest_npudump.golden.objects.stored_golden import pointers_of
from pytest_npudump.golden.overlay import differing
from pytest_npudump.golden.store import read_golden

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.compare.tolerances.calibrated import Calibrated
    from pytest_npudump.golden.content.noise import Noise
    from pytest_npudump.golden.content.text import Golden

_HEADER = ("tensor", "dtype", "repeats", *(f"{name} %" for name in MEASURABLE))


def run(arguments: argparse.Namespace) -> int:
    """Print it, or write JSON; 0."""
    golden = read_golden(arguments.golden)
    measured = calibrated_of(golden)
    if arguments.json:
        write_json(_as_json(golden, measured, noise=arguments.noise), arguments.json)
    if arguments.json != "-":
        emit(_lines(golden, measured, limit=arguments.limit if arguments.noise else None))
    return 0


def _lines(golden: Golden, measured: Calibrated | None, limit: int | None) -> Iterator[str]:
    facts = ", ".join(f"{name} {value}" for name, value in golden.producer.items())
    yield f"test:        {golden.test}"
    yield f"producer:    {facts}"
    yield f"tensors:     {len(golden.table)}"
    if pointers := pointers_of(golden):
        yield f"stored:      {len(pointers)} of them, {byte_size(sum(one.size for one in pointers.values()))}"
    if golden.base is not None:
        count = len(differing(golden, golden.base))
        yield f"variant:     {count} of them differ from {golden.base.path.name}"
    for name, asked in variants_of(golden).items():
        yield f"variant:     {name}, for {', '.join(f'{fact} {value}' for fact, value in asked.items())}"
    yield f"repeats:     {_repeats(golden)}"
    yield f"calibration: {_calibration(golden)}"
    if limit is None:
        return
    widest = _widest(golden, measured)
    if not widest or measured is None:
        yield "no tensor has noise: all bounds are the preset's"
        return
    what = "bounds that were measured" if measured.widens else "differences that are no change"
    yield f"{what} ({measured.source}), in % of each statistic's scale, widest first:"
    yield from columns([_row(measured, row) for row in widest[: limit or None]], _HEADER)
    if limit and len(widest) > limit:
        yield f"... and {len(widest) - limit} more"
    if measured.widens and (blind := measured.describe_blind(key for key, _ in widest)):
        yield blind


def _repeats(golden: Golden) -> str:
    found = repeats_of(golden.extra, golden.path)
    if found is None or found.runs == 1:
        return "not known: it was recorded from one run"
    of = "all" if found.compared is None else f"{found.compared} of {len(golden.table)}"
    varying = sum(cell.startswith("~") for cell in golden.table.noise)
    words = f"{found.runs} runs, {of} tensors compared, {varying or 'none'} with other digits"
    if not found.not_deterministic:
        return words
    return f"{words}; not deterministic: {', '.join(found.not_deterministic)}"


def _calibration(golden: Golden) -> str:
    found = calibration_of(golden.extra, golden.path)
    if found is None:
        return "none"
    return f"{found.members} members, factor {found.factor:g}, varied: {', '.join(found.varied)}"


def _widest(golden: Golden, measured: Calibrated | None) -> Sequence[tuple[str, str]]:
    """Return key and dtype of the tensors with noise, by their largest deviation."""
    if measured is None:
        return []
    dtypes = dict(zip(golden.table.keys, golden.table.dtypes, strict=True))
    noisy = sorted(measured.noise, key=lambda key: _widest_of(measured.noise[key]), reverse=True)
    return [(key, dtypes[key]) for key in noisy]


def _widest_of(noise: Noise) -> float:
    return max(noise.by_statistic.values())


def _row(measured: Calibrated, row: tuple[str, str]) -> tuple[str, ...]:
    key, dtype = row
    bounds = [measured.factor * value for value in measured.noise[key].by_statistic.values()]
    repeats = "no" if measured.varies(key) else "yes" if measured.repeats else "?"
    return (key, dtype, repeats, *(f"{100 * bound:.3g}" if bound else "-" for bound in bounds))


def _as_json(golden: Golden, measured: Calibrated | None, *, noise: bool) -> dict[str, Any]:
    repeats = repeats_of(golden.extra, golden.path)
    calibration = calibration_of(golden.extra, golden.path)
    told: dict[str, Any] = {
        "test": golden.test,
        "producer": dict(golden.producer),
        "tensors": len(golden.table),
        "repeats": None if repeats is None else repeats.to_head(),
        "calibration": None if calibration is None else calibration.to_head(),
    }
    if noise:
        told["noise"] = [_noise_json(measured, *row) for row in _widest(golden, measured) if measured]
    return told


def _noise_json(measured: Calibrated, key: str, dtype: str) -> dict[str, Any]:
    found = measured.noise[key]
    return {
        "key": key,
        "dtype": dtype,
        "varies": found.varies,
        "largest": {name: value if isfinite(value) else None for name, value in found.by_statistic.items()},
        "factor": measured.factor,
        "sees_nothing": measured.sees_nothing(key),
    }
