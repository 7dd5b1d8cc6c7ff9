"""Saved results judged again, by the code that judged the runs: without a device, and without running."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.compare.tolerances.tolerance import DEFAULT, Rule, Tolerances
from pytest_npudump.errors import GoldenError, NpudumpError, said
from pytest_npudump.golden.stored_tensors import TensorStore, store_of
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.language import mark
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import ngettext
from pytest_npudump.record.record import OP_TYPES, UNTOLD, Record
from pytest_npudump.record.text import parse
from pytest_npudump.regression import result as status
from pytest_npudump.regression.case import STARTED, arguments_of, names_of, terms_from
from pytest_npudump.regression.judgement import judge_run, without_golden
from pytest_npudump.regression.result import Origin, Result
from pytest_npudump.report.result_json import result_json
from pytest_npudump.request import DumpRequest
from pytest_npudump.results.folder import SKIPPED, XFAILED, Entry, ResultsError, ResultsFolder
from pytest_npudump.settings import BOUNDS, default_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_npudump.compare.judge import Terms
    from pytest_npudump.settings import Settings


_MARKER = ("marker", MARKER_RULES)
"""Sources of rules that a test's marker gives, which has the last word."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Terms that replace those of saved results.

    Attributes:
        root: the folder that paths in results are relative to: pytest's rootdir, here.
        golden_dir: the folder of the golden files; None for that of each run.
        preset: a tolerance preset in place of each test's; "" for that.
        tolerances: in place of those of the runs' tolerance files; None for these.
        numerics: ``same``, ``other`` or ``hf32``; "" for what decided in each run.
    """

    root: Path
    golden_dir: Path | None = None
    preset: str = ""
    tolerances: Tolerances | None = None
    numerics: str = ""

    @property
    def changed(self) -> bool:
        """Return whether the tolerances may be others than those of the runs."""
        return bool(self.preset or self.numerics or self.tolerances is not None)

    def golden_root(self, entry: Entry) -> Path:
        """Return the folder of a test's golden file."""
        return self.golden_dir or self.root / str(entry.data["golden"]["folder"])

    def judging(self, entry: Entry, goldens: Goldens) -> Terms:
        """Return the terms of a run, with these in place of its own.

        Raises:
            RequestError: a tolerance of the entry is none.
            ResultsError: what the entry says of the test makes no sense.
        """
        request, settings = _asked(entry)
        folder = (self.root / entry.test.partition("::")[0]).parent
        try:
            names = names_of(request.reference_map if request.reference is None else None, folder)
            terms = terms_from(request, settings, self.tolerances_of(entry), names, goldens.why)
            given = entry.data["request"].get("numerics") or entry.data["options"].get("numerics")
        except (TypeError, AttributeError) as error:
            raise _senseless(entry, error) from error
        option = self.numerics or given  # of results by 0.1.0
        return replace(terms, option=option) if option else terms

    def goldens(self, entry: Entry) -> Goldens:
        """Return the golden files of a test, with the variant that applies to its run.

        Raises:
            ResultsError: what the entry says of the test makes no sense.
            GoldenError: the golden does not tell rightly which of its variants applies.
        """
        data = entry.data
        path = self.golden_root(entry) / entry.golden_file
        named = data["golden"].get("variant")
        variant = named or data["golden"].get("chosen")
        common = path.with_name(f"{path.name.rpartition('@')[0]}.yaml") if variant else path
        request, settings = _asked(entry)
        store = store_of(settings, self.root)
        goldens = Goldens(entry.test, request, common, path if named else None, store=store)
        return goldens.for_run(data["producer"])

    def origin(self, entry: Entry) -> Origin:
        """Return the origin of a saved run for reports."""
        data, here = entry.data, Path.cwd()
        started = {name: str(path) for name, path in _known(data["options"], STARTED).items()}
        file = str(data["test_file"]["path"])
        return Origin(
            test=entry.test,
            runtime=str(data["runtime"]),
            directory=self.root,
            here=here,
            arguments=arguments_of(entry.test, file, self.root, here, started),
            isolated=data["isolated"],
            producer={name: str(value) for name, value in data["producer"].items()},
        )

    def tolerances_of(self, entry: Entry) -> Tolerances:
        """Return the tolerances of a run, with these in place of its own.

        Raises:
            RequestError: a tolerance of the entry is none.
            ResultsError: what the entry says of the test makes no sense.
        """
        data, others = entry.data, (None, "", DEFAULT, *BOUNDS)
        try:
            given = data["tolerances"]
            rules = [
                Rule(**{**rule, "producer": tuple((str(n), str(g)) for n, g in rule.get("producer", ()))})
                for rule in given["rules"]
            ]
            preset = str(given["preset"])
            of_file = data["request"].get("preset") is None and data["options"].get("preset") in others
            facts = {name: str(value) for name, value in data["producer"].items()}
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise _senseless(entry, error) from error
        if self.tolerances is not None:
            rules = [*self.tolerances.rules, *(rule for rule in rules if rule.source in _MARKER)]
            preset, of_file = self.tolerances.preset, True
        # Bounds say what "default" stands for.
        bounds = of_file and preset != DEFAULT and self.preset in BOUNDS
        return Tolerances(preset if bounds else self.preset or preset, tuple(rules)).for_run(facts)


def _asked(entry: Entry) -> tuple[DumpRequest, Settings]:
    """Return the request of a saved test's marker, and the options of its session.

    Raises:
        ResultsError: they make no sense.
    """
    try:
        request = DumpRequest(**_known(entry.data["request"], {one.name for one in fields(DumpRequest)}))
        settings = default_settings()
        return request, settings._replace(**_known(entry.data["options"], settings._fields))
    except (TypeError, ValueError, AttributeError) as error:
        raise _senseless(entry, error) from error


def terms_at(entries: Iterable[Entry], root: Path | None, golden_dir: Path | None) -> Overrides:
    """Return the terms of the runs themselves, wherever their repository and goldens lie.

    Args:
        entries: the results.
        root: of the repository; None for the nearest folder upwards from here with a test's file.
        golden_dir: the folder of the golden files; None for that of each run.

    Raises:
        ResultsError: there is no root.
    """
    start = Path.cwd()
    files = [str(entry.data["test_file"].get("path")) for entry in entries]
    above = (folder for folder in (start, *start.parents) if any((folder / file).is_file() for file in files))
    found = root or next(above, None)
    if found is None:
        raise ResultsError(
            said(
                "{start}: neither here nor in a folder above is {files}: go to the repository of the "
                "tests, or name its folder with --root",
                start=start,
                files=files[0] if files else "any test",
            )
        )
    return Overrides(found.absolute(), golden_dir.absolute() if golden_dir else None)


def _known(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the fields known to this version."""
    return {name: value for name, value in given.items() if name in names}


def _senseless(entry: Entry, error: Exception) -> ResultsError:
    return ResultsError(
        said("{test}: its saved result is invalid: {error}; run it again", test=entry.test, error=str(error))
    )


GOOD, BAD, UNJUDGED, LEFT_OUT = "good", "bad", "unjudged", mark("left out")
"""Meanings of a test for a gate; those that were skipped, or are expected to fail, are left out of it."""


@dataclass(frozen=True, slots=True)
class Rejudged:
    """A kept result, judged again.

    Attributes:
        entry: the result.
        result: what came of it; None where it stands as the run had it, or cannot be judged.
        word: what it means for a gate, one of the constants of this module.
        why: why it stands as it was, or cannot be judged; "" where it was judged.
        golden: the golden file as it is now; None where there is none, or it cannot be read.
    """

    entry: Entry
    result: Result | None
    word: str
    why: str = ""
    golden: Record | None = None

    @property
    def is_doubtful(self) -> bool:
        """Return whether its statistics match, which does not make it pass."""
        return self.word == UNJUDGED and self.result is not None and self.result.good

    @property
    def of_another_golden(self) -> bool:
        """Return whether the golden file is not as the run was compared with it."""
        digest = self.golden.digest if self.golden is not None else None
        return self.result is not None and digest != self.entry.golden_of_run

    @property
    def failure(self) -> tuple[str, ...]:
        """First line (or "") and reasons of the run's failure, for layers that were not accepted since.

        Nothing without any, or where the golden has changed otherwise.
        """
        digest = self.golden.digest if self.golden is not None else None
        stands = self.result is None or digest == self.entry.data["golden"]["sha256"]
        told = self.entry.data.get("failure") if stands else None  # earlier results lack it
        return (told["headline"], *told.get("why", ())) if told else ()

    def told(self) -> dict[str, Any]:
        """Return it in the form of a run's result, for the session's line."""
        if self.result is not None:
            told = result_json(self.result, None)
            return told | {"status": status.NOT_COMPARED} if self.is_doubtful else told
        data = self.entry.data
        if self.word == UNJUDGED and data["status"] in status.GOOD:
            data = {**data, "status": status.NOT_COMPARED}
        return {name: data[name] for name in ("test", "status", "runtime")} | {"notes": data["notes"]}


def rejudge(folder: ResultsFolder, entry: Entry, terms: Overrides) -> Rejudged:
    """Judge one kept result."""
    if entry.data["outcome"] == SKIPPED:
        return Rejudged(entry, None, LEFT_OUT, said("it was skipped"))
    if not entry.record_file:
        return _standing(entry)
    try:
        goldens = terms.goldens(entry)
        judging = terms.judging(entry, goldens)
        record = read_record(folder, entry)
        check_types(entry, judging.tolerances, record)
        golden = goldens.read_if_any()
        run = replace(run_of(record, entry), test=entry.test, path=goldens.path)
        outcome = _judged(judging, golden, run, entry, goldens.store)
    except NpudumpError as error:
        return Rejudged(entry, None, UNJUDGED, str(error))
    rank = entry.data["rank"]
    part = str(entry.data["part"]) or ("" if rank is None else f"rank {rank}")
    result = replace(outcome, origin=terms.origin(entry), part=part)
    word = {status.PASSED: GOOD, status.FAILED: BAD}.get(outcome.status, UNJUDGED)
    if entry.data["outcome"] == XFAILED:
        return Rejudged(entry, result, LEFT_OUT, said("it is expected to fail"), golden)
    if word == GOOD and (why := _doubt(entry, golden, terms)):
        return Rejudged(entry, result, UNJUDGED, why, golden)
    return Rejudged(entry, result, word, golden=golden)


def read_record(folder: ResultsFolder, entry: Entry) -> Record:
    """Return a run's statistics as the golden they would be, with the types of operators.

    Raises:
        ResultsError: the record cannot be read.
    """
    path = folder.path / entry.record_file
    try:
        golden = parse(folder.record(entry).decode(), path)
    except (GoldenError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path}: the record of {entry.test} is damaged: {error}; run it again") from error
    types = golden.blocks.get(OP_TYPES, "").split("\n")[:-1]
    if len(types) != len(golden.table):
        return golden
    named = tuple("" if name == UNTOLD else name for name in types)
    return replace(golden, table=replace(golden.table, op_types=named))


def check_types(entry: Entry, tolerances: Tolerances, *records: Record) -> None:
    """Refuse rules that ask for operators' types where saved runs have none.

    A run that was recorded keeps types only where its own rules ask for them.

    Raises:
        ResultsError: none of the records tells any.
    """
    if tolerances.names_op_types and not any(any(record.table.op_types) for record in records):
        words = said("a tolerance rule names op_type, which the saved run does not contain")
        raise ResultsError(said("{test}: {words}: run it again", test=entry.test, words=words))


def run_of(record: Record, entry: Entry) -> Record:
    """Return a saved run: its record, and its entry's facts of the reader."""
    told = entry.data["snapshot"] or {}
    return replace(
        record,
        file_names=bool(told.get("file_names")),
        problems=tuple(told.get("problems", ())),
        notes=tuple(told.get("notes", ())),
        fed=told.get("fed", {}),
    )


def other_goldens(judged: Iterable[Rejudged]) -> list[str]:
    """Name the tests whose verdicts are about another golden than their runs' were."""
    names = [one.entry.name for one in judged if one.of_another_golden]
    words = ngettext(
        "the golden file of {count} test differs from that of the run ({names}); the verdict compares the "
        "saved run with the current file",
        "the golden files of {count} tests differ from those of the runs ({names}); the verdicts compare the "
        "saved runs with the current files",
        len(names),
    )
    return [words.format(count=len(names), names=first_of(names, 2))] if names else []


def _judged(judging: Terms, golden: Record | None, run: Record, entry: Entry, store: TensorStore) -> Result:
    reference = entry.data["reference"]
    if golden is None and reference is not None:
        problems = (*entry.data["problems"], *_off_reference(reference))
        word = status.PASSED if reference["good"] and not problems else status.FAILED
        return Result(
            word,
            run.path,
            problems=problems,
            tensors=len(run.table),
            off_reference=reference["first"] or "",
        )
    if golden is None:
        return without_golden(run)
    of_rank = entry.data["rank"] is not None
    outcome = judge_run(judging, golden, run, store=store, of_rank=of_rank)
    if reference is None or reference["good"]:
        return outcome
    found = _off_reference(reference) or tuple(entry.data["problems"])
    problems = tuple(dict.fromkeys((*outcome.problems, *found)))
    return replace(outcome, status=status.FAILED, problems=problems, off_reference=reference["first"] or "")


def _off_reference(reference: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe a run's error against its reference; failed comparisons are among the run's problems."""
    if reference["good"] or not reference["failed"]:
        return ()
    words = said(
        "mismatches of the run with the reference {model}: {failed}, first {first}; comparing again needs "
        "the tensors",
        model=reference["model"],
        failed=reference["failed"],
        first=reference["first"],
    )
    return (words,)


def _doubt(entry: Entry, golden: Record | None, terms: Overrides) -> str:
    """Return why matching statistics do not make a test pass; "" where they do."""
    data = entry.data
    reasons = (
        (
            data["incomplete"] is not None,
            said("its statistics match, but its run was incomplete: {why}", why=data["incomplete"]),
        ),
        (not data["snapshot"]["has_tensors"] or golden is None, ""),
        (
            terms.changed or golden is None or golden.digest != data["golden"]["sha256"],
            said("its statistics match; the elements compared in the run were not saved"),
        ),
        (
            data["status"] not in status.GOOD,
            said("its statistics match; elements of its tensors did not in the run"),
        ),
    )
    return next((words for applies, words in reasons if applies), "")


def _standing(entry: Entry) -> Rejudged:
    """Return a result that cannot be judged again, as there are no statistics of it."""
    why = next(iter(entry.data["refusals"]), "") or entry.data["incomplete"] or said("it has no statistics")
    if entry.data["outcome"] == XFAILED:
        return Rejudged(entry, None, LEFT_OUT, said("it is expected to fail"))
    word = GOOD if entry.status in status.GOOD else BAD if entry.status == status.FAILED else UNJUDGED
    if word == GOOD and entry.data["incomplete"] not in {None, "it was not compared"}:
        word = UNJUDGED
    return Rejudged(entry, None, word, said("verdict taken from the run ({why})", why=why))
