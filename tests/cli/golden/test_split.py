"""Variants are split from the common golden and folded into it, and every command knows them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.golden.approval_merge import merge
from pytest_npudump.golden.store import read_golden, tensors_path, write_golden
from pytest_npudump.record.text import parse
from tests.cli.golden.conftest import Repository

Verb = Callable[..., Any]


@pytest.fixture
def golden_command(repository: Repository, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Run a verb about files, in the repository."""
    monkeypatch.chdir(repository.path)
    return lambda verb, *words: run("golden", verb, *words)


BASE = {"conv": 1.0, "relu": 2.0, "fc": 3.0}
OTHER = {"conv": 1.5, "relu": 2.0, "fc": 3.0}


def approve(repository: Repository, name: str, values: dict[str, float], **producer: str) -> Path:
    repository.approve(name, values)
    golden = read_golden(repository.golden(name))
    told = {"runtime": "acl", "soc": "A", "cann": "8.0", **producer}
    write_golden(replace(golden, test="test_a.py::test_one", producer=told))
    return golden.path


@pytest.fixture
def variant(repository: Repository) -> Path:
    """The variant of a golden, whole, from another SoC."""
    approve(repository, "test_one", BASE)
    return approve(repository, "test_one@b", OTHER, soc="B", cann="8.1")


def test_split_and_fold_say_what_they_do(repository: Repository, variant: Path, golden_command: Verb) -> None:
    done = golden_command("split", str(variant))
    assert (done.code, done.err) == (0, "")
    assert "1 of 3 tensors differ from test_one.yaml, which names it for runs of soc B" in done.out
    assert repository.values("test_one@b") == OTHER
    assert parse(variant.read_text("utf-8"), variant).table.keys == ("conv:output.0",)
    assert "variant:     1 of them differ from test_one.yaml" in golden_command("show", str(variant)).out
    assert "variant:     b, for soc B" in golden_command("show", str(repository.golden("test_one"))).out
    assert golden_command("status", "--no-collect", "golden").code == 0
    waits = golden_command("fold", str(variant))
    assert (waits.code, repository.values("test_one@b")) == (1, OTHER)
    assert golden_command("fold", str(variant), "--yes").code == 0
    assert not variant.exists()
    assert read_golden(repository.golden("test_one")).extra == {}


def test_a_variant_that_keeps_tensors_is_not_folded(variant: Path, golden_command: Verb) -> None:
    tensors_path(variant).write_bytes(b"")
    done = golden_command("fold", str(variant), "--yes")
    assert (done.code, "keeps tensors beside it" in done.err) == (2, True)
    assert variant.exists()


def test_split_again_changes_nothing(repository: Repository, variant: Path, golden_command: Verb) -> None:
    golden_command("split", str(variant))
    before = variant.read_bytes(), repository.golden("test_one").read_bytes()
    assert golden_command("split", str(variant)).code == 0
    assert (variant.read_bytes(), repository.golden("test_one").read_bytes()) == before


def test_what_would_be_ambiguous_is_refused(
    repository: Repository, variant: Path, golden_command: Verb
) -> None:
    golden_command("split", str(variant))
    second = approve(repository, "test_one@c", OTHER, soc="C", cann="8.1")
    before = second.read_bytes()
    done = golden_command("split", str(second), "--by", "cann")
    assert done.code == 2
    assert "fit one run" in done.err
    assert second.read_bytes() == before
    assert golden_command("split", str(second), "--by", "cann", "--by", "soc").code == 0


@pytest.mark.parametrize(
    ("producer", "words", "reason"),
    [
        ({}, [], "nothing tells when it is to count"),
        ({"soc": "B"}, ["--by", "cann"], "would count for no run that it is of"),
        ({"soc": "B", "cann": ""}, ["--by", "cann"], "does not say by which cann"),
    ],
)
def test_a_variant_of_which_nothing_tells_when_it_counts_is_refused(
    repository: Repository, golden_command: Verb, producer: dict[str, str], words: list[str], reason: str
) -> None:
    approve(repository, "test_one", BASE)
    done = golden_command("split", str(approve(repository, "test_one@b", OTHER, **producer)), *words)
    assert done.code == 2
    assert reason in done.err


def test_files_that_are_no_variants_are_refused(repository: Repository, golden_command: Verb) -> None:
    path = approve(repository, "test_one", BASE)
    for verb in ("split", "fold"):
        done = golden_command(verb, str(path))
        assert done.code == 2
        assert "is no variant" in done.err
    other = approve(repository, "test_one@b", OTHER, soc="B")
    write_golden(replace(read_golden(other), test="test_a.py::test_two"))
    done = golden_command("split", str(other))
    assert (done.code, "is of 'test_a.py::test_two', and test_one.yaml of" in done.err) == (2, True)


def test_verify_tells_of_a_variant_that_is_gone_and_of_one_that_nobody_names(
    repository: Repository, variant: Path, golden_command: Verb
) -> None:
    golden_command("split", str(variant))
    content = variant.read_bytes()
    variant.unlink()
    done = golden_command("status", "--no-collect", "golden")
    assert done.code == 2
    assert "names the variant 'b', which is not beside it" in done.out
    variant.write_bytes(content)
    base = read_golden(repository.golden("test_one"))
    write_golden(replace(base, extra={}))
    done = golden_command("status", "--no-collect", "golden")
    assert done.code == 2
    assert "names no such variant, so that no run chooses it" in done.out


def test_branches_that_name_a_variant_each_are_joined(
    repository: Repository, variant: Path, golden_command: Verb
) -> None:
    path = repository.golden("test_one")
    base = path.read_text("utf-8")
    golden_command("split", str(variant))
    ours = path.read_text("utf-8")
    path.write_text(base, "utf-8")
    golden_command("split", str(approve(repository, "test_one@c", OTHER, soc="C")))
    found = merge(path, base, ours, path.read_text("utf-8"))
    assert found.conflicts == ()
    assert parse(found.text, path).extra["variants"] == {"b": {"soc": "B"}, "c": {"soc": "C"}}


KILLED = """
import json, os, shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from conftest import Repository
from killed import killed
from test_split import BASE, OTHER, approve
from pytest_npudump.cli import main
from pytest_npudump.golden.store import read_golden

def state(repository):
    try:
        variant = repository.values("test_one@b")
    except Exception as error:
        variant = type(error).__name__
    named = read_golden(repository.golden("test_one")).extra.get("variants")
    return [repository.values("test_one"), variant, named]

def npudump(step, *words):
    return killed(lambda: main(list(words)), step, ".npudump-", "golden/")

verb, folders = sys.argv[3], Path(sys.argv[1])
before = Repository(folders / "before")
approve(before, "test_one", BASE)
path = approve(before, "test_one@b", OTHER, soc="B").relative_to(before.path)
if verb == "fold":
    os.chdir(before.path)
    npudump(0, "golden", "split", str(path))
found = []
for step in range(1, 400):
    repository = Repository(folders / str(step))
    shutil.copytree(before.path, repository.path)
    os.chdir(repository.path)
    words = ["golden", verb, str(path), *sys.argv[4:]]
    status = npudump(step, *words)
    between = state(repository)
    again = npudump(0, *words)
    found.append([status, between, again, state(repository)])
    if status == 0:
        break
print(json.dumps(found))
"""


@pytest.mark.parametrize(("verb", "words"), [("split", []), ("fold", ["--yes"])])
def test_a_kill_before_any_step_leaves_every_golden_old_or_new(
    tmp_path: Path, where_killed: Callable[..., Any], verb: str, words: list[str]
) -> None:
    here = os.path.dirname(__file__)  # noqa: PTH120 - for a child's search path
    *cut, whole = where_killed(KILLED, tmp_path, here, verb, *words)
    named = {"b": {"soc": "B"}}
    ends = {"split": [BASE, OTHER, named], "fold": [BASE, "GoldenMissingError", None]}
    assert whole[1] == ends[verb]
    assert len(cut) >= 8
    for status, (base, variant, names), again, end in cut:
        assert status == signal.SIGKILL
        assert base == BASE
        assert variant in ([OTHER] if verb == "split" or names else [OTHER, "GoldenMissingError"])
        assert names in (None, named)
        assert end == ends[verb]
        assert again == 0 or (verb == "fold" and variant == "GoldenMissingError")
