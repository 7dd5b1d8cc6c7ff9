"""Runs become goldens by what was kept of them: wholly or in some layers, where nothing has changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from pytest_npudump.golden.store import read_golden
from pytest_npudump.record.record import SHARDS
from pytest_npudump.record.rows import whole
from tests.cli.golden.conftest import Repository

Verb = Callable[..., Any]
BEFORE = {"conv": 1.0, "relu": 2.0, "fc": 3.0}
AFTER = {"conv": 1.5, "relu": 2.0, "new": 7.0, "fc": 4.0}


@pytest.fixture
def waiting(repository: Repository) -> Repository:
    """A repository with one run that differs in two layers, and has one more."""
    repository.approve("test_one", BEFORE, note="kept", reason="the first")
    repository.keep("test_one", AFTER)
    return repository


def test_accept_makes_the_run_the_golden(waiting: Repository, golden_command: Verb) -> None:
    before, kept = waiting.golden("test_one").read_bytes(), waiting.decisions()
    done = golden_command("accept", "--reason", "retrained")
    assert (done.code, done.err) == (0, "")
    assert waiting.values("test_one") == AFTER
    assert read_golden(waiting.golden("test_one")).extra == {"note": "kept", "reason": "retrained"}
    assert waiting.decisions() == {"test_one": "accepted"}
    assert golden_command("diff").code == 0
    english = waiting.golden("test_one").read_bytes()
    changed = {*english.decode().splitlines()} ^ {*before.decode().splitlines()}
    told = {whole(line.split()[0]) for line in changed if not line.startswith("reason")}
    assert told == {"conv:output.0", "new:output.0", "fc:output.0"}
    for options, same in ((("--reason", "retrained", "--lang", "zh"), True), ((), False)):
        waiting.golden("test_one").write_bytes(before)
        waiting.keep("test_one", AFTER)
        assert waiting.decisions() == kept
        done = golden_command("accept", *options)
        assert (waiting.golden("test_one").read_bytes() == english) is same
        assert (done.out.splitlines()[-1] == "1 次运行中接受了 1 次") is same
    assert "reason" not in read_golden(waiting.golden("test_one")).extra  # of an earlier change


def test_a_first_golden_says_that_it_is_of_statistics(repository: Repository, golden_command: Verb) -> None:
    repository.keep("test_one", AFTER)
    repository.keep("test_two", AFTER, runtime="mindspore")
    assert golden_command("diff").out.count("note: the first golden is of a single run; --npudump-upd") == 2
    done = golden_command("accept")
    assert done.code == 0, done.err
    assert done.out.count("recorded with statistics; --npudump-update-golden") == 1
    repository.keep("test_one", BEFORE)
    assert "recorded with statistics" not in golden_command("accept").out


def test_accept_takes_some_layers(waiting: Repository, golden_command: Verb) -> None:
    before = waiting.golden("test_one").read_bytes()
    done = golden_command("accept", "--layers", "relu")
    assert done.code == 2
    assert "no layer with a mismatch matches relu; layers with mismatches: conv, new, fc" in done.err
    assert waiting.values("test_one") == BEFORE
    for patterns, expected in (
        ("conv", {"conv": 1.5, "relu": 2.0, "fc": 3.0}),
        ("f*", {"conv": 1.0, "relu": 2.0, "fc": 4.0}),
        ("conv:output.0", {"conv": 1.5, "relu": 2.0, "fc": 3.0}),  # as reports show it
        ("new", {"conv": 1.0, "relu": 2.0, "new": 7.0, "fc": 3.0}),
        ("conv new", {"conv": 1.5, "relu": 2.0, "new": 7.0, "fc": 3.0}),
        ("*", AFTER),
    ):
        waiting.golden("test_one").write_bytes(before)
        waiting.keep("test_one", AFTER)
        words = [word for pattern in patterns.split() for word in ("--layers", pattern)]
        done = golden_command("accept", *words)
        assert (done.code, done.err) == (0, ""), patterns
        assert [*waiting.values("test_one").items()] == [*expected.items()], patterns
        assert golden_command("diff").code == (0 if expected == AFTER else 1), patterns
    waiting.golden("test_one").write_bytes(before)
    waiting.keep("test_one", AFTER)
    for words in (("--layers", "conv"), ("--layers", "fc"), ()):  # the rest is accepted later
        assert golden_command("accept", *words).code == 0
    assert waiting.values("test_one") == AFTER


def test_digests_of_weights_are_accepted_with_their_layers(
    repository: Repository, golden_command: Verb
) -> None:
    before, after = ({"": {name: {"w": f"float32 2 {digit * 8}"} for name in BEFORE}} for digit in "AB")
    both = {"": {**before[""], "conv": after[""]["conv"]}}
    for words, expected in ((("--layers", "conv"), both), ((), after)):
        repository.approve("test_one", BEFORE, **{SHARDS: before})
        repository.keep("test_one", AFTER, extra={SHARDS: after})
        done = golden_command("accept", *words)
        assert (done.code, done.err) == (0, "")
        assert read_golden(repository.golden("test_one")).extra[SHARDS] == expected


def test_a_common_golden_that_is_accepted_keeps_the_facts_of_its_variants(
    repository: Repository, golden_command: Verb
) -> None:
    facts = {"b": {"soc": "B"}}
    repository.approve("test_one", BEFORE, variants=facts)
    repository.keep("test_one", AFTER)
    assert golden_command("accept").code == 0
    assert read_golden(repository.golden("test_one")).extra["variants"] == facts


def test_a_layer_that_is_there_is_accepted_alone_though_its_name_is_a_glob_of_another(
    repository: Repository, golden_command: Verb
) -> None:
    repository.approve("test_one", {"net/blk[1]": 1.0, "net/blk1": 1.0, "fc[1]": 1.0, "fc1": 1.0})
    repository.keep("test_one", {"net/blk[1]": 2.0, "net/blk1": 2.0, "fc[1]": 1.0, "fc1": 2.0})
    for spelling in ("net/blk[1]", "net_blk[1]", "net/blk[1]:output.0"):
        [told] = golden_command("diff", "--layers", spelling, "--json", "-").json
        assert [one["layer"] for one in told["verdicts"]] == ["net/blk[1]"]
    done = golden_command("accept", "--layers", "fc[1]")  # it is as it was
    assert (done.code, "no layer with a mismatch matches fc" in done.err) == (2, True)
    assert golden_command("accept", "--layers", "net/blk[1]").code == 0
    assert repository.values("test_one") == {"net/blk[1]": 2.0, "net/blk1": 1.0, "fc[1]": 1.0, "fc1": 1.0}


EDGES = "edges: |\n  conv < -\n  relu < conv:output.0\n  fc < relu:output.0\n"


def test_a_test_without_a_golden_gets_one_and_a_layer_that_went_is_taken_out(
    repository: Repository, golden_command: Verb
) -> None:
    repository.keep("test_one", BEFORE)
    assert golden_command("accept", "--layers", "conv").code == 2
    assert golden_command("accept").code == 0
    assert repository.values("test_one") == BEFORE
    path = repository.golden("test_one")
    path.write_text(path.read_text("utf-8") + EDGES, "utf-8")
    repository.keep("test_one", {"conv": 9.0, "fc": 3.0})
    done = golden_command("accept", "--layers", "relu")
    assert (done.code, done.err) == (0, "")
    assert repository.values("test_one") == {"conv": 1.0, "fc": 3.0}
    assert "conv < -\n" in read_golden(path).blocks["edges"]
    assert "relu <" not in read_golden(path).blocks["edges"]


def test_a_layer_that_is_misspelt_accepts_nothing(repository: Repository, golden_command: Verb) -> None:
    for name, layer in (("test_a", "conv"), ("test_b", "fc")):
        repository.approve(name, {layer: 1.0})
        repository.keep(name, {layer: 2.0})
    done = golden_command("accept", "--layers", "conv", "--layers", "cf")
    assert (done.code, done.out) == (2, "")
    assert "no layer with a mismatch matches cf; layers with mismatches: conv, fc" in done.err
    assert [repository.values(name) for name in ("test_a", "test_b")] == [{"conv": 1.0}, {"fc": 1.0}]
    assert golden_command("accept", "--layers", "conv", "--layers", "fc").code == 0


MEASURED = {"repeats": {"runs": 2}, "calibration": {"members": 20, "factor": 7, "varied": ["inputs"]}}
CELLS = ("1e-5,-,-,-", "~2e-5,-,-,-,1e-6", "-")


def test_a_run_of_other_numerics_takes_no_noise_over_and_that_is_said_before(
    repository: Repository, golden_command: Verb
) -> None:
    repository.approve("test_one", BEFORE, noise=CELLS, **MEASURED)
    repository.keep("test_one", AFTER, runtime="torch_npu")
    note = "note: recorded from a single run, and runtime changed; the golden's calibration was removed"
    assert note in golden_command("diff").out
    done = golden_command("accept")
    assert (done.code, done.err) == (0, "")
    assert note in done.out
    golden = read_golden(repository.golden("test_one"))
    assert golden.extra["repeats"] == {"runs": 1}
    assert "calibration" not in golden.extra
    assert golden.table.noise == ()


def test_a_run_of_the_same_numerics_keeps_the_noise_of_all_that_is_alike(
    repository: Repository, golden_command: Verb
) -> None:
    repository.approve("test_one", BEFORE, noise=CELLS, **MEASURED)
    repository.keep("test_one", AFTER)
    note = "note: noise unknown for 1 of 4 tensors"
    assert note in golden_command("diff").out
    done = golden_command("accept", "--layers", "conv", "--layers", "new")
    assert (done.code, done.err) == (0, "")
    assert note in done.out
    golden = read_golden(repository.golden("test_one"))
    assert golden.table.noise == (CELLS[0], CELLS[1], "-", CELLS[2])
    assert golden.extra == {**MEASURED, "repeats": {"runs": 2, "compared": 2}}
    assert golden_command("accept", "--layers", "fc").code == 0
    golden = read_golden(repository.golden("test_one"))
    assert golden.table.noise == (CELLS[0], CELLS[1], "-", CELLS[2])
    assert golden.extra["repeats"] == {"runs": 2, "compared": 1}
    assert repository.values("test_one") == AFTER


def _other_record(repository: Repository) -> None:
    (record,) = repository.kept.rglob("*.yaml")
    record.write_text(record.read_text("utf-8").replace("1.5", "1.6"), "utf-8")


def _outside(repository: Repository) -> None:
    lines = repository.kept / "results.jsonl"
    (repository.path / "golden").rename(repository.path.parent / "goldens")
    lines.write_text(lines.read_text("utf-8").replace('"folder":"golden"', '"folder":"../goldens"'), "utf-8")


RANKS = {"refusals": ["several ranks or devices have one golden, of which one was kept"]}
TEARDOWN = {"incomplete": "its teardown did not pass"}
REFUSALS: list[tuple[dict[str, Any], Callable[[Repository], object], str]] = [
    (TEARDOWN, str, "its run was incomplete: its teardown did not pass"),
    (RANKS, str, "several ranks"),
    ({"runtime": "emulator"}, str, "the run is from the emulator, the golden from a device"),
    ({"record": None, "snapshot": None}, str, "it has no statistics"),
    ({}, lambda r: r.approve("test_one", {**BEFORE, "conv": 8.0}), "has changed since the run"),
    ({}, lambda r: r.golden("test_one").unlink(), "has changed since the run"),
    ({}, lambda r: (r.path / "test_a.py").write_text("# another\n"), "test_a.py has changed since the run"),
    (
        {},
        lambda r: r.golden("test_one").with_suffix(".safetensors").write_bytes(b"tensors"),
        "its golden keeps tensors",
    ),
    ({}, _other_record, "not the record that was kept"),
    ({}, _outside, "lies outside of"),
]
"""What is kept of a run, what is done to the repository behind it, and why it is not accepted."""


@pytest.mark.parametrize(("changes", "spoil", "why"), REFUSALS, ids=[why for _, _, why in REFUSALS])
def test_accept_is_refused(
    repository: Repository, golden_command: Verb, changes: Any, spoil: Any, why: str
) -> None:
    repository.approve("test_one", BEFORE)
    repository.keep("test_one", AFTER, **changes)
    spoil(repository)
    path = repository.golden("test_one")
    before = path.read_bytes() if path.exists() else None
    done = golden_command("accept")
    assert (done.code, why in done.err) == (2, True)
    assert (path.read_bytes() if path.exists() else None) == before
    assert repository.decisions() == {"test_one": None}


def test_one_refusal_leaves_the_others_accepted(repository: Repository, golden_command: Verb) -> None:
    for name, changes in (("test_one", TEARDOWN), ("test_two", {})):
        repository.approve(name, BEFORE)
        repository.keep(name, AFTER, **changes)
    done = golden_command("accept")
    assert (done.code, "1 of 2 accepted" in done.out) == (2, True)
    assert (repository.values("test_one"), repository.values("test_two")) == (BEFORE, AFTER)


def test_a_run_whose_test_is_gone_can_be_rejected(repository: Repository, golden_command: Verb) -> None:
    repository.keep("test_one", AFTER)
    (repository.path / "test_a.py").unlink()
    done = golden_command("accept", "--root", repository.path)
    assert done.code == 2
    assert (
        f"refused: test_a.py is not in {repository.path}: name the repository with --root, or reject"
        in done.err
    )
    assert golden_command("reject", "--root", repository.path).code == 0
    assert golden_command("diff", "--root", repository.path).code == 0


def test_a_gate_does_not_accept(
    waiting: Repository, golden_command: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("JENKINS_URL", "TF_BUILD", "GITLAB_CI", "GITHUB_ACTIONS", "CI"):
        monkeypatch.setenv(variable, "true")
        for command in ("accept", "review"):
            done = golden_command(command)
            assert (done.code, f"as the variable {variable} is set" in done.err) == (2, True)
        monkeypatch.delenv(variable)
    monkeypatch.setenv("CI", "true")
    assert waiting.values("test_one") == BEFORE
    assert golden_command("accept", "--allow-in-ci").code == 0


def test_results_that_cannot_be_written_do_not_stop_an_approval(
    waiting: Repository, golden_command: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_npudump.results.folder import ResultsFolder

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(ResultsFolder, "update", refuse)
    done = golden_command("accept")
    assert (done.code, "the decision cannot be saved" in done.err) == (0, True)
    assert waiting.values("test_one") == AFTER
    assert golden_command("diff").code == 0


KILLED = """
import json, os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from pytest_npudump.cli import main
from conftest import Repository
from killed import killed

NAMES = (".npudump-", "golden/", "results.jsonl")
BEFORE, AFTER = {"conv": 1.0, "fc": 3.0}, {"conv": 1.5, "fc": 4.0}

def accept():
    return main(["golden", "accept", "--results", "kept"])

found = []
for step in range(1, 100):
    folder = Path(sys.argv[1]) / str(step)
    folder.mkdir()
    os.chdir(folder)
    (folder / "test_a.py").write_text("")
    repository = Repository(folder)
    repository.approve("test_one", BEFORE)
    repository.keep("test_one", AFTER)
    status = killed(accept, step, *NAMES)
    between = repository.values("test_one")
    decision = repository.decisions()["test_one"]
    again = killed(accept, 0)
    found.append([status, between, decision, again, repository.values("test_one")])
    if status == 0:
        break
print(json.dumps(found))
"""


def test_a_kill_before_any_step_leaves_the_golden_old_or_new(
    repository: Repository, where_killed: Callable[..., Any]
) -> None:
    here = os.path.dirname(__file__)  # noqa: PTH120 - for a child's search path
    *cut, whole = where_killed(KILLED, repository.path, here)
    old, new = {"conv": 1.0, "fc": 3.0}, {"conv": 1.5, "fc": 4.0}
    assert len(cut) >= 8
    assert whole == [0, new, "accepted", 0, new]
    for status, between, decision, again, end in cut:
        assert status == signal.SIGKILL
        assert between in (old, new)
        assert decision in ({None} if between == old else {None, "accepted"})
        assert (again, end) == (0, new)


def test_no_verb_writes_or_removes_through_a_symbolic_link(
    repository: Repository, run: Callable[..., Any]
) -> None:
    repository.approve("test_b", {"conv": 1.0})
    repository.approve("test_a", {"conv": 1.0})
    path = repository.golden("test_a")
    target = repository.path / "elsewhere.yaml"
    path.rename(target)
    before = target.read_bytes()
    path.symlink_to(target)
    repository.keep("test_a", {"conv": 2.0})
    variant = path.with_name("test_a@other.yaml")
    variant.symlink_to(target)
    for words in (
        ("golden", "accept", "test_a.py::test_a", "--results", "kept"),
        ("golden", "fold", variant),
        ("golden", "fold", "--whole", variant),
        ("golden", "merge", repository.golden("test_b"), path, repository.golden("test_b"), path),
    ):
        done = run(*words)
        assert done.code, words
        assert "is a symbolic link, through which nothing is written" in done.out + done.err, words
        assert path.is_symlink(), words
        assert variant.is_symlink(), words
        assert target.read_bytes() == before, words
