"""``npudump convert``: the tensors of a dump as files that numpy and safetensors read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.convert_names import plan_files
from pytest_npudump.cli.convert_tasks import convert
from pytest_npudump.cli.executors import add_executor_option, open_workers, run_tasks
from pytest_npudump.cli.layout_option import add_layout_option
from pytest_npudump.cli.output import byte_size, emit, to_stderr
from pytest_npudump.cli.progress import progress
from pytest_npudump.cli.reading import add_latest_option, read_source, report_problems

if TYPE_CHECKING:
    import argparse

    from pytest_npudump.cli.convert_tasks import Converted
    from pytest_npudump.dump.records import Dump

DESCRIPTION = (
    "Write the tensors of a dump as npy (FILE.output.0.npy for each) or safetensors (one for each file of "
    "the dump), in the dump's directories and the host's layout. In npy, types that numpy lacks become the "
    "next wider one: bf16, fp8, hifloat8 and float4 float32, int4 and int2 int8, complex32 complex64. "
    "Exit 0; 2 where something could not be converted, after converting the rest."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one file of a dump")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="directory to write to; made if missing",
    )
    parser.add_argument(
        "--to", choices=("npy", "safetensors"), default="npy", help="kind of file; default npy"
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="no conversion: the device's layout, and types that numpy lacks as their bits (bf16 as uint16, "
        "packed and opaque ones as bytes)",
    )
    add_layout_option(parser)
    add_latest_option(parser)
    add_executor_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Convert what can be converted; 0, or 2 where something could not be."""
    output: Path = arguments.output.absolute()
    with open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=False, latest=arguments.latest)
        layout = "" if arguments.raw else arguments.layout
        files, refused = plan_files(dump, output, arguments.to, layout)
        with progress("converting") as report:
            work = run_tasks(convert, files, workers, weight=lambda file: file.nbytes, progress=report)
            results = [*refused, *work]
    emit(f"note: {result.note}" for result in results if result.note)
    emit([_summary(dump, results, output)])
    failures = [text for result in results for text in result.failures]
    for text in failures:
        to_stderr(f"npudump: not converted: {text}")
    report_problems(dump.problems)
    return 2 if failures or dump.problems else 0


def _summary(dump: Dump, results: list[Converted], output: Path) -> str:
    written, nbytes = sum(r.tensors for r in results), sum(r.nbytes for r in results)
    bare = sum(record.payload is None for record in dump.records)
    rest = f"; {bare} of the dump have no data to convert" if bare else ""
    return f"{written} tensors ({byte_size(nbytes)}) written to {output}{rest}"
