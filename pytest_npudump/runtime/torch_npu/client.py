"""torch_npu itself: functions that dump and wait, devices, switches, a dump that the test switches.

The dump's three functions exist twice. Those of ``torch_npu.npu`` queue the calls until the device is first
used and ignore what ACL answers; those of ``torch_npu.npu.utils``, used here, initialise the device and
raise.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError, RuntimeUnavailableError
from pytest_npudump.runtime.acl import REPEAT_INITIALIZE, AclError, variable_facts
from pytest_npudump.runtime.replaced import Replaced
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


UTILS = "torch_npu.npu.utils"
_QUEUEING = "torch_npu.npu.npu_config"
_CODE = re.compile(r"error code is (-?\d+)")
_PREFIX = re.compile(r"\[ERROR\] \S+ \(PID:[^)]*\)")


def call(torch_npu: Any, name: str, *arguments: object) -> None:
    """Call a function of torch_npu by its name.

    Args:
        torch_npu: the module.
        name: with the modules it is in: ``torch_npu.npu.synchronize``.
        arguments: what it takes.

    Raises:
        AclError: ACL refuses, by the code in the client's words.
        RuntimeUnavailableError: this torch_npu has no such function, or it fails in another way.
    """
    function: Any = torch_npu
    for part in name.split(".")[1:]:
        function = getattr(function, part, None)
    if function is None or getattr(function, "__module__", "") == _QUEUEING:
        raise RuntimeUnavailableError(
            f"torch_npu {getattr(torch_npu, '__version__', '')} has no {name} that reports errors; the dump "
            f"functions of torch_npu.npu ignore what ACL answers and are not used in its place"
        )
    text = f"{name}({', '.join(map(repr, arguments))})"
    try:
        function(*arguments)
    except (RuntimeError, OSError, AssertionError) as error:
        raise _refused(text, str(error)) from None


def _refused(call: str, words: str) -> RuntimeUnavailableError:
    """Return the error for what the client raised, with ACL's code where its text has one."""
    first, _, rest = words.partition("\n")
    match = _CODE.search(first)
    if match is None:
        return RuntimeUnavailableError(f"{call}: {' '.join(words.split())}")
    code = int(match[1])
    detail = " ".join(_PREFIX.sub("", rest).split())
    if code == REPEAT_INITIALIZE:
        detail = (
            "a dump is on already: end it with torch_npu.npu.utils.finalize_dump() before the marked test, "
            "and leave ACL_DUMP_DATA unset"
        )
    return AclError(call, code, detail)


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


_INITIALISE = "_npu_initDump"
_FINALISE = "_npu_finalizeDump"
_OPTIONS = "_npu_setOption"
_SWITCH = "mdldumpswitch"
_TORCHAIR = "_torchair"
"""The module of TorchAir that is C++, and switches its dump on there."""


class DumpOfTest:
    """The calls that switch a dump on and off, from :meth:`watch` to :meth:`stop`.

    They are looked at below ``torch_npu.npu.utils`` and ``torch_npu.npu``, in ``torch_npu._C``.
    """

    def __init__(self) -> None:
        self._on: bool | None = None
        self._unseen = False
        self._replaced = Replaced()

    def watch(self, torch_npu: Any) -> None:
        """Look at every call from now on."""
        self._replace(torch_npu._C, _INITIALISE, lambda _: self._switch(on=True))  # noqa: SLF001 - its C++
        self._replace(torch_npu._C, _FINALISE, lambda _: self._switch(on=False))  # noqa: SLF001 - the same
        self._replace(torch_npu._C, _OPTIONS, self._see_options)  # noqa: SLF001 - the same

    def stop(self) -> bool:
        """Put the calls back; return whether the dump has to be ended, or may have to be."""
        watched = bool(self._replaced)
        self._replaced.put_back()
        return watched and (self._unseen or self._torchair() if self._on is None else self._on)

    def _switch(self, *, on: bool) -> None:
        self._on = on

    def _see_options(self, arguments: tuple[Any, ...]) -> None:
        """What ACL answers there is ignored by the client, so that a dump may be on and may not."""
        self._unseen = self._unseen or any(_SWITCH in options for options in arguments)

    @staticmethod
    def _torchair() -> bool:
        return any(name.rpartition(".")[2] == _TORCHAIR for name in sys.modules)

    def _replace(self, module: Any, name: str, see: Callable[[tuple[Any, ...]], None]) -> None:
        def watched(original: Callable[..., Any], *arguments: Any) -> Any:
            result = original(*arguments)
            see(arguments)
            return result

        self._replaced.put(module, name, watched)


def switches(torch_npu: Any) -> dict[str, str]:
    """Return the facts that are known of this process: ``torch``, ``deterministic``, ``hf32`` and the like.

    ``hf32`` names what may compute in it, ``matmul`` and ``conv``, or is ``off``: torch_npu allows it to
    convolutions unless told otherwise (``torch_npu/npu/npu_config.py``).

    Args:
        torch_npu: the module. What an older one does not have is left out.
    """
    facts: dict[str, str] = {}
    torch: Any = sys.modules.get("torch")
    with suppress(AttributeError):
        facts["torch"] = str(torch.__version__)
        facts["deterministic"] = "on" if torch.are_deterministic_algorithms_enabled() else "off"
    with suppress(AttributeError, RuntimeError):
        allowed = [name for name in ("matmul", "conv") if getattr(torch_npu.npu, name).allow_hf32 is True]
        facts["hf32"] = "+".join(allowed) or "off"
    return facts | variable_facts()
