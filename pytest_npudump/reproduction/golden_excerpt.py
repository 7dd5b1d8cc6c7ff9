"""What a golden says of one layer, as the golden of the test that reproduces it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.errors import RequestError
from pytest_npudump.golden.store import read_golden
from pytest_npudump.record.noise import CALIBRATION, REPEATS
from pytest_npudump.record.record import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.record.record import Record

_KEPT = (REPEATS, CALIBRATION)


def excerpt_of(path: Path, key: TensorKey, test: str, target: Path) -> Record:
    """Return a golden of the outputs of one execution of a layer.

    Args:
        path: the golden file.
        key: one of the outputs.
        test: the node id of the new golden's test.
        target: its file.

    Raises:
        RequestError: the golden has no such tensor.
        GoldenError: it cannot be read.
    """
    golden = read_golden(path)
    keys = [TensorKey.parse(text) for text in golden.table.keys]
    rows = [row for row, one in enumerate(keys) if replace(one, slot=key.slot).sanitised == key.sanitised]
    if not rows:
        raise RequestError(f"{path}: has no {key} any more: was the golden recorded again since?")
    table = rows_of((golden.table, golden.table), [(0, row) for row in rows])
    plain = tuple(str(TensorKey(keys[row].layer, keys[row].io, keys[row].slot)) for row in rows)
    extra = {name: golden.extra[name] for name in _KEPT if name in golden.extra}
    return replace(
        golden,
        test=test,
        table=replace(table, keys=plain),
        path=target,
        extra=extra,
        blocks={},
        digest="",
        base=None,
        own_digest="",
    )
