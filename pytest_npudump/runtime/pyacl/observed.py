"""Calls that the code under test makes of pyACL itself, looked at as they pass.

Where a healthy run leaves no file, only they show that a model ran under the dump: that its configuration was
set, that a model was loaded behind it, and that this model ran; and that every other model that ran did not.
Each call goes through unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath
from threading import current_thread
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.acl.return_codes import SUCCESS
from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

    from pytest_npudump.runtime.base import Evidence

_LOADS = (
    "load_from_file",
    "load_from_mem",
    "load_from_file_with_mem",
    "load_from_mem_with_mem",
    "load_with_config",
)
_RUNS = ("execute", "execute_async", "execute_v2")
_OPERATORS = ("execute", "execute_v2", "execute_with_handle")
_WAITS = ("synchronize_stream", "synchronize_stream_with_timeout", "synchronize_device")
"""What tells that work put on a stream has failed."""
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
        self._replace(mdl, "init_dump", self._init_dump)
        self._replace(mdl, "set_dump", self._set_dump)
        self._replace(mdl, "finalize_dump", self._finalize_dump)
        self._replace(mdl, "dump_reg_callback", self._register)
        for name in _LOADS:
            self._replace(mdl, name, self._load)
        for name in _RUNS:
            self._replace(mdl, name, self._run)
        for name in _OPERATORS:
            self._replace(op, name, self._run_operator)
        self._replace(op, "create_handle", self._create_handle)
        for name in _WAITS:
            self._replace(rt, name, self._failed)

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
            self._note(self._evidence.models, self._names.get(model, f"model {model}"))

    def _run(self, call: str, arguments: tuple[Any, ...], code: Any) -> None:
        if not arguments or (code != SUCCESS and code not in _DEVICE_ERRORS):
            return
        if arguments[0] not in self._models:
            self._note(self._evidence.missing, self._why_undumped(arguments[0]))
            return
        self._runners[self._name(arguments[0]), str(arguments[0])].add(current_thread())
        if code == SUCCESS:
            self._note(self._evidence.shown, f"{call} ran a model that was loaded under the dump")
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
