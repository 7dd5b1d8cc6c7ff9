"""Names as opbase's op_dfx.cpp and indv_dump.cpp build them, put into files as adump lays them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.tree.keys import is_eager
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.records import Dump

TIME = 1795228705872229
HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
)


def call(
    root: Path,
    name: str,
    time: int,
    *,
    io: str = "Output",
    value: float = 1,
    place: str = "0",
    ids: str = "65535.65535",
) -> None:
    """Write one statistics CSV of one scalar below a time directory."""
    path = root / "20261121045635" / place / f"{name}.{ids}.{TIME + time}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    row = f"{io},0,4,DT_FLOAT,ND,1,{value:g},{value:g},{value:g},1,0,0,0\n"
    path.write_text(HEADER + row, encoding="utf-8")


def told(dump: Dump) -> dict[str, tuple[str, float]]:
    """Type and value by key."""
    return {str(r.key): (r.op_type, float(r.stats.max)) for r in dump.records if r.stats and r.stats.max}


def test_the_counter_is_in_no_key_and_calls_of_one_api_get_turns(tmp_path: Path) -> None:
    call(tmp_path, "aclnnAdd_17_L2.aclnnAdd", 0, value=1)
    call(tmp_path, "aclnnMul_18_L2.aclnnMul", 1, value=2)
    call(tmp_path, "aclnnAdd_19_L2.aclnnAdd", 2, value=3)
    dump = read_dump(tmp_path)
    assert told(dump) == {
        "aclnnAdd:output.0": ("aclnnAdd_L2", 1),
        "aclnnMul:output.0": ("aclnnMul_L2", 2),
        "aclnnAdd#turn=1:output.0": ("aclnnAdd_L2", 3),
    }
    assert dump.notes == ()


def test_another_start_of_the_counter_leaves_the_keys(tmp_path: Path) -> None:
    for root, start in ((tmp_path / "a", 0), (tmp_path / "b", 9_998)):
        for step in range(4):
            call(root, f"aclnnAdd_{start + step}_L2.aclnnAdd", step, value=step + 1)
    assert told(read_dump(tmp_path / "a")) == told(read_dump(tmp_path / "b"))


def test_kernels_are_told_by_their_api(tmp_path: Path) -> None:
    call(tmp_path, "aclnnAdd_1_L0.Add", 0, value=1)
    call(tmp_path, "aclnnAdds_2_L0.Add", 1, value=2)
    call(tmp_path, "L2DfxAbscent_3_L0.L0DfxAbscent", 2, value=3)
    call(tmp_path, "L2DfxAbscent_4._L0bninference_d_kernel", 3, value=4)
    call(tmp_path, "L2DfxAbscent_5_L2.L2DfxAbscent", 4, value=5)
    assert told(read_dump(tmp_path)) == {
        "aclnnAdd>Add:output.0": ("aclnnAdd_L0", 1),
        "aclnnAdds>Add:output.0": ("aclnnAdds_L0", 2),
        "L2DfxAbscent>L0DfxAbscent:output.0": ("L2DfxAbscent_L0", 3),
        "L2DfxAbscent>bninference_d_kernel:output.0": ("L2DfxAbscent_L0", 4),
        "L2DfxAbscent:output.0": ("L2DfxAbscent_L2", 5),
    }


def test_inputs_and_outputs_of_a_call_have_files_of_their_own_and_are_one_turn(tmp_path: Path) -> None:
    """Two threads' calls overlap in time, and the device gave each file a task of its own."""
    for time, (number, io, task) in enumerate(
        [(17, "Input", 3), (18, "Input", 4), (17, "Output", 5), (18, "Output", 6)]
    ):
        call(tmp_path, f"aclnnAdd_{number}_L2.aclnnAdd", time, io=io, value=number, ids=f"{task}.2")
    assert told(read_dump(tmp_path)) == {
        "aclnnAdd:input.0": ("aclnnAdd_L2", 17),
        "aclnnAdd#turn=1:input.0": ("aclnnAdd_L2", 18),
        "aclnnAdd:output.0": ("aclnnAdd_L2", 17),
        "aclnnAdd#turn=1:output.0": ("aclnnAdd_L2", 18),
    }


def test_a_kernel_that_one_call_runs_twice_has_two_turns(tmp_path: Path) -> None:
    for time, io in enumerate(["Input", "Output", "Input", "Output"]):
        call(tmp_path, "aclnnSort_5_L0.Transpose", time, io=io, value=time + 1)
    assert {key: value for key, (_, value) in told(read_dump(tmp_path)).items()} == {
        "aclnnSort>Transpose:input.0": 1,
        "aclnnSort>Transpose:output.0": 2,
        "aclnnSort>Transpose#turn=1:input.0": 3,
        "aclnnSort>Transpose#turn=1:output.0": 4,
    }


def test_the_counter_decides_the_turn_where_times_of_two_streams_cross(tmp_path: Path) -> None:
    call(tmp_path, "aclnnAdd_9_L2.aclnnAdd", 1, value=9, ids="1.2")
    call(tmp_path, "aclnnAdd_10_L2.aclnnAdd", 0, value=10, ids="1.3")
    assert told(read_dump(tmp_path)) == {
        "aclnnAdd:output.0": ("aclnnAdd_L2", 9),
        "aclnnAdd#turn=1:output.0": ("aclnnAdd_L2", 10),
    }


def test_operators_of_a_model_keep_their_types_and_names(tmp_path: Path) -> None:
    call(tmp_path, "aclnnAdd_17_L2.aclnnAdd", 0, place="0/net/1/0")
    (record,) = read_dump(tmp_path).records
    assert (record.key.layer, record.op_type) == ("aclnnAdd", "aclnnAdd_17_L2")


@pytest.mark.parametrize(
    "name", ["aclnnAdd_17.aclnnAdd", "Add_L2.Add", "aclnnAdd_x_L2.aclnnAdd", "Add_1_L1.Add"]
)
def test_other_single_operators_keep_their_types_and_names(tmp_path: Path, name: str) -> None:
    call(tmp_path, name, 0)
    (record,) = read_dump(tmp_path).records
    assert f"{record.op_type}.{record.key.layer}" == name


def test_two_runs_of_one_program_below_one_path_are_still_found_out(tmp_path: Path) -> None:
    call(tmp_path, "aclnnAdd_17_L2.aclnnAdd", 0)
    (tmp_path / "20261121045635").rename(tmp_path / "20261121045600")
    call(tmp_path, "aclnnAdd_17_L2.aclnnAdd", 5)
    with pytest.raises(DumpError, match="two runs in one dump"):
        read_dump(tmp_path)


@pytest.mark.parametrize(
    "layer", ["aclnnAdd", "aclnnAdd>Add", "L2DfxAbscent", "L2DfxAbscent>X", "npuFoo>Add"]
)
def test_names_of_eager_calls_are_known_for_such(layer: str) -> None:
    assert is_eager(layer)


@pytest.mark.each("layer", ["conv1", "Add", "net/aclnnAdd", "aclnnAdd/x", "1>2", ">Add", "a/b>c"])
def test_names_of_a_models_layers_are_not(layer: str) -> None:
    assert not is_eager(layer)
