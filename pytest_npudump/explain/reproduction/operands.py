"""The failing operator with the arrays that the second run dumped, and what its output is held against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.dumped_operators import OperatorDump
from pytest_npudump.explain.matches import NameMap
from pytest_npudump.explain.operator_alone import CONVICTED, NotAtHandError, judge_alone
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.graph.model_files import edges_at_hand
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.onnxmodels.loaded_files import model_digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.explain.dumped_operators import DumpedOperator
    from pytest_npudump.explain.operator_alone import Alone
    from pytest_npudump.explain.reproduction.failure import FailingTensor
    from pytest_npudump.graph.edges import Edges

REFERENCE = "reference"
GOLDEN = "golden"
"""What a reproduction's output is held against."""


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """The models of a failing test.

    Attributes:
        device: what the device runs, its 16-bit floats as they are written.
        reference: what says what is right: the test's reference, or the same model.
        mapping: names that the reference does not know.
        own: whether the reference is the model that ran.
    """

    device: ReferenceModel
    reference: ReferenceModel
    mapping: NameMap
    own: bool


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """One operator of the device's model, and what one execution gave it.

    Attributes:
        found: the operator in the device's model, with its arrays.
        judged: the same operator in the reference.
        alone: what onnxruntime makes of the inputs, against what the device made of them.
        criterion: :data:`REFERENCE` or :data:`GOLDEN`.
    """

    found: DumpedOperator
    judged: DumpedOperator
    alone: Alone
    criterion: str


def models_of(failure: FailingTensor, model: Path | None = None) -> Models:
    """Read the ONNX models of a failure.

    Args:
        failure: what is to be reproduced.
        model: the ONNX model that ran, in place of what the report says.

    Raises:
        RequestError: none is known, or it cannot be told which of several.
        ModelError: a model cannot be read.
    """
    ran = [model] if model is not None else _onnx_files(failure)
    if len(ran) > 1:
        named = [path for path in ran if path.stem == failure.key.model]
        if len(named) != 1:
            names = ", ".join(path.name for path in ran)
            raise RequestError(f"{failure.report}: several models ran ({names}): name one with --model")
        ran = named
    if not ran and failure.reference is None:
        raise RequestError(
            f"{failure.report}: no ONNX model of what ran is known: name it with --model MODEL.onnx"
        )
    device = ran[0] if ran else failure.reference
    assert device is not None  # noqa: S101 - one of the two is there
    for path in dict.fromkeys((device, failure.reference or device)):
        _refuse_another(failure, path)
    reference = ReferenceModel.read(failure.reference or device)
    mapped = failure.reference_map if failure.reference is not None else None
    mapping = NameMap.read(mapped, reference.names) if mapped is not None else NameMap()
    own = failure.reference in (None, device)
    as_is = own and not (reference.raised or reference.halved)
    written = reference if as_is else ReferenceModel.read(device, as_written=True)
    return Models(written, reference, mapping, own)


def _refuse_another(failure: FailingTensor, path: Path) -> None:
    """Refuse a file that is known not to be what the failing run had, under its name or any."""
    digests = {file.resolve(): digest for file, digest in failure.digests.items()}
    then = digests.get(path.resolve())
    if then == "":
        raise RequestError(
            f"{path} was written again in {failure.test}, after it was loaded: what failed there is not "
            f"known any more; name a file that has it with --model"
        )
    ran = {digests[file] for file in digests if file.suffix == ".onnx" and digests[file]}
    known = {then} if then is not None else ran
    if known and path.is_file() and (now := model_digest(path)) not in known:
        raise RequestError(
            f"{path} is not the model of the failing run of {failure.test}: its SHA-256 is {now[:12]}..., "
            f"and was {first_of(sorted(one[:12] + '...' for one in known))}; put that one back, or run the "
            f"test again"
        )


def read_operands(failure: FailingTensor, models: Models) -> Operands:
    """Find the operator and its arrays in the second run's dump, and what shows that it is wrong.

    Raises:
        RequestError: the dump is gone, an input of the operator is not in it, or neither the reference nor
            the golden shows that this operator alone is wrong; the message says which.
        ModelError: onnxruntime refuses a model.
    """
    records, key = read_tensors(failure)
    mapping = models.mapping if models.device.path == models.reference.path else NameMap()
    try:
        plain = failure.runtime == "emulator"
        found = OperatorDump.read(models.device, mapping, records, [key], plain=plain).operator(key)
        judged = found
        if models.reference is not models.device or failure.reference is not None:
            edges = _edges_beside_reference(failure, models, records)
            told = OperatorDump.read(
                models.reference, models.mapping, records, [key], edges=edges, plain=plain
            )
            judged = told.operator(key)
        alone = judge_alone(judged)
    except NotAtHandError as error:
        raise RequestError(
            f"{failure.key} cannot be reproduced by itself: {error}; --reduce looks for a piece of the model "
            f"that can, --npudump-dump-limit has the second run dump more"
        ) from error
    if alone.verdict == CONVICTED:
        return Operands(found, judged, alone, REFERENCE)
    if failure.golden is not None and failure.source and failure.reasons:
        return Operands(found, judged, alone, GOLDEN)
    why = alone.why or f"{alone.apart:.3g} off, {alone.allowed:.3g} allowed"
    raise RequestError(
        f"{failure.key} does not fail by itself: it computes what {models.reference.path.name} makes of its "
        f"inputs ({why}), and what feeds it is not known to be as in the golden; name its source with "
        f"--layer, or look for a piece of the model that fails with --reduce"
    )


def _edges_beside_reference(
    failure: FailingTensor, models: Models, records: Sequence[TensorRecord]
) -> Edges | None:
    """Return which tensor fed which in what ran; None where that is the model that says what is right."""
    if failure.reference is None:
        return None
    device = models.device.path
    ran = failure.models or ((device,) if device != failure.reference else ())
    return edges_at_hand(ran, failure.run, StatsTable.from_records(records))[0]


def read_tensors(failure: FailingTensor) -> tuple[list[TensorRecord], TensorKey]:
    """Return what the second run dumped where the failing tensor is, and its key there.

    Raises:
        RequestError: the dump is not there any more.
    """
    capture = failure.key.capture
    folder = failure.run / (f"dump-{capture}" if capture else "dump")
    if not folder.is_dir():
        raise RequestError(
            f"{folder}: the second run's dump is not there any more: run {failure.test} again, with "
            f"--npudump-dump-dir=DIR --npudump-keep-dumps=failed"
        )
    return [*read_dump(folder, stats=False).records], replace(failure.key, capture="")


def _onnx_files(failure: FailingTensor) -> list[Path]:
    files = (path.with_suffix(".onnx") for path in failure.models)
    return [*{file.resolve(): file for file in reversed(list(files)) if file.is_file()}.values()][::-1]
