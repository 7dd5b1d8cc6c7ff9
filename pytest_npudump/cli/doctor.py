"""``npudump doctor``: what is installed, which runtimes work, and whether a dump can be written here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import columns, present
from pytest_npudump.doctor.checks import OK, System, examine
from pytest_npudump.doctor.pytest_config import DumpPlace, dump_place
from pytest_npudump.language.text import width

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_npudump.doctor.checks import Report

_HEADER = ("area", "what", "state", "found")


def run(arguments: argparse.Namespace, system: System | None = None) -> int:
    """Examine this machine and print the table; 0 if a test could run under dump here, else 1."""
    place = DumpPlace(arguments.dump_dir) if arguments.dump_dir else dump_place(Path.cwd(), os.environ)
    absolute = Path(os.path.abspath(place.path))  # noqa: PTH100 - links stay, as a path is written
    report = examine(system or System(), absolute, place.origin, Path.cwd())
    present(arguments, report.to_json, _table(report))
    return 0 if report.good else 1


def _table(report: Report) -> Iterator[str]:
    rows = [(finding.area, finding.name, finding.state, finding.text) for finding in report.findings]
    lines = columns(rows, _HEADER)
    indent = " " * width(lines[0][: lines[0].rindex(_HEADER[-1])])
    yield lines[0]
    for finding, line in zip(report.findings, lines[1:], strict=True):
        yield line
        if finding.state != OK:
            yield f"{indent}-> {finding.remedy}"
    yield ""
    yield _conclusion(report)


def _conclusion(report: Report) -> str:
    if not report.runtimes:
        return "No runtime works here: no test with the marker can run."
    works = " and ".join(report.runtimes)
    if not report.can_write:
        return f"Runtimes that work: {works}; but a dump cannot be written."
    return f"Runtimes that work: {works}; a dump can be written."
