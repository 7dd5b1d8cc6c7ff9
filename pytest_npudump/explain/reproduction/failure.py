"""What the report beside a failing test's dumps knows: what ran, what failed, where its tensors are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.errors import RequestError
from pytest_npudump.language.excerpt import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REPORT = "report.json"
_CONVICTED = "convicted"


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
    file = path / _REPORT if path.is_dir() else path
    data = _read(file)
    escalation = data.get("escalation")
    if not isinstance(escalation, dict) or not escalation.get("directory"):
        raise RequestError(
            f"{file}: there was no second run, which dumps the tensors that a reproduction consists of: run "
            f"the test again without --npudump-escalate=off"
        )
    key = _chosen(file, data, escalation, layer)
    origin = data["origin"]
    found: dict[str, Any] = next((one for one in escalation["findings"] if one["key"] == str(key)), {})
    return FailingTensor(
        report=file,
        test=str(data["test"]),
        key=key,
        run=_run_of(key, escalation),
        reasons=_reasons(data, key),
        source=any(found["key"] == str(key) for found in _sources(data) if found["known"]),
        golden=_path(data.get("golden")),
        producer=origin["producer"],
        runtime=origin["runtime"],
        models=tuple(map(Path, origin["models"])),
        digests={Path(name): str(digest) for name, digest in origin.get("digests", {}).items()},
        reference=_path(origin["reference"]),
        reference_map=_path(origin["reference_map"]),
        bounds=(data.get("numerics") or {}).get("bounds", ""),
        call=next(
            (_path(one.get("saved")) for one in escalation["isolated"] if one["key"] == str(key)), None
        ),
        reproduced=found.get("reproduced"),
        now=found.get("against_golden") or "",
    )


def _run_of(key: TensorKey, escalation: Mapping[str, Any]) -> Path:
    third = escalation.get("third") or {}
    layers = {sanitise(layer) for layer in third.get("layers", ())}
    return Path((third if sanitise(key.layer) in layers else escalation)["directory"])


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{file}: cannot be read: {error}; expected the report.json beside a failing test's dumps, below "
            f"--npudump-dump-dir"
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get("origin"), dict) or "escalation" not in data:
        raise RequestError(
            f"{file}: is no report of a failing test, or of an older version: expected the report.json "
            f"beside its dumps"
        )
    return data


def _chosen(file: Path, data: Mapping[str, Any], escalation: Mapping[str, Any], layer: str) -> TensorKey:
    candidates = tuple(dict.fromkeys(_candidates(data, escalation)))
    keys = [TensorKey.parse(text) for text in candidates]
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


def _candidates(data: Mapping[str, Any], escalation: Mapping[str, Any]) -> Iterator[str]:
    """Yield keys of outputs, those first that a reader would look at first."""
    dumped = {found["key"] for found in escalation["findings"]}
    isolated = escalation["isolated"]
    told = [one["key"] for one in isolated if one["verdict"] == _CONVICTED]
    told += [one["key"] for one in _sources(data)]
    told += [one["key"] for one in escalation["findings"]]
    told += [one["key"] for one in isolated]
    known = dumped | {one["key"] for one in isolated}
    yield from (key for key in told if key in known and TensorKey.parse(key).io == "output")


def _sources(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list((data.get("sources") or {}).get("found", []))


def _reasons(data: Mapping[str, Any], key: TensorKey) -> tuple[str, ...]:
    for name in ("comparison", "reference"):
        for verdict in (data.get(name) or {}).get("verdicts", []):
            if verdict["status"] != "pass" and _key_of(verdict) == str(key):
                return tuple(verdict["reasons"])
    return ()


def _key_of(verdict: Mapping[str, Any]) -> str:
    return str(verdict.get("key") or TensorKey(verdict["layer"], verdict["io"], verdict["slot"]))


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
