"""What pending review: listed, shown and taken off the list."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.golden.conftest import Repository

Verb = Callable[..., Any]
GOLDEN = {"conv": 1.0, "fc": 3.0}


@pytest.fixture
def waiting(repository: Repository) -> Repository:
    """A small change, a large one, a new layer, a test without a golden, and one that passes."""
    for name in ("test_small", "test_large", "test_layer", "test_good"):
        repository.approve(name, GOLDEN)
    repository.keep("test_new", GOLDEN)
    repository.keep("test_small", {"conv": 1.001, "fc": 3.0})
    repository.keep("test_large", {"conv": 2.0, "fc": 3.0})
    repository.keep("test_layer", {"conv": 1.0, "fc": 3.0, "last": 1.0})
    repository.keep("test_good", GOLDEN, status="passed")
    return repository


def test_the_largest_change_comes_first_and_what_passed_is_not_there(
    waiting: Repository, golden_command: Verb
) -> None:
    waiting.keep("test_large", {"conv": 2.0, "fc": 3.001})
    done = golden_command("diff")
    assert done.code == 1
    assert done.out.splitlines()[:5] == [
        "pending review:",
        "  test_a.py::test_layer: mismatches: 0 of 2 tensors, 1 new, first last:output.0",
        "  test_a.py::test_large: mismatches: 2 of 2 tensors, up to 200000x tolerance, first conv:output.0",
        "  test_a.py::test_small: mismatches: 1 of 2 tensors, up to 200x tolerance, first conv:output.0",
        "  test_a.py::test_new: no golden file",
    ]
    told = {one["test"].partition("::")[2]: one for one in golden_command("diff", "--json", "-").json}
    assert told["test_large"]["largest"] == pytest.approx(1 / 5e-6, rel=1e-3)  # the mean decides
    assert told["test_layer"]["incomparable"] == 1
    assert told["test_new"]["has_golden"] is False
    assert all(one["refusals"] == [] for one in told.values())
    assert waiting.decisions()["test_large"] is None


def test_diff_shows_the_sources_before_what_they_explain(
    repository: Repository, golden_command: Verb
) -> None:
    values = {"one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0}
    repository.approve("test_large", values)
    path = repository.golden("test_large")
    edges = "edges: |\n  one < -\n  two < one:output.0\n  three < -\n  four < three:output.0\n"
    path.write_text(path.read_text("utf-8") + edges, "utf-8")
    repository.keep("test_large", {"one": 1.5, "two": 2.5, "three": 3.5, "four": 4.5})
    done = golden_command("diff")
    assert "  sources:    2: one:output.0" in done.out
    [told] = golden_command("diff", "--json", "-").json
    assert [one["layer"] for one in told["verdicts"]] == ["one", "three", "two", "four"]


def test_a_terminal_has_no_line_wider_than_it_but_what_is_to_be_copied(
    repository: Repository, golden_command: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "model/encoder/layers_11/self_attention/output/dense/projection_block/"
    names = [f"{prefix}matmul_{number}" for number in range(3)]
    assert len(names[0]) > 70
    repository.approve("test_long", dict.fromkeys(names, 1.0))
    repository.keep("test_long", dict.fromkeys(names, 2.0))
    whole = golden_command("diff").out.splitlines()
    assert sum(names[0] in line for line in whole) >= 1
    monkeypatch.setenv("COLUMNS", "80")
    fitted = golden_command("diff").out.splitlines()
    assert [line for line in fitted if len(line) > 80] == []
    assert any(line.startswith("  .../matmul_2  ") for line in fitted)


def test_diff_shows_each_layer_and_by_how_much(waiting: Repository, golden_command: Verb) -> None:
    done = golden_command("diff", "test_a.py::test_large")
    assert done.code == 1
    assert "mismatches: 1 of 2 tensors, up to " in done.out
    assert "conv   Conv  output.0" not in done.out.splitlines()[0]
    assert any(line.split()[:2] == ["conv", "output.0"] for line in done.out.splitlines())
    [told] = golden_command("diff", "test_a.py::test_large", "--json", "-").json
    assert [one["layer"] for one in told["verdicts"]] == ["conv"]
    [told] = golden_command("diff", "test_a.py::test_large", "--layers", "fc", "--json", "-").json
    assert told["verdicts"] == []
    words = "npudump: no layer with a mismatch matches nosuch; layers with mismatches: conv"
    done = golden_command("diff", "test_a.py::test_large", "--layers", "nosuch")
    assert (done.code, done.err.split()) == (1, words.split())
    assert waiting.decisions()["test_large"] is None


def test_tests_are_named_by_file_glob_or_id(waiting: Repository, golden_command: Verb) -> None:
    for name in ("test_a.py", "test_a.py::test_s*", "test_a.py::test_small", "test_s*", "test_small"):
        found = golden_command("diff", name, "--json", "-").json
        assert len(found) == (4 if name == "test_a.py" else 1), name
    for verb in ("diff", "accept", "reject"):
        done = golden_command(verb, "test_a.py::test_good")
        assert (done.code, "matches no pending run" in done.err) == (2, True)
    assert waiting.values("test_good") == GOLDEN
    known = golden_command("diff", "test_smal*x").err.strip().partition("pending: ")[2].split(", ")
    assert known == [f"test_a.py::test_{name}" for name in ("layer", "large", "small", "new")]
    assert waiting.golden("test_small").exists()


def test_what_is_rejected_or_was_corrected_since_no_longer_waits(
    waiting: Repository, golden_command: Verb
) -> None:
    waiting.approve("test_layer", {"conv": 1.0, "fc": 3.0, "last": 1.0})
    tests = [one["test"] for one in golden_command("diff", "--json", "-").json]
    assert "test_a.py::test_layer" not in tests
    assert golden_command("reject", "test_a.py::test_large").code == 0
    assert waiting.decisions()["test_large"] == "rejected"
    assert waiting.values("test_large") == GOLDEN
    assert len(golden_command("diff", "--json", "-").json) == len(tests) - 1 == 2
    golden_command("reject")
    assert golden_command("diff", "test_a.py::x").err == "npudump: test_a.py::x: no run is pending review\n"


def test_a_test_that_was_run_is_meant_alone_though_its_id_is_a_glob_of_another(
    repository: Repository, golden_command: Verb
) -> None:
    for name in ("test_n[1]", "test_n1", "test_n[2]", "test_n2"):
        repository.approve(name, GOLDEN)
        changed = {} if name == "test_n[2]" else {"conv": 2.0}
        repository.keep(name, GOLDEN | changed, **({} if changed else {"status": "passed"}))
    for name in ("test_a.py::test_n[1]", "test_n[1]", "test_n"):
        asked = golden_command("diff", name, "--json", "-").json
        assert [one["test"] for one in asked] == ["test_a.py::test_n[1]"]
    for verb in ("diff", "accept", "reject"):
        done = golden_command(verb, "test_a.py::test_n[2]")  # it passed, and test_n2 is another one
        assert (done.code, "matches no pending run" in done.err) == (2, True)
    assert golden_command("reject", "test_a.py::test_n[1]").code == 0
    assert decided(repository) == {"test_n[1]": "rejected"}
    repository.keep("test_n[1]", {"conv": 2.0, "fc": 3.0})
    assert golden_command("accept", "test_a.py::test_n[1]").code == 0
    assert decided(repository) == {"test_n[1]": "accepted"}
    assert (repository.values("test_n[1]")["conv"], repository.values("test_n1")["conv"]) == (2.0, 1.0)
    assert len(golden_command("diff", "test_a.py::test_n?", "--json", "-").json) == 2  # a glob
    repository.keep("test_n[3]", {"conv": 2.0, "fc": 3.0})
    repository.keep("test_n[4]", {"conv": 2.0, "fc": 3.0})
    assert "matches no pending run" in golden_command("accept", "test_n").err  # several


def decided(repository: Repository) -> dict[str, str]:
    return {test: made for test, made in repository.decisions().items() if made is not None}


def test_results_lie_in_pytest_s_cache_by_default_and_are_found_from_a_folder_below(
    waiting: Repository, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "run the tests, or name the folder" in run("golden", "diff").err
    cached = waiting.path / ".pytest_cache/d/npudump"
    cached.mkdir(parents=True)
    waiting.kept.rename(cached / "results")
    below = waiting.path / "sub/folder"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert run("golden", "diff").err == ""
    second = waiting.path / "second"
    shutil.copytree(cached / "results", second)
    (second / "results.jsonl").touch()
    (cached / "last").write_text(str(second), "utf-8")
    for verb in ("diff", "status"):
        assert run("golden", verb).err.startswith(f"npudump: results: {second}, the newest of 2 folders\n")


def test_results_of_another_desk_find_this_repository_s_goldens_in_it_alone(
    waiting: Repository, run: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any
) -> None:
    artifact = tmp_path_factory.mktemp("artifact") / "kept"
    waiting.kept.rename(artifact)
    waiting.kept.symlink_to(artifact)
    results = ("--results", waiting.kept)
    assert run("golden", "accept", "test_a.py::test_large", *results).code == 0
    assert waiting.values("test_large") == {"conv": 2.0, "fc": 3.0}
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = run("golden", "diff", *results)
    assert (done.code, "go to the repository of the tests" in done.err) == (2, True)
    assert run("golden", "diff", *results, "--root", waiting.path).code == 1
