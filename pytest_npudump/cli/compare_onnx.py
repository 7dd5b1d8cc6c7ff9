"""``npudump compare MODEL.onnx DUMP``: the layers of a dump against onnxruntime's."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from pytest_npudump.cli.common.output import present
from pytest_npudump.cli.common.source import read_source, report_problems
from pytest_npudump.cli.common.tolerance_options import (
    for_told_run,
    told_facts,
    tolerances_of_file,
    typed_rules,
)
from pytest_npudump.cli.common.work import open_workers
from pytest_npudump.compare.tolerances.presets import HF32
from pytest_npudump.compare.tolerances.rules import REFERENCE_PRESET, ReferenceTolerances
from pytest_npudump.compare.tolerances.tolerance import REFERENCE, Tolerances
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.reference import Reference, ReferenceResult
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.report.explanations import reference_lines, reference_sentence
from pytest_npudump.request import DumpRequest
from pytest_npudump.settings import BOUNDS
from pytest_npudump.storage.regular_file import open_regular

_ROWS = 20


def run(arguments: argparse.Namespace) -> int:
    """Compare, print the verdict, and return 0 (agreement), 1 (a difference) or 2 (nothing to compare)."""
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
        reference.inputs.give(_arrays(path), "")
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.actual, workers, stats=True, latest=arguments.latest, raw=arguments.bin)
    result = reference.judge(dump.records, DumpRequest())
    present(arguments, result.to_json, _lines(result, None if arguments.verbose else _ROWS))
    report_problems(dump.problems)
    if dump.problems or result.problems:
        return 2
    return 0 if result.good else 1


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with open_regular(path) as file:
            found = np.load(file, allow_pickle=False)
            if not isinstance(found, np.ndarray):
                return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise RequestError(f"--inputs {path}: cannot be read: {error}") from error
    raise RequestError(f"--inputs {path}: expected an npz file, an array for each input by its name")


def _lines(result: ReferenceResult, rows: int | None) -> Iterator[str]:
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
