"""Tensors beside a golden, or in a store: which of them are kept, and that they stay with their golden."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import helper

from pytest_npudump.cli import main
from pytest_npudump.golden.store import read_golden, waiting_path
from pytest_npudump.golden.stored_tensors import TensorStore, read_tensors
from tests.golden.tensor_files import load_tensors
from tests.onnxmodels.models import onnx_model
from tests.plugin.conftest import Project, held

OUTPUT = "head/softmax"
CONV, EVERY = "golden_tensors=['block/conv.2']", "golden_tensors=['*']"
DATA = "acl_json={'dump_data': 'tensor'}"
KEEP = "--npudump-output=."
ALIKE = ("a/b", "a_b", "a.b", "plain")


def _alike_names(project: Project) -> None:
    """Four operators, of which three have one name in files."""
    steps = ["image", *(f"t{number}" for number in range(3)), "out"]
    nodes = [
        helper.make_node("Neg", [steps[at]], [steps[at + 1]], name=name) for at, name in enumerate(ALIKE)
    ]
    model = onnx_model(nodes, {"image": [1, 1, 8, 8]}, {"out": [1, 1, 8, 8]}, name="alike")
    onnx.save(model, str(project.path / "small.onnx"))


def test_layers_alike_in_file_names_have_no_golden_tensors_and_are_judged_by_no_other(
    project: Project,
) -> None:
    _alike_names(project)
    words = "*note: *no golden tensors of a_b, only statistics: several layers go*"
    for dump, limit in (
        ("stats", ()),
        ("tensor", ("-onpudump_dump_limit=1280",)),
    ):  # five tensors of 8x8 float32
        project.marked(f"golden_tensors=['*'], acl_json=dict(dump_data={dump!r})")
        project.run("--npudump-update-golden", *limit, passed=1, shows=words)
        kept = load_tensors(project.golden.with_suffix(".safetensors"))
        assert {key.partition(":")[0] for key in kept} == {"image", "plain"}
        project.run(passed=1, shows="*note: *no golden tensors of a_b, only statistics*")
    project.marked("acl_json={'dump_data': 'tensor'}", body=project.body.replace("-1, 1", "-1, 2"))
    project.run(failed=1, shows="second run: reproduced, but for * not dumped*")
    for layers, words in {
        "'a/b', 'plain'": "npudump: nothing was recorded: *a_b:output.0*name is the same in file names",
        "'a?b'": "npudump: nothing was recorded: *of a_b, or cannot tell it*",
    }.items():
        before = project.golden.read_bytes()
        project.marked(f"golden_tensors=[{layers}]")
        project.run("--npudump-update-golden", failed=1, shows=words)
        assert project.golden.read_bytes() == before


KILL = """
import os, signal, sys
left = [int(os.environ.get("KILL", "0"))]
def hook(event, arguments):
    if event == "os.rename" and "{0}golden{0}".format(os.sep) in str(arguments[1]):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
if left[0]:
    sys.addaudithook(hook)
"""


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed like that here")
@pytest.mark.parametrize(("rename", "passes"), [(2, "old"), (3, "new")])
def test_an_update_killed_between_the_two_files_leaves_one_recording(
    project: Project, rename: int, passes: str
) -> None:
    project.path.joinpath("conftest.py").write_text(KILL)
    project.recorded(f"{CONV}, {DATA}, escalate=False", change=0.01)
    project.patch.setenv("KILL", str(rename))
    arguments = ["--npudump-runtime=emulator", "-p", "no:cacheprovider", "--npudump-update-golden"]
    assert project.pytester.runpytest_subprocess(*arguments).ret == -signal.SIGKILL
    project.patch.delenv("KILL")
    project.model(change=0.01 if passes == "new" else 0.0)
    project.run(passed=1)
    project.model(change=0.02)
    project.record()
    project.run(passed=1)
    (folder,) = {path.parent for path in project.path.joinpath("golden").rglob("*.yaml")}
    assert sorted(path.suffix for path in folder.iterdir()) == [".safetensors", ".yaml"]


@pytest.mark.parametrize(
    ("make", "reason", "kind"),
    [(os.mkfifo, "not a regular file", "a pipe"), (os.mkdir, "Is a directory", "a directory")],
    ids=["pipe", "directory"],
)
def test_what_is_no_file_of_golden_tensors_is_named_and_not_waited_for(
    project: Project, make: Callable[[Path], None], reason: str, kind: str
) -> None:
    project.recorded("golden_tensors=['*']")
    tensors = project.golden.with_suffix(".safetensors")
    waiting = waiting_path(tensors)
    make(waiting)
    project.run(passed=1)
    tensors.unlink()
    words = "not a file of golden tensors: "
    project.run(failed=1, shows=f"npudump: *{waiting.name}: {words}{reason}; *")
    updated = project.run("--npudump-update-golden")
    if kind == "a directory":
        held(updated, f"*{waiting.name}: left by a recording that did not end, *remove it*", failed=1)
        waiting.rmdir()
    else:
        held(updated, passed=1)
        tensors.unlink()
    make(tensors)
    project.run(failed=1, shows=f"npudump: *{tensors.name}: {words}{reason}; *")
    cannot = f"npudump: *{tensors.name}: cannot be written: it is {kind}*"
    project.run("--npudump-update-golden", failed=1, shows=cannot)


def kept(project: Project) -> set[str]:
    """Return the layers whose tensors lie beside the golden."""
    return {key.partition(":")[0] for key in load_tensors(project.golden.with_suffix(".safetensors"))}


def sources(project: Project) -> list[str]:
    head = project.golden.read_text().partition("tensors: |")[0]
    found: list[str] = yaml.safe_load(head.rpartition("columns:")[0])["golden_tensors"].get("sources", [])
    return found


@pytest.fixture
def auto(project: Project) -> Project:
    project.recorded(f"golden_tensors='auto', {DATA}")
    return project


def swapped(project: Project, change: Callable[[bytearray], bytes | None]) -> None:
    """Change the file of golden tensors."""
    tensors = project.golden.with_suffix(".safetensors")
    content = bytearray(tensors.read_bytes())
    tensors.write_bytes(change(content) or content)


def test_where_an_approved_change_begins_is_kept_from_then_on(auto: Project) -> None:
    """A source that the model has not any more goes."""
    auto.model(change=0.5)
    auto.run(failed=1)
    auto.record()
    assert (kept(auto), sources(auto)) == ({OUTPUT, "block/conv.2"}, ["block/conv.2"])
    auto.run(passed=1)
    before = auto.golden.read_bytes()
    auto.record()
    assert auto.golden.read_bytes() == before
    text = before.decode()
    assert text.count("sources: [block/conv.2]") == 1
    auto.golden.write_text(text.replace("sources: [block/conv.2]", "sources: [gone, block_relu.1]"))
    auto.record()
    assert (kept(auto), sources(auto)) == ({OUTPUT, "block/relu.1"}, ["block/relu.1"])


def test_where_the_kept_run_failed_is_kept_although_it_was_mended(project: Project) -> None:
    project.marked(f"golden_tensors='auto', {DATA}")
    project.record(KEEP)
    project.model(change=0.5)
    project.run(KEEP, failed=1)
    project.model()
    project.record(KEEP)
    assert (kept(project), sources(project)) == ({OUTPUT, "block/conv.2"}, ["block/conv.2"])
    project.run(KEEP, passed=1)


def test_names_may_stand_beside_auto_and_have_to_be_kept(auto: Project) -> None:
    auto.marked(f"golden_tensors=['auto', 'block/relu.1'], {DATA}")
    auto.run(failed=1, shows="npudump: golden tensors named in the marker are not beside*block/relu.1:*")
    auto.record()
    assert kept(auto) == {OUTPUT, "block/relu.1"}
    auto.run(passed=1)


def test_a_change_of_elements_alone_is_found(auto: Project) -> None:
    """A damaged golden tensor fails as what cannot be compared."""
    whole = auto.golden.with_suffix(".safetensors").read_bytes()

    def exchanged(content: bytearray) -> bytes:
        content[-4:], content[-8:-4] = content[-8:-4], content[-4:]  # two elements change places
        return bytes(content).replace(b"npudump.digests", b"without.digests")

    swapped(auto, exchanged)
    auto.run(failed=1, shows=f"npudump: {OUTPUT}:output.0 *")
    swapped(auto, lambda _: whole[:-1] + bytes([whole[-1] ^ 1]))
    auto.run(failed=1, shows=f"npudump: the elements of {OUTPUT}:output.0 cannot be compared: *")


def test_a_golden_without_tensors_fails_and_says_what_to_do(auto: Project) -> None:
    words = "npudump: golden_tensors is 'auto', and test_small.yaml keeps no tensors: *"
    auto.golden.with_suffix(".safetensors").unlink()
    auto.run(failed=1, shows=words)
    auto.recorded()
    option = "-onpudump_golden_tensors=auto"
    auto.run(option, failed=1, shows=words)
    auto.record(option)
    auto.run(option, passed=1)
    auto.marked("scene='overflow'")
    auto.golden.unlink()
    auto.run(option, passed=1)
    auto.marked("golden_tensors=['block/relu.1']")
    auto.record(option)
    assert kept(auto) == {"block/relu.1"}


LAST = "block_conv_2:output.0"


def accept(*words: str) -> int:
    return main(["golden", "accept", "--results", "results", *words])


def tensors_of(project: Project, store: TensorStore | None = None) -> dict[str, np.ndarray]:
    """Return copies of the golden's tensors."""
    return {name: np.array(one) for name, one in read_tensors(read_golden(project.golden), store).items()}


def objects(project: Project) -> list[Path]:
    return [path for path in (project.path / "results" / "tensors").rglob("*") if path.is_file()]


@pytest.mark.parametrize("arguments", [EVERY, f"{EVERY}, {DATA}"])
def test_an_approved_run_keeps_the_tensors_that_an_update_would(project: Project, arguments: str) -> None:
    project.recorded(arguments)
    before = tensors_of(project)
    project.model(change=0.01)
    assert project.run(KEEP).ret == 1
    assert accept() == 0
    accepted = tensors_of(project)
    assert project.run(KEEP).ret == 0
    assert objects(project) == []
    project.record()
    updated = tensors_of(project)
    assert accepted.keys() == updated.keys() == before.keys()
    assert all(np.array_equal(accepted[name], updated[name]) for name in updated)
    assert not all(np.array_equal(accepted[name], before[name]) for name in updated)


def test_tensors_go_to_the_store_of_the_project(project: Project) -> None:
    (project.path / "store").mkdir()
    place = (f"-onpudump_tensor_store=file://{project.path}/store", "-onpudump_tensor_cache=cache")
    project.marked("golden_tensors=['block/conv.2']")
    project.record(*place)
    store = TensorStore(f"file://{project.path}/store", str(project.path / "cache"))
    [before] = tensors_of(project, store).values()
    project.model(change=0.01)
    project.run(KEEP, *place)
    assert accept() == 0
    [after] = tensors_of(project, store).values()
    assert not np.array_equal(before, after)
    assert not project.golden.with_suffix(".safetensors").exists()
    assert len([*(project.path / "store").rglob("*")]) > 2
    assert project.run(*place).ret == 0


def test_layers_that_are_not_named_keep_their_tensors(project: Project) -> None:
    project.recorded(f"{EVERY}, {DATA}")
    before = tensors_of(project)
    project.model(change=0.01, nan=True)
    project.run(KEEP)
    assert accept("--layers", "block/conv.2") == 0
    after = tensors_of(project)
    assert [n for n in before if not np.array_equal(before[n], after[n], equal_nan=True)] == [LAST]


def test_tensors_that_did_not_change_stay_where_the_run_dumped_none(project: Project) -> None:
    project.recorded("golden_tensors=['block/relu.1']")
    before = tensors_of(project)
    project.model(change=0.01)
    assert project.run(KEEP, "-onpudump_escalate=off").ret == 1
    assert accept() == 0
    after = tensors_of(project)
    assert [*after] == [*before] == ["block_relu_1:output.0"]
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert project.run().ret == 0


def refused(project: Project, *words: str) -> None:
    """Hold what an approval says against these words; it leaves the golden."""
    before = project.golden.read_bytes()
    code, _, told = project.command("golden", "accept", "--results", "results")
    assert code == 2
    assert all(one in told for one in words)
    assert "the run left none" not in told
    assert project.golden.read_bytes() == before


def test_a_run_without_its_tensors_is_refused_and_says_so(project: Project) -> None:
    project.recorded(CONV, change=0.01)
    for damage in ("gone", "changed"):
        project.run(KEEP)
        [path] = objects(project)
        path.unlink() if damage == "gone" else path.write_bytes(bytes(len(path.read_bytes())))
        refused(project, "a golden tensor is not at hand")
        shutil.rmtree(project.path / "results")
    for option, reason in {
        "dump_limit=1": "that of block_conv_2:output.0 (not run: the tensors of",
        "escalate=off": "neither the run nor its second run has",
        "tensor_budget=1": "more than npudump_tensor_budget",
    }.items():
        project.run(KEEP, f"-onpudump_{option}")
        refused(project, reason)


@pytest.mark.parametrize("arguments", [CONV, "golden_tensors='auto'", f"{CONV}, {DATA}"])
def test_a_first_golden_takes_the_tensors_of_its_run_or_of_the_second(
    project: Project, arguments: str
) -> None:
    project.marked(arguments)
    result = project.run(KEEP)
    dumped = "dumped as tensors, which an update stores with the golden" in result.stdout.str()
    assert dumped == ("dump_data" not in arguments)
    assert accept() == 0
    assert [*tensors_of(project)] == ["head_softmax:output.0" if "auto" in arguments else LAST]
    assert read_golden(project.golden).extra["repeats"] == {"runs": 1}
    assert project.run().ret == 0


def test_a_marker_that_asks_for_more_takes_the_tensors_without_an_update(project: Project) -> None:
    """Those of the run where the golden is one of tensors, else of a second run."""
    for data, second in (("tensor", False), ("stats", True)):
        project.recorded("" if data == "tensor" else 'acl_json={"dump_data": "stats"}')
        project.marked("golden_tensors=['block/conv.2']")
        result = project.run(KEEP, failed=1, shows="*golden tensors named in the marker are not beside*")
        assert ("\nsecond run: 1 layer" in result.stdout.str()) == second
        assert accept() == 0
        assert [*tensors_of(project)] == [LAST]
        assert project.run().ret == 0
        shutil.rmtree(project.path / "golden")


def test_an_output_folder_carries_the_tensors(project: Project) -> None:
    """Those beyond the budget are told once with the largest."""
    project.recorded(CONV, change=0.01)
    project.run("--npudump-output=out")
    folder = project.path / "out" / "results"
    assert [path for path in (folder / "tensors").rglob("*") if path.is_file()]
    assert main(["golden", "accept", "--results", str(folder)]) == 0
    shutil.rmtree(project.path / "golden")
    project.marked("golden_tensors='auto'")
    words = f"npudump: nothing was recorded: golden_tensors: *{OUTPUT}:output.0 (128 bytes)*"
    update = ("--npudump-update-golden", "-onpudump_tensor_budget=100")
    project.run(*update, shows=words, hides="second run: *")
    assert not [*(project.path / "golden").rglob("*.yaml")]
