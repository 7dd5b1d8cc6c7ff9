"""TorchAir's ``CompilerConfig().dump_config``, filled from an acl.json so that it asks for the same dump.

TorchAir hands ``dump_config_path`` to ACL as it is, and a refused file ends the compilation. Its other
options become an acl.json of TorchAir's own, whose refusal nobody hears of, and cannot say all that one
can: they are used for ``torchair.scope.data_dump``, which has no effect without them, and for versions
without ``dump_config_path``. Source: ``dump_config.py`` and ``_ge_concrete_graph/fx2ge_converter.py``.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl.soc import STATISTICS
from pytest_npudump.config.torchair.checker import validate_options
from pytest_npudump.config.torchair.graph_dump import ask_for_graphs
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_GRAPH_ENGINE = "max-autotune"
_PATH = "dump_config_path"
_SAME_NAME = ("dump_path", "dump_mode", "dump_data", "dump_step")


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
    ask_for_graphs(filled, acl_json.parent)
    return filled


def _new_config() -> Any:
    try:
        return importlib.import_module("torchair").CompilerConfig()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        words = " ".join(str(error).split())
        raise RuntimeUnavailableError(
            f"torchair.CompilerConfig() cannot be made: {words}; give npu_dump.torchair_config() the "
            f"configuration that the test compiles its model with"
        ) from error


def _options(acl_json: Path, *, scope: bool) -> dict[str, Any]:
    """Return the options that ask for the dump of ``acl_json``."""
    section = json.loads(acl_json.read_text(encoding="utf-8"))["dump"]
    if tuple(section.get("dump_stats", ())) == STATISTICS:  # what is asked for where a test names none
        del section["dump_stats"]
    lost = _beyond_options(section)
    if lost:
        why = "torchair.scope.data_dump needs TorchAir's own options" if scope else f"it has no {_PATH}"
        raise ConfigError(
            f"{', '.join(lost)}: this TorchAir cannot be told so ({why}, which know only "
            f"{', '.join(_SAME_NAME)} and layers); take it out of the marker"
        )
    layers = [layer for item in section.get("dump_list", ()) for layer in item.get("layer", ())]
    if any(" " in layer for layer in layers):
        raise ConfigError(
            f"layers {layers}: TorchAir's dump_layer is parted by blanks, so no name may hold one"
        )
    options = {name: section[name] for name in _SAME_NAME if name in section}
    return {"enable_dump": True, "dump_step": "", **options, "dump_layer": " ".join(layers)}


def _beyond_options(section: Mapping[str, Any]) -> list[str]:
    items = section.get("dump_list", ())
    beside = {name for item in items for name in item} - {"layer"}
    if section.get("dump_op_switch") == "on":
        beside.add("scene='op'")
    return sorted((section.keys() - {*_SAME_NAME, "dump_list", "dump_op_switch"}) | beside)


def _set(options: Any, name: str, value: object) -> None:
    try:
        setattr(options, name, value)
    except (ValueError, TypeError, OSError) as error:
        words = " ".join(str(error).split())
        raise ConfigError(f"TorchAir refuses dump_config.{name} = {value!r}: {words}") from error
    kept = _value(getattr(options, name))
    if kept != _as_told(value):
        raise RuntimeUnavailableError(
            f"TorchAir's dump_config.{name} is {kept!r} after it was set to {value!r}, a version not known"
        )


def _value(option: object) -> object:
    """Return what an option holds, as TorchAir hands it on: text, with True as "1", or None."""
    return _as_told(getattr(option, "value", option))


def _as_told(value: object) -> object:
    if value is None:
        return None
    return str(int(value)) if isinstance(value, bool) else str(value)
