"""What has changed within tolerance, and what follows from tensors that do not repeat."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_npudump.compare.judge import judge_tables
from pytest_npudump.compare.stats.verdict import explain_first
from pytest_npudump.compare.tolerances.presets import OTHER, SAME, Numerics
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.graph import sources
from pytest_npudump.record.edges import SIGN, edges_of_lines
from pytest_npudump.record.noise import Calibrated
from pytest_npudump.record.record import EDGES, EMPTY, MODELS, Record
from pytest_npudump.regression.dataflow import sources_of
from pytest_npudump.regression.judgement import changes_of
from pytest_npudump.report.origins import feeds_are_seen

LAYERS = ("noisy", "follows", "apart")
EDGE_LINES = f"noisy {SIGN} -\nfollows {SIGN} noisy:output.0\napart {SIGN} -\n"


def table(*averages: float, dtype: str = "float32") -> StatsTable:
    return StatsTable.from_records(
        TensorRecord(
            *(TensorKey(layer, "output", 0), "Add", dtype, (2,), Path("f")),
            stats=Stats(count=2, max=1.0, min=-1.0, avg=avg, l2norm=None, nan=0, neg_inf=0, pos_inf=0),
        )
        for layer, avg in zip(LAYERS, averages, strict=True)
    )


def golden(noise: str = "-", edges: str = EDGE_LINES) -> Record:
    values = replace(table(0.5, 0.5, 0.5), noise=(noise, "-", "-"))
    return Record("t.py::t", {}, values, Path("t.yaml"), blocks={EDGES: edges} if edges else {})


def found(approved: Record, actual: StatsTable) -> tuple[list[str], int]:
    cells = approved.table.noise
    measured = Calibrated.of(approved.table.keys, cells, repeats=True, widens=False)
    comparison = judge_tables(approved.table, actual, Tolerances("same", measured=measured))
    assert comparison.ok
    changes, following = changes_of(comparison, approved)
    return [verdict.key.layer for verdict in changes], following


@pytest.mark.each(
    ("others", "listed", "empty", "at_hand", "fed"),
    [
        ("", None, None, None, True),
        ("between abcd\n", None, None, None, False),
        ("none abcd\n", {"none": ["0x3"]}, {"none": ["0x3"]}, None, True),
        ("none abcd\n", {"none#step=1": ["0x3"]}, {"none#step=1": ["0x3"]}, None, True),
        ("none abcd\n", {"none": ["0x3"]}, {"none": ["3x0"]}, None, False),
        ("none abcd\n", {"none": ["0x3"]}, {}, None, False),
        ("beside abcd\n", None, None, "follows < noisy:output.0\n", True),
        ("between abcd\n", None, None, "follows < between:output.0\nbetween < noisy:output.0\n", False),
        ("beside abcd\n", None, None, "follows < noisy:output.0 -\n", False),
        ("beside abcd\n", None, None, "", False),
        ("", None, None, "follows <\n", None),
        ("between abcd\n", None, None, "follows <\n", None),
    ],
)
def test_inputs_are_known_where_each_that_the_operator_reads_was_dumped(
    *, others: str, listed: Any, empty: Any, at_hand: str | None, fed: bool | None
) -> None:
    blocks = {EDGES: EDGE_LINES, MODELS: f"#m.onnx abcd efgh=\nnoisy abcd\n{others}"}
    if at_hand == "follows <\n":
        blocks[EDGES] = EDGE_LINES.replace("follows < noisy:output.0\n", at_hand)
    approved = replace(golden(), blocks=blocks, extra={} if listed is None else {EMPTY: listed})
    comparison = judge_tables(approved.table, table(0.5, 0.7, 0.5), Tolerances("same"))
    edges = None if at_hand is None else lambda _: (edges_of_lines(at_hand, "small.onnx"), ())
    known, _ = sources_of(approved, comparison, edges, empty=empty)
    assert known is not None
    assert [one.fed for one in known.found] == [fed]
    first = comparison.first
    assert first is not None
    words = explain_first(comparison, feeds_seen=feeds_are_seen(known, first))
    assert ("not all of its inputs are known" in words) == (fed is False)
    assert ("including those of the outputs that feed it" in words) == bool(fed)


def test_each_change_is_told_with_both_numbers() -> None:
    assert found(golden(), table(0.5, 0.5, 0.5)) == ([], 0)
    approved, actual = golden(), table(0.5, 0.5, 0.5000005)
    comparison = judge_tables(approved.table, actual, Tolerances("same"))
    [verdict], _ = changes_of(comparison, approved)
    assert verdict.key == TensorKey("apart", "output", 0)
    [reason] = verdict.reasons
    assert (reason.statistic, reason.golden, reason.actual) == ("avg", 0.5, 0.5000005)


def test_a_digit_of_the_projections_alone_is_a_change() -> None:
    """A golden's digits are those of equal bits: where they are others, rounding has no say in it."""
    sums = np.full((3, 8), 1.0)
    told = partial(replace, projected=np.ones(3, np.bool_), summed=True)
    approved = replace(golden(), table=told(golden().table, projections=sums))
    moved = sums.copy()
    moved[2, 0] += 2e-7
    comparison = judge_tables(
        approved.table, told(table(0.5, 0.5, 0.5), projections=moved), Tolerances("same")
    )
    assert (comparison.ok, comparison.changed) == (True, 1)
    [verdict], _ = changes_of(comparison, approved)
    [reason] = verdict.reasons
    assert (verdict.key.layer, reason.statistic, reason.allowed) == ("apart", "projections", 0)


def test_what_follows_from_a_tensor_that_does_not_repeat_is_no_change_of_its_own() -> None:
    noisy, moved = "~-,-,1e-6,-", 0.5000005
    assert found(golden(noisy), table(moved, moved, 0.5)) == ([], 1)
    assert found(golden(noisy), table(moved, moved, moved)) == (["apart"], 1)
    # Without edges or noise it is a change, and one that did not move explains nothing.
    assert found(golden(noisy, edges=""), table(moved, moved, 0.5)) == (["follows"], 0)
    assert found(golden(), table(moved, moved, 0.5)) == (["noisy", "follows"], 0)
    assert found(golden(noisy), table(0.5, moved, 0.5)) == (["follows"], 0)


@pytest.mark.each(
    ("numerics", "repeats", "walked"),
    [
        (Numerics(SAME), ("x",), True),
        (Numerics(SAME), (), False),
        (Numerics(OTHER), ("x",), False),
        (None, ("x",), False),
    ],
)
def test_any_change_leads_to_a_source_only_where_the_golden_repeats_in_these_numerics(
    numerics: Numerics | None, repeats: tuple[str, ...], *, walked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "find_sources", lambda *_, repeats, **__: repeats)
    given: Any = SimpleNamespace(count=lambda _: 1, numerics=numerics, repeats=repeats, tolerances=None)
    assert sources_of(Record("", {}, table(1, 1, 1), Path()), given) == (walked, ())
