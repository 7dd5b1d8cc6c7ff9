"""Goldens without a test, by a real collection; what is not known to be left over is never told to be."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_npudump.golden.store import write_golden
from pytest_npudump.record.record import Record
from tests.conftest import table_of_layers

from .conftest import Repository

Run = Any
pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("collects")]
TESTS = """
import pytest

pytestmark = pytest.mark.npu_dump

@pytest.mark.parametrize("kind", ["a", "b"])
def test_x(kind): pass

class TestY:
    def test_z(self): pass
"""


class Project:
    """A folder with tests and goldens."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def golden(self, test: str, name: str = "", *, folder: str = "test_a", tensors: bool = False) -> Path:
        name = name or test.partition("::")[2].replace("::", ".")
        path = self.path / "golden" / folder / f"{name}.yaml"
        write_golden(Record(test, {"runtime": "acl"}, table_of_layers({"conv": 1.0}), path))
        if tensors:
            path.with_suffix(".safetensors").write_bytes(b"")
        return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PYTEST_ADDOPTS", "-p no:asyncio -p no:pytest-retry -p no:flaky -p no:hypothesispytest"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\n")
    (tmp_path / "test_a.py").write_text(TESTS)
    found = Project(tmp_path)
    for test in ("test_x[a]", "test_x[b]"):
        found.golden(f"test_a.py::{test}")
    return found


@pytest.fixture
def stale(project: Project, run: Run) -> Any:
    """The names of what is stale of a project, and of what is not judged."""
    assert project.path == Path.cwd()

    def call(*words: str) -> tuple[list[str], list[str]]:
        done = run("golden", "status", "--json", "-", *words)
        names = [[Path(one["path"]).name for one in done.json[key]] for key in ("stale", "unjudged")]
        assert done.code == (2 if done.json["faults"] else 1 if names[0] else 0)
        return names[0], names[1]

    return call


def test_a_parameter_a_test_and_a_file_that_are_gone_leave_stale_goldens(
    project: Project, stale: Any, run: Run
) -> None:
    assert "test_a.py::test_x[b]" in run("golden", "status", "-v").out
    project.golden("test_a.py::test_x[c]")
    project.golden("test_a.py::test_gone")
    project.golden("test_b.py::test_x", folder="test_b", name="other")
    gone = ["test_gone.yaml", "test_x[c].yaml", "other.yaml"]
    assert stale() == (gone, [])
    # One that lies elsewhere is kept where its test has no other.
    place = project.path / "golden" / "test_a" / "test_x[a].yaml"
    moved = place.rename(place.parent.parent / "moved.yaml")
    assert stale() == (gone, ["moved.yaml"])
    why = "test_a.py::test_x[a] reads golden/test_a/test_x[a].yaml, which is missing: move the file there"
    assert f"golden/moved.yaml: {why}" in run("golden", "status").out
    assert run("golden", "status", "--prune", "--yes").code == 0
    place.write_bytes(moved.read_bytes())
    assert stale() == (["moved.yaml"], [])


def test_a_test_without_the_marker_has_no_golden(project: Project, stale: Any) -> None:
    (project.path / "test_a.py").write_text(TESTS.replace("pytestmark =", "other ="))
    assert stale() == (["test_x[a].yaml", "test_x[b].yaml"], [])


@pytest.mark.each("words", ["-k nothing", "-m other", "--deselect test_a.py::test_x", "-n 2"])
def test_tests_that_addopts_deselects_keep_their_goldens(
    stale: Any, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", os.environ["PYTEST_ADDOPTS"] + f" {words}")
    assert stale() == ([], [])


def test_a_hook_that_removes_tests_removes_no_golden(project: Project, stale: Any) -> None:
    (project.path / "conftest.py").write_text(
        "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items): items.clear()\n"
    )
    assert stale() == ([], [])


def test_goldens_of_what_was_not_collected_are_not_judged(project: Project, stale: Any) -> None:
    (project.path / "elsewhere").mkdir()
    (project.path / "elsewhere" / "test_o.py").write_text("def test_o(): pass\n")
    own = (project.path / "pytest.ini").read_text()
    for text, ini in (
        ("import pytest\npytest.importorskip('no_such_module')\n", ""),
        ("import pytest\npytest.skip('no NPU', allow_module_level=True)\n", ""),
        (TESTS.replace('["a", "b"]', "[]"), ""),
        (TESTS, "testpaths = elsewhere\n"),
        (TESTS, "addopts = --ignore=test_a.py\n"),
    ):
        (project.path / "test_a.py").write_text(text)
        (project.path / "pytest.ini").write_text(own + ini)
        assert stale() == ([], ["test_x[a].yaml", "test_x[b].yaml"]), (text, ini)


def test_options_that_hide_tests_are_refused(project: Project, run: Run) -> None:
    ini = (project.path / "pytest.ini").read_text()
    for addopts, told in (
        ("--lf", "--lf"),
        ("test_a.py::TestY", "single tests"),
        ("-p no:npudump", "npudump"),
    ):
        (project.path / "pytest.ini").write_text(f"{ini}addopts = {addopts}\n")
        done = run("golden", "status")
        assert (done.code, told in done.err) == (2, True), addopts


def test_nothing_is_known_where_a_file_cannot_be_collected(project: Project, run: Run) -> None:
    (project.path / "test_b.py").write_text("import no_such_module\n")
    golden = project.golden("test_a.py::test_gone")
    told = "test_b.py cannot be collected: ModuleNotFoundError: No module named 'no_such_module'"
    for words in ((), ("--json", "-"), ("--prune", "--yes")):
        done = run("golden", "status", *words)
        assert (done.code, told in done.err) == (2, True), words
        assert golden.exists()


def test_tensors_of_no_golden_are_stale_and_what_cannot_be_read_or_is_another_s_is_not_judged(
    project: Project, stale: Any
) -> None:
    project.golden("test_a.py::test_gone", tensors=True)
    (project.path / "golden" / "alone.safetensors").write_bytes(b"")
    project.golden("test_a.py::test_odd", tensors=True).write_text("<<<<<<< HEAD\n")
    save_file({"weight": np.ones(2, np.float32)}, project.path / "golden" / "model.safetensors")
    left = [".npudump-0123456789abcdef-0.tmp", ".npudump-0123456789abcdef.safetensors"]  # by an update
    for name in left:
        (project.path / "golden" / name).write_bytes(b"")
    gone = ["test_gone.yaml", "alone.safetensors", "test_gone.safetensors"]
    kept = ["test_odd.yaml", "model.safetensors", "test_odd.safetensors"]
    assert stale() == (gone, [*kept, *left])
    before = time.time() - 2 * 24 * 3600  # which is stale once it is a day old
    for name in left:
        os.utime(project.path / "golden" / name, (before, before))
    assert stale() == ([*gone, *left], kept)


def test_variants_are_in_use_unless_those_that_are_selected_are_named(project: Project, stale: Any) -> None:
    for variant in ("ascend310p", "ascend910b", "rank0of2"):
        project.golden("test_a.py::test_x[a]", f"test_x[a]@{variant}")
    assert stale() == ([], [])
    assert stale("--variant", "ascend910b") == (["test_x[a]@ascend310p.yaml"], [])
    # Beside a common golden that cannot be read they are not judged.
    (project.path / "golden" / "test_a" / "test_x[a].yaml").write_text("<<<<<<< HEAD\n")
    assert stale("--variant", "ascend910b") == ([], ["test_x[a]@ascend310p.yaml"])


def test_a_variant_is_named_as_the_option_takes_it_or_as_its_file_spells_it(
    project: Project, stale: Any
) -> None:
    # Names of files are those that runs with npudump_golden_variant write, and with RANK=1 WORLD_SIZE=2.
    own, long = "Ascend310P-d6b5ba2537", "Ascend910_9391_cann"
    for variant in (own, f"{long}-3ad56a5915", f"{long}-c8faa9a798"):
        project.golden("test_a.py::test_x[a]", f"test_x[a]@{variant}")
    others = [f"test_x[a]@{long}-3ad56a5915.yaml", f"test_x[a]@{long}-c8faa9a798.yaml"]
    for name in ("Ascend310P", own):
        assert stale("--variant", name) == (others, [])
    assert stale("--variant", "Ascend910_9391_cann8x") == ([f"test_x[a]@{own}.yaml"], [])
    assert stale("--variant", "Ascend910_9391_cann8x", "--variant", "Ascend310P") == ([], [])


def test_a_variant_of_which_no_golden_is_removes_nothing(project: Project, run: Run) -> None:
    project.golden("test_a.py::test_gone", "test_gone@gone")
    for misspelt, *names in (("A3",), ("A3", "a3"), ("", "a3"), ("gone", "a3"), ("A3", "a3", "b4")):
        paths = [project.golden("test_a.py::test_x[a]", f"test_x[a]@{name}") for name in names]
        done = run("golden", "status", "--prune", "--variant", misspelt, "--yes")
        assert (done.code, done.out) == (2, "")
        assert f"these variants are there: {', '.join(names) or 'none'}" in done.err
        assert all(map(Path.exists, paths))


def test_goldens_of_another_rootdir_that_may_share_the_folder_stay(
    project: Project, stale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / ".git").mkdir()
    with (project.path / "pytest.ini").open("a") as ini:
        ini.write("norecursedirs = part\n")
    part = project.path / "part"
    part.mkdir()
    for name in ("test_a.py", "test_b.py"):
        (part / name).write_text("def test_of_part(): pass\n")
    project.golden("test_a.py::test_of_part")
    project.golden("test_b.py::test_of_part", "other", folder="test_b")
    project.golden("test_c.py::test_gone", "gone", folder="test_c")
    assert stale() == (["test_of_part.yaml", "other.yaml", "gone.yaml"], [])
    (part / "pytest.ini").write_text("[pytest]\nnpudump_golden_dir = ../golden\n")
    assert stale() == (["gone.yaml"], ["test_of_part.yaml", "other.yaml"])
    monkeypatch.chdir(part)
    kept = ["test_x[a].yaml", "test_x[b].yaml"]
    assert stale() == (["other.yaml", "gone.yaml"], ["test_of_part.yaml", *kept])


def test_nothing_is_stale_in_a_folder_outside_of_the_repository(
    project: Project, stale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = project.path / "inside"
    (inside / ".git").mkdir(parents=True)
    (inside / "pytest.ini").write_text("[pytest]\nnpudump_golden_dir = ../golden\n")
    (inside / "test_a.py").write_text(TESTS.partition("class")[0])
    project.golden("test_c.py::test_gone", "gone", folder="test_c")
    monkeypatch.chdir(inside)
    assert stale() == ([], ["gone.yaml"])


def test_prune_removes_what_stale_lists_and_nothing_else(project: Project, stale: Any, run: Run) -> None:
    project.golden("test_a.py::test_gone", tensors=True)
    files = sorted(project.path.rglob("golden/**/*.*"))
    assert run("golden", "status", "--prune").code == 1
    assert sorted(project.path.rglob("golden/**/*.*")) == files
    done = run("golden", "status", "--prune", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 of 2 files removed")
    gone = sorted(set(files) - set(project.path.rglob("golden/**/*.*")))
    assert [path.name for path in gone] == ["test_gone.safetensors", "test_gone.yaml"]
    assert stale() == ([], [])
    assert run("golden", "status", "--prune").out == "nothing is stale\n"


@pytest.mark.each(("tensors", "suggested"), [({"conv": 1.5}, True), ({"conv": 1.0, "fc": 2.0}, False)])
def test_a_renamed_test_is_told(
    project: Project, run: Run, tensors: dict[str, float], *, suggested: bool
) -> None:
    (project.path / "test_a.py").write_text(TESTS + "\ndef test_new(): pass\n")
    repository = Repository(project.path)
    repository.keep("test_new", tensors)
    project.golden("test_a.py::test_old")
    options = ("golden", "status", "--results", repository.kept)
    for words, heading in (
        ((), "no test reads (--prune --yes removes):"),
        (("--prune",), "would be removed with --yes:"),
    ):
        lines = run(*options, *words).out.splitlines()
        assert lines[:2] == [heading, "  golden/test_a/test_old.yaml: test_a.py has no test_old"]
        moved = "    git mv golden/test_a/test_old.yaml golden/test_a/test_new.yaml"
        assert (moved in lines) is suggested
        assert any("renamed? test_a.py::test_new has" in line for line in lines) is suggested
    assert run(*options, "--prune", "--yes").code == 0
    assert not (project.path / "golden" / "test_a" / "test_old.yaml").exists()
    (project.path / "test_a.py").write_text(TESTS)


RULES = """
rules:
  - {layer: conv, rtol: 1.0e-3, atol: 0, reason: HF32}
  - {layer: "old/*", rtol: 1.0e-2, atol: 0, reason: HF32}
"""


@pytest.fixture
def ruled(project: Project, run: Run) -> Any:
    """What is said of rules, and the exit code."""
    (project.path / "tolerances.yaml").write_text(RULES)
    ini = project.path / "pytest.ini"
    ini.write_text(ini.read_text() + "npudump_tolerances = tolerances.yaml\n")
    return lambda: run("golden", "status", "--json", "-")


def test_a_rule_that_matches_no_tensor_of_any_test_is_stale(project: Project, ruled: Any) -> None:
    (project.path / "test_a.py").write_text(TESTS.partition("class")[0])
    done = ruled()
    (rule,) = done.json["rules"]
    assert "layer=old/*" in rule
    assert done.json["unjudged_rules"] is None
    assert done.code == 1
    (project.path / "tolerances.yaml").write_text(RULES.replace("old/*", "conv"))
    done = ruled()
    assert (done.json["rules"], done.code) == ([], 0)
    rules = "rules:\n  - {statistic: projections, rtol: 0, atol: 0}\n  - {statistic: max, rtol: 0, atol: 0}\n"
    (project.path / "tolerances.yaml").write_text(rules)
    (rule,) = ruled().json["rules"]
    assert "statistic=projections" in rule


def test_a_rule_is_not_judged_while_a_golden_is_missing_or_cannot_be_read(ruled: Any) -> None:
    done = ruled()
    assert done.json["rules"] == []
    assert "test_a.py::TestY::test_z" in done.json["unjudged_rules"]
    assert done.code == 0


def test_tests_of_scenes_without_a_golden_leave_rules_judged(project: Project, ruled: Any) -> None:
    source = '@pytest.mark.npu_dump(scene="overflow")\ndef test_z(): pass'
    (project.path / "test_a.py").write_text(TESTS.partition("class")[0] + source)
    assert len(ruled().json["rules"]) == 1


def test_rules_by_operator_and_producer_are_stale_by_their_layers_alone(project: Project, ruled: Any) -> None:
    rules = RULES + (
        "  - {layer: conv, op_type: Conv, rtol: 0, atol: 0, producer: {soc: none of these}}\n"
        "  - {layer: older, op_type: Conv, rtol: 0, atol: 0, producer: {soc: none of these}}\n"
    )
    (project.path / "test_a.py").write_text(TESTS.partition("class")[0])
    (project.path / "tolerances.yaml").write_text(rules)
    assert [rule.partition("layer=")[2].split()[0] for rule in ruled().json["rules"]] == ["old/*", "older"]
