"""Where a difference began: the first divergence in execution order, and what is known of its origin."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING, aligned_keys
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.onnxmodels.graph import draws_random

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison, Verdict

LAYER = "layer"
UNSEEN = "unseen"
BEFORE = "before"
STRUCTURE = "structure"
GRAPH_INPUT = "Data"
"""Operator type of GE's graphs whose output is what the model was given."""


def first_divergence(failing: Sequence[Verdict]) -> Verdict | None:
    """The verdict to look at first.

    An input that only one side has tells that other tensors were dumped, not that a value changed: it is
    the first divergence only if there is no other. In a dump's order a failing output stands before the
    inputs it feeds, and a layer's inputs before its outputs; should they not, its failing input counts.

    Args:
        failing: verdicts other than ``pass`` in execution order.
    """
    telling = (v for v in failing if v.status == FAIL or v.key.io != "input")
    first = next(telling, failing[0] if failing else None)
    if first is None or first.status != FAIL or first.key.io == "input":
        return first
    fed = execution(first.key)
    inputs = (v for v in failing if v.status == FAIL and v.key.io == "input" and execution(v.key) == fed)
    return next(inputs, first)


def execution(key: TensorKey) -> TensorKey:
    """The key all tensors of one execution of a layer share."""
    return replace(key, io="", slot=0)


def origin_of(first: Verdict | None, compared: Iterable[str]) -> str:
    """What is known of where ``first`` comes from.

    Args:
        first: the first divergence.
        compared: texts of the keys, on either side, of the tensors that both sides have.

    Returns:
        ``layer``: its inputs agree, its output does not. ``unseen``: its inputs were not compared.
        ``before``: it is an input: the difference was there already. ``structure``: the tensor is on one
        side only. "" where nothing diverges.
    """
    if first is None:
        return ""
    if first.status in {MISSING, EXTRA}:
        return STRUCTURE
    if first.key.io == "input":
        return BEFORE
    fed = execution(first.key.sanitised)
    inputs = (TensorKey.parse(text).sanitised for text in compared if ":input." in text)
    return LAYER if any(execution(key) == fed for key in inputs) else UNSEEN


def explain_first(comparison: Comparison, *, feeds_seen: bool = False) -> str:
    """One sentence on the first divergence and its origin; "" where nothing diverges.

    Args:
        comparison: of both sides.
        feeds_seen: whether the outputs that feed it are known, and both sides have them.
    """
    first = comparison.first
    if first is None:
        return ""
    words = _explained(comparison, first, feeds_seen=feeds_seen)
    if not draws_random(first.op_type):
        return words
    return _(
        "{words}; {layer} draws random numbers: without a seed of its own they differ in every process"
    ).format(words=words, layer=first.key.layer)


def _explained(comparison: Comparison, first: Verdict, *, feeds_seen: bool) -> str:
    key = first.key
    tensor = _("{io} {slot} of {layer}").format(io=key.io, slot=key.slot, layer=key.layer)
    differs = _("{tensor} is the first mismatch").format(tensor=tensor)
    if comparison.origin == STRUCTURE:
        side = _("only in the golden") if first.status == MISSING else _("only in the dump")
        return _("{tensor} is {side}: the model or what is dumped of it has changed there").format(
            tensor=tensor, side=side
        )
    moved = comparison.differing | comparison.within_noise
    if comparison.origin == LAYER:
        fed, rows = execution(key.sanitised), enumerate(_keys(comparison))
        words = _("{differs}; the compared statistics of its inputs agree")
        if any(at in moved for at, one in rows if one.io == "input" and execution(one.sanitised) == fed):
            words = _("{differs}; the compared statistics of its inputs are within tolerance")
        return words.format(differs=differs)
    if first.op_type == GRAPH_INPUT:
        return _("{differs}: it is an input of the graph, so what the test feeds in has changed").format(
            differs=differs
        )
    if comparison.origin == BEFORE:
        return _(
            "{differs}: the difference comes from before {layer}, from a layer that was not dumped or from "
            "what the test fed in"
        ).format(differs=differs, layer=key.layer)
    inputs = "" if _inputs_dumped(comparison, key) else _("; its own inputs were not dumped")
    inputs = _(", those of its inputs included") if feeds_seen else inputs
    words = _("{differs}; all statistics compared before it agree{inputs}")
    if any(at in moved for at, _key in enumerate(takewhile(lambda one: one != key, _keys(comparison)))):
        words = _("{differs}; all statistics compared before it are within tolerance{inputs}")
    return words.format(differs=differs, inputs=inputs)


def _keys(comparison: Comparison) -> Iterator[TensorKey]:
    """Yield the keys of all tensors in execution order."""
    rows = aligned_keys(comparison.golden, comparison.actual, comparison.alignment)
    return (key for key, _op_type in rows)


def _inputs_dumped(comparison: Comparison, key: TensorKey) -> bool:
    """Whether either side holds an input of the execution that ``key`` belongs to."""
    fed = execution(key.sanitised)
    texts = (
        text for side in (comparison.golden, comparison.actual) for text in side.keys if ":input." in text
    )
    return any(execution(TensorKey.parse(text).sanitised) == fed for text in texts)
