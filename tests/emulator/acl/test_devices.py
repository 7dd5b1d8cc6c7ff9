"""Several devices in one process: each model dumps below the device it was loaded on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.emulator.faults import fail

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _run(acl: Any, device: int, path: Path, times: int) -> list[int]:
    """Load and run a model of one float32 [2, 3] input on a device, in the calling thread."""
    assert acl.rt.set_device(device) == 0
    model_id, ret = acl.mdl.load_from_file(str(path))
    assert ret == 0
    data = np.full(6, device + 1, np.float32).tobytes()
    address, _ = acl.rt.malloc(24, 0)
    acl.rt.memcpy(address, 24, acl.util.bytes_to_ptr(data), 24, 1)
    datasets = [acl.mdl.create_dataset() for _ in range(2)]
    for dataset, room in zip(datasets, (address, acl.rt.malloc(24, 0)[0]), strict=True):
        acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(room, 24))
    codes = [acl.mdl.execute(model_id, *datasets) for _ in range(times)]
    assert acl.rt.get_device() == (device, 0)
    return codes


def test_models_on_two_devices_have_a_directory_and_keys_each(
    started: Any, set_dump: Callable[..., Path], small_model: Path
) -> None:
    root = set_dump(dump_data="stats")
    for device in (0, 1):
        assert _run(started, device, small_model, 2) == [0, 0]
    (stamp,) = root.iterdir()
    assert sorted(path.name for path in stamp.iterdir()) == ["0", "1"]
    found = {str(r.key): r.stats.max for r in read_dump(root).records if r.stats and r.key.layer == "scale"}
    assert found == {
        "scale#device=0:output.0": 1,
        "scale#device=0,step=1:output.0": 1,
        "scale#device=1:output.0": 2,
        "scale#device=1,step=1:output.0": 2,
    }


def test_threads_on_devices_of_their_own_dump_side_by_side(
    started: Any, set_dump: Callable[..., Path], small_model: Path
) -> None:
    root = set_dump()
    with ThreadPoolExecutor(4) as workers:
        jobs = [workers.submit(_run, started, device, small_model, 5) for device in range(4)]
        assert [job.result() for job in jobs] == [[0] * 5] * 4
    dump = read_dump(root)
    assert dump.problems == ()
    scaled = [r for r in dump.records if r.key.layer == "scale"]
    assert {(r.key.device, r.key.step) for r in scaled} == {(d, s) for d in range(4) for s in range(5)}
    assert {(r.key.device, r.stats.max) for r in scaled if r.stats} == {(d, d + 1.0) for d in range(4)}


def test_a_process_without_a_device_of_its_own_keeps_plain_keys(
    started: Any, set_dump: Callable[..., Path], small_model: Path
) -> None:
    root = set_dump()
    assert _run(started, 3, small_model, 1) == [0]
    (stamp,) = root.iterdir()
    assert [path.name for path in stamp.iterdir()] == ["3"]
    assert {r.key.device for r in read_dump(root).records} == {-1}


def test_exceptions_on_two_devices_lie_below_each(started: Any, small_model: Path, tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    section = {"dump_scene": "aic_err_norm_dump", "dump_path": str(tmp_path)}
    config.write_text(json.dumps({"dump": section}))
    assert started.mdl.init_dump() == 0
    assert started.mdl.set_dump(str(config)) == 0
    fail("scale")
    with ThreadPoolExecutor(2) as workers:
        jobs = [workers.submit(_run, started, device, small_model, 1) for device in (0, 1)]
        assert [job.result() for job in jobs] == [[507011], [507011]]
    root = tmp_path / "extra-info" / "data-dump"
    assert sorted(path.name for path in root.iterdir()) == ["0", "1"]
    first = {(r.key.device, r.stats.max) for r in read_dump(tmp_path).records if r.stats and not r.key.slot}
    assert {(0, 1.0), (1, 2.0)} <= first
