"""``npudump golden show``: what a golden says of its origin, of repetition, and of measured noise."""

from __future__ import annotations

from collections import Counter
from math import isfinite
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import byte_size, columns, emit, write_json
from pytest_npudump.compare.stats.blind_bounds import blind_keys, describe_blind
from pytest_npudump.compare.tolerances.calibrated import calibrated_of
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.golden.applicable import variants_of
from pytest_npudump.golden.content.noise import MEASURABLE, calibration_of, repeats_of
from pytest_npudump.golden.content.text import REASON, RECORDED
from pytest_npudump.golden.objects.stored_golden import pointers_of
from pytest_npudump.golden.overlay import differing
from pytest_npudump.golden.stamps import in_words
from pytest_npudump.golden.store import read_golden
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Sequence

    from pytest_npudump.compare.tolerances.calibrated import Calibrated
    from pytest_npudump.golden.content.noise import Noise
    from pytest_npudump.golden.content.text import Golden

_HEADER = (mark("tensor"), "dtype", mark("repeats"), *(f"{name} %" for name in MEASURABLE))


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
    yield _("test:        {test}").format(test=golden.test)
    yield _("producer:    {facts}").format(facts=facts)
    day = in_words(golden.extra.get(RECORDED)) or _("it does not say when")
    yield _("recorded:    {day}").format(day=day)
    yield from _changes(golden)
    yield _("tensors:     {count}").format(count=len(golden.table))
    if pointers := pointers_of(golden):
        yield _("stored:      {count} of them, {size}").format(
            count=len(pointers), size=byte_size(sum(one.size for one in pointers.values()))
        )
    if golden.base is not None:
        count = len(differing(golden, golden.base))
        yield _("variant:     {count} of them differ from {name}").format(
            count=count, name=golden.base.path.name
        )
    for name, asked in variants_of(golden).items():
        yield _("variant:     {name}, for {facts}").format(
            name=name, facts=", ".join(f"{fact} {value}" for fact, value in asked.items())
        )
    yield _("repeats:     {words}").format(words=_repeats(golden))
    yield _("calibration: {words}").format(words=_calibration(golden))
    if limit is None:
        return
    widest = _widest(golden, measured)
    if not widest or measured is None:
        yield _("no tensor has noise: all bounds are the preset's")
        return
    what = _("bounds that were measured") if measured.widens else _("differences that are no change")
    yield _("{what} ({source}), in % of each statistic's scale, widest first:").format(
        what=what, source=measured.source
    )
    yield from columns([_row(measured, row) for row in widest[: limit or None]], _HEADER)
    if limit and len(widest) > limit:
        yield _("... and {left} more").format(left=len(widest) - limit)
    if blind := describe_blind(_blind(golden, measured)):
        yield blind


def _changes(golden: Golden) -> Iterator[str]:
    """Yield when tensors changed since, the latest first, and why."""
    stamps = [golden.changed[key] for key in golden.table.keys if key in golden.changed]
    for stamp, count in sorted(Counter(stamps).items(), reverse=True):
        yield _("changed:     {count} tensors, {day}").format(count=count, day=in_words(stamp))
    if reason := golden.extra.get(REASON):
        yield _("reason:      {reason}").format(reason=reason)


def _repeats(golden: Golden) -> str:
    found = repeats_of(golden.extra, golden.path)
    if found is None or found.runs == 1:
        return _("not known: it was recorded from one run")
    of = (
        _("all")
        if found.compared is None
        else _("{compared} of {count}").format(compared=found.compared, count=len(golden.table))
    )
    varying = sum(cell.startswith("~") for cell in golden.table.noise)
    words = _("{runs} runs, {of} tensors compared, {varying} with other digits").format(
        runs=found.runs, of=of, varying=varying or _("none")
    )
    if not found.not_deterministic:
        return words
    return _("{words}; not deterministic: {operators}").format(
        words=words, operators=", ".join(found.not_deterministic)
    )


def _calibration(golden: Golden) -> str:
    found = calibration_of(golden.extra, golden.path)
    if found is None:
        return _("none")
    return _("{members} members, factor {factor:g}, varied: {varied}").format(
        members=found.members, factor=found.factor, varied=", ".join(found.varied)
    )


def _widest(golden: Golden, measured: Calibrated | None) -> Sequence[tuple[str, str]]:
    """Return key and dtype of the tensors with noise, by their largest deviation."""
    if measured is None:
        return []
    dtypes = dict(zip(golden.table.keys, golden.table.dtypes, strict=True))
    noisy = sorted(measured.noise, key=lambda key: _widest_of(measured.noise[key]), reverse=True)
    return [(key, dtypes[key]) for key in noisy]


def _blind(golden: Golden, measured: Calibrated | None) -> Sequence[str]:
    return blind_keys(golden.table, Tolerances().with_measured(measured))


def _widest_of(noise: Noise) -> float:
    return max(noise.by_statistic.values())


def _row(measured: Calibrated, row: tuple[str, str]) -> tuple[str, ...]:
    key, dtype = row
    bounds = [measured.factor * value for value in measured.noise[key].by_statistic.values()]
    repeats = _("no") if measured.varies(key) else _("yes") if measured.repeats else "?"
    return (key, dtype, repeats, *(f"{100 * bound:.3g}" if bound else "-" for bound in bounds))


def _as_json(golden: Golden, measured: Calibrated | None, *, noise: bool) -> dict[str, Any]:
    repeats = repeats_of(golden.extra, golden.path)
    calibration = calibration_of(golden.extra, golden.path)
    told: dict[str, Any] = {
        "test": golden.test,
        "producer": dict(golden.producer),
        "recorded": golden.extra.get(RECORDED),
        "changed": {key: golden.changed[key] for key in golden.table.keys if key in golden.changed},
        "reason": golden.extra.get(REASON),
        "tensors": len(golden.table),
        "repeats": None if repeats is None else repeats.to_head(),
        "calibration": None if calibration is None else calibration.to_head(),
    }
    if noise:
        blind = frozenset(_blind(golden, measured))
        told["noise"] = [_noise_json(measured, *row, blind) for row in _widest(golden, measured) if measured]
    return told


def _noise_json(measured: Calibrated, key: str, dtype: str, blind: Collection[str]) -> dict[str, Any]:
    found = measured.noise[key]
    return {
        "key": key,
        "dtype": dtype,
        "varies": found.varies,
        "largest": {name: value if isfinite(value) else None for name, value in found.by_statistic.items()},
        "factor": measured.factor,
        "sees_nothing": key in blind,
    }
