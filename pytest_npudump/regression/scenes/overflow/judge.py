"""Overflow: a test fails if an operator overflowed that its golden does not list.

CANN keeps the first overflow of an execution. A healthy model leaves nothing and needs no golden. A golden
lists known overflows under its key ``overflow``, as ``operator: [what happened, ...]``; the operator's name
is followed by ``#capture=...`` where it overflowed in a capture, and likewise by ``rank``, ``device`` and
``model`` where there are several.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.dump.tree.find import find_files
from pytest_npudump.errors import DumpError, GoldenError
from pytest_npudump.golden.variants import foreign, unsaid
from pytest_npudump.record.record import OVERFLOW, REASON
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.outcome import Outcome, recorded
from pytest_npudump.regression.record import golden_to_start_from
from pytest_npudump.regression.run.diagnose import not_dumped, ran_under_dump, why_unshown
from pytest_npudump.regression.run.run_dump import unreadable
from pytest_npudump.regression.scenes.overflow.findings import detected_by_mindspore, find_overflows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.places import Place
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.dump.tree.find import Tree
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.scenes.overflow.findings import Overflow
    from pytest_npudump.runtime.base import Activity

_SEVERAL = 2


def judge(case: Case, attempt: Attempt) -> Outcome:
    """Hold the overflows of a run against those that the golden lists, or record them there."""
    path = case.goldens.path
    try:
        golden = golden_to_start_from(case)
        known = {} if case.settings.update_golden else known_overflows(golden)
        dump, tree = _read(case, attempt)
    except (DumpError, GoldenError) as error:
        return Outcome(status.ERROR, path, problems=(str(error),))
    found, problems = find_overflows([file.path for file in tree.overflow], dump.records)
    found += detected_by_mindspore(dump.records)
    gaps = not_dumped(case.runtime.activity)
    problems = (*unreadable(dump), *problems, *_without_tensors(tree, dump), *((gaps,) if gaps else ()))
    if case.settings.update_golden:
        return _record(case, golden, found, problems)
    if golden is not None:
        facts = case.goldens.facts(case.runtime.producer())
        problems = (*foreign(golden, case.goldens.test, facts), *problems)
    new = tuple(one for one in found if not is_known(one, known))
    good = not new and not problems
    return Outcome(
        status.PASSED if good else status.FAILED,
        path,
        problems=problems,
        notes=(*(unsaid(golden) if golden else ()), *_notes(found, new, known)),
        tensors=len(dump.records),
        findings=new,
    )


def is_known(one: Overflow, known: Mapping[str, Sequence[str]]) -> bool:
    """Whether a golden lists an overflow: its operator, where it ran, and all that happened.

    Goldens used to list names as they are, without ``%`` and ``#`` encoded: such an entry still holds outside
    of captures and of dumps with several ranks, devices or models.
    """
    if not one.layer:
        return False
    plain = "#" not in one.name and not {"%", "#"} & set(one.layer)
    listed = known.get(one.name, known.get(one.layer, ()) if plain else ())
    return set(one.kinds) <= set(listed)


def _without_tensors(tree: Tree, dump: Dump) -> Iterator[str]:
    """Say which operators overflowed of which nothing but the file's name is known."""
    read = {record.path for record in dump.records}
    unread = {problem.path for problem in dump.problems}
    for file in tree.files:
        if file.path.suffix != ".npy" and file.path not in read and str(file.path) not in unread:
            yield f"{file.path}: the operator was dumped, as it overflowed, and its dump holds no tensor"


def known_overflows(golden: Golden | None) -> Mapping[str, Sequence[str]]:
    """Return what a golden lists as known, by operator; nothing where there is none.

    Raises:
        GoldenError: its key ``overflow`` is no mapping of names to lists of text.
    """
    listed = {} if golden is None else golden.extra.get(OVERFLOW, {})
    if isinstance(listed, dict) and all(
        isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds) for kinds in listed.values()
    ):
        return listed
    path = golden.path if golden is not None else ""
    raise GoldenError(
        f"{path}: {OVERFLOW!r} is no mapping of operators to lists of what happened; restore the file from "
        f"version control, or approve anew with --npudump-update-golden"
    )


def _read(case: Case, attempt: Attempt) -> tuple[Dump, Tree]:
    """Read the run's dump, and find its files.

    Raises:
        DumpError: there is none, and nothing shows that a model ran while overflows were dumped and seen.
    """
    activity = case.runtime.activity
    tree = find_files(attempt.directory)
    if tree.overflow or tree.files or tree.problems:
        dump = _merge(attempt.directory, one_run=case.runtime.name == "mindspore")
        return _with_models(dump, tree, activity), tree
    if activity.evidence.blind:
        raise DumpError(f"no overflow is recorded, and none could be: {'; '.join(activity.evidence.blind)}")
    if ran_under_dump(activity):
        return Dump(attempt.directory, ()), tree
    raise DumpError(f"no overflow is recorded, and {why_unshown(case, attempt)}")


def _merge(directory: Path, *, one_run: bool) -> Dump:
    """Read the dumps around and in the captures of a run, those that hold nothing left out."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    parts = [
        (folder.name.partition("-")[2], read_dump(folder, stats=False, one_run=one_run))
        for folder in folders
        if any(path.is_file() for path in folder.rglob("*"))
    ]
    return Dump(
        directory,
        tuple(
            replace(record, key=replace(record.key, capture=name))
            for name, part in parts
            for record in part.records
        ),
        tuple(problem for _, part in parts for problem in part.problems),
    )


def _with_models(dump: Dump, tree: Tree, activity: Activity) -> Dump:
    """Put the model's name into every key where the test ran several models.

    The dump of an overflow holds only what overflowed, so that one model in it says little.
    """
    places = {file.path: file.place for file in tree.files}
    ran = {*map(str, activity.models), *activity.evidence.models}
    if len(ran) < _SEVERAL and len({place.model for place in places.values()} - {""}) < _SEVERAL:
        return dump
    return replace(dump, records=tuple(_with_model(record, places) for record in dump.records))


def _with_model(record: TensorRecord, places: Mapping[Path, Place]) -> TensorRecord:
    place = places.get(record.path)
    if record.key.model or place is None:
        return record
    return replace(record, key=replace(record.key, model=place.model))


def _notes(
    found: Sequence[Overflow], new: Sequence[Overflow], known: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    approved = [one.name for one in found if one not in new]
    if approved:
        yield (
            f"CANN keeps only the first overflow of an execution: behind {', '.join(approved)}, which the "
            f"golden lists, others may have overflowed unseen"
        )
    overflowed = {one.name for one in found} | {one.layer for one in found if is_known(one, known)}
    absent = [name for name in known if name not in overflowed]
    if absent:
        yield f"the golden lists {', '.join(absent)}, which did not overflow this time"
    elsewhere = [one.name for one in new if one.layer in absent]
    if elsewhere:
        yield (
            f"{', '.join(elsewhere)}: the golden lists the operator without this capture, rank, device or "
            f"model; it approves an overflow only where it lists it"
        )


def _record(
    case: Case, golden: Golden | None, found: Sequence[Overflow], problems: tuple[str, ...]
) -> Outcome:
    """Write the overflows into the golden; a model without any gets no golden, and keeps none."""
    path = case.goldens.path
    nameless = tuple(
        f"{one.record}: the overflow of task {one.task}, stream {one.stream} cannot be listed: the dump "
        f"has no operator with these ids"
        for one in found
        if not one.layer
    )
    if problems or nameless:
        return Outcome(status.ERROR, path, problems=problems + nameless)
    lost = case.goldens.lost_by_update(golden)
    if golden is None and not found and not lost:
        return Outcome(status.UNCHANGED, path)
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for one in found:
        kinds[one.name] += [kind for kind in one.kinds if kind not in kinds[one.name]]
    empty = StatsTable.from_records(())
    known: dict[str, object] = {OVERFLOW: dict(kinds)} if kinds else {}
    known |= {REASON: case.settings.reason} if case.settings.reason else {}
    try:
        recording = case.goldens.record(golden, empty, case.runtime.producer(), known=known)
    except GoldenError as error:
        return Outcome(status.ERROR, path, problems=(str(error),))
    return recorded(recording, notes=lost)
