"""What ``npu-smi info`` says of the NPUs.

Each device fills two rows. The first has the card's number, its name and its health. The second has the
chip's number on the card and, under the heading ``Device`` (310, 310P) or ``Phy-ID`` (910_93), the device's
own; without such a heading (910B, 950) a card is one device, and the card's number is its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

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
        """Whether what it computes cannot be trusted; a warning is for its owner, as of its temperature."""
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
    """Return what ``npu-smi info`` prints; None where the program is not on ``PATH``.

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
