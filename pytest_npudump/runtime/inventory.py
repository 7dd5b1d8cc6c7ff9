"""Devices for a run: those that are named, or those that ``npu-smi info`` lists as healthy.

There each device fills two rows. The first has the card's number, its name and its health. The second has the
chip's number on the card and, under the heading ``Device`` (310, 310P) or ``Phy-ID`` (910_93), the device's
own; without such a heading (910B, 950) a card is one device, and the card's number is its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_npudump.errors import RequestError
from pytest_npudump.language.text import cut

_SECONDS = 20
_CARD = re.compile(
    r"^\s*\|\s*(?P<card>\d+)\s*\|?\s*(?P<name>[A-Za-z0-9][\w-]*)\s*\|\s*(?P<health>[A-Za-z]+)\s*\|"
)
_CHIP = re.compile(r"^\s*\|\s*\d+\s+(?P<device>\d+)\s*\|")
_NUMBERED = re.compile(r"^\s*\|\s*Chip\s+(Device|Phy-ID)\s*\|")
_PROCESSES = re.compile(r"^\s*\|\s*NPU\s+Chip\s*\|\s*Process id")


@dataclass(frozen=True, slots=True)
class Npu:
    """A device, as the driver's tool lists it.

    Attributes:
        device: its number on this machine.
        name: of the chip.
        health: ``OK``, ``Warning``, ``Alarm``, ``Critical`` or ``UNKNOWN``.
    """

    device: int
    name: str
    health: str

    @property
    def is_ill(self) -> bool:
        """Return whether its results cannot be trusted; a warning is for its owner, as of its temperature."""
        return self.health not in {"OK", "Warning"}


def parse_npu_smi(output: str) -> tuple[Npu, ...]:
    """Return the devices that ``npu-smi info`` lists, in its order."""
    numbered, card = False, None
    found: list[Npu] = []
    for line in output.splitlines():
        if _PROCESSES.match(line):
            break
        numbered = numbered or bool(_NUMBERED.match(line))
        chip = _CHIP.match(line) if card is not None else None
        if card is not None:
            device = int(chip["device"]) if chip and numbered else int(card["card"])
            found.append(Npu(device, card["name"], card["health"]))
            card = None
        else:
            card = _CARD.match(line)
    return tuple(found)


def run_npu_smi() -> str | None:
    """Return the output of ``npu-smi info``; None where the program is not on ``PATH``.

    Raises:
        OSError: it cannot be run, fails, or gives no answer within 20 seconds.
    """
    program = shutil.which("npu-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - the driver's own tool, as found on PATH
            [program, "info"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"no answer within {_SECONDS} seconds") from None
    if done.returncode != 0:
        reason = " ".join(done.stdout.split())[:200]
        raise OSError(f"it ended with {done.returncode}: {reason or 'it printed nothing'}")
    return done.stdout


VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
_OPTION = "npudump_devices"
_IDS = re.compile(r"\d{1,4}(\s*,\s*\d{1,4})*")
_NPU = re.compile(r"davinci(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Inventory:
    """Devices of a run.

    Attributes:
        devices: by the id that CANN takes in this environment, what the machine calls the device: two
            processes mean the same one by that, whatever they let be seen.
        note: what is to be known of them, "" for nothing.
    """

    devices: Mapping[int, int]
    note: str = ""


def take_inventory(
    option: str,
    *,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
    npu_smi: Callable[[], str | None] = run_npu_smi,
) -> Inventory:
    """Find the devices that ``npudump_devices`` means.

    ``auto`` means all that can be seen: those of ``ASCEND_RT_VISIBLE_DEVICES``, else those of
    ``/dev/davinci*``. It leaves out what ``npu-smi`` calls ill; a device that is named is used all the same,
    and a note tells of it, as in some containers ``npu-smi`` numbers otherwise.

    Args:
        option: ``auto``, or ids with commas between them.
        environ: the environment variables.
        root: where ``/`` is.
        npu_smi: gives what ``npu-smi info`` prints; None where there is no such program.

    Raises:
        RequestError: ``option`` is no list of ids, or names one that cannot be seen, or
            ``ASCEND_RT_VISIBLE_DEVICES`` is no list of ids.
    """
    visible = _visible(environ)
    if option == "auto":
        machine = dict(enumerate(_present(root) if visible is None else visible))
    else:
        machine = _named(option, visible)
    if not machine:
        return Inventory({}, "no NPU is seen here: nothing is locked")
    healths, note = _healths(npu_smi)
    ill = {i: f"{i} is {healths[found]}" for i, found in machine.items() if found in healths}
    if not ill:
        return Inventory(machine, note)
    words = f"npu-smi says that device {', '.join(ill.values())}"
    if option != "auto":
        return Inventory(machine, f"{words}, and it was named: its results cannot be trusted")
    well = {i: found for i, found in machine.items() if i not in ill}
    if not well:
        raise RequestError(
            f"{_OPTION}=auto: {words}, and there is no other; see npu-smi info -t health, or name a device"
        )
    return Inventory(well, f"{words}: left out")


def _visible(environ: Mapping[str, str]) -> list[int] | None:
    text = environ.get(VISIBLE, "").strip()
    if not text:
        return None
    if not _IDS.fullmatch(text):
        raise RequestError(f"{VISIBLE} is {cut(text, 80)!r}, expected ids such as 0,1; correct or unset it")
    return [int(word) for word in text.split(",")]


def _present(root: Path) -> list[int]:
    """Number the device files; CANN counts those that there are from 0, as in a container."""
    try:
        names = [path.name for path in (root / "dev").iterdir()]
    except OSError:
        return []
    return sorted(int(found[1]) for found in map(_NPU.fullmatch, names) if found)


def _named(option: str, visible: list[int] | None) -> dict[int, int]:
    if not _IDS.fullmatch(option.strip()):
        raise RequestError(f"{_OPTION} is {cut(option, 80)!r}, expected auto, or device ids such as 0,1,5")
    ids = [int(word) for word in option.split(",")]
    if len(set(ids)) < len(ids):
        raise RequestError(f"{_OPTION}={option}: names a device twice")
    if visible is None:
        return {i: i for i in ids}
    if max(ids) >= len(visible):
        raise RequestError(
            f"{_OPTION}={option}: there is no device {max(ids)}: {VISIBLE}={','.join(map(str, visible))} "
            f"lets CANN see {len(visible)}, which it numbers from 0 to {len(visible) - 1}"
        )
    return {i: visible[i] for i in ids}


def _healths(npu_smi: Callable[[], str | None]) -> tuple[dict[int, str], str]:
    """Return the health of each device that is ill, and why it is not known."""
    try:
        output = npu_smi()
    except OSError as error:
        return {}, f"npu-smi info fails ({error}): it is not known whether the devices are well"
    return {npu.device: npu.health for npu in parse_npu_smi(output or "") if npu.is_ill}, ""
