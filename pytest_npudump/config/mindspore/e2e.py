"""``e2e_dump_settings``: its mere presence selects the synchronous dump (``dump_json_parser.cc:503-544``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.config.mindspore.parser_state import (
    ParserState,
    bool_reasons,
    choice_reasons,
    narrowed,
    unsigned_reasons,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.config.checker_verdict import Refusal

_PATH = "e2e_dump_settings"
KEYS = (
    "enable",
    "trans_flag",
    "save_kernel_args",
    "stat_calc_mode",
    "device_stat_precision_mode",
    "sample_mode",
    "sample_num",
)


def e2e_reasons(root: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    """Yield what is wrong with ``e2e_dump_settings``; anything but an object counts as ``{}``."""
    if _PATH not in root:
        state.warn(
            f"{_PATH}: missing, so compilation waits 3 s"
            + (" and MindSpore 2.6 or later dumps nothing on Ascend" if state.device == "Ascend" else "")
        )
        return
    state.e2e = True
    settings = root[_PATH] if isinstance(root[_PATH], dict) else {}
    yield from bool_reasons(settings, "enable", _PATH)
    state.synchronous = settings.get("enable", False)
    for key in ("trans_flag", "save_kernel_args"):
        yield from bool_reasons(settings, key, _PATH)
    yield from choice_reasons(settings, "stat_calc_mode", ("host", "device"), _PATH)
    state.stat_calc_mode = settings.get("stat_calc_mode", "host")
    yield from choice_reasons(settings, "device_stat_precision_mode", ("high", "low"), _PATH)
    yield from _sampling(settings, state)
    if settings.get("enable") is False:
        state.warn(f"{_PATH}.enable: false does not switch the dump off, it makes it asynchronous")


def _sampling(settings: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    if "sample_mode" in settings:
        yield from unsigned_reasons(settings, "sample_mode", range(2), _PATH)
        state.sample_mode = narrowed(settings["sample_mode"])
    if "sample_num" in settings and state.sample_mode == 1:
        yield from unsigned_reasons(settings, "sample_num", range(1, 1 << 32), _PATH)
    elif "sample_num" in settings:
        state.warn(f'{_PATH}.sample_num: read only with "sample_mode": 1')
