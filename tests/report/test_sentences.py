"""Sentences of a failure, each with a situation in which it would be false, and must not be said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import GRAPH_INPUT, explain_first
from pytest_npudump.compare.tensors.picture import TensorDescription
from pytest_npudump.compare.tolerances.presets import Numerics
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.explain.operator_alone import Alone, JudgedOperator
from pytest_npudump.explain.reference import ReferenceResult
from pytest_npudump.explain.rounding import DEVICE, DTYPE, Blame
from pytest_npudump.graph.sources import Source, Sources
from pytest_npudump.record.model_lines import ALL, PARAMETERS, WEIGHTS, ModelChange
from pytest_npudump.regression.result import OUTSIDE, Escalation, Finding
from pytest_npudump.report.explanations import way_out, whose_error
from pytest_npudump.report.origins import one_sided
from pytest_npudump.report.terminal import full_lines, verdict_lines
from tests.conftest import table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.regression.result import Result


FIRST, BEFORE = TensorKey("net/layer_0", "output", 0), TensorKey("net/before", "output", 0)
RIGHT, WRONG = Alone("acquitted", 0.0, 4.8e-6), Alone("convicted", 0.02, 4.8e-6)
NEARLY = Alone("acquitted", 1e-6, 4.8e-6)
NEAR = Alone("convicted", 3.4e-5, 4.8e-6)
SMALL = Alone("convicted", 4e-6, 4.8e-7, "4e-06, limit 4.8e-07; the golden matches")
TOO_SMALL = Alone("unknown", 4e-6, 4.8e-6, "its statistics changed by 4e-06; the error limit is 4.8e-06")
SHAPE = Alone("unknown", why="its shape is [2], these inputs give [3]")
COUNTED = Alone("convicted", why="3 of 8 values are not what these inputs give")
UNSEEN = Finding(BEFORE, None)
UNDECIDED = Alone("unknown", why="Loop contains another graph")


def operator(alone: Alone, key: TensorKey = FIRST, **given: Any) -> JudgedOperator:
    return JudgedOperator(key, "MatMul", "net.onnx", alone=alone, **{"own": True, "inputs": "dumped"} | given)


def sources(key: TensorKey = FIRST, **given: Any) -> Sources:
    return Sources((Source(key, "", 1, **given),), 1, (), "net.onnx")


RANKS = "weights differ from the golden's: up.weight (rank 1)"


def change(**given: Any) -> ModelChange:
    return ModelChange(("m.onnx",), read=ALL, weighted=7, **given)


TENSOR = TensorDescription("float32", (2,), 1, 0, (0,), (1,), 0, 0, 0, 1, None, None)

OUTPUTS = Sources(
    tuple(Source(replace(FIRST, slot=at), "", 1 + 2 * at, fed=True) for at in (0, 1)), 3, (), "net.onnx"
)
INSIDE = ModelChange(("m.parameters",), ("net",), read=PARAMETERS)
UNALTERED = replace(sources(fed=True), unaltered=True)
TRACED = sources(begins=BEFORE, share=0.3)

SENTENCES = [
    # situation, what has come of the test, what is said in it, and what would be false
    ("its input was overwritten", {"isolated": [operator(WRONG, inputs="upstream")]},
     "kernel must be wrong, or something wrote to its inputs, weights or output", ": kernel error,"),
    ("its output was overwritten", {"isolated": [operator(WRONG)]},
     "kernel must be wrong, or something wrote to its weights or output", "on what feeds it"),
    ("its weights were overwritten", {"isolated": [operator(WRONG, inputs="weights")]},
     "kernel error or overwritten tensor,", "whether an input was overwritten"),
    ("the first line gives the error of one of two",
     {"isolated": [operator(WRONG), operator(WRONG, BEFORE)]},
     "recomputed: net/before:output.0 differs from net.onnx on the same inputs (relative L2 error 0.02, ",
     "net/layer_0:output.0 differs from net.onnx on the same inputs ("),
    ("an optimised graph gave it", {"isolated": [operator(NEAR)]},
     ": possible kernel error,", ": kernel error,"),
    ("an optimised graph gave it, in the golden's numerics",
     {"isolated": [operator(NEAR)], "numerics": "same"},
     "; where kernels may fuse or sum otherwise: -o npudump_preset=other", ": kernel error,"),
    ("nothing may give it, in the golden's numerics", {"isolated": [operator(WRONG)], "numerics": "same"},
     ": kernel error,", "npudump_preset=other"),
    ("an optimised graph gave it, and is allowed for", {"isolated": [operator(NEAR)], "numerics": "other"},
     ": possible kernel error,", "npudump_preset=other"),
    ("an optimised graph gave one of two",
     {"isolated": [operator(NEAR, BEFORE), operator(WRONG)]},
     "npudump: net/layer_0:output.0: kernel error, relative L2 error 0.02, limit 4.8e-06",
     "net/before:output.0: kernel"),
    ("two outputs of one operator", {"sources": OUTPUTS},
     "; 2 mismatches downstream", "2: net/layer_0"),
    ("the golden is what its inputs give", {"isolated": [operator(SMALL)]},
     "npudump: net/layer_0:output.0: possible kernel error, 4e-06, limit 4.8e-07; the golden matches",
     "net/layer_0:output.0 matches"),
    ("a healthy operator may be as far off", {"isolated": [operator(TOO_SMALL)]},
     "is undecided: its statistics changed by 4e-06; the error limit is 4.8e-06", "golden's kernel"),
    ("the model is known and the kernel wrong",
     {"models": ModelChange(read=ALL), "isolated": [operator(WRONG)]},
     "identical to the golden's", "driver or an input differs"),
    ("the same om, of which nothing can be read", {"models": ModelChange(read=ALL)},
     "identical to the golden's; a kernel, the driver or an input differs", "weights do not"),
    ("no file is known, only its inputs are", {"models": ModelChange(fed=("small",))},
     "npudump: model small: inputs changed", "identical to the golden's"),
    ("what the model was given is the golden's", {"models": ModelChange(read=ALL, fed_alike=True)},
     "identical to the golden's; a kernel or the driver differs", "or an input differs"),
    ("its inputs are known to be the golden's",
     {"models": ModelChange(read=ALL), "isolated": [operator(RIGHT)], "fed": {str(FIRST)}},
     "inputs with the same statistics, or another kernel in", "the kernel or the driver differs"),
    ("a graph is known, of other tensors", {},
     "the inputs of the mismatches are not known", "no graph is known"),
    ("the reference has other weights", {"isolated": [operator(WRONG, own=False)]},
     ": operator error,", "kernel error,"),
    ("the weights changed since the reference",
     {"models": change(weights=("net/layer_0",)), "isolated": [operator(WRONG, own=False)]},
     "differs from net.onnx (relative L2 error 0.02, limit 4.8e-06): the model has changed there", "error,"),
    ("the om was made of another model", {"isolated": [operator(WRONG, converted=True)]},
     ": kernel or conversion error,", ": kernel error,"),
    ("the change came in from a wrong kernel", {"isolated": [operator(WRONG, BEFORE), operator(RIGHT)]},
     "net/layer_0:output.0 matches net.onnx", "possible causes for"),
    ("the golden's kernel was the wrong one", {"isolated": [operator(RIGHT)]},
     "or another kernel in the recording", "inputs changed"),
    ("the golden's weights were others", {"isolated": [operator(RIGHT, own=False)]},
     "inputs, type, weights, attributes, or another", "narrows it down"),
    ("a difference within tolerance begins where its inputs give nearly that",
     {"sources": TRACED, "numerics": "same", "isolated": [operator(NEARLY, BEFORE)]},
     "an error in small elements, or another kernel in the recording", "driver differs"),
    ("each element is one that a sum may give",
     {"sources": TRACED, "numerics": "same", "isolated": [operator(replace(NEARLY, bounded=True), BEFORE)]},
     "or another kernel in the recording", "small elements"),
    ("what feeds another source is not known",
     {"sources": Sources((Source(FIRST, "", 1), Source(BEFORE, "", 1, known=False)), 2, (), "net.onnx")},
     "net/before:output.0 (inputs unknown)",
     "no mismatch downstream"),
    ("one source may feed the other through tensors that look unchanged",
     {"sources": Sources((Source(FIRST, "", 1), Source(BEFORE, "", 1)), 2, (), "net.onnx")},
     "sources:    2: net/layer_0:output.0, net/before:output.0 ", "no mismatch downstream"),
    ("layers of the golden are of other models", {"models": ModelChange(read=ALL, mixed=True)},
     "the golden's layers were accepted from runs of several models", "identical to the golden's"),
    ("an operator upstream did not change", {"isolated": [operator(RIGHT, BEFORE, upstream=True)]},
     "net/before:output.0 matches net.onnx", "possible causes for"),
    ("the search was not over", {"isolated": [operator(RIGHT)], "ended": "the search ended at x (why)"},
     "the search ended at x (why)", "operators upstream match"),
    ("others were not recomputed", {"isolated": [operator(WRONG, BEFORE)], "ended": "others: 3 (limit 1)"},
     "; others: 3 (limit 1)", "recomputed: net/before:output.0 matches"),
    ("nothing is known of an operator behind the source", {"isolated": [operator(UNDECIDED, upstream=True)]},
     "second run", "undecided"),
    ("it is traced to a tensor that is not the cause",
     {"sources": TRACED, "isolated": [operator(WRONG)], "numerics": "same"},
     "net/layer_0:output.0: kernel error,", "the change is traced to"),
    ("rounding is elsewhere, too", {"sources": TRACED, "numerics": "other"},
     "npudump: net/layer_0:output.0 max", "npudump: the change"),
    ("an earlier change is in no statistic", {"sources": TRACED, "numerics": "same"},
     "the change is traced to net/before", "begins"),
    ("there are mismatches that nothing connects with it", {"sources": sources()},
     "not all of its inputs are known golden:", "no other mismatch"),
    ("mismatches follow through tensors that look unchanged", {"sources": sources(fed=True)},
     "those of the outputs that feed it", "no mismatch downstream"),
    ("what feeds it is not known", {"sources": sources(known=False, fed=True)},
     "not all of its inputs are known", "including those of the outputs"),
    ("what feeds it was not compared", {"sources": sources(fed=False)},
     "no tensor was compared before it",
     "including those of the outputs"),
    ("the code of its modules changed", {"models": ModelChange(read=PARAMETERS)},
     "its parameters are identical to the golden's; the code, a kernel, the driver", "byte for byte"),
    ("an attribute of a module changed, which is fed as before",
     {"models": ModelChange(read=PARAMETERS, fed_alike=True)},
     "its parameters are identical to the golden's; the code, a kernel or the driver differs", "an input"),
    ("a module is fed otherwise in a later step",
     {"models": ModelChange(read=PARAMETERS, fed_alike=True), "sides": ("a#step=1", "a#step=1")},
     "the code, a kernel, the driver or an input differs", "kernel or the driver"),
    ("a module is fed otherwise", {"models": ModelChange(read=PARAMETERS, fed=("net",))},
     "its parameters are identical to the golden's", "differs"),
    ("a module's code changed, whose inputs are known",
     {"models": ModelChange(read=PARAMETERS), "isolated": [operator(RIGHT)]},
     "inputs, type, attributes, or another kernel in the recording", "weights"),
    ("a file was written again with the same content", {"models": ModelChange(("m.onnx",), read=ALL)},
     "m.onnx: another file, same weights and attributes", "another model file"),
    ("attributes changed of which the file tells nothing", {"models": ModelChange(("m.om",), read=WEIGHTS)},
     "m.om: another file; no change is known of graph, weights and attributes",
     "same weights and attributes"),
    ("nothing of the file is known but its bytes", {"models": ModelChange(("m.om",))},
     "another model file than the golden's: m.om (operators not compared)", "weights"),
    ("the test feeds something else", {"models": ModelChange(read=ALL, fed=("net",))},
     "npudump: model net: inputs changed; first mismatch: ", "another file"),
    ("the test feeds something else to a model of no file", {"models": ModelChange(fed=("net",))},
     "npudump: model net: inputs changed; first mismatch: ", "byte for byte"),
    ("inputs that changed are no possible cause",
     {"models": ModelChange(read=ALL, fed=("net",)), "isolated": [operator(RIGHT)]},
     "npudump: model net: inputs changed; first mismatch: ", "possible causes"),
    ("only channels changed places", {"models": change(weights=("a",), permuted={"a": 1})},
     "a (axis 1): weight channels permuted", "a: weights changed"),
    ("a rank has other weights", {"weights": RANKS, "problems": (RANKS,)},
     f"npudump: {RANKS}; first mismatch: net/layer_0:output.0", "also:"),
    ("an operator has braces in its name", {"models": change(weights=("a{b}",))},
     "model:      a{b}: weights changed", "identical to the golden's"),
    ("an attribute changed and no weight", {"models": change(attributes=("a",))},
     "a: attributes changed", "weights changed"),
    ("an operator is gone that fed it",
     {"models": change(operators=("gone",), removed=("gone",), rewired={"net/layer_0": "gone"}),
      "sources": sources(altered="gone", fed=True), "isolated": [operator(RIGHT)]},
     "source:     gone (removed), upstream of net/layer_0:output.0 ", "no mismatch downstream"),
    ("what feeds an operator changed", {"models": change(rewired={"net/layer_0": "net/layer_0"}),
                                        "isolated": [operator(RIGHT)]},
     "net/layer_0: connections changed", "differs by its"),
    ("the attributes of one upstream changed and no statistic did",
     {"models": change(attributes=("net/before",)), "sources": sources(altered="net/before", fed=True),
      "isolated": [operator(RIGHT)]},
     "source:     net/before (attributes changed), upstream of net/layer_0:output.0", "type, weights"),
    ("weights and attributes are known", {"models": change(), "isolated": [operator(RIGHT)]},
     "causes for net/layer_0:output.0: inputs, or another kernel in the recording", "attributes, or"),
    ("the type of an operator changed", {"models": change(graph=True), "isolated": [operator(RIGHT)]},
     "inputs, type, or another kernel in the recording", "attributes, or"),
    ("only connections changed", {"models": change(graph=True)},
     "the model's graph changed", "attributes changed"),
    ("a mismatch matches by the weights it has now",
     {"models": change(weights=("net/layer_0",)), "isolated": [operator(RIGHT)]},
     "npudump: net/layer_0: weights changed", "possible causes for"),
    ("the weights of an operator upstream changed, whose effect no statistic shows",
     {"models": change(weights=("net/before",)), "sources": sources(altered="net/before", fed=True),
      "isolated": [operator(RIGHT)], "fed": {str(FIRST)}},
     "recomputed: net/layer_0:output.0 matches net.onnx on the same inputs", "possible causes"),
    ("what changed is not upstream of an operator that matches",
     {"models": change(weights=("other",)), "sources": UNALTERED, "isolated": [operator(RIGHT)]},
     "possible causes for net/layer_0:output.0: inputs with the same statistics", "npudump: other: weights"),
    ("what changed ran behind the first mismatch", {"models": change(weights=("net/layer_2",))},
     "npudump: net/layer_0:output.0 max 1.5, expected 1 (16700x tolerance); net/layer_2: weights changed",
     "npudump: net/layer_2: weights changed"),
    ("a parameter of the model itself, whose output comes last, is read before the first mismatch",
     {"models": ModelChange(("net/layer_2.parameters",), ("net/layer_2",), read=PARAMETERS)},
     "npudump: net/layer_2: weights changed", "not seen upstream"),
    ("a parameter of a module around the first mismatch is read before that",
     {"models": INSIDE, "sides": ("net.a net", "net.a net")},
     "npudump: net: weights changed", "not seen upstream"),
    ("the parameters of a module behind the first mismatch changed",
     {"models": INSIDE, "sides": ("a net", "a net")},
     "not seen upstream of the first mismatch: a kernel, code or an input may differ", "npudump: net: "),
    ("part of what changed is no layer of either side",
     {"models": change(attributes=("net/layer_2", "other"))},
     "npudump: net/layer_2, other: attributes changed", "; net/layer_2, other: attributes changed"),
    ("what changed is not upstream, and a kernel differs",
     {"models": change(weights=("other",), fed_alike=True), "sources": UNALTERED},
     "of the first mismatch: a kernel or the driver may differ", "npudump: other: weights changed"),
    ("what changed is not upstream, and the test may feed something else",
     {"models": change(weights=("other",)), "sources": UNALTERED},
     "of the first mismatch: a kernel, code or an input may differ", "a kernel or the driver"),
    ("what changed is not upstream of a kernel that is wrong",
     {"models": change(weights=("other",)), "sources": UNALTERED, "isolated": [operator(NEAR)]},
     "limit 4.8e-06; other: weights changed", "may differ"),
    ("what changed is not upstream, and the operator came out otherwise again",
     {"models": change(weights=("other",)), "sources": UNALTERED,
      "findings": [Finding(FIRST, reproduced=False)]},
     "; not reproduced by the second run; other: weights changed", "may differ"),
    ("an operator whose statistics match is wrong",
     {"isolated": [operator(WRONG)], "sides": ("net/layer_0 b", "net/layer_0 b"), "passing": FIRST.layer},
     "are known; net/layer_0:output.0 is within tolerance of the golden", "statistics before it match"),
    ("an operator that is wrong is out of tolerance", {"isolated": [operator(WRONG)], "sources": sources()},
     "source:     net/layer_0:output.0; ", "net/layer_0:output.0 is within tolerance"),
    ("an operator that is wrong is in no golden", {"isolated": [operator(WRONG, BEFORE)]},
     "net/before:output.0: kernel error", "net/before:output.0 is within tolerance"),
    ("what changed is not upstream, and nothing is known of another model",
     {"models": ModelChange(("m.om",), ("other",)), "sources": UNALTERED},
     "(operators not compared); other: weights changed; first", "may differ"),
    ("what changed is not upstream, and a rank has other weights",
     {"models": change(weights=("other",)), "sources": UNALTERED, "weights": RANKS, "problems": (RANKS,)},
     f"npudump: {RANKS}", "may differ"),
    ("a call has no weights of its own", {"isolated": [operator(WRONG, call="aten::mm", own=False)]},
     "a kernel of this call", "weights or attributes must be wrong"),
    ("the golden's call was the wrong one", {"isolated": [operator(RIGHT, call="aten::mm")]},
     "or another kernel in the recording", "reference= narrows"),
    ("indices of equal values are others",
     {"isolated": [operator(replace(RIGHT, why="takes the other of equal values"))]},
     "; net/layer_0:output.0 takes the other of equal values", "possible causes"),
    ("the source reads weights only", {"sources": sources(fed=None)},
     "no tensor was compared before it golden:", "of its inputs"),
    ("two operators are wrong", {"isolated": [operator(WRONG), operator(WRONG, BEFORE)]},
     "; also net/before:output.0", "no other"),
    ("what matches is not known to be all", {"isolated": [operator(RIGHT), operator(UNDECIDED, BEFORE)]},
     "is undecided: Loop contains", "2 operators match"),
    ("all of the graph and none of its neighbours fail", {"sources": sources(cycle=True)},
     "in a cycle", "no other mismatch"),
    ("a mismatch follows through tensors that pass",
     {"sources": Sources((Source(FIRST, "", 1), Source(BEFORE, "", 1, behind=FIRST)), 2, (), "net.onnx")},
     "again:      out of tolerance again after tensors that pass: net/before", "other source"),
    ("the first mismatch follows from a source",
     {"sources": Sources((Source(BEFORE, "", 2),), 2, (), "net.onnx")},
     "; source: net/before", "other source"),
    ("the first mismatch may be a source",
     {"sources": Sources((Source(BEFORE, "", 1),), 2, (FIRST,), "net.onnx")},
     "; 1 other source: net/before", "; source:"),
    ("an operator that changed is upstream of one with an error of its own",
     {"models": change(attributes=("net/before",)), "sources": sources(altered="net/before", fed=True),
      "isolated": [operator(WRONG)]}, "source:     net/layer_0:output.0", "(attributes changed), upstream"),
    ("an error is only possible where weights changed",
     {"models": change(weights=("net/before",)), "sources": sources(fed=True), "isolated": [operator(NEAR)]},
     "npudump: net/before: weights changed", "npudump: possible"),
    ("more follows than is known", {"sources": replace(sources(), failing=3, unplaced=(BEFORE,))},
     "not all known for 1 of 3 mismatches; first: net/before", "no other mismatch"),
    ("what follows is not all that fails", {"sources": Sources((Source(FIRST, "", 2),), 3, (), "net.onnx")},
     "at least 1 mismatch downstream", "; 1 mismatch downstream"),
    ("its input was overwritten, and its output not", {"isolated": [operator(WRONG, inputs="upstream")]},
     "is known with acl_json=", "on the same inputs"),
    ("what was upstream is wrong, too",
     {"isolated": [operator(WRONG, inputs="upstream"), operator(RIGHT, BEFORE, upstream=True)]},
     "net/layer_0:output.0: kernel error or overwritten tensor,", "possible causes for"),
    ("its fusion is of the conversion", {"isolated": [operator(NEAR, converted=True)]},
     "a fusion or another order of sums may explain it, or the kernel or the conversion",
     ": the kernel must"),
    ("the shape alone is wrong", {"isolated": [operator(SHAPE)]},
     "is undecided: its shape is [2]", "relative L2"),
    ("integers have no distance", {"isolated": [operator(COUNTED)]},
     "kernel error, 3 of 8 values are not what these inputs give",
     "relative L2"),
    ("a tensor was not dumped again", {"findings": [Finding(FIRST, reproduced=True), UNSEEN]},
     "reproduced, but for 1 tensor not dumped", "run: reproduced;"),
    ("no tensor was dumped again", {"findings": [UNSEEN]},
     "none of the mismatching tensors was dumped", "reproduced"),
    ("one of two came again",
     {"findings": [Finding(FIRST, reproduced=False), Finding(BEFORE, reproduced=True)]},
     "NOT REPRODUCED in 1 of 2 tensors", "run: reproduced"),
    ("the first mismatch did not come again", {"findings": [Finding(FIRST, reproduced=False)]},
     "x tolerance); not reproduced by the second run", "driver differs"),
    ("one of those that are gone is in the run's model, too",
     {"models": change(operators=("a", "b"), removed=("a", "b")), "sides": ("a b c d", "d")},
     "npudump: a, b: removed; next mismatch: c:output.0 is missing", "next mismatch: d"),
    ("what is gone is not in the run's model",
     {"models": change(operators=("a", "b"), removed=("a", "b")), "sides": ("a b d", "d")},
     "removed; next mismatch: d:output.0 max", "next mismatch: b"),
    ("a golden tensor has another shape",
     {"findings": [replace(UNSEEN, description=TENSOR, note="the golden tensor is float32 [1]")]},
     "the golden tensor is float32 [1]", "no golden tensor"),
    ("the golden has no tensor of it", {"findings": [replace(UNSEEN, description=TENSOR)]},
     "no golden tensor of net/before:output.0 (golden_tensors=", "the golden tensor is"),
    ("an input of the graph has another shape than the reference was fed", {"reference": (1, 2)},
     "first:      x:output.0; an input of the graph: not what the reference was fed", "values"),
    ("it came again outside, with other values",
     {"findings": [Finding(FIRST, reproduced=False, now=OUTSIDE)]},
     f"NOT REPRODUCED in 1 of 1 tensors: 1 {OUTSIDE}", "within tolerance in"),
]  # fmt: skip


@pytest.fixture
def known() -> list[Result]:
    """The failed test that all rows begin with, made once."""
    return []


@pytest.mark.each(("situation", "given", "said", "false"), SENTENCES)
def test_what_would_be_false_is_not_said(
    failed: Callable[..., Result],
    known: list[Result],
    *,
    situation: str,
    given: dict[str, Any],
    said: str,
    false: str,
) -> None:
    if not known:
        known.append(failed(3))
    isolated = tuple(given.get("isolated", ()))
    test = replace(known[0], sources=given.get("sources"), models=given.get("models"))
    test = replace(test, weights=given.get("weights", ""), problems=given.get("problems", ()))
    if numerics := given.get("numerics"):
        assert test.comparison is not None
        test = replace(test, comparison=replace(test.comparison, numerics=Numerics(numerics, {})))
    if sides := given.get("sides"):
        tables = (
            table_of(*((f"{name}:output.0", "float32", (4,), {"max": most}) for name in side.split()))
            for side, most in zip(sides, (1.0, 1.5), strict=True)
        )
        lax = Rule(0.0, 1.0, layer=given.get("passing", "none"))
        test = replace(test, comparison=compare_tables(*tables, Tolerances(rules=(lax,))))
    if sizes := given.get("reference"):
        stats = {"max": 1, "min": -1, "avg": 0}
        fed = (table_of(("x:output.0", "float32", (size,), stats)) for size in sizes)
        found = compare_tables(*(replace(one, op_types=(GRAPH_INPUT,)) for one in fed), Tolerances())
        test = replace(test, reference=ReferenceResult(Path("net.onnx"), found, 1, 1))
    if fed := given.get("fed"):
        assert test.comparison is not None
        tolerances = replace(test.comparison.tolerances, alone=frozenset(fed))
        test = replace(test, comparison=replace(test.comparison, tolerances=tolerances))
    test = test.explained(
        Escalation(tuple(given.get("findings", ())), ("a",), isolated=isolated, ended=given.get("ended", ""))
    )
    for lines in (full_lines(test), verdict_lines(test, verbose=False)):
        text = " ".join(" ".join(lines).split())
        assert false not in text, situation
    text = " ".join(full_lines(test))
    assert said in text, situation


@pytest.mark.each(
    ("situation", "first", "feeds_seen", "op_type", "said", "false"),
    [
        ("overwritten behind what feeds it", "a:input.0", True, "Relu", "within tolerance", "not dumped"),
        ("overwritten, no more is known", "a:input.0", False, "Relu", "an overwrite", "difference comes"),
        ("an overwritten input of the graph", "a:output.0", False, "Data", "something wrote", "test feeds"),
    ],
)  # fmt: skip
def test_where_the_first_mismatch_comes_from_is_not_said_falsely(
    *, situation: str, first: str, feeds_seen: bool, op_type: str, said: str, false: str
) -> None:
    golden, actual = (
        replace(
            table_of((first, "float32", (1,), {"max": value, "min": value, "avg": value})),
            op_types=(op_type,),
        )
        for value in (1, 2)
    )
    words = explain_first(compare_tables(golden, actual, Tolerances()), feeds_seen=feeds_seen)
    assert said in words, situation
    assert false not in words, situation


@pytest.mark.each(
    ("situation", "golden", "run", "models", "layers", "said"),
    [
        ("the run's model lacks it", "a b", "a", change(operators=("b",), removed=("b",)), (),
         "not in the run's model"),
        ("the golden's model lacks it", "a", "a b", change(operators=("b",)), (),
         "not in the golden's model"),
        ("nobody asks for it any more", "a b", "a", ModelChange(read=ALL), ("a",),
         "layers= in the marker no longer names it"),
        ("a pattern asks for it", "a b", "a", ModelChange(read=ALL), ("b*",),
         "the operators that ran, or the dump, changed there"),
        ("it ran less often", "a a#turn=1", "a", ModelChange(read=ALL), (), "executions: 1, expected 2"),
        ("other operators changed", "a b", "a", change(weights=("a",)), (), ""),
        ("nothing is known of the model", "a b", "a", None, (), ""),
    ],
)  # fmt: skip
def test_why_a_layer_is_on_one_side_only_is_not_said_falsely(  # noqa: PLR0917
    situation: str, golden: str, run: str, models: ModelChange | None, layers: tuple[str, ...], said: str
) -> None:
    sides = (
        table_of(*((f"{name}:output.0", "float32", (1,), {"max": 1}) for name in names.split()))
        for names in (golden, run)
    )
    comparison = compare_tables(*sides, Tolerances())
    result: Any = SimpleNamespace(comparison=comparison, models=models, origin=SimpleNamespace(layers=layers))
    assert one_sided(result) == said, situation


def test_a_changed_model_is_to_be_the_reference_and_no_tolerance_to_excuse_it() -> None:
    for models, said in (
        (change(weights=("a",)), "give reference= the changed model"),
        (None, "tolerances="),
    ):
        result: Any = SimpleNamespace(reference=None, off_reference=("a",), models=models)
        assert said in way_out(result)


@pytest.mark.each(
    ("whose", "rounding", "said", "false"),
    [
        (
            DEVICE,
            0.1,
            "rounding does not explain it: net/layer_0:output.0: max error 0.5, 5x that on the CPU",
            " no ",
        ),
        (DEVICE, 0.0, "rounding does not explain it: net/layer_0:output.0: no error on the CPU", "x that"),
        (
            DTYPE,
            0.1,
            "rounding can explain it: net/layer_0:output.0: max error 0.5; 0.1 on the CPU",
            "not explain",
        ),
    ],
)
def test_whose_error_it_is_leaves_room_for_weights_and_faults_as_small_as_rounding(
    whose: str, rounding: float, said: str, false: str
) -> None:
    blame = Blame(FIRST, whose, "max", 0.5, rounding, 0.1)
    (line,) = whose_error(SimpleNamespace(blames=(blame,)))  # type: ignore[arg-type]
    assert said in line
    assert false not in line
    other = replace(blame, whose=DTYPE if whose == DEVICE else DEVICE)
    (both,) = whose_error(SimpleNamespace(blames=(blame, other)))  # type: ignore[arg-type]
    assert both == f"{line} (not rounding 1, rounding 1)"
    assert not {"device's", "format's"} & {*line.split()}


def test_a_file_has_what_explains_a_failure_before_the_elements_of_each_tensor(
    failed: Callable[..., Result],
) -> None:
    found = Escalation((Finding(FIRST, reproduced=True, description=TENSOR),), isolated=(operator(WRONG),))
    labels = [line.split(":")[0] for line in full_lines(failed(1).explained(found))]
    assert labels.index("recomputed") < labels.index("elements")
