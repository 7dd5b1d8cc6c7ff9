"""Conversion of a test's result to saved data: a line, and its statistics as the golden they would be.

Golden tensors of a run that differs from its golden are kept, to be accepted later. They are those of the run
itself, where it dumped any, or of the second run, whose statistics have to be the first one's. A layer whose
statistics are the golden's digit for digit keeps the tensor that is there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tolerances.rules import chosen_preset
from pytest_npudump.dump.records import Dump, TensorRecord, sanitise
from pytest_npudump.dump.selection import alike_layers
from pytest_npudump.dump.table import sanitised_key
from pytest_npudump.errors import GoldenError, NpudumpError, said
from pytest_npudump.golden.store import HASH, STORED, VARIANT, facts_of, read_golden
from pytest_npudump.golden.stored_tensors import KeptTensors, content_of, naming
from pytest_npudump.language.text import first_of
from pytest_npudump.onnxmodels.loaded_files import model_digest
from pytest_npudump.record.record import EMPTY, OP_TYPES, SHARDS, UNTOLD, Record
from pytest_npudump.record.text import render
from pytest_npudump.regression import result as status
from pytest_npudump.regression.case import Case, terms_of
from pytest_npudump.regression.dataflow import named_layers
from pytest_npudump.regression.result import NOT_COMPARED, Escalation, KeptLayers, Result, Run
from pytest_npudump.regression.run_record import problems_of, without_listed
from pytest_npudump.report.result_json import COUNTS
from pytest_npudump.request import DumpRequest
from pytest_npudump.results.folder import TEST, VERSION, record_name
from pytest_npudump.scene import SCENES
from pytest_npudump.settings import Settings, default_settings
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_npudump.golden.tensors import Tensor


_PLACES = ("first", "first_change", "first_within", "reproduced", "reference", "findings")
"""Fields of a result on differences, beside the numbers of tensors."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Saved data of a judged test.

    Attributes:
        line: for ``results.jsonl``, without what is known only once all of the test has ended.
        records: the file of the run's statistics by its name in the folder of results; or none.
        tensors: those that an acceptance would keep with the golden, by the SHA-256 of their bytes.
        op_types: types of the operators of what is recorded, where rules ask for them, by sanitised key.
        file_names: whether its layers were known by the names of their files.
    """

    line: Mapping[str, Any]
    records: Mapping[str, bytes] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    op_types: Mapping[str, str] = field(default_factory=dict)
    file_names: bool = False


def keep(case: Case, result: Result, told: Mapping[str, Any], golden_root: Path) -> Kept:
    """Return the saved data of a judged test, of which its report tells ``told``."""
    pending = pending_tensors(case, result)
    tensors: dict[str, Tensor] = {}
    refused = pending.refusals if pending is not None else ()
    naming = None if pending is None or refused else partial(pending.named_by, found=tensors)
    record, why = record_text(result.run, naming)
    run, golden, numerics = result.run.record, result.run.golden, result.numerics
    snapshot: dict[str, Any] | None = None
    told_record: dict[str, Any] | None = None
    if run is not None:
        snapshot = {"problems": [*run.problems], "notes": [*run.notes]}
        snapshot |= {"has_tensors": bool(run.tensors), "file_names": run.file_names}
        for source in result.sources.found if result.sources is not None else ():
            if str(source.key) == told.get("first") and source.fed is not False:
                snapshot["fed"] = {str(source.key): source.fed}
    file = case.goldens.path.relative_to(golden_root).as_posix()
    name = record_name(file, record) if record else ""
    if record:
        told_record = {"file": name, "sha256": sha256(record).hexdigest()}
        told_record |= {"tensors": [*tensors]} if tensors else {}
        told_record |= {"inherited": [*pending.inherited]} if pending and pending.inherited else {}
    rank = case.exchange.rank.number if case.exchange is not None else None
    rules = [asdict(rule) for rule in case.tolerances.rules]
    line = blank_line(case.nodeid, case.request, case.settings, file, rank) | {
        "status": told["status"],
        "runtime": case.runtime.name,
        "isolated": case.isolated,
        "part": result.part,
        "tensors": result.tensors,
        "counts": {name: told[name] for name in COUNTS if name in told},
        **{name: told.get(name) for name in _PLACES},
        "problems": list(result.problems),
        "notes": told["notes"],
        "numerics": None if numerics is None else numerics.to_json() | {"why": numerics.describe()},
        "record": told_record,
        "snapshot": snapshot,
        "refusals": [*why, *_refusals(case, result), *refused],
        "producer": dict(result.origin.producer),
        "tolerances": {"preset": case.tolerances.preset, "rules": rules},
    }
    if not result.good:
        from pytest_npudump.report.terminal import failure_summary  # noqa: PLC0415 - only for failures

        line["failure"] = failure_summary(result)
        line["models"] = _digests(case)
        if result.escalation is not None and result.escalation.reproduced is False:
            findings = result.escalation.findings
            line["second_run"] = {
                "differing": sum(one.reproduced is False for one in findings),
                "tensors": len(findings),
                "fed": [*result.escalation.fed],
            }
    line["options"] |= case.started
    line["golden"] |= {"chosen": case.goldens.chosen}
    if golden is not None:
        judged_with = golden.path.relative_to(golden_root).as_posix()
        line["golden"] |= {"judged_with": judged_with, "sha256": golden.digest}
    dumped = result.run.records if not record and case.tolerances.names_op_types else ()
    types = {str(one.key.sanitised): one.op_type for one in dumped if one.op_type}
    file_names = result.run.dump is not None and not result.run.dump.raw_names
    return Kept(line, {name: record} if record else {}, tensors, types, file_names)


def _digests(case: Case) -> dict[str, str]:
    """Return the digest of each model's file that is as the run has loaded it, by its absolute path."""
    activity, found = case.runtime.activity, {}
    for path in activity.models:
        with suppress(NpudumpError):
            found[path.absolute().as_posix()] = (
                model_digest(path) if activity.evidence.files.keeps_graph(path) else ""
            )
    return {path: digest for path, digest in found.items() if digest}


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
        "tolerances": {"preset": request.preset or chosen_preset(settings.preset), "rules": []},
        "decision": None,
    }


def with_golden(kept: Kept, golden: Path) -> Kept:
    """Return the saved data of a recorded run: its golden file is the record.

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
        if kept.op_types:
            types = (_line(kept.op_types.get(sanitised_key(key), "")) for key in whole.table.keys)
            content += "\n  ".join([f"{OP_TYPES}: |", *types]).encode() + b"\n"
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
    usual = default_settings()
    return {
        **_others(settings, usual, [one for one in usual._fields if one != "features"]),
        **settings.features,
    }


def _others(given: Any, usual: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields in which something is not as usual."""
    values = {name: getattr(given, name) for name in names}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def record_text(
    left: Run, name_tensors: Callable[[Record], Record] | None = None
) -> tuple[bytes | None, tuple[str, ...]]:
    """Return the text of what a run left, and why there is none.

    Args:
        left: what its run left.
        name_tensors: returns the record with the tensors that are kept with it; None where none are.
    """
    if left.record is None:
        return None, ()
    run = without_listed(left.record)
    extra = {key: run.extra[key] for key in (EMPTY, SHARDS) if key in run.extra}
    golden = Record(run.test, run.facts, run.table, run.path, extra, run.blocks)
    golden = golden if name_tensors is None else name_tensors(golden)
    lines = "".join([f"{_line(name)}\n" for name in run.table.op_types])
    try:
        return render(replace(golden, blocks={**golden.blocks, OP_TYPES: lines})).encode(), ()
    except GoldenError as error:
        return None, (str(error),)


def _line(name: str) -> str:
    return name if name.isprintable() and name[:1] not in {"", " "} else UNTOLD


_UPDATE = said("accept with --npudump-update-golden")


def _refusals(case: Case, result: Result) -> Iterator[str]:
    """Yield why the saved run may not be accepted, in words."""
    run = result.run.record
    if run is None:
        if result.status not in status.GOOD and SCENES[case.request.scene].statistics:
            yield f"nothing was compared: {result.status}"
        elif result.status not in status.GOOD:
            yield f"the scene {case.request.scene} has no statistics"
        return
    yield from problems_of(terms_of(case), run)
    if case.exchange is not None or result.part:
        yield f"several ranks or devices have one golden, of which one was kept: {_UPDATE}"
    if (reference := result.reference) is not None and not reference.good:
        name = reference.model.name
        if reference.failing:
            yield said("its layers mismatch the reference {model}", model=name)
        else:
            yield said("its layers are not known to match the reference {model}", model=name)
    if result.run.golden is None and run.facts.get("device_target") == "CPU":
        yield f"MindSpore's CPU kernels leave outputs unwritten: {_UPDATE}"


_WAITING = (status.FAILED, status.MISSING_GOLDEN)


@dataclass(frozen=True, slots=True, eq=False)
class PendingTensors:
    """Tensors of a run for its golden.

    Attributes:
        tensors: those that are kept with its results.
        inherited: keys, as file names spell them, of tensors that stay as the golden has them.
        refusals: why the run cannot be accepted without running again, in words.
    """

    tensors: KeptTensors = field(default_factory=lambda: KeptTensors({}))
    inherited: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def named_by(self, record: Record, found: dict[str, Tensor]) -> Record:
        """Return a run's record that names the tensors."""
        arrays = {key: array for key, (array, _) in self.tensors.tensors.items()}

        def keep(array: Tensor) -> tuple[str, int]:
            digest, size = content_of(array)
            found.update({digest: array} if size else {})
            return digest, size

        place = {STORED: HASH} if arrays else {}  # all that it keeps may be the golden's own
        facts = facts_of(place, self.tensors.left_out, self.tensors.sources)
        return naming(record, arrays, facts, keep)


def pending_tensors(case: Case, result: Result) -> PendingTensors | None:
    """Return the golden tensors of a pending run; None where its golden keeps none."""
    dump, run = result.run.dump, result.run.record
    if not case.request.golden_tensors or run is None or result.status not in _WAITING:
        return None
    if dump is None or result.run.kept is None:
        return PendingTensors(refusals=(f"its golden keeps tensors, which only a run has: {_UPDATE}",))
    again = result.escalation or Escalation()
    try:
        return _collected(case, result.run.kept, dump, again)
    except NpudumpError as error:
        return PendingTensors(refusals=(f"its golden tensors cannot be kept: {error}",))


def _collected(case: Case, kept: KeptLayers, dump: Dump, again: Escalation) -> PendingTensors:
    wanted, named, doubtful = {*kept.layers}, named_layers(case), alike_layers(dump)
    found: list[TensorRecord] = []
    inherited: list[str] = []
    lacking: list[str] = []
    left_out: list[str] = []
    for record in dump.records:
        key, layer = str(record.key.sanitised), sanitise(record.key.layer)
        if record.key.layer not in wanted:
            continue
        at_hand = record if record.payload is not None else again.alike.get(key)
        if layer in doubtful:
            (lacking if layer in named else left_out).append(layer)
        elif at_hand is not None:
            found.append(at_hand)
        elif key in kept.inherited:
            inherited.append(key)
        else:
            lacking.append(str(record.key))
    if lacking:
        why = said(" ({problem})", problem=again.problem) if again.problem else ""
        refusal = said(
            "its golden keeps tensors, and neither the run nor its second run has that of "
            "{lacking}{why}: {way_out}",
            lacking=first_of(dict.fromkeys(lacking)),
            why=why,
            way_out=_UPDATE,
        )
        return PendingTensors(refusals=(refusal,))
    tensors = KeptTensors.of(found, dict.fromkeys(left_out), kept.sources)
    tensors.refuse_beyond(case.settings.tensor_budget)
    return PendingTensors(tensors, tuple(inherited))
