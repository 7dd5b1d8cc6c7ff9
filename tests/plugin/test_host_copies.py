"""Inputs and outputs of a graph, told apart element by element where the device computes statistics only."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.cli import main
from pytest_npudump.compare.judge import AS_GIVEN, Terms, judge
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.stats.signs import column_signs, factors, place_signs
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.golden.store import read_golden
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import parse, render
from pytest_npudump.regression.attempt import HostCopies
from tests.onnxmodels.models import onnx_file

if TYPE_CHECKING:
    from conftest import Project


_RNG = np.random.default_rng(5)
WEIGHTS, LOGITS = (_RNG.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (16, 12)))
SESSION = """
    import os

    X = np.random.default_rng(6).standard_normal((3, 16)).astype(np.float32)
    DATA = {"dump_data": os.environ["DATA"]} if "DATA" in os.environ else {}

    @pytest.mark.npu_dump(acl_json=DATA)
    def test_logits(npu_dump):
        run(npu_dump, X[:, ::-1].copy() if "MIRRORED" in os.environ else X)

    @pytest.mark.npu_dump(layers=["act"], acl_json=DATA)
    def test_layer_before(npu_dump):
        run(npu_dump, X)

    @pytest.mark.npu_dump(acl_json={**DATA, "dump_step": "1-2"})
    def test_executions(npu_dump):
        with npu_dump.load_model("small.onnx") as one, npu_dump.load_model("small.onnx") as other:
            for number in range(4):
                one.run(X * (number + 1))
                other.run(X / (number + 1))

    @pytest.mark.npu_dump(acl_json=DATA)
    def test_parts(npu_dump):
        run(npu_dump, X)
        with npu_dump.capture("again"):
            run(npu_dump, X * 2)
"""


def logits(project: Project, weights: np.ndarray) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="block/first"),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="head/logits"),
    ]
    weights_of = {"w": WEIGHTS, "v": weights}
    onnx_file(project.path / "small.onnx", nodes, {"x": [3, 16]}, {"y": [3, 12]}, weights_of)


def test_outputs_and_inputs_are_told_apart_by_elements(project: Project) -> None:
    """Logits shifted by one keep all statistics, as do mirrored inputs; nothing outside of layers counts."""
    project.test_file(SESSION)
    logits(project, LOGITS)
    project.run("--npudump-update-golden", "-onpudump_auto_tensors=0", passed=4)
    told = {
        name: [key for key, has in zip(table.keys, table.projected, strict=True) if has]
        for name in ("logits", "executions", "parts")
        if (table := read_golden(next(project.path.rglob(f"test_{name}.yaml"))).table).projected is not None
    }
    one = ["x{}:output.0", "head/logits{}:output.0"]
    loads = ("", "#step=1", "#load=1", "#load=1,step=1")
    assert told["logits"] == [text.format("") for text in one]
    assert sorted(told["executions"]) == sorted(text.format(load) for load in loads for text in one)
    assert told["parts"] == [text.format(part) for part in ("", "#capture=again") for text in one]

    project.patch.setenv("DATA", "tensor")  # the elements in files have the projections of those in memory
    project.run(passed=4)
    project.patch.delenv("DATA")
    project.run(passed=4)

    logits(project, np.roll(LOGITS, 1, axis=1))
    words = "npudump: *; first mismatch: head/logits:output.0 l2norm*projections*"
    project.run(passed=1, failed=3, shows=words)
    logits(project, LOGITS)
    project.patch.setenv("MIRRORED", "1")
    shows = [
        "npudump: model small: inputs changed; first mismatch: x:output.0 *",
        "source: *x:output.0; an input of the graph;*",
    ]
    project.run("-k", "test_logits", failed=1, shows=shows)


class Session:
    """One input, one output that is known, and one that is not."""

    input_ports = (("x", 0),)
    output_ports = (("block/last", 1), None)
    look: Any = None

    def copies(self, given: np.ndarray, gave: np.ndarray) -> HostCopies:
        """Return what is seen of its inputs and outputs."""
        copies = HostCopies()
        copies.watch(self, "net", lambda: "", ())
        assert self.look is not None
        self.look([given], [gave, gave])
        return copies


def test_a_tensor_of_another_shape_or_type_is_none_that_passed() -> None:
    copies = Session().copies(np.arange(6, dtype=np.float32), np.ones((2, 3), np.float16))

    def row(layer: str, dtype: str, shape: tuple[int, ...], slot: int = 0, **more: object) -> TensorRecord:
        return TensorRecord(TensorKey(layer, "output", slot, **more), "", dtype, shape, Path())

    fitting = row("x", "float32", (6,)), row("block_last", "float16", (2, 3), 1, model="net")
    others = (
        row("block_last", "float32", (2, 3), 1),
        row("x", "float32", (2, 3), step=1),
        row("z", "bool", (6,)),
    )
    records = copies.completed(Dump(Path(), (*fitting, *others))).records
    told = [one.stats is not None and one.stats.projections is not None for one in records]
    assert told == [True, True, False, False, False]


def of_output(array: np.ndarray, *, as_printed_too: bool = False) -> Record:
    """A record of a run that gave this output, as the device tells of it."""
    key, stats = TensorKey("block_last", "output", 1), replace(tensor_stats(array), digits=6)
    row = TensorRecord(key, "Softmax", array.dtype.name, array.shape, Path(), stats=stats)
    records = Session().copies(array, array).completed(Dump(Path(), (row,))).records
    table = StatsTable.from_records(as_printed(records) if as_printed_too else records)
    return Record("", {}, table, Path("golden.yaml"))


SIGNS = place_signs()[:60] * column_signs()[:, :60]
TWINS = [(i, j) for j in range(60) for i in range(j) if (SIGNS[:, i] == SIGNS[:, j]).all()]
"""Elements that no projection tells apart."""


@pytest.mark.each("short", [False, True])
@pytest.mark.each("dtype", ["float32", "float16", "int32"])
def test_a_class_that_is_all_but_certain_is_seen_to_move(*, short: bool, dtype: str) -> None:
    assert TWINS
    rng = np.random.default_rng(3)
    terms = Terms(Tolerances("other"), option=AS_GIVEN)
    for one, other in (*TWINS, *rng.integers(0, 60, (32, 2)).tolist()):
        certain = np.full((2, 60), 1e-3)
        certain[0, one], certain[1, 7] = 0.94, 0.9
        moved = certain.copy()
        moved[0, [one, other]] = moved[0, [other, one]]
        noisy = certain * (1 + 1e-3 * rng.standard_normal(certain.shape))
        golden, run, healthy = (
            of_output((array * (1e6 if dtype == "int32" else 1)).astype(dtype), as_printed_too=short)
            for array in (certain, moved, noisy)
        )
        golden = parse(render(golden), golden.path)
        told = judge(golden, run, terms)
        assert [str(one.key) for one in told.failing] == ["block_last:output.1"] * (one != other)
        reasons = {reason.statistic: reason for one in told.failing for reason in one.reasons}
        places = [(reasons["argmax"].golden, reasons["argmax"].actual)] if reasons else []
        assert places == [(f"{one}x7", f"{other}x7")] * (one != other)
        if dtype == "float16":  # whose bounds are wider than this noise
            assert not judge(golden, healthy, terms).failing
        loose = replace(terms, tolerances=Tolerances("other", (Rule(0.5, 0, dtype=dtype),)))
        kept = {reason.statistic for one in judge(golden, run, loose).failing for reason in one.reasons}
        assert "argmax" not in kept


@pytest.mark.each("short", [False, True])
@pytest.mark.each("dtype", ["float32", "float16", "int32", "int64"])
@pytest.mark.each("preset", ["same", "other"])
@pytest.mark.each("by_far", [False, True])
def test_elements_that_no_projection_tells_apart_are_seen_to_change_places(
    *, short: bool, dtype: str, preset: str, by_far: bool
) -> None:
    rng = np.random.default_rng(3)
    terms = Terms(Tolerances(preset), option=AS_GIVEN)
    logits = (rng.standard_normal((3, 20)) * (1e4 if "int" in dtype else 1)).astype(dtype)
    if by_far:
        logits[:, 5] = 2.1 * np.abs(logits).max()
    seen = 0
    steps = rng.integers(-1, 2, logits.shape) * (np.spacing(logits) if "float" in dtype else 0)
    golden = of_output(logits, as_printed_too=short)
    golden = parse(render(golden), golden.path)
    checksum = "x[0-9a-f]{16}" if "int" in dtype else ""
    assert re.match(f"argmax:{checksum}{'5x5x5' * by_far}=", golden.table.digests[0])
    for healthy in (logits, (logits + steps).astype(dtype)):
        assert not judge(golden, of_output(healthy, as_printed_too=short), terms).failing
    for one, other in TWINS:
        moved = logits.reshape(-1).copy()
        moved[[one, other]] = moved[[other, one]]
        run = of_output(moved.reshape(3, 20), as_printed_too=short)
        far = np.abs(np.subtract(*factors()[[one, other]]) * np.subtract(*moved[[one, other]].astype(float)))
        if far > (2e-2 if dtype == "float16" else 2e-5) * np.linalg.norm(moved.astype(float)):
            assert judge(golden, run, terms).failing, (one, other)
            seen += 1
    assert seen > (2 if by_far else len(TWINS) / 2)


def test_noise_that_plain_projections_see_too_fails_by_its_own_bound_alone() -> None:
    rng = np.random.default_rng(3)
    terms = Terms(Tolerances("same", (Rule(0.1, 0),)), option=AS_GIVEN)
    for _ in range(200):
        logits = rng.standard_normal((3, 20))
        noisy = logits + 1e-2 * rng.standard_normal((3, 20)) * (rng.random((3, 20)) < 0.1)
        golden, run = (of_output(array, as_printed_too=True) for array in (logits, noisy))
        assert not judge(golden, run, terms).failing


@pytest.mark.each("short", [False, True])
@pytest.mark.each("mask", [-1e4, -1e9, -65504.0, float(np.finfo(np.float32).min)])
def test_what_is_beside_a_mask_is_seen_to_change(*, short: bool, mask: float) -> None:
    rng = np.random.default_rng(3)
    kind = np.float16 if mask == -65504 else np.float32
    logits, hidden = rng.normal(size=(3, 40)), np.arange(40) >= 30
    swapped, shifted, off, less = (logits.copy() for _ in range(4))
    swapped[0, [4, 20]] = logits[0, [20, 4]]
    shifted[0, :30] = np.roll(logits[0, :30], 1)
    off[0, [4, 20]] += 0.5, -0.5
    less[1, [4, 20]] *= 0.9, 1.1
    noisy = logits * (1 + 1e-6 * rng.standard_normal(logits.shape))
    records = [
        of_output(np.where(hidden, mask, one).astype(kind), as_printed_too=short)
        for one in (logits, noisy, swapped, shifted, off, less)
    ]
    golden = parse(render(records[0]), records[0].path)
    terms = Terms(Tolerances("same"), option=AS_GIVEN)
    assert [bool(judge(golden, run, terms).failing) for run in records[1:]] == [False] + [True] * 4
    assert not judge(golden, golden, terms).failing
    one = np.arange(120).reshape(3, 40) == 7
    for of_mask, array in (
        (True, np.where(one, mask, logits)),
        (False, np.where(hidden, np.copysign(mask, logits), logits)),
        (False, np.full((3, 40), mask)),
        (False, np.where(one, 100.0, logits / 1e3)),
        # no mask is such a number, or so near the others
        *((False, np.where(hidden, other, logits)) for other in (-12345.0, -12000.0, -900.0)),
    ):
        told = of_output(array.astype(kind), as_printed_too=short)
        assert ("~" in str(told.table.digests)) is of_mask


@pytest.mark.each(
    "array",
    [
        np.array([[0.6, 0.2], [0.5, 0.4]], np.float32),  # the second row may turn
        np.array([[1, 0.1], [1e-9, 0]], np.float32),
        np.zeros((1, 4), np.float32),
        *(np.array([first, 0, 1], np.float32) for first in (np.inf, np.nan)),
        np.array([5], np.float32),
        np.array([True, False]),
        np.array([3 + 1j, 0], np.complex64),
        np.array(["a", "b"]),
    ],
)
def test_an_output_whose_largest_elements_may_turn_is_not_told(array: np.ndarray) -> None:
    sessions = Session().copies(array, array).sessions
    told = [one.peaks for _, parts, _ in sessions for one in parts.get("", {}).get(0, ())]
    whole = array.dtype.kind == "b"
    assert {one[:1] for one in told} <= ({"x", ""} if whole else {"", "="})


OUTSIDE = """
    import os

    X = np.random.default_rng(6).standard_normal((3, 16)).astype(np.float32)

    @pytest.mark.npu_dump(layers=["act"], acl_json={"dump_data": os.environ["DATA"]})
    def test_layer_before(npu_dump):
        run(npu_dump, X)
"""
NOTE = "outputs outside layers= are out of tolerance; they do not fail the test: head/logits:output.0"


@pytest.mark.parametrize("data", ["stats", "tensor"])
def test_outputs_outside_of_layers_are_noted(project: Project, data: str) -> None:
    """They are in the golden whatever is dumped; one out of tolerance is told and fails nothing."""
    project.patch.setenv("DATA", data)
    project.test_file(OUTSIDE)
    logits(project, LOGITS)
    project.run("--npudump-update-golden", passed=1)
    [path] = project.path.rglob("test_layer_before.yaml")
    assert [line.partition(" ")[0] for line in read_golden(path).blocks["outputs"].splitlines()] == [
        "head/logits"
    ]
    project.run(passed=1, hides="outputs outside layers=")
    shifted = np.roll(LOGITS, 1, axis=1)
    for weights in (LOGITS * 1.001, shifted, LOGITS[:, :-1]):
        logits(project, weights.astype(np.float32))
        project.run(passed=1, shows=f"*{NOTE}*")
    logits(project, (LOGITS * (1 + 1e-7)).astype(np.float32))
    project.run(passed=1, hides="outputs outside layers=")

    text = path.read_text()  # of an earlier version
    path.write_text(text[: text.index("outputs: |")])
    logits(project, np.roll(LOGITS, 1, axis=1))
    project.run(passed=1, hides="outputs outside layers=")
    path.write_text(text.replace("  head/logits float32", "  head/logits float32 nothing"))
    project.run(failed=1, shows="*nothing*")


def test_outputs_outside_of_layers_that_have_no_element_are_noted(project: Project) -> None:
    """One that had none when it was recorded, and one that has none any more."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="act"),
        helper.make_node("Greater", ["x", "least"], ["g"], name="gr"),
        helper.make_node("NonZero", ["g"], ["y"], name="nz"),
    ]
    project.test_file(
        """
        @pytest.mark.npu_dump(layers=["act"])
        def test_layer_before(npu_dump):
            with npu_dump.load_model("small.onnx") as model:
                model.run(np.ones((3, 16), np.float32))
        """
    )
    for told in (2, 0):
        for least, option, shows in (
            (told, "--npudump-update-golden", ""),
            (told, "-q", ""),
            (2 - told, "-q", "*they do not fail the test: nz:output.0*"),
        ):
            onnx_file(
                project.path / "small.onnx",
                nodes,
                {"x": [3, 16]},
                {"y": (TensorProto.INT64, [2, "n"])},
                {"least": np.array(least, np.float32)},
            )
            if shows:
                project.run(option, passed=1, shows=shows)
            else:
                project.run(option, passed=1, hides="*outside layers=*")


def test_outputs_that_a_run_does_not_repeat_are_not_in_the_golden(project: Project) -> None:
    """Whoever names layers because later ones are random hears nothing of these, and of others all."""
    for kind, kept in (("Identity", ["b"]), ("RandomNormalLike", [])):
        nodes = [
            helper.make_node("Relu", ["x"], ["a"], name="act"),
            helper.make_node("Abs", ["a"], ["y"], name="b"),
            helper.make_node("Neg", ["z"], ["o"], name="n"),
            helper.make_node(kind, ["o"], ["r"], name="r"),
        ]
        inputs, outputs = ({name: [3, 16] for name in names} for names in ("xz", "yr"))
        onnx_file(project.path / "small.onnx", nodes, inputs, outputs, {})
        project.test_file(
            """
            X = np.ones((3, 16), np.float32)

            @pytest.mark.npu_dump(layers=["act"])
            def test_layer_before(npu_dump):
                with npu_dump.load_model("small.onnx") as model:
                    model.run(X, np.random.default_rng().standard_normal((3, 16)).astype(np.float32))
            """
        )
        project.run("--npudump-update-golden", passed=1)
        [path] = project.path.rglob("test_layer_before.yaml")
        lines = read_golden(path).blocks.get("outputs", "").splitlines()
        assert [line.partition(" ")[0] for line in lines] == kept
        project.run(passed=1, hides="outputs outside layers=")


def test_an_acceptance_takes_outputs_outside_of_layers_along(project: Project) -> None:
    project.patch.setenv("DATA", "stats")
    project.test_file(OUTSIDE)
    logits(project, LOGITS)
    project.run("--npudump-update-golden", passed=1)
    logits(project, LOGITS * 2)
    project.test_file(OUTSIDE.replace("run(npu_dump, X)", "run(npu_dump, X * 2)"))
    project.run("--npudump-output=out", failed=1, shows=f"*{NOTE}*")
    assert main(["golden", "accept", "--results", "out"]) == 0
    project.run(passed=1, hides="outputs outside layers=")


@pytest.mark.parametrize("data", ["stats", "tensor"])
def test_inputs_fed_in_another_order_are_told(project: Project, data: str) -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["s"], name="add"),
        helper.make_node("Mul", ["s", "c"], ["y"], name="mul"),
    ]
    onnx_file(project.path / "small.onnx", nodes, {name: [4] for name in "abc"}, {"y": [4]}, {})
    project.test_file(
        """
        import os

        @pytest.mark.npu_dump(acl_json={"dump_data": os.environ["DATA"]})
        def test_three(npu_dump):
            values = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
            with npu_dump.load_model("small.onnx") as model:
                model.run(*values[[int(one) for one in os.environ.get("ORDER", "012")]])
        """
    )
    project.patch.setenv("DATA", data)
    project.run("--npudump-update-golden", passed=1)
    for order in ("120", "112"):
        project.patch.setenv("ORDER", order)
        project.run(failed=1, shows="npudump: model small: inputs changed; first mismatch: a:output.0 *")


@pytest.mark.each(
    ("layers", "told"),
    [([], ""), (["other"], "block/last:output.1"), (["block/*"], ""), (["block_last"], "")],
)
def test_an_output_that_layers_name_is_not_outside_of_them(layers: list[str], told: str) -> None:
    """It may have no row all the same, as where a device has fused it."""
    session, copies = Session(), HostCopies()
    copies.watch(session, "net", lambda: "", (), layers=layers)
    session.look([np.ones(3, np.float32)], [np.ones(4, np.float32), np.ones(2, np.float32)])
    found = copies.completed(Dump(root=Path(), records=())).outputs
    assert found.partition(" ")[0] == told
