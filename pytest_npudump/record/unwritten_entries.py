"""Outputs that no kernel writes, under a golden's key of that name: left out, or judged all the same.

They are found out for MindSpore's CPU kernels alone. What is left out counts for the version that was looked
at, and for no other one and no other runtime: what nobody has measured there is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.errors import GoldenError, RequestError
from pytest_npudump.record.record import UNWRITTEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.record.record import Record


LEFT_OUT = "left out"
JUDGED = "judged"
_MEASURED_ON: dict[str, str | None] = {"runtime": "mindspore", "device_target": "CPU"}


def entries_of(golden: Record | None) -> dict[str, str]:
    """Return the tensors that a golden names as unwritten, each with its word.

    Raises:
        GoldenError: what stands there is no such list.
    """
    entries = golden.extra.get(UNWRITTEN, {}) if golden is not None else {}
    if golden is None or not entries:
        return {}
    try:
        words = {f"{layer}:{slot}": word for layer, slots in entries.items() for slot, word in slots.items()}
        good = all(TensorKey.parse(key) and word in {LEFT_OUT, JUDGED} for key, word in words.items())
    except (AttributeError, TypeError, RequestError):
        good = False
    if not good:
        raise GoldenError(
            f"{golden.path}: {UNWRITTEN!r} is to hold layers, each with tensors such as output.1 and for "
            f"these {LEFT_OUT!r} or {JUDGED!r}. Restore the file from version control, or approve anew with "
            f"--npudump-update-golden"
        )
    return words


def left_out_of(golden: Record | None, facts: Mapping[str, str]) -> dict[str, str]:
    """Return those of :func:`entries_of` that a run is compared without.

    Args:
        golden: its golden.
        facts: of the run's origin, as a golden records them.

    Raises:
        GoldenError: as :func:`entries_of`.
    """
    if golden is None:
        return {}
    found = {key: word for key, word in entries_of(golden).items() if word == LEFT_OUT}
    measured = _MEASURED_ON | {"mindspore": golden.facts.get("mindspore")}
    same = all(measured.items() <= origin.items() for origin in (golden.facts, facts))
    return found if same else {}
