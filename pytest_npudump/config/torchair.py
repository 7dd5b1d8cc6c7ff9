"""TorchAir's ``CompilerConfig().dump_config``: values its options take, and one filled from an acl.json.

TorchAir hands ``dump_config_path`` to ACL as it is, and a refused file ends the compilation. Its other
options become an acl.json of TorchAir's own, whose refusal nobody hears of, and cannot say all that one
can: they are used for ``torchair.scope.data_dump``, which has no effect without them, and for versions
without ``dump_config_path``. Beside the dump of tensors its graphs are asked for, which tell which tensor
feeds which. Source: ``torchair/configs/dump_config.py:12-24``, ``_option_base.py:10-186``,
``debug_config.py`` and ``_ge_concrete_graph/fx2ge_converter.py`` of Ascend/torchair; the graph that GE
is handed is ``dynamo_optimized_NAME_rank_R_pid_P_ts_T.txt``.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_npudump.config.acl_keys import step_reasons
from pytest_npudump.config.cann import STATISTICS
from pytest_npudump.config.json_file import StrictJsonError, json_refusal, parse
from pytest_npudump.config.rule_table import MOST_REASONS, CheckerVerdict, Refusal, few, one_of, shown
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError, in_one_line

GRAPHS = "torchair"
"""The folder of the graphs, beside the configuration of the dump."""
OPTIMISED = "dynamo_optimized_*.txt"
"""Names of the graphs as GE is handed them."""

_GRAPH_ENGINE = "max-autotune"
_PATH = "dump_config_path"
_SAME_NAME = ("dump_path", "dump_mode", "dump_data", "dump_step")
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
_PATTERNS = {
    "dump_step": (_STEP, 'write steps as "0|1|2-5|6"'),
    "dump_layer": (_LAYER, 'write names separated by blanks: "Mul_1 Add1"'),
}


def validate(text: bytes, *, cwd: Path | None = None) -> CheckerVerdict:
    """Return TorchAir's verdict on a JSON object of ``dump_config`` options.

    ``need_dump`` is whether ``enable_dump`` or ``dump_config_path`` is set, ``dump_type`` stays empty.

    Args:
        text: the object, as JSON.
        cwd: what relative paths start from; the process's own by default.
    """
    try:
        options = parse(text)
    except StrictJsonError as error:
        return CheckerVerdict(accepted=False, reasons=(json_refusal(error, "write an object of options"),))
    if not isinstance(options, dict):
        reason = Refusal("", f"{shown(options)} is not an object", 'write {"enable_dump": true, ...}')
        return CheckerVerdict(accepted=False, reasons=(reason,))
    return validate_options(options, cwd=cwd)


def validate_options(options: Mapping[str, Any], *, cwd: Path | None = None) -> CheckerVerdict:
    """Return TorchAir's verdict on these options, set one after the other."""
    base = Path.cwd() if cwd is None else cwd
    wrong = (reason for name, value in options.items() for reason in _option_reasons(name, value, base))
    if reasons := tuple(islice(wrong, MOST_REASONS)):
        return CheckerVerdict(accepted=False, reasons=reasons)
    need_dump = bool(options.get("enable_dump")) or options.get("dump_config_path") is not None
    return CheckerVerdict(accepted=True, warnings=tuple(_warnings(options)), need_dump=need_dump)


def _option_reasons(name: str, value: object, cwd: Path) -> Iterator[Refusal]:
    if name not in OPTIONS:
        yield Refusal(name, "no such option (ValueError)", one_of(OPTIONS, name))
    elif name in _CHOICES:
        allowed = _CHOICES[name]
        if value not in allowed:
            yield Refusal(
                name,
                f"{shown(value)} is not one of {json.dumps(allowed)} (ValueError)",
                "write true or false" if isinstance(allowed[0], bool) else one_of(map(str, allowed), value),
            )
    elif name in _PATTERNS:
        pattern, remedy = _PATTERNS[name]
        if not isinstance(value, str):
            yield Refusal(name, f"{shown(value)} is not a string (TypeError)", remedy)
        elif not pattern.match(value):
            yield Refusal(name, f"{shown(value)} is refused (ValueError)", remedy)
    elif name == _PATH and value == "":
        yield Refusal(name, "empty (ValueError)", "name the acl.json, or leave the option out")
    elif value is not None and not isinstance(value, str):
        yield Refusal(name, f"{shown(value)} is not a path", "write it as a string")
    else:
        remedy = f"create it first; relative paths start from {cwd}"
        if name == "dump_path" and not _test(os.path.isdir, value, cwd):
            yield Refusal(name, f"{shown(value)} is not an existing directory (FileNotFoundError)", remedy)
        elif (
            name == _PATH
            and value is not None
            and not (value.endswith(".json") and _test(os.path.isfile, value, cwd))
        ):
            problem = f"{shown(value)} is not an existing file that ends in .json (FileNotFoundError)"
            yield Refusal(name, problem, remedy)


def _test(test: Callable[[str], bool], path: str | None, cwd: Path) -> bool:
    return bool(path) and "\0" not in str(path) and test(str(cwd / str(path)))


def _warnings(options: Mapping[str, Any]) -> Iterator[str]:
    enabled, step = bool(options.get("enable_dump")), options.get("dump_step", "")
    named = options.get("dump_config_path") is not None
    consequence = "aclmdlSetDump refuses it, and TorchAir does not say so"
    reasons = (
        f"{reason.item}: {reason.problem}; {consequence}" for reason in step_reasons(step.removesuffix("\n"))
    )
    told = (
        (not enabled and not named, "enable_dump: false, so nothing is dumped"),
        (
            enabled and named,
            "dump_config_path: replaced by the other options once a graph is compiled; write one of the two",
        ),
        *((True, words) for words in few(reasons, "dump_step")),
        (
            step.endswith("\n"),
            "dump_step: ends in a line end, which aclmdlSetDump refuses and TorchAir does not say so",
        ),
        (options.get("quant_dumpable"), "quant_dumpable: lost on the way to CANN, which has no such key"),
        (
            enabled and "dump_mode" not in options,
            'dump_mode: TorchAir\'s default is "all", acl.json\'s is "output"',
        ),
    )
    return (words for there, words in told if there)


def fill(config: Any | None, acl_json: Path, *, scope: bool = False) -> Any:
    """Fill the ``dump_config`` of a ``CompilerConfig`` and return the ``CompilerConfig``.

    Args:
        config: the object to fill; None for a new one. What its ``dump_config`` asked for is replaced.
        acl_json: the dump wanted.
        scope: whether graphs mark what is dumped with ``torchair.scope.data_dump``.

    Raises:
        ConfigError: TorchAir would refuse the dump, or lose part of it without a word.
        RuntimeUnavailableError: TorchAir cannot be imported, or its options do not keep what they are given.
    """
    filled = _new_config() if config is None else config
    try:
        mode, options = _value(filled.mode), filled.dump_config
    except AttributeError as error:
        raise ConfigError(
            f"{type(filled).__name__}: not a torchair.CompilerConfig: {error}; give that, or nothing"
        ) from error
    if mode != _GRAPH_ENGINE:
        raise ConfigError(
            f"CompilerConfig.mode is {mode!r}, in which TorchAir saves torch files and no ACL dump; with "
            f"npu_dump use {_GRAPH_ENGINE!r}"
        )
    wanted: dict[str, Any]
    if scope or not hasattr(options, _PATH):
        cleared = {_PATH: None} if hasattr(options, _PATH) else {}
        wanted = cleared | _options(acl_json, scope=scope)
    else:
        wanted = {"enable_dump": False, _PATH: str(acl_json)}
    verdict = validate_options(wanted)
    if not verdict.accepted:
        raise ConfigError(f"TorchAir refuses this dump: {verdict.message}")
    for name, value in wanted.items():
        _set(options, name, value)
    _ask_for_graphs(filled, acl_json.parent)
    return filled


def _new_config() -> Any:
    try:
        return importlib.import_module("torchair").CompilerConfig()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise RuntimeUnavailableError(
            f"torchair.CompilerConfig() cannot be made: {in_one_line(error)}; give "
            f"npu_dump.torchair_config() the configuration that the test compiles its model with"
        ) from error


def _options(acl_json: Path, *, scope: bool) -> dict[str, Any]:
    """Return the options that ask for the dump of ``acl_json``."""
    section = json.loads(acl_json.read_text(encoding="utf-8"))["dump"]
    if tuple(section.get("dump_stats", ())) == STATISTICS:  # what is asked for where a test names none
        del section["dump_stats"]
    items = section.get("dump_list", ())
    beyond = {
        *(section.keys() - {*_SAME_NAME, "dump_list", "dump_op_switch"}),
        *(name for item in items for name in item),
    }
    beyond |= {"scene='op'"} if section.get("dump_op_switch") == "on" else set()
    if lost := sorted(beyond - {"layer"}):
        why = "torchair.scope.data_dump needs TorchAir's own options" if scope else f"it has no {_PATH}"
        raise ConfigError(
            f"{', '.join(lost)}: this TorchAir cannot be told so ({why}, which know only "
            f"{', '.join(_SAME_NAME)} and layers); take it out of the marker"
        )
    layers = [layer for item in items for layer in item.get("layer", ())]
    if any(" " in layer for layer in layers):
        raise ConfigError(
            f"layers {layers}: TorchAir's dump_layer is parted by blanks, so no name may hold one"
        )
    options = {name: section[name] for name in _SAME_NAME if name in section}
    return {"enable_dump": True, "dump_step": "", **options, "dump_layer": " ".join(layers)}


def _set(options: Any, name: str, value: object) -> None:
    try:
        setattr(options, name, value)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"TorchAir refuses dump_config.{name} = {value!r}: {in_one_line(error)}") from error
    if (kept := _value(getattr(options, name))) != _as_told(value):
        raise RuntimeUnavailableError(
            f"TorchAir's dump_config.{name} is {kept!r} after it was set to {value!r}, a version not known"
        )


def _value(option: object) -> object:
    """Return an option's value as TorchAir passes it on: text, with True as "1", or None."""
    return _as_told(getattr(option, "value", option))


def _as_told(value: object) -> object:
    plain = int(value) if isinstance(value, bool) else value
    return None if plain is None else str(plain)


def _ask_for_graphs(config: Any, folder: Path) -> None:
    """Have TorchAir write its graphs as text, unless its user wants them elsewhere, or it cannot.

    Without them a failure names the first tensor that differs, and says that its sources are not known.
    """
    dump: Any = getattr(getattr(config, "debug", None), "graph_dump", None)
    if not hasattr(dump, "path") or not hasattr(dump, "type"):
        return
    taken = getattr(dump.type, "value", dump.type) is not None
    if taken and Path(str(dump.path)).name != GRAPHS:
        return
    with suppress(ValueError, TypeError, OSError, AttributeError):
        target = folder / GRAPHS
        target.mkdir(exist_ok=True)
        dump.path = str(target)
        dump.type = "txt"
