"""Which devices a process of torch_npu uses, and what ACL is initialised with there."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE_FORMATS = frozenset({-1, 0, 1, 2, 30})
"""Undefined, NCHW, NHWC, ND and NCDHW of ``aclFormat``: copying a tensor in another one runs an operator."""
_INIT_FILE = "TORCH_ACL_INIT_CONFIG_PATH"


@contextmanager
def initialising_with(config: Path) -> Iterator[None]:
    """Have torch_npu initialise ACL with the dump of ``config``, if it does so inside the block.

    ``aclInit`` comes before the device is set, which ``aic_err_detail_dump`` needs. What a file that the user
    names has to say besides ``dump`` stays.

    Raises:
        ConfigError: that file cannot be read, or holds no JSON object.
    """
    before = os.environ.get(_INIT_FILE)
    file = config.with_name(f"{config.stem}-init.json")
    file.write_text(json.dumps(_with_dump_of(config, before), indent=2) + "\n", encoding="utf-8")
    file.chmod(0o600)
    os.environ[_INIT_FILE] = str(file)
    try:
        yield
    finally:
        del os.environ[_INIT_FILE]
        if before is not None:
            os.environ[_INIT_FILE] = before


def _with_dump_of(config: Path, named: str | None) -> dict[str, Any]:
    dump: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    if not named:
        return dump
    try:
        root = json.loads(read_regular(Path(named)))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{_INIT_FILE}={named}: cannot be read: {error}; name a JSON file") from error
    if not isinstance(root, dict):
        raise ConfigError(f"{_INIT_FILE}={named}: expected a JSON object; torch_npu would refuse it too")
    return {**root, **dump}


def other_devices(torch_npu: Any) -> list[int]:
    """Return the devices but the current one that this process uses; none is opened for that."""
    current = torch_npu.npu.current_device()
    devices = range(torch_npu.npu.device_count())
    return [device for device in devices if device != current and _is_used(torch_npu, device)]


def why_private(torch_npu: Any, tensor: Any) -> str:
    """Say why the memory of a tensor of the device is not laid out as torch has it; "" where it is."""
    tells = getattr(torch_npu, "get_npu_format", None)
    if tells is None or tells(tensor) in BASE_FORMATS:
        return ""
    return "one of its arguments is in a private format of the device"


def _is_used(torch_npu: Any, device: int) -> bool:
    """Whether this process has a context on a device, or memory there, where CANN cannot be asked."""
    has_context = getattr(getattr(torch_npu, "_C", None), "_npu_hasPrimaryContext", None)
    if has_context is not None:
        with suppress(RuntimeError):  # aclrtGetPrimaryCtxState is not in every CANN
            return bool(has_context(device))
    return bool(torch_npu.npu.memory_reserved(device))
