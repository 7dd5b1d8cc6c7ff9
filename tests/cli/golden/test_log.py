"""A golden's history, as git has it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.golden.path import golden_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Repository

    Run = Callable[..., Any]


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=Ada", "-c", "user.email=a@example.org", *words], check=True)


@pytest.fixture
def commit(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Accept a golden, and commit it."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    git("init", "-q")

    def call(subject: str, values: dict[str, float], **extra: Any) -> None:
        repository.approve("test_x", values, **extra)
        git("add", ".")
        git("commit", "-qm", subject)

    return call


def test_each_commit_says_what_it_changed_and_why(
    repository: Repository, commit: Callable[..., None], run: Run
) -> None:
    commit("first", {"conv": 1.0, "fc": 2.0})
    commit("new weights", {"conv": 1.5, "fc": 2.0, "out": 3.0}, reason="trained longer", runtime="emulator")
    commit("no head", {"conv": 1.5, "fc": 2.0}, runtime="emulator")
    done = run("golden", "log", repository.golden("test_x"))
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.partition(" ")[2].partition(" ")[2] for line in lines if line[0] != " "] == [
        "Ada: no head",
        "Ada: new weights",
        "Ada: first",
    ]
    assert [line for line in lines if line[0] == " "] == [
        "  out:output.0: gone",
        "  reason: trained longer",
        "  runtime acl -> emulator",
        "  conv:output.0: max 1 -> 1.5, min 1 -> 1.5, avg 1 -> 1.5",
        "  out:output.0: new",
        "  recorded, 2 tensors",
    ]


def test_one_layer_has_the_commits_that_touch_it(
    repository: Repository, commit: Callable[..., None], run: Run
) -> None:
    commit("first", {"conv": 1.0, "fc": 2.0, "blk[1]": 1.0, "blk1": 2.0})
    commit("conv", {"conv": 1.5, "fc": 2.0, "blk[1]": 1.0, "blk1": 2.5})
    commit("fc", {"conv": 1.5, "fc": 2.5, "blk[1]": 1.0, "blk1": 2.5})
    for layer, key, subjects in (
        ("conv", "conv:output.0", ["conv", "first"]),
        ("conv:output.0", "conv:output.0", ["conv", "first"]),
        ("blk[1]", "blk[1]:output.0", ["first"]),  # though its name is a glob of another
    ):
        told = run("golden", "log", repository.golden("test_x"), layer, "--json", "-").json
        found = [(one["subject"], [change["key"] for change in one["changes"]]) for one in told]
        assert found == [(subject, [key]) for subject in subjects]
    done = run("golden", "log", repository.golden("test_x"), "cnv")
    assert done.code == 2
    assert "no revision has a layer 'cnv'; did you mean conv?" in done.err


@pytest.mark.each("name", ["test_x", "TestA::test_x", "TestA::TestB::test_x[a-b]", "test_x[c::d/e]"])
def test_a_golden_is_named_as_its_test_is(
    repository: Repository, commit: Callable[..., None], run: Run, name: str
) -> None:
    test, bracket, case = name.partition("[")
    *classes, function = test.split("::")
    path = golden_path(
        Path("golden"),
        test_file=Path("test_a.py"),
        classes=classes,
        name=function,
        param_id=case.removesuffix("]") if bracket else None,
    )
    repository.approve("test_x", {"conv": 1.0})
    text = repository.golden("test_x").read_text("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    commit("first", {"conv": 1.0})
    for verb in ("show", "log"):
        told = run("golden", verb, f"test_a.py::{name}")
        assert (told.code, told.out) == (0, run("golden", verb, path).out)
        missing = run("golden", verb, f"test_b.py::{name}")
        assert missing.code == 2
        assert "golden/test_b/" in missing.err


def test_a_golden_is_named_by_the_last_parts_of_its_test_and_from_a_folder_below(
    repository: Repository, commit: Callable[..., None], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.approve("test_y[a]", {"conv": 1.0})
    repository.approve("test_y[b]", {"conv": 1.0})
    commit("first", {"conv": 1.0})
    path = repository.golden("test_x").absolute()
    (below := Path("below").absolute()).mkdir()
    for folder in (Path.cwd(), below):
        monkeypatch.chdir(folder)
        for verb in ("show", "log"):
            expected = run("golden", verb, path, "--json", "-").json
            for name in ("test_x", "test_a.py::test_x"):
                assert run("golden", verb, name, "--json", "-").json == expected
            done = run("golden", verb, "test_y")
            assert done.code == 2
            assert "test_y names several goldens: test_a.py::test_y[a], test_a.py::test_y[b]" in done.err
            assert run("golden", verb, "test_y[b]").code == 0


@pytest.mark.e2e
def test_a_renamed_golden_has_its_history_and_an_unreadable_revision_says_so(
    repository: Repository, commit: Callable[..., None], run: Run
) -> None:
    values = {f"conv{number}": 1.0 for number in range(20)}
    commit("first", values)
    path = repository.golden("test_x")
    text = path.read_text()
    path.write_text(text.replace("npudump-golden: 1", "npudump-golden: 77"))
    git("commit", "-qam", "odd")
    path.write_text(text)
    new = path.with_name("test [é].yaml")
    git("mv", str(path), str(new))
    git("commit", "-qam", "moved")
    done = run("golden", "log", new)
    assert "Ada: moved\n  recorded, 20 tensors" in done.out
    assert "Ada: odd\n  cannot be read: " in done.out
    assert "Ada: first\n  recorded, 20 tensors" in done.out
    repository.approve("test_y", values | {"conv3": 2.0})  # like another, of which it has no history
    commit("second", values)
    done = run("golden", "log", repository.golden("test_y"))
    assert [line.partition("Ada: ")[2] for line in done.out.splitlines()] == ["second", ""]
    assert done.out.endswith("\n  recorded, 20 tensors\n")


def test_a_file_that_git_does_not_know_has_no_history(repository: Repository, run: Run) -> None:
    repository.approve("test_x", {"conv": 1.0})
    path = repository.golden("test_x")
    for named, told in (
        (path, "no history: not a git repository"),
        (path, "no history: the repository has no commit yet: commit the goldens first"),
        ("golden", "golden: is a folder: name a golden file, or the test that it is of"),
    ):
        done = run("golden", "log", named)
        assert (done.code, told in done.err) == (2, True)
        subprocess.run(["git", "init", "-q"], check=True)
