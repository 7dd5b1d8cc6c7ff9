"""What the options of one run say, resolved; :mod:`pytest_npudump.plugin.options` reads them from pytest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_npudump.errors import RequestError

_SIZE = re.compile(r"(?P<whole>\d{1,18})(\.(?P<part>\d{1,18}))?\s*(?P<unit>[KMGT]i?B?|B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one run; each attribute is the option of its name, sizes in bytes, times in seconds."""

    update_golden: bool
    runtime: str
    require_npu: bool
    device: int | None
    golden_dir: str
    golden_variant: str
    preset: str
    tolerances: str
    escalate: bool
    dump_dir: str
    dump_limit: int
    keep_dumps: str
    isolation: str
    isolation_timeout: float
    allow_update_in_ci: bool


def parse_size(text: str) -> int:
    """Bytes in a size such as ``512MiB``, ``1.5 GB`` or ``4096``; K, M, G and T are powers of 1024.

    Raises:
        RequestError: ``text`` is no such size.
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise RequestError(f"--npudump-dump-limit is {text!r}, expected a size such as 512MiB or 4GiB")
    power = _POWERS[(match["unit"] or "")[:1].upper()]
    part = match["part"] or ""
    return (int(match["whole"] + part) << 10 * power) // int(f"1{'0' * len(part)}")
