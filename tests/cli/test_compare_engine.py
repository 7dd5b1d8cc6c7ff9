"""Projections of a golden file against a dump of tensors, which has nothing else to be compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.golden.store import write_golden
from pytest_npudump.record.record import Record
from tests.cli.conftest import dump_file

Run = Callable[..., Any]
VALUES = np.random.default_rng(0).standard_normal((50, 60), np.float32)
PERMUTED = VALUES[[1, 0, *range(2, 50)]]
CSV_HEAD = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count"


def golden_of(tmp_path: Path, *, projections: bool = True) -> Path:
    dump_file(tmp_path / "before", "net/relu", VALUES)
    table = StatsTable.from_records(read_dump(tmp_path / "before", projections=projections).records)
    path = tmp_path / "golden.yaml"
    write_golden(Record("t", {"runtime": "acl"}, table, path))
    return path


def test_projections_of_a_golden_are_compared_with_those_of_tensors(run: Run, tmp_path: Path) -> None:
    golden = golden_of(tmp_path)
    assert run("compare", golden, tmp_path / "before").code == 0
    dump_file(tmp_path / "after", "net/relu", PERMUTED)
    done = run("compare", golden, tmp_path / "after", "--json", "-")
    assert done.code == 1
    [verdict] = done.json["verdicts"]
    [reason] = verdict["reasons"]
    assert reason.startswith("projections: the elements differ by an l2norm of about ")
    assert done.json["first_change"] == {"layer": "net/relu", "io": "output", "slot": 0}
    assert "l2norm of the difference about" in run("compare", golden, tmp_path / "after").out
    rows = run("golden", "show", "--tolerances=", golden, "--json", "-").json["tolerances"]
    assert [row["statistic"] for row in rows] == ["max", "min", "avg", "l2norm", "projections"]
    assert rows[-1]["rule"].startswith("rtol=1.5e-05")
    assert rows[-1]["golden"] == pytest.approx(float(np.linalg.norm(VALUES)), rel=1e-6)
    assert " difference " in run("golden", "show", "--tolerances=", golden, "net/relu").out
    golden = golden_of(tmp_path, projections=False)  # which is compared without
    assert "projections" not in run("compare", golden, tmp_path / "after", "--json", "-").out


@pytest.mark.parametrize("values", [VALUES, PERMUTED], ids=["as it was", "permuted"])
def test_a_table_beside_the_tensors_does_not_hide_their_projections(
    run: Run, tmp_path: Path, values: np.ndarray
) -> None:
    golden = golden_of(tmp_path)
    path = dump_file(tmp_path / "after", "net/relu", values)
    told = f"{VALUES.max():.6g},{VALUES.min():.6g},{VALUES.mean():.6g},3000,0,0,0"
    rows = [f"{CSV_HEAD},Negative Inf Count,Positive Inf Count", f"Output,0,12000,DT_FLOAT,ND,50x60,{told}"]
    path.with_name(f"{path.name}.csv").write_text("\n".join(rows) + "\n")
    done = run("compare", golden, tmp_path / "after", "--json", "-")
    found = {reason.partition(":")[0] for v in done.json["verdicts"] for reason in v["reasons"]}
    assert found == (set() if values is VALUES else {"projections"})
    [record] = read_dump(tmp_path / "after", projections=True).records
    assert record.stats is not None
    assert (record.stats.digits, record.stats.projections is not None) == (6, True)
