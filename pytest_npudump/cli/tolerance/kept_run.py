"""What a golden does not tell of its test, and a kept run does: the types of operators, and its producer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.table import sanitised_key
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import read_record

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.record.text import Golden


def as_it_ran(golden: Golden, results: Path) -> Golden:
    """Return a golden with the types of operators and the producer of the last kept run of its test.

    Args:
        golden: as it was read.
        results: the folder of a session's results.

    Raises:
        RequestError: the results hold no statistics of the test.
        ResultsError: they, or those of the test, cannot be read.
    """
    folder = ResultsFolder(results)
    entries = [entry for entry in folder.read().entries if entry.test == golden.test and entry.record_file]
    if not entries:
        words = _("{results} holds no statistics of {test}: run it, or name other results")
        raise RequestError(words.format(results=results, test=golden.test))
    last = max(entries, key=lambda entry: str(entry.data["time"]))
    run = read_record(folder, last)
    ran = dict(zip(map(sanitised_key, run.table.keys), run.table.op_types, strict=True))
    types = tuple(ran.get(sanitised_key(key), "") for key in golden.table.keys)
    return replace(golden, producer=run.producer, table=replace(golden.table, op_types=types))
