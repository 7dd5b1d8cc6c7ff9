"""The budget of lines for a whole run, by pytest's own reports."""

from __future__ import annotations

import json
import re
from textwrap import dedent
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ROW = "Output,0,16,DT_FLOAT,ND,4,{maximum},-1,0.25,4,0,0,0\n"
HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
    "Negative Inf Count,Positive Inf Count\n"
)
PROJECT = f'''
from pathlib import Path
import pytest

HEADER, ROW = {HEADER!r}, {ROW!r}

def write(npu_dump, layers):
    """Leave the statistics CANN would write: one file an operator, below a directory named by the time."""
    folder = Path(npu_dump.config["dump"]["dump_path"]) / "20260101010101" / "0"
    folder.mkdir(parents=True)
    text = HEADER + ROW.format(maximum=Path("maximum").read_text())
    for number in range(layers):
        layer = f"encoder_layer_{{number}}_attention_output_dense"
        (folder / f"MatMul.{{layer}}.{{number}}.2.{{1795228705885133 + number}}.csv").write_text(text)
'''
ONE = """
@pytest.mark.npu_dump
def test_big(npu_dump):
    write(npu_dump, 10_000)
"""
MANY = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(200))
def test_small(npu_dump, number):
    write(npu_dump, 4)
"""


@pytest.fixture
def regressed(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose goldens say 1 where its dumps are going to say 1.5; the test is written by run()."""
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nnpudump_runtime = emulator\n")
    return pytester


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.path.joinpath("test_it.py").write_text(dedent(PROJECT) + dedent(source))
    maximum = pytester.path / "maximum"
    maximum.write_text("1")
    result = pytester.runpytest_inprocess("--npudump-update-golden")
    assert result.ret == 0, result.stdout.str()
    maximum.write_text("1.5")
    return pytester.runpytest_inprocess("--junitxml=out.xml", *options)


def failures(path: Path) -> list[list[str]]:
    """Lines of each failure in JUnit."""
    root = ET.parse(path).getroot()  # noqa: S314 - pytest's own file
    return [(failure.text or "").splitlines() for failure in root.iter("failure")]


def test_ten_thousand_failing_layers_are_a_screenful_and_a_small_junit(regressed: pytest.Pytester) -> None:
    result = run(regressed, ONE)
    result.assert_outcomes(failed=1)
    assert len(result.outlines) <= 60
    (text,) = failures(regressed.path / "out.xml")
    assert len(text) <= 30
    assert regressed.path.joinpath("out.xml").stat().st_size < 32 * 1024
    result.stdout.fnmatch_lines(
        [
            "npudump: encoder_layer_0_attention_output_dense (MatMul output.0) differs: max is 1.5*",
            "golden:     10000 of 10000 tensors fail against *",
            "  ... and 99* more",
            "npudump: 0 of 1 tests good, 10000 of 10000 tensors compared, 1 failed, first divergence *",
        ]
    )
    details = next(line for line in text if line.startswith("details:")).split(None, 1)[1]
    data = json.loads(regressed.path.joinpath(details).with_suffix(".json").read_text())
    assert data["comparison"]["summary"]["failed"] == 10_000


def test_of_two_hundred_failing_tests_the_later_ones_have_two_lines_each(regressed: pytest.Pytester) -> None:
    result = run(regressed, MANY, "--npudump-escalate=off")
    result.assert_outcomes(failed=200)
    texts = failures(regressed.path / "out.xml")
    assert len(texts) == 200
    whole = [text for text in texts if len(text) > 2]
    assert whole
    assert sum(map(len, whole)) <= 40
    assert whole == texts[: len(whole)]
    for text in texts[len(whole) :]:
        assert re.match(r"npudump: encoder_layer_0_\w+ \(MatMul output\.0\) differs: max is 1\.5", text[0])
        assert re.match(r"to approve: pytest --npudump-update-golden '.*\]'$", text[1])


def test_verbose_run_has_no_budget(regressed: pytest.Pytester) -> None:
    run(regressed, MANY.replace("range(200)", "range(6)"), "-v").assert_outcomes(failed=6)
    assert [
        sum("encoder_layer" in line for line in text) >= 4 for text in failures(regressed.path / "out.xml")
    ] == [True] * 6


def test_failures_of_other_tests_are_left_as_they_are(regressed: pytest.Pytester) -> None:
    other = "\ndef test_other():\n    lines = '\\n'.join(map(str, range(100)))\n    assert False, lines\n"
    result = run_with_failing_other(regressed, MANY.replace("range(200)", "range(5)"), other)
    result.assert_outcomes(failed=6)
    last = failures(regressed.path / "out.xml")[-1]
    assert len(last) > 100


def run_with_failing_other(pytester: pytest.Pytester, source: str, other: str) -> pytest.RunResult:
    """Add a test that fails for its own reasons once the goldens are recorded."""
    run(pytester, source)
    with pytester.path.joinpath("test_it.py").open("a") as file:
        file.write(other)
    return pytester.runpytest_inprocess("--junitxml=out.xml")


def test_session_without_marked_tests_has_no_line(regressed: pytest.Pytester) -> None:
    regressed.path.joinpath("test_it.py").write_text("def test_other():\n    pass\n")
    result = regressed.runpytest_inprocess()
    result.stdout.no_fnmatch_line("npudump:*")


def test_long_message_of_the_second_run_s_body_is_one_line(regressed: pytest.Pytester) -> None:
    source = """
    @pytest.mark.npu_dump
    def test_big(npu_dump):
        write(npu_dump, 5)
        again = Path("again")
        if Path("maximum").read_text() != "1":
            assert not again.exists(), "the second run broke\\n" * 500
            again.touch()
    """
    run(regressed, source).assert_outcomes(failed=1)
    (text,) = failures(regressed.path / "out.xml")
    assert "second run: body of the second run: AssertionError: the second run broke" in text
    assert len(text) <= 30
