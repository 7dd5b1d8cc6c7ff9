"""Whether a run may be written into the golden that is there, or another machine has made that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.golden.variants import Goldens
    from pytest_npudump.record.record import Record

_EMULATOR = "emulator"
_MEASURED = ("runtime", "soc")
"""Facts of what computes: the noise of one is no bound for another."""


def stands_in(facts: Mapping[str, str], golden: Record) -> bool:
    """Whether a run is the emulator's, and a golden a device's.

    Args:
        facts: of the run's origin.
        golden: what it would replace.
    """
    return facts.get("runtime") == _EMULATOR != golden.producer.get("runtime")


def not_recorded(goldens: Goldens, facts: Mapping[str, str]) -> str:
    """Return why a run may not replace the golden file that it would, in words; "" where it may.

    Args:
        goldens: of the test, with the variant that applies.
        facts: of the run's origin, as :meth:`Goldens.facts` has them.
    """
    golden = _readable(goldens)
    if golden is None or golden.path != goldens.path or not stands_in(facts, golden):
        return ""
    return (
        f"{golden.path} is a device's ({_words(golden.producer)}), and this run the emulator's: record it on "
        f"the device, or beside it with --npudump-golden-variant=NAME --npudump-update-golden; remove the "
        f"file first if the device's is to go"
    )


def not_calibrated(goldens: Goldens, facts: Mapping[str, str]) -> str:
    """Return why the noise of a run is none of the golden that it is compared with, in words; "" where it is.

    Args:
        goldens: of the test, with the variant that applies.
        facts: of the run's origin, as :meth:`Goldens.facts` has them.
    """
    golden = _readable(goldens)
    if golden is None or all(golden.producer.get(name) == facts.get(name) for name in _MEASURED):
        return ""
    return (
        f"{golden.path} is of {_words(golden.producer)}, and this run of {_words(facts)}, whose noise is no "
        f"bound for it: calibrate where it was recorded, or record a variant with "
        f"--npudump-golden-variant=NAME --npudump-update-golden"
    )


def replaced_words(goldens: Goldens, golden: Record | None, facts: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note where an update replaces the golden of another device.

    Args:
        goldens: of the test, with the variant that applies.
        golden: what is there; None where it cannot be read or there is none.
        facts: of the run's origin.
    """
    if golden is None or golden.path != goldens.path or golden.producer.get("runtime") == _EMULATOR:
        return ()
    told = [name for name in _MEASURED if name in golden.producer and name in facts]
    if all(golden.producer[name] == facts[name] for name in told):
        return ()
    before, now = _words(golden.producer), _words(facts)
    return (
        f"the golden was of {before}, and is of {now} now: --npudump-golden-variant=NAME keeps one of each",
    )


def _readable(goldens: Goldens) -> Record | None:
    try:
        return goldens.read_if_any()
    except GoldenError:
        return None  # an update replaces it, a comparison says what is wrong with it


def _words(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {facts.get(name, 'unknown')}" for name in _MEASURED)
