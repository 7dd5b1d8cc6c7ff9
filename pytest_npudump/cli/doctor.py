"""``npudump doctor``: what is installed, which runtimes work, and whether a dump can be written here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from pytest_npudump.cli.common.output import present, screen
from pytest_npudump.doctor.checks import OK, Report, System, examine
from pytest_npudump.doctor.pytest_config import DumpPlace, dump_place
from pytest_npudump.language.text import wrapped


def run(arguments: argparse.Namespace, system: System | None = None) -> int:
    """Examine this machine and print what was found; 0 if a test could run under dump here, else 1."""
    place = DumpPlace(arguments.dump_dir) if arguments.dump_dir else dump_place(Path.cwd(), os.environ)
    absolute = Path(os.path.abspath(place.path))  # noqa: PTH100 - links stay, as a path is written
    report = examine(system or System(), absolute, place.origin, Path.cwd())
    present(arguments, report.to_json, _lines(report))
    return 0 if report.good else 1


def _lines(report: Report) -> Iterator[str]:
    """Yield a heading for each area, its findings with their states, what to do, and the conclusion."""
    for area, findings in groupby(report.findings, lambda finding: finding.area):
        yield area
        for finding in findings:
            yield from _below(f"  {finding.state:<9}", f"{finding.name}: {finding.text}")
            if finding.state != OK:
                yield from _below(f"{'':11}-> ", finding.remedy)
    yield ""
    yield _conclusion(report)


def _below(margin: str, text: str) -> Iterator[str]:
    """Yield a text behind a margin, on a terminal below each other."""
    columns = screen()
    first, *rest = [text] if columns is None else wrapped(text, columns - len(margin))
    yield margin + first
    yield from (" " * len(margin) + line for line in rest)


def _conclusion(report: Report) -> str:
    if not report.runtimes:
        return "No runtime works here: no test with the marker can run."
    works = " and ".join(report.runtimes)
    if not report.can_write:
        return f"Runtimes that work: {works}; but a dump cannot be written."
    return f"Runtimes that work: {works}; a dump can be written."
