"""``common_dump_settings`` (``dump_json_parser.cc:442-501, 564-982``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.checker_verdict import Refusal, as_json, shown
from pytest_npudump.config.mindspore.parser_state import (
    ParserState,
    choice_reasons,
    narrowed,
    string_reasons,
    unsigned_reasons,
)
from pytest_npudump.config.mindspore.statistics import saved_data_reasons, statistics_reasons
from pytest_npudump.config.text.ecmascript import syntax_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH = "common_dump_settings"
_REQUIRED = {
    "dump_mode": "0",
    "net_name": '"ResNet50"',
    "iteration": '"all"',
    "input_output": "0",
    "kernels": "[]",
    "support_device": "[0, 1, 2, 3, 4, 5, 6, 7]",
}
KEYS = (
    *_REQUIRED,
    "path",
    "op_debug_mode",
    "file_format",
    "overflow_number",
    "saved_data",
    "statistic_category",
    "initial_iteration",
)
_PATH_CHARACTERS = re.compile(r"[A-Za-z0-9_/-]+")
_NET_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ITERATION = re.compile(r"all|[0-9|-]+")
_NAME_REGEX = re.compile(r"name-regex\((.*)\)", re.DOTALL)
_ANY = range(1 << 32)
_MOST_ESCAPED = 20


def common_reasons(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    """Yield what is wrong with ``common_dump_settings``, which is ``{}`` where it was no object."""
    # Only Ascend has an asynchronous dump; elsewhere everything is synchronous.
    state.e2e = state.e2e or state.device != "Ascend"
    required = _REQUIRED if state.e2e else {**_REQUIRED, "op_debug_mode": "0"}
    for key, example in required.items():
        if key not in common:
            yield Refusal(f"{_PATH}.{key}", "not found", f'add "{key}": {example}')
    yield from _dump_mode(common, state)
    yield from _dump_path(common, state)
    yield from _net_name(common)
    yield from _iteration(common, state)
    yield from unsigned_reasons(common, "input_output", range(3), _PATH)
    state.input_output = narrowed(common["input_output"])
    yield from _kernels(common, state)
    yield from _support_device(common, state)
    if "op_debug_mode" in common:
        yield from _op_debug_mode(common, state)
    if not state.e2e:
        yield from choice_reasons(common, "file_format", ("npy", "bin"), _PATH)
        state.file_format = common.get("file_format", "bin")
    yield from _overflow_number(common, state)
    yield from saved_data_reasons(common, state, _PATH)
    if "initial_iteration" in common:
        yield from unsigned_reasons(common, "initial_iteration", _ANY, _PATH)
    yield from statistics_reasons(common, state, _PATH)


def _dump_mode(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    yield from unsigned_reasons(common, "dump_mode", range(3), _PATH)
    state.dump_mode = narrowed(common["dump_mode"])
    if state.dump_mode == len(("all", "kernels")) and state.device != "Ascend":
        problem = f"2 (mindspore.set_dump) works on Ascend only, not on {state.device}"
        yield Refusal(f"{_PATH}.dump_mode", problem, "write 0 or 1")


def _dump_path(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    yield from string_reasons(common, "path", _PATH)
    path = common.get("path", "")
    origin = f"{_PATH}.path"
    if not path and state.diagnostic_path:
        path, origin = f"{state.diagnostic_path}/debug_dump", "MS_DIAGNOSTIC_DATA_PATH"
    if not path:
        problem = "empty" if "path" in common else "missing"
        yield Refusal(origin, problem, "write an absolute path, or set MS_DIAGNOSTIC_DATA_PATH")
    elif not _PATH_CHARACTERS.fullmatch(path):
        problem = f"{shown(path)} has characters other than letters, digits, _, - and /"
        yield Refusal(origin, problem, "use another directory: no dot, no blank")
    elif not path.startswith("/"):
        yield Refusal(origin, f"{shown(path)} is not absolute", "start it with /")


def _net_name(common: dict[str, Any]) -> Iterator[Refusal]:
    yield from string_reasons(common, "net_name", _PATH)
    if not _NET_NAME.fullmatch(common["net_name"]):
        problem = f"{shown(common['net_name'])} is not made of letters, digits, _ and -"
        yield Refusal(f"{_PATH}.net_name", problem, "choose another name")


def _iteration(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    yield from string_reasons(common, "iteration", _PATH)
    state.iteration = common["iteration"]
    if not _ITERATION.fullmatch(state.iteration):
        problem = f"{shown(state.iteration)} is refused"
        yield Refusal(f"{_PATH}.iteration", problem, 'write "all", or iterations as "0|5-8"')


def _kernels(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    kernels = common["kernels"]
    if not isinstance(kernels, list):
        yield Refusal(f"{_PATH}.kernels", f"{shown(kernels)} is not an array", "write an array of names")
        return
    if state.dump_mode != 1:
        if kernels:
            state.warn(f'{_PATH}.kernels: read only with "dump_mode": 1')
        return
    names = [_kernel_name(kernel) for kernel in kernels]
    for index, name in enumerate(names):
        yield from _kernel_regex(name, f"{_PATH}.kernels[{index}]")
    escaped = [index for index, name in enumerate(names) if "\\" in name]
    for index in escaped[:_MOST_ESCAPED]:
        state.warn(f"{_PATH}.kernels[{index}]: a backslash is read as two, so \\d and the like match nothing")
    if not any(names):
        state.warn(f"{_PATH}.kernels: names nothing, so every kernel is dumped")


def _kernel_name(kernel: object) -> str:
    """Return a member of ``kernels`` as the parser reads it: any value as text, without quotes and blanks."""
    return as_json(kernel).replace('"', "").replace(" ", "")


def _kernel_regex(name: str, path: str) -> Iterator[Refusal]:
    match = _NAME_REGEX.fullmatch(name)
    if match is None:
        return
    problem = syntax_problem(match[1])
    if problem:
        yield Refusal(
            path, f"{shown(match[1])} is no regular expression: {problem}", "write it for std::regex"
        )


def _support_device(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    devices = common["support_device"]
    if not isinstance(devices, list):
        yield Refusal(f"{_PATH}.support_device", f"{shown(devices)} is not an array", "write [0, 1, 2, ...]")
        return
    if not devices and state.device != "CPU":
        state.has_devices = False
        state.warn(f"{_PATH}.support_device: empty, so no device dumps anything")
    for index, device in enumerate(devices):
        # Numbers and booleans are converted without a check.
        if not isinstance(device, int | float):
            yield Refusal(
                f"{_PATH}.support_device[{index}]", f"{shown(device)} is no number", "write a device id"
            )


def _op_debug_mode(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    yield from unsigned_reasons(common, "op_debug_mode", range(5), _PATH)
    mode = narrowed(common["op_debug_mode"])
    state.op_debug_mode = 3 if mode in (1, 2) else mode
    if mode in (1, 2):
        state.warn(f"{_PATH}.op_debug_mode: {mode} is read as 3")
    if mode and state.dump_mode:
        state.warn(f"{_PATH}.dump_mode: {state.dump_mode} is read as 0 where op_debug_mode is not 0")
        state.dump_mode = 0
    if state.op_debug_mode == 3 and state.input_output:  # noqa: PLR2004 - the parser's own number
        state.warn(f"{_PATH}.input_output: {state.input_output} is read as 0 with overflow detection")
    if state.op_debug_mode == 4:  # noqa: PLR2004 - the parser's own number
        _exception_dump(state)


def _exception_dump(state: ParserState) -> None:
    if state.device != "Ascend":
        state.warn(f"{_PATH}.op_debug_mode: 4 (exception dump) saves no operator data on {state.device}")
    if state.e2e and state.iteration != "all":
        state.warn(f'{_PATH}.iteration: read as "all" for an exception dump')
    if state.e2e and state.sample_mode:
        state.warn("e2e_dump_settings.sample_mode: read as 0 for an exception dump")


def _overflow_number(common: dict[str, Any], state: ParserState) -> Iterator[Refusal]:
    if "overflow_number" not in common:
        return
    if state.op_debug_mode != 3:  # noqa: PLR2004 - the parser's own number
        problem = "allowed only where op_debug_mode is 3"
        yield Refusal(f"{_PATH}.overflow_number", problem, 'leave it out, or write "op_debug_mode": 3')
    yield from unsigned_reasons(common, "overflow_number", _ANY, _PATH)
