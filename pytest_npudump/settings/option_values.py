"""Values of options, from the text that a user typed."""

from __future__ import annotations

import re

from pytest_npudump.errors import RequestError

_SIZE = re.compile(r"(?P<whole>\d{1,18})(\.(?P<part>\d{1,18}))?\s*(?P<unit>[KMGT]i?B?|B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str, name: str = "--npudump-dump-limit") -> int:
    """Bytes in a size such as ``512MiB``, ``1.5 GB`` or ``4096``; K, M, G and T are powers of 1024.

    Raises:
        RequestError: ``text`` is no such size.
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise RequestError(f"{name} is {text!r}, expected a size such as 512MiB or 4GiB")
    power = _POWERS[(match["unit"] or "")[:1].upper()]
    part = match["part"] or ""
    return (int(match["whole"] + part) << 10 * power) // int(f"1{'0' * len(part)}")


def parse_count(text: str, name: str, least: int, off: int | None = None) -> int:
    """Return a number of runs: ``least`` or more, or ``off``.

    Raises:
        RequestError: ``text`` is no such number.
    """
    number = int(text) if text.strip().isdecimal() and len(text) < 6 else -1  # noqa: PLR2004 - no such number is meant
    if number != off and number < least:
        raise RequestError(f"--npudump-{name} is {text!r}, expected a number of runs, {least} or more")
    return number


def parse_device(text: str) -> int | None:
    """Return a device id; None for ``auto``.

    Raises:
        RequestError: ``text`` is neither.
    """
    if text == "auto":
        return None
    if not text.strip().isdecimal():
        raise RequestError(f"--npudump-device is {text!r}, expected a device id such as 0")
    return int(text)


def parse_seconds(text: str) -> float:
    """Return a number of seconds, greater than 0.

    Raises:
        RequestError: ``text`` is no such number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise RequestError(f"--npudump-isolation-timeout is {text!r}, expected seconds, greater than 0")
    return seconds
