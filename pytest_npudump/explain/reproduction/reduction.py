"""The smallest piece of a model that still fails, by bisection.

A piece is the operators that the failing tensor follows from, from one of them on in the order of execution;
what it reads from before is computed by onnxruntime. The search takes it that a piece fails where a smaller
one does, and that one operator of it is to blame: both are checked at the end, as FLiT does (Sawaya et al.,
2017). Where that does not hold, the piece fails all the same, and is told not to be the smallest.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.reference_model import constants_of, operators_behind
from pytest_npudump.explain.reproduction.failure import REFERENCE
from pytest_npudump.explain.reproduction.pieces import cut_piece, of_pieces
from pytest_npudump.record.run_folder import read_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.explain.reference_model import Node, ReferenceModel
    from pytest_npudump.explain.reproduction.failure import FailingTensor, Models
    from pytest_npudump.explain.reproduction.pieces import PieceReproduction
    from pytest_npudump.explain.reproduction.reproduction import TrialRun

    Array = np.ndarray[Any, np.dtype[Any]]

_SINGLES = 8
"""Operators of a piece that are each tried alone at the end, at most."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """What the search found.

    Attributes:
        reproduction: the smallest piece that fails.
        operators: how many the failing tensor follows from.
        checks: what was found true or false of the search's assumptions, in words.
    """

    reproduction: PieceReproduction
    operators: int
    checks: tuple[str, ...]


def reduced(
    failure: FailingTensor,
    models: Models,
    inputs: Path | None,
    runtime: str,
    report: Callable[[int, int], None] | None = None,
) -> Reduction:
    """Search.

    Args:
        failure: what is to be reproduced.
        models: of the failing test.
        inputs: an npz of the whole model's inputs; None for those that the second run dumped.
        runtime: what runs the pieces, as in ``--npudump-runtime``; "" for what is found.
        report: called with (trials done, trials in all).

    Raises:
        RequestError: the inputs are not known, the layer is not in the model, or all that it follows from
            does not fail on the CPU's inputs.
        ModelError: onnxruntime refuses a model.
    """
    search = _Search(failure, models, _inputs(failure, models.reference, inputs), runtime, report)
    return search.run()


class _Search:
    def __init__(
        self,
        failure: FailingTensor,
        models: Models,
        feeds: Mapping[str, Array],
        runtime: str,
        report: Callable[[int, int], None] | None,
    ) -> None:
        self._failure, self._models, self._runtime = failure, models, runtime
        self._report = report
        layer, nodes = sanitise(failure.key.layer), models.device.nodes
        last = next((at for at, node in enumerate(nodes) if sanitise(node.name) == layer), None)
        if last is None:
            raise RequestError(f"--reduce: {models.device.path.name} has no operator {failure.key.layer!r}")
        self._nodes = operators_behind(nodes[: last + 1], nodes[last].operator.outputs)
        self._references = {node.name: node for node in models.reference.nodes}
        if unknown := [node.name for node in self._nodes if node.name not in self._references]:
            raise RequestError(
                f"--reduce: {models.reference.path.name} has no operator {unknown[0]!r}, as "
                f"{models.device.path.name} has: it cannot say what is right of a piece"
            )
        made = (name for node in models.device.nodes for name in node.operator.outputs)
        self._tensor_names = frozenset((*made, *models.device.inputs)) - constants_of(models.device)
        wanted = {name: 1 for node in self._nodes for name in self._border([node])}
        computed = models.reference.run(feeds, wanted)
        self._tensors = {name: array for name, array in computed if array is not None}
        self._ports = models.device.ports(self._tensors.keys())
        self._trials = 0

    def run(self) -> Reduction:
        nodes: Sequence[Node] = self._nodes
        whole = self._trial(nodes)
        if not whole.fails:
            raise RequestError(
                f"--reduce: the {len(nodes)} operators that {self._failure.key.layer} follows from, on "
                f"inputs of the whole model, do not fail: {whole.error or 'all agree with the reference'}"
            )
        first = sanitise(whole.first)
        end = next((at for at, node in enumerate(nodes, 1) if sanitise(node.name) == first), len(nodes))
        if end < len(nodes):
            shorter = operators_behind(nodes[:end], nodes[end - 1].operator.outputs)
            nodes = shorter if self._trial(shorter).fails else nodes
        least, most = 0, len(nodes) - 1  # nodes[least:] fails; is it so from a later one on?
        while least < most:
            middle = (least + most + 1) // 2
            if self._trial(nodes[middle:]).fails:
                least = middle
            else:
                most = middle - 1
        piece = nodes[least:]
        return Reduction(self._reproduction(piece), len(self._nodes), self._checks(piece))

    def _checks(self, piece: Sequence[Node]) -> tuple[str, ...]:
        found = []
        if len(piece) > 1:
            rest = self._trial(piece[1:]).fails
            found.append(f"without {piece[0].name} it {'fails as well' if rest else 'passes'}")
            alone = [node.name for node in piece[:_SINGLES] if self._trial([node]).fails]
            tried = f"{min(len(piece), _SINGLES)} of its {len(piece)} operators alone"
            found.append(
                f"{tried}: {', '.join(alone) + ' fails: a smaller piece' if alone else 'each passes'}"
            )
        found.append(
            f"the piece fails again: {'yes' if self._trial(piece).fails else 'no: it does not repeat'}"
        )
        return tuple(found)

    def _trial(self, nodes: Sequence[Node]) -> TrialRun:
        with tempfile.TemporaryDirectory(prefix="npudump-") as folder:
            piece = self._reproduction(nodes)
            piece.write(Path(folder))
            trial = piece.run(Path(folder), self._runtime)
        self._trials += 1
        if self._report is not None:
            self._report(self._trials, max(self._trials, len(self._nodes).bit_length() + 4))
        return trial

    def _reproduction(self, nodes: Sequence[Node]) -> PieceReproduction:
        device, reference = self._models.device, self._models.reference
        border = self._border(nodes)
        missing = [name for name in border if name not in self._tensors]
        if missing:
            raise RequestError(f"--reduce: {missing[0]!r}, which a piece reads, is no tensor of numbers")
        feeds = {name: self._tensors[name].astype(self._ports[name][0]) for name in border}
        piece = cut_piece(device, nodes, feeds)
        right = None
        if not self._models.own:
            same = {name: self._tensors[name] for name in border}
            right = cut_piece(reference, [self._references[node.name] for node in nodes], same)
        return of_pieces(
            self._failure, self._models, piece, right, inputs=feeds, criterion=REFERENCE, computed=True
        )

    def _border(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the tensors that operators read and none of them makes, constants left out."""
        made = {name for node in nodes for name in node.operator.outputs}
        read = (name for node in nodes for name in (*node.all_inputs, *node.captured))
        return tuple(dict.fromkeys(name for name in read if name in self._tensor_names and name not in made))


def _inputs(failure: FailingTensor, model: ReferenceModel, archive: Path | None) -> dict[str, Array]:
    if archive is not None:
        try:
            with np.load(archive, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError) as error:
            raise RequestError(f"--inputs {archive}: is no npz of arrays: {error}") from error
    else:
        records, _ = read_tensors(failure.run, failure.key, failure.test)
        names = {sanitise(name): name for name in model.inputs}
        found = {
            names[layer]: load(record.payload, record.dtype, record.shape)
            for record in records
            if record.op_type == GRAPH_INPUT and (layer := sanitise(record.key.layer)) in names
            if record.payload is not None and record.shape is not None
        }
    missing = [name for name in model.inputs if name not in found]
    if missing:
        raise RequestError(
            f"--reduce runs the whole model, and its input {missing[0]!r} is not known: name an npz of its "
            f"inputs with --inputs"
        )
    return found
