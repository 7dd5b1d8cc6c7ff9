"""What a reader of a report should know of a comparison with a reference, in words."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import sanitise
from pytest_npudump.reference import coverage
from pytest_npudump.reference.expected import LAYOUT, OVERFLOW, PADDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.compare.tolerances.tolerance import Rule
    from pytest_npudump.reference.comparison import Compared
    from pytest_npudump.reference.reference_model import ReferenceModel

_MARKS: Mapping[str, str] = MappingProxyType(
    {
        OVERFLOW: "have values beyond the type's range: infinities, or its largest value, were expected",
        PADDED: (
            "have padding in their statistics: the extremes were judged from one side, mean and norm not at "
            "all; dump_data='tensor' compares them in full"
        ),
        LAYOUT: "are in a layout that cannot be converted: their statistics were compared",
    }
)


def notes_of(compared: Compared, model: ReferenceModel, *, whole: bool) -> tuple[str, ...]:
    """Return what is to be known although all that was compared agrees: what was not, or not in full.

    Args:
        compared: the comparison.
        model: the reference.
        whole: whether all layers were asked for, so that one that nothing was compared of is news.
    """
    matching, name = compared.matching, f"reference {model.path.name}"
    notes = []
    if model.halved:
        notes.append(
            f"{name} holds 16-bit floats and was computed in them: in float32 it would exceed the 2 GiB of "
            f"an ONNX message"
        )
    if whole:
        notes += _unseen(compared, model)
    if matching.lonely:
        notes.append(
            f"{name}: {len(matching.compared)} of {matching.layers} layers compared; no counterpart for "
            f"{matching.types_alone()}"
        )
    notes += [
        f"{name}: {len(keys)} tensors (first: {keys[0]}) {words}"
        for mark, words in _MARKS.items()
        if (keys := compared.marked(mark))
    ]
    odd = [e.actual for e in compared.expected if e.actual.note]
    if odd:
        notes.append(f"{name}: {len(odd)} tensors were compared in part, such as {odd[0].key}: {odd[0].note}")
    unjudged = compared.comparison.unjudged
    if unjudged:
        notes.append(
            f"{name}: of {unjudged} tensors the dump or the reference has no finite statistics: only type, "
            f"shape and counts were compared"
        )
    doubts = [doubt for doubt in compared.comparison.doubts if not doubt.unjudged]
    notes += [f"{name}: {doubt.describe(compared.comparison.compared)}" for doubt in doubts]
    return (*notes, *compared.notes)


def _unseen(compared: Compared, model: ReferenceModel) -> list[str]:
    """Say how many operators of the reference could differ without a word."""
    tensors = (match.counterpart.tensor for match in compared.matching.matches)
    unseen = coverage.unseen(model, tensors)
    if not unseen or len(unseen) == len(model.nodes):  # where it is all of them, the comparison fails
        return []
    words = (
        f"reference {model.path.name}: {len(unseen)} of {len(model.nodes)} operators have no influence on "
        f"anything compared, so that a difference in them goes unseen (first: {unseen[0].name}); the layers "
        f"that hold their outputs belong into a reference_map"
    )
    return [words]


def remarks_of(
    compared: Compared, model: ReferenceModel, own: Sequence[Rule], *, fusions: bool
) -> tuple[str, ...]:
    """Return how layers were matched and judged, what helps with a failure first.

    Args:
        compared: the comparison.
        model: the reference.
        own: rules for types that take the tolerance of a coarser one.
        fusions: whether a layer that the dump lacks may have been fused into another, as all were dumped.
    """
    matching = compared.matching
    remarks = _suspected_fusion(compared) if fusions else []
    if model.raised:
        remarks.append(f"{model.path.name} holds 16-bit floats, which the reference computed in float32")
    if own:
        remarks.append(f"{', '.join(rule.dtype for rule in own)} was judged by {own[0].source}")
    remarks += [f"{layer} was taken for the output of {node}" for layer, node in matching.fused.items()]
    if matching.lonely:
        remarks.append(f"layers without a counterpart: {', '.join(matching.lonely)}")
    rest = [str(record.key) for record in matching.alone if record.key.layer in matching.compared]
    if rest:
        remarks.append(
            f"{len(rest)} tensors of layers that were compared have no counterpart (weights, workspaces): "
            f"{', '.join(rest)}"
        )
    shared = _shared(compared)
    if shared:
        remarks.append(f"several layers were compared with one tensor of the reference: {', '.join(shared)}")
    return tuple(remarks)


def _suspected_fusion(compared: Compared) -> list[str]:
    """Say whether the first layer that differs may hold the output of an operator fused into it."""
    first = compared.comparison.first
    absorbed = {sanitise(layer): name for layer, name in compared.matching.absorbed.items()}
    follower = absorbed.get(sanitise(first.key.layer)) if first is not None else None
    if first is None or follower is None:
        return []
    layer = first.key.layer
    words = (
        f"{follower} of the reference, which alone consumes {layer}, is not in the dump: if the device fused "
        f"it into {layer}, say so in the reference_map: {layer}: {follower}"
    )
    return [words]


def _shared(compared: Compared) -> list[str]:
    """Return tensors of the reference that outputs of several layers were compared with."""
    layers: dict[str, set[str]] = {}
    for match in compared.matching.matches:
        if match.record.key.io == "output":
            layers.setdefault(match.counterpart.tensor, set()).add(match.record.key.layer)
    return [f"{tensor} ({', '.join(sorted(names))})" for tensor, names in layers.items() if len(names) > 1]
