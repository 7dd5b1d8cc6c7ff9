"""A dump directory to records: the one entry for every kind of dump.

Much work is done in few pieces: what is small travels together, to threads, processes or other machines.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.dump.columns import Execution, FileColumns, TensorColumns, TensorPart
from pytest_npudump.dump.files.formats import BY_NAME, Job
from pytest_npudump.dump.files.operator_csv import read_files, read_operator_csv
from pytest_npudump.dump.files.step_csv import read_step_csv
from pytest_npudump.dump.records import Dump, TensorRecord
from pytest_npudump.dump.tree import mindspore
from pytest_npudump.dump.tree.find import TableFolder, Tree, find_files, jobs_of, select_run
from pytest_npudump.dump.tree.keys import columns_of, files_of, keyed
from pytest_npudump.errors import EmptyDumpError, FormatError
from pytest_npudump.language.text import first_of, number_of, typed
from pytest_npudump.storage.archive import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from pytest_npudump.dump.stats.tensor import Waiting


Item = TypeVar("Item")
Result = TypeVar("Result")

_BATCH = 256
"""Files of statistics that are read into columns at once."""

_TABLE_BYTES = 1 << 9
"""Size of a statistics file, about: so little that threads gain nothing with a batch of them."""


def read_dump(
    root: Path,
    *,
    stats: bool = True,
    acl: bool = False,
    projections: bool = False,
    latest: bool = False,
    one_run: bool = False,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Dump:
    """Read a dump: statistics CSV, tensor files, npy, merged statistics, in any mixture of one run.

    Args:
        root: the dump path, or a directory inside it.
        stats: compute the statistics of tensor files; those of CSV files are read in any case.
        acl: compute them with the quirks of CANN's device-side writer (see ``dump.stats``).
        projections: compute these with them, in the same pass.
        latest: where two runs lie below ``root``, read the later one.
        one_run: ``root`` is known to hold one run: what looks like a second one are further executions, such
            as graphs that MindSpore ran under one iteration number.
        executor: reads files in parallel; threads help where tensors are large, processes anywhere.
        workers: how many the executor has.
        progress: called with (files read, files in all).

    Returns:
        Dump: files that could not be read are its ``problems``. A tensor that has both a statistics CSV
        and a tensor file of the same execution is one record with both.

    Raises:
        EmptyDumpError: ``root`` holds no dump file.
        DumpError: ``root`` is no directory, or holds two runs.
    """
    root = unpacked(root)
    tree = find_files(root, tables=True)
    problems, overflow = list(tree.problems), tuple(file.path for file in tree.overflow)
    if tree.cores:
        from pytest_npudump.dump.files.core import core_damage  # noqa: PLC0415 - numpy only where there are cores

        problems += filter(None, (core_damage(file.path) for file in tree.cores))
    run = partial(run_batches, executor=executor, workers=workers)
    progress = progress or (lambda _done, _count: None)
    if len({folder.place.run for folder in tree.tables}) == 1:
        records, notes = _read_folders(tree.tables, run, progress, problems)
        told = (*tree.notes, *notes, *_left_out(tree))
        return Dump(root, records, tuple(problems), told, overflow=overflow)
    tree, notes = tree.without_tables(), []
    if not one_run:
        kept, notes = select_run([*tree.files, *tree.statistics], root, latest=latest)
        runs = {file.place.run for file in kept}
        tree.files, tree.statistics = (
            [file for file in found if file.place.run in runs] for found in (tree.files, tree.statistics)
        )
    jobs = jobs_of(tree.files)
    executions: list[Execution] = []
    tables = [job for job in jobs if job.file.format == "operator_csv"]  # many where there are any, and small
    others = [job for job in jobs if job.file.format != "operator_csv"]
    weights = [] if executor is None else list(map(_weight, others))
    read = partial(_read_batch, stats=stats, acl=acl, projections=projections)
    waiting = _waiting(projections=projections, acl=acl) if stats and others and executor is None else None
    done = 0
    for batch, (found, failed) in chain(
        run(read, tables, [_TABLE_BYTES] * len(tables)), run(partial(read, waiting=waiting), others, weights)
    ):
        executions += found
        problems += failed
        done += len(batch)
        progress(done, len(jobs))
    if waiting is not None:
        waiting.fill()
    files, tensors = FileColumns(), TensorColumns()
    for file in tree.statistics:
        try:
            read_step_csv(file.path, file.place, files, tensors)
        except FormatError as error:  # noqa: PERF203 - each file by itself
            problems.append(error)
    if executions:
        if files.name:
            executions = mindspore.merge_statistics(executions, files.executions(tensors))
        files, tensors = columns_of(executions)
    present: Sequence[int] = range(len(files.name))
    if not one_run and any(place.mindspore for place in files.places):
        repeats, failed = mindspore.iteration_repeats(root, tree.other)
        problems += failed
        present, more = mindspore.one_run(files, tensors, repeats, latest=latest)
        notes += more
        if len(present) < len(files.name):
            chosen = frozenset(present)
            tensors = tensors.taken([row for row, file in enumerate(tensors.file) if file in chosen])
    if not files.name and not problems and not tree.overflow and not tree.cores:
        left_out = [*tree.other, *tree.notes]
        held = f"only {first_of(left_out)}" if left_out else "nothing"
        raise EmptyDumpError(
            f"{root} holds {held}: no dump file. Likely causes: the model was loaded before the "
            "dump was set; no layer of the model has a name that was asked for; dump_step "
            "selects no step that ran; the dump of this rank was not asked for; dump_path was "
            "not writable for the process (see the plog)"
        )
    raw_names = bool(present) and files.raw.issuperset(present)
    records, shared = keyed(files, tensors, present)
    return Dump(
        root,
        records,
        tuple(problems),
        (*tree.notes, *notes, *shared, *mindspore.float32_note(records), *_left_out(tree)),
        raw_names=raw_names,
        overflow=overflow,
    )


def _read_folders(
    folders: Sequence[TableFolder],
    run: Callable[..., Iterator[Any]],
    progress: Callable[[int, int], None],
    problems: list[FormatError],
) -> tuple[Sequence[TensorRecord], list[str]]:
    """Read directories that hold statistics CSV only; return the records and notes."""
    jobs = [
        (str(folder.directory), folder.names[at : at + _BATCH])
        for folder in folders
        for at in range(0, len(folder.names), _BATCH)
    ]
    count = sum(len(names) for _, names in jobs)
    tensors, done = TensorColumns(), 0
    for batch, results in run(_read_tables, jobs, [_TABLE_BYTES * len(names) for _, names in jobs]):
        for (_, names), (columns, failed) in zip(batch, results, strict=True):
            tensors.append(columns, done)
            problems += failed
            done += len(names)
            progress(done, count)
    return keyed(files_of(folders), tensors)


def _read_tables(jobs: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[TensorColumns, list[FormatError]]]:
    return [read_operator_csv(directory, names) for directory, names in jobs]


def read_job(
    job: Job, *, stats: bool, acl: bool, projections: bool = False, waiting: Waiting | None = None
) -> tuple[list[Execution], list[FormatError]]:
    """Read the file of a job; what cannot be read comes back as problems, and nothing is raised."""
    problems: list[FormatError] = []
    table: tuple[TensorPart, ...] = ()
    found: list[Execution] = []
    format_ = BY_NAME[job.file.format]
    if job.csv is not None:
        rows, problems = read_operator_csv("", [str(job.csv.path)])
        table = tuple(chain(*rows.parts().values()))
    try:
        if format_.instead:
            instead = format_.instead.format(path=typed(job.file.path))
            raise FormatError(job.file.path, f"it is {instead}")  # noqa: TRY301 - as readers raise
        read: Callable[..., Any] = format_.read
        read = partial(read, waiting=waiting) if format_.together else read
        found, damaged = read(job, table, stats=stats, acl=acl, projections=projections)
        problems += damaged
    except FormatError as error:
        problems.append(error)
    except OSError as error:
        problems.append(FormatError(job.file.path, f"cannot be read: {error.strerror}"))
    return found, problems


def _weight(job: Job) -> int:
    try:
        return sum(file.path.stat().st_size for file in (job.file, *job.more))
    except OSError:
        return 0


def _read_batch(
    jobs: Sequence[Job],
    *,
    stats: bool,
    acl: bool,
    projections: bool,
    waiting: Waiting | None = None,
) -> tuple[list[Execution], list[FormatError]]:
    if jobs[0].file.format == "operator_csv":
        return read_files([job.file for job in jobs])
    executions: list[Execution] = []
    problems: list[FormatError] = []
    own = _waiting(projections=projections, acl=acl) if stats and waiting is None else None
    for job in jobs:
        found, failed = read_job(job, stats=stats, acl=acl, projections=projections, waiting=own or waiting)
        executions += found
        problems += failed
    if own is not None:
        own.fill()
    return executions, problems


def _waiting(*, projections: bool, acl: bool) -> Waiting:
    from pytest_npudump.dump.stats.tensor import Waiting  # noqa: PLC0415 - numpy only where there are tensors

    return Waiting(projections=projections, acl=acl)


def _left_out(tree: Tree) -> Iterator[str]:
    if tree.overflow:
        paths = [str(file.path) for file in tree.overflow]
        yield f"{number_of(len(paths), 'overflow record')} beside the tensors: {first_of(paths)}"
    if tree.cores:
        paths = [str(file.path) for file in tree.cores]
        yield f"{number_of(len(paths), 'core')} of failed kernels, for msdebug: {first_of(paths)}"
    if other := [name for name in tree.other if not mindspore.is_description(name)]:
        yield f"skipped {number_of(len(other), 'file')} not of a dump: {first_of(other)}"


_LEAST_BYTES, _MOST_BYTES = 4 << 20, 64 << 20
_LEAST_ITEMS = 64
_HERE_BYTES = 1 << 20
"""Bytes of a batch that is done in this thread, after which it can say how far it is."""

_SHARES = 16
"""Batches of a large dump for each worker. Measured: batches of 4 MiB cost two threads 5 to 10 %."""

_THREADED_BYTES = 1 << 18
"""Bytes of an item from which threads gain: below, most of the time goes where Python's lock is held."""


def run_batches(
    work: Callable[[Sequence[Item]], Result],
    items: Sequence[Item],
    weights: Sequence[int],
    executor: Executor | None,
    workers: int = 1,
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Yield batches of ``items`` with what ``work`` makes of them, in order.

    Args:
        work: for other processes a function of a module, as it travels to them like the items.
        items: what to work on.
        weights: the bytes that each of them makes a worker read. Empty without an executor: each item is
            done by itself.
        executor: who does it; None for this thread, which does it as well where threads would not help.
        workers: how many the executor has.
    """
    alone = workers == 1 or len(items) == 1 or sum(weights) < _THREADED_BYTES * len(items)
    if alone and isinstance(executor, ThreadPoolExecutor):
        executor = None
    if executor is None:
        for batch in _cut(items, weights or [_HERE_BYTES] * len(items), _HERE_BYTES, _LEAST_ITEMS):
            yield batch, work(batch)
        return
    batches = list(_batches(items, weights, workers))
    yield from zip(batches, executor.map(work, batches), strict=True)


def _batches(items: Sequence[Item], weights: Sequence[int], workers: int) -> Iterator[Sequence[Item]]:
    """Cut ``items`` so that no worker waits long for a batch or for the last one, and all have some."""
    shares = _SHARES * workers
    enough = min(max(sum(weights) // shares, _LEAST_BYTES), _MOST_BYTES)
    return _cut(items, weights, enough, max(len(items) // shares, _LEAST_ITEMS))


def _cut(items: Sequence[Item], weights: Sequence[int], enough: int, most: int) -> Iterator[Sequence[Item]]:
    """Batches of ``enough`` bytes or of ``most`` items, whichever are fewer."""
    first, size = 0, 0
    for at, weight in enumerate(weights):
        size += weight
        if size >= enough or at - first + 1 >= most:
            yield items[first : at + 1]
            first, size = at + 1, 0
    if first < len(items):
        yield items[first:]
