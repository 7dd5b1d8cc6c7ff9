"""Failure to reproduce: the report of a failing test, and the operator with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.dumped_operators import DumpedOperator, OperatorDump
from pytest_npudump.explain.matches import NameMap
from pytest_npudump.explain.operator_alone import CONVICTED, Alone, NotAtHandError, judge_alone
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.graph.model_files import edges_at_hand
from pytest_npudump.language.text import first_of
from pytest_npudump.onnxmodels.loaded_files import model_digest
from pytest_npudump.record.run_folder import REPORT, read_report, read_tensors


@dataclass(frozen=True, slots=True)
class FailingTensor:
    """One failing tensor of one test.

    Attributes:
        report: the file that tells of it.
        test: the test's node id.
        key: the tensor, an output.
        run: the folder of the run that dumped its tensors: the second or the third.
        reasons: why it fails, in words.
        source: whether all that feeds it is known to pass.
        golden: the golden file; None without one.
        producer: facts of the run.
        runtime: what ran it.
        models: files that ran.
        digests: SHA-256 of the ONNX models that ran, or lie beside what did, and of the reference, as that
            run had them, by path; "" of a file that was written again in it.
        reference: the test's ONNX model; None without one.
        reference_map: its mapping file.
        bounds: ``same``, ``other`` or ``hf32``; "" where it is not known.
        call: folder of the call of torch that gave the tensor and is convicted; None where there is none.
        reproduced: whether the second run, whose tensors these are, did the same; None where that is unknown.
        now: how its tensor compares with the golden, where it did not; "" where that is not known.
    """

    report: Path
    test: str
    key: TensorKey
    run: Path
    reasons: tuple[str, ...]
    source: bool
    golden: Path | None
    producer: Mapping[str, str]
    runtime: str
    models: tuple[Path, ...]
    digests: Mapping[Path, str]
    reference: Path | None
    reference_map: Path | None
    bounds: str
    call: Path | None
    reproduced: bool | None
    now: str


def read_failure(path: Path, layer: str = "") -> FailingTensor:
    """Read a report, and choose the tensor to be reproduced.

    Without ``layer`` it is the first operator that was convicted, else the first source, else the first
    tensor that the second run found to fail.

    Args:
        path: ``report.json`` beside a failing test's dumps, or that folder.
        layer: a layer, or a tensor's key.

    Raises:
        RequestError: it is no such report, the test has not failed, there was no second run, or it has no
            tensors of such a layer.
    """
    file = path / f"{REPORT}.json" if path.is_dir() else path
    data = _read(file)
    escalation = data.get("escalation")
    if not isinstance(escalation, dict) or not escalation.get("directory"):
        raise RequestError(
            f"{file}: there was no second run, which dumps the tensors that a reproduction consists of: run "
            f"the test again without -o npudump_escalate=off"
        )
    key = _chosen(file, data, layer)
    origin, third = data["origin"], escalation.get("third") or {}
    again = {sanitise(layer) for layer in third.get("layers", ())}
    found: dict[str, Any] = next((one for one in escalation["findings"] if one["key"] == str(key)), {})
    saved = (_path(one.get("saved")) for one in escalation["isolated"] if one["key"] == str(key))
    reasons = (
        verdict["reasons"]
        for name in ("comparison", "reference")
        for verdict in (data.get(name) or {}).get("verdicts", [])
        if verdict["status"] != "pass"
        and str(key) == str(verdict.get("key") or TensorKey(verdict["layer"], verdict["io"], verdict["slot"]))
    )
    return FailingTensor(
        report=file,
        test=str(data["test"]),
        key=key,
        run=Path((third if sanitise(key.layer) in again else escalation)["directory"]),
        reasons=tuple(next(reasons, ())),
        source=any(one["key"] == str(key) for one in _sources(data) if one["known"]),
        golden=_path(data.get("golden")),
        producer=origin["producer"],
        runtime=origin["runtime"],
        models=tuple(map(Path, origin["models"])),
        digests={Path(name): str(digest) for name, digest in origin.get("digests", {}).items()},
        reference=_path(origin["reference"]),
        reference_map=_path(origin["reference_map"]),
        bounds=(data.get("numerics") or {}).get("bounds", ""),
        call=next(saved, None),
        reproduced=found.get("reproduced"),
        now=found.get("against_golden") or "",
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        data = read_report(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or error
        raise RequestError(
            f"{file}: cannot be read: {reason}; expected the report.json beside a failing test's dumps, "
            f"below --npudump-output"
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get("origin"), dict) or "escalation" not in data:
        raise RequestError(
            f"{file}: is no report of a failing test, or of an older version: expected the report.json "
            f"beside its dumps"
        )
    return data


def _chosen(file: Path, data: Mapping[str, Any], layer: str) -> TensorKey:
    dumped = [one["key"] for one in data["escalation"]["findings"]]
    isolated = data["escalation"]["isolated"]
    told = [one["key"] for one in isolated if one["verdict"] == CONVICTED]  # what one looks at first
    told += [*(one["key"] for one in _sources(data)), *dumped, *(one["key"] for one in isolated)]
    there = {*dumped, *(one["key"] for one in isolated)}
    keys = [TensorKey.parse(text) for text in dict.fromkeys(told) if text in there]
    keys = [key for key in keys if key.io == "output"]
    if not layer:
        if not keys:
            raise RequestError(f"{file}: the second run has no tensor that fails")
        return keys[0]
    for key in keys:
        if layer == str(key) or sanitise(layer) == sanitise(key.layer):
            return key
    known = first_of(dict.fromkeys(key.layer for key in keys))
    raise RequestError(
        f"--layer {layer}: no output of it failed and was dumped by the second run, which has {known}"
    )


def _sources(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list((data.get("sources") or {}).get("found", []))


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


REFERENCE = "reference"
GOLDEN = "golden"
"""Reference of a reproduction's output."""


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


def models_of(failure: FailingTensor, model: Path | None = None) -> Models:
    """Read the ONNX models of a failure.

    Args:
        failure: what is to be reproduced.
        model: the ONNX model that ran, in place of what the report says.

    Raises:
        RequestError: none is known, or it cannot be told which of several.
        ModelError: a model cannot be read.
    """
    files = [path.with_suffix(".onnx") for path in failure.models]
    there = {file.resolve(): file for file in reversed(files) if file.is_file()}
    ran = [model] if model is not None else [*there.values()][::-1]
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


def read_operands(
    failure: FailingTensor, models: Models
) -> tuple[DumpedOperator, DumpedOperator, Alone, str]:
    """Find the operator and its arrays in the second run's dump, and what shows that it is wrong.

    Returns:
        The operator in the device's model, the same in the reference, what onnxruntime makes of the inputs
        against what the device made of them, and :data:`REFERENCE` or :data:`GOLDEN`.

    Raises:
        RequestError: the dump is gone, an input of the operator is not in it, or neither the reference nor
            the golden shows that this operator alone is wrong; the message says which.
        ModelError: onnxruntime refuses a model.
    """
    records, key = read_tensors(failure.run, failure.key, failure.test)
    mapping = models.mapping if models.device.path == models.reference.path else NameMap()
    try:
        plain = failure.runtime == "emulator"
        found = OperatorDump.read(models.device, mapping, records, [key], plain=plain).operator(key)
        judged = found
        if models.reference is not models.device or failure.reference is not None:
            edges = None  # where the model that ran says what is right
            if failure.reference is not None:
                device = models.device.path
                ran = failure.models or ((device,) if device != failure.reference else ())
                edges = edges_at_hand(ran, failure.run, StatsTable.from_records(records))[0]
            told = OperatorDump.read(
                models.reference, models.mapping, records, [key], edges=edges, plain=plain
            )
            judged = told.operator(key)
        alone = judge_alone(judged)
    except NotAtHandError as error:
        raise RequestError(
            f"{failure.key} cannot be reproduced by itself: {error}; npudump_dump_limit has the second run "
            f"dump more"
        ) from error
    if alone.verdict == CONVICTED:
        return found, judged, alone, REFERENCE
    if failure.golden is not None and failure.source and failure.reasons:
        return found, judged, alone, GOLDEN
    why = alone.why or f"{alone.apart:.3g} off, {alone.allowed:.3g} allowed"
    raise RequestError(
        f"{failure.key} does not fail by itself: it computes what {models.reference.path.name} makes of its "
        f"inputs ({why}), and what feeds it is not known to be as in the golden; name its source with "
        f"--layer"
    )
