"""Several ranks: each with its golden or all with one, run again together, named where they differ."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

pytestmark = pytest.mark.e2e
BODY = """
    with open(f"runs-{os.environ['RANK']}", "a") as file:
        file.write("run\\n")
    name = "changed.onnx" if os.environ["RANK"] == os.environ.get("CHANGED") else "small.onnx"
    run(npu_dump, path=name)
"""
WAIT = """
    import time
    def wait_for(name):
        until = time.monotonic() + 60
        while not os.path.exists(name) and time.monotonic() < until:
            time.sleep(0.02)
    def meet(name):
        open(f"{name}-{os.environ['RANK']}", "w").close()
        wait_for(f"{name}-{1 - int(os.environ['RANK'])}")
"""
FINISHED = """
import os
def pytest_runtest_logfinish():
    open(f"finished-{os.environ['RANK']}", "w").close()
"""


@pytest.fixture(autouse=True)
def _alone(project: Project, tmp_path: Path) -> None:
    """Statistics only, of which files are edited; ranks of other runs of this suite have the same address."""
    project.patch.setenv("PYTEST_ADDOPTS", f"{os.environ['PYTEST_ADDOPTS']} -o npudump_auto_tensors=0")
    project.patch.setenv("TMPDIR", str(tmp_path))
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        project.patch.delenv(name, raising=False)


ISOLATION = ["isolation='none'", "isolation='process'"]


def write(project: Project, marker: str = "", before: str = "", body: str = BODY) -> None:
    project.model(change=0.5)
    project.path.joinpath("small.onnx").rename(project.path / "changed.onnx")
    project.model()
    project.test_file(
        f"import os, shutil\n@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump):\n{before}{body}"
    )


def impatient(project: Project, seconds: float, more: str = "") -> None:
    """Have ranks wait for each other no longer than ``seconds``."""
    patience = f"from pytest_npudump.ranks import rank\nrank.PATIENCE = {seconds}\n"
    project.path.joinpath("conftest.py").write_text(patience + more)


def launch(
    project: Project, *options: str, codes: tuple[int, int], meeting: bool = True, **variables: str
) -> list[str]:
    """Run pytest as both ranks at once, which end with these codes; return their outputs in order.

    Each is a child of a process of its own; without ``meeting`` none knows where the others are.
    """
    command = [*project.pytester._getpytestargs(), "--npudump-runtime=emulator", *options]
    port = 20_000 + zlib.crc32(str(project.path).encode()) % 10_000  # another worker's ranks meet elsewhere
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if meeting else {}
    processes = [
        subprocess.Popen(
            [*command, f"--basetemp={project.path}/temp-{number}"],
            cwd=project.path,
            env={**os.environ, "RANK": str(number), "WORLD_SIZE": "2", **address, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [*codes], "".join(outputs)
    return outputs


UPDATE = "--npudump-update-golden"
BREAK = "    assert os.environ['RANK'] != os.environ.get('BROKEN')\n"


def goldens(project: Project) -> list[str]:
    return sorted(path.name for path in project.path.joinpath("golden").rglob("*.yaml"))


def runs(project: Project) -> list[int]:
    files = [project.path / f"runs-{number}" for number in range(2)]
    return [len(path.read_text().splitlines()) if path.exists() else 0 for path in files]


def grown(project: Project, before: list[int]) -> list[int]:
    return [now - then for now, then in zip(runs(project), before, strict=True)]


def test_each_rank_has_a_golden_of_its_own_and_the_one_that_differs_is_named(project: Project) -> None:
    write(project)
    launch(project, UPDATE, codes=(0, 0))
    assert goldens(project) == ["test_small@rank0of2.yaml", "test_small@rank1of2.yaml"]
    launch(project, codes=(0, 0))
    before = runs(project)
    first, second = launch(project, codes=(0, 1), CHANGED="1")
    assert "npudump: test_small.py::test_small fails on 1 of 2 ranks: 1 (block/conv.2:output.0)" in first
    assert "npudump: rank 1 of 2: block/conv.2:output.0 " in second
    assert "second run: reproduced" in second
    # A model whose ranks wait for each other hangs unless all of them run again.
    assert grown(project, before) == [2, 2]
    # Ranks of one launcher meet without an address.
    command = (sys.executable, "-m", "pytest")
    project.patch.setattr(project.pytester, "_getpytestargs", lambda: command)
    first, second = launch(project, codes=(0, 1), meeting=False, CHANGED="1")
    assert "fails on 1 of 2 ranks: 1 (block/conv.2:output.0)" in first
    assert "second run: reproduced" in second


def test_ranks_share_one_golden_that_rank_0_records_where_it_holds_for_all(project: Project) -> None:
    write(project, "ranks='same'")
    not_recorded(project)
    first, second = launch(project, UPDATE, codes=(0, 0))
    assert "1 recorded" in first
    assert "rank 0 records the golden that all ranks share" in second
    assert goldens(project) == ["test_small.yaml"]
    first, second = launch(project, codes=(0, 1), CHANGED="1")
    assert "fails on 1 of 2 ranks: 1 (block/conv.2:output.0)" in first


@pytest.mark.parametrize("isolation", ISOLATION)
def test_rank_whose_body_fails_keeps_nobody_waiting_and_nobody_runs_again_without_it(
    project: Project, isolation: str
) -> None:
    write(project, isolation, before=BREAK)
    launch(project, UPDATE, codes=(0, 0))
    before = runs(project)
    first, _ = launch(project, codes=(1, 1), CHANGED="0", BROKEN="1")
    assert "would have to run again together, and rank 1 will not: its run came to no comparison" in first
    assert "fails on 2 of 2 ranks: 0 (block/conv.2:output.0), 1 (not compared)" in first
    assert grown(project, before)[0] == 1


def test_rank_that_is_late_does_not_run_again_alone(project: Project) -> None:
    slow = f"""{WAIT}
    if "SLOW" in os.environ:
        meet("begun")
{BODY}
    if os.environ["RANK"] == os.environ.get("SLOW"):
        wait_for("finished-1")
"""
    write(project, body=slow)
    launch(project, UPDATE, codes=(0, 0))
    impatient(project, 1, FINISHED)
    before = runs(project)
    first, _ = launch(project, codes=(1, 0), CHANGED="0", SLOW="0")
    assert "second run: not run: all 2 ranks would have to run again together, and nothing came from" in first
    assert grown(project, before) == [1, 1]


def test_ranks_that_cannot_meet_wait_once_and_say_so_once(project: Project) -> None:
    write(project)
    impatient(project, 1)
    launch(project, UPDATE, codes=(0, 0), meeting=False)
    first, second = launch(project, codes=(0, 1), meeting=False, CHANGED="1")
    words = "did not come: start all ranks by one launcher, or set MASTER_ADDR and MASTER_PORT for all"
    assert first.count(f"npudump: rank 1 {words}") == 1
    assert second.count(f"npudump: rank 0 {words}") == 1
    assert f"second run: not run: all 2 ranks would have to run again together, and rank 0 {words}" in second


def not_recorded(project: Project) -> None:
    """Try to record a golden that does not hold for every rank."""
    for output in launch(project, UPDATE, codes=(1, 1), CHANGED="1"):
        assert "nothing was recorded: ranks='same', and rank 1 differs from rank 0 in block/conv.2" in output
        assert "give each rank a golden of its own with ranks='each'" in output
    assert not project.path.joinpath("golden").exists()


def test_a_shared_golden_with_tensors_is_recorded_by_the_second_run_of_all(project: Project) -> None:
    write(project, "ranks='same', golden_tensors=['block/conv.2']")
    not_recorded(project)
    before = runs(project)
    assert "it holds for this rank" in launch(project, UPDATE, codes=(0, 0))[1]
    assert goldens(project) == ["test_small.yaml"]
    assert [path.name for path in project.path.rglob("*.safetensors")] == ["test_small.safetensors"]
    assert grown(project, before) == [2, 2]
    launch(project, codes=(0, 0))


@pytest.mark.parametrize("broken", ["0", "1"])
def test_shared_golden_is_not_recorded_where_a_rank_has_nothing_to_compare(
    project: Project, broken: str
) -> None:
    write(project, "ranks='same'", before=BREAK)
    output = launch(project, UPDATE, codes=(1, 1), BROKEN=broken)[1 - int(broken)]
    words = f"ranks='same', and rank {broken} has nothing to compare: its run came"
    assert f"nothing was recorded: {words}" in output
    assert not project.path.joinpath("golden").exists()


EXCEPTION = f"""{WAIT}
    import contextlib
    from pytest_npudump.emulator.faults import fail
    from pytest_npudump.errors import NpudumpError
    meet("begun")
    if os.environ["RANK"] == "1":
        fail("block/conv.2")
    with npu_dump.load_model("small.onnx") as model, contextlib.suppress(NpudumpError):
        model.run(IMAGE)
    meet("ran")
"""


def test_rank_is_not_blamed_for_an_exception_of_another_in_a_folder_of_all(project: Project) -> None:
    write(project, "scene='exception', isolation='none'", body=EXCEPTION)
    first, second = launch(project, codes=(0, 1), ASCEND_DUMP_PATH=str(project.path / "all"))
    assert f"exception dumps of device 1 in {project.path}/all/extra-info/data-dump are left to" in first
    assert "test_small.py::test_small fails on 1 of 2 ranks: 1 (block/conv.2)" in first
    assert "block/conv.2 (Conv) failed on the NPU (device 1, " in second


SEVERAL = """
    folder = next(npu_dump._test.attempt.dump_path.glob("*"))
    shutil.copytree(folder / "0", folder / "1")
    if os.environ.get("CHANGED"):
        (path,) = (folder / "1").rglob("Softmax.head_softmax.*.csv")
        path.write_text(path.read_text().replace("0.", "0.9"))
"""


@pytest.fixture
def several(project: Project) -> Project:
    """A test whose dump holds two devices that computed the same."""
    project.patch.setenv("RANK", "0")
    project.patch.delenv("WORLD_SIZE", raising=False)
    write(project, "ranks='same'", body=BODY + SEVERAL)
    return project


def test_what_is_no_rank_or_cannot_be_asked_of_one_is_refused(project: Project) -> None:
    project.patch.setenv("WORLD_SIZE", "2")
    project.patch.setenv("RANK", "nonsense")
    project.test_file("def test_plain():\n    pass\n")
    project.run(passed=1)
    project.marked()
    result = project.run(shows="*the variable RANK is 'nonsense', expected a number from 0")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    project.patch.setenv("RANK", "1")
    words = "*--npudump-update-golden=calibrate needs one process, and this one is rank 1 of 2*"
    project.refused(words, "--npudump-update-golden=calibrate", "-onpudump_calibration_runs=3")
    words = "*this is rank 1 of 2, and all ranks run one test at a time: leave out -n*"
    assert project.run("-n1", shows=words).ret != 0
    words = "*rank 1 of 2: rank 0 records the golden that all ranks share; it was not compared with*"
    project.patch.setenv("MASTER_ADDR", "192.0.2.7")
    project.marked("ranks='same'")
    project.run("--npudump-update-golden", passed=1, shows=words)
    assert not project.path.joinpath("golden").exists()


def test_devices_of_one_dump_share_a_golden(several: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    several.record()
    before = several.golden.read_bytes()
    assert "device" not in before.decode().split("tensors:")[1]
    several.run(passed=1)
    words = "*not calibrated: device 0, device 1 share a golden, of which only one*"
    for update in ((), ("--npudump-update-golden",)):
        calibrate = ("--npudump-update-golden=calibrate", "-onpudump_calibration_runs=3")
        several.run(*calibrate, *update, failed=1, shows=words)
    monkeypatch.setenv("CHANGED", "1")
    shows = [
        "npudump: device 1: head/softmax:output.0 *",
        "note:       mismatches in device 1, of 2 compared with one golden; shown is device 1",
    ]
    several.run(failed=1, shows=shows)
    words = "npudump: nothing was recorded: ranks='same', and device 1 differs from device 0 in *"
    several.run("--npudump-update-golden", failed=1, shows=words)
    assert several.golden.read_bytes() == before
