"""From a test's result to what is kept of it: a line, and its statistics as the golden they would be."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tolerances.tolerance import DEFAULT
from pytest_npudump.golden.content.text import render
from pytest_npudump.golden.overlay import VARIANT
from pytest_npudump.golden.store import read_golden
from pytest_npudump.regression.outcome import NOT_COMPARED
from pytest_npudump.report.result_json import COUNTS, result_json
from pytest_npudump.request import DumpRequest
from pytest_npudump.results.entry import TEST, VERSION
from pytest_npudump.results.folder import record_name
from pytest_npudump.results.pending_tensors import pending_tensors
from pytest_npudump.results.record_text import record_text, types_block, types_by_key
from pytest_npudump.results.refusals import refusals_of
from pytest_npudump.settings import default_settings
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_npudump.golden.tensors import Tensor
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import FirstRun, Outcome, Result
    from pytest_npudump.results.pending_tensors import PendingTensors
    from pytest_npudump.settings import Settings

_PLACES = ("first", "first_change", "first_within", "reproduced", "reference", "findings")
"""What a result tells of differences, beside the numbers of tensors."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a test that was judged.

    Attributes:
        line: for ``results.jsonl``, without what is known only once all of the test has ended.
        records: the file of the run's statistics by its name in the folder of results; or none.
        tensors: those that an approval would keep with the golden, by the SHA-256 of their bytes.
        op_types: types of the operators of what is recorded, where rules ask for them, by sanitised key.
        file_names: whether its layers were known by the names of their files.
    """

    line: Mapping[str, Any]
    records: Mapping[str, bytes] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    op_types: Mapping[str, str] = field(default_factory=dict)
    file_names: bool = False


def keep(case: Case, result: Result, first: FirstRun, golden_root: Path) -> Kept:
    """Return what is kept of a test that has been judged.

    Args:
        case: the test.
        result: what became of it.
        first: the run that decided.
        golden_root: the folder that golden files are named relative to.
    """
    outcome = result.outcome
    told = result_json(result, None)
    pending = pending_tensors(case, result, first)
    tensors: dict[str, Tensor] = {}
    refused = pending.refusals if pending is not None else ()
    naming = None if pending is None or refused else partial(pending.named_by, found=tensors)
    record, why = record_text(case, first, naming)
    file = case.goldens.path.relative_to(golden_root).as_posix()
    name = record_name(file, record) if record else ""
    rank = case.exchange.rank.number if case.exchange is not None else None
    rules = [asdict(rule) for rule in case.tolerances.rules]
    line = blank_line(case.nodeid, case.request, case.settings, file, rank) | {
        "status": told["status"],
        "runtime": case.runtime.name,
        "isolated": case.isolated,
        "part": result.part,
        "tensors": outcome.tensors,
        "counts": {name: told[name] for name in COUNTS if name in told},
        **{name: told.get(name) for name in _PLACES},
        "problems": list(outcome.problems),
        "notes": told["notes"],
        "numerics": _numerics(outcome),
        "record": _record(name, record, tensors, pending) if record else None,
        "snapshot": _snapshot(first),
        "refusals": [*why, *refusals_of(case, result, first), *refused],
        "producer": dict(result.origin.producer),
        "tolerances": {"preset": case.tolerances.preset, "rules": rules},
    }
    line["options"] |= case.started
    line["golden"] |= _judged_with(first, golden_root) | {"chosen": case.goldens.chosen}
    dumped = first.dump.records if first.dump is not None and not record else ()
    types = types_by_key(dumped) if case.tolerances.names_op_types else {}
    file_names = first.dump is not None and not first.dump.raw_names
    return Kept(line, {name: record} if record else {}, tensors, types, file_names)


def _record(
    name: str, content: bytes, tensors: Mapping[str, Tensor], pending: PendingTensors | None
) -> dict[str, Any]:
    told: dict[str, Any] = {"file": name, "sha256": sha256(content).hexdigest()}
    told |= {"tensors": [*tensors]} if tensors else {}
    return told | ({"inherited": [*pending.inherited]} if pending is not None and pending.inherited else {})


def blank_line(
    test: str, request: DumpRequest, settings: Settings, golden_file: str, rank: int | None
) -> dict[str, Any]:
    """Return the line of a test that was not judged, without what is known only once it has ended.

    Args:
        test: as a person would name it.
        request: what its marker asks for.
        settings: the options.
        golden_file: what an update would write, relative to the golden folder.
        rank: of a distributed run; None for a process of its own.
    """
    return {
        "version": VERSION,
        "kind": TEST,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "test": test,
        "rank": rank,
        "status": NOT_COMPARED,
        "runtime": "",
        "isolated": False,
        "part": "",
        "tensors": 0,
        "counts": {},
        **dict.fromkeys(_PLACES),
        "problems": [],
        "notes": [],
        "numerics": None,
        "golden": {
            "folder": settings.golden_dir,
            "file": golden_file,
            "variant": settings.golden_variant,
            "chosen": "",
            "judged_with": None,
            "sha256": None,
        },
        "record": None,
        "snapshot": None,
        "refusals": [],
        "producer": {},
        "request": _others(request, DumpRequest(), [one.name for one in fields(DumpRequest)]),
        "options": given_options(settings),
        "tolerances": {"preset": request.preset or settings.preset or DEFAULT, "rules": []},
        "decision": None,
    }


def with_golden(kept: Kept, golden: Path) -> Kept:
    """Return what is kept of a run that has been recorded: its golden file is the record.

    Args:
        kept: of the run.
        golden: the file.

    Raises:
        OSError: it cannot be read.
        GoldenError: the same, of a variant.
    """
    content, file = read_regular(golden), kept.line["golden"]["file"]
    judged = sha256(content).hexdigest()
    is_variant = f"\n{VARIANT}:".encode() in content
    if is_variant or kept.op_types:
        whole = read_golden(golden)
        if is_variant:
            content, judged = render(whole).encode(), whole.digest
        content += types_block(whole, kept.op_types) if kept.op_types else b""
    digest = sha256(content).hexdigest()
    name = record_name(file, content)
    tensors = kept.line["request"].get("dump_data") == "tensor"
    line = {
        **kept.line,
        "golden": {**kept.line["golden"], "judged_with": file, "sha256": judged},
        "record": {"file": name, "sha256": digest},
        "snapshot": {"problems": [], "notes": [], "has_tensors": tensors, "file_names": kept.file_names},
    }
    return Kept(line, {name: content})


def given_options(settings: Settings) -> dict[str, Any]:
    """Return the options of pytest that are not as usual, by name."""
    return _others(settings, default_settings(), settings._fields)


def _others(given: Any, usual: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields in which something is not as usual."""
    values = {name: getattr(given, name) for name in names}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def _numerics(outcome: Outcome) -> dict[str, Any] | None:
    numerics = outcome.numerics
    return None if numerics is None else numerics.to_json() | {"why": numerics.describe()}


def _judged_with(first: FirstRun, golden_root: Path) -> dict[str, str | None]:
    golden = first.judged_with
    if golden is None:
        return {"judged_with": None, "sha256": None}
    return {"judged_with": golden.path.relative_to(golden_root).as_posix(), "sha256": golden.digest}


def _snapshot(first: FirstRun) -> dict[str, Any] | None:
    snapshot = first.snapshot
    if snapshot is None:
        return None
    told = {"problems": [*snapshot.problems], "notes": [*snapshot.notes]}
    return {**told, "has_tensors": bool(snapshot.tensors), "file_names": snapshot.file_names}
