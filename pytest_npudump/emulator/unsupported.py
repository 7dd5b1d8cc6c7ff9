"""What pyACL has and the emulator cannot do: said at the call, never passed over."""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn

from pytest_npudump.errors import RuntimeUnavailableError


class NotEmulatedError(RuntimeUnavailableError, AttributeError):
    """A name of pyACL, or one that pyACL does not have either, that the emulator does not offer."""

    def __init__(self, name: str, why: str = "") -> None:
        reason = f" ({why})" if why else ""
        super().__init__(f"{name}: the emulator does not have it{reason}; run this on an NPU")


def missing(module: str, name: str, why: str = "") -> NoReturn:
    """Refuse ``acl.<module>.<name>``, with the reason where there is a particular one.

    Raises:
        NotEmulatedError: always; names that begin with ``__`` get a plain AttributeError.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    raise NotEmulatedError(f"{module}.{name}", why)


class AbsentModule(ModuleType):
    """A sub-module of pyACL of which nothing is emulated."""

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse every name."""
        missing(self.__name__, name)
