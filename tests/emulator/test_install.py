"""The emulator in the place of pyACL, and what it refuses to pretend."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from pytest_npudump.emulator import install
from pytest_npudump.errors import RuntimeUnavailableError


def test_import_gives_the_emulator_and_its_modules(acl: Any) -> None:
    for name in ("rt", "mdl", "op", "util"):
        module = importlib.import_module(f"acl.{name}")
        assert module is getattr(acl, name)
    assert acl.__npudump_emulator__
    assert acl.get_soc_name() == "Emulator"


def test_uninstall_restores_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("acl")
    monkeypatch.setitem(sys.modules, "acl", other)
    monkeypatch.delitem(sys.modules, "acl.rt", raising=False)
    install.install()
    install.install()
    assert sys.modules["acl"] is not other
    install.uninstall()
    install.uninstall()
    assert sys.modules["acl"] is other
    assert "acl.rt" not in sys.modules


def test_reset_gives_the_state_of_a_new_process(acl: Any) -> None:
    assert acl.init() == 0
    install.reset()
    assert acl.mdl.init_dump() == 100001


def test_what_is_not_emulated_says_so_by_its_name(acl: Any) -> None:
    names = ("media.dvpp_create_channel", "rt.get_overflow_status", "op.start_dump_args", "no_call")
    for name in names:
        home, _, last = name.rpartition(".")
        module = getattr(acl, home) if home else acl
        assert not hasattr(module, last)
        with pytest.raises(RuntimeUnavailableError, match=rf"acl\.{name}"):
            getattr(module, last)


def test_only_names_of_pyacl_are_public(acl: Any) -> None:
    for module in (acl, acl.rt, acl.mdl, acl.op, acl.util):
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(
            callable(getattr(module, name)) or name in {"rt", "mdl", "op", "util"} for name in module.__all__
        )


def test_installing_needs_neither_onnx_nor_onnxruntime() -> None:
    code = (
        "import sys; from pytest_npudump.emulator.install import install; install(); import acl; acl.init();"
        "assert not {'onnx', 'onnxruntime', 'pytest'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
