"""What pytest's own reports have of a whole run, in how many lines, in English and in Chinese."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from execnet.gateway_base import dumps, loads

from pytest_npudump.plugin.terminal import cause_in_summary, fitted, note_lines
from tests.plugin.conftest import held

ROW = "Output,0,16,DT_FLOAT,ND,4,{largest},-1,0.25,4,0,0,{infinite}\n"
HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
    "Negative Inf Count,Positive Inf Count\n"
)
PROJECT = f'''
from pathlib import Path
import pytest

HEADER, ROW = {HEADER!r}, {ROW!r}

def write(npu_dump, layers):
    """Leave the statistics CANN would write of layers, by their largest elements."""
    folder = Path(npu_dump.config["dump"]["dump_path"]) / "20260101010101" / "0"
    folder.mkdir(parents=True)
    for number, (name, largest) in enumerate(layers):
        text = HEADER + ROW.format(largest=largest, infinite=int(largest == "inf"))
        (folder / f"MatMul.{{name}}.{{number}}.2.{{1795228705885133 + number}}.csv").write_text(text)

def encoder(npu_dump, layers):
    names = (f"encoder_layer_{{number}}_attention_output_dense" for number in range(layers))
    write(npu_dump, [(name, Path("maximum").read_text()) for name in names])
'''
ONE = """
@pytest.mark.npu_dump
def test_big(npu_dump):
    encoder(npu_dump, 1_000)
"""
MANY = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(40))
def test_small(npu_dump, number):
    encoder(npu_dump, 4)
"""
SPOKEN = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(3))
def test_model(npu_dump, number):
    write(npu_dump, [(name, Path("maximum").read_text()) for name in ("conv", "层_卷积", "softmax")])
"""
NOTED = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(9))
def test_tiny(npu_dump, number):
    write(npu_dump, [(f"layer{number}", "inf" if number < 7 else 0.5), ("healthy", 1)])

@pytest.mark.npu_dump
@pytest.mark.parametrize("case", range(4))
def test_same(npu_dump, case):
    write(npu_dump, [("shared", "inf"), ("healthy", 1)])
"""


@pytest.fixture
def regressed(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose test, and goldens that say 1 where its dumps say 1.5, recorded() writes."""
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nnpudump_runtime = emulator\n")
    return pytester


def recorded(pytester: pytest.Pytester, source: str, *options: str) -> None:
    pytester.path.joinpath("test_it.py").write_text(PROJECT + source, "utf-8")
    maximum = pytester.path / "maximum"
    maximum.write_text("1")
    result = pytester.runpytest_inprocess("--npudump-update-golden", *options)
    assert result.ret == 0, result.stdout.str()
    maximum.write_text("1.5")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("--junitxml=out.xml", *options)


def failures(path: Path) -> list[list[str]]:
    """Lines of each failure in JUnit."""
    root = ET.parse(path).getroot()  # noqa: S314 - pytest's own file
    return [(failure.text or "").splitlines() for failure in root.iter("failure")]


def test_a_thousand_failing_layers_are_a_screenful_and_a_small_junit(regressed: pytest.Pytester) -> None:
    recorded(regressed, ONE)
    shows = [
        "npudump: encoder_layer_0_attention_output_dense:output.0 max 1.5*",
        "golden:     *; mismatches: 1000 of 1000 tensors",
        "  ... 997 more in report.txt",
        "npudump: 0 of 1 tests passed, 1 failed; 1000 of 1000 tensors compared; first mismatch *",
    ]
    assert len(held(run(regressed), shows, failed=1).outlines) <= 60
    (text,) = failures(regressed.path / "out.xml")
    assert len(text) <= 30
    assert regressed.path.joinpath("out.xml").stat().st_size < 32 * 1024
    details = next(line for line in text if line.startswith("report:")).split(None, 1)[1]
    data = json.loads(regressed.path.joinpath(details).with_suffix(".json").read_text())
    assert data["comparison"]["summary"]["failed"] == 1_000


def test_of_many_failing_tests_the_later_ones_lose_their_rows_and_no_way_out(
    regressed: pytest.Pytester,
) -> None:
    """Failures of other tests are left as they are."""
    recorded(regressed, MANY)
    with regressed.path.joinpath("test_it.py").open("a") as file:
        file.write("\ndef test_z():\n    lines = '\\n'.join(map(str, range(100)))\n    assert False, lines\n")
    run(regressed, "-onpudump_escalate=off").assert_outcomes(failed=41)
    *texts, last = failures(regressed.path / "out.xml")
    assert len(last) > 100
    assert len(texts) == 40
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


@pytest.fixture
def chinese(regressed: pytest.Pytester) -> pytest.Pytester:
    """A project whose goldens say 1 where its dumps say 1.5."""
    recorded(regressed, SPOKEN, "-onpudump_lang=zh")
    return regressed


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
    written = []
    for language in ("en", "zh"):
        shutil.rmtree("dumps", ignore_errors=True)
        options = (f"-onpudump_lang={language}", f"--junitxml={language}.xml", "--npudump-output=.")
        assert chinese.runpytest_inprocess(*options).ret == 1
        assert len([*(chinese.path / "dumps").rglob("report.json")]) == 3
        files = [path for path in sorted((chinese.path / "golden").rglob("*")) if path.is_file()]
        golden = {path: path.read_bytes() for path in files}
        junit = without_durations(chinese.path / f"{language}.xml")
        written.append((junit, (chinese.path / "summary.md").read_text("utf-8"), golden))
    assert written[0] == written[1]


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


def terminal(columns: int = 500, verbosity: int = 0, *, coloured: bool = True) -> Any:
    """pytest's reporter."""
    writer = SimpleNamespace(hasmarkup=coloured, fullwidth=columns)
    config = SimpleNamespace(cwd_relative_nodeid=str, option=SimpleNamespace(tbstyle="auto"))
    return SimpleNamespace(_tw=writer, config=config, verbosity=verbosity)


@pytest.mark.each(
    ("columns", "verbosity", "ci", "line"),
    [
        (40, 0, "", "权重已改变..."),  # 13 columns behind "FAILED test_k.py::test_k - "
        (47, 0, "", "权重已改变，首个..."),
        (80, 0, "", "权重已改变，首个不匹配 conv"),
        (20, 0, "", "权重已改变..."),  # 13 of the next line
        (40, 2, "", "权重已改变，首个不匹配 conv"),
        (40, 0, "CI", "权重已改变，首个不匹配 conv"),
    ],
)
def test_the_line_of_the_summary_fits_a_terminal_with_colours(
    monkeypatch: pytest.MonkeyPatch, columns: int, verbosity: int, ci: str, line: str
) -> None:
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    if ci:
        monkeypatch.setenv(ci, "1")
    report: Any = SimpleNamespace(nodeid="test_k.py::test_k", longrepr="npudump: 权重已改变，首个不匹配 conv")
    cause_in_summary(report, terminal(columns, verbosity))
    assert report.longrepr.reprcrash.message == line


@pytest.mark.each(
    ("name", "lines"), [("/decoder/If/output.0", 2), (f"{Path(__file__).parent}/dumps/report.txt", 1)]
)
def test_a_line_is_as_wide_as_columns_say_but_for_one_with_a_path(
    monkeypatch: pytest.MonkeyPatch, name: str, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = f"npudump: 1 of 4 tests passed, 3 failed; 234 of 234 tensors compared; first mismatch {name}"
    assert len(fitted(None, line)) == lines


WEIGHTS = ".../encoder/1/conv/Conv: weights changed; first mismatch: .../1/conv/Conv:output.0 max 1"
KERNEL = "block/conv.2:output.0: kernel error, relative L2 error 0.001, limit 4.8e-06"


@pytest.mark.parametrize("lines", [0, 1, 2])  # of a terminal that the test takes; 0: without colours
@pytest.mark.each(
    ("cause", "room", "line"),
    [
        (WEIGHTS, 90, WEIGHTS),
        (WEIGHTS, 60, ".../encoder/1/conv/Conv: weights changed"),
        (WEIGHTS, 35, "1/conv/Conv: weights changed"),
        (WEIGHTS, 22, "Conv: weights changed"),
        (WEIGHTS, 15, "Conv: weight..."),
        (KERNEL, 40, "block/conv.2:output.0: kernel error"),
        (KERNEL, 30, "conv.2:output.0: kernel error"),
        (KERNEL, 28, "conv.2:output.0: kernel e..."),
        ("a/b, a/c: weights changed (2 of 3 operators)", 24, "b, c: weights changed"),
        ("a/Relu (Relu, now LeakyRelu): type changed", 41, "Relu (Relu, now LeakyRelu): type changed"),
        ("a/b and 2 more: removed; first", 22, "b and 2 more: removed"),
        ("a/b，a/c：权重已改变（3 个中的 2 个）", 18, "b，c：权重已改变"),
        ("the model's graph changed: connections, types", 36, "the model's graph changed: connec..."),
        ("模型的图已改变：算子的连接、类型或版本", 26, "模型的图已改变：算子的..."),
        ("b：权重已改变（2 个算子）；首个", 25, "b：权重已改变（2 个算子）"),
        ("b：权重已改变（2 个算子）；首个", 15, "b：权重已改变"),
        ("the golden is missing", 21, "the golden is missing"),
        ("the golden is missing", 12, "the golde..."),
    ],
)
def test_the_line_of_the_summary_has_the_form_of_the_cause_that_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, lines: int, cause: str, room: int, line: str
) -> None:
    """Behind a test that takes more than a line, too, where colours let us."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)
    begun = "FAILED test_k.py::test_k[{}] - "
    columns = 200 if lines > 1 else len(begun) + room
    nodeid = f"test_k.py::test_k[{'x' * ((lines or 1) * columns - room - len(begun.format('')))}]"
    told = {"npudump": {"first": "a mismatch"}} if any(sign in cause for sign in ":：") else {}
    report: Any = SimpleNamespace(nodeid=nodeid, longrepr=f"npudump: {cause}", **told)
    cause_in_summary(report, terminal(columns, coloured=lines > 0))
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
        cause_in_summary(report, terminal(coloured=False))
        told = report.longrepr.reprcrash
        assert told.message == line
        if told is not crash:  # as --tb=line prints it
            assert str(told) == line


@pytest.fixture
def noted(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of which 11 tests pass with a note, 8 different ones, and whose goldens are recorded."""
    pytester.makeini("[pytest]\nnpudump_runtime = emulator\nnpudump_output = .\n")
    recorded(pytester, NOTED, "-p", "no:cacheprovider")
    return pytester


def lines(result: pytest.RunResult) -> list[str]:
    """What a session of tests that pass says behind them, but for the line at its end."""
    assert result.ret == 0
    told = [line.removeprefix("npudump: ") for line in result.outlines if line.startswith("npudump: ")]
    return [line for line in told if not line.startswith("runtime ")][:-1]


def test_terminal_shows_some_notes_and_how_many_more_there_are(noted: pytest.Pytester) -> None:
    """One of many tests once, with their number."""
    found = lines(run(noted))
    assert len(found) == 6
    assert all(line.startswith("note: test_it.py::test_tiny[") for line in found[:5])
    assert found[5] == "3 more notes (-v lists all)"
    whole = "\n".join(line for line in lines(run(noted, "-v")) if "note: " in line)
    assert all(f"test_it.py::test_tiny[{number}]: " in whole for number in range(7))
    assert all(f"test_it.py::test_same[{case}]" in whole for case in range(4))
    assert whole.count("note: ") == 8
    (told,) = lines(run(noted, "-k", "test_same"))
    assert told.startswith("note: 4 tests (test_it.py::test_same[0], test_it.py::test_same[1] and 2 more): ")


@pytest.mark.e2e
def test_notes_of_xdist_s_workers_are_gathered_once(noted: pytest.Pytester) -> None:
    found = lines(noted.runpytest_subprocess("-n", "2"))
    assert len([line for line in found if line.startswith("note: ")]) == 5
    assert found[-1] == "3 more notes (-v lists all)"


def test_notes_of_failures_are_not_in_the_terminal_a_second_time_and_long_ones_are_cut() -> None:
    told = [("a", "failed", "of a failure"), ("b", "passed", "of a pass")]
    results: Any = [{"test": test, "status": status, "notes": [note]} for test, status, note in told]
    assert [*note_lines(results, verbose=True)] == ["note: b: of a pass"]
    results = [{"test": "t" * 1000, "status": "passed", "notes": ["n\n\x1b" * 500]}]
    (line,) = note_lines(results, verbose=False)
    assert len(line) < 2000
    assert line.isprintable()
    (whole,) = note_lines(results, verbose=True)
    assert len(whole) > 2500
