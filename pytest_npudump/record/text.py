"""The text of a golden file: YAML that people read in a review and git merges, one line a tensor.

The table is one literal block, because PyYAML hands over 10,000 lines of one scalar in 5 ms and needs
65 ms for as many strings and 2.4 s for as many mappings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pytest_npudump.dump.table import PROJECTIONS
from pytest_npudump.errors import GoldenError
from pytest_npudump.record import rows
from pytest_npudump.record.edges import DIGESTS
from pytest_npudump.record.model_lines import (
    OPERATOR_DIGESTS,
    check_model_lines,
    with_digests,
    without_digests,
)
from pytest_npudump.record.record import BLOCKS, EDGES, MODELS, OUTPUTS, POINTERS, Record
from pytest_npudump.record.rows import (
    RowError,
    by_name,
    parse_rows,
    read_pointers,
    render_projections,
    stamped_lines,
    with_projections,
    without_stamps,
)
from pytest_npudump.storage import safeyaml

VERSION = 1
_TABLE = "tensors"
_RESERVED = ("npudump-golden", "test", "producer", "columns", _TABLE)


def render(golden: Record) -> str:
    """The file's text, ending in a newline; equal goldens give equal text.

    Raises:
        GoldenError: something in the golden cannot be written so that it is read back the same.
    """
    table = golden.table
    if clash := [key for key in golden.extra if key in (*_RESERVED, *BLOCKS)]:
        raise GoldenError(
            f"{golden.path}: {clash[0]!r} is a key of the file itself, expected another name in extra"
        )
    digits = rows.common_digits(table)
    producer = {**golden.producer, **({"digits": digits} if digits else {})}
    columns = rows.columns_for(table)
    head = {
        "npudump-golden": VERSION,
        "test": golden.test,
        "producer": producer,
        **golden.extra,
        "columns": " ".join(columns),
    }
    try:
        lines = stamped_lines(rows.render_rows(table, columns), table.keys, golden.changed)
        body = "".join([f"  {line}\n" for line in lines])
    except rows.RowError as error:
        raise GoldenError(f"{golden.path}: {error.reason}, the golden was not written") from error
    told = with_digests(*(by_name(golden.blocks.get(name, "")) for name in (EDGES, MODELS)))
    texts = {**golden.blocks, PROJECTIONS: render_projections(table)}
    texts |= {
        name: "".join(f"{line}\n" for line in lines.values())
        for name, lines in zip((EDGES, MODELS), told, strict=True)
    }
    blocks = [_rendered_block(golden, name, texts[name]) for name in BLOCKS if texts.get(name)]
    return "".join((_safe_head(head, golden.path), f"{_TABLE}: |\n", body, *blocks))


def _rendered_block(golden: Record, name: str, text: str) -> str:
    lines = text.removesuffix("\n").split("\n")
    bad = next((line for line in lines if not line.isprintable() or line[:1] in {"", " "}), None)
    if bad is not None:
        raise GoldenError(f"{golden.path}: {bad[:120]!r} is no line of {name!r}, the golden was not written")
    return "".join((f"{name}: |\n", *[f"  {line}\n" for line in lines]))


def _safe_head(head: Mapping[str, Any], path: Path) -> str:
    """YAML of ``head``, after a look at how it is read back: what is written must be readable."""
    expected = "expected text, finite numbers, lists and mappings with text as keys"
    try:
        text = safeyaml.dump_mapping(head)
        back = safeyaml.load_mapping(text).data
    except ValueError as error:
        raise GoldenError(f"{path}: the golden's keys are not plain data, {expected}: {error}") from error
    for key, value in head.items():
        if back.get(key) != value:
            raise GoldenError(f"{path}: {key!r} would not be read back as it is, {expected}")
    return text


def unwritable(golden: Record) -> tuple[str, ...]:
    """Names of the keys in ``extra`` that can be read and not be written, such as those with a NaN."""

    def refused(key: str) -> bool:
        try:
            _safe_head({key: golden.extra[key]}, golden.path)
        except GoldenError:
            return True
        return False

    return tuple(filter(refused, golden.extra))


def parse(text: str, path: Path) -> Record:
    """Read a golden file's text.

    Args:
        text: the file's content.
        path: named in errors.

    Raises:
        GoldenError: not a golden file, another version of the format, or a damaged one; names the line.
    """
    try:
        document = safeyaml.load_mapping(text)
    except safeyaml.YamlError as error:
        raise _bad_golden(path, error.line, error.reason) from error
    data, places = document.data, document.lines
    version = data.get("npudump-golden")
    if version is None:
        raise GoldenError(f"{path}: not a golden file, expected the key 'npudump-golden: {VERSION}'")
    if type(version) is not int or version != VERSION:
        raise GoldenError(
            f"{path}: written in version {version!r} of the golden format, this pytest-npudump reads "
            f"version {VERSION}: install the one that wrote it, or accept anew with --npudump-update-golden"
        )
    for key in (*_RESERVED, *(name for name in BLOCKS if name in data)):
        expected: type = dict if key == "producer" else str
        if key != "npudump-golden" and not isinstance(data.get(key), expected):
            line = places.get(key, 1)
            found = f"{key!r} is missing" if key not in data else f"{key!r} holds {type(data[key]).__name__}"
            raise _bad_golden(path, line, f"{found}, expected {'a mapping' if expected is dict else 'text'}")
    return _golden(data, places, path)


def _golden(data: Mapping[str, Any], lines: Mapping[str, int], path: Path) -> Record:
    producer = dict(data["producer"])
    digits = producer.pop("digits", 0)
    stated = "digits" in data["producer"]
    if stated and (type(digits) is not int or not digits or not rows.printable_digits(digits)):
        reason = f"producer.digits is {digits!r}, {rows.EXPECTED_DIGITS}, or no such key for full precision"
        raise _bad_golden(path, lines["producer"], reason)
    columns = tuple(data["columns"].split())
    if columns not in rows.LAYOUTS:
        expected = " ".join(rows.COLUMNS)
        reason = (
            f"columns are {' '.join(columns)!r}, expected {expected!r} and then any of count, digits, "
            f"digest, noise"
        )
        raise _bad_golden(path, lines["columns"], reason)
    extra = {key: value for key, value in data.items() if key not in (*_RESERVED, *BLOCKS)}
    blocks = {name: data[name] for name in BLOCKS if name in data}
    name = _TABLE
    try:
        cells, changed = without_stamps(data[name])
        table = parse_rows(cells, columns, digits)
        name = PROJECTIONS
        table = with_projections(table, data.get(name, ""))
        edges, models = (blocks.get(name, "") for name in (EDGES, MODELS))
        joint = [line.partition(" ")[0] for line in edges.splitlines() if DIGESTS in line]
        checks: dict[str, Callable[[str], object]] = {
            EDGES: check_edge_lines,
            MODELS: partial(check_model_lines, joint=joint),
            OUTPUTS: rows.parse_outputs,
            POINTERS: read_pointers,
        }
        for name, check in checks.items():
            check(blocks.get(name, ""))
    except rows.RowError as error:
        raise _bad_golden(path, lines[name] + 1 + error.row, error.reason) from error
    told = zip((EDGES, MODELS), without_digests(edges, models), strict=True)
    blocks |= {name: text for name, text in told if text}
    return Record(data["test"], producer, table, path, extra, blocks, changed=changed)


def _bad_golden(path: Path, line: int, reason: str) -> GoldenError:
    """The error for a fault in ``line`` (1-based) of the file at ``path``, with the way out."""
    return GoldenError(
        f"{path}, line {line}: {reason}. Restore the file from version control, or accept anew with "
        f"--npudump-update-golden"
    )


_LINE = re.compile(
    r"[^\s#]+(?:#turn=\d{1,9})? <"
    r"(?: (?!\|(?: |$))(?:[-?*]|[^\s#:]+(?:#turn=\d{1,9})?|[^\s#]+(?:#turn=\d{1,9})?:output\.\d{1,9}))*"
    rf"(?: \|{OPERATOR_DIGESTS})?"
)


def check_edge_lines(block: str) -> None:
    """Refuse lines that are no edges, two of one layer, and a last one that is cut: more may be lost with it.

    Raises:
        RowError: names the line.
    """
    found = block.splitlines()
    for row, line in enumerate(found):
        if not _LINE.fullmatch(line):
            raise RowError(row, f"{line[:120]!r} is no edge, expected such as: relu1 < conv1")
    names = [line.partition(" ")[0] for line in found]
    if len(set(names)) < len(names):
        row = next(row for row, name in enumerate(names) if name in names[:row])
        raise RowError(row, f"what feeds {names[row]!r} stands here a second time, remove one of the lines")
    if block and not block.endswith("\n"):
        raise RowError(len(found) - 1, "the file ends within this line")
