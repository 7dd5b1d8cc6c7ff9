"""The end of a session names the command that decides about its failing runs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.cli import main

if TYPE_CHECKING:
    from conftest import Project


@pytest.mark.parametrize(
    ("options", "folder"), [((), ""), (("--npudump-results=my kept",), " --results 'my kept'")]
)
def test_runs_that_fail_or_have_no_golden_wait(
    project: Project, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], folder: str
) -> None:
    project.pytester.makeini("[pytest]\n")  # with pytest's cache
    project.marked()
    words = f"npudump: 1 run waits for a decision: npudump golden review{folder}"
    project.run(*options).stdout.fnmatch_lines([words, "npudump: 0 of 1 tests good*"])
    monkeypatch.chdir(project.path)
    kept = ["--results", "my kept"] if options else []
    assert main(["golden", "accept", *kept]) == 0
    project.run(*options).stdout.no_fnmatch_line("*for a decision*")
    project.model(change=0.01)
    project.run(*options).stdout.fnmatch_lines([words])


def test_the_command_is_for_the_folder_in_which_pytest_was_started(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.pytester.makeini("[pytest]\n")
    project.marked()
    for name in ("ci", "sub"):
        project.path.joinpath(name).mkdir()
    project.path.joinpath("ci/pytest.ini").write_text("[pytest]\n", "utf-8")
    monkeypatch.chdir(project.path / "sub")
    for options in ((), ("--npudump-results=my kept",), ("-c", "../ci/pytest.ini")):
        result = project.run(*options, "../test_small.py")
        [line] = [line for line in result.outlines if "for a decision" in line]
        words = shlex.split(line.partition("npudump golden ")[2])
        assert main(["golden", "pending", *words[1:]]) == 1, words
        assert "test_small.py::test_small" in capsys.readouterr().out, words


def test_what_is_not_kept_does_not_wait(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.pytester.makeini("[pytest]\n")
    project.marked()
    project.run("-p", "no:cacheprovider").stdout.no_fnmatch_line("*for a decision*")
    monkeypatch.setenv("CI", "true")
    project.run().stdout.no_fnmatch_line("*for a decision*")
    project.run("--npudump-results=kept").stdout.fnmatch_lines(["*golden review --results kept"])


PLANT = "    from pytest_npudump.emulator import faults\n    faults."
ONES = "    run(npu_dump, np.ones((1, 1, 8, 8), np.float32))\n"
FAILING = {
    "check_op": ("", "    npu_dump.check_op('Relu', np.array([1, 2], 'f2'), reference=lambda a: a + 1)\n"),
    "watcher": (
        ", layers=['block/conv.2'], watcher_nodes=['block/conv.1']",
        f"{PLANT}trample('small', by='block/conv.2', victim='block/conv.1', first=12, elements=37)\n{ONES}",
    ),
    "exception": (
        ", isolation='none'",
        f"{PLANT}fail('block/conv.2')\n    with contextlib.suppress(Exception):\n    {ONES}",
    ),
}
RUN = """
import contextlib

def run(npu_dump, image):
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)

"""


@pytest.mark.e2e
def test_what_a_scene_without_statistics_finds_is_nothing_to_decide(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = {**FAILING, "overflow": ("", project.overflowing())}
    tests = [
        f"@pytest.mark.npu_dump(scene={scene!r}{more})\ndef test_{scene}(npu_dump):\n{body}"
        for scene, (more, body) in failing.items()
    ]
    project.test_file(RUN + "".join(tests))
    # In a process of its own: a failed operator leaves its mark in the emulator.
    options = ("--npudump-runtime=emulator", "--npudump-results=kept", "--npudump-summary=summary.md")
    result = project.pytester.runpytest_subprocess(*options)
    result.assert_outcomes(failed=4)
    for words in ("*for a decision*", "*golden review*", "*golden accept*"):
        result.stdout.no_fnmatch_line(words)
    summary = (project.path / "summary.md").read_text("utf-8")
    assert "golden review" not in summary
    assert "golden accept" not in summary
    monkeypatch.chdir(project.path)
    capsys.readouterr()
    for verb in (["pending"], ["accept"], ["review"]):
        assert main(["golden", *verb, "--results", "kept"]) == 0
        assert capsys.readouterr().out == "no run waits for a decision\n"
    assert main(["check", "kept"]) == 1
    assert "approve" not in capsys.readouterr().out


def test_a_body_that_fails_leaves_nothing_to_decide(project: Project) -> None:
    project.marked(body="    assert False\n")
    project.run("--npudump-results=kept").stdout.no_fnmatch_line("*for a decision*")
