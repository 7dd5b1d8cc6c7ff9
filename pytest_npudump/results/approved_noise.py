"""What a golden knows of its noise once a run has been approved, which tells nothing of noise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.table import layer_of
from pytest_npudump.golden.content.noise import CALIBRATION, REPEATS, Repeats, repeats_of
from pytest_npudump.regression.measured_noise import same_values

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_npudump.golden.content.text import Golden

_NOTHING = "-"
_ANEW = "record it with --npudump-update-golden, or measure with --npudump-calibrate, to know it"


def after_all_rows(golden: Golden, before: Golden | None) -> tuple[Golden, tuple[str, ...]]:
    """Return what is written in place of a golden, and a note on what it does not know any more.

    Args:
        golden: the run, as the golden that it would be.
        before: the golden that it replaces; None without one.
    """
    if before is None:
        return _of_one_run(golden), ()
    if not _tells(before):
        return _without(golden), ()
    if same_values(before.table, golden.table):
        table = replace(golden.table, noise=before.table.noise)
        told = {name: before.extra[name] for name in (REPEATS, CALIBRATION) if name in before.extra}
        return replace(golden, table=table, extra={**golden.extra, **told}), ()
    lost = "calibration" if CALIBRATION in before.extra else "noise, and whether the test repeats,"
    note = f"the run that was approved was not repeated: the golden's {lost} is dropped: {_ANEW}"
    return _of_one_run(golden), (note,)


def after_some_rows(golden: Golden, before: Golden, taken: Collection[int]) -> tuple[Golden, tuple[str, ...]]:
    """Return a golden some of whose rows are a run's, without noise for these, and a note that says so.

    Args:
        golden: as it is with these rows.
        before: as it was.
        taken: the rows that are the run's.

    Raises:
        GoldenError: what the golden says of repetition is not as it is written.
    """
    if not _tells(before) or len(taken) == len(golden.table):
        return after_all_rows(golden, before)
    own = before.table.noise
    noise = tuple([_NOTHING if at in taken else cell for at, cell in enumerate(golden.table.noise)])
    table = replace(golden.table, noise=noise if own and set(noise) != {_NOTHING} else ())
    repeats = repeats_of(before.extra, before.path)
    head: dict[str, Any] = {}
    if repeats is not None and repeats.runs > 1:
        kept = [key for at, key in enumerate(golden.table.keys) if at not in taken]
        head = {REPEATS: _of_the_rest(repeats, kept, len(before.table), len(golden.table)).to_head()}
    count = f"{len(taken)} of {len(golden.table)} tensors"
    note = f"nothing is known of the noise of what was approved ({count}): {_ANEW}"
    return replace(golden, table=table, extra={**golden.extra, **head}), (note,) if taken else ()


def _of_the_rest(repeats: Repeats, kept: Collection[str], before: int, after: int) -> Repeats:
    """Return what is known of runs alike by the rows that are still theirs."""
    unknown = 0 if repeats.compared is None else before - repeats.compared
    compared = len(kept) - unknown
    if compared <= 0:
        return Repeats(1)
    layers = {layer_of(key) for key in kept}
    named = tuple(layer for layer in repeats.not_deterministic if layer in layers)
    return Repeats(repeats.runs, named, None if compared == after else compared)


def _tells(golden: Golden) -> bool:
    return bool(golden.table.noise) or bool({REPEATS, CALIBRATION} & golden.extra.keys())


def _of_one_run(golden: Golden) -> Golden:
    bare = _without(golden)
    return replace(bare, extra={REPEATS: Repeats(1).to_head(), **bare.extra})


def _without(golden: Golden) -> Golden:
    extra = {name: value for name, value in golden.extra.items() if name not in {REPEATS, CALIBRATION}}
    return replace(golden, table=replace(golden.table, noise=()), extra=extra)
