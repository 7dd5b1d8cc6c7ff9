"""TorchAir's ``CompilerConfig().dump_config``: which values its options take.

Source: ``torchair/configs/dump_config.py:12-24`` and ``_option_base.py:10-186`` of Ascend/torchair.
"""

from __future__ import annotations

import json
import os
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl.steps import step_reasons
from pytest_npudump.config.checker_verdict import (
    MOST_REASONS,
    CheckerVerdict,
    Refusal,
    few,
    one_of,
    shown,
)
from pytest_npudump.config.text.strict_json import StrictJsonError, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_CHOICES: dict[str, tuple[object, ...]] = {
    "enable_dump": (False, True),
    "dump_mode": ("input", "output", "all"),
    "quant_dumpable": (False, True),
    "dump_data": ("tensor", "stats"),
    "data_dump_stage": ("original", "optimized"),
}
OPTIONS = (*_CHOICES, "dump_path", "dump_step", "dump_layer", "dump_config_path")

# TorchAir's own expression, ^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$, needs exponential time where it fails.
# This one takes the same strings in linear time, oddities included: "1-23-4" reads as 1-2 and 3-4.
_STEPS = r"\d+(?:(?:-\d{2,})*-\d+)?"
_STEP = re.compile(rf"(?:{_STEPS}(?:\|{_STEPS})*\|?)?\n?\Z")
_LAYER = re.compile(r'[0-9a-zA-Z_" /\\.]*\n?\Z')


def validate(text: bytes, *, cwd: Path | None = None) -> CheckerVerdict:
    """Return what TorchAir makes of a JSON object of ``dump_config`` options.

    ``need_dump`` is whether ``enable_dump`` or ``dump_config_path`` is set, ``dump_type`` stays empty.

    Args:
        text: the object, as JSON.
        cwd: what relative paths start from; the process's own by default.
    """
    try:
        options = parse(text)
    except StrictJsonError as error:
        return CheckerVerdict(
            accepted=False, reasons=(Refusal("", f"not JSON: {error}", "write an object of options"),)
        )
    if not isinstance(options, dict):
        problem = f"{shown(options)} is not an object"
        return CheckerVerdict(
            accepted=False, reasons=(Refusal("", problem, 'write {"enable_dump": true, ...}'),)
        )
    return validate_options(options, cwd=cwd)


def validate_options(options: Mapping[str, Any], *, cwd: Path | None = None) -> CheckerVerdict:
    """Return what TorchAir makes of these options, set one after the other."""
    base = Path.cwd() if cwd is None else cwd
    wrong = (reason for name, value in options.items() for reason in _option_reasons(name, value, base))
    reasons = tuple(islice(wrong, MOST_REASONS))
    if reasons:
        return CheckerVerdict(accepted=False, reasons=reasons)
    need_dump = bool(options.get("enable_dump")) or options.get("dump_config_path") is not None
    return CheckerVerdict(accepted=True, warnings=tuple(_warnings(options)), need_dump=need_dump)


def _option_reasons(name: str, value: object, cwd: Path) -> Iterator[Refusal]:
    if name in _CHOICES:
        yield from _choice(name, value)
    elif name in _CHECKS:
        yield from _CHECKS[name](value, cwd)
    else:
        yield Refusal(name, "no such option (ValueError)", one_of(OPTIONS, name))


def _choice(name: str, value: object) -> Iterator[Refusal]:
    allowed = _CHOICES[name]
    if value in allowed:
        return
    remedy = "write true or false" if isinstance(allowed[0], bool) else one_of(map(str, allowed), value)
    yield Refusal(name, f"{shown(value)} is not one of {json.dumps(allowed)} (ValueError)", remedy)


def _dump_path(value: object, cwd: Path) -> Iterator[Refusal]:
    if value is not None and not isinstance(value, str):
        yield from _not_a_path("dump_path", value)
    elif value is None or not _test(os.path.isdir, value, cwd):
        problem = f"{shown(value)} is not an existing directory (FileNotFoundError)"
        yield Refusal("dump_path", problem, f"create it first; relative paths start from {cwd}")


def _config_path(value: object, cwd: Path) -> Iterator[Refusal]:
    name = "dump_config_path"
    if value is None:
        return
    if value == "":
        yield Refusal(name, "empty (ValueError)", "name the acl.json, or leave the option out")
    elif not isinstance(value, str):
        yield from _not_a_path(name, value)
    elif not (value.endswith(".json") and _test(os.path.isfile, value, cwd)):
        problem = f"{shown(value)} is not an existing file that ends in .json (FileNotFoundError)"
        yield Refusal(name, problem, f"create it first; relative paths start from {cwd}")


def _not_a_path(name: str, value: object) -> Iterator[Refusal]:
    yield Refusal(name, f"{shown(value)} is not a path", "write it as a string")


def _test(test: Callable[[str], bool], path: str, cwd: Path) -> bool:
    return bool(path) and "\0" not in path and test(str(cwd / path))


def _dump_step(value: object, _: Path) -> Iterator[Refusal]:
    yield from _pattern("dump_step", value, _STEP, 'write steps as "0|1|2-5|6"')


def _dump_layer(value: object, _: Path) -> Iterator[Refusal]:
    remedy = 'write names separated by blanks: "Mul_1 Add1"'
    yield from _pattern("dump_layer", value, _LAYER, remedy)


def _pattern(name: str, value: object, pattern: re.Pattern[str], remedy: str) -> Iterator[Refusal]:
    if not isinstance(value, str):
        yield Refusal(name, f"{shown(value)} is not a string (TypeError)", remedy)
    elif not pattern.match(value):
        yield Refusal(name, f"{shown(value)} is refused (ValueError)", remedy)


_CHECKS: dict[str, Callable[[object, Path], Iterator[Refusal]]] = {
    "dump_path": _dump_path,
    "dump_config_path": _config_path,
    "dump_step": _dump_step,
    "dump_layer": _dump_layer,
}


def _warnings(options: Mapping[str, Any]) -> Iterator[str]:
    enabled = bool(options.get("enable_dump"))
    file = options.get("dump_config_path")
    if not enabled and file is None:
        yield "enable_dump: false, so nothing is dumped"
    if enabled and file is not None:
        yield "dump_config_path: replaced by the other options once a graph is compiled; write one of the two"
    steps = step_reasons(options.get("dump_step", "").removesuffix("\n"))
    consequence = "aclmdlSetDump refuses it, and TorchAir does not say so"
    yield from few((f"{reason.item}: {reason.problem}; {consequence}" for reason in steps), "dump_step")
    if options.get("dump_step", "").endswith("\n"):
        yield "dump_step: ends in a line end, which aclmdlSetDump refuses and TorchAir does not say so"
    if options.get("quant_dumpable"):
        yield "quant_dumpable: lost on the way to CANN, which has no such key"
    if enabled and "dump_mode" not in options:
        yield 'dump_mode: TorchAir\'s default is "all", acl.json\'s is "output"'
