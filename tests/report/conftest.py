"""Failed tests of any size, made from tables of statistics and judged by the real comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.regression import result as status
from pytest_npudump.regression.case import Case, origin_of
from pytest_npudump.regression.result import Result
from pytest_npudump.report.ci import JudgedTest
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.settings import Settings


def stats_table(layers: list[str], maximum: float) -> StatsTable:
    stats = Stats(
        count=4, max=maximum, min=-1.0, avg=0.25, l2norm=None, nan=0, neg_inf=0, pos_inf=0, digits=6
    )
    return StatsTable.from_records(
        TensorRecord(TensorKey(layer, "output", 0), "MatMul", "float32", (4,), Path("f"), stats=stats)
        for layer in layers
    )


@pytest.fixture
def failed(tmp_path: Path, defaults: Settings) -> Callable[..., Result]:
    """Make a test of ``layers`` (or so many) whose maxima are 1.5 instead of 1; keywords go to Result."""

    def make(layers: int | list[str] = 3, *, escalation: Any = None, **outcome: Any) -> Result:
        names = [f"net/layer_{number}" for number in range(layers)] if isinstance(layers, int) else layers
        comparison = compare_tables(stats_table(names, 1.0), stats_table(names, 1.5), Tolerances())
        told = Result(
            status.FAILED,
            Path("golden/test_a/test_b.yaml"),
            comparison=comparison if names else None,
            tensors=len(names),
        )
        directory = tmp_path / "dumps"
        directory.mkdir(exist_ok=True)
        case = Case(
            nodeid="test_a.py::test_b",
            request=DumpRequest(),
            settings=defaults._replace(runtime="emulator", preset="default"),
            runtime=SimpleNamespace(  # type: ignore[arg-type]
                name="emulator", producer=dict, activity=SimpleNamespace(models=(Path("net.onnx"),))
            ),
            goldens=Goldens("test_a.py::test_b", DumpRequest(), Path("golden/test_a/test_b.yaml")),
            tolerances=Tolerances(),
            directory=directory,
            arguments=("test_a.py::test_b",),
            here=tmp_path,
        )
        explained = escalation is not None and escalation.directory is not None
        return replace(
            told,
            **{"escalation": escalation, "runs": (directory / "run1",)} | outcome,
            origin=origin_of(case, with_digests=explained),
        )

    return make


HOSTILE = (
    "a|b",
    "`x` **bold** `",
    "\\|cell|",
    "</code></summary><script>alert(1)</script>",
    "[link](http://example.com) ![i](http://example.com/a.png)",
    "www.example.com https://example.com @someone #12",
    "a\n::error file=other.py,line=1::forged\n| new | row |",
    "%0A::set-output name=x::y",
    "##[error]forged",
    "<!-- comment -->",
    "\u202egnp.exe\x1b[31m",
    "]]>&amp;<b>",
    "$(reboot)",
    "\ud800 lone",
)


def judged(name: str, **more: Any) -> JudgedTest:
    result = {
        "test": f"test_it.py::test_it[{name}]",
        "status": "failed",
        "runtime": "emulator",
        "expected": 3,
        "compared": 3,
        "fail": 1,
        "first": f"{name}:output.0",
        "first_change": f"{name}:output.0",
        "sources": {"in_all": 1, "first": [{"key": f"{name}:output.0", "explains": 1}]},
        "headline": f"npudump: {name}:output.0 max 2, expected 1",
        "details": f"dumps/{name}/report.txt",
        "way_out": f"to accept:  pytest {name}",
        "notes": [f"a note on {name}"],
    }
    return JudgedTest(result | more, failed=True, file="test_it.py", line=7)


each_hostile = pytest.mark.each(
    "hostile", [pytest.param(judged(name), id=str(number)) for number, name in enumerate(HOSTILE)]
)


@pytest.fixture
def good() -> JudgedTest:
    result = {"test": "test_it.py::good", "status": "passed", "expected": 3, "compared": 3, "runtime": "acl"}
    return JudgedTest(result, failed=False, file="test_it.py", line=3)
