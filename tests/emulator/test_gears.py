"""Models that ATC compiles for several shapes, run as the published sample programs do."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.emulator.codes import NotEmulatedError
from pytest_npudump.emulator.gears import compile_for

SHAPE_DATA = "ascend_mbatch_shape_data"
OPTIONS: dict[str, Any] = {
    "batch": {"batch_sizes": [1, 4, 2]},
    "image": {"image_sizes": [(2, 3), (4, 5)]},
    "dims": {"dims": [(1, 3), (4, 5)]},
}
SHAPES = {"batch": ["n", 2, 3], "image": [1, "h", "w"], "dims": ["n", 2, "w"]}


@pytest.fixture
def doubled(save_graph: Callable[..., Path]) -> Callable[[str], Path]:
    """x -> y = x + x; the dimensions that vary are those of the option."""

    def save(kind: str) -> Path:
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPES[kind]) for name in "xy"]
        node = helper.make_node("Add", ["x", "x"], ["y"], name="double")
        return save_graph(helper.make_graph([node], "doubled", ports[:1], ports[1:]), f"{kind}.onnx")

    return save


class Sample:
    """The order of the samples: describe, make room for the largest gear, set a gear, execute."""

    def __init__(self, program: Any, path: Path) -> None:
        self.program, self.acl = program, program.acl
        self.model = program.load(path)
        mdl = self.acl.mdl
        self.desc = mdl.create_desc()
        assert mdl.get_desc(self.desc, self.model) == 0
        self.sizes = [mdl.get_input_size_by_index(self.desc, i) for i in range(mdl.get_num_inputs(self.desc))]
        self.places = [self.acl.rt.malloc(size, 0)[0] for size in self.sizes]
        self.room = mdl.get_output_size_by_index(self.desc, 0)
        self.result = self.acl.rt.malloc(self.room, 0)[0]
        self.source = program.dataset(*zip(self.places, self.sizes, strict=True))
        self.target = program.dataset((self.result, self.room))
        self.index, ret = mdl.get_input_index_by_name(self.desc, SHAPE_DATA)
        assert ret == 0

    def set(self, kind: str, values: tuple[int, ...]) -> int:
        mdl, place = self.acl.mdl, (self.model, self.source, self.index)
        if kind == "batch":
            code = mdl.set_dynamic_batch_size(*place, *values)
        elif kind == "image":
            code = mdl.set_dynamic_hw_size(*place, *values)
        else:
            gear = {"name": "", "dimCount": 3, "dims": [values[0], 2, values[1]]}
            code = mdl.set_input_dynamic_dims(*place, gear)
        number: int = code
        return number

    def execute(self, data: np.ndarray) -> list[float]:
        raw = data.tobytes()
        self.acl.rt.memcpy(self.places[0], len(raw), self.acl.util.bytes_to_ptr(raw), len(raw), 1)
        code = self.acl.mdl.execute(self.model, self.source, self.target)
        assert code == 0, self.acl.get_recent_err_msg()
        result: list[float] = self.program.floats(self.result, data.size)
        return result


@pytest.mark.parametrize(
    ("kind", "gears", "largest"),
    [
        ("batch", {(1,): [1, 2, 3], (2,): [2, 2, 3], (4,): [4, 2, 3]}, [4, 2, 3]),
        ("image", {(4, 5): [1, 4, 5], (2, 3): [1, 2, 3]}, [1, 4, 5]),
        ("dims", {(1, 3): [1, 2, 3], (4, 5): [4, 2, 5]}, [4, 2, 5]),
    ],
)
def test_a_model_runs_in_every_gear(
    program: Any, doubled: Callable[[str], Path], kind: str, gears: dict[Any, list[int]], largest: list[int]
) -> None:
    compile_for(kind, **OPTIONS[kind])
    sample = Sample(program, doubled(kind))
    mdl, desc = program.acl.mdl, sample.desc
    count = len(next(iter(gears)))
    assert (sample.sizes, sample.room) == ([4 * math.prod(largest), 8 * count], 4 * math.prod(largest))
    assert mdl.get_input_dims(desc, 0)[0]["dims"].count(-1) == count
    assert mdl.get_input_dims(desc, 1) == ({"name": SHAPE_DATA, "dimCount": 1, "dims": [count]}, 0)
    assert mdl.get_input_data_type(desc, 1) == 9
    assert mdl.get_output_dims(desc, 0)[0]["dims"] == largest
    assert mdl.get_cur_output_dims(desc, 0)[0]["dims"] == largest
    for values, shape in gears.items():
        assert sample.set(kind, values) == 0
        assert mdl.get_cur_output_dims(desc, 0)[0]["dims"] == shape
        data = np.arange(math.prod(shape), dtype=np.float32)
        assert sample.execute(data) == (data + data).tolist()
        assert mdl.get_cur_output_dims(desc, 0)[0]["dims"] == shape


def test_a_model_tells_its_gears(program: Any, doubled: Callable[[str], Path]) -> None:
    mdl = program.acl.mdl
    descs = {}
    for kind, option in OPTIONS.items():
        compile_for(kind, **option)
        descs[kind] = Sample(program, doubled(kind)).desc
    assert mdl.get_dynamic_batch(descs["batch"]) == ({"batchCount": 3, "batch": [1, 4, 2]}, 0)
    assert mdl.get_dynamic_batch(descs["image"]) == ({"batchCount": 0, "batch": []}, 0)
    assert mdl.get_dynamic_hw(descs["image"], -1) == ({"hwCount": 2, "hw": [[2, 3], [4, 5]]}, 0)
    assert mdl.get_input_dynamic_gear_count(descs["dims"], -1) == (2, 0)
    dims, ret = mdl.get_input_dynamic_dims(descs["dims"], -1, 2)
    assert (ret, [gear["dims"] for gear in dims]) == (0, [[1, 2, 3], [4, 2, 5]])
    assert mdl.get_input_dynamic_dims(descs["dims"], -1, 1) == ([], 100000)


def test_what_is_no_gear_is_refused(program: Any, doubled: Callable[[str], Path]) -> None:
    for kind in ("batch", "dims"):
        compile_for(kind, **OPTIONS[kind])
    batch, dims = (Sample(program, doubled(kind)) for kind in ("batch", "dims"))
    assert program.acl.mdl.execute(batch.model, batch.source, batch.target) == 145000
    assert "set_dynamic_batch_size" in program.acl.get_recent_err_msg()
    assert batch.set("batch", (3,)) == 145013
    assert "[(1,), (4,), (2,)]" in program.acl.get_recent_err_msg()
    assert batch.set("image", (2, 3)) == 145013
    assert dims.set("dims", (4, 3)) == 145013
    place = (dims.model, dims.source, dims.index)
    for wrong in ([4, 3, 5], [4, 2]):
        gear = {"name": "", "dimCount": len(wrong), "dims": wrong}
        assert program.acl.mdl.set_input_dynamic_dims(*place, gear) == 145012


def test_gears_that_do_not_fit_the_model_keep_it_from_loading(
    program: Any, doubled: Callable[[str], Path]
) -> None:
    compile_for("dims", dims=[(1, 2, 3)])
    assert program.acl.mdl.load_from_file(str(doubled("dims"))) == (0, 145002)
    assert "does not fit" in program.acl.get_recent_err_msg()


@pytest.mark.parametrize("wrong", [{}, {"batch_sizes": [0]}, {"batch_sizes": [1], "dims": [(1,)]}])
def test_atc_takes_one_option(started: Any, wrong: dict[str, Any]) -> None:
    del started
    with pytest.raises(ValueError, match="expected one of"):
        compile_for("m", **wrong)


def test_a_dump_of_a_model_with_gears_is_refused(
    program: Any, set_dump: Callable[..., Path], doubled: Callable[[str], Path]
) -> None:
    set_dump()
    compile_for("batch", **OPTIONS["batch"])
    with pytest.raises(NotEmulatedError, match="operators of its own"):
        program.load(doubled("batch"))
