"""``acl.mdl.load_with_config``: models loaded as a handle says.

Source: ``model_config.cpp`` of hicann/ge's ``acl_model`` (which attributes there are, and what a load type
needs) and ``mdl_wrap.cpp`` of pyACL (how a value is read).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.acl._load import load_file, load_memory
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.process.state import process
from pytest_npudump.emulator.unsupported import NotEmulatedError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRIORITY, _TYPE, _PATH, _ADDRESS, _SIZE = range(5)
_FROM_FILE, _FROM_MEMORY, _WITH_QUEUES = (1, 2), (3, 4), (5, 6)
_LIMITS: Mapping[int, tuple[int, int]] = MappingProxyType({_PRIORITY: (0, 7), _TYPE: (1, 6)})
_READ_AS: Mapping[int, str] = MappingProxyType({_PRIORITY: "i", _TYPE: "K", _PATH: "s"})
_WEIGHT_PATH = 14
"""The last attribute that pyACL has (``ACL_MDL_WEIGHT_PATH_PTR``)."""


@dataclass(slots=True)
class LoadConfig:
    """What was set, by attribute."""

    options: dict[int, Any] = field(default_factory=dict)


def create_config_handle(*_: object) -> int:
    """``() -> handle``."""
    return process().handles.add(LoadConfig())


def destroy_config_handle(*args: object) -> int:
    """``(handle) -> ret``."""
    (handle,) = parse("acl.mdl.destroy_config_handle", "k", args)
    found = process().handles.remove(handle, LoadConfig)
    return codes.INVALID_PARAM if found is None else codes.SUCCESS


def set_config_opt(*args: object) -> int:
    """``(handle, attribute, value) -> ret``: 100000 for a value that the attribute does not take."""
    call = "acl.mdl.set_config_opt"
    handle, attribute, value = parse(call, "kiO", args)
    config = process().handles.get(handle, LoadConfig)
    if config is None or not 0 <= attribute <= _WEIGHT_PATH:
        return process().explain(codes.INVALID_PARAM, f"{call}: no handle, or no attribute {attribute}")
    (read,) = parse(call, _READ_AS.get(attribute, "K"), (value,))
    low, high = _LIMITS.get(attribute, (None, None))
    if (low is not None and not low <= read <= high) or (attribute == _ADDRESS and not read):
        return process().explain(codes.INVALID_PARAM, f"{call}: attribute {attribute} takes no {read}")
    config.options[attribute] = read
    return codes.SUCCESS


def load_with_config(*args: object) -> tuple[int, int]:
    """``(handle) -> (model id, ret)``: 100000 where what the load type needs was not set.

    Memory for work and weights is unused, as in the other calls that load. Queues are of the device's own
    scheduler.

    Raises:
        NotEmulatedError: a load type of queues, or external weights of a model in memory.
    """
    call = "acl.mdl.load_with_config"
    (handle,) = parse(call, "k", args)
    config = process().handles.get(handle, LoadConfig)
    options = {} if config is None else config.options
    kind = options.get(_TYPE)
    if kind in _WITH_QUEUES:
        raise NotEmulatedError(call, "queues are of the device's own scheduler")
    if kind in _FROM_FILE and _PATH in options and _WEIGHT_PATH not in options:
        return load_file(call, options[_PATH])
    if kind in _FROM_MEMORY and _ADDRESS in options and options.get(_SIZE):
        if _WEIGHT_PATH in options:
            raise NotEmulatedError(call, "a directory of weights for a model in memory")
        return load_memory(call, options[_ADDRESS], options[_SIZE])
    return 0, process().explain(codes.INVALID_PARAM, f"{call}: the handle has not all that loading needs")
