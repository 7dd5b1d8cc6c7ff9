"""Result of a test: data for every report, no text for any of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_npudump.errors import said
from pytest_npudump.language import mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.compare.stats.verdict import Comparison, Verdict
    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.picture import Picture, TensorDescription
    from pytest_npudump.compare.tolerances.presets import Numerics
    from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
    from pytest_npudump.explain.operator_alone import JudgedOperator
    from pytest_npudump.explain.reference import ReferenceResult
    from pytest_npudump.golden.store import Recording
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.ranks.rank import Rank
    from pytest_npudump.record.model_lines import ModelChange
    from pytest_npudump.record.noise import Calibrated
    from pytest_npudump.record.record import Record


PASSED = mark("passed")
FAILED = mark("failed")
RECORDED = mark("recorded")
UNCHANGED = mark("unchanged")
PENDING = mark("not recorded")
MISSING_GOLDEN = mark("golden missing")
ERROR = mark("error")
DIED = mark("process died")
NOT_COMPARED = mark("not compared")

AS_PRINTED = mark("identical to the golden as printed")
WITHIN = mark("within tolerance of the golden")
OUTSIDE = mark("out of tolerance with other values")
"""Result of a tensor of a second run, which did not reproduce a failure, against the golden."""

GOOD = frozenset({PASSED, RECORDED, UNCHANGED})
"""Statuses of tests that may pass."""


def not_dumped_inside(count: int, model: object, layers: str) -> str:
    """Return the note on operators that no run of the emulator compares, such as ``344`` inside ``If_0``."""
    return said(
        "operators not dumped by the emulator: {count}, inside {layers} ({model})",
        count=count,
        model=model,
        layers=layers,
    )


def is_not_dumped(note: object) -> bool:
    """Return whether a note is :func:`not_dumped_inside`."""
    return getattr(note, "template", "") == getattr(not_dumped_inside(0, "", ""), "template", None)


def recorded_with_tensors() -> str:
    """Return the note on a first golden of tensors, which the marker did not ask for."""
    return said("recorded with tensors; for statistics only: acl_json={{'dump_data': 'stats'}}")


class SceneFinding(Protocol):
    """Finding of a scene without a comparison of statistics."""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON data."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of the second run on one failing tensor.

    Attributes:
        key: which tensor.
        reproduced: whether the statistics of both runs agree, and the second run's tensor is out of tolerance
            as the first one's was; None where the second run has no such tensor.
        differences: the statistics in which the two runs disagree, as ``name: (first, second)``.
        difference: element-wise, where a golden tensor exists.
        description: of the tensor by itself, where none exists.
        path: the dumped file.
        note: why something is missing.
        reference: element-wise against the ONNX reference, where the tensor differs from that.
        pattern, reference_pattern: where inside the tensor these two differences are, and what they are; None
            where no pattern explains one.
        picture: what can be drawn of the tensor; None of those behind the first, see ``SEARCHED`` of
            :mod:`pytest_npudump.compare.patterns.pattern_search`.
        now: how the second run's tensor compares with the golden, :data:`AS_PRINTED`, :data:`WITHIN` or
            :data:`OUTSIDE`; "" where the golden does not tell.
    """

    key: TensorKey
    reproduced: bool | None
    differences: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    difference: TensorDifference | None = None
    description: TensorDescription | None = None
    path: Path | None = None
    note: str = ""
    reference: TensorDifference | None = None
    pattern: Pattern | None = None
    reference_pattern: Pattern | None = None
    picture: Picture | None = None
    now: str = ""

    @property
    def healthy(self) -> bool:
        """Return whether the tensor failed in the first run only, so that the second one shows no cause."""
        off_reference = self.reference is not None and bool(self.reference.outside)
        return self.reproduced is False and self.now != OUTSIDE and not off_reference


@dataclass(frozen=True, slots=True)
class Escalation:
    """Findings of the second run.

    Attributes:
        findings: one a failing tensor, in execution order.
        layers: layers whose tensors were dumped.
        omitted: failing layers left out because there are too many, or of the size limit.
        directory: where the tensors lie.
        problem: why the second run says nothing; "" if it does.
        notes: what a reader of the report should know.
        drawing: layers that draw the same random numbers in every run of the process, so that two runs of
            it agree whatever differs from the golden.
        isolated: what operators under suspicion gave, held against what their own inputs give.
        ended: where the search for an operator that explains the failure ended, and why; "" where all that
            could explain it was computed again, or nothing was.
        third: layers and directory of a third run, which looked farther, or its problem; None without one.
        alike: tensors that the golden is to keep and whose statistics are those of the first run, by
            sanitised key.
        fed: inputs of models that have other values in the second run, where it did not reproduce the first.
    """

    findings: tuple[Finding, ...] = ()
    layers: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    directory: Path | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()
    drawing: tuple[str, ...] = ()
    isolated: tuple[JudgedOperator, ...] = ()
    ended: str = ""
    third: Escalation | None = None
    alike: Mapping[str, TensorRecord] = field(default_factory=dict)
    fed: tuple[str, ...] = ()

    @property
    def reproduced(self) -> bool | None:
        """Return whether the runs match in every tensor that both have; None where they share none."""
        seen = [finding.reproduced for finding in self.findings if finding.reproduced is not None]
        return all(seen) if seen else None

    def to_json(self) -> dict[str, Any]:
        """Return the escalation as plain JSON data."""
        third = self.third.to_json() if self.third is not None else {}
        return {
            "reproduced": self.reproduced,
            "problem": self.problem or None,
            "layers": list(self.layers),
            "omitted": list(self.omitted),
            "directory": str(self.directory) if self.directory else None,
            "notes": list(self.notes),
            "findings": [
                {
                    "layer": finding.key.layer,
                    "key": str(finding.key),
                    "reproduced": finding.reproduced,
                    "against_golden": finding.now or None,
                    "differences": {name: [*map(_plain, pair)] for name, pair in finding.differences.items()},
                    "elements": finding.difference.to_json() if finding.difference else None,
                    "pattern": finding.pattern.to_json() if finding.pattern else None,
                    "reference": finding.reference.to_json() if finding.reference else None,
                    "reference_pattern": finding.reference_pattern.to_json()
                    if finding.reference_pattern
                    else None,
                    "tensor": finding.description.to_json() if finding.description else None,
                    "picture": finding.picture.to_json() if finding.picture else None,
                    "path": str(finding.path) if finding.path else None,
                    "note": finding.note or None,
                }
                for finding in self.findings
            ],
            "isolated": [isolated.to_json() for isolated in self.isolated],
            "ended": self.ended or None,
            "third": {name: third[name] for name in ("layers", "directory", "problem")} if third else None,
        }


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a result: its test and what ran it, for reports.

    Attributes:
        test: its name: that of its file, relative to pytest's rootdir, and what the file calls it.
        runtime: what ran its models.
        directory: where its dumps and reports lie.
        here: the folder in which pytest was started, or kept results are judged.
        arguments: what a user types behind ``pytest`` in that folder to run the test alone.
        rank: of a distributed run; None for a process of its own.
        isolated: whether each run had a process of its own.
        lang: the language of its reports.
        producer: facts of the run, as a golden records them.
        models: files of the models that ran.
        digests: their SHA-256, of ONNX models and where somebody may run these again; "" of one that was
            written again after it was loaded.
        layers: names and globs of the layers that its marker asks for; none for all.
        reference, reference_map: the model it was compared with, and the names in it; None without.
    """

    test: str = ""
    runtime: str = ""
    directory: Path = Path()
    here: Path = Path()
    arguments: tuple[str, ...] = ()
    rank: Rank | None = None
    isolated: bool = False
    lang: str = ""
    producer: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    reference: Path | None = None
    reference_map: Path | None = None


@dataclass(frozen=True, slots=True)
class KeptLayers:
    """Layers whose tensors are kept.

    Attributes:
        layers: names, as the run reported them, in the order of execution.
        sources: those that are kept as sources of past failures, the latest first.
        inherited: keys, as file names spell them, of tensors that an acceptance takes from the golden that it
            replaces, as their statistics are that one's digit for digit.
    """

    layers: tuple[str, ...]
    sources: tuple[str, ...] = ()
    inherited: frozenset[str] = frozenset()

    def lacking(self, dump: Dump) -> tuple[str, ...]:
        """Return the layers of which neither a run's dump nor the golden has all tensors to keep."""
        wanted = {*self.layers}
        lacking = (
            record.key.layer
            for record in dump.records
            if record.key.layer in wanted
            and record.payload is None
            and str(record.key.sanitised) not in self.inherited
        )
        return tuple(dict.fromkeys(lacking))


@dataclass(frozen=True, slots=True)
class Run:
    """Judged output of a run.

    Attributes:
        dump: its tensors; None where it cannot be read, or a scene with a judge of its own has read it.
        record: what was compared with the golden; None where nothing was.
        golden: the golden that decided; None where there was none.
        kept: layers whose tensors a recording of it keeps, or an acceptance; None where none is asked for.
        fed: what its models were fed, where further runs are to be fed the same.
        models: of a run that is recorded, the block of digests of its models: further runs may load others.
        to_measure: how many further runs are to measure how far the test strays.
    """

    dump: Dump | None = None
    record: Record | None = None
    golden: Record | None = None
    kept: KeptLayers | None = None
    fed: tuple[TensorRecord, ...] = ()
    models: str = ""
    to_measure: int = 0

    @property
    def records(self) -> Sequence[TensorRecord]:
        """The tensors of its dump; none where there is none."""
        return self.dump.records if self.dump is not None else ()


def idle_everywhere(idle: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the rules that are idle in each of some tests."""
    return tuple(rule for rule in idle[0] if all(rule in others for others in idle)) if idle else ()


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a test: of its first run, then of the runs that explain it. For every report.

    Attributes:
        status: one of the constants of this module.
        golden: the golden file that decided, or would have; None in a scene that needs none.
        comparison: None where it never came to one.
        problems: what went wrong besides verdicts, in words; any of them fails the test.
        notes: what a reader of the report should know.
        tensors: number of tensors that were dumped and selected.
        measured_bounds: number of tensors of which such a bound decides, as it is wider than the preset's.
        environment: facts in which this run differs from the golden's, as ``name: (golden, actual)``.
        findings: what scenes other than ``model`` and ``op`` found, in execution order.
        reference: the comparison with an ONNX model; None where the test names none.
        recording: what counts once all of the test has passed; None where nothing was recorded.
        sources: the failing tensors that none explains, against the golden or, where that agrees, against the
            reference; None where nothing fails, or nothing is known of what feeds what fails.
        changes: what differs in tensors within tolerance, where the test is to fail for that.
        idle_rules: rules of the file of tolerances that decide about no tensor of this test, in words.
        models: how the models that ran differ from the golden's; None where those of a side are not known.
        weights: the problem that ranks have other weights than the golden of one rank; "" for none.
        off_reference: of a saved run that its reference failed the first mismatch, "" for none; else None.
        code: ``file:line: text`` of layers that fail, by name in file names; only where the dump tells.
        part: the rank or device that was judged, where all share one golden; "" for all of it.
        run: what the first run left; nothing of one that is judged by what was kept of it.
        escalation: what the second run found; None without one.
        origin: the test, and what ran it.
        runs: where the dump of each run lies.
    """

    status: str
    golden: Path | None
    comparison: Comparison | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tensors: int = 0
    measured_bounds: int = 0
    environment: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    findings: tuple[SceneFinding, ...] = ()
    reference: ReferenceResult | None = None
    recording: Recording | None = None
    sources: Sources | None = None
    changes: tuple[Verdict, ...] = ()
    idle_rules: tuple[str, ...] = ()
    models: ModelChange | None = None
    weights: str = ""
    off_reference: str | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    run: Run = Run()
    escalation: Escalation | None = None
    origin: Origin = Origin()
    runs: tuple[Path, ...] = ()

    @property
    def good(self) -> bool:
        """Return whether the test may pass: it was compared or recorded as asked."""
        return self.status in GOOD and (self.escalation is None or not self.escalation.problem)

    @property
    def numerics(self) -> Numerics | None:
        """Numerics that fit the golden and this run; None where nothing was compared."""
        return self.comparison.numerics if self.comparison is not None else None

    @property
    def measured(self) -> Calibrated | None:
        """Tolerances measured with the golden; None without any, or without a comparison."""
        return self.comparison.tolerances.measured if self.comparison is not None else None

    @property
    def failing_keys(self) -> tuple[TensorKey, ...]:
        """The tensors that differ from the golden or from the reference, in execution order."""
        golden, found = self.comparison, self.reference.comparison if self.reference is not None else None
        here = [v.key for v in golden.mismatches if v.status == "fail"] if golden else []
        there = [v.key for v in found.mismatches if v.status == "fail"] if found else []
        if golden is None or not here or not there:
            return (*here, *there)
        order = {str(verdict.key.sanitised): place for place, verdict in enumerate(golden.verdicts())}
        known = {str(key.sanitised) for key in here}
        both = [*here, *(key for key in there if str(key.sanitised) not in known)]
        return tuple(sorted(both, key=lambda key: order.get(str(key.sanitised), len(order))))

    def explained(self, escalation: Escalation) -> Result:
        """The same with what a second run found: an operator that is wrong itself needs no cause upstream."""
        from pytest_npudump.explain.operator_alone import CONVICTED  # noqa: PLC0415 - not in a pass

        wrong = {one.key.layer for one in escalation.isolated if one.alone.verdict == CONVICTED}
        sources = self.sources
        if sources is not None and wrong:
            found = (replace(one, altered="") if one.key.layer in wrong else one for one in sources.found)
            sources = replace(sources, found=tuple(found))
        return replace(self, escalation=escalation, sources=sources)

    def with_run(self, **changes: Any) -> Result:
        """Return the result with more, or other, of what its run left."""
        return replace(self, run=replace(self.run, **changes))


def recorded(recording: Recording, *, notes: tuple[str, ...], tensors: int = 0) -> Result:
    """Return the result of a run that was recorded."""
    word = UNCHANGED if recording.staged is None else RECORDED
    return Result(word, recording.path, notes=notes, tensors=tensors, recording=recording)


def _plain(value: object) -> object:
    """Return a value as strict JSON has it: NaN and infinities as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
