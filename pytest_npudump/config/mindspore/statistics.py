"""``saved_data`` and ``statistic_category`` (``dump_json_parser.cc:191-249, 643-663``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.config.checker_verdict import Refusal, one_of, shown
from pytest_npudump.config.mindspore.parser_state import ParserState, choice_reasons, string_reasons

if TYPE_CHECKING:
    from collections.abc import Iterator

_ON_DEVICE = ("max", "min", "avg", "l2norm")
_CATEGORIES = (
    *_ON_DEVICE,
    "count",
    "negative zero count",
    "positive zero count",
    "nan count",
    "negative inf count",
    "positive inf count",
    "zero count",
    "md5",
)
_HASHES = ("hash", "hash:sha1", "hash:md5")
_FIRST_WITH_HASHES = (2, 10)


def saved_data_reasons(common: dict[str, Any], state: ParserState, path: str) -> Iterator[Refusal]:
    """Yield what is wrong with ``saved_data``."""
    yield from string_reasons(common, "saved_data", path)
    state.saved_data = common.get("saved_data", "tensor")
    if state.e2e and state.op_debug_mode == 4 and state.saved_data != "tensor":  # noqa: PLR2004 - the parser's own
        state.warn(f'{path}.saved_data: read as "tensor" for an exception dump')
        state.saved_data = "tensor"
        return
    yield from choice_reasons(common, "saved_data", ("statistic", "tensor", "full"), path)
    if state.saved_data == "tensor":
        return
    if state.device == "CPU":
        yield Refusal(f"{path}.saved_data", "statistics are not written on CPU", 'write "tensor"')
    if state.device == "Ascend" and not state.e2e and state.file_format != "npy":
        remedy = 'add "file_format": "npy", or e2e_dump_settings'
        yield Refusal(f"{path}.saved_data", "statistics need npy in an asynchronous dump", remedy)


def statistics_reasons(common: dict[str, Any], state: ParserState, path: str) -> Iterator[Refusal]:
    """Yield the categories of ``statistic_category`` that there are none of."""
    _settle_calculation(state)
    place = f"{path}.statistic_category"
    if "statistic_category" not in common:
        return
    if state.saved_data == "tensor":
        state.warn(f'{place}: read only with "saved_data": "statistic" or "full"')
        return
    categories = common["statistic_category"]
    if not isinstance(categories, list):
        yield Refusal(place, f"{shown(categories)} is not an array", 'write ["max", "min"]')
        return
    known = _CATEGORIES + (_HASHES if state.version >= _FIRST_WITH_HASHES else ())
    for index, category in enumerate(categories):
        if not isinstance(category, str) or category not in known:
            yield Refusal(f"{place}[{index}]", f"{shown(category)} is unknown", one_of(known, category))
        elif state.stat_calc_mode == "device" and category not in _ON_DEVICE:
            state.warn(f"{place}[{index}]: {shown(category)} is computed on the host only, so it is left out")


def _settle_calculation(state: ParserState) -> None:
    if state.stat_calc_mode != "device":
        return
    if state.saved_data != "statistic":
        state.warn(
            f'e2e_dump_settings.stat_calc_mode: read as "host" with "saved_data": "{state.saved_data}"'
        )
    elif state.device != "Ascend":
        state.warn(f'e2e_dump_settings.stat_calc_mode: read as "host" on {state.device}')
    elif state.op_debug_mode != 3 or state.synchronous:  # noqa: PLR2004 - the parser's own number
        return
    state.stat_calc_mode = "host"
