"""``npudump compare``: two dumps, or a golden file and a dump, judged as the plugin judges them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from pytest_npudump.cli.common.output import complain, emit, present
from pytest_npudump.cli.common.source import problem_lines, read_source, report_problems
from pytest_npudump.cli.common.tolerance_options import (
    chosen_tolerances,
    for_told_run,
    told_facts,
    tolerances_of_file,
    typed_rules,
)
from pytest_npudump.cli.common.work import Workers, open_workers, progress, run_together
from pytest_npudump.cli.compare_report import SidesComparison, as_json, lines
from pytest_npudump.compare.judge import AS_GIVEN, GOLDEN, RUN, Terms, judge
from pytest_npudump.compare.stats.alignment import ABSENT
from pytest_npudump.compare.stats.allowances import told_by_both
from pytest_npudump.compare.stats.verdict import EXTRA, MISSING, Comparison
from pytest_npudump.compare.tolerances.presets import HF32
from pytest_npudump.compare.tolerances.rules import REFERENCE_PRESET, ReferenceTolerances
from pytest_npudump.compare.tolerances.tolerance import REFERENCE, Tolerances
from pytest_npudump.dump.arrays.layouts import has_axes
from pytest_npudump.dump.columns import TensorTable
from pytest_npudump.dump.files.operator_csv import NOT_READ
from pytest_npudump.dump.names import MSPROBE, MSPROBE_TENSORS
from pytest_npudump.dump.records import TensorRecord
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.errors import DumpError, FormatError, GoldenError, RequestError, said
from pytest_npudump.language.text import typed
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.record.record import Record
from pytest_npudump.report.verdicts import shown
from pytest_npudump.results.folder import LINES, results_in
from pytest_npudump.settings import BOUNDS
from pytest_npudump.storage.archive import unpacked
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.compare.name_suggestions import Suggestion
    from pytest_npudump.compare.patterns.pattern_search import Pattern
    from pytest_npudump.compare.tensors.picture import Picture
    from pytest_npudump.compare.tensors.tensor_pair import Pair, PairElements
    from pytest_npudump.explain.reference import ReferenceResult


_DRAWN = 6
"""Failing tensors that have a picture of their own."""


def run(arguments: argparse.Namespace) -> int:
    """Compare, print the verdict, and return 0, 1 or 2."""
    if arguments.golden.suffix == ".onnx":
        for flag in ("--plots", "--suggest"):
            if getattr(arguments, flag.removeprefix("--").replace("-", "_")):
                raise RequestError(_("{flag}: not with an ONNX model in place of GOLDEN").format(flag=flag))
        return _against_model(arguments)
    sides = arguments.golden, arguments.actual
    kept = [path for path in sides if (results_in(path) / LINES).is_file()]
    if len(kept) == 1:
        (other,) = [path for path in sides if path not in kept]
        raise RequestError(
            _(
                "{one} contains saved results, {other} does not: compare two folders of them, or use "
                "{command}"
            ).format(one=kept[0], other=other, command=typed("npudump", "check", kept[0]))
        )
    if kept:
        from pytest_npudump.cli import compare_results  # noqa: PLC0415 - only for kept results

        return compare_results.run(arguments)
    if arguments.inputs:
        raise RequestError(_("--inputs: only with an ONNX model in place of GOLDEN"))
    tolerances = chosen_tolerances(arguments).extended(typed_rules(arguments))
    with open_workers(arguments.executor) as workers:
        golden = read_golden_side(arguments.golden, workers, latest=arguments.latest, raw=arguments.bin)
        actual = read_dump_side(arguments.actual, workers, latest=arguments.latest, raw=arguments.bin)
        alone = all(len(side.table) == 1 and side.table.op_types == ("",) for side in (golden, actual))
        files = arguments.golden.is_file() and arguments.actual.is_file()
        if files and alone and golden.tensors and not golden.digest:  # a tensor each, under one name
            actual = replace(actual, table=replace(actual.table, keys=golden.table.keys))
        if arguments.map:
            from pytest_npudump.compare.correspondence import Correspondence  # noqa: PLC0415 - only where asked for

            golden, actual, paired = Correspondence.read(arguments.map).matched(golden, actual)
            actual = replace(actual, notes=(*actual.notes, *paired))
        terms = terms_of(golden, tolerances, arguments.layout)
        result = compare_sides(golden, actual, terms, workers, drawn=_DRAWN if arguments.plots else 0)
        idle = [*_idle_lines(tolerances, result.comparison)]
    present(arguments, lambda: as_json(result), lines(result, verbose=arguments.verbose))
    if arguments.suggest:
        # for --map, surest lines first
        text = "".join(
            f"# {one.confidence}\n{json.dumps(one.run)}: {json.dumps(one.golden)}\n"
            for one in result.suggestions
        )
        try:
            with arguments.suggest.open("x", encoding="utf-8") as file:
                file.write(text or "{}\n")
        except OSError as error:
            raise RequestError(
                _("--suggest: {path} cannot be written: {error}").format(
                    path=arguments.suggest, error=error.strerror
                )
            ) from error
        if arguments.json != "-":
            emit([_("names: {path}").format(path=shown(arguments.suggest.absolute()))])
    if arguments.plots:
        written = _draw(arguments, result)
        if arguments.json != "-":
            emit(written)
    complain(idle)
    report_problems(result.problems)
    if result.problems or result.comparison.nothing_judged:
        return 2
    return 1 if result.comparison.failing else 0


_ROWS = 20


def _against_model(arguments: argparse.Namespace) -> int:
    """Compare the layers of a dump with those that onnxruntime computes of a model."""
    from pytest_npudump.explain.reference import Reference  # noqa: PLC0415 - only for ONNX models
    from pytest_npudump.request import DumpRequest  # noqa: PLC0415 - the same

    of_file = tolerances_of_file(arguments, REFERENCE)
    rules = (*(of_file.rules if of_file else ()), *typed_rules(arguments, REFERENCE))
    named = "" if arguments.preset in BOUNDS else arguments.preset  # the three ways of judging stay
    preset = Tolerances(named or REFERENCE_PRESET).preset
    suiting = for_told_run(Tolerances(preset, rules), told_facts(arguments)).rules
    hf32 = arguments.preset == HF32
    tolerances = ReferenceTolerances(preset, suiting, three_way=not named, hf32=hf32)
    reference = Reference(arguments.golden, arguments.map, tolerances)
    reference.inputs.advice = "give them with --inputs FILE.npz, once for each execution"
    for path in arguments.inputs or ():
        try:
            with open_regular(path) as file:
                found = np.load(file, allow_pickle=False)
                arrays = {} if isinstance(found, np.ndarray) else dict(found)
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise RequestError(f"--inputs {path}: cannot be read: {error}") from error
        if isinstance(found, np.ndarray):
            raise RequestError(f"--inputs {path}: expected an npz file, an array for each input by its name")
        reference.inputs.give(arrays, "")
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.actual, workers, stats=True, latest=arguments.latest, raw=arguments.bin)
    result = reference.judge(dump.records, DumpRequest())
    present(arguments, result.to_json, _model_lines(result, None if arguments.verbose else _ROWS))
    report_problems(dump.problems)
    if dump.problems or result.problems:
        return 2
    return 0 if result.good else 1


def _model_lines(result: ReferenceResult, rows: int | None) -> Iterator[str]:
    from pytest_npudump.report.explanations import reference_lines, reference_sentence  # noqa: PLC0415 - the same

    yield from (_("note: {note}").format(note=spoken(note)) for note in result.notes)
    yield from (_("problem: {problem}").format(problem=spoken(problem)) for problem in result.problems)
    if result.good and result.comparison is not None:
        counted = _("tensors compared: {compared}, of {layers} of {all} layers").format(
            compared=result.comparison.compared, layers=result.compared, all=result.layers
        )
        yield _("{counted}, all within tolerance").format(counted=counted)
    if result.failing:
        yield reference_sentence(result)
    yield from reference_lines(result, rows)


def _draw(arguments: argparse.Namespace, result: SidesComparison) -> list[str]:
    """Write the pictures of a comparison, and print their paths."""
    from pytest_npudump.report.charts import write_figures  # noqa: PLC0415 - only where asked for
    from pytest_npudump.report.view import tensor_views  # noqa: PLC0415 - the same

    comparison = result.comparison
    first = [comparison.first.key] if comparison.first is not None else []
    title = _("{golden} against {actual}").format(
        golden=shown(arguments.golden), actual=shown(arguments.actual)
    )
    tensors = tensor_views(comparison, comparison.tolerances, first)
    written = write_figures(arguments.plots, title, tensors, result.pictures)
    return [_("picture: {path}").format(path=shown(path.absolute())) for path in written]


def _idle_lines(tolerances: Tolerances, comparison: Comparison) -> Iterator[str]:
    """Name the rules that decide about nothing of the two sides."""
    idle = tolerances.unmatched(*told_by_both(comparison))
    absent = replace(tolerances, rules=idle).unmatched(comparison.golden, comparison.actual)
    for rule in idle:
        words = (
            _("the rule {rule} matches no tensor of either side")
            if rule in absent
            else _(
                "the rule {rule} decides nothing: only one side has this statistic of the tensors that it "
                "matches"
            )
        )
        yield words.format(rule=rule.describe())


_HEAD = 4096
_MARK = b"npudump-golden:"


def read_dump_side(path: Path, workers: Workers, *, latest: bool, raw: str = "") -> Record:
    """Read a dump without the statistics of its tensors: those are computed with the comparison.

    Raises:
        DumpError: it is no dump, or holds no tensor.
    """
    dump = read_source(path, workers, stats=False, latest=latest, raw=raw)
    records = dump.records
    if not records:
        raise DumpError("\n".join(problem_lines(dump.problems)))
    # columns of statistics that a record has no place for, once for all tensors
    notes = records.columns.note if isinstance(records, TensorTable) else [one.note for one in records]
    unread = (
        said("{path}: {note} ({count} of {all} tensors)", path=path, note=note, count=count, all=len(records))
        for note, count in Counter(note for note in notes if NOT_READ in note).items()
    )
    record = Record.of(StatsTable.from_records(records))
    return replace(record, tensors=records, problems=dump.problems, notes=(*dump.notes, *unread))


def read_golden_side(path: Path, workers: Workers, *, latest: bool, raw: str = "") -> Record:
    """Read a golden file, with the tensors beside it where there are any, or a dump.

    Raises:
        DumpError: ``path`` is neither.
        GoldenError: it is a golden file, and damaged.
    """
    if unpacked(path).is_dir():
        return read_dump_side(path, workers, latest=latest, raw=raw)
    if not path.exists():
        raise DumpError(
            _("{path} is neither a golden file nor a dump directory: it does not exist").format(path=path)
        )
    if not _is_golden(path):
        try:
            return read_dump_side(path, workers, latest=latest, raw=raw)
        except DumpError as error:
            raise DumpError(
                _("{path} is neither a golden file nor a dump directory: {error}").format(
                    path=path, error=error
                )
            ) from error
    from pytest_npudump.cli.common.pytest_config import tensor_place  # noqa: PLC0415 - goldens only
    from pytest_npudump.golden.store import is_stored, read_golden  # noqa: PLC0415 - 70 ms that a dump needs not
    from pytest_npudump.golden.stored_tensors import stored_tensors  # noqa: PLC0415 - the same: safetensors

    golden = read_golden(path.absolute())
    if not golden.table.keys:
        raise DumpError(_("{path} has no tensors").format(path=path))
    store = tensor_place(golden.path.parent) if is_stored(golden) else None
    stored = stored_tensors(golden, foreign=True, store=store)
    keys = golden.table.keys
    # Where there are no tensors, the names of ten thousand rows need not be looked at.
    tensors = [stored.get(sanitised_key(key)) for key in keys] if stored else [None] * len(keys)
    return replace(golden, tensors=tuple(tensors))


def _is_golden(path: Path) -> bool:
    """Return whether a line at the beginning of the file starts with the key that every golden file has."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise GoldenError(
            _("{path} cannot be read: {error}").format(path=path, error=error.strerror or error)
        ) from error
    return any(line.startswith(_MARK) for line in head.removeprefix(b"\xef\xbb\xbf").splitlines())


def compare_sides(
    golden: Record, actual: Record, terms: Terms, workers: Workers, *, drawn: int = 0
) -> SidesComparison:
    """Compare two sides: statistics of every tensor, and elements where both hold them."""
    with progress(_("comparing statistics")):
        comparison = judge(golden, actual, terms, compute=partial(_compute, workers))
    layouts = (
        *_source_note(comparison, actual.tensors),
        *_other_layouts(comparison, golden.tensors, actual.tensors),
    )
    unreadable = chain(*comparison.unreadable.values())
    failing = {verdict.key for verdict in comparison.failing} if comparison.elements else set()
    rows = [at for at in sorted(comparison.elements) if comparison.key(at) in failing]
    patterns: Mapping[int, Pattern] = {}
    limits: tuple[str, ...] = ()
    pictures: Mapping[int, Picture] = {}
    if rows:
        from pytest_npudump.compare.patterns.pattern_search import find_patterns  # noqa: PLC0415 - as elements fail

        patterns, limits = find_patterns((at, comparison.pairs[at], comparison.elements[at]) for at in rows)
    if rows and drawn:
        from pytest_npudump.compare.tensors.picture import draw_pair  # noqa: PLC0415 - only where asked for

        found = ((at, picture) for at in rows if (picture := draw_pair(comparison.pairs[at])) is not None)
        pictures = dict(islice(found, drawn))
    suggestions: tuple[Suggestion, ...] = ()
    if comparison.count(MISSING) and comparison.count(EXTRA):
        from pytest_npudump.compare.name_suggestions import suggested_names  # noqa: PLC0415 - where names differ

        suggestions = tuple(suggested_names(comparison.golden, comparison.actual))
    return SidesComparison(
        comparison,
        (*golden.problems, *actual.problems, *unreadable),
        (*golden.notes, *actual.notes, *layouts, *limits),
        patterns,
        pictures,
        suggestions,
    )


def terms_of(golden: Record, tolerances: Tolerances, layout: str) -> Terms:
    """Return the terms that the command's options make: bounds are fixed, and a dump is no approval."""
    return Terms(tolerances, option=AS_GIVEN, against=GOLDEN if golden.digest else RUN, layout=layout)


def _compute(workers: Workers, pairs: Sequence[Pair]) -> list[PairElements]:
    from pytest_npudump.compare.tensors.tensor_pair import compare_pairs  # noqa: PLC0415 - only where elements are

    with progress(_("comparing tensors")) as report:
        work = run_together(compare_pairs, pairs, workers, weight=lambda pair: pair.nbytes, progress=report)
        return [*work]


def _other_layouts(comparison: Comparison, ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[str]:
    """Name tensors compared by statistics only, as the names of their axes differ."""
    found = []
    formats = _formats(ours), _formats(theirs)
    if len({*formats[0], *formats[1]}) < 2:  # noqa: PLR2004 - all alike
        return
    rows = zip(comparison.alignment.golden.tolist(), comparison.alignment.actual.tolist(), strict=True)
    for position, (here, there) in enumerate(rows):
        if (
            ABSENT in {here, there}
            or position in comparison.elements
            or formats[0][here] == formats[1][there]
        ):
            continue
        computed = comparison.alone.get(position)
        one, other = (
            (computed and computed.golden) or ours[here],
            (computed and computed.actual) or theirs[there],
        )
        if not (isinstance(one, TensorRecord) and isinstance(other, TensorRecord)):
            continue
        if one.format != other.format and has_axes(one) and has_axes(other):
            found.append((one, other))
    if found:
        one, other = found[0]
        yield said(
            "the golden's layout is {golden}, the dump's {dump}, and statistics do not show "
            "the order of axes (tensors: {count}, first: {first})",
            golden=one.format,
            dump=other.format,
            count=len(found),
            first=one.key,
        )


def _source_note(comparison: Comparison, tensors: Sequence[Any]) -> Iterator[str]:
    """Name the source line that called the first mismatching layer, if the dump has it."""
    first = "" if comparison.first is None else str(comparison.first.key)
    if first not in comparison.actual.keys:
        return
    record = tensors[comparison.actual.keys.index(first)]
    if not isinstance(record, TensorRecord):
        return
    path, layer = record.path, record.key.layer
    try:
        if {MSPROBE, MSPROBE_TENSORS} & {path.name, path.parent.name}:
            from pytest_npudump.dump.files.msprobe import source_line  # noqa: PLC0415 - only for its dumps

            line = source_line(path, record.key)
        else:
            from pytest_npudump.graph.model_files import code_of  # noqa: PLC0415 - not where all tensors match

            roots = [one.parent for one in path.parents if one.name.startswith("rank_")]  # MindSpore's
            line = "".join(code_of(roots[0], [layer]).values()) if roots else ""
    except FormatError as error:
        yield said("the source line of {key} is not known: {error}", key=first, error=str(error))
        return
    if line:
        yield said("{key} is called at {line}", key=first, line=line)


def _formats(tensors: Sequence[Any]) -> list[str | None]:
    """The layout of each tensor of a dump; None for one that is kept beside a golden file."""
    if isinstance(tensors, TensorTable):
        return [*tensors.columns.format]
    return [tensor.format if isinstance(tensor, TensorRecord) else None for tensor in tensors]
