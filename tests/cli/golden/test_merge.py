"""The merge driver, called by git, in a repository with two branches."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Repository

    Run = Callable[..., Any]

BASE = {"conv": 1.0, "relu": 2.0, "fc": 3.0}


@pytest.fixture
def git(repository: Repository, monkeypatch: pytest.MonkeyPatch, warm: Any) -> Callable[..., Any]:
    """Run git in a repository of its own, whose merge driver is ours."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")

    def call(*words: str, check: bool = True) -> Any:
        return subprocess.run(["git", *words], check=check, capture_output=True, text=True)

    call("init", "-q", "-b", "main")
    call("config", "user.name", "Ada")
    call("config", "user.email", "ada@example.org")
    driver = shlex.join([*warm.client, "npudump"])
    call("config", "merge.npudump.driver", f"{driver} golden merge %O %A %B %P")
    (repository.path / ".gitattributes").write_text("golden/**/*.yaml merge=npudump\n")
    return call


@pytest.fixture
def two_branches(repository: Repository, git: Run) -> Callable[..., Any]:
    """Accept on two branches, and merge one into the other."""

    def merge(ours: dict[str, float], theirs: dict[str, float]) -> Any:
        repository.approve("test_x", BASE)
        git("add", ".")
        git("commit", "-qm", "base")
        git("switch", "-qc", "other")
        repository.approve("test_x", theirs)
        git("commit", "-qam", "theirs")
        git("switch", "-q", "main")
        repository.approve("test_x", ours)
        git("commit", "-qam", "ours")
        return git("merge", "--no-edit", "other", check=False)

    return merge


def test_approvals_of_neighbouring_layers_merge(repository: Repository, two_branches: Run) -> None:
    ours = {"conv": 9.0, "relu": 2.0, "bn": 5.0, "fc": 3.0}
    theirs = {"conv": 1.0, "relu": 8.0, "fc": 3.0, "out": 6.0}
    done = two_branches(ours, theirs)
    assert done.returncode == 0, done.stderr
    found = repository.values("test_x")
    assert [*found.items()] == [("conv", 9.0), ("relu", 8.0), ("bn", 5.0), ("fc", 3.0), ("out", 6.0)]


def test_a_layer_that_both_changed_stops_the_merge_and_has_markers(
    repository: Repository, two_branches: Run, run: Run
) -> None:
    done = two_branches(BASE | {"relu": 7.0, "conv": 9.0}, BASE | {"relu": 8.0})
    assert done.returncode == 1
    assert "conflict in relu:output.0" in done.stderr
    text = repository.golden("test_x").read_text()
    assert text.count("<<<<<<< ours\n  relu float32") == text.count("<<<<<<<") == 1
    assert "  conv float32 2 9.0" in text or "  conv float32 2 9 " in text
    assert "conflict markers" in run("golden", "status", "--no-collect").out


def test_what_is_no_golden_is_left_to_the_markers_of_git(repository: Repository, run: Run) -> None:
    for name, text in (("base", "a\n"), ("ours", "b\n"), ("theirs", "c\n")):
        (repository.path / name).write_text(text)
    done = run("golden", "merge", "base", "ours", "theirs", "golden/x.yaml")
    assert done.code == 1
    assert "golden/x.yaml" in done.err
    assert (repository.path / "ours").read_text() == "<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n"
    for name in ("base", "ours", "theirs"):  # which git cannot merge either
        (repository.path / name).write_bytes(f"{name}\0\xff".encode("latin-1"))
    done = run("golden", "merge", "base", "ours", "theirs")
    assert (done.code, "merge by hand" in done.err) == (2, True)
    assert (repository.path / "ours").read_bytes() == b"ours\0\xff"
    repository.approve("test_x", BASE)  # a file that is missing is no conflict
    path = repository.golden("test_x")
    before = path.read_bytes()
    assert run("golden", "merge", path, path, "nowhere").code == 2
    assert path.read_bytes() == before
