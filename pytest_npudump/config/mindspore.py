"""MindSpore's ``data_dump.json``: what its parser takes, and what it takes without effect.

Source: ``dump_json_parser.cc`` of MindSpore 2.10 (verdicts unchanged since 2.6), which raises RuntimeError
at the first graph compilation. The parser changes its own settings as it goes, so its order is kept here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_npudump.config.json_file import StrictJsonError, json_refusal, parse
from pytest_npudump.config.rule_table import (
    CheckerVerdict,
    Refusal,
    Row,
    always,
    as_json,
    few,
    one_of,
    read,
    says,
    shown,
    unknown_keys,
)

DEVICES: Final = ("Ascend", "CPU", "GPU")

_COMMON = "common_dump_settings"
_E2E = "e2e_dump_settings"
_REQUIRED = {
    "dump_mode": "0",
    "net_name": '"ResNet50"',
    "iteration": '"all"',
    "input_output": "0",
    "kernels": "[]",
    "support_device": "[0, 1, 2, 3, 4, 5, 6, 7]",
}
COMMON_KEYS = (
    *(*_REQUIRED, "path", "op_debug_mode", "file_format", "overflow_number", "saved_data"),
    *("statistic_category", "initial_iteration"),
)
E2E_KEYS = (
    *("enable", "trans_flag", "save_kernel_args", "stat_calc_mode", "device_stat_precision_mode"),
    *("sample_mode", "sample_num"),
)
_PATH_CHARACTERS = re.compile(r"[A-Za-z0-9_/-]+")
_NET_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ITERATION = re.compile(r"all|[0-9|-]+")
_NAME_REGEX = re.compile(r"name-regex\((.*)\)", re.DOTALL)
# What std::regex and re read alike: literals, . | ( ), one quantifier after each, and plain [...].
_PLAIN_REGEX = re.compile(
    r"(?:\[\^?(?:[A-Za-z0-9_./](?:-[A-Za-z0-9])?)+\]|\((?!\?)|[^\\\[\](){}^$*+?]|\)|[*+?]\??(?![*+?]))*"
)
_ON_DEVICE = ("max", "min", "avg", "l2norm")
_CATEGORIES = (
    *(*_ON_DEVICE, "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "md5"),
)
_HASHES = ("hash", "hash:sha1", "hash:md5")
_FIRST_WITH_HASHES = (2, 10)
_UINT32 = 0xFFFFFFFF
_ANY = range(1 << 32)
_MOST_ESCAPED = 20
_OVERFLOW, _EXCEPTION = 3, 4
"""Values of ``op_debug_mode`` for these dumps."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings as the parser reads them: anything but an object counts as ``{}``."""

    root: Mapping[str, Any]
    device: str
    diagnostic_path: str
    version: tuple[int, int]

    def section(self, name: str) -> Mapping[str, Any]:
        held = self.root.get(name)
        return held if isinstance(held, dict) else {}

    @property
    def common(self) -> Mapping[str, Any]:
        return self.section(_COMMON)

    @property
    def e2e(self) -> Mapping[str, Any]:
        return self.section(_E2E)

    @property
    def ascend(self) -> bool:
        return self.device == "Ascend"

    @property
    def is_e2e(self) -> bool:
        """Return whether the dump is not Ascend's asynchronous one, as the mere section decides."""
        return _E2E in self.root or not self.ascend

    @property
    def sampled(self) -> bool:
        return _narrowed(self.e2e.get("sample_mode", 0)) == 1

    @property
    def dump_mode(self) -> int:
        return _narrowed(self.common["dump_mode"])

    @property
    def input_output(self) -> int:
        return _narrowed(self.common["input_output"])

    @property
    def given_mode(self) -> int:
        return _narrowed(self.common.get("op_debug_mode", 0))

    @property
    def op_debug_mode(self) -> int:
        return _OVERFLOW if self.given_mode in (1, 2) else self.given_mode

    @property
    def exception_tensors(self) -> bool:
        """Return whether ``saved_data`` is overruled, since an exception dump has tensors only."""
        other = self.common.get("saved_data", "tensor") != "tensor"
        return self.is_e2e and self.op_debug_mode == _EXCEPTION and other

    @property
    def saved_data(self) -> str:
        return "tensor" if self.exception_tensors else self.common.get("saved_data", "tensor")

    @property
    def asks_device(self) -> bool:
        return self.e2e.get("stat_calc_mode") == "device"

    @property
    def on_device(self) -> bool:
        """Return whether statistics are computed on the device."""
        able = self.saved_data == "statistic" and self.ascend
        return (
            self.asks_device and able and (self.op_debug_mode != _OVERFLOW or self.e2e.get("enable", False))
        )


def _narrowed(value: int) -> int:
    """Return an integer in 32 bits, which the parser takes before it checks the range."""
    return value & _UINT32


def validate(
    text: bytes,
    *,
    device: str = "Ascend",
    environ: Mapping[str, str] | None = None,
    version: tuple[int, int] = (2, 10),
) -> CheckerVerdict:
    """Return MindSpore's verdict on the content of a ``data_dump.json``.

    ``need_dump`` is whether anything is written on that device, ``dump_type`` ``sync`` or ``async``.

    Args:
        text: the bytes of the file.
        device: ``device_target``: ``Ascend``, ``CPU`` or ``GPU``.
        environ: where ``MS_DIAGNOSTIC_DATA_PATH`` is looked up; the process's own by default.
        version: of MindSpore, 2.6 or later; the hash categories came with 2.10.
    """
    try:
        root = parse(text, whole=False)
    except StrictJsonError as error:
        return CheckerVerdict(accepted=False, reasons=(json_refusal(error, "write plain JSON"),))
    environment = os.environ if environ is None else environ
    diagnostic = environment.get("MS_DIAGNOSTIC_DATA_PATH", "")
    if not isinstance(root, dict):
        return CheckerVerdict(accepted=False, reasons=(_no_settings(root),))
    settings = _Settings(root, device, diagnostic, version)
    for reason in read(_RULES, settings):  # the parser stops at the first
        return CheckerVerdict(accepted=False, reasons=(reason,))
    warnings = (*few(read(_WARNINGS, settings), _COMMON), *mindspore_warnings(settings.root))
    if unknown := tuple(_unknown_regexes(settings)):
        return CheckerVerdict(accepted=None, reasons=unknown, warnings=warnings)
    written = settings.is_e2e and (settings.device == "CPU" or settings.common["support_device"] != [])
    synchronous = settings.e2e.get("enable", False) or not settings.ascend
    dump_type = ("sync" if synchronous else "async") if written else ""
    return CheckerVerdict(accepted=True, warnings=warnings, need_dump=written, dump_type=dump_type)


def mindspore_warnings(root: Mapping[str, Any]) -> tuple[str, ...]:
    """Name parts of an accepted configuration that match nothing or are not read."""
    unknown = [f"{key}: unknown section, ignored" for key in root if key not in (_COMMON, _E2E)]
    for section, keys in ((_COMMON, COMMON_KEYS), (_E2E, E2E_KEYS)):
        held = root.get(section)
        unknown += unknown_keys(held, keys, f"{section}.") if isinstance(held, dict) else ()
    lost = []
    for part in root[_COMMON]["iteration"].split("|") if root[_COMMON]["iteration"] != "all" else ():
        bounds = part.split("-")
        matches = all(bounds) and len(bounds) <= 2 and int(bounds[0][:20]) <= int(bounds[-1][:20])  # noqa: PLR2004 - both ends
        if part and not matches:
            lost.append(f"common_dump_settings.iteration: {shown(part)} matches no iteration")
    return (*few(unknown, "unknown keys"), *few(lost, "common_dump_settings.iteration"))


# What is refused: builders of what rows say.

_Check = Callable[[_Settings], Iterable[Refusal]]


def _no_settings(root: object) -> Refusal:
    return Refusal(_COMMON, f"not found in {shown(root)}", 'write {"common_dump_settings": {...}}')


def _typed(section: str, key: str, kind: type, called: str, remedy: str) -> _Check:
    def check(settings: _Settings) -> Iterator[Refusal]:
        holder = settings.section(section)
        if key in holder and not isinstance(holder[key], kind):
            yield Refusal(f"{section}.{key}", f"{shown(holder[key])} is not {called}", remedy)

    return check


def _string(section: str, key: str) -> _Check:
    return _typed(section, key, str, "a string", "write a string")


def _choice(section: str, key: str, *options: str) -> _Check:
    def check(settings: _Settings) -> Iterator[Refusal]:
        holder = settings.section(section)
        yield from _string(section, key)(settings)
        if key in holder and holder[key] not in options:
            remedy = "write " + " or ".join(f'"{option}"' for option in options)
            yield Refusal(f"{section}.{key}", f"{shown(holder[key])} is unknown", remedy)

    return check


def _unsigned(section: str, key: str, allowed: range) -> _Check:
    """Return a check for unsigned integers within ``allowed``; 4294967296 passes as 0."""

    def check(settings: _Settings) -> Iterator[Refusal]:
        value = settings.section(section).get(key, 0)
        examples = ", ".join(map(str, allowed)) if len(allowed) <= len("01234") else f"{allowed[0]} or more"
        remedy = f"write an integer: {examples}"
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield Refusal(f"{section}.{key}", f"{shown(value)} is not an unsigned integer", remedy)
        elif _narrowed(value) not in allowed:
            yield Refusal(f"{section}.{key}", f"{value} is out of range", remedy)

    return check


def _lacking(settings: _Settings) -> Iterator[Refusal]:
    required = _REQUIRED if settings.is_e2e else {**_REQUIRED, "op_debug_mode": "0"}
    for key, example in required.items():
        if key not in settings.common:
            yield Refusal(f"{_COMMON}.{key}", "not found", f'add "{key}": {example}')


def _path(settings: _Settings) -> Iterator[Refusal]:
    path = settings.common.get("path", "")
    origin = f"{_COMMON}.path"
    if not path and settings.diagnostic_path:
        path, origin = f"{settings.diagnostic_path}/debug_dump", "MS_DIAGNOSTIC_DATA_PATH"
    if not path:
        problem = "empty" if "path" in settings.common else "missing"
        yield Refusal(origin, problem, "write an absolute path, or set MS_DIAGNOSTIC_DATA_PATH")
    elif not _PATH_CHARACTERS.fullmatch(path):
        problem = f"{shown(path)} has characters other than letters, digits, _, - and /"
        yield Refusal(origin, problem, "use another directory: no dot, no blank")
    elif not path.startswith("/"):
        yield Refusal(origin, f"{shown(path)} is not absolute", "start it with /")


def _regexes(settings: _Settings) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each regular expression among the kernels, if these are read."""
    for index, name in enumerate(_kernel_names(settings)):
        if (match := _NAME_REGEX.fullmatch(name)) is not None:
            yield f"{_COMMON}.kernels[{index}]", match[1]


def _kernel_names(settings: _Settings) -> list[str]:
    """Return the kernels as the parser reads them: any value as text, without quotes and blanks."""
    kernels = settings.common["kernels"] if settings.dump_mode == 1 else ()
    return [as_json(kernel).replace('"', "").replace(" ", "") for kernel in kernels]


def _kernels(settings: _Settings) -> Iterator[Refusal]:
    for path, expression in _regexes(settings):
        try:
            re.compile(expression if _PLAIN_REGEX.fullmatch(expression) else "")
        except re.error as error:  # noqa: PERF203 - of few expressions
            problem = f"{shown(expression)} is no regular expression: {error.msg}"
            yield Refusal(path, problem, "write it for std::regex")


def _unknown_regexes(settings: _Settings) -> Iterator[Refusal]:
    for path, expression in _regexes(settings):
        if not _PLAIN_REGEX.fullmatch(expression):
            problem = f"{shown(expression)} cannot be checked here, where std::regex is not at hand"
            remedy = (
                "see what MindSpore says to it, or write it with letters, . * + ? | ( ) and plain [...] only"
            )
            yield Refusal(path, problem, remedy)


def _support_device(settings: _Settings) -> Iterator[Refusal]:
    for index, device in enumerate(settings.common["support_device"]):
        # Numbers and booleans are converted without a check.
        if not isinstance(device, int | float):
            yield Refusal(
                f"{_COMMON}.support_device[{index}]", f"{shown(device)} is no number", "write a device id"
            )


def _categories(settings: _Settings) -> Iterator[Refusal]:
    known = _CATEGORIES + (_HASHES if settings.version >= _FIRST_WITH_HASHES else ())
    for index, category in enumerate(settings.common["statistic_category"]):
        if not isinstance(category, str) or category not in known:
            place = f"{_COMMON}.statistic_category[{index}]"
            yield Refusal(place, f"{shown(category)} is unknown", one_of(known, category))


def _statistics(settings: _Settings) -> bool:
    return settings.saved_data != "tensor"


_RULES: tuple[Row[_Settings, Refusal], ...] = (
    *(
        (always, _typed(_E2E, key, bool, "a boolean", "write true or false"))
        for key in ("enable", "trans_flag", "save_kernel_args")
    ),
    (always, _choice(_E2E, "stat_calc_mode", "host", "device")),
    (always, _choice(_E2E, "device_stat_precision_mode", "high", "low")),
    (always, _unsigned(_E2E, "sample_mode", range(2))),
    (lambda s: s.sampled and "sample_num" in s.e2e, _unsigned(_E2E, "sample_num", range(1, 1 << 32))),
    (lambda s: _COMMON not in s.root, lambda s: (_no_settings(s.root),)),
    (always, _lacking),
    (always, _unsigned(_COMMON, "dump_mode", range(3))),
    (
        lambda s: s.dump_mode == len(("all", "kernels")) and not s.ascend,
        lambda s: (
            Refusal(
                f"{_COMMON}.dump_mode",
                f"2 (mindspore.set_dump) works on Ascend only, not on {s.device}",
                "write 0 or 1",
            ),
        ),
    ),
    (always, _string(_COMMON, "path")),
    (always, _path),
    (always, _string(_COMMON, "net_name")),
    (
        lambda s: not _NET_NAME.fullmatch(s.common["net_name"]),
        lambda s: (
            Refusal(
                f"{_COMMON}.net_name",
                f"{shown(s.common['net_name'])} is not made of letters, digits, _ and -",
                "choose another name",
            ),
        ),
    ),
    (always, _string(_COMMON, "iteration")),
    (
        lambda s: not _ITERATION.fullmatch(s.common["iteration"]),
        lambda s: (
            Refusal(
                f"{_COMMON}.iteration",
                f"{shown(s.common['iteration'])} is refused",
                'write "all", or iterations as "0|5-8"',
            ),
        ),
    ),
    (always, _unsigned(_COMMON, "input_output", range(3))),
    (always, _typed(_COMMON, "kernels", list, "an array", "write an array of names")),
    (always, _kernels),
    (always, _typed(_COMMON, "support_device", list, "an array", "write [0, 1, 2, ...]")),
    (always, _support_device),
    (always, _unsigned(_COMMON, "op_debug_mode", range(5))),
    (lambda s: not s.is_e2e, _choice(_COMMON, "file_format", "npy", "bin")),
    (
        lambda s: "overflow_number" in s.common and s.op_debug_mode != _OVERFLOW,
        says(
            Refusal(
                f"{_COMMON}.overflow_number",
                "allowed only where op_debug_mode is 3",
                'leave it out, or write "op_debug_mode": 3',
            )
        ),
    ),
    (always, _unsigned(_COMMON, "overflow_number", _ANY)),
    (always, _string(_COMMON, "saved_data")),
    (lambda s: not s.exception_tensors, _choice(_COMMON, "saved_data", "statistic", "tensor", "full")),
    (
        lambda s: _statistics(s) and s.device == "CPU",
        says(Refusal(f"{_COMMON}.saved_data", "statistics are not written on CPU", 'write "tensor"')),
    ),
    (
        lambda s: _statistics(s) and not s.is_e2e and s.common.get("file_format", "bin") != "npy",
        says(
            Refusal(
                f"{_COMMON}.saved_data",
                "statistics need npy in an asynchronous dump",
                'add "file_format": "npy", or e2e_dump_settings',
            )
        ),
    ),
    (always, _unsigned(_COMMON, "initial_iteration", _ANY)),
    (_statistics, _typed(_COMMON, "statistic_category", list, "an array", 'write ["max", "min"]')),
    (lambda s: _statistics(s) and "statistic_category" in s.common, _categories),
)


# What is accepted, and yet does nothing or less than it says.


def _lost_categories(settings: _Settings) -> Iterator[str]:
    place = f"{_COMMON}.statistic_category"
    for index, category in enumerate(settings.common["statistic_category"]):
        if category not in _ON_DEVICE:
            yield f"{place}[{index}]: {shown(category)} is computed on the host only, so it is left out"


def _escaped(settings: _Settings) -> Iterator[str]:
    names = enumerate(_kernel_names(settings))
    for index in [index for index, name in names if "\\" in name][:_MOST_ESCAPED]:
        yield f"{_COMMON}.kernels[{index}]: a backslash is read as two, so \\d and the like match nothing"


_WARNINGS: tuple[Row[_Settings, str], ...] = (
    (
        lambda s: _E2E not in s.root,
        lambda s: (
            f"{_E2E}: missing, so compilation waits 3 s"
            + (" and MindSpore 2.6 or later dumps nothing on Ascend" if s.ascend else ""),
        ),
    ),
    (
        lambda s: "sample_num" in s.e2e and not s.sampled,
        says(f'{_E2E}.sample_num: read only with "sample_mode": 1'),
    ),
    (
        lambda s: s.e2e.get("enable") is False,
        says(f"{_E2E}.enable: false does not switch the dump off, it makes it asynchronous"),
    ),
    (
        lambda s: s.dump_mode != 1 and s.common["kernels"],
        says(f'{_COMMON}.kernels: read only with "dump_mode": 1'),
    ),
    (always, _escaped),
    (
        lambda s: s.dump_mode == 1 and not any(_kernel_names(s)),
        says(f"{_COMMON}.kernels: names nothing, so every kernel is dumped"),
    ),
    (
        lambda s: not s.common["support_device"] and s.device != "CPU",
        says(f"{_COMMON}.support_device: empty, so no device dumps anything"),
    ),
    (lambda s: s.given_mode in (1, 2), lambda s: (f"{_COMMON}.op_debug_mode: {s.given_mode} is read as 3",)),
    (
        lambda s: s.given_mode and s.dump_mode,
        lambda s: (f"{_COMMON}.dump_mode: {s.dump_mode} is read as 0 where op_debug_mode is not 0",),
    ),
    (
        lambda s: s.op_debug_mode == _OVERFLOW and s.input_output,
        lambda s: (f"{_COMMON}.input_output: {s.input_output} is read as 0 with overflow detection",),
    ),
    (
        lambda s: s.op_debug_mode == _EXCEPTION and not s.ascend,
        lambda s: (f"{_COMMON}.op_debug_mode: 4 (exception dump) saves no operator data on {s.device}",),
    ),
    (
        lambda s: s.op_debug_mode == _EXCEPTION and s.is_e2e and s.common["iteration"] != "all",
        says(f'{_COMMON}.iteration: read as "all" for an exception dump'),
    ),
    (
        lambda s: s.op_debug_mode == _EXCEPTION and s.sampled,
        says(f"{_E2E}.sample_mode: read as 0 for an exception dump"),
    ),
    (lambda s: s.exception_tensors, says(f'{_COMMON}.saved_data: read as "tensor" for an exception dump')),
    (
        lambda s: s.asks_device and s.saved_data != "statistic",
        lambda s: (f'{_E2E}.stat_calc_mode: read as "host" with "saved_data": "{s.saved_data}"',),
    ),
    (
        lambda s: s.asks_device and s.saved_data == "statistic" and not s.ascend,
        lambda s: (f'{_E2E}.stat_calc_mode: read as "host" on {s.device}',),
    ),
    (
        lambda s: "statistic_category" in s.common and not _statistics(s),
        says(f'{_COMMON}.statistic_category: read only with "saved_data": "statistic" or "full"'),
    ),
    (lambda s: s.on_device and "statistic_category" in s.common, _lost_categories),
)
