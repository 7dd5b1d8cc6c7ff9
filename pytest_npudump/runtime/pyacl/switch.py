"""ACL's dump, on with the first initialisation, and off whatever the application has done meanwhile.

The dump has to be on before a test loads its model, but ``aclmdlInitDump`` wants ``aclInit`` first, and an
application under test may call ``acl.init`` itself and take the answer 100002 (already initialised) for
an error. So nothing is initialised early: for the duration of a marked test ``acl.init`` is replaced by a
function that initialises ACL and then switches the dump on, and that answers 0 where it is only this
adapter that had initialised ACL before.

The first exception dump that is on stays on until ``finalize_dump``, also one that ``acl.init`` has switched
on. So where the test asks for one, whatever is on is ended before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.acl_keys import SCENE_TYPES
from pytest_npudump.runtime.acl import (
    DUMP_NOT_RUN,
    ENDED_BY_TEST,
    REPEAT_INITIALIZE,
    SUCCESS,
    UNINITIALIZE,
    AclError,
    check,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class DumpSwitch:
    """One process's initialisation of ACL, and the dump that it switches on.

    Attributes:
        acl: the module.
        opened: called whenever the dump has been switched on.
        on: whether a dump of ours is on.
        number: how many dumps have been switched on.
        initialised_here: whether it was this adapter that initialised ACL.
        device_set: whether this adapter has set its device since ACL was initialised.
        config: the acl.json of the dump that is on, or will be with the first ``acl.init``; None without one.
        released: the acl.json that was left to the test.
    """

    acl: Any
    opened: Callable[[], None]
    on: bool = False
    number: int = 0
    initialised_here: bool = False
    device_set: bool = False
    config: Path | None = None
    released: Path | None = None
    _acl_init: Callable[..., int] | None = None
    _init_arguments: tuple[Any, ...] = ()
    _answered: bool = False

    def start(self, config: Path, *, resumed: bool) -> None:
        """Switch the dump on under ``config`` where ACL is initialised, and else with the first ``acl.init``.

        Args:
            config: the acl.json.
            resumed: whether this goes on with the test that was dumped before.

        Raises:
            AclError: ACL refuses the configuration, or a dump is on already.
        """
        self.config = config
        self._answered = resumed and self._answered
        code = self.acl.mdl.init_dump()
        if code == REPEAT_INITIALIZE:
            detail = "a dump is on already: end it with acl.mdl.finalize_dump() before the marked test"
            raise AclError("acl.mdl.init_dump()", code, detail)
        if code != UNINITIALIZE:
            check(self.acl, "acl.mdl.init_dump()", code)
            self._end_other_exception_dump()
            self._set_dump()
        self._interpose()

    def release(self, config: Path | None) -> None:
        """Leave ``config`` to the test: whatever it gives ``acl.init`` counts from here on."""
        self.released = config
        self._interpose()

    def withdraw(self) -> None:
        """Give ``acl.init`` back to the application, and switch nothing on with it."""
        if self.acl.init == self._init_for_application:
            self.acl.init = self._acl_init
        self.config = self.released = None

    def finalize_dump(self) -> None:
        """Switch the dump off, also where the application under test has finalised ACL by now.

        Raises:
            AclError: ACL cannot end the dump, so that files may be missing.
        """
        self.on = False
        code = self.acl.mdl.finalize_dump()
        if code == UNINITIALIZE:
            self.initialised_here = self.device_set = False
            check(self.acl, "acl.init()", self.acl.init(*self._init_arguments))
            code = self.acl.mdl.finalize_dump()
            self.acl.finalize()
        if code == DUMP_NOT_RUN:
            raise AclError("acl.mdl.finalize_dump()", code, ENDED_BY_TEST)
        check(self.acl, "acl.mdl.finalize_dump()", code)

    def initialise(self) -> None:
        """Initialise ACL where nobody has, and with it the dump.

        Raises:
            AclError: ACL cannot be initialised, or refuses the configuration.
        """
        __tracebackhide__ = True
        code = self._init()
        if code == SUCCESS:
            self.initialised_here = True
        elif code != REPEAT_INITIALIZE:
            check(self.acl, "acl.init()", code)

    def dump_section(self) -> dict[str, Any]:
        """Return the key ``dump`` of the configuration; ACL says what is wrong with one that has none."""
        try:
            root = json.loads(Path(str(self.config)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        section = root.get("dump") if isinstance(root, dict) else None
        return section if isinstance(section, dict) else {}

    def _interpose(self) -> None:
        # A fixture that replaced acl.init during a test puts our function back when it is torn down.
        if self.acl.init != self._init_for_application:
            self._acl_init, self.acl.init = self.acl.init, self._init_for_application

    def _init_for_application(self, *arguments: Any) -> int:
        config = self.config or self.released
        if arguments and config is not None and same_file(arguments[0], config):
            # aclInit keeps the content of its first file for the process, and each run has a file of its
            # own: it is set as acl.mdl.set_dump would set it.
            self.config, arguments = config, ()
        code = self._init(*arguments)
        if code == REPEAT_INITIALIZE and self.initialised_here and not self._answered:
            code = SUCCESS
        self._answered = True
        return code

    def _init(self, *arguments: Any) -> int:
        code: int = (self._acl_init or self.acl.init)(*arguments)
        if code == SUCCESS:
            self._init_arguments = arguments
        if code in {SUCCESS, REPEAT_INITIALIZE} and self.config is not None and not self.on:
            self._open_dump(just_initialised=code == SUCCESS)
            self._set_dump()
        return code

    def _open_dump(self, *, just_initialised: bool) -> None:
        code = self.acl.mdl.init_dump()
        if code == REPEAT_INITIALIZE and just_initialised:
            # Left open by code that finalised ACL with its dump on: acl.finalize() does not end a dump.
            check(self.acl, "acl.mdl.finalize_dump()", self.acl.mdl.finalize_dump())
            code = self.acl.mdl.init_dump()
        check(self.acl, "acl.mdl.init_dump()", code)
        self._end_other_exception_dump()

    def _end_other_exception_dump(self) -> None:
        """End an exception dump that was on before, beside which CANN would ignore the test's."""
        if self.dump_section().get("dump_scene") in SCENE_TYPES:
            check(self.acl, "acl.mdl.finalize_dump()", self.acl.mdl.finalize_dump())
            check(self.acl, "acl.mdl.init_dump()", self.acl.mdl.init_dump())

    def _set_dump(self) -> None:
        path = str(self.config)
        code = self.acl.mdl.set_dump(path)
        if code != SUCCESS:
            error = AclError.of(self.acl, f"acl.mdl.set_dump({path!r})", code)
            self.acl.mdl.finalize_dump()
            raise error
        self.on = True
        self.number += 1
        self.opened()


def same_file(argument: object, config: Path) -> bool:
    """Whether an argument of the application's is the path of ``config``, however it is spelled."""
    return isinstance(argument, str) and Path(argument).resolve() == config.resolve()
