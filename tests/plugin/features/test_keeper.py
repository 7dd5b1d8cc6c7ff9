"""What a session keeps of its marked tests, and that ``npudump check`` has the verdicts of their runs."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.cli import main
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import Overrides, rejudge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Project


KEEP = "--npudump-results=kept"
RUN = "def test_small(npu_dump):\n"


def lines(project: Project, kind: str = "test") -> list[dict[str, Any]]:
    text = (project.path / "kept/results.jsonl").read_text("utf-8")
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Run ``npudump check`` on what was kept; return its exit code and its JSON."""
    capsys.readouterr()
    code = main(["check", "kept", "--json", "-", *words])
    return code, json.loads(capsys.readouterr().out)


def once_recorded(project: Project) -> str:
    """Return the golden without what only its second run and the days of its approvals tell."""
    golden = re.sub(r"\nrecorded: .*| # 20.*", "", project.golden.read_text("utf-8"))
    assert golden.count("\nrepeats: {runs: 2}\n") == 1
    return golden.replace("\nrepeats: {runs: 2}\n", "\n")


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    main(["check", "kept", *words])
    return capsys.readouterr().out


def test_a_pass_and_a_failure_are_kept_with_their_statistics(project: Project) -> None:
    project.marked()
    project.record()
    project.run(KEEP)
    [line] = lines(project)
    assert (line["status"], line["outcome"], line["incomplete"], line["record"] is None) == (
        *("passed", "passed", None),
        False,
    )
    project.model(change=0.01)
    project.run(KEEP)
    [line] = lines(project)
    assert (line["status"], line["outcome"], line["incomplete"]) == ("failed", "failed", None)
    assert line["counts"] == {
        "expected": 5,
        "compared": 5,
        "passed": 3,
        "unjudged": 0,
        "identical": 3,
        "changed": 0,
        "wavering": 0,
        "fail": 2,
        "missing": 0,
        "extra": 0,
    }
    assert line["first"] == line["first_change"] == "block/conv.2:output.0"
    assert line["golden"]["judged_with"] == "test_small/test_small.yaml"


_EDITS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "another value": lambda text: re.sub(r"(conv\.2:output\.0 \S+ \S+) \S+", r"\1 99", text),
    "a name of the same file": lambda text: text.replace("block/conv.2:", "block.conv.2:"),
    "the name of the file": lambda text: text.replace("block/conv.2:", "block_conv_2:"),
    "another name": lambda text: text.replace("block/conv.2:", "block/conv.3:"),
    "a layer less": lambda text: re.sub(r"\n  block/conv\.2:.*", "", text),
    "another device": lambda text: text.replace("runtime: emulator", "runtime: acl"),
    "of another mode": lambda text: text.replace("dump_mode: output", "dump_mode: all"),
}


def judged_again(kept: Path, root: Path) -> dict[str, Any]:
    """Return what the one kept result comes to with the goldens below a folder, as its line would say it."""
    folder = ResultsFolder(kept)
    (entry,) = folder.read().entries
    found = rejudge(folder, entry, Overrides(root))
    assert found.result is not None
    return found.told() | {"problems": [*found.result.outcome.problems]}


@pytest.mark.parametrize("change", [0.0, 0.01], ids=["passing", "failing"])
def test_a_kept_run_is_judged_by_the_golden_of_today_as_a_new_one(
    project: Project, tmp_path: Path, change: float
) -> None:
    """After its golden was accepted or changed by hand, and in another checkout."""
    project.marked()
    project.record()
    project.model(change=change)
    project.run(KEEP)
    kept = shutil.copytree(project.path / "kept", tmp_path / "kept")
    recorded = project.golden.read_text("utf-8")
    elsewhere = shutil.copytree(project.path, tmp_path / "elsewhere")
    verdicts = set()
    for name, edit in _EDITS.items():
        for root in (project.path, elsewhere):
            root.joinpath(project.golden.relative_to(project.path)).write_text(edit(recorded), "utf-8")
        project.run(KEEP, "--npudump-escalate=off")
        (now,) = lines(project)
        verdicts.add(now["status"])
        again = judged_again(kept, elsewhere)
        for key in ("status", "first", "first_change", "tensors"):
            assert again.get(key) == now[key], (name, key)
        assert {key: again[key] for key in now["counts"]} == now["counts"], name
        here, there = str(project.path), str(elsewhere)
        assert [one.replace(there, here) for one in again["problems"]] == now["problems"], name
    assert verdicts == ({"failed"} if change else {"failed", "passed"})


def test_a_kept_run_that_was_accepted_passes_as_a_new_one_does(
    project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    project.run(KEEP)
    before = shutil.copytree(project.path / "kept", tmp_path / "kept")
    assert judged_again(before, project.path)["status"] == "failed"
    assert main(["golden", "accept", "--results", "kept"]) == 0, capsys.readouterr()
    again = judged_again(before, project.path)
    project.run(KEEP)
    (now,) = lines(project)
    assert (again["status"], now["status"]) == ("passed", "passed")
    assert {key: again[key] for key in now["counts"]} == now["counts"]


def test_tests_without_the_marker_are_not_kept(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    plain = "def test_plain():\n    pass\ndef test_plain_too():\n    raise ValueError\n"
    project.test_file(f"@pytest.mark.npu_dump\n{RUN}{project.body}{plain}")
    project.run("--npudump-update-golden").assert_outcomes(passed=2, failed=1)
    project.run(KEEP).assert_outcomes(passed=2, failed=1)
    assert [line["test"] for line in lines(project)] == ["test_small.py::test_small"]
    code, checked = check(capsys)
    assert (code, len(checked["tests"])) == (0, 1)


def test_the_record_is_the_golden_that_an_update_would_write_but_for_its_second_run(project: Project) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    project.run(KEEP)
    record = project.path / "kept" / lines(project)[0]["record"]["file"]
    project.record()
    assert record.read_text("utf-8").partition("op_types:")[0] == once_recorded(project)
    assert record.parent.relative_to(project.path / "kept/records") == project.golden.parent.relative_to(
        project.path / "golden"
    )


def test_the_record_of_a_run_that_repeats_its_golden_is_that_file(project: Project) -> None:
    project.marked()
    project.record()
    project.run(KEEP)
    record = project.path / "kept" / lines(project)[0]["record"]["file"]
    text, _, types = record.read_text("utf-8").partition("op_types:")
    assert text == project.golden.read_text("utf-8")
    assert types.split()[1:] == ["Data", "Conv", "Relu", "Conv", "Softmax"]


def test_a_golden_that_is_missing_has_a_record_with_the_raw_names_of_layers(project: Project) -> None:
    project.marked()
    project.run(KEEP)
    [line] = lines(project)
    record = (project.path / "kept" / line["record"]["file"]).read_text("utf-8")
    project.record()
    assert record.partition("op_types:")[0] == once_recorded(project)


FAILING_TEARDOWN = """
@pytest.fixture
def other():
    yield
    raise OSError("gone")

@pytest.mark.npu_dump
def test_small(npu_dump, other):
"""
STATES = {
    "passed": ("", "", {}, "passed", "good"),
    "failed": ("", "", {"change": 0.01}, "failed", "bad"),
    "layer missing": ("", "", {"without": "block/relu.1"}, "failed", "bad"),
    "layer new": ("", "", {"extra": True}, "failed", "bad"),
    "nan": ("", "", {"nan": True}, "failed", "bad"),
    "unknown layer": ("layers=['nothing']", "", {}, "error", "unjudged"),
    "body": ("", "    assert False\n", {}, "not compared", "unjudged"),
    "skipped": ("", "    pytest.skip('no')\n", {}, "not compared", "left out"),
    "process": ("isolation='process'", "", {"change": 0.01}, "failed", "bad"),
    "process passed": ("isolation='process'", "", {}, "passed", "good"),
    "died": ("isolation='process'", "    import os; os._exit(3)\n", {}, "process died", "unjudged"),
    "overflow": ("scene='overflow'", "", {}, "failed", "bad"),
}


@pytest.mark.parametrize("name", STATES)
def test_check_has_the_verdict_of_the_run(
    project: Project, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    marker, body, change, status, word = STATES[name]
    project.marked()
    project.record()
    project.model(**change)
    project.marked(marker, project.body + body)
    result = project.run(KEEP)
    [line] = lines(project)
    code, told = check(capsys)
    [test] = told["tests"]
    assert (line["status"], test["verdict"], test["was"]) == (status, word, status)
    expected = {"good": 0, "bad": 1, "unjudged": 2, "left out": 2}[test["verdict"]]
    assert (code, result.ret == 0) == (expected, test["verdict"] in {"good", "left out"})
    if line["counts"]:
        summary = test["comparison"]["summary"]
        told = line["counts"] | {"failed": line["counts"]["fail"], "repeats": True}
        assert summary == {"notes": summary["notes"]} | {key: told[key] for key in summary if key != "notes"}


def test_the_text_of_check_is_that_of_the_run(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    result = project.run(KEEP)
    lines_of_run = {line.strip() for line in result.outlines}
    found = [line.strip() for line in text(capsys).splitlines()]
    assert found[0] == "test_small.py::test_small: failed"
    assert [line for line in found[1:] if line not in lines_of_run] == []
    assert found[-1].startswith("npudump: 0 of 1 tests good, 5 of 5 tensors compared")


def test_a_recorded_test_is_kept_as_its_golden(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.marked()
    for status in ("recorded", "unchanged"):
        project.record(KEEP)
        [line] = lines(project)
        assert (line["status"], line["incomplete"]) == (status, None)
        record = project.path / "kept" / line["record"]["file"]
        assert record.read_bytes() == project.golden.read_bytes()
        assert check(capsys)[0] == 0


@pytest.mark.parametrize(
    ("source", "outcome", "why"),
    [
        (FAILING_TEARDOWN, "failed", "teardown"),
        (f"@pytest.mark.xfail(strict=False)\n@pytest.mark.npu_dump\n{RUN}", "xpassed", "xfail"),
    ],
)
def test_a_test_that_passed_in_part_is_not_complete(
    project: Project, capsys: pytest.CaptureFixture[str], source: str, outcome: str, why: str
) -> None:
    project.marked()
    project.record()
    project.test_file(source + project.body)
    project.run(KEEP)
    [line] = lines(project)
    assert (line["status"], line["outcome"]) == ("passed", outcome)
    assert why in line["incomplete"]
    code, told = check(capsys)
    assert (code, told["tests"][0]["verdict"]) == (2, "unjudged")


def test_a_failure_that_is_expected_is_left_out(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    project.test_file(f"@pytest.mark.xfail\n@pytest.mark.npu_dump\n{RUN}" + project.body)
    project.run(KEEP)
    [line] = lines(project)
    assert (line["outcome"], line["incomplete"]) == ("xfailed", "the test is marked xfail")
    assert check(capsys)[1]["tests"][0]["verdict"] == "left out"


def test_what_agrees_and_is_not_judged_counts_as_no_good_test(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record()
    project.test_file(f"@pytest.mark.xfail\n@pytest.mark.npu_dump\n{RUN}" + project.body)
    project.run(KEEP).assert_outcomes(xpassed=1)
    told = text(capsys)
    assert told.splitlines()[0] == "test_small.py::test_small: unjudged"
    assert "npudump: 0 of 1 tests good, 5 of 5 tensors compared, 1 unjudged (emulator)" in told
    assert "  npudump: " not in told


def test_a_pass_whose_record_is_gone_counts_as_no_good_test(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record()
    project.run(KEEP).assert_outcomes(passed=1)
    shutil.rmtree(project.path / "kept/records")
    told = text(capsys)
    assert told.splitlines()[0] == "test_small.py::test_small: unjudged"
    assert "npudump: 0 of 1 tests good" in told
    assert "1 unjudged" in told


def test_results_of_earlier_sessions_are_told(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"@pytest.mark.npu_dump\n{RUN}{project.body}"
    project.test_file(source + source.replace("test_small", "test_other"))
    project.record(KEEP)
    assert "earlier session" not in text(capsys)
    project.run(KEEP, "-k", "other")
    assert "npudump: 1 of 2 results is of an earlier session: test_small.py::test_small (" in text(capsys)


def test_the_runtime_of_tests_that_never_ran_is_not_in_the_summary(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.test_file(
        f"@pytest.mark.npu_dump\n{RUN}{project.body}\n\n"
        "@pytest.fixture\ndef broken():\n    raise OSError\n\n"
        "@pytest.mark.npu_dump\ndef test_other(broken):\n    pass\n"
    )
    project.run(KEEP)
    assert text(capsys).splitlines()[-1].endswith("(emulator)")


def test_a_mark_that_skips_leaves_a_line_without_statistics(project: Project) -> None:
    project.test_file(f"@pytest.mark.skip\n@pytest.mark.npu_dump\n{RUN}" + project.body)
    project.run(KEEP)
    [line] = lines(project)
    assert (line["outcome"], line["record"], line["status"]) == ("skipped", None, "not compared")


TWO = """
@pytest.mark.parametrize("k", range(4), ids="abcd")
@pytest.mark.npu_dump
def test_small(npu_dump, k):
"""


def test_a_later_session_replaces_what_was_kept_of_the_tests_it_ran(project: Project) -> None:
    project.test_file(
        TWO.replace("def test_small(npu_dump, k):", "def test_small(npu_dump, k):\n    k") + project.body
    )
    project.record()
    project.model(change=0.01)
    project.run(KEEP)
    project.model()
    project.run(KEEP, "-k", "b or c")
    assert {line["test"][-2]: line["status"] for line in lines(project)} == {
        "a": "failed",
        "b": "passed",
        "c": "passed",
        "d": "failed",
    }
    assert len(lines(project, "session")) == 2
    records = [path for path in (project.path / "kept/records").rglob("*") if path.is_file()]
    assert len(records) == 4


@pytest.mark.e2e
def test_workers_of_xdist_keep_every_test_once(project: Project) -> None:
    project.test_file(TWO.replace('range(4), ids="abcd"', "range(12)") + project.body + "    assert k >= 0\n")
    project.record()
    project.run(KEEP, "-p", "xdist", "-n2")
    assert len(lines(project)) == 12
    assert {line["status"] for line in lines(project)} == {"passed"}
    assert len({line["session"] for line in lines(project)}) == 1


@pytest.mark.e2e
def test_a_session_that_is_killed_loses_nothing_that_had_ended(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    die = "    import os\n    if k == 2 and os.environ.get('DIE'): os.kill(os.getpid(), 9)\n"
    project.test_file(TWO + project.body + die)
    project.record()
    monkeypatch.setenv("DIE", "1")
    project.pytester.run(sys.executable, "-m", "pytest", "--npudump-runtime=emulator", KEEP)
    assert [line["test"][-2] for line in lines(project)] == ["a", "b"]
    capsys.readouterr()
    assert main(["check", "kept"]) == 2
    assert "2 of the 4 tests of the last session left no result" in capsys.readouterr().err


@pytest.mark.parametrize("update", [False, True])
def test_a_folder_that_cannot_be_written_is_told_once_and_fails_nothing(
    project: Project, *, update: bool
) -> None:
    project.test_file(TWO + project.body + "    assert k >= 0\n")
    project.record()
    (project.path / "kept").write_text("a file", "utf-8")
    result = project.run(KEEP, *(["--npudump-update-golden"] if update else []))
    assert result.ret == 0
    told = [line for line in result.outlines if "results are not kept: " in line]
    assert len(told) == 1
    assert "File exists" in told[0]


def test_a_full_disk_is_told_once_and_loses_no_golden(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = importlib.import_module("pytest_npudump.results.folder")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.ResultsFolder, "_write_record", full)
    project.marked()
    result = project.run(KEEP, "--npudump-update-golden")
    result.assert_outcomes(passed=1)
    assert project.golden.is_file()
    result.stdout.fnmatch_lines(["npudump: results are not kept: *No space left on device"])


def test_a_test_that_finds_no_room_leaves_the_rest_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.test_file(TWO + project.body + "    assert k >= 0\n")
    project.record()
    project.model(change=0.01)
    folder = importlib.import_module("pytest_npudump.results.folder")
    write = folder.ResultsFolder._write_record

    def full_for_one(self: Any, name: str, content: bytes) -> None:
        if "[b]" in name:
            raise OSError(28, "No space left on device")
        write(self, name, content)

    monkeypatch.setattr(folder.ResultsFolder, "_write_record", full_for_one)
    result = project.run(KEEP, "--npudump-report=page")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "npudump: the results of 1 of 4 tests are not kept: *No space left on device",
            "npudump: report: *index.html",
            "npudump: 3 runs wait for a decision: *",
        ]
    )
    assert [line["test"][-2] for line in lines(project)] == ["a", "c", "d"]
    page = (project.path / "page/index.html").read_text("utf-8")
    assert "1 of the 4 tests of the last session left no result" in page
    capsys.readouterr()
    assert main(["check", "kept"]) == 2
    assert "1 of the 4 tests of the last session left no result" in capsys.readouterr().err


@pytest.mark.parametrize("scene", ["overflow", "check_op"])
def test_an_update_keeps_tests_that_have_no_golden_and_those_behind_them(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scene: str
) -> None:
    check = "    npu_dump.check_op('Abs', np.ones(2, 'f4'), reference=np.abs)\n"
    marker = f"@pytest.mark.npu_dump(scene={scene!r})\ndef test_first(npu_dump):\n"
    model = f"@pytest.mark.npu_dump\ndef test_second(npu_dump):\n{project.body}"
    project.test_file(marker + (check if scene == "check_op" else project.body) + model)
    result = project.run(KEEP, "--npudump-update-golden")
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*not kept*")
    assert [line["test"].partition("::")[2] for line in lines(project)] == ["test_first", "test_second"]
    monkeypatch.chdir(project.path)
    capsys.readouterr()
    assert main(["check", "kept"]) == 0
    assert "2 of 2 tests good" in capsys.readouterr().out


def test_an_approved_overflow_is_no_comparison_of_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked("scene='overflow'", body=project.overflowing())
    project.run(KEEP, "--npudump-update-golden").assert_outcomes(passed=1)
    assert "\noverflow:" in project.golden.read_text("utf-8")
    [line] = lines(project)
    assert (line["status"], line["record"]) == ("recorded", None)
    monkeypatch.chdir(project.path)
    capsys.readouterr()
    assert main(["check", "kept"]) == 0


def test_results_of_another_version_stay_as_they_are(project: Project) -> None:
    project.marked()
    project.record()
    kept = project.path / "kept/results.jsonl"
    kept.parent.mkdir()
    kept.write_text('{"version":2,"kind":"test"}\n', "utf-8")
    result = project.run(KEEP)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["npudump: results are not kept: *of version 2*remove the folder*"])
    assert kept.read_text("utf-8") == '{"version":2,"kind":"test"}\n'


def test_without_a_cache_and_without_a_folder_nothing_is_kept(project: Project) -> None:
    project.marked()
    project.record()
    before = {path for path in project.path.rglob("*") if "__pycache__" not in path.parts}
    project.run()
    assert {path for path in project.path.rglob("*") if "__pycache__" not in path.parts} == before


def test_a_cache_that_cannot_be_written_is_told_once_and_fails_nothing(project: Project) -> None:
    project.pytester.makeini("[pytest]\ncache_dir = cache\n")
    project.marked()
    project.record("-p", "no:cacheprovider")
    (project.path / "cache").mkdir()
    (project.path / "cache/d").write_text("a file", "utf-8")
    result = project.run()
    result.assert_outcomes(passed=1)
    assert len([line for line in result.outlines if "npudump: results are not kept: " in line]) == 1


def test_with_a_cache_results_are_in_it(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.pytester.makeini("[pytest]\n")
    project.marked()
    project.record()
    project.run()
    (found,) = project.path.joinpath(".pytest_cache").rglob("results.jsonl")
    assert main(["check", str(found.parent)]) == 0
    assert "1 of 1 tests good" in capsys.readouterr().out


def test_a_rule_of_the_file_that_matches_nothing_is_named(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record()
    project.run(KEEP)
    rules = project.path / "rules.yaml"
    rules.write_text("rules: [{layer: no_such, rtol: 0, atol: 0}, {layer: '*', rtol: 0, atol: 0}]\n")
    capsys.readouterr()
    assert main(["check", "kept", "--tolerances", str(rules)]) == 0
    told = capsys.readouterr().err
    assert told.count("matches no tensor of these tests") == 1
    assert "layer=no_such" in told


def test_other_tolerances_and_other_goldens(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.marked("tolerances=[{'layer': 'head/*', 'rtol': 1, 'atol': 1, 'reason': 'wide'}]")
    project.record()
    project.model(change=0.01)
    project.run(KEEP)
    assert check(capsys)[1]["tests"][0]["comparison"]["summary"]["failed"] == 1
    rules = project.path / "wide.yaml"
    rules.write_text("rules: [{layer: 'block/*', rtol: 1, atol: 1, reason: wide}]\n", "utf-8")
    assert check(capsys, "--tolerances", str(rules))[0] == 0
    assert check(capsys, "--preset", "exact")[0] == 1
    assert check(capsys, "--numerics", "hf32")[1]["tests"][0]["numerics"]["fixed_by"] is not None
    project.path.joinpath("golden").rename(project.path / "elsewhere")
    assert check(capsys)[0] == 2
    assert check(capsys, "--golden-dir", "elsewhere")[0] == 1


@pytest.mark.parametrize("damage", ["cut", "line", "record", "gone", "version", "outside"])
def test_damaged_results_are_told_and_never_fewer_tests(
    project: Project, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    project.test_file(TWO + project.body + "    assert k >= 0\n")
    project.record()
    project.run(KEEP)
    spoil(project.path / "kept", damage)
    capsys.readouterr()
    assert main(["check", "kept"]) == 2
    done = capsys.readouterr()
    assert WORDS[damage] in done.err + done.out


WORDS = {
    "cut": "ends within a line",
    "line": "line 3: not JSON",
    "record": "not the record that was kept of test_small.py::test_small[d]",
    "gone": "cannot be read: No such file or directory",
    "version": "of version 7, this pytest-npudump reads version 1",
    "outside": "expected one inside its folder",
}


def spoil(folder: Path, damage: str) -> None:
    """Damage one of four results."""
    file = folder / "results.jsonl"
    content = file.read_text("utf-8").splitlines(keepends=True)
    record = folder / json.loads(content[-1])["record"]["file"]
    if damage == "record":
        record.write_text(record.read_text("utf-8").replace(" 0 0 0", " 0 0 1", 1), "utf-8")
    if damage == "gone":
        record.unlink()
    if damage == "cut":
        content[-1] = content[-1][:100]
    if damage == "line":
        content[2] = "nonsense\n"
    if damage == "version":
        content[2] = content[2].replace('"version":1', '"version":7')
    if damage == "outside":
        content[2] = content[2].replace('"file":"test_small', '"file":"../test_small')
    file.write_text("".join(content), "utf-8")


def test_elements_that_were_judged_are_not_taken_to_agree_under_other_terms(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked("golden_tensors=['block/conv.2'], dump_data='tensor'")
    project.record()
    project.run(KEEP)
    [line] = lines(project)
    assert line["snapshot"]["has_tensors"]
    assert line["refusals"] == []
    assert check(capsys)[0] == 0
    code, told = check(capsys, "--preset", "torch")
    assert (code, told["tests"][0]["verdict"]) == (2, "unjudged")
    assert "elements of its tensors" in told["tests"][0]["why"]


def test_a_reference_that_did_not_agree_stands(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.path.joinpath("fixed.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.model(change=0.01)
    project.marked()
    project.record()
    project.marked("reference='fixed.onnx'")
    project.run(KEEP)
    [line] = lines(project)
    assert (line["status"], line["reference"]["good"]) == ("failed", False)
    code, told = check(capsys)
    assert (code, told["tests"][0]["verdict"]) == (1, "bad")
    assert "that stands" in told["tests"][0]["problems"][0]
    assert "not shown to agree with the reference" in line["refusals"][0]


def test_a_reference_without_a_golden_is_told_as_well(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.path.joinpath("fixed.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.model(change=0.01)
    project.marked("reference='fixed.onnx'")
    project.run(KEEP)
    shown = text(capsys)
    assert "npudump: the run differed from the reference " in shown
    assert re.search(r" in \d+ tensors, first \S+: that stands", shown)


def test_what_kept_a_reference_from_being_compared_is_told(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record()
    project.path.joinpath("other.onnx").write_bytes(b"no model")
    project.marked("reference='other.onnx'")
    project.run(KEEP)
    code, told = check(capsys)
    assert (code, told["tests"][0]["verdict"]) == (1, "bad")
    [problem] = told["tests"][0]["problems"]
    assert "other.onnx is no ONNX model" in problem


def test_rules_by_operator_and_producer_are_judged_again_as_in_the_run(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    here = "{'runtime': 'emulator'}"
    wide = "'rtol': 1, 'atol': 1, 'reason': 'wide'"
    project.marked(
        f"tolerances=[{{'op_type': 'Conv', 'producer': {here}, {wide}}}, {{'op_type': 'Softmax', {wide}}}, "
        "{'layer': 'gone', 'rtol': 0, 'atol': 0, 'producer': {'soc': 'Ascend910*'}}]"
    )
    project.record(KEEP)
    assert check(capsys)[0] == 0
    project.model(change=0.01)
    project.run(KEEP).assert_outcomes(passed=1)
    assert check(capsys)[0] == 0
    project.marked(f"tolerances=[{{'op_type': 'Conv', {wide}}}]")
    project.run(KEEP).assert_outcomes(failed=1)
    assert check(capsys)[1]["tests"][0]["comparison"]["summary"]["failed"] == 1


def test_recorded_runs_tell_operators_only_to_rules_of_their_own(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record(KEEP)
    rules = project.path / "rules.yaml"
    rules.write_text("rules: [{op_type: Conv, rtol: 0, atol: 0}]\n")
    code, told = check(capsys, "--tolerances", str(rules))
    assert code == 2
    assert "tells no types of operators" in told["tests"][0]["why"]
    project.run(KEEP)
    assert check(capsys, "--tolerances", str(rules))[0] == 0


def test_what_if_says_what_other_tolerances_miss_and_catch_and_decides_nothing(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    project.run(KEEP)
    rules = project.path / "wide.yaml"
    rules.write_text("rules: [{op_type: Conv, rtol: 1, atol: 1, reason: wide}]\n", "utf-8")
    told = text(capsys, "--what-if", str(rules), "--what-if", "same")
    name = "test_small.py::test_small"
    assert told.splitlines()[-2:] == [
        f"what if {rules}: 1 would differ; it misses 1 ({name} block/conv.2:output.0)",
        "what if same: 2 would differ, the same ones",
    ]
    rules.write_text("rules: [{layer: '*', rtol: 1, atol: 1, reason: wide}]\n", "utf-8")
    code, data = check(capsys, "--what-if", str(rules))
    assert code == 1
    (found,) = data["what_if"]
    assert (found["failing"], found["missed_tests"], found["caught_tests"]) == (0, [name], [])
    code, data = check(capsys, "--tolerances", str(rules), "--what-if", "exact")
    assert code == 0
    (found,) = data["what_if"]
    assert (found["caught_tests"], found["unjudged"]) == ([], {})  # a preset leaves the file's rules
    rules.write_text("preset: exact\n", "utf-8")
    code, data = check(capsys, "--preset", "om-net", "--what-if", str(rules))
    (found,) = data["what_if"]
    assert found["failing"] == 2
    assert main(["check", "kept", "--what-if", "loose"]) == 2
    assert "what_if" not in check(capsys)[1]


def test_what_if_names_rules_of_its_file_that_match_nothing(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record()
    project.run(KEEP)
    misspelt, good = project.path / "un.yaml", project.path / "good.yaml"
    misspelt.write_text("rules: [{layer: 'Cnov@2*', rtol: 1, atol: 1, reason: wide}]\n", "utf-8")
    good.write_text("rules: [{layer: '*', rtol: 0, atol: 0}]\n", "utf-8")
    capsys.readouterr()
    words = ("--what-if", str(good), "--what-if", str(misspelt), "--what-if", "exact")
    assert main(["check", "kept", *words]) == 0
    (idle,) = capsys.readouterr().err.splitlines()
    assert idle.startswith(f"npudump: --what-if {misspelt}: the rule rtol=1 atol=1 layer=Cnov@2* ")
    assert idle.endswith(" matches no tensor of these tests")
    assert main(["check", "kept", *words, "--tolerances", str(misspelt)]) == 0
    told = capsys.readouterr().err
    assert (told.count("matches no tensor of these tests"), told.count("--what-if")) == (2, 1)


def test_what_if_names_tests_that_it_cannot_judge(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.marked()
    project.record(KEEP)
    rules = project.path / "rules.yaml"
    rules.write_text("rules: [{op_type: Conv, rtol: 0, atol: 0}]\n")
    told = text(capsys, "--what-if", str(rules)).splitlines()
    assert told[-2] == f"what if {rules}: 0 would differ, the same ones"
    assert told[-1].startswith(f"what if {rules}: test_small.py::test_small cannot be judged: ")
