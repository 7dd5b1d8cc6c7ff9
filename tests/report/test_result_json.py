"""A result as data: small where it travels, complete and strict in its file."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.compare.tensors.difference import TensorDifference, compare_tensors
from pytest_npudump.compare.tensors.picture import describe_tensor
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import Escalation, Finding
from pytest_npudump.report.files import ReportFiles, json_text
from pytest_npudump.report.result_json import full_json, result_json, write_details

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.regression.result import Result


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_what_is_written_is_read_again(data: Any) -> None:
    assert json.loads(json_text(data)) == data


def test_an_object_is_in_lines_and_an_item_of_a_list_in_one() -> None:
    data = {"summary": {"failed": 2, "notes": []}, "verdicts": [{"layer": "a", "reasons": ["x"]}, {}]}
    assert json_text(data).splitlines() == [
        "{",
        ' "summary": {',
        '  "failed": 2,',
        '  "notes": []',
        " },",
        ' "verdicts": [',
        '  {"layer": "a", "reasons": ["x"]},',
        "  {}",
        " ]",
        "}",
    ]
    # Numbers that JSON does not know are Python's; what is no plain data is an error, or made plain.
    assert json_text([math.nan, math.inf, -math.inf]).split() == ["[", "NaN,", "Infinity,", "-Infinity", "]"]
    with pytest.raises(TypeError, match="PosixPath"):
        json_text({"path": Path("a")})
    assert json_text({"path": Path("a")}, default=str) == '{\n "path": "a"\n}\n'


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def far(golden: np.ndarray, actual: np.ndarray) -> TensorDifference:
    return compare_tensors(golden, actual, rtol=0.0, atol=0.0)


def odd_escalation() -> Escalation:
    golden = np.array([1.0, np.inf, 3.0])
    actual = np.array([np.nan, np.inf, 0.0])
    key = TensorKey("net/layer_0", "output", 0)
    return Escalation(
        (
            Finding(
                key, reproduced=False, differences={"max": (1.0, math.nan)}, difference=far(golden, actual)
            ),
            Finding(key, None, {"min": (-math.inf, None)}, description=describe_tensor(actual)),
            Finding(key, reproduced=True, difference=far(golden + 1j, actual + 1j)),
        ),
        ("net/layer_0",),
    )


def test_what_travels_is_small_whatever_the_number_of_layers(failed: Callable[..., Result]) -> None:
    test = failed(10_000)
    folder = test.origin.directory
    result = result_json(test, ReportFiles(folder / "report.txt", folder / "report.json"))
    assert len(json.dumps(result)) < 1000
    counts = {"expected": 10_000, "compared": 10_000, "passed": 0, "fail": 10_000, "missing": 0, "extra": 0}
    assert {name: result[name] for name in counts} == counts
    assert (result["status"], result["first"]) == ("failed", "net/layer_0:output.0")
    assert result["details"] == str(folder / "report.txt")


def test_reproduced_is_unknown_where_the_second_run_says_nothing(failed: Callable[..., Result]) -> None:
    key = TensorKey("a", "output", 0)
    for escalation, reproduced in (
        (Escalation(problem="not run"), None),
        (Escalation((Finding(key, reproduced=True),)), True),
        (Escalation((Finding(key, None),)), None),
        (Escalation(), None),
    ):
        assert result_json(failed(1, escalation=escalation), None)["reproduced"] is reproduced
    test = failed([], status=status.RECORDED, escalation=Escalation(problem="not written"))
    assert result_json(test, None)["status"] == "error"  # good statistics, and tensors that are lost


def test_file_is_strict_json_with_every_verdict_and_finding(failed: Callable[..., Result]) -> None:
    test = failed(300, escalation=odd_escalation(), environment={"soc": ("a", "b")}, notes=("n",))
    details = write_details(test)
    assert details.problem == ""
    data = strict(details.data.read_text(encoding="utf-8"))
    assert len(data["comparison"]["verdicts"]) == 300
    assert data["environment"] == {"soc": ["a", "b"]}
    assert data["notes"] == ["n"]
    found = data["escalation"]["findings"]
    assert [finding["reproduced"] for finding in found] == [False, None, True]
    assert found[0]["differences"] == {"max": [1.0, "nan"]}
    assert found[1]["differences"] == {"min": ["-inf", None]}
    assert found[1]["tensor"]["nan"] == 1
    assert data["runs"] == [str(test.origin.directory / "run1")]


def test_both_files_say_the_same_layers(failed: Callable[..., Result]) -> None:
    test = failed(50)
    details = write_details(test)
    text = details.text.read_text(encoding="utf-8").splitlines()
    layers = [line.split()[0] for line in text if line.startswith("  net/layer_")]
    assert layers == [v["layer"] for v in full_json(test)["comparison"]["verdicts"] if v["status"] != "pass"]


def test_names_that_are_no_text_do_not_stop_the_report_nor_files_that_cannot_be_written(
    failed: Callable[..., Result],
) -> None:
    test = failed(["broken\udcff", "名"])
    details = write_details(test)
    assert details.problem == ""
    assert strict(details.data.read_text())["comparison"]["summary"]["failed"] == 2
    assert r"broken\udcff" in details.text.read_text(encoding="utf-8")
    shutil.rmtree(test.origin.directory)
    test.origin.directory.touch()
    assert write_details(test).problem.startswith("the report files could not be written: ")
