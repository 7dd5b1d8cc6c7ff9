"""The module ``acl`` of the emulator: pyACL's names, signatures and return conventions."""

from __future__ import annotations

from typing import NoReturn

from pytest_npudump.emulator.acl import mdl, op, rt, util
from pytest_npudump.emulator.acl._base import ACL
from pytest_npudump.emulator.codes import AbsentModule, missing

__npudump_emulator__ = True
__all__ = ["mdl", "op", "rt", "util"]
globals().update(ACL.calls, __all__=[*__all__, *ACL.calls])

media, blas, prof, himpi, fv = map(AbsentModule, ("acl.media", "acl.blas", "acl.prof", "acl.himpi", "acl.fv"))


def __getattr__(name: str) -> NoReturn:
    missing("acl", name)
