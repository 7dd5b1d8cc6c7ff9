"""Statistics CSV of one operator."""

from __future__ import annotations

from pytest_npudump.dump.files.format import Format

_START = b"Input/Output"
_MISNAMED = (
    "it may hold statistics, and its name does not tell of what: expected "
    "{type}.{name}.{task}.{stream}.{time}.csv or statistic.csv; rename it, or take it out of the dump"
)


FORMAT = Format(
    "operator_csv",
    named=lambda kind, suffix: suffix == ".csv" and kind != "opdebug",
    begins=lambda _path, start: start.startswith(_START),
    needs_name=True,
    misnamed=(".csv", _MISNAMED),
)
