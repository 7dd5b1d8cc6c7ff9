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

from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.golden.origin import Stamp, changes, extensions, installed, processor, revision, stamped
from pytest_npudump.golden.store import read_golden
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.record.record import MODELS, Record
from pytest_npudump.record.text import parse, render
from pytest_npudump.request import DumpRequest

X86 = "processor: 0\nflags: fpu sse2 avx f16c fma avx2 avx512f avx512_vnni\n\nprocessor: 1\nflags: fpu\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp bf16 i8mm sve\n"


def test_extensions_that_choose_kernels_are_named_on_either_architecture() -> None:
    assert extensions(X86) == "avx+avx2+fma+f16c+avx512f+avx512_vnni"
    assert extensions(ARM) == "asimdhp+asimddp+i8mm+bf16+sve"


def test_a_processor_that_tells_nothing_has_no_extensions() -> None:
    assert extensions("") == ""
    assert extensions("model name : ?\n") == ""


def test_the_machine_is_this_one() -> None:
    assert processor()["machine"] == platform.machine()


def test_a_distribution_that_is_not_installed_is_no_fact() -> None:
    assert installed("no-such-distribution") == {}
    assert set(installed("numpy")) == {"numpy"}


PATH = Path("golden/test_a.yaml")
THEN, NOW = Stamp("2025-02-03", "aaaaaaaaaaaa"), Stamp("2026-11-23", "bbbbbbbbbbbb")
LAYERS = {"conv": 1.0, "relu": 2.0, "fc": 3.0}


def table(values: Mapping[str, float]) -> StatsTable:
    return StatsTable.from_records(
        TensorRecord(
            *(TensorKey(name, "output", 0), "Conv", "float32", (2,)),
            None,  # type: ignore[arg-type]
            stats=Stats(2, value, value, value, None, 0, 0, 0),
        )
        for name, value in values.items()
    )


def golden(values: Mapping[str, float], *, cann: str = "9.0.0", **extra: object) -> Record:
    return Record("test_a.py::test_a", {"cann": cann}, table(values), PATH, extra)


FIRST = stamped(golden(LAYERS), None, THEN)


def test_a_new_golden_says_when_and_from_which_revision_in_its_head_alone() -> None:
    assert FIRST.extra == {"recorded": "2025-02-03 aaaaaaaaaaaa"}
    assert FIRST.changed == {}
    assert parse(render(FIRST), PATH).extra == FIRST.extra


def test_without_a_repository_nothing_is_said_of_a_revision() -> None:
    found = stamped(golden(LAYERS), None, Stamp.today(None))
    assert date.fromisoformat(parse(render(found), PATH).extra["recorded"])


def test_an_unchanged_golden_is_the_same_text() -> None:
    noisy = replace(FIRST, extra={**FIRST.extra, "reason": "why"})
    assert render(stamped(replace(noisy, changed={}), noisy, NOW)) == render(noisy)


def test_keys_of_the_head_stay_where_they_are() -> None:
    before = replace(FIRST, extra={**FIRST.extra, "empty": {}, "repeats": {"runs": 2}, "reason": "why"})
    found = stamped(golden(LAYERS, reason="anew", repeats={"runs": 1}, other=1, empty={}), before, NOW)
    assert [*found.extra] == ["recorded", "empty", "repeats", "reason", "other"]


def test_a_tensor_that_changes_says_so_in_its_own_line() -> None:
    found = stamped(golden(LAYERS | {"relu": 2.5}), FIRST, NOW)
    assert found.extra == FIRST.extra
    assert found.changed == {"relu:output.0": "2026-11-23 bbbbbbbbbbbb"}
    lines = [set(render(one).splitlines()) for one in (FIRST, found)]
    assert {line.split()[0] for line in lines[0] ^ lines[1]} == {"relu"}


def test_a_later_change_leaves_what_other_tensors_say() -> None:
    second = stamped(golden(LAYERS | {"relu": 2.5}), FIRST, THEN)
    third = stamped(golden(LAYERS | {"relu": 2.5, "fc": 3.5}), second, NOW)
    assert third.changed == {"relu:output.0": str(THEN), "fc:output.0": str(NOW)}


def test_where_no_tensor_stays_the_golden_is_a_new_one() -> None:
    found = stamped(golden({name: value + 1 for name, value in LAYERS.items()}), FIRST, NOW)
    assert found.changed == {}
    assert found.extra["recorded"] == str(NOW)


def test_another_producer_is_of_the_day_on_which_it_was_recorded() -> None:
    found = stamped(golden(LAYERS, cann="9.1.0"), FIRST, NOW)
    assert (found.extra["recorded"], found.changed) == (str(NOW), {})


def test_a_golden_of_an_earlier_version_learns_what_is_known() -> None:
    earlier = golden(LAYERS)
    assert render(stamped(golden(LAYERS), earlier, NOW)) == render(earlier)
    found = stamped(golden(LAYERS | {"fc": 9.0}), earlier, NOW)
    assert found.extra == {}
    assert found.changed == {"fc:output.0": str(NOW)}


def test_noise_and_first_projections_are_no_change_of_values() -> None:
    known = replace(
        FIRST.table,
        noise=("~1e-3,-,-,-", "-", "-"),
        projections=np.ones((3, 8)),
        projected=np.ones(3, np.bool_),
    )
    assert stamped(replace(FIRST, table=known), FIRST, NOW).changed == {}


def test_other_projections_are_a_change() -> None:
    sums = [np.ones((3, 8)), np.array([[1.0] * 8, [2.0] * 8, [1.0] * 8])]
    before, after = (
        replace(FIRST, table=replace(FIRST.table, projections=one, projected=np.ones(3, np.bool_)))
        for one in sums
    )
    assert stamped(after, before, NOW).changed == {"relu:output.0": str(NOW)}


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
    recording = goldens.record(None, table(LAYERS), {"runtime": "acl"})
    recording.commit()
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    found = read_golden(goldens.path)
    assert found.extra["recorded"].split()[1] == head[:12]
    again = goldens.record(found, table(LAYERS), {"runtime": "acl"})
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


@pytest.mark.each("revision", ["", "bbbbbbbbbbbb"])
def test_what_is_written_is_read(revision: str) -> None:
    found = stamped(golden(LAYERS | {"fc": 9.0}), FIRST, Stamp("2026-11-23", revision))
    assert parse(render(found), PATH).changed == found.changed
