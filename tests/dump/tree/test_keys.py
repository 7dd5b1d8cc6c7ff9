"""Keys of the tensors of small dumps: what is told apart, by what, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.tree.find import find_files
from pytest_npudump.dump.tree.keys import is_eager
from pytest_npudump.errors import DumpError
from tests.dump.conftest import keys, row, stamped, told, write

NET = "20260101010101/3/net"
MS = "rank_0/net/0/0"
EAGER = "20261121045635/0"
FLAT = "DefaultFormat.Float32.npy"
ADD = "20260101010101/0/net/1/0/Add.net_add.3.5.T0"
CASES: dict[str, list[Any]] = {
    "a collective operator in two files is one execution (trap 11)": [
        (
            "ar:input.0=1 ar:input.1=2 ar:output.0=1 ar:output.1=2 "
            "ar#turn=1:input.0=1 ar#turn=1:input.1=2 ar#turn=1:output.0=1 ar#turn=1:output.1=2"
        ),
        ("0/HcomAllReduce.ar.7.3.T0", ("ar", 2, 0)),
        ("0/HcomAllReduce.ar.7.3.T5", ("ar", 0, 2)),
        ("0/HcomAllReduce.ar.7.3.T10", ("ar", 2, 0)),
        ("0/HcomAllReduce.ar.7.3.T15", ("ar", 0, 2)),
    ],
    "inputs and outputs of two operators are not joined": [
        "a_b:input.0=1 a_b#turn=1:output.0=1",
        ("0/Send.a_b.7.3.T0", ("a_b", 1, 0)),
        ("0/Send.a_b.8.3.T1", "a_b"),
    ],
    "a watcher's two outputs are two layers (trap 26)": [
        "C:output.0=1 A:output.0=1 A_To_C:output.0=1",
        ("0/Relu.A_To_C.4.3.T3", "A_To_C"),
        ("0/Conv.A.4.3.T2", "A"),
        ("0/Relu.C.9.3.T0", "C"),
    ],
    "turns of a loop are numbered by time": [
        "loop:output.0=5 loop#turn=1:output.0=6 loop#turn=2:output.0=7",
        *((f"0/Add.loop.4.3.T{turn}.csv", turn + 5) for turn in range(3)),
    ],
    "raw names of tensor files need no turns": [
        "a.b:output.0=1 a/b:output.0=1",
        ("0/Add.a_b.4.3.T0", "a.b"),
        ("0/Add.a_b.9.3.T1", "a/b"),
    ],
    "a sanitised name that two raw ones share stays as it is": [
        "a.b:output.0=1 a/b:output.0=1 a_b:output.0=7",
        ("0/Add.a_b.4.3.T0", "a.b"),
        ("0/Add.a_b.9.3.T1", "a/b"),
        ("0/Add.a_b.4.3.T2.csv", 7),
    ],
    "CSV files get the raw name that tensor files tell": [
        "a.b:output.0=1 a.b#turn=1:output.0=7",
        ("0/Add.a_b.4.3.T0", "a.b"),
        ("0/Add.a_b.4.3.T5.csv", 7),
    ],
    "slices of an FFTS operator are counted by thread and not by time": [
        "lx#turn=1:output.0=1 lx:output.0=10 lx#turn=2:output.0=20 lx#turn=3:output.0=31",
        *(
            (f"0/Add.lx.3.5.T{time}.4.1.{thread}.0.csv", 10 * time + thread)
            for time, thread in ((0, 1), (1, 0), (2, 0), (3, 1))
        ),
    ],
    "a CSV and a tensor file of one execution are one record": [
        "a.b:input.0=9.5 a.b:output.0=2 a.b:output.1=3 a_b_c:output.0=4",
        ("0/Add.a_b.4.3.T0.csv", [row("Input", 0, 9.5), row("Output", 1, 3)]),
        ("0/Add.a_b.4.3.T0", ("a.b", 1, 1)),
        ("0/Mul.a_b_c.5.3.T1.csv", 4),
    ],
    "records appended to one file are several executions": [
        "a:output.0=1 a#turn=1:output.0=1",
        ("0/Add.a.4.3.T0", "a"),
        ("0/Add.a.4.3.T0", "a"),
    ],
    "equal times are ordered by task, and inputs come first": [
        "b:input.0=3 b:input.1=2 b:output.0=1 a:output.0=4",
        ("0/B.b.2.3.T0.csv", [row("Output", 0, 1), row("Input", 1, 2), row("Input", 0, 3)]),
        ("0/A.a.10.3.T0.csv", 4),
    ],
    "an input of the graph stands before its consumer": [
        "mask:output.0=0 first:output.0=0 image:output.0=0 conv:output.0=0 unused:output.0=0",
        *("0/Relu.first.3.7.T0.csv", "0/Conv.conv.4.7.T1.csv", "0/Data.image.4.7.T2.csv"),
        *("0/Data.mask.3.7.T3.csv", "0/Data.unused.9.7.T4.csv"),
    ],
    "one of all has no qualifier": ["a:output.0=0", f"{NET}/17/5/A.a.1.2.T0.csv"],
    "steps are counted from the first": [
        "a:output.0=0 a#step=4:output.0=0",
        f"{NET}/17/5/A.a.1.2.T0.csv",
        f"{NET}/17/9/A.a.1.2.T0.csv",
    ],
    "loads are numbered by model id": [
        "a#load=1:output.0=0 a:output.0=1",
        f"{NET}/17/5/A.a.1.2.T0.csv",
        (f"{NET}/4/2/A.a.1.2.T1.csv", 1),
    ],
    "models are told by name": [
        "a#model=net:output.0=0 a#model=other:output.0=0",
        f"{NET}/17/5/A.a.1.2.T0.csv",
        "20260101010101/3/other/18/0/A.a.1.2.T0.csv",
    ],
    "devices are told by id": [
        "a#device=0:output.0=0 a#device=1:output.0=0",
        *(f"20260101010101/{device}/net/1/0/A.a.1.2.T0.csv" for device in (0, 1)),
    ],
    "ranks of TorchAir are told by rank alone": [
        "a#rank=0:output.0=0 a#rank=1:output.0=0",
        *(
            f"worldsize2_global_rank{rank}/2026010101010{rank}/{rank}/g/{11 + rank}/0/A.a.1.2.T0.csv"
            for rank in (0, 1)
        ),
    ],
    "two time directories of one run are one dump (trap 25)": [
        "a#model=net:output.0=0 a:output.0=1 b:output.0=0",
        "20260101010101/0/net/1/0/A.a.1.2.T0.csv",
        ("20260101010101/20260101010105/0/A.a.1.2.T1.csv", 1),
        "20260101010102/0/B.b.1.2.T2.csv",
    ],
    "dumps without a known name take no part in telling runs apart": [
        "a:output.0=1 b:output.0=1",
        ("20260101010101/0/first", "a"),
        ("20260101020202/0/second", "b"),
    ],
    **{
        f"directories of MindSpore's asynchronous dump tell the steps: {layout}": [
            "a:output.0=5 a#step=1:output.0=6 a#step=4:output.0=9",
            *((f"{step}/2026010101010{step}/{layout}/A.a.1.2.T{step}.csv", step) for step in (5, 6, 9)),
        ]
        for layout in ("0", "0/3", "0/net/1/3", "0/1/3")
    },
    "steps are counted by the process, and executions in a step are turns": [
        "a:output.0=0 b#model=net,step=1:output.0=7 b#model=net,step=1,turn=1:output.0=8",
        "5/20260101010101/0/A.a.1.2.T0.csv",
        ("6/20260101010102/0/net/1/7/B.b.1.2.T5.csv", 7),
        ("6/20260101010102/0/net/1/8/B.b.1.2.T6.csv", 8),
    ],
    "a capture replayed gives turns": [
        "net.x:output.0=1 net.x#turn=1:output.0=1",
        *((f"20260101010101/0/Add.net.x.{number}.4.3.T{number}", "net.x") for number in (0, 1)),
    ],
    "TorchAir's tensors in lists get slots of their own": [
        "cat:input.0=9 cat:input.1=9 cat:input.2=7 cat:output.0=8",
        *(
            (
                (
                    f"worldsize1_global_rank0/gm_20260101010101123456_dump/0/cat-aten.cat.default.{tail}"
                    ".20260101123456789012.npy"
                ),
                [len(tail)],
            )
            for tail in ("INPUT.0.0", "INPUT.0.1", "INPUT.1", "OUTPUT.0")
        ),
    ],
    "a turn of MindSpore's without one of its tensors does not shift the others": [
        (
            "a:input.0=0 a:input.1=1 a:output.0=2 a#turn=1:input.0=3 a#turn=1:output.0=4 "
            "a#turn=2:input.0=5 a#turn=2:input.1=6"
        ),
        *(
            (f"{MS}/Add.a.0.0.T{at}.{tensor}.{FLAT}", [at])
            for at, tensor in enumerate(
                ("input.0", "input.1", "output.0", "input.0", "output.0", "input.0", "input.1")
            )
        ),
    ],
    "turns in a statistic.csv are told by occurrence": [
        "a:output.0=0 a#turn=1:output.0=1 a#turn=2:output.0=2",
        (
            "statistic.csv",
            "".join(f'Add,a,0,0,T{at},output,0,4,float32,"()",{at},{at},\n' for at in range(3)),
        ),
    ],
    "npy files and the statistics beside them are one record each": [
        "a:output.0=50 a#turn=1:output.0=51 m:output.0=9",
        (f"{MS}/Add.a.0.0.T0.output.0.{FLAT}", [0]),
        (f"{MS}/Add.a.0.0.T10.output.0.{FLAT}", [1]),
        (
            f"{MS}/statistic.csv",
            (
                'Add,a,0,0,T1,output,0,4,float32,"(1,)",50,0,\nAdd,a,0,0,T11,output,0,4,float32,"(1,)",51,0,\n'
                'Mul,m,0,0,T30,output,0,4,float32,"(1,)",9,0,\n'
            ),
        ),
    ],
    "a row without values leaves what was computed": [
        "a:output.0=3",
        (f"{MS}/Add.a.0.0.T0.output.0.{FLAT}", [3]),
        (f"{MS}/statistic.csv", 'Add,a,0,0,T0,output,0,4,float32,"(1,)",null,null,\n'),
    ],
    "ranks and nets of MindSpore are told apart": [
        (
            "x#rank=0,model=a:output.0=0 x#rank=0,model=b:output.0=1 "
            "x#rank=1,model=a:output.0=0 x#rank=1,model=b:output.0=1"
        ),
        *(
            (f"rank_{rank}/{net}/0/3/Add.x.0.0.T{2 * rank + at}.output.0.{FLAT}", [at])
            for rank in (0, 1)
            for at, net in enumerate("ab")
        ),
    ],
    "msprobe's flat tree has steps": [
        "x:output.0=0 x#step=1:output.0=1",
        *(
            (
                f"rank_0/20260101010101/step_{step}/statistic.csv",
                f'Add,x,1,2,T{step},output,0,4,float32,"()",{step},0\n',
            )
            for step in (0, 1)
        ),
    ],
    "the counter is in no key, and calls of one API get turns": [
        "aclnnAdd:output.0=1 aclnnMul:output.0=2 aclnnAdd#turn=1:output.0=3",
        (f"{EAGER}/aclnnAdd_17_L2.aclnnAdd.65535.65535.T0.csv", 1),
        (f"{EAGER}/aclnnMul_18_L2.aclnnMul.65535.65535.T1.csv", 2),
        (f"{EAGER}/aclnnAdd_19_L2.aclnnAdd.65535.65535.T2.csv", 3),
    ],
    "kernels are told by their API": [
        (
            "aclnnAdd>Add:output.0=1 aclnnAdds>Add:output.0=2 L2DfxAbscent>L0DfxAbscent:output.0=3 "
            "L2DfxAbscent>bninference_d_kernel:output.0=4 L2DfxAbscent:output.0=5"
        ),
        (f"{EAGER}/aclnnAdd_1_L0.Add.1.2.T0.csv", 1),
        (f"{EAGER}/aclnnAdds_2_L0.Add.1.2.T1.csv", 2),
        (f"{EAGER}/L2DfxAbscent_3_L0.L0DfxAbscent.1.2.T2.csv", 3),
        (f"{EAGER}/L2DfxAbscent_4._L0bninference_d_kernel.1.2.T3.csv", 4),
        (f"{EAGER}/L2DfxAbscent_5_L2.L2DfxAbscent.1.2.T4.csv", 5),
    ],
    "two threads' calls overlap, and each file has a task of its own: one turn a call": [
        "aclnnAdd:input.0=17 aclnnAdd#turn=1:input.0=18 aclnnAdd:output.0=17 aclnnAdd#turn=1:output.0=18",
        *(
            (f"{EAGER}/aclnnAdd_{call}_L2.aclnnAdd.{task}.2.T{time}.csv", [row(io, 0, call)])
            for time, (call, io, task) in enumerate(
                [(17, "Input", 3), (18, "Input", 4), (17, "Output", 5), (18, "Output", 6)]
            )
        ),
    ],
    "a kernel that one call runs twice has two turns": [
        (
            "aclnnSort>Transpose:input.0=1 aclnnSort>Transpose:output.0=2 "
            "aclnnSort>Transpose#turn=1:input.0=3 aclnnSort>Transpose#turn=1:output.0=4"
        ),
        *(
            (f"{EAGER}/aclnnSort_5_L0.Transpose.1.2.T{time}.csv", [row(io, 0, time + 1)])
            for time, io in enumerate(["Input", "Output", "Input", "Output"])
        ),
    ],
    "the counter decides the turn where times of two streams cross": [
        "aclnnAdd#turn=1:output.0=10 aclnnAdd:output.0=9",
        (f"{EAGER}/aclnnAdd_9_L2.aclnnAdd.1.2.T1.csv", 9),
        (f"{EAGER}/aclnnAdd_10_L2.aclnnAdd.1.3.T0.csv", 10),
    ],
    "the latest run is the one dumped last and not the last by name": [
        "latest a:output.0=2",
        ("z_old/20260101010101/0/A.a.1.2.T0.csv", 1),
        ("a_new/20260101010101/0/A.a.1.2.T9.csv", 2),
    ],
}
"""Keys and values of the tensors, and the files of the dump: names, and what ``write`` makes of the rest."""


@pytest.mark.each("case", CASES)
def test_tensors_of_a_dump_have_these_keys_in_this_order(tmp_path: Path, case: str) -> None:
    expected, *files = CASES[case]
    latest = expected.startswith("latest ")
    dump = read_dump(write(tmp_path, *files), latest=latest)
    assert told(dump) == expected.removeprefix("latest ").split()
    assert not dump.problems
    assert bool(dump.notes) is latest


def test_two_raw_names_under_one_sanitised_name_are_turns_with_a_note(tmp_path: Path) -> None:
    dump = read_dump(write(tmp_path, ("0/Add.a_b.4.3.T1.csv", 2), ("0/Add.a_b.9.3.T0.csv", 1)))
    assert told(dump) == ["a_b:output.0=1", "a_b#turn=1:output.0=2"]
    assert [record.task for record in dump.records] == [9, 4]
    (note,) = dump.notes
    assert note.startswith(
        "several operators have one file name, and are numbered by time (turn 0, 1 ...): a_b "
    )


def test_what_a_record_has_of_a_csv_and_of_a_tensor_file(tmp_path: Path) -> None:
    rows = [row("Input", 0, 9.5), row("Output", 1, 3)]
    dump = read_dump(write(tmp_path, ("0/Add.a_b.4.3.T0.csv", rows), ("0/Add.a_b.4.3.T0", ("a.b", 1, 1))))
    assert [(one.payload is None, one.stats and one.stats.digits) for one in dump.records] == [
        (False, 6),
        (False, None),
        (True, 6),
    ]


@pytest.mark.each(
    ("files", "error", "latest"),
    [
        (
            [
                ("20260101010101/0/net/1/0/A.a.1.2.T0.csv", 1),
                ("20260101010101/0/net/1/0/B.b.1.2.T1.csv", 1),
                ("20260101010102/20260101010103/0/C.c.1.2.T2.csv", 1),
                ("20260101020202/0/net/1/0/A.a.1.2.T9.csv", 2),
            ],
            r"two runs.*20260101010101 and .*20260101020202 hold the same",
            ["c:output.0=1", "a#model=net:output.0=2"],
        ),
        (
            [("20260101010101/0/net/1/0/A.a.1.2.T0.csv", 1), ("20260101020202/0/net/1/0/A.a.1.2.T9", "a")],
            "two runs",
            ["a:output.0=1"],
        ),
        (
            [
                (f"{step}/2026010101010{at}/0/A.a.1.2.T{at}.csv", at)
                for at, step in enumerate((5, 6, 7, 5, 6))
            ],
            "two runs",
            ["a:output.0=3", "a#step=1:output.0=4"],
        ),
        (
            [(f"{step}/2026010101010{at}/0/A.a.1.2.T{at}.csv", at) for at, step in enumerate((5, 3))],
            "two runs",
            ["a:output.0=1"],
        ),
        (
            [
                (
                    f"5/2026010101010{at}/0/statistic.csv",
                    f'A,a,1,2,T{at},output,0,4,float32,"(1,)",{at},{at}\n',
                )
                for at in (0, 1)
            ],
            "two runs",
            ["a:output.0=1"],
        ),
        (
            [(f"2026112104560{at}/0/aclnnAdd_17_L2.aclnnAdd.1.2.T{at}.csv", at) for at in (0, 5)],
            "two runs in one dump",
            ["aclnnAdd:output.0=5"],
        ),
        *(
            (
                [
                    (f"6/20260101010106/{layout}/A.a.1.2.T6.csv", 1),
                    (f"6/20260101020202/{layout}/A.a.1.2.T99.csv", 2),
                ],
                "two runs",
                ["a:output.0=2"],
            )
            for layout in ("0", "0/3", "0/net/1/3", "0/1/3")
        ),
    ],
)
def test_two_runs_in_one_path_are_an_error_and_the_later_one_can_be_read(
    tmp_path: Path, files: list[Any], error: str, latest: list[str]
) -> None:
    write(tmp_path, *files)
    with pytest.raises(DumpError, match=error):
        read_dump(tmp_path)
    dump = read_dump(tmp_path, latest=True)
    assert told(dump) == latest
    assert any(note.startswith("only the latest run was read") for note in dump.notes)


@pytest.mark.each("given", ["", "worldsize2_global_rank1"])
def test_two_runs_of_a_rank_are_named_by_directories_that_exist(tmp_path: Path, given: str) -> None:
    one = tmp_path / "worldsize2_global_rank1"
    write(tmp_path, "worldsize2_global_rank0/20260101010101/0/net/1/0/B.b.1.2.T0.csv")
    write(one, *(f"2026010101010{number}/0/net/1/0/A.a.1.2.T{number}.csv" for number in (0, 1)))
    named = f"{one}/20260101010100 and {one}/20260101010101 hold"
    with pytest.raises(DumpError, match=named):
        read_dump(tmp_path / given)


def test_another_start_of_the_counter_of_eager_calls_leaves_the_keys(tmp_path: Path) -> None:
    for name, start in (("a", 0), ("b", 9_998)):
        calls = range(start, start + 4)
        write(tmp_path / name, *(f"{EAGER}/aclnnAdd_{n}_L2.aclnnAdd.1.2.T{n - start}.csv" for n in calls))
    assert keys(read_dump(tmp_path / "a")) == keys(read_dump(tmp_path / "b"))


@pytest.mark.each(
    ("path", "layer", "op_type"),
    [
        (f"{EAGER}/aclnnAdd_17_L2.aclnnAdd", "aclnnAdd", "aclnnAdd_L2"),
        (f"{EAGER}/aclnnAdd_1_L0.Add", "aclnnAdd>Add", "aclnnAdd_L0"),
        (f"{EAGER}/net/1/0/aclnnAdd_17_L2.aclnnAdd", "aclnnAdd", "aclnnAdd_17_L2"),
        (f"{EAGER}/aclnnAdd_17.aclnnAdd", "aclnnAdd", "aclnnAdd_17"),
        (f"{EAGER}/Add_L2.Add", "Add", "Add_L2"),
        (f"{EAGER}/aclnnAdd_x_L2.aclnnAdd", "aclnnAdd", "aclnnAdd_x_L2"),
        (f"{EAGER}/Add_1_L1.Add", "Add", "Add_1_L1"),
    ],
)
def test_types_and_names_of_eager_calls_and_of_others(
    tmp_path: Path, path: str, layer: str, op_type: str
) -> None:
    (record,) = read_dump(write(tmp_path, f"{path}.1.2.T0.csv")).records
    assert (record.key.layer, record.op_type) == (layer, op_type)


def test_names_of_eager_calls_are_known_for_such() -> None:
    assert all(map(is_eager, ["aclnnAdd", "aclnnAdd>Add", "L2DfxAbscent", "L2DfxAbscent>X", "npuFoo>Add"]))
    assert not any(map(is_eager, ["conv1", "Add", "net/aclnnAdd", "aclnnAdd/x", "1>2", ">Add", "a/b>c"]))


@pytest.mark.each(
    ("path", "slots"),
    [
        (ADD, ("input.0", "input.1", "output.0")),
        (ADD, ("input.0.2", "input.1.2", "output.0.1x2")),
        (f"{ADD}.4.1.1.0", ("input.0", "input.1", "output.0")),
        ("extra-info/data-dump/0/Add.net_add.3.20261120080910123", ("input.0", "input.1", "output.0")),
        ("20260101010101/0/Add.net/add.0.4.3.T0", ("input.0", "input.1", "output.0")),
    ],
)
def test_converted_tensors_have_keys_of_the_dump(tmp_path: Path, path: str, slots: tuple[str, ...]) -> None:
    dumped = read_dump(write(tmp_path / "dump", (path, ("net/add", 2, 1))))
    made = read_dump(
        write(tmp_path / "made", *((f"{path}.{slot}.npy", [number]) for number, slot in enumerate(slots)))
    )
    assert not made.problems
    assert [record.key.sanitised for record in made.records] == [
        record.key.sanitised for record in dumped.records
    ]
    assert [record.stats and record.stats.max for record in made.records] == [0, 1, 2]
    assert [
        record.path.name.split(".npy")[0][-len(slot) :]
        for record, slot in zip(made.records, slots, strict=True)
    ] == [*slots]
    assert all(record.payload is not None for record in made.records)


def test_further_records_and_slices_that_were_converted_are_turns_as_in_the_dump(tmp_path: Path) -> None:
    slots = ("input.0", "input.1", "output.0")
    write(tmp_path / "dump", *[(ADD, ("net/add", 2, 1))] * 3)
    made = write(
        tmp_path / "made",
        *(
            (f"{ADD}.{slot}{suffix}.npy", [at])
            for slot in slots
            for at, suffix in enumerate(("", ".1", ".2"))
        ),
    )
    expected = sorted(str(record.key.sanitised) for record in read_dump(tmp_path / "dump").records)
    assert sorted(keys(read_dump(made))) == expected
    assert "net_add#turn=2:output.0=2" in told(read_dump(made))
    for thread in (0, 1):
        path = f"{ADD}.4.1.{thread}.0"
        write(tmp_path / "slices", (path, ("net/add", 2, 1)))
        write(tmp_path / "of slices", *(f"{path}.{slot}.npy" for slot in slots))
    pair = [read_dump(tmp_path / name).records for name in ("slices", "of slices")]
    assert [one.key.sanitised for one in pair[0]] == [one.key.sanitised for one in pair[1]]


def test_two_files_of_one_tensor_are_a_problem(tmp_path: Path) -> None:
    dump = read_dump(write(tmp_path, f"{ADD}.output.0.npy", (f"{ADD}.output.0.1x2.npy", [[1, 2]])))
    (problem,) = dump.problems
    assert "output 0 is in another file too" in str(problem)
    assert len(dump.records) == 1


def test_a_converted_tensor_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    write(tmp_path, f"{ADD}.input.0.npy", f"{ADD}.output.0.npy")
    (cut,) = tmp_path.rglob("*.input.0.npy")
    cut.write_bytes(cut.read_bytes()[:-1])
    dump = read_dump(tmp_path)
    assert [str(problem.path) for problem in dump.problems] == [str(cut)]
    assert keys(dump) == ["net_add:output.0"]


@pytest.mark.each(("dumped", "made"), [(ADD, ADD), (ADD, f"npy/{ADD}"), ("mydump", "mydump")])
def test_what_was_converted_into_the_dump_itself_is_not_read_again(
    tmp_path: Path, dumped: str, made: str
) -> None:
    dump = read_dump(write(tmp_path, (dumped, ("net/add", 2, 1)), f"{made}.output.0.npy"))
    assert len(dump.records) == 3
    assert not dump.problems
    (note,) = dump.notes
    assert note.startswith("skipped 1 file not of a dump: ")
    assert note.endswith(".output.0.npy")


@pytest.mark.each("suffix", [".npy", ".ND.npy"])
def test_table_of_statistics_is_no_dump_that_a_tensor_was_converted_from(tmp_path: Path, suffix: str) -> None:
    rows = [row("Output", 0, 2), row("Input", 0, 4)]
    dump = read_dump(write(tmp_path, f"{ADD}.output.0{suffix}", (f"{ADD}.csv", rows)))
    assert not dump.problems
    assert {("output", True), ("input", False)} <= {
        (one.key.io, one.payload is not None) for one in dump.records
    }
    assert all(record.stats is not None for record in dump.records)


def test_msaccucmp_s_own_mapping_tells_the_names_of_converted_tensors(tmp_path: Path) -> None:
    short = "0f2ab1de-7d3c-3f5e-9f4b-0a1b2c3d4e5f.npy"
    long = stamped(f"Add.{'n' * 280}.3.5.T0.output.0.npy")
    write(tmp_path, short, ("mapping.csv", f"{short},{long}\n"))
    assert keys(read_dump(tmp_path)) == [f"{'n' * 280}:output.0"]
    assert not find_files(tmp_path).other
