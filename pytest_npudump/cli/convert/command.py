"""``npudump convert``: the tensors of a dump as files that numpy and safetensors read."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.executors import open_workers, run_tasks
from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.cli.common.progress import Tally, progress
from pytest_npudump.cli.common.source import read_source, report_problems
from pytest_npudump.cli.convert.targets import plan_files, write_mappings
from pytest_npudump.cli.convert.tasks import convert
from pytest_npudump.language.excerpt import byte_size
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.cli.common.executors import Workers
    from pytest_npudump.cli.convert.tasks import Converted, OutputFile
    from pytest_npudump.dump.records import Dump


def run(arguments: argparse.Namespace) -> int:
    """Convert what can be converted; 0, or 2 where something could not be, or nothing could."""
    output: Path = arguments.output.absolute()
    files: list[OutputFile] = []
    with _leaving_nothing_behind(files), open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=False, latest=arguments.latest)
        layout = "" if arguments.raw else arguments.layout
        plan = plan_files(dump, output, arguments.to, layout)
        files += plan.files
        with progress(_("converting")) as report:
            results = [*plan.refused, *_converted(files, workers, report)]
        unmapped = write_mappings({path: name for path, name in plan.shortened.items() if path.exists()})
    if dump.records and not results:
        to_stderr(f"npudump: {_nothing(dump)}")
        report_problems(dump.problems)
        return 2
    emit(_("note: {note}").format(note=spoken(result.note)) for result in results if result.note)
    emit([_summary(dump, results, output)])
    failures = [*(text for result in results for text in result.failures), *unmapped]
    for text in failures:
        to_stderr(_("npudump: not converted: {text}").format(text=spoken(text)))
    report_problems(dump.problems)
    return 2 if failures or dump.problems else 0


@contextmanager
def _leaving_nothing_behind(files: Sequence[OutputFile]) -> Iterator[None]:
    """Remove what workers that were killed, lost or left at work have begun to write."""
    try:
        yield
    except BaseException:
        for file in files:
            with suppress(OSError):
                file.temporary.unlink(missing_ok=True)
        raise


def _converted(
    files: Sequence[OutputFile], workers: Workers, report: Callable[[int, int], None]
) -> Iterator[Converted]:
    """Yield what becomes of each file, reporting bytes; files where the work is done elsewhere."""
    if not workers.here:
        return run_tasks(convert, files, workers, weight=_weight, progress=report)
    tally = Tally(report, sum(map(_weight, files)))
    work = partial(convert, reached=tally.reached)
    return run_tasks(work, files, workers, weight=_weight, progress=_untold)


def _weight(file: OutputFile) -> int:
    return file.nbytes


def _untold(_done: int, _total: int) -> None:
    """Bytes are reported, and not files."""


def _nothing(dump: Dump) -> str:
    """Say why a dump of which no tensor holds data cannot be converted."""
    count = len(dump.records)
    if all(record.stats is not None for record in dump.records):
        return _(
            "nothing to convert: {root} is a dump of statistics, and none of its {count} tensors has "
            "data; collect it with dump_data=tensor (MindSpore: saved_data tensor)"
        ).format(root=dump.root, count=count)
    notes = dict.fromkeys(record.note for record in dump.records if record.note)
    why = f" ({'; '.join(notes)})" if notes else ""
    return _(
        "nothing to convert: none of the {count} tensors of {root} has data{why}; npudump ls lists them"
    ).format(count=count, root=dump.root, why=why)


def _summary(dump: Dump, results: list[Converted], output: Path) -> str:
    written, nbytes = sum(r.tensors for r in results), sum(r.nbytes for r in results)
    bare = sum(record.payload is None for record in dump.records)
    rest = _("; {bare} of the dump have no data to convert").format(bare=bare) if bare else ""
    return _("{written} tensors ({size}) written to {output}{rest}").format(
        written=written, size=byte_size(nbytes), output=output, rest=rest
    )
