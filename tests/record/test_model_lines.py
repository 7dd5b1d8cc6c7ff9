"""The block of digests of models: what its lines tell, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.record.model_lines import (
    SEVERAL,
    ModelChange,
    change_of_models,
    check_model_lines,
    fed_line,
    model_lines_of,
    model_lines_under,
    types_between,
)
from pytest_npudump.record.rows import RowError

FILE = "#m.onnx " + "A" * 16 + " graph1\n"
OTHER = "#m.onnx " + "B" * 16 + " graph1\n"
WHOLE = FILE.replace("1", "1wholeA")
MIXED = "#m.onnx " + SEVERAL + " graph1\n"
FED, OTHERS = (fed_line("m", digests) for digests in ([b"1", b"2"], [b"1"]))
NEW, NEWER = FILE.replace("1\n", "1=\n"), OTHER.replace("1\n", "2=\n")
CONV, POOL = "conv AAAA wwwwww 0000 1111\n", "pool BBBB\n"
TWO = FILE + "#n.onnx " + "C" * 16 + " graph2\n" + CONV.replace("conv", "conv#model=m")
TWO += POOL.replace("pool", "pool#model=n")


@pytest.mark.each(
    ("golden", "run", "expected"),
    [
        ("", FILE + CONV, None),
        (FILE + CONV, "", None),
        (FILE + CONV, "#m.om " + "B" * 16 + " -\n", None),
        (FILE + CONV, FILE.replace("m.", "n.") + CONV, ModelChange(read="all")),
        (FILE + CONV + POOL, OTHER + POOL + CONV, {"weighted": 1}),
        (FILE + CONV, OTHER + CONV.replace("conv", "c2"), {"weighted": 1}),
        (
            FILE + CONV,
            OTHER + CONV.replace("w", "v"),
            {"weights": ("conv",), "permuted": {"conv": 0}, "weighted": 1},
        ),
        (
            FILE + CONV,
            OTHER + "conv AAAA vvvvvv 2222 1111\n",
            {"weights": ("conv",), "permuted": {"conv": 1}, "weighted": 1},
        ),
        (FILE + CONV, OTHER + "conv AAAA vvvvvv 2222 3333\n", {"weights": ("conv",), "weighted": 1}),
        (FILE + CONV, OTHER + "conv AAAA\n", {"weights": ("conv",)}),
        (FILE + CONV, OTHER + CONV.replace("AAAA", "-"), {"attributes": ("conv",), "weighted": 1}),
        (FILE + CONV, OTHER + CONV + POOL, {"attributes": ("pool",), "weighted": 1}),
        (FILE + CONV + POOL, OTHER + CONV, {"attributes": ("pool",), "weighted": 1}),
        (FILE + CONV, OTHER.replace("1", "2") + CONV + POOL, {"operators": ("pool",), "weighted": 1}),
        (
            FILE + CONV + POOL,
            OTHER.replace("1", "2") + CONV,
            {"operators": ("pool",), "removed": ("pool",), "weighted": 1},
        ),
        # A model that is new or gone, beside one that is as before, or is not.
        (TWO, FILE + CONV, ModelChange(read="all")),
        (FILE + CONV, TWO, ModelChange(("n.onnx",))),
        (TWO, OTHER + CONV.replace("w", "v"), {"weights": ("conv",), "permuted": {"conv": 0}, "weighted": 1}),
        (
            FILE + CONV.replace("w", "v"),
            TWO.replace("A" * 16, "B" * 16),
            ModelChange(
                ("n.onnx",),
                weights=("conv#model=m",),
                permuted={"conv#model=m": 0},
                weighted=1,
                read="nothing",
            ),
        ),
        # One that has another name, and other weights.
        (
            FILE + CONV,
            OTHER + "c AAAA vvvvvv 0000 1112\n",
            {"weights": ("c",), "permuted": {"c": 0}, "weighted": 1},
        ),
        (FILE + CONV, OTHER.replace("1", "2") + CONV, {"graph": True, "weighted": 1}),
        # The whole graph's digest, which goldens of earlier versions lack, tells what feeds what.
        (WHOLE + CONV, OTHER.replace("1", "1wholeB") + CONV, {"graph": True, "weighted": 1}),
        (WHOLE + CONV, OTHER.replace("1", "1wholeA") + CONV, {"weighted": 1}),
        (FILE + CONV, OTHER.replace("1", "1wholeB") + CONV, {"weighted": 1}),
        (WHOLE + CONV, OTHER + CONV, {"weighted": 1}),
        # Two that have changed places are no renaming, by their own names or by others.
        (
            FILE + "a - wwwwww\nb - vvvvvv\n",
            OTHER + "a - vvvvvv\nb - wwwwww\n",
            {"weights": ("a", "b"), "weighted": 2},
        ),
        (FILE + "a - wwwwww\nb - vvvvvv\n", OTHER + "c - wwwwww\nd - vvvvvv\n", {"weighted": 2}),
        (
            FILE + "a - wwwwww\nb - vvvvvv\n",
            OTHER + "c - vvvvvv\nd - wwwwww\n",
            {"operators": ("a", "b", "c", "d"), "removed": ("a", "b"), "weighted": 2},
        ),
        # One more operator, and names that are numbers: those behind it have the name of the next.
        (
            FILE + "c1 - wwwwww\nc2 - vvvvvv\n",
            OTHER.replace("1", "2") + "c1 - uuuuuu\nc2 - wwwwww\nc3 - vvvvvv\n",
            {"operators": ("c1",), "weighted": 3},
        ),
        (
            FILE + "c1 - wwwwww\nc2 - vvvvvv\n",
            OTHER.replace("1", "2") + "c1 - uuuuuu\nc2 - vvvvvv\n",
            {"weights": ("c1",), "graph": True, "weighted": 2},
        ),
        (FILE + CONV, "#m.onnx " + "B" * 16 + " -\n", ModelChange(("m.onnx",))),
        # A golden of an earlier version knows no types, and the same graph has the same ones.
        (FILE + CONV, OTHER.replace("1\n", "1=\n") + CONV + "act =Relu\n", {"weighted": 1}),
        (FILE + "act AAAA\n", NEWER + "act =Gelu AAAA\n", {"graph": True}),
        (NEW + "act =Relu\n", NEWER + "act =Gelu\n", {"types": {"act": ("Relu", "Gelu")}}),
        (NEW + "act =Relu\n", NEWER + "act =Elu AAAA\n", {"types": {"act": ("Relu", "Elu")}}),
        (NEW + "act =Relu AAAA\n", NEWER + "act =Elu BBBB\n", {"types": {"act": ("Relu", "Elu")}}),
        (NEW + "Add_1 BBBB\n", NEWER + "Add_1 =Sub CCCC\n", {"types": {"Add_1": ("Add", "Sub")}}),
        (
            NEW + CONV.replace("AAAA", "=Conv AAAA"),
            NEWER + "conv =Deconv BBBB vvvvvv 2222 3333\n",
            {"types": {"conv": ("Conv", "Deconv")}, "weights": ("conv",), "weighted": 1},
        ),
        (NEW + "act =Relu\n", NEW.replace("A" * 16, "B" * 16) + "n =Relu\n", {}),
        # Names that are numbers, behind a further operator: each has the type of the one before.
        (
            NEW + "n1 =Conv\nn2 =Relu\nn3 =Conv\n",
            NEWER + "n1 =Relu\nn2 =Conv\nn3 =Relu\nn4 =Conv\n",
            {"graph": True},
        ),
        (FILE + CONV + FED, FED + FILE + CONV, ModelChange(read="all", fed_alike=True)),
        (FILE + CONV + FED, FILE + CONV, ModelChange(read="all")),
        (FILE + CONV + FED, FILE + CONV + OTHERS, ModelChange(read="all", fed=("m",))),
        (FILE + CONV + FED, OTHER + CONV + OTHERS, {"weighted": 1, "fed": ("m",)}),
        (FED, OTHERS, ModelChange(fed=("m",))),
        (FED, FED, None),
        (FILE + FED, OTHERS, ModelChange(fed=("m",))),
        (
            FILE + CONV,
            OTHER + FILE.replace("m.", "n.") + CONV.replace("conv", "conv#model=m"),
            ModelChange(("n.onnx",), weighted=1),
        ),
        (MIXED + CONV, OTHER + CONV, ModelChange(read="all", weighted=1, mixed=True)),
        (
            MIXED + CONV,
            OTHER + CONV.replace("w", "v").replace("1111", "3333"),
            ModelChange(read="all", weights=("conv",), permuted={"conv": 0}, weighted=1, mixed=True),
        ),
        (
            MIXED.replace("graph1", "-") + CONV,
            OTHER.replace("graph1", "-") + CONV,
            ModelChange(mixed=True, weighted=1),
        ),
    ],
)
def test_two_blocks_tell_what_changed(golden: str, run: str, expected: Any) -> None:
    check_model_lines(run)
    found = change_of_models(golden, run)
    if isinstance(expected, dict):
        expected = ModelChange(("m.onnx",), read="all", **expected)
    assert found == expected
    if found is not None:
        assert found.to_json()["changed"] is found.changed
        assert (found.to_json()["same_file"] is None) is (run == OTHERS or found.mixed)


@pytest.mark.each(
    ("golden", "run", "expected"),
    [
        (NEW + "Conv_1 AAAA\n", NEWER + "net/Seq/c =Conv AAAA\n", {}),
        (NEW + "Conv_1 AAAA\n", NEWER + "net/Seq/c =Sub AAAA\n", {"net/Seq/c": ("Conv", "Sub")}),
        (NEW + "Conv_1 =Add AAAA\n", NEWER + "net/Seq/c AAAA\n", {"net/Seq/c": ("Add", "Seq")}),
        (NEW, NEWER + "net/Seq/c =Conv\n", {}),
        (FILE + "Conv_1 AAAA\n", NEWER + "net/Seq/c =Conv AAAA\n", {}),
    ],
)
def test_an_operator_of_another_name_has_the_type_that_its_old_name_implies(
    golden: str, run: str, expected: Any
) -> None:
    under = model_lines_under({"Conv_1": "net/Seq/c"}, golden)
    assert types_between(under, run) == expected
    found = change_of_models(under, run)
    assert found is not None
    assert (found.types, found.attributes, found.operators) == (expected, (), ())


@pytest.mark.each(
    "line",
    [
        *("conv", "conv =", "conv AAAA =Conv", "conv =Conv  AAAA", "#m.onnx AAAAAAAAAAAAAAAA AAAAA="),
        *("conv AAA", "conv AAAA wwwww", "#m.onnx AAAA -", "conv AAAA wwwwww 1 2", " x AAAA", "a b AAAA"),
    ],
)
def test_what_is_no_line_is_refused(line: str) -> None:
    with pytest.raises(RowError):
        check_model_lines(FILE + line + "\n")


def test_two_lines_of_a_name_are_refused() -> None:
    check_model_lines(FILE + CONV + POOL + "l#model=m - wwwwww 0000\n")
    with pytest.raises(RowError, match="a second time"):
        check_model_lines(FILE + CONV + CONV.replace("w", "v"))


def test_layers_that_are_accepted_have_the_lines_of_the_run() -> None:
    golden, run = FILE + CONV + POOL, OTHER + CONV.replace("w", "v") + "new CCCC\n"
    assert model_lines_of(golden, run, {"conv"}) == MIXED + CONV.replace("w", "v") + POOL
    assert model_lines_of(golden, run, {"pool", "new"}) == MIXED + CONV + "new CCCC\n"
    assert model_lines_of(golden, "", {"conv"}) == golden
    typed = MIXED.replace("1\n", "1=\n")
    assert model_lines_of(NEW + "act =Relu\n", NEWER + "act =Elu\n", {"act"}) == typed + "act =Elu\n"
    assert model_lines_of(NEW + "act =Relu\n", OTHER, {"act"}) == MIXED
    found = change_of_models(
        model_lines_of(golden, OTHER + CONV.replace("w", "v") + POOL, {"conv"}),
        OTHER + CONV.replace("w", "v") + POOL,
    )
    assert found is not None
    assert not found.changed


@pytest.mark.each(
    ("before", "run", "expected"),
    [
        (FILE + CONV + FED, FILE + CONV + FED, FILE + CONV + FED),
        (FILE + CONV + FED, FILE + CONV + OTHERS, FILE + CONV),
        (FILE + CONV + FED, OTHER + CONV + FED, MIXED + CONV + FED),
        (MIXED + CONV, FILE + CONV, MIXED + CONV),
    ],
)
def test_a_golden_of_several_runs_tells_what_they_share(before: str, run: str, expected: str) -> None:
    found = model_lines_of(before, run, {"conv"})
    check_model_lines(found)
    assert found == expected


@pytest.mark.each(
    ("operator", "key", "named"),
    [
        ("conv", "conv:output.0", True),
        ("conv#model=m", "conv#model=m,step=1:output.0", True),
        ("conv#model=m", "conv#model=n:output.0", False),
        ("conv#model=m", "conv:output.0", False),
        ("conv", "conv#model=m:output.0", True),
        ("a%23b#model=m%20n", "a%23b#model=m%20n:output.0", True),
    ],
)
def test_a_change_names_the_operator_of_a_tensor(operator: str, key: str, *, named: bool) -> None:
    assert ModelChange(weights=(operator,)).names(TensorKey.parse(key)) is named
    assert ModelChange(rewired={operator: operator}).names(TensorKey.parse(key)) is named


def test_executions_in_another_order_are_other_inputs() -> None:
    assert FED not in (fed_line("m", [b"2", b"1"]), OTHERS)
