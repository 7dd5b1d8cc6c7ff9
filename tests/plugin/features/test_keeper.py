"""What a session keeps of its marked tests, and that ``npudump check`` has the verdicts of their runs."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli import main
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import Overrides, rejudge
from tests.plugin.conftest import Project

KEEP = "--npudump-output=."
RUN = "def test_small(npu_dump):\n"


def lines(project: Project, kind: str = "test") -> list[dict[str, Any]]:
    text = (project.path / "results/results.jsonl").read_text("utf-8")
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def check(project: Project, *words: str) -> tuple[int, dict[str, Any]]:
    """Run ``npudump check`` on what was kept; return its exit code and its JSON."""
    code, out, _ = project.command("check", "results", "--json", "-", *words)
    return code, json.loads(out)


def once_recorded(project: Project) -> str:
    """Return the golden without what only its second run and the days of its acceptances tell."""
    golden = re.sub(r"\nrecorded: .*| # 20.*", "", project.golden.read_text("utf-8"))
    assert golden.count("\nrepeats: {runs: 2}\n") == 1
    return golden.replace("\nrepeats: {runs: 2}\n", "\n")


_EDITS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "another value": lambda text: re.sub(r"(conv\.2 float32 \S+) \S+", r"\1 99", text),
    "a name of the same file": lambda text: text.replace("  block/conv.2 f", "  block.conv.2 f"),
    "the name of the file": lambda text: text.replace("  block/conv.2 f", "  block_conv_2 f"),
    "another name": lambda text: text.replace("  block/conv.2 f", "  block/conv.3 f"),
    "a layer less": lambda text: re.sub(r"\n  block/conv\.2 f.*", "", text),
    "another device": lambda text: text.replace("runtime: emulator", "runtime: acl"),
    "of another mode": lambda text: text.replace("dump_mode: output", "dump_mode: all"),
}


def judged_again(kept: Path, root: Path) -> dict[str, Any]:
    """Return what the one kept result comes to with the goldens below a folder, as its line would say it."""
    folder = ResultsFolder(kept)
    (entry,) = folder.read().entries
    found = rejudge(folder, entry, Overrides(root))
    assert found.result is not None
    return found.told() | {"problems": [*found.result.problems]}


def test_a_kept_run_is_judged_by_the_golden_of_today_as_a_new_one(project: Project, tmp_path: Path) -> None:
    """After its golden was accepted or changed by hand, and in another checkout."""
    project.recorded()
    project.run(KEEP)
    kept = shutil.copytree(project.path / "results", tmp_path / "results")
    recorded = project.golden.read_text("utf-8")
    elsewhere = shutil.copytree(project.path, tmp_path / "elsewhere")
    verdicts = set()
    for name, edit in _EDITS.items():
        for root in (project.path, elsewhere):
            root.joinpath(project.golden.relative_to(project.path)).write_text(edit(recorded), "utf-8")
        project.run(KEEP, "-onpudump_escalate=off")
        (now,) = lines(project)
        verdicts.add(now["status"])
        again = judged_again(kept, elsewhere)
        for key in ("status", "first", "first_change", "tensors"):
            assert again.get(key) == now[key], (name, key)
        assert {key: again[key] for key in now["counts"]} == now["counts"], name
        here, there = str(project.path), str(elsewhere)
        assert [one.replace(there, here) for one in again["problems"]] == now["problems"], name
    assert verdicts == {"failed", "passed"}


def test_a_record_is_the_golden_that_an_update_would_write(project: Project) -> None:
    """But for its second run, and with all that a golden may lack, such as raw names where there is none."""

    def record() -> tuple[str, str]:
        [line] = lines(project)
        file = project.path / "results" / line["record"]["file"]
        assert file.parent.name == "test_small"
        head, _, types = file.read_text("utf-8").partition("op_types:")
        return head, types

    project.marked()
    project.run(KEEP)
    first = record()[0]
    project.record("-o", "npudump_auto_tensors=0")
    recorded = once_recorded(project)
    assert first == recorded
    rows, between, edges = project.golden.read_text("utf-8").partition("edges: |\n")
    without_models = re.sub(r"models: (?s:.*)| \|.*", "", edges)
    project.golden.write_text(rows + between + without_models, "utf-8")
    project.run(KEEP)
    assert record()[0] == recorded
    assert record()[1].split()[1:] == ["Data", "Conv", "Relu", "Conv", "Softmax"]
    project.model(change=0.01)
    project.run(KEEP)
    changed = record()[0]
    project.record(KEEP)
    assert changed == once_recorded(project)
    assert record()[0] == project.golden.read_text("utf-8")


FAILING_TEARDOWN = """
@pytest.fixture
def other():
    yield
    raise OSError("gone")

@pytest.mark.npu_dump
def test_small(npu_dump, other):
"""
XFAIL = f"@pytest.mark.xfail(strict=False)\n@pytest.mark.npu_dump\n{RUN}"
NOT_WHOLE = {
    "teardown": (FAILING_TEARDOWN, 0.0, "passed", "failed", "unjudged"),
    "the test is marked xfail": (XFAIL, 0.01, "failed", "xfailed", "left out"),
    "xfail": (XFAIL, 0.0, "passed", "xpassed", "unjudged"),
    "": (f"@pytest.mark.skip\n@pytest.mark.npu_dump\n{RUN}", 0.0, "not compared", "skipped", "left out"),
}


def test_a_test_that_passed_in_part_counts_as_no_good_one(project: Project) -> None:
    project.recorded()
    project.marked("isolation='process'", project.body + "    import os; os._exit(3)\n")
    project.run(KEEP, failed=1)
    [line] = lines(project)
    assert (line["status"], line["counts"]) == ("process died", {})
    code, told = check(project)
    assert (code, told["tests"][0]["verdict"], told["tests"][0]["was"]) == (2, "unjudged", "process died")
    for why, (source, change, status, outcome, verdict) in NOT_WHOLE.items():
        project.model(change=change)
        project.test_file(source + project.body)
        shutil.rmtree(project.path / "results", ignore_errors=True)
        project.run(KEEP)
        [line] = lines(project)
        assert (line["status"], line["outcome"]) == (status, outcome)
        assert why in (line["incomplete"] or "")
        assert (line["record"] is None) == (outcome == "skipped")
        code, told = check(project)
        assert (code, told["tests"][0]["verdict"]) == (2, verdict), why
        if outcome == "xpassed":
            shown = project.command("check", "results")[1]
            assert shown.startswith("test_small.py::test_small: not compared\n")
            words = "npudump: 0 of 1 tests passed, 1 not compared; 5 of 5 tensors compared (emulator); see"
            assert words in shown
            assert "  npudump: " not in shown


TWO = """
@pytest.mark.parametrize("k", range(4), ids="abcd")
@pytest.mark.npu_dump
def test_small(npu_dump, k):
"""


def test_a_later_session_replaces_what_was_kept_of_the_tests_it_ran(project: Project) -> None:
    project.test_file(TWO.replace("(npu_dump, k):", "(npu_dump, k):\n    k") + project.body)
    project.record("-onpudump_repeats=1")
    project.model(change=0.01)
    project.run(KEEP)
    assert "earlier session" not in project.command("check", "results")[1]
    project.model()
    project.run(KEEP, "-k", "b or c")
    statuses = {line["test"][-2]: line["status"] for line in lines(project)}
    assert statuses == {"a": "failed", "b": "passed", "c": "passed", "d": "failed"}
    assert len(lines(project, "session")) == 2
    assert len([path for path in (project.path / "results/records").rglob("*") if path.is_file()]) == 4
    shown = project.command("check", "results")[1]
    assert "npudump: 2 of 4 results are of earlier sessions: test_small.py::test_small[a]" in shown


def test_commands_without_a_folder_take_the_last_session_wherever_it_left_results(project: Project) -> None:
    (project.path / "pytest.ini").write_text("[pytest]\n")  # with a cache
    project.recorded(change=0.01)
    project.run("--npudump-output=elsewhere", failed=1)
    code, shown, _ = project.command("golden", "diff")
    assert (code, "test_small" in shown) == (1, True)
    project.model()
    project.run(passed=1)
    assert main(["golden", "diff"]) == 0
    project.run("--npudump-output=elsewhere", passed=1)
    shutil.rmtree(project.path / "elsewhere")
    assert main(["golden", "diff"]) == 0


@pytest.mark.e2e
def test_a_session_that_is_killed_loses_nothing_that_had_ended(project: Project) -> None:
    die = "    import os\n    if k == 2 and os.environ.get('DIE'): os.kill(os.getpid(), 9)\n"
    project.test_file(TWO + project.body + die)
    project.record()
    project.patch.setenv("DIE", "1")
    project.pytester.runpytest_subprocess("--npudump-runtime=emulator", KEEP)
    assert [line["test"][-2] for line in lines(project)] == ["a", "b"]
    code, _, told = project.command("check", "results")
    assert (code, "2 of the 4 tests of the last session left no result" in told) == (2, True)


def test_a_folder_that_cannot_be_written_is_told_once_and_fails_nothing(project: Project) -> None:
    project.test_file(TWO + project.body + "    assert k >= 0\n")
    (project.path / "results").write_text("a file", "utf-8")
    for options in (["--npudump-update-golden"], []):
        result = project.run(KEEP, *options, passed=4)
        [told] = [line for line in result.outlines if "results are not saved: " in line]
        assert "File exists" in told
    ini = project.path / "tox.ini"
    ini.write_text("[pytest]\ncache_dir = cache\n")
    (project.path / "cache").mkdir()
    (project.path / "cache/d").write_text("a file", "utf-8")
    result = project.run(passed=4)
    assert len([line for line in result.outlines if "npudump: results are not saved: " in line]) == 1


def test_a_full_disk_is_told_once_and_loses_no_golden(project: Project) -> None:
    project.test_file(TWO + project.body + "    assert k >= 0\n")
    folder = importlib.import_module("pytest_npudump.results.folder")
    write, full = folder.ResultsFolder._write_record, [""]

    def write_unless_full(self: Any, name: str, content: bytes) -> None:
        if full[0] in name:
            raise OSError(28, "No space left on device")
        write(self, name, content)

    project.patch.setattr(folder.ResultsFolder, "_write_record", write_unless_full)
    words = "npudump: results are not saved: *No space left on device"
    project.run(KEEP, "--npudump-update-golden", passed=4, shows=words)
    assert len([*project.path.rglob("golden/**/*.yaml")]) == 4
    project.model(change=0.01)
    full[0] = "[b]"
    shows = [
        "npudump: the results of 1 of 4 tests are not saved: *No space left on device",
        "npudump: report: *index.html",
        "npudump: 3 runs pending review: *",
    ]
    project.run(KEEP, "--npudump-output=.", "--npudump-report", failed=4, shows=shows)
    assert [line["test"][-2] for line in lines(project)] == ["a", "c", "d"]
    words = "1 of the 4 tests of the last session left no result"
    assert words in (project.path / "report/index.html").read_text("utf-8")
    code, _, told = project.command("check", "results")
    assert (code, words in told) == (2, True)


def test_an_update_keeps_tests_that_have_no_golden_and_those_behind_them(project: Project) -> None:
    tests = {
        "check_op": "    npu_dump.check_op('Abs', np.ones(2, 'f4'), reference=np.abs)\n",
        "overflow": project.body,
        "model": project.body,
    }
    project.test_file(
        "".join(
            f"@pytest.mark.npu_dump(scene={name!r})\ndef test_{name}(npu_dump):\n{body}"
            for name, body in tests.items()
        )
    )
    project.run(KEEP, "--npudump-update-golden", passed=3, hides="*not kept*")
    assert [line["test"].partition("::test_")[2] for line in lines(project)] == [*tests]
    project.patch.chdir(project.path)
    code, shown, _ = project.command("check", "results")
    assert (code, "3 of 3 tests passed" in shown) == (0, True)
    project.marked("scene='overflow'", body=project.overflowing())
    project.run(KEEP, "--npudump-update-golden", passed=1)
    [golden] = project.path.rglob("test_small.yaml")
    assert "\noverflow:" in golden.read_text("utf-8")
    assert main(["check", "results"]) == 0


def test_results_of_another_version_stay_and_nothing_is_kept_without_a_place(project: Project) -> None:
    project.recorded()
    before = {path for path in project.path.rglob("*") if "__pycache__" not in path.parts}
    project.run(passed=1)
    assert {path for path in project.path.rglob("*") if "__pycache__" not in path.parts} == before
    kept = project.path / "results/results.jsonl"
    kept.parent.mkdir()
    kept.write_text('{"version":2,"kind":"test"}\n', "utf-8")
    project.run(KEEP, passed=1, shows="npudump: results are not saved: *of version 2*remove the folder*")
    assert kept.read_text("utf-8") == '{"version":2,"kind":"test"}\n'


def test_other_tolerances_and_other_goldens(project: Project) -> None:
    project.recorded("tolerances=[{'layer': 'head/*', 'rtol': 1, 'atol': 1, 'reason': 'wide'}]", change=0.01)
    project.run(KEEP)
    assert check(project)[1]["tests"][0]["comparison"]["summary"]["failed"] == 1
    rules = project.path / "wide.yaml"
    rules.write_text("rules: [{layer: 'block/*', rtol: 1, atol: 1, reason: wide}]\n", "utf-8")
    assert check(project, "--tolerances", str(rules))[0] == 0
    assert check(project, "--preset", "exact")[0] == 1
    assert check(project, "--preset", "hf32")[1]["tests"][0]["numerics"]["bounds"] == "hf32"
    project.path.joinpath("golden").rename(project.path / "elsewhere")
    assert check(project)[0] == 2
    assert check(project, "--golden-dir", "elsewhere")[0] == 1


WORDS = {
    "cut": "ends within a line",
    "line": "line 3: not JSON",
    "record": "not the record that was kept of test_small.py::test_small[d]",
    "gone": "cannot be read: No such file or directory",
    "version": "of version 7, this pytest-npudump reads version 1",
    "outside": "'file' of 'golden' of the line is '../test_small",
}


def spoil(folder: Path, damage: str) -> None:
    """Damage one of four results."""
    file = folder / "results.jsonl"
    content = file.read_text("utf-8").splitlines(keepends=True)
    record = folder / json.loads(content[-1])["record"]["file"]
    if damage == "record":
        record.write_text(record.read_text("utf-8").replace(" float32 ", " float16 ", 1), "utf-8")
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


def test_damaged_results_are_told_and_never_fewer_tests(project: Project) -> None:
    project.test_file(TWO + project.body + "    assert k >= 0\n")
    project.record(KEEP)
    whole = (project.path / "results").rename(project.path / "whole")
    for damage, words in WORDS.items():
        shutil.rmtree(project.path / "results", ignore_errors=True)
        shutil.copytree(whole, project.path / "results")
        spoil(project.path / "results", damage)
        code, *told = project.command("check", "results")
        assert (code, words in "".join(told)) == (2, True), damage


def test_a_preset_of_a_tolerance_file_stays_where_an_option_says_what_default_is(project: Project) -> None:
    file = project.path / "rules.yaml"
    file.write_text("preset: exact\n", "utf-8")
    project.recorded(change=1e-7)
    for preset in ("same", "other", "hf32"):
        project.run(KEEP, "--npudump-tolerances=rules.yaml", "-o", f"npudump_preset={preset}", failed=1)
        assert lines(project)[0]["tolerances"]["preset"] == "exact"
        assert check(project, "--preset", preset)[0] == 1
    project.run(KEEP, "-o", "npudump_preset=other", passed=1)
    assert check(project, "--preset", "other")[0] == 0
    assert check(project, "--preset", "other", "--tolerances", str(file))[0] == 1
    assert check(project, "--preset", "torch", "--tolerances", str(file))[0] == 0
    project.marked("preset='exact'")
    project.run(KEEP, "-o", "npudump_preset=other", failed=1)
    assert check(project, "--preset", "other")[0] == 0


def test_what_a_reference_said_stands(project: Project) -> None:
    project.path.joinpath("fixed.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.path.joinpath("other.onnx").write_bytes(b"no model")
    project.model(change=0.01)
    project.marked("reference='fixed.onnx'")
    project.run(KEEP)
    told = project.command("check", "results")[1]
    words = r"also:       mismatches of the run with the reference .*: \d+, first \S+; comparing"
    assert re.search(words, told)
    assert "to accept:  in the marker, " in told
    assert "--npudump-update-golden" not in told
    project.recorded()
    project.marked("reference='other.onnx'")
    project.run(KEEP)
    code, told = check(project)
    assert (code, told["tests"][0]["verdict"]) == (1, "bad")
    [problem] = told["tests"][0]["problems"]
    assert "other.onnx is no ONNX model" in problem
    assert "to accept" not in project.command("check", "results")[1]


def test_rules_by_operator_and_producer_are_judged_again_as_in_the_run(project: Project) -> None:
    here = "{'runtime': 'emulator'}"
    wide = "'rtol': 1, 'atol': 1, 'reason': 'wide'"
    project.marked(
        f"tolerances=[{{'op_type': 'Conv', 'producer': {here}, {wide}}}, {{'op_type': 'Softmax', {wide}}}, "
        "{'layer': 'gone', 'rtol': 0, 'atol': 0, 'producer': {'soc': 'Ascend910*'}}]"
    )
    project.record(KEEP)
    assert check(project)[0] == 0
    project.model(change=0.01)
    project.run(KEEP, passed=1)
    assert check(project)[0] == 0
    project.marked(f"tolerances=[{{'op_type': 'Conv', {wide}}}]")
    project.run(KEEP, failed=1)
    assert check(project)[1]["tests"][0]["comparison"]["summary"]["failed"] == 1
    project.golden.unlink()
    project.model()
    project.recorded("golden_tensors=['block/conv.2'], acl_json={'dump_data': 'tensor'}")
    project.run(KEEP)
    [line] = lines(project)
    assert line["snapshot"]["has_tensors"]
    assert line["refusals"] == []
    assert check(project)[0] == 0
    code, told = check(project, "--preset", "torch")  # elements that were judged may not agree by other terms
    assert (code, told["tests"][0]["verdict"]) == (2, "unjudged")
    assert "elements compared in the run" in told["tests"][0]["why"]


RUNS = """
@pytest.mark.npu_dump
def test_small(npu_dump):
    run(npu_dump, path="{model_of}.onnx")
"""
FIRST_RUN = """
import os

def changed():
    try:
        os.mkdir("ran")
    except FileExistsError:
        return False
    return True

@pytest.mark.npu_dump
def test_small(npu_dump):
    run(npu_dump, path="changed.onnx" if changed() else "small.onnx")
"""
NO_SECOND_RUN = "-onpudump_escalate=off"


@pytest.fixture
def fails_first(project: Project) -> Project:
    """A test that has a golden, and differs from it the first time that it runs from here on."""
    model_of(project, "changed", change=0.01)
    model_of(project, "small")
    project.path.joinpath("ran").mkdir()
    project.test_file(FIRST_RUN)
    project.record()
    project.path.joinpath("ran").rmdir()
    return project


def model_of(project: Project, name: str, **changes: object) -> None:
    project.model(**changes)
    project.path.joinpath("small.onnx").rename(project.path / f"{name}.onnx")


def first_of_two_fails(project: Project, *options: str, root: str = "") -> None:
    """Hold all that a session leaves against what it was: one test failed, and another passed."""
    words = "npudump: 1 of 2 tests passed, 1 failed; 10 of 10 tensors compared; first mismatch block/conv.2:*"
    project.run(*options, NO_SECOND_RUN, "--npudump-output=out", failed=1, passed=1, shows=words)
    [summary] = project.path.rglob("summary.md")
    assert "1 of 2 tests passed" in summary.read_text("utf-8").splitlines()[0]
    assert len([*summary.parent.glob("dumps/*/report.txt")]) == 1
    folder = project.path / root
    assert main(["check", f"{folder}/out/results", "--root", str(folder)]) == 1


def test_tests_outside_of_rootdir(project: Project) -> None:
    """pytest calls each of them ``::test_small``."""
    ci = project.path / "ci"
    ci.mkdir()
    ci.joinpath("pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n")
    files = []
    for name in "ab":
        project.path.joinpath("tests", name).mkdir(parents=True)
        files.append(f"tests/{name}/test_x.py")
        project.test_file(RUNS.format(model_of=f"../../{name}"), files[-1])
        model_of(project, name)
    words = ("-c", "ci/pytest.ini", *files)
    project.run(*words, "--npudump-update-golden", shows="npudump: 2 of 2 tests passed, 2 recorded *")
    assert len([*ci.joinpath("golden").rglob("*.yaml")]) == 2
    model_of(project, "a", change=0.01)
    first_of_two_fails(project, *words, root="ci")
    for number, gaps in (2, 0), (3, 1):
        result = project.run(*words, NO_SECOND_RUN, f"-onpudump_expect={number}")
        assert result.stdout.str().count(f"={number}: 2 marked tests were compared") == gaps


def test_tests_that_are_named_twice(fails_first: Project) -> None:
    """An update compares them with what the first has recorded."""
    files = ("--keep-duplicates", "test_small.py", "test_small.py")
    first_of_two_fails(fails_first, *files)
    lines = fails_first.path.joinpath("out/results/results.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line).get("outcome") for line in lines] == [None, "failed"]
    fails_first.path.joinpath("ran").rmdir()
    update = ("--npudump-update-golden", "-onpudump_repeats=1", NO_SECOND_RUN)
    words = "npudump: 1 of 2 tests passed, 1 recorded, 1 failed; *"
    fails_first.run(*files, *update, passed=1, failed=1, shows=words)


def test_workers_that_each_run_all_tests(fails_first: Project) -> None:
    each = ("--dist=each", "--tx=2*popen")
    first_of_two_fails(fails_first, *each)
    fails_first.refused(
        "ERROR: npudump: --dist=each runs a test in every worker, *", *each, "--npudump-update-golden"
    )
