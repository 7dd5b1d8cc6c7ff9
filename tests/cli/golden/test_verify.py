from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from pytest_npudump.golden.store import read_golden, stage_pair
from pytest_npudump.golden.stored_tensors import KeptTensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Repository

Run = Any


def test_sound_goldens_are_counted_and_tensors_that_are_no_more_theirs_are_told(
    repository: Repository, run: Run
) -> None:
    repository.approve("test_t", {"conv": 1.0})
    golden = read_golden(repository.golden("test_t"))
    kept = KeptTensors({"conv:output.0": (np.ones(2, np.float32), "float32")})
    stage_pair(golden, kept.tensors, kept.metadata(golden)).commit()
    repository.approve("test_x", {"conv": 1.0})
    done = run("golden", "status", "--no-collect")
    assert (done.code, done.out, done.err) == (0, "3 of 3 files valid\n", "")
    text, tensors = golden.path.read_text(), golden.path.with_suffix(".safetensors")
    other = text.replace("float32 2 1 1", "float32 2 3 3").replace(" 1.0 1.0", " 3.0 3.0")
    assert other != text
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("golden_tensors")]
    for changed, told in (
        (other, "was recorded with other stat"),
        ("".join(lines), "belongs to no recording that"),
    ):
        golden.path.write_text(changed)
        done = run("golden", "status", "--no-collect")
        assert (done.code, told in done.out) == (2, True)
    golden.path.write_text(text)
    content = tensors.read_bytes()
    tensors.write_bytes(content[:-3])
    done = run("golden", "status", "--no-collect", golden.path)
    assert (done.code, "not a file of golden tensors" in done.out) == (2, True)
    tensors.write_bytes(content)
    golden.path.unlink()
    done = run("golden", "status", "--no-collect", "--json", "-")
    assert done.code == 2
    assert [entry["reason"] for entry in done.json["faults"] if "tensors without a golden" in entry["reason"]]


def test_the_folder_is_that_of_pytests_configuration_and_one_without_a_golden_is_told(
    repository: Repository, run: Run
) -> None:
    repository.approve("test_x", {"conv": 1.0})
    (repository.path / "golden").rename(repository.path / "refs")
    (repository.path / "golden").mkdir()
    done = run("golden", "status", "--no-collect")
    assert (done.code, done.out) == (2, "no golden file; the rest is unknown\n")
    for name in ("nowhere", "golden"):
        assert run("golden", "status", "--no-collect", name).code == 2
    (repository.path / "pytest.ini").write_text("[pytest]\nnpudump_golden_dir = refs\n", encoding="utf-8")
    done = run("golden", "status", "--no-collect")
    assert (done.code, done.out, done.err) == (0, "1 of 1 files valid\n", "")


DAMAGES: list[tuple[Callable[[str], str], str]] = [
    (
        lambda text: text.replace("  conv", "<<<<<<< HEAD\n  conv"),
        "line 6: the conflict markers of a git merge",
    ),
    (lambda text: "<<<<<<< HEAD\n" + text, "line 1: the conflict markers of a git merge"),
    (lambda text: text.replace("test: ", "<<<<<<< a: b\ntest: x\n=======\ntest: "), "line 2: the conflict"),
    (lambda text: text[:-9], "line 6: "),
    (lambda text: text + text.splitlines(keepends=True)[-1], "stands here a second time"),
    (lambda text: text.replace("columns: ", "repeats: 3\ncolumns: "), "repeats"),
    (
        lambda text: text.replace("columns: ", "golden_tensors: {recording: ab}\ncolumns: "),
        "are not beside it",
    ),
    (lambda text: text + "edges: |\n  conv >\n", "is no edge"),
    (lambda text: text[:0], "line 1: the file is empty"),
]


def test_what_is_wrong_is_told_with_its_line(repository: Repository, run: Run) -> None:
    repository.approve("test_x", {"conv": 1.0})
    repository.approve("test_y", {"conv": 1.0})
    path = repository.golden("test_x")
    whole = path.read_text()
    for damage, told in DAMAGES:
        path.write_text(damage(whole))
        done = run("golden", "status", "--no-collect", "golden")
        assert done.code == 2
        assert told in done.out
        assert "1 of 2 files valid" in done.out


def test_two_files_that_claim_one_test_are_told_and_variants_of_one_are_not(
    repository: Repository, run: Run
) -> None:
    repository.approve("test_x", {"conv": 1.0})
    path = repository.golden("test_x")
    path.with_name("test_x@ascend310p.yaml").write_text(path.read_text())
    assert run("golden", "status", "--no-collect").code == 0
    path.with_name("test_old.yaml").write_text(path.read_text())
    done = run("golden", "status", "--no-collect")
    assert done.code == 2
    assert "claims the test 'test_a.py::test_x'" in done.out


def test_the_hook_names_the_command() -> None:
    from pathlib import Path

    root = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
    (hook,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "npudump golden status --no-collect"
    assert hook["pass_filenames"] is False


def test_a_golden_that_compares_nothing_or_leaves_out_what_nobody_measured_is_not_sound(
    repository: Repository, run: Run
) -> None:
    listed = {"fc": {"output.1": "left out"}}
    repository.approve("test_nothing", {})
    repository.approve("test_other", {"conv": 1.0}, runtime="emulator", unwritten=listed)
    repository.approve("test_damaged", {"conv": 1.0}, unwritten={"fc": "left out"})
    repository.approve("test_judged", {"conv": 1.0}, unwritten={"fc": {"output.1": "judged"}})
    repository.approve("test_overflow", {}, overflow={"conv": ["overflow"]})
    repository.approve("test_cpu", {"conv": 1.0}, unwritten=listed)
    cpu = repository.golden("test_cpu")
    facts = "runtime: mindspore, mindspore: 2.10.0, device_target: CPU"
    cpu.write_text(cpu.read_text("utf-8").replace("runtime: acl", facts), "utf-8")
    done = run("golden", "status", "--no-collect")
    assert done.code == 2
    told = dict(line.rpartition("/")[2].split(": ", 1) for line in done.out.splitlines()[:-1])
    assert {name: words.split(":")[0].partition(", each with")[0] for name, words in told.items()} == {
        "test_damaged.yaml": "'unwritten' is to hold layers",
        "test_nothing.yaml": "lists no tensor, so that nothing is compared with it",
        "test_other.yaml": "'unwritten' leaves tensors out, which only MindSpore on a CPU can record",
    }


def test_a_kept_run_in_which_nothing_was_compared_is_not_good(repository: Repository, run: Run) -> None:
    repository.approve("test_nothing", {})
    repository.keep("test_nothing", {})
    done = run("check", "kept")
    assert (done.code, "no tensor was compared" in done.out) == (1, True)
