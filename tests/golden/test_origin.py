"""Facts of a golden's origin, and when it was recorded and changed."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.golden.origin import Stamp, changes, extensions, installed, processor, revision, stamped
from pytest_npudump.golden.store import read_golden
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.record.record import MODELS, Record
from pytest_npudump.record.text import parse, render
from pytest_npudump.request import DumpRequest
from tests.conftest import table_of_layers

X86 = "processor: 0\nflags: fpu sse2 avx f16c fma avx2 avx512f avx512_vnni\n\nprocessor: 1\nflags: fpu\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp bf16 i8mm sve\n"


def test_extensions_that_choose_kernels_and_what_is_installed_are_facts() -> None:
    told = {X86: "avx+avx2+fma+f16c+avx512f+avx512_vnni", ARM: "asimdhp+asimddp+i8mm+bf16+sve"}
    told |= {"": "", "model name : ?\n": ""}
    assert {text: extensions(text) for text in told} == told
    assert processor()["machine"] == platform.machine()
    assert (installed("no-such-distribution"), set(installed("numpy"))) == ({}, {"numpy"})


PATH = Path("golden/test_a.yaml")
THEN, NOW = Stamp("2025-02-03", "aaaaaaaaaaaa"), Stamp("2026-11-23", "bbbbbbbbbbbb")
LAYERS = {"conv": 1.0, "relu": 2.0, "fc": 3.0}


def golden(values: Mapping[str, float], *, cann: str = "9.0.0", **extra: object) -> Record:
    return Record("test_a.py::test_a", {"cann": cann}, table_of_layers(values), PATH, extra)


FIRST = stamped(golden(LAYERS), None, THEN)


def test_a_new_golden_says_when_and_from_which_revision_in_its_head_alone() -> None:
    """Of a revision nothing is said without a repository; one that is unchanged is the same text."""
    assert (FIRST.extra, FIRST.changed) == ({"recorded": "2025-02-03 aaaaaaaaaaaa"}, {})
    assert parse(render(FIRST), PATH).extra == FIRST.extra
    found = stamped(golden(LAYERS), None, Stamp.today(None))
    assert date.fromisoformat(parse(render(found), PATH).extra["recorded"])
    noisy = replace(FIRST, extra={**FIRST.extra, "reason": "why"})
    assert render(stamped(replace(noisy, changed={}), noisy, NOW)) == render(noisy)


def test_keys_of_the_head_stay_where_they_are() -> None:
    before = replace(FIRST, extra={**FIRST.extra, "empty": {}, "repeats": {"runs": 2}, "reason": "why"})
    found = stamped(golden(LAYERS, reason="anew", repeats={"runs": 1}, other=1, empty={}), before, NOW)
    assert [*found.extra] == ["recorded", "empty", "repeats", "reason", "other"]


def test_a_tensor_that_changes_says_so_in_its_own_line_and_others_keep_theirs() -> None:
    for stamp in (THEN, Stamp("2025-02-03", "")):
        found = stamped(golden(LAYERS | {"relu": 2.5}), FIRST, stamp)
        assert found.extra == FIRST.extra
        assert found.changed == parse(render(found), PATH).changed == {"relu:output.0": str(stamp)}
        lines = [set(render(one).splitlines()) for one in (FIRST, found)]
        assert {line.split()[0] for line in lines[0] ^ lines[1]} == {"relu"}
        third = stamped(golden(LAYERS | {"relu": 2.5, "fc": 3.5}), found, NOW)
        assert third.changed == {"relu:output.0": str(stamp), "fc:output.0": "2026-11-23 bbbbbbbbbbbb"}


def test_where_no_tensor_or_another_producer_stays_the_golden_is_a_new_one() -> None:
    others = {name: value + 1 for name, value in LAYERS.items()}
    for one in (golden(others), golden(LAYERS, cann="9.1.0")):
        found = stamped(one, FIRST, NOW)
        assert (found.extra["recorded"], found.changed) == (str(NOW), {})


def test_a_golden_of_an_earlier_version_learns_what_is_known() -> None:
    earlier = golden(LAYERS)
    assert render(stamped(golden(LAYERS), earlier, NOW)) == render(earlier)
    found = stamped(golden(LAYERS | {"fc": 9.0}), earlier, NOW)
    assert found.extra == {}
    assert found.changed == {"fc:output.0": str(NOW)}


def test_other_projections_are_a_change_and_first_ones_and_noise_are_none() -> None:
    sums = [np.ones((3, 8)), np.array([[1.0] * 8, [2.0] * 8, [1.0] * 8])]
    known, other = (
        replace(FIRST, table=replace(FIRST.table, projections=one, projected=np.ones(3, np.bool_)))
        for one in sums
    )
    noisy = replace(known, table=replace(known.table, noise=("~1e-3,-,-,-", "-", "-")))
    assert stamped(noisy, FIRST, NOW).changed == {}
    assert stamped(other, known, NOW).changed == {"relu:output.0": str(NOW)}


def test_a_first_checksum_is_no_change_and_another_one_is() -> None:
    def with_places(text: str) -> Record:
        summed = {"projections": np.ones((3, 8)), "projected": np.ones(3, np.bool_)}
        table = replace(FIRST.table, digests=("", "", text), **summed)  # type: ignore[arg-type]
        return replace(FIRST, table=table)

    places, first, other = (with_places(f"argmax:{told}3 1") for told in ("", "x" + 16 * "1", "x" + 16 * "2"))
    for before, now, changed in ((places, first, False), (first, first, False), (other, first, True)):
        assert stamped(now, before, NOW).changed == ({"fc:output.0": str(NOW)} if changed else {})


@pytest.mark.each(
    ("lines", "words"),
    [
        ("#m.onnx BBBBBBBBBBBBBBBB graph1\nconv AAAA vvvvvv 0000\n", ["models: weights of conv"]),
        ("#m.onnx BBBBBBBBBBBBBBBB graph1\nconv BBBB wwwwww 0000\n", ["models: attributes of conv"]),
        ("#m.onnx BBBBBBBBBBBBBBBB graph1\nconv AAAA wwwwww 0000\n", ["models: m.onnx"]),
        ("", ["models gone"]),
    ],
)
def test_a_model_that_changed_is_told_operator_by_operator(lines: str, words: list[str]) -> None:
    before = "#m.onnx AAAAAAAAAAAAAAAA graph1\nconv AAAA wwwwww 0000\n"
    after = replace(FIRST, blocks={MODELS: lines} if lines else {})
    assert [one.words for one in changes(replace(FIRST, blocks={MODELS: before}), after)] == words


def test_a_golden_without_tensors_changes_with_its_head() -> None:
    before = stamped(golden({}, overflow={"conv": ["+inf"]}), None, THEN)
    assert stamped(golden({}, overflow={"conv": ["+inf"]}), before, NOW).extra == before.extra
    assert stamped(golden({}), before, NOW).extra == {"recorded": str(NOW)}


@pytest.mark.e2e
def test_a_recording_names_the_commit_that_is_checked_out(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-qm", "first", "--allow-empty"], check=True)
    revision.cache_clear()
    goldens = Goldens("test_a.py::test_a", DumpRequest(), tmp_path / "golden" / "test_a.yaml", root=tmp_path)
    recording = goldens.record(None, table_of_layers(LAYERS), {"runtime": "acl"})
    recording.commit()
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    found = read_golden(goldens.path)
    assert found.extra["recorded"].split()[1] == head[:12]
    again = goldens.record(found, table_of_layers(LAYERS), {"runtime": "acl"})
    assert again.staged is None


@pytest.mark.e2e
def test_git_joins_approvals_of_different_tensors_by_itself(tmp_path: Path) -> None:
    layers = {f"conv{number}": 1.0 for number in range(6)}
    base = stamped(golden(layers), None, THEN)
    ours = stamped(golden(layers | {"conv1": 2.0}), base, NOW)
    theirs = stamped(golden(layers | {"conv4": 3.0}), base, Stamp("2026-11-24", "cccccccccccc"))
    for name, one in (("base", base), ("ours", ours), ("theirs", theirs)):
        (tmp_path / name).write_text(render(one), "utf-8")
    files = [str(tmp_path / name) for name in ("ours", "base", "theirs")]
    done = subprocess.run(["git", "merge-file", "-p", *files], check=True, capture_output=True, text=True)
    found = parse(done.stdout, PATH)
    assert found.extra == base.extra
    assert found.changed == {"conv1:output.0": str(NOW), "conv4:output.0": "2026-11-24 cccccccccccc"}
