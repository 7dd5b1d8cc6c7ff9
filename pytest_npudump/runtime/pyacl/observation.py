"""Observation of calls that the code under test makes of pyACL itself.

Where a healthy run leaves no file, only they show that a model ran under the dump: that its configuration was
set, that a model was loaded behind it, and that this model ran; and that every other model that ran did not.
Each call goes through unchanged.

``acl.op.set_model_dir`` CANN takes once a process: every further call is answered with 100002, whatever
directory it names, and what the first one has loaded stays. So a run that asks for the models that are loaded
gets 0, as it would in a process of its own; a run that asks for others cannot have them here.

In a calibration the inputs of models are perturbed in their buffers.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path, PurePath
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import RuntimeUnavailableError, in_one_line
from pytest_npudump.runtime.acl import REPEAT_INITIALIZE, SUCCESS, AclError
from pytest_npudump.runtime.pyacl.model import numpy_dtype, read, upload
from pytest_npudump.runtime.replacement import PerturbedCalls, Replaced, Unreached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_npudump.runtime.base import Evidence


_WAITS = ("synchronize_stream", "synchronize_stream_with_timeout", "synchronize_device")
"""Calls that report the failure of work put on a stream."""
_STILL_RUNNING = 507046
"""``ACL_ERROR_RT_STREAM_SYNC_TIMEOUT``: the time that the application gives the work is over."""
_DEVICE_ERRORS = frozenset(range(507000, 508000)) - {_STILL_RUNNING}
"""Codes of ``rt_error_codes.h`` for what went wrong on the device."""
_DIVERTED = (
    "the test registered a function of its own with acl.mdl.dump_reg_callback(), and what is dumped goes "
    "there instead of into files"
)


class ObservedCalls:
    """The calls of one module ``acl`` from :meth:`watch` to :meth:`stop`.

    Attributes:
        dump_open: whether a dump has been initialised since and not finalised.

    Args:
        acl: the module.
        is_config: whether a path given to ``acl.mdl.set_dump`` is the configuration of the test.
        evidence: where what was seen goes.
        names: files of the models that were loaded, by their ids: those that the caller has seen so far, to
            which those seen here are added.
    """

    def __init__(
        self,
        acl: Any,
        is_config: Callable[[object], bool],
        evidence: Evidence,
        names: dict[object, str] | None = None,
    ) -> None:
        self._acl = acl
        self._is_config = is_config
        self._evidence = evidence
        self._names = {} if names is None else names
        self.dump_open = False
        self._on = False
        self._models: set[object] = set()
        self._operators: dict[object, str] = {}
        self._runners: defaultdict[tuple[str, str], set[Thread]] = defaultdict(set)
        evidence.runners.append(self._runners)
        self._replaced = Replaced()

    def watch(self) -> None:
        """Look at every call from now on; a function that pyACL does not have is not looked for."""
        mdl, op, rt = self._acl.mdl, getattr(self._acl, "op", None), getattr(self._acl, "rt", None)
        for module, names, see in (
            (mdl, ("init_dump",), self._init_dump),
            (mdl, ("set_dump",), self._set_dump),
            (mdl, ("finalize_dump",), self._finalize_dump),
            (mdl, ("dump_reg_callback",), self._register),
            (
                mdl,
                (
                    "load_from_file",
                    "load_from_mem",
                    "load_from_file_with_mem",
                    "load_from_mem_with_mem",
                    "load_with_config",
                ),
                self._load,
            ),
            (mdl, ("execute", "execute_async", "execute_v2"), self._run),
            (op, ("execute", "execute_v2", "execute_with_handle"), self._run_operator),
            (op, ("create_handle",), self._create_handle),
            (rt, _WAITS, self._failed),
        ):
            for name in names:
                self._replace(module, name, see)

    def stop(self) -> None:
        """Put every function back, but those that something else has replaced meanwhile."""
        self._replaced.put_back()

    def _replace(self, module: Any, name: str, see: Callable[[str, tuple[Any, ...], Any], None]) -> None:
        call = f"{getattr(module, '__name__', 'acl')}.{name}"

        def watched(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            see(call, arguments, result)
            return result

        self._replaced.put(module, name, watched)

    def _init_dump(self, _: str, __: tuple[Any, ...], code: Any) -> None:
        self.dump_open = self.dump_open or code == SUCCESS

    def _set_dump(self, _: str, arguments: tuple[Any, ...], code: Any) -> None:
        if code == SUCCESS and arguments:
            self._switch(on=self._is_config(arguments[0]))

    def _finalize_dump(self, _: str, __: tuple[Any, ...], code: Any) -> None:
        if code == SUCCESS:
            self.dump_open = False
            self._switch(on=False)

    def _switch(self, *, on: bool) -> None:
        self._on = on
        if not on:
            self._models.clear()

    def _register(self, _: str, __: tuple[Any, ...], code: Any) -> None:
        if code == SUCCESS:
            self._note(self._evidence.missing, _DIVERTED)

    def _load(self, _: str, arguments: tuple[Any, ...], result: Any) -> None:
        if result[-1] != SUCCESS:
            return
        model, source = result[0], arguments[0] if arguments else None
        self._names.pop(model, None)
        self._evidence.loaders[str(model)] = current_thread()
        if isinstance(source, str):
            self._names[model] = source
        self._models.discard(model)  # where an id is given out again
        if self._on:
            self._models.add(model)
            if isinstance(source, str):
                self._evidence.files.add(self._evidence.files.look(Path(source)))
            self._note(self._evidence.models, self._names.get(model, f"model {model}"))

    def _run(self, call: str, arguments: tuple[Any, ...], code: Any) -> None:
        if not arguments or (code != SUCCESS and code not in _DEVICE_ERRORS):
            return
        if arguments[0] not in self._models:
            self._note(self._evidence.missing, self._why_undumped(arguments[0]))
            return
        self._runners[self._name(arguments[0]), str(arguments[0])].add(current_thread())
        if code == SUCCESS:
            self._note(self._evidence.shown, "a model that was loaded under the dump ran")
        self._failed(call, arguments, code)

    def _why_undumped(self, model: object) -> str:
        name = self._name(model)
        if self._on:
            return (
                f"{name} was loaded before the dump was set (each capture sets one of its own); CANN does "
                f"not dump it"
            )
        return (
            f"{name} ran in the test's own process while no dump was on there (npu_dump.config_path and "
            f"npu_dump.run() give it up)"
        )

    def _name(self, model: object) -> str:
        return PurePath(self._names[model]).name if model in self._names else f"model {model}"

    def _create_handle(self, _: str, arguments: tuple[Any, ...], result: Any) -> None:
        if arguments and result[-1] == SUCCESS:
            self._operators[result[0]] = str(arguments[0])

    def _run_operator(self, call: str, arguments: tuple[Any, ...], code: Any) -> None:
        if self._on and arguments and (code == SUCCESS or code in _DEVICE_ERRORS):
            operator = self._operators.get(arguments[0], str(arguments[0]))
            self._runners[operator, ""].add(current_thread())
        self._failed(call, arguments, code)

    def _failed(self, call: str, _: tuple[Any, ...], code: Any) -> None:
        if self._on and code in _DEVICE_ERRORS:
            self._note(self._evidence.failed, f"{call} returned {code}")

    @staticmethod
    def _note(notes: list[str], words: str) -> None:
        if words not in notes:
            notes.append(words)


_CALL = "set_model_dir"
_ELSEWHERE = (
    "acl.op.set_model_dir({path!r}) returned 100002: CANN takes it once a process, and this one has loaded "
    'models by then that are not known to be the same: give the test isolation="process"'
)


class ModelDirectory:
    """The directory of single-operator models that a process has loaded, through all of its tests."""

    def __init__(self) -> None:
        self._loaded = ""
        self._answered = False
        self._evidence: Evidence | None = None
        self._replaced = Replaced()

    def watch(self, acl: Any, evidence: Evidence, *, resumed: bool) -> None:
        """Look at calls from now on.

        Args:
            acl: the module.
            evidence: where a note on what cannot be loaded goes.
            resumed: whether this goes on with the run that was watched before.
        """
        self.stop()
        self._answered = resumed and self._answered
        self._evidence = evidence
        self._replaced.put(getattr(acl, "op", None), _CALL, self._answer)

    def stop(self) -> None:
        """Put the function back, unless something else has replaced it meanwhile."""
        self._replaced.put_back()

    def _answer(self, original: Callable[..., Any], *arguments: Any) -> Any:
        code = original(*arguments)
        answered, self._answered = self._answered, True
        if code == SUCCESS:
            self._loaded = _models_in(arguments[0])
        elif code == REPEAT_INITIALIZE and not answered:
            if self._loaded and self._loaded == _models_in(arguments[0]):
                return SUCCESS
            if self._evidence is not None:
                self._evidence.notes.append(_ELSEWHERE.format(path=arguments[0]))
        return code


def _models_in(directory: str) -> str:
    """Return a digest of the names and contents of the files below a directory; "" if one cannot be read.

    Links are followed, each folder once: a further way to it counts by its name and that of the first one.
    """
    digest = hashlib.sha256()
    first: dict[str, str] = {}
    with suppress(OSError):
        for folder, below, files in os.walk(directory, onerror=_refuse, followlinks=True):
            name = os.path.relpath(folder, directory)
            known = first.setdefault(os.path.realpath(folder), name)
            digest.update(os.fsencode(f"{name}\0{known}\0"))
            below.sort()
            if known != name:
                below.clear()
                continue
            for path in (Path(folder, file) for file in sorted(files)):
                content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                digest.update(os.fsencode(f"{path.name}\0{content}\0"))
        return digest.hexdigest()
    return ""


def _refuse(error: OSError) -> None:
    raise error


_STREAM = 3
"""Position of the stream among the arguments of ``acl.mdl.execute_async``."""


class VariedModels(PerturbedCalls):
    """The executions of models from :meth:`vary` to the next one, the test's own calls included.

    An execution on a stream is waited for before and behind it: its inputs may still be on their way there,
    and get their values back.

    Args:
        acl: the module.
    """

    def __init__(self, acl: Any) -> None:
        super().__init__()
        self._acl = acl

    @property
    def wanted(self) -> bool:
        """Return whether the variation has inputs perturbed or noted; ``execute`` is not waited for."""
        return super().wanted or self.varying.variation.looks

    def _replace_calls(self) -> None:
        for name in ("execute", "execute_v2"):
            self._replaced.put(self._acl.mdl, name, self._run)
        self._replaced.put(self._acl.mdl, "execute_async", self._run_on_stream)

    def _run(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if len(arguments) <= 1:
            return original(*arguments, **named)
        with self.of(list(self._inputs_of(*arguments[:2]))):
            return original(*arguments, **named)

    def _run_on_stream(self, original: Callable[..., Any], *arguments: Any) -> Any:
        if len(arguments) <= _STREAM or not super().wanted:
            return original(*arguments)
        stream = arguments[_STREAM]
        self._acl.rt.synchronize_stream(stream)
        with self.of(list(self._inputs_of(*arguments[:2]))):
            code = original(*arguments)
            self._acl.rt.synchronize_stream(stream)
            return code

    def _inputs_of(self, model: int, dataset: int) -> Iterator[_Buffer]:
        mdl = self._acl.mdl
        desc = mdl.create_desc()
        try:
            if mdl.get_desc(desc, model):
                return  # what ACL does not know as a model it refuses by itself
            for index in range(mdl.get_num_inputs(desc)):
                buffer = mdl.get_dataset_buffer(dataset, index)
                size = self._acl.get_data_buffer_size_v2(buffer) if buffer else 0
                name = mdl.get_input_name_by_index(desc, index)
                number = mdl.get_input_data_type(desc, index)
                address = self._acl.get_data_buffer_addr(buffer) if size else 0
                yield _Buffer(self._acl, name, number, address, size)
        finally:
            mdl.destroy_desc(desc)


class _Buffer:
    """The memory of an input."""

    def __init__(self, acl: Any, name: str, number: int, address: int, size: int) -> None:
        self.name = name
        self._acl, self._number, self._address, self._size = acl, number, address, size

    def read(self) -> np.ndarray:
        """Return its elements, of shape (n,)."""
        try:
            dtype = numpy_dtype(self._number)
            count = self._size // dtype.itemsize
            data = read(self._acl, self._address, count * dtype.itemsize) if count else b""
        except (AclError, RuntimeUnavailableError) as error:
            raise Unreached(in_one_line(error)) from None
        return np.frombuffer(data, dtype)

    def write(self, values: np.ndarray) -> None:
        """Copy elements to it; raise AclError where ACL refuses."""
        upload(self._acl, self._address, values)
