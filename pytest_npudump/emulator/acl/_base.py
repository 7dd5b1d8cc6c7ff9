"""Calls of pyACL as a table, and those of ``acl`` itself: life cycle, dump, data buffers, descriptions.

A call is a function with the kinds of its arguments before it::

    @RT("Ii", own_stream)
    def launch(number: int, flag: int, stream: Stream) -> None: ...

    RT.table({"get_run_mode": ((), (0, CODE), lambda: 1)})

A kind is a string of the codes of ``PyArg_ParseTuple`` (:data:`CONVERTERS`), one an argument; a class, for a
handle of such a thing (100000 for any other); or a function that makes of a handle what it stands for. A call
without kinds looks at none of its arguments, as in pyACL. Arguments are read before any handle is looked up.

What a call returns follows from ``refused``, its answer to a :class:`RefusedError`: :data:`CODE` alone for a
call that returns a code; a tuple that ends with it where results come before the code; else the result of
a call that returns no code. It may be a function that makes that of the arguments. The call's own function
gives its results without the code, or the code where nothing else is returned.

Sources: ``aclrt_impl/acl.cpp`` and ``aclrt_impl/toolchain/dump.cpp`` of hicann/runtime, ``dump_manager.cc``
of hicann/ge, for the order of checks and their codes.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np

from pytest_npudump.config import adump, ge
from pytest_npudump.config.acl_keys import remote_path
from pytest_npudump.config.json_file import StrictJsonError, parse as parse_json, read_config_file
from pytest_npudump.dump.dtypes import BY_GE
from pytest_npudump.emulator import codes
from pytest_npudump.emulator.codes import RefusedError, refuse_if
from pytest_npudump.emulator.dumps.exceptions import DETAIL, ExceptionDump
from pytest_npudump.emulator.dumps.recorder import DumpSettings, settings, statistics_mask
from pytest_npudump.emulator.dumps.writer import data_directory
from pytest_npudump.emulator.process import process
from pytest_npudump.onnxmodels.tensor_types import nbytes

Kind = str | type | Callable[[int], object]


T = TypeVar("T")

CODE: Any = object()
"""Stands for the code in what a call answers."""
_CALLED = {
    "DeviceContext": "context",
    "DataBuffer": "data buffer",
    "LoadConfig": "configuration",
    "ModelDesc": "model description",
    "OperatorAttributes": "operator attribute",
    "OperatorHandle": "operator handle",
    "Stream": "stream",
    "TensorDesc": "tensor description",
}


def _masked(bits: int) -> Callable[[Any], int]:
    return lambda value: operator.index(value) & ((1 << bits) - 1)


def _signed(bits: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = operator.index(value)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise OverflowError(number)
        return number

    return convert


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(value)
    value.encode()
    return value


def _list(member: Callable[[Any], T], *, arrays: bool = False) -> Callable[[Any], list[T]]:
    def convert(values: Any) -> list[T]:
        if arrays and isinstance(values, np.ndarray):
            values = values.reshape(-1).tolist()
        if not isinstance(values, list):
            raise TypeError(values)
        return [member(value) for value in values]

    return convert


CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "k": _masked(64),  # unsigned, masked as in C
    "K": _masked(64),
    "I": _masked(32),
    "B": _masked(8),
    "i": _signed(32),  # signed, checked
    "L": _signed(64),
    "f": lambda value: float(np.float32(float(value))),  # rounded as in C
    "d": float,
    "s": _text,
    "O": lambda value: value,
    "v": _list(_signed(64)),  # lists; those below may be arrays, too
    "S": _list(_text),
    "V": _list(_signed(64), arrays=True),
    "F": _list(lambda value: float(np.float32(float(value))), arrays=True),
    "T": _list(lambda value: int(bool(value)), arrays=True),
}


def parse(call: str, kinds: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``args`` as :data:`CONVERTERS` reads them; what follows ``|`` may be missing.

    Raises:
        TypeError: with pyACL's text, for a wrong number of arguments or a wrong type.
    """
    required, _, optional = kinds.partition("|")
    every = required + optional
    if not len(required) <= len(args) <= len(every):
        raise TypeError(f"{call} args parse failed!")
    try:
        return tuple(CONVERTERS[kind](value) for kind, value in zip(every, args, strict=False))
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{call} args parse failed!") from None


def known(kind: type[T], handle: int) -> T:
    """Return the object of a handle; 100000 for NULL, for a destroyed one, and for any other value."""
    found = process().handles.get(handle, kind)
    if found is None:
        called = _CALLED.get(kind.__name__, kind.__name__.lower())
        raise RefusedError(codes.INVALID_PARAM, f"{handle:#x} is no {called}")
    return found


def destroy(kind: type) -> Callable[[int], None]:
    """Return the call that destroys a thing of that kind."""

    def destroyed(handle: int) -> None:
        known(kind, handle)
        process().handles.remove(handle, kind)

    return destroyed


class Face:
    """A module of pyACL, and its calls by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: dict[str, Callable[..., Any]] = {}

    def __call__(
        self, *kinds: Kind, refused: Any = CODE
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make a call of the function that follows, under its name."""
        return lambda body: self._define(body.__name__, kinds, refused, body)

    def table(self, rows: Mapping[str, tuple[tuple[Kind, ...] | Kind, Any, Callable[..., Any]]]) -> None:
        """Make calls, each of its kinds (or its only one), what it answers where refused, and a function."""
        for name, (kinds, refused, body) in rows.items():
            self._define(name, kinds if isinstance(kinds, tuple) else (kinds,), refused, body)

    def _define(
        self, name: str, kinds: tuple[Kind, ...], refused: Any, body: Callable[..., Any]
    ) -> Callable[..., Any]:
        full, read = f"{self.name}.{name}", "".join(kind if isinstance(kind, str) else "k" for kind in kinds)
        resolvers: list[Callable[[Any], Any] | None] = []
        for kind in kinds:
            if isinstance(kind, str):
                resolvers += [None] * len(kind.replace("|", ""))
            else:
                resolvers.append(partial(known, kind) if isinstance(kind, type) else kind)

        @wraps(body)
        def call(*args: object) -> Any:
            given = parse(full, read, args) if kinds else ()
            answer = refused(*given) if callable(refused) else refused
            try:
                found = (v if to is None else to(v) for to, v in zip(resolvers, given, strict=False))
                result = body(*found)
            except RefusedError as error:
                code = process().explain(error.code, f"{full}: {error.why}")
                if isinstance(answer, tuple):
                    return tuple(code if part is CODE else part for part in answer)
                return code if answer is CODE else answer
            if isinstance(answer, tuple):
                return (*(result if len(answer) > len((result, CODE)) else (result,)), codes.SUCCESS)
            return codes.SUCCESS if answer is CODE and result is None else result

        call.__name__ = name
        self.calls[name] = call
        return call


ACL, MDL, OP, RT, UTIL = map(Face, ("acl", "acl.mdl", "acl.op", "acl.rt", "acl.util"))


_UNDEFINED = -1
SOC_NAME = "Emulator"
"""Name from ``acl.get_soc_name``: that of no chip, so that no golden claims to come from one."""
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


@dataclass(slots=True)
class DataBuffer:
    """An address and a size in bytes; neither is checked before the buffer is used, as in ACL."""

    address: int
    size: int


@ACL(DataBuffer, "kk")
def update_data_buffer(buffer: DataBuffer, address: int, size: int) -> None:
    """``(handle, ptr, size) -> ret``."""
    buffer.address, buffer.size = address, size


ACL.table(
    {
        "create_data_buffer": ("kk", 0, lambda ptr, size: process().handles.add(DataBuffer(ptr, size))),
        "destroy_data_buffer": ("k", CODE, destroy(DataBuffer)),
        "get_data_buffer_addr": (DataBuffer, 0, lambda buffer: buffer.address),
        "get_data_buffer_size": (DataBuffer, 0, lambda buffer: buffer.size),
        "get_data_buffer_size_v2": (DataBuffer, 0, lambda buffer: buffer.size),
    }
)


@dataclass(slots=True)
class TensorDesc:
    """Type, shape and layout of a tensor.

    Attributes:
        dtype: ``aclDataType``.
        shape: dimensions.
        format: ``aclFormat``.
        name: its name.
    """

    dtype: int
    shape: tuple[int, ...]
    format: int
    name: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor; 0 where a dimension varies or the type is unknown."""
        dtype = BY_GE.get(self.dtype)
        return 0 if dtype is None else nbytes(dtype, self.shape)


def _dim(desc: TensorDesc, index: int) -> int:
    refuse_if(index >= len(desc.shape), codes.INVALID_PARAM, f"there is no dimension {index}")
    return desc.shape[index]


ACL.table(
    {
        "create_tensor_desc": (
            "ivi",
            0,
            lambda dtype, dims, layout: process().handles.add(TensorDesc(dtype, tuple(dims), layout)),
        ),
        "destroy_tensor_desc": ("k", None, destroy(TensorDesc)),
        "get_tensor_desc_type": (TensorDesc, _UNDEFINED, lambda desc: desc.dtype),
        "get_tensor_desc_format": (TensorDesc, _UNDEFINED, lambda desc: desc.format),
        "get_tensor_desc_size": (TensorDesc, 0, lambda desc: desc.nbytes),
        "get_tensor_desc_element_count": (
            TensorDesc,
            0,
            lambda desc: 0 if min(desc.shape, default=0) < 0 else math.prod(desc.shape),
        ),
        "get_tensor_desc_num_dims": (TensorDesc, 0, lambda desc: len(desc.shape)),
        "get_tensor_desc_dim": ((TensorDesc, "k"), -1, _dim),
        "get_tensor_desc_dim_v2": ((TensorDesc, "k"), (0, CODE), _dim),
        "get_tensor_desc_name": (TensorDesc, "", lambda desc: desc.name),
        "set_tensor_desc_name": ((TensorDesc, "s"), None, lambda desc, name: setattr(desc, "name", name)),
        "trans_tensor_desc_format": (
            (TensorDesc, "i"),
            (0, CODE),
            lambda desc, layout: process().handles.add(replace(desc, format=layout)),
        ),
    }
)
# What these set has no meaning without an NPU: the device's layouts and shapes, and where it lies. A constant
# input has the value that its buffer holds at execution.
for _name, _value in (
    ("set_tensor_format", "i"),
    ("set_tensor_storage_format", "i"),
    ("set_tensor_origin_format", "i"),
    ("set_tensor_place_ment", "i"),
    ("set_tensor_shape", "v"),
    ("set_tensor_storage_shape", "v"),
    ("set_tensor_origin_shape", "v"),
    ("set_tensor_const", "kk"),
):
    ACL.table({_name: ((TensorDesc, _value), CODE, lambda *_: None)})


def _locked(call: Callable[..., T]) -> Callable[..., T]:
    """Let one thread at a time change what is dumped."""

    @wraps(call)
    def locked(*args: Any) -> T:
        with process().lock:
            return call(*args)

    return locked


@_locked
def init(path: str | None = None) -> int:
    """``([path]) -> ret``: 0, or 100002, 100003, 100006, 100000, 100009, 500000."""
    life = process().lifecycle
    if life.references:
        life.references += 1
        raise RefusedError(codes.REPEAT_INITIALIZE, "ACL is initialised already")
    text = _content(path) if path else b""
    refuse_if(
        life.first_content not in {None, text},
        codes.INVALID_PARAM,
        "this process was initialised with another configuration before, which is final",
    )
    code = _apply_init_file(text) if text else codes.SUCCESS
    if not code:
        life.first_content, life.references, life.finalized = text, 1, False
    return code


def _content(path: str) -> bytes:
    file = read_config_file(path)
    refuse_if(file.code, file.code, str(file.reason))
    return file.text


def _apply_init_file(text: bytes) -> int:
    try:
        root = parse_json(text)
    except StrictJsonError as error:
        raise RefusedError(codes.PARSE_FILE, f"the configuration is not JSON: {error}") from error
    # A tuple, no set: an array or an object cannot be looked up in one.
    if isinstance(root, dict) and root.get("err_msg_mode", "0") not in ("0", "1"):
        raise RefusedError(codes.INVALID_PARAM, 'err_msg_mode has to be "0" or "1"')
    return _apply(text, "acl.init")


@_locked
def finalize() -> None:
    """``() -> ret``: 0, or 100037 the second time. The dump's state stays as it is."""
    life = process().lifecycle
    refuse_if(life.finalized, codes.REPEAT_FINALIZE, "ACL is finalised already")
    life.references, life.finalized = 0, True


@_locked
def finalize_reference() -> int:
    """``() -> (remaining count, ret)``: 0 or 100037."""
    life = process().lifecycle
    refuse_if(not life.references, codes.REPEAT_FINALIZE, "nothing to finalise")
    if life.references > 1:
        life.references -= 1
    else:
        finalize()
    return life.references


@_locked
def init_dump() -> None:
    """``() -> ret``: 0, 100001 before ``acl.init``, or 100002 if it is open."""
    life = process().lifecycle
    refuse_if(not life.references, codes.UNINITIALIZE, "call acl.init first")
    refuse_if(life.dump_flag, codes.REPEAT_INITIALIZE, "a dump is open already")
    life.dump_flag = True


def _check_running() -> None:
    life = process().lifecycle
    refuse_if(not life.references, codes.UNINITIALIZE, "call acl.init first")
    refuse_if(not life.dump_flag, codes.DUMP_NOT_RUN, "call acl.mdl.init_dump first")


@_locked
def set_dump(path: str | None = None) -> int:
    """``([path]) -> ret``: 0, 100001, 100045, 100000, 100003, 100006, 100009 or 500000.

    Without a path 100000, as for NULL.
    """
    _check_running()
    if path is None:
        raise RefusedError(codes.INVALID_PARAM, "no path of a configuration")
    text = _content(path)
    return _apply(text, "acl.mdl.set_dump") if text else codes.SUCCESS


@_locked
def finalize_dump() -> None:
    """``() -> ret``: 0, 100001 or 100045. Switches every kind of dump off, but a detail dump."""
    _check_running()
    state = process()
    state.lifecycle.dump_flag = False
    if (exception := state.dumping.exception) is not None and exception.kind != DETAIL:
        state.dumping.exception = None
    _switch_off()


def _switch_off() -> None:
    state = process()
    state.dumping.settings = None
    for model in state.models.values():
        if model.plan is not None:
            model.plan.active = False


def _apply(text: bytes, call: str) -> int:
    """Switch on the dump of a configuration; it succeeds, with a message, where that dumps nothing."""
    state, verdict = process(), adump.validate(text)
    if not verdict.accepted or verdict.code:
        return state.explain(
            verdict.code or codes.INVALID_DUMP_CONFIG, f"{verdict.reason_code}: {call}: {verdict.message}"
        )
    if not verdict.need_dump:
        return codes.SUCCESS
    dumping, dump = state.dumping, verdict.dump
    overflow = verdict.dump_type == "OP_OVERFLOW"
    if verdict.dump_type != "OPERATOR" and not overflow:
        if dumping.exception is not None:
            return state.explain(codes.SUCCESS, f"{call}: an exception dump is on already and stays as it is")
        dumping.exception = ExceptionDump(verdict.dump_type, verdict.dump_path)
        return codes.SUCCESS
    refuse_if(
        remote_path(dump["dump_path"].encode()) is not None,
        codes.INTERNAL_ERROR,
        f"the emulator cannot send a dump to another host ({dump['dump_path']})",
    )
    if not overflow:
        dumping.statistics |= statistics_mask(dump)
    second = ge.validate_dump(dict(dump))  # whose answer ACL ignores
    if not second.accepted:
        lost = "no overflow" if overflow else "nothing"
        return state.explain(
            codes.SUCCESS, f"{call} succeeds, and yet {lost} is dumped, as GE refuses: {second.message}"
        )
    if state.collecting:
        return state.explain(
            codes.SUCCESS,
            f"{call} succeeds, and yet nothing is dumped, as GE refuses (E10056) while {state.collecting} is "
            f"set",
        )
    root = data_directory(dump["dump_path"], time.time())
    if overflow:
        new = DumpSettings(root, "all", 0, (), all_models=True, overflow=True)
    elif dump.get("dump_level") == "kernel":
        _switch_off()
        return state.explain(codes.SUCCESS, f"{call}: dump_level kernel dumps no operator of a model")
    else:
        new = settings(dump, root, dumping.statistics)
    # Models that are loaded from now on are dumped, and no other, as CANN's documents say. GE may re-arm
    # those that were loaded under an earlier dump; a test must not lean on that, since what it dumps would be
    # what the earlier configuration asked for.
    dumping.settings = new
    # Nobody asks for executions whose dump is deleted by now: the last test's, or any. As a session in
    # which tests fail keeps the dumps of all of these, all are looked at only as often as they double.
    every = len(state.dumped).bit_count() == 1
    for above, roots in [*reversed(state.dumped.items())]:
        for each in [*roots]:
            if not os.path.isdir(os.path.dirname(each[:-1])):  # noqa: PTH112, PTH120 - as CANN has it
                del roots[each]
        if not roots:
            del state.dumped[above]
        elif not every:
            break
    return codes.SUCCESS


_log = logging.getLogger("acl")


@ACL("i", refused=lambda *_: ({}, CODE))
def get_cann_version(_: int) -> None:
    """``(package) -> ({}, 100003)``: there is no CANN."""
    raise RefusedError(codes.INVALID_FILE, "the emulator runs without CANN")


@ACL("is", refused=None)
def app_log(level: int, text: str) -> None:
    """``(level, text) -> None``: goes to the logger ``acl``; levels 0 debug to 3 error."""
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.ERROR, "%s", text)


@ACL("i", refused=0)
def data_type_size(number: int) -> int:
    """``(aclDataType) -> bytes`` of an element; 0 where it has no size in whole bytes."""
    dtype = BY_GE.get(number)
    return 0 if dtype is None or dtype.name == "undefined" else dtype.bits // 8


def _float16_bits(value: float) -> int:
    with np.errstate(over="ignore"):
        return int(np.float16(value).view(np.uint16))


ACL.table(
    {
        "init": ("|s", CODE, init),
        "finalize": ((), CODE, finalize),
        "finalize_reference": ((), (0, CODE), finalize_reference),
        "float16_to_float": ("I", 0.0, lambda bits: float(np.uint16(bits & 0xFFFF).view(np.float16))),
        "float_to_float16": ("d", 0, _float16_bits),
        "get_version": ((), (0, 0, 0, CODE), lambda: (1, 15, 0)),
        "get_soc_name": ((), "", lambda: SOC_NAME),
        # of the calling thread's last failure, once
        "get_recent_err_msg": ((), None, lambda: process().take_message()),
    }
)
MDL.table(
    {
        "init_dump": ((), CODE, init_dump),
        "set_dump": ("|s", CODE, set_dump),
        "finalize_dump": ((), CODE, finalize_dump),
    }
)
