"""Exception dumps: bytes against files that adump wrote, names and life cycle against its sources."""

from __future__ import annotations

import json
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from onnx import TensorProto, helper

from pytest_npudump.dump.dtypes import BY_PROTO
from pytest_npudump.dump.filebytes import raw_bytes
from pytest_npudump.dump.files.core import core_damage
from pytest_npudump.dump.names import libstdcxx_hash, read_mapping
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.emulator import install
from pytest_npudump.emulator.dumps.exceptions import (
    ExceptionArgument,
    ExceptionDump,
    FailedTask,
    container,
    exception_header,
)
from pytest_npudump.emulator.faults import fail
from pytest_npudump.emulator.process import process
from pytest_npudump.onnxmodels.tensor_types import Tensor

SAMPLES = Path(__file__).parents[2] / "data" / "trees" / "acl-exception"
SCENES = ("aic_err_norm_dump", "aic_err_brief_dump", "lite_exception")
ENVIRONMENT = ("ASCEND_DUMP_SCENE", "ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def _dims(wire: Any, packed: bytes) -> tuple[int, ...]:
    dims, at = [], 0
    while at < len(packed):
        dim, at = wire.varint(packed, at)
        dims.append(dim)
    return tuple(dims)


@pytest.mark.each("name", ["op.1.2", "17662089044247037585"])
def test_a_file_rebuilt_from_its_values_is_adump_s_byte_for_byte(name: str, wire: Any) -> None:
    raw = (SAMPLES / name).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    top = wire.fields(raw[8 : 8 + length])
    at = 8 + length
    sides: dict[int, list[ExceptionArgument]] = {4: [], 3: []}
    for number, size_field, index_field in ((4, 5, 10), (3, 6, 12)):
        for value in (value for found, value in top if found == number):
            held = dict(wire.fields(value))
            size = held[size_field]
            shape = _dims(wire, dict(wire.fields(held[3]))[1])
            tensor = Tensor(BY_PROTO[held[1]], shape, np.frombuffer(raw[at : at + size], np.uint8))
            sides[number].append(ExceptionArgument(tensor, held[index_field], held[2]))
            at += size
    values = dict(top)
    attribute = dict(wire.fields(values[7]))
    operator = FailedTask(values[6].decode(), "", 0, 0, 0, sides[4], sides[3])
    header = exception_header(
        values[2],
        operator,
        message=values[9].decode(),
        attributes={attribute[1].decode(): attribute[2].decode()},
    )
    assert b"".join(container(header, operator)) == raw


@pytest.fixture
def exceptions(started: Any, tmp_path: Path) -> Callable[..., Path]:
    """Switches an exception dump on; returns the directory of device 0."""
    root = tmp_path / "dumps"
    root.mkdir()

    def switch_on(scene: str, path: Path = root) -> Path:
        config = tmp_path / f"{scene}.json"
        config.write_text(json.dumps({"dump": {"dump_scene": scene, "dump_path": str(path)}}))
        assert started.mdl.init_dump() in {0, 100002}
        assert started.mdl.set_dump(str(config)) == 0
        return path / "extra-info" / "data-dump" / "0"

    return switch_on


@pytest.fixture
def run(program: Any) -> Callable[..., int]:
    """Executes a model of one float32 [2, 3] input and output once, and returns the code."""

    def execute(model_id: int) -> int:
        place = (program.memory(range(6)), 24)
        code: int = program.acl.mdl.execute(model_id, program.dataset(place), program.dataset(place))
        return code

    return execute


@pytest.fixture
def new_process(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, str]], Path]:
    """Starts over as a process with this environment; returns its working directory."""

    def begin(environment: dict[str, str]) -> Path:
        monkeypatch.chdir(tmp_path)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        install.reset()
        assert started.init() == 0
        assert started.rt.set_device(0) == 0
        return tmp_path

    return begin


def test_a_failing_operator_leaves_a_norm_dump_and_the_code_of_a_failed_model(
    started: Any, exceptions: Any, run: Any, small_model: Path, wire: Any
) -> None:
    folder = exceptions("aic_err_norm_dump")
    model_id, _ = started.mdl.load_from_file(str(small_model))
    assert run(model_id) == 0
    assert not folder.exists()
    fail("block/relu.1", model="small")
    assert run(model_id) == 507011
    message = started.get_recent_err_msg()
    assert "Relu operator 'block/relu.1' failed (task 2)" in message
    (file,) = folder.iterdir()
    assert f"dump exception to file, file: {file}" in message
    assert re.fullmatch(r"Relu\.block_relu_1\.2\.\d{17}", file.name)
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    raw = file.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = dict(wire.fields(raw[8 : 8 + length]))
    assert header[6] == b"block/relu.1"
    assert header[9].startswith(
        b"[AIC_INFO] node_name:block/relu.1, node_type:Relu, stream_id:3, task_id:2, context_id:"
    )
    given = np.frombuffer(raw[8 + length :], np.float32)
    assert given.tolist() == [0, -2, 1, 3, -8, 2.5, 0, 0, 0, 0, 0, 0]


@pytest.fixture
def fail_in_small(program: Any, run: Any, small_model: Path) -> Callable[[str], None]:
    """Loads the small model and runs it once, with an operator that fails."""

    def execute(operator: str) -> None:
        fail(operator)
        assert run(program.load(small_model)) == 507011

    return execute


@pytest.mark.parametrize("scene", ["aic_err_brief_dump", "lite_exception"])
def test_a_brief_dump_has_ids_in_its_name_and_no_types(
    exceptions: Any, fail_in_small: Any, wire: Any, scene: str
) -> None:
    folder = exceptions(scene)
    fail_in_small("block/relu.1")
    (file,) = folder.iterdir()
    assert re.fullmatch(r"exception_info\.3\.2\.\d{17}", file.name)
    raw = file.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    top = wire.fields(raw[8 : 8 + length])
    assert [number for number, _ in top] == [1, 2, 3, 4]
    given = dict(wire.fields(top[3][1]))
    assert given == {3: b"\n\x02\x02\x03", 5: 24, 11: 2}
    assert dict(wire.fields(top[2][1])) == {3: b"\n\x02\x02\x03", 6: 24, 12: 1}


def test_the_weights_and_the_index_of_a_gather_that_fails_are_in_the_dump(
    started: Any, program: Any, exceptions: Any, save_graph: Any
) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Gather", ["table", "a"], ["b"], name="pick"),
        helper.make_node("Neg", ["b"], ["y"], name="neg"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in "xy")
    table = helper.make_tensor("table", TensorProto.INT64, [2], [10, 20])
    path = save_graph(helper.make_graph(nodes, "g", [x], [y], [table]), "gather.onnx")
    folder = exceptions("aic_err_norm_dump")
    model_id, _ = started.mdl.load_from_file(str(path))
    fail("pick")
    place = (program.memory([-1], np.int64), 8)
    assert started.mdl.execute(model_id, program.dataset(place), program.dataset(place)) == 507011
    records = read_dump(folder.parents[2]).records
    values = {str(r.key): raw_bytes(r.payload).view(np.int64).tolist() for r in records if r.payload}
    assert values == {"pick:input.0": [10, 20], "pick:input.1": [1], "pick:output.0": [0]}


def test_an_operator_fails_from_the_execution_that_was_named_and_no_other(
    started: Any, program: Any, exceptions: Any, run: Any, small_model: Path
) -> None:
    folder = exceptions("aic_err_norm_dump")
    model_id = program.load(small_model)
    fail("scale", model="another")
    fail("nothing of this model")
    assert run(model_id) == 0
    with fail("misspelt", model="small"):
        assert run(model_id) == 545000
    assert "no operator 'misspelt'" in started.get_recent_err_msg()
    fail("scale", model="small graph", first=3)
    assert [run(model_id) for _ in range(4)] == [0, 0, 507011, 507011]
    assert len(list(folder.iterdir())) == 2


def test_without_a_dump_or_before_one_the_failure_is_a_code_only(
    program: Any, exceptions: Any, run: Any, small_model: Path, tmp_path: Path
) -> None:
    model_id = program.load(small_model)
    fail("scale")
    assert run(model_id) == 507011
    exceptions("aic_err_norm_dump")
    assert run(model_id) == 507011
    assert not list(tmp_path.rglob("extra-info"))


def test_the_first_exception_dump_stays_until_it_is_finalized(
    started: Any, exceptions: Any, fail_in_small: Any, tmp_path: Path
) -> None:
    first = exceptions("aic_err_brief_dump")
    (tmp_path / "second").mkdir()
    second = exceptions("aic_err_norm_dump", tmp_path / "second")
    fail_in_small("scale")
    assert [file.name.partition(".")[0] for file in first.iterdir()] == ["exception_info"]
    assert not second.exists()
    assert started.mdl.finalize_dump() == 0
    exceptions("aic_err_norm_dump", tmp_path / "second")
    fail_in_small("scale")
    assert [file.name.partition(".")[0] for file in second.iterdir()] == ["Mul"]


def test_a_detail_dump_cannot_be_switched_off(started: Any, exceptions: Any, tmp_path: Path) -> None:
    exceptions("aic_err_detail_dump")
    assert started.mdl.finalize_dump() == 0
    (tmp_path / "second").mkdir()
    exceptions("aic_err_norm_dump", tmp_path / "second")
    assert process().dumping.exception == ExceptionDump("AIC_ERR_DETAIL_DUMP", str(tmp_path / "dumps"))


@pytest.mark.parametrize(
    ("environment", "taken"),
    [
        ({"ASCEND_WORK_PATH": "work"}, "work"),
        ({"ASCEND_WORK_PATH": "work", "ASCEND_DUMP_PATH": "dump"}, "dump"),
        ({"ASCEND_DUMP_PATH": "small.onnx/nowhere"}, "dumps"),
        ({"NPU_COLLECT_PATH": "collect"}, "collect"),
        ({"NPU_COLLECT_PATH": "collect", "ASCEND_WORK_PATH": "work"}, "collect"),
        ({"ASCEND_DUMP_SCENE": "aic_err_norm_dump"}, "."),
        ({"ASCEND_DUMP_SCENE": "lite_exception"}, "dumps"),
        ({"ASCEND_DUMP_SCENE": "aic_err_norm_dump", "NPU_COLLECT_PATH": "collect"}, "."),
    ],
)
def test_the_environment_decides_before_the_configuration(
    new_process: Any, exceptions: Any, fail_in_small: Any, environment: dict[str, str], taken: str
) -> None:
    folder = new_process(environment)
    exceptions("aic_err_norm_dump")
    fail_in_small("scale")
    (file,) = folder.rglob("Mul.*")
    assert file.parent == folder / taken / "extra-info" / "data-dump" / "0"


def test_a_name_too_long_for_a_file_is_hashed_without_its_directory(
    started: Any, exceptions: Any, run: Any, save_graph: Any
) -> None:
    long = "m" * 300
    node = helper.make_node("Neg", ["x"], ["y"], name=long)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    path = save_graph(helper.make_graph([node], "g", [x], [y]), "long.onnx")
    folder = exceptions("aic_err_norm_dump")
    fail(long)
    assert run(started.mdl.load_from_file(str(path))[0]) == 507011
    ((short, name),) = read_mapping(folder / "mapping.csv").items()
    assert re.fullmatch(rf"Neg\.{long}\.1\.\d{{17}}", name)
    assert (folder / short).is_file()
    (real_short, real_name), *_ = read_mapping(SAMPLES / "mapping.csv").items()
    assert str(libstdcxx_hash(real_name.encode())) == real_short
    assert str(libstdcxx_hash(name.encode())) == short


def test_a_single_operator_that_fails_is_dumped(started: Any, exceptions: Any) -> None:
    folder = exceptions("aic_err_norm_dump")
    fail("Neg", first=1)
    desc = started.create_tensor_desc(0, [2], 2)
    buffers = [started.create_data_buffer(started.rt.malloc(8, 0)[0], 8) for _ in range(2)]

    def execute() -> int:
        attr = started.op.create_attr()
        stream, _ = started.rt.create_stream()
        assert started.op.execute_v2("Neg", [desc], buffers[:1], [desc], buffers[1:], attr, stream) == 0
        code: int = started.rt.synchronize_stream(stream)
        return code

    assert execute() == 0
    assert execute() == 507015
    assert "Neg operator 'Neg' failed (task 2)" in started.get_recent_err_msg()
    assert [r.key.io for r in read_dump(folder.parents[2]).records] == ["input", "output"]


DETAIL = """
import sys
from pytest_npudump.emulator.install import install
install()
import acl
import numpy as np
from pytest_npudump.emulator.faults import fail

fail("block/relu.1")
acl.init(sys.argv[1])
acl.rt.set_device(1)
model_id, ret = acl.mdl.load_from_file(sys.argv[2])
address, _ = acl.rt.malloc(24, 0)
datasets = [acl.mdl.create_dataset() for _ in range(2)]
for dataset in datasets:
    acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, 24))
print("before", flush=True)
acl.mdl.execute(model_id, *datasets)
print("after", flush=True)
"""


def test_a_detail_dump_leaves_a_core_and_ends_the_process(tmp_path: Path, small_model: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text(json.dumps({"dump": {"dump_scene": "aic_err_detail_dump", "dump_path": str(tmp_path)}}))
    done = subprocess.run(
        [sys.executable, "-c", DETAIL, str(config), str(small_model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "before\n"), done.stderr
    (file,) = (tmp_path / "extra-info" / "data-dump" / "1").iterdir()
    assert re.fullmatch(r"te_relu_block_relu_1__kernel0\.3\.2\.\d{17}\.core", file.name)
    assert core_damage(file) is None
    with file.open("rb") as stream:
        elf = ELFFile(stream)
        assert elf["e_type"] == "ET_CORE"
        held = [(section.name, section.data()) for section in elf.iter_sections()][2:5]
        name = b"te_relu_block_relu_1__kernel0"
        assert [(section, len(data)) for section, data in held[:2]] == [(".ascend.global", 24)] * 2
        assert held[2] == (".ascend.kernel_info", struct.pack("<I", len(name)) + name)


@pytest.mark.parametrize("variable", ["NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE"])
@pytest.mark.parametrize("dump", [{"dump_list": [{}]}, {"dump_debug": "on"}], ids=["data", "overflow"])
def test_ge_dumps_no_data_while_dumps_are_collected_and_set_dump_answers_0(
    new_process: Any, variable: str, dump: dict[str, object]
) -> None:
    folder = new_process({variable: "collect"})
    import acl

    path = folder / "data.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(folder), **dump}}), encoding="utf-8")
    assert (acl.init(), acl.mdl.init_dump(), acl.mdl.set_dump(str(path))) in {(0, 0, 0), (100002, 0, 0)}
    assert process().dumping.settings is None
    assert f"GE refuses (E10056) while {variable} is set" in acl.get_recent_err_msg()
