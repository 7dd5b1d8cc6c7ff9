"""The budget of lines for a whole run, by pytest's own reports, in English and in Chinese."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from execnet.gateway_base import dumps, loads

from pytest_npudump.plugin.terminal import cause_in_summary

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
    write(npu_dump, 1_000)
"""
MANY = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(24))
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


def test_a_thousand_failing_layers_are_a_screenful_and_a_small_junit(regressed: pytest.Pytester) -> None:
    result = run(regressed, ONE)
    result.assert_outcomes(failed=1)
    assert len(result.outlines) <= 60
    (text,) = failures(regressed.path / "out.xml")
    assert len(text) <= 30
    assert regressed.path.joinpath("out.xml").stat().st_size < 32 * 1024
    result.stdout.fnmatch_lines(
        [
            "npudump: encoder_layer_0_attention_output_dense:output.0 max 1.5*",
            "golden:     *; mismatches: 1000 of 1000 tensors",
            "  ... 997 more in report.txt",
            "npudump: 0 of 1 tests passed, 1 failed; 1000 of 1000 tensors compared; first mismatch *",
        ]
    )
    details = next(line for line in text if line.startswith("report:")).split(None, 1)[1]
    data = json.loads(regressed.path.joinpath(details).with_suffix(".json").read_text())
    assert data["comparison"]["summary"]["failed"] == 1_000


def test_of_many_failing_tests_the_later_ones_lose_their_rows_and_no_way_out(
    regressed: pytest.Pytester,
) -> None:
    result = run(regressed, MANY, "-onpudump_escalate=off")
    result.assert_outcomes(failed=24)
    texts = failures(regressed.path / "out.xml")
    assert len(texts) == 24
    whole = [text for text in texts if any(line.endswith("x tol") for line in text)]
    assert whole
    assert sum(map(len, whole)) <= 80
    assert whole == texts[: len(whole)]
    for text in texts:
        assert re.match(r"npudump: encoder_layer_0_\w+:output\.0 max 1\.5, expected 1 \(", text[0])
        assert re.match(r"first:      encoder_layer_0_\w+:output\.0; ", text[1])
        assert re.match(r"report:     .*report\.txt$", text[-2])
        assert re.match(r"to accept:  pytest --npudump-update-golden '.*\]'$", text[-1])
        assert any(line.startswith("golden:     ") for line in text)
        assert any(line.startswith("tolerance:  ") for line in text)
        assert text in whole or text[3:-3] == ["  ... 4 rows in report.txt"]


def test_failures_of_other_tests_are_left_as_they_are(regressed: pytest.Pytester) -> None:
    other = "\ndef test_other():\n    lines = '\\n'.join(map(str, range(100)))\n    assert False, lines\n"
    result = run_with_failing_other(regressed, MANY.replace("range(24)", "range(5)"), other)
    result.assert_outcomes(failed=6)
    last = failures(regressed.path / "out.xml")[-1]
    assert len(last) > 100


def run_with_failing_other(pytester: pytest.Pytester, source: str, other: str) -> pytest.RunResult:
    """Add a test that fails for its own reasons once the goldens are recorded."""
    run(pytester, source)
    with pytester.path.joinpath("test_it.py").open("a") as file:
        file.write(other)
    return pytester.runpytest_inprocess("--junitxml=out.xml")


SPOKEN = """
from pathlib import Path
import pytest

HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
    "Negative Inf Count,Positive Inf Count\\n"
)

@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(3))
def test_model(npu_dump, number):
    folder = Path(npu_dump.config["dump"]["dump_path"]) / "20260101010101" / "0"
    folder.mkdir(parents=True)
    text = HEADER + f"Output,0,16,DT_FLOAT,ND,4,{Path('maximum').read_text()},-1,0.25,4,0,0,0\\n"
    for layer in ("conv", "层/卷积", "softmax"):
        (folder / f"MatMul.{layer.replace('/', '_')}.1.2.1795228705885133.csv").write_text(text)
"""


@pytest.fixture
def chinese(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose goldens say 1 where its dumps say 1.5."""
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nnpudump_runtime = emulator\n")
    pytester.makepyfile(test_it=dedent(SPOKEN))
    maximum = pytester.path / "maximum"
    maximum.write_text("1")
    recorded = pytester.runpytest_inprocess("--npudump-update-golden", "-onpudump_lang=zh")
    assert recorded.ret == 0, recorded.stdout.str()
    maximum.write_text("1.5")
    return pytester


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_durations(path: Path) -> str:
    text = re.sub(r' (time|timestamp|hostname)="[^"]*"', "", path.read_text("utf-8"))
    ET.fromstring(text)  # noqa: S314 - pytest's own file
    return text


def test_the_locale_decides_where_no_option_does(
    chinese: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    chinese.runpytest_inprocess("-k", "0").stdout.fnmatch_lines(["首个不匹配：*"])
    chinese.runpytest_inprocess("-k", "0", "-onpudump_lang=en").stdout.fnmatch_lines(["first: *"])


def test_a_report_for_another_process_is_utf_8(request: pytest.FixtureRequest) -> None:
    report: Any = pytest.TestReport("t.py::t", ("t.py", 0, "t"), {"npu_dump": 1}, "failed", "\udcff", "call")
    report.npudump = {"subject": ("a/\udcff\u5c42", "\udcff"), "notes": ["\udcff"]}
    told = {"config": request.config, "report": report}
    data = loads(dumps(request.config.hook.pytest_report_to_serializable(**told)))
    assert data["npudump"] == {"subject": ("a/\\udcff\u5c42", "\\udcff"), "notes": ["\\udcff"]}


@pytest.mark.e2e
def test_workers_of_xdist_tell_the_controller(chinese: pytest.Pytester) -> None:
    result = chinese.runpytest_inprocess("-onpudump_lang=zh", "-n1", "-k", "0")
    result.stdout.fnmatch_lines(["首个不匹配：*", "npudump: *"])


def test_what_programs_read_is_the_same_in_every_language(chinese: pytest.Pytester) -> None:
    written = {}
    for language in ("en", "zh"):
        shutil.rmtree("dumps", ignore_errors=True)
        result = chinese.runpytest_inprocess(
            f"-onpudump_lang={language}", f"--junitxml={language}.xml", "--npudump-output=."
        )
        data = [path.read_bytes() for path in sorted((chinese.path / "dumps").rglob("report.json"))]
        assert len(data) == 3
        junit = without_durations(chinese.path / f"{language}.xml")
        summary = (chinese.path / "summary.md").read_text("utf-8")
        golden = files(chinese.path / "golden")
        written[language] = (result.ret, junit, summary, golden, data)
    english, chinese = written["en"], written["zh"]
    assert chinese[0] == english[0] == 1
    for there, here in zip(chinese[1:4], english[1:4], strict=True):
        assert there == here


def test_what_refuses_a_run_or_a_test_is_chinese_and_english_in_junit(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nnpudump_runtime = emulator\n")
    pytester.makepyfile(
        test_fixture="def test_it(npu_dump): pass",
        test_marker="import pytest\n@pytest.mark.npu_dump(rtol='a')\ndef test_it(): pass",
    )
    refused = pytester.runpytest_inprocess("--npudump-reason=why", "-onpudump_lang=zh")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "而本次运行不更新：请给出 --npudump-update-golden" in refused.stderr.str()
    failed = pytester.runpytest_inprocess("-onpudump_lang=zh", "--junit-xml=it.xml", "test_fixture.py")
    assert "npudump: test_fixture.py::test_it 使用了 fixture npu_dump 却没有标记" in failed.stdout.str()
    assert "uses the fixture npu_dump without the marker" in (pytester.path / "it.xml").read_text("utf-8")
    marked = pytester.runpytest_inprocess("-onpudump_lang=zh", "test_marker.py")
    assert "rtol：不允许 'a'，应为 a finite number, 0 or greater" in marked.stdout.str()
    english = pytester.runpytest_inprocess("test_marker.py")
    assert "rtol: 'a' is not allowed, expected a finite number, 0 or greater" in english.stdout.str()


def terminal(columns: int | None, verbosity: int = 0) -> Any:
    """pytest's reporter in colours, or without where there are no ``columns``."""
    writer = SimpleNamespace(hasmarkup=columns is not None, fullwidth=columns)
    config = SimpleNamespace(cwd_relative_nodeid=str)
    return SimpleNamespace(_tw=writer, config=config, verbosity=verbosity)


@pytest.mark.parametrize(
    ("columns", "verbosity", "ci", "line"),
    [
        (40, 0, "", "权重已改变..."),  # 13 columns behind "FAILED test_k.py::test_k - "
        (47, 0, "", "权重已改变，首个..."),
        (80, 0, "", "权重已改变，首个不匹配 conv"),
        (20, 0, "", "权..."),
        (40, 2, "", "权重已改变，首个不匹配 conv"),
        (40, 0, "CI", "权重已改变，首个不匹配 conv"),
        (None, 0, "", "权重已改变，首个不匹配 conv"),
    ],
)
def test_the_line_of_the_summary_fits_a_terminal_with_colours(
    monkeypatch: pytest.MonkeyPatch, columns: int | None, verbosity: int, ci: str, line: str
) -> None:
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    if ci:
        monkeypatch.setenv(ci, "1")
    report: Any = SimpleNamespace(nodeid="test_k.py::test_k", longrepr="npudump: 权重已改变，首个不匹配 conv")
    cause_in_summary(report, terminal(columns, verbosity))
    assert report.longrepr.reprcrash.message == line


@pytest.mark.each(
    ("message", "line"),
    [
        ("Failed: npudump: .../dense/Tanh: weights changed", ".../dense/Tanh: weights changed"),
        ("Failed: npudump: the golden is missing\nto create:  pytest", "the golden is missing"),
        (
            "Failed: npudump: /bert/.../Tanh:output.0: kernel error, relative L2\n" + " " * 12 + "error 1",
            "/bert/.../Tanh:output.0: kernel error, relative L2 error 1",
        ),
        (
            "npudump: test_k.py::test_k: tolerance: unknown argument;\n" + " " * 9 + "did you mean x?",
            "test_k.py::test_k: tolerance: unknown argument; did you mean x?",
        ),
        ("npudump: conv:output.0 max 1.5\nsource:     conv", "conv:output.0 max 1.5"),
        ("Failed: npudump: 权重已改变，首个\n            不匹配", "权重已改变，首个不匹配"),
        ("npudump: 相对 L2 误差\n            0.01，上限", "相对 L2 误差 0.01，上限"),
        ("npudump: 相对 L2\n            误差 0.01，\n            output.0", "相对 L2 误差 0.01，output.0"),
    ],
)
def test_the_line_of_the_summary_begins_with_the_cause_and_has_all_of_it(message: str, line: str) -> None:
    crash = SimpleNamespace(message=message)
    for failure in (SimpleNamespace(reprcrash=crash), message.removeprefix("Failed: ")):
        report: Any = SimpleNamespace(nodeid="test_k.py::test_k", longrepr=failure)
        cause_in_summary(report, terminal(columns=None))
        told = report.longrepr.reprcrash
        assert told.message == line
        if told is not crash:  # as --tb=line prints it
            assert str(told) == line
