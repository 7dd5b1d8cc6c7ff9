"""The adapter for PyTorch on the NPU: ``torch_npu`` runs the operators, and switches the dump on and off.

Operators run asynchronously, so the device is synchronised before the dump is switched on, which keeps
earlier operators out of it, and before it is switched off: ``finalize_dump`` waits too, but a device error
there ends the process. Every device that is in use is waited for.

The first exception dump that is on stays on until ``finalize_dump``, and torch_npu's own acl.json switches
one on with ``aclInit``. So the exception scene has torch_npu initialise ACL with its own file, where it can,
and ends whatever dump was on before. CANN's opbase looks once a process, at the first operator, at whether
overflows are dumped: that dump has to be on before the device is first used.

For a calibration the inputs of modules are perturbed. The outermost module that is called is a
model, and the tensors among its arguments are what it is fed. While it runs torch is as it was, so that what
it compiles has nothing of ours in it, and modules that other threads call meanwhile get what they are given.
Inside a compiled function nothing is perturbed.

The dump's three functions exist twice. Those of ``torch_npu.npu`` queue the calls until the device is first
used and ignore what ACL answers; those of ``torch_npu.npu.utils``, used here, initialise the device and
raise.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pytest_npudump.config.acl_json import refuse_operator_overflow
from pytest_npudump.config.cann import rules_version
from pytest_npudump.config.check import check_file
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError, in_one_line, said
from pytest_npudump.runtime.acl import (
    DUMP_NOT_RUN,
    ENDED_BY_TEST,
    MODE_UNKNOWN,
    REPEAT_INITIALIZE,
    AclError,
    AclJson,
    blind,
    variable_facts,
)
from pytest_npudump.runtime.aten import KeptCalls, KeptRun, NotCopiedError, WantedOutput, array_of
from pytest_npudump.runtime.base import RunActivity
from pytest_npudump.runtime.graphs import (
    CapturedGraphs,
    DispatchedOperators,
    GraphRules,
    ThreadsOfTest,
    leaves_graphs_alone,
)
from pytest_npudump.runtime.programs import origin_of_program
from pytest_npudump.runtime.replacement import PerturbedCalls, Replaced, Unreached, VariedRuntime
from pytest_npudump.storage.regular_file import read_regular

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
    """Return why torch does not know the layout of a device tensor's memory; "" where it does."""
    tells = getattr(torch_npu, "get_npu_format", None)
    if tells is None or tells(tensor) in BASE_FORMATS:
        return ""
    return "one of its arguments is in a private format of the device"


def _is_used(torch_npu: Any, device: int) -> bool:
    """Return whether this process has a context on a device, or memory there, where CANN cannot be asked."""
    has_context = getattr(getattr(torch_npu, "_C", None), "_npu_hasPrimaryContext", None)
    if has_context is not None:
        with suppress(RuntimeError):  # aclrtGetPrimaryCtxState is not in every CANN
            return bool(has_context(device))
    return bool(torch_npu.npu.memory_reserved(device))


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
        for name, on in (("_npu_initDump", True), ("_npu_finalizeDump", False), ("_npu_setOption", None)):
            self._replaced.put(torch_npu._C, name, partial(self._call, on))  # noqa: SLF001 - its C++

    def stop(self) -> bool:
        """Put the calls back; return whether the dump has to be ended, or may have to be."""
        watched = bool(self._replaced)
        self._replaced.put_back()
        torchair = any(name.rpartition(".")[2] == _TORCHAIR for name in sys.modules)
        return watched and (self._unseen or torchair if self._on is None else self._on)

    def _call(self, on: bool | None, original: Callable[..., Any], *arguments: Any) -> Any:  # noqa: FBT001 - of a table
        result = original(*arguments)
        if on is not None:
            self._on = on
        elif any("mdldumpswitch" in options for options in arguments):
            self._unseen = True  # the client ignores the result, so that a dump may be on and may not
        return result


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


_EXCEPTIONS = frozenset({"ARGS_EXCEPTION", "EXCEPTION", "AIC_ERR_DETAIL_DUMP"})
_OVERFLOW = "OP_OVERFLOW"
"""Dump types, as CANN's checker names them."""
_INF_NAN = blind("set INF_NAN_MODE_FORCE_DISABLE=1 before torch_npu starts")
_EAGER = (
    "while operators are looked for in this scene, this torch runs functions of torch.compile uncompiled; to "
    "test the graph itself takes one with TorchDispatchMode.ignore_compile_internals, as 2.13 has it"
)


_IDLE = said(
    "either no operator ran on the NPU while the dump was on, or CANN wrote nothing of "
    "those that did: make the test's tensors on the device 'npu', and run them inside "
    "the test or a function-scoped fixture (CANN writes no statistics for operators "
    "captured into a graph, and none of eager operators with dump_level='op')"
)
_UNSEEN = said(
    "no operator ran on the NPU in the test's own thread while the dump was on: move the "
    "model to the device 'npu' as well as its input (copies and newly made tensors do "
    "not count), and run it eagerly, inside the test or a function-scoped fixture; "
    "operators in other threads, in a replayed graph or in a graph of torch.compile are "
    "not seen here: run one of them in the test's thread, or test with scene='op'"
)
_RELEASED = said(
    "the test took npu_dump.config_path or torchair_config(), so it has to switch the dump "
    "on itself: compile its model with that configuration, or call init_dump() and "
    "set_dump(path) of torch_npu.npu.utils, which raise errors that torch_npu.npu.set_dump "
    "hides. TorchAir reads dump_config_path only with the first graph of a process: give "
    "such tests isolation='process'"
)


@dataclass(slots=True)
class TorchNpuRuntime(VariedRuntime, AclJson):
    """Runtime of ``torch_npu`` in this process.

    Attributes:
        torch_npu: the module.
        device: device id that is made the current one; with 0 the current device stays what it is.
        name: ``torch_npu``.
    """

    refused_while_collecting = frozenset({"overflow", "watcher"})
    seen_as_inputs = "tensors that a torch.nn.Module is called with, outside of compiled functions"

    torch_npu: Any
    device: int = 0
    name: str = "torch_npu"
    activity: RunActivity = field(default_factory=lambda: RunActivity(likely_cause=_IDLE))
    _dumping: bool = False
    _device_set: bool = False
    _dump_type: str = ""
    _operators: DispatchedOperators | None = None
    _config: Path | None = None
    _left: DumpOfTest | None = None
    _graphs: CapturedGraphs = field(default_factory=CapturedGraphs)
    _threads: ThreadsOfTest = field(default_factory=ThreadsOfTest)
    _varied: VariedModules = field(init=False)
    _calls: KeptCalls = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing that varies, and nothing to keep."""
        self._varied = VariedModules(self.torch_npu)
        self._calls = KeptCalls("npu", self._capturing, lambda tensor: why_private(self.torch_npu, tensor))

    def producer(self) -> Mapping[str, str]:
        """Return runtime, SoC name, versions and switches, as a golden records them."""
        facts = {"runtime": self.name, "torch_npu": str(self.torch_npu.__version__)}
        facts |= switches(self.torch_npu)
        # Without a device it would ask for the current one, and initialise the NPU for that.
        with suppress(RuntimeError, AssertionError):  # a fact for the reader, on which nothing depends
            facts["soc"] = str(self.torch_npu.npu.get_device_name(self.device))
        return origin_of_program(facts) if self.activity.programs else facts

    def soc_name(self) -> str:
        """Return the name of the device that this runtime uses."""
        self._select_device()  # or the name would be asked of another device, which that initialises
        return AclJson.soc_name(self)  # with slots the class is another one than super() knows

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Initialise the device and switch the dump on under ``config``.

        Args:
            config: the acl.json.
            resumed: whether this goes on with the test that was dumped before, for :attr:`activity`.

        Raises:
            ConfigError: ACL would refuse the file, or its dump could see nothing here.
            AclError: ACL refuses it, or a dump is on already.
            RuntimeUnavailableError: the device cannot be used, or this torch_npu has no such functions.
        """
        verdict = check_file(config, "acl", version=rules_version())
        if not verdict.accepted:
            raise ConfigError(f"{config}: {verdict.message}")
        self._dump_type = verdict.dump_type
        if self._dump_type == _OVERFLOW:
            refuse_operator_overflow(rules_version())
            if not resumed and self.torch_npu.npu.is_initialized():
                raise ConfigError(
                    said(
                        "scene='overflow': the NPU was initialised before the dump, and CANN decides once a "
                        "process, at its first operator, whether overflows are dumped; leave out "
                        "isolation='none', so that the test gets a process of its own, and use no NPU while "
                        "test modules and conftest.py are imported"
                    )
                )
        self.activity = self.activity if resumed else RunActivity(likely_cause=_IDLE)
        own = self._dump_type in _EXCEPTIONS and not self.torch_npu.npu.is_initialized()
        with initialising_with(config) if own else nullcontext():
            self._select_device()
            self._synchronize()
        call(self.torch_npu, f"{UTILS}.init_dump")
        if self._dump_type in _EXCEPTIONS:
            call(self.torch_npu, f"{UTILS}.finalize_dump")
            call(self.torch_npu, f"{UTILS}.init_dump")
        self._dumping = True
        try:
            call(self.torch_npu, f"{UTILS}.set_dump", str(config))
            if not self.torch_npu.npu.is_initialized():
                raise RuntimeUnavailableError(  # noqa: TRY301 - the dump is ended below
                    f"{UTILS}.set_dump returned although the NPU is not initialised, so that no dump is on"
                )
        except RuntimeUnavailableError:
            self._dumping = False
            with suppress(RuntimeUnavailableError):  # the first error is the one to read
                call(self.torch_npu, f"{UTILS}.finalize_dump")
            raise
        self.activity.initialised = True
        self._config = config
        if self._dump_type in _EXCEPTIONS | {_OVERFLOW}:
            self.activity.likely_cause = _RELEASED if self.activity.released else _UNSEEN
            self._operators = DispatchedOperators("npu", self._capturing)
            self._operators.start()
        self._watch_graphs(config)
        self._threads.watch()
        self._calls.start()

    def _watch_graphs(self, config: Path, *, released: bool = False) -> None:
        rules = GraphRules.of(config, rules_version(), released=released)
        self._graphs.watch(self.torch_npu, rules, self.activity.evidence)

    def _capturing(self) -> bool:
        return bool(getattr(self.torch_npu.npu, "is_current_stream_capturing", lambda: False)())

    def _watch_no_more(self) -> None:
        operators, self._operators = self._operators, None
        if operators is None:
            return
        operators.stop()
        evidence = self.activity.evidence
        if operators.first:
            evidence.shown.append(said("{names} ran on the NPU", names=operators.first))
        if not leaves_graphs_alone():
            evidence.notes.append(_EAGER)

    def _synchronize(self) -> None:
        """Wait for the current device, and for each other one that this process uses."""
        call(self.torch_npu, "torch_npu.npu.synchronize")
        for device in other_devices(self.torch_npu):
            call(self.torch_npu, "torch_npu.npu.synchronize", device)

    def _select_device(self) -> None:
        if self.device and not self._device_set:
            call(self.torch_npu, "torch_npu.npu.set_device", self.device)
        self._device_set = True

    def stop(self) -> None:
        """Wait for the devices in use and switch the dump off; does nothing where none is on.

        Raises:
            AclError: ACL cannot end the dump, so that files may be missing.
            RuntimeUnavailableError: an operator of the test failed on the device.
        """
        self._threads.stop(self.activity.evidence)
        self._graphs.stop()
        self._calls.stop()
        if not self._dumping:
            self._end_dump_of_test()
            return
        self._dumping = False
        self._watch_no_more()
        self._synchronize()
        if self._dump_type == _OVERFLOW:
            self._note_overflow_mode()
        try:
            call(self.torch_npu, f"{UTILS}.finalize_dump")
        except AclError as error:
            raise error if error.code != DUMP_NOT_RUN else error.because(ENDED_BY_TEST) from None

    def _note_overflow_mode(self) -> None:
        evidence = self.activity.evidence
        try:
            in_inf_nan_mode = self.torch_npu.npu.utils.is_support_inf_nan()
        except (AttributeError, RuntimeError) as error:
            evidence.notes.append(f"{MODE_UNKNOWN}: {in_one_line(error)}")
            return
        if in_inf_nan_mode and _INF_NAN not in evidence.blind:
            evidence.blind.append(_INF_NAN)

    def _end_dump_of_test(self) -> None:
        """End the dump that was left to the test where that has it on, once; ACL reports if none can."""
        left, self._left = self._left, None
        if left is None or not left.stop() or not self.torch_npu.npu.is_initialized():
            return
        self._synchronize()
        try:
            call(self.torch_npu, f"{UTILS}.finalize_dump")
        except AclError as error:
            if error.code != DUMP_NOT_RUN:
                raise

    def release(self) -> None:
        """Leave the dump to the code under test; asking again, with that code's own dump on, does nothing."""
        if self.activity.released and not self._dumping:
            return
        overflow = self._dump_type == _OVERFLOW
        self._dump_type = ""  # the mode of the device counts where the operators run, which is yet to come
        self.stop()
        self.activity.released, self.activity.likely_cause = True, _RELEASED
        self._left = DumpOfTest()
        self._left.watch(self.torch_npu)
        if self._config is not None:
            self._watch_graphs(self._config, released=True)
        if overflow:
            self.activity.evidence.notes.append(MODE_UNKNOWN)

    def keep_calls(self, wanted: Sequence[WantedOutput], limit: int) -> None:
        """Keep the calls that may give these outputs, from the next start on."""
        self._calls.want(wanted, limit)

    def kept_calls(self) -> KeptRun:
        """Return the calls that were kept."""
        return self._calls.kept()

    def load_model(self, path: Path) -> NoReturn:
        """Refuse: models of torch are loaded by torch.

        Raises:
            RuntimeUnavailableError: always; it says what to do instead.
        """
        raise RuntimeUnavailableError(
            said(
                "npu_dump.load_model({path!r}): the runtime torch_npu loads no model files. Build or "
                "load the model with torch in the test and move it to the device 'npu', where the "
                "dump is on; for an .om file use --npudump-runtime=acl",
                path=path.name,
            )
        )

    def close(self) -> None:
        """Switch the dump off; the device stays with torch, which gives it back when the process ends."""
        self.stop()


class VariedModules(PerturbedCalls):
    """The modules that are called from :meth:`vary` to the next one.

    Args:
        torch_npu: the module, which tells formats and whether a graph is being captured.
    """

    def __init__(self, torch_npu: Any) -> None:
        super().__init__()
        self._torch_npu = torch_npu

    def _replace_calls(self) -> None:
        module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
        self._replaced.put(module, "__call__", self._call)

    def _call(self, original: Callable[..., Any], module: Any, /, *arguments: Any, **named: Any) -> Any:
        torch = sys.modules["torch"]
        if torch.compiler.is_compiling():
            return original(module, *arguments, **named)
        inputs = [*self._inputs_of(type(module).__name__, {**dict(enumerate(arguments)), **named})]
        self._replaced.put_back()
        try:
            with self.of(inputs):
                return original(module, *arguments, **named)
        finally:
            if self.wanted:
                self._replace_calls()

    def _inputs_of(self, module: str, arguments: dict[Any, Any]) -> Iterator[_Tensor]:
        npu = getattr(self._torch_npu, "npu", None)
        capturing = getattr(npu, "is_current_stream_capturing", lambda: False)()
        seen = set()
        for place, argument in arguments.items():
            for name, tensor in _tensors(str(place), argument):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    why_not = "captured into a graph" if capturing else self._why_not(tensor)
                    yield _Tensor(f"{name} of {module}", tensor, why_not)

    def _why_not(self, tensor: Any) -> str:
        torch = sys.modules["torch"]
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            return type(tensor).__name__
        if tensor.device.type == "meta" or not tensor.is_contiguous():
            return "not contiguous in memory"
        if tensor.device.type != "npu":
            return ""
        return "in a private format" if why_private(self._torch_npu, tensor) else ""


class _Tensor:
    """A tensor, with why its values cannot be had; "" where they can."""

    def __init__(self, name: str, tensor: Any, why_not: str) -> None:
        self.name = name
        self._tensor = tensor
        self._why_not = why_not

    def read(self) -> np.ndarray:
        """Return a copy of its values, in ml_dtypes' type where numpy has none."""
        if self._why_not:
            raise Unreached(self._why_not)
        try:
            return array_of(self._tensor.detach().cpu())
        except NotCopiedError as error:
            raise Unreached(str(error)) from None

    def write(self, values: np.ndarray) -> None:
        """Copy values to where its own are, unseen by autograd."""
        torch = sys.modules["torch"]
        tensor = self._tensor.data  # has a version of its own, so that a backward pass may follow
        octets = torch.from_numpy(np.ascontiguousarray(values).reshape(-1).view(np.uint8).copy())
        with torch.inference_mode(mode=tensor.is_inference()):
            tensor.copy_(octets.view(tensor.dtype).reshape(tensor.shape))


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each tensor in an argument of a call, with its place there."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _tensors(f"{name}[{number}]", each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _tensors(f"{name}[{key!r}]", each)
