"""Which runtime is chosen where, and what ``--npudump-runtime=npu`` promises."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.pyacl import probe_acl
from pytest_npudump.runtime.registry import choose, load, require, why_no_npu


class Broken:
    """An import hook under which the module acl exists and cannot be loaded."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "acl":
            raise ImportError("libascendcl.so: cannot open shared object file")


@pytest.fixture(autouse=True)
def _without_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo that this project's own test session offers the emulator as acl."""
    from pytest_npudump.emulator import install

    install.uninstall()
    finders = [finder for finder in sys.meta_path if "npudump" not in type(finder).__module__]
    monkeypatch.setattr(sys, "meta_path", finders)
    for name in [name for name in sys.modules if name == "acl" or name.startswith("acl.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Any]:
    """Put a real-looking acl in place that counts so many devices with such a code."""

    def install(count: int, code: int) -> Any:
        module: Any = ModuleType("acl")
        module.rt = SimpleNamespace(get_device_count=lambda: (count, code))

        def init(*_: object) -> int:
            raise AssertionError("a probe must not initialise ACL")

        module.init = init
        monkeypatch.setitem(sys.modules, "acl", module)
        return module

    return install


@pytest.fixture
def emulator() -> Iterator[None]:
    from pytest_npudump.emulator import install

    install.install()
    yield
    install.uninstall()


def test_device_that_answers_is_chosen_without_initialising_acl_and_loaded(machine: Any) -> None:
    module = machine(8, 0)
    assert probe_acl() == (module, "8 devices answer")
    assert choose("auto").name == choose("acl").name == "acl"
    assert choose("auto").why == "--npudump-runtime=auto, 8 devices answer"
    require("--npudump-runtime=npu")
    assert choose("npu").name == choose("npu-or-skip").name == "acl"
    assert not why_no_npu()
    runtime = load(choose("auto"), 3)
    assert (runtime.acl, runtime.name, runtime.device) == (module, "acl", 3)
    assert choose("emulator").name == "emulator", "asked for although a device answers"


def test_installed_acl_without_a_device_is_told_apart_from_none(machine: Callable[[int, int], Any]) -> None:
    for count, code in ((0, 0), (0, 507008), (1, 507008)):
        machine(count, code)
        reason = rf"pyACL is installed but no device answers \(get_device_count returned {count}, {code}\)"
        assert choose("auto").name == "emulator"
        with pytest.raises(RuntimeUnavailableError, match=f"--npudump-runtime=acl: {reason}"):
            choose("acl")
        with pytest.raises(RuntimeUnavailableError, match=f"--npudump-runtime=npu: {reason}"):
            require("--npudump-runtime=npu")
        with pytest.raises(RuntimeUnavailableError, match=f"--npudump-runtime=npu: {reason}"):
            choose("npu")
        assert re.fullmatch(f"--npudump-runtime=npu-or-skip: {reason}", why_no_npu())


def test_missing_module_points_at_the_environment_of_cann() -> None:
    module, why = probe_acl()
    assert module is None
    assert "no module 'acl'" in why
    assert "set_env.sh" in why
    assert "set_env.sh" not in choose("auto").why  # nobody asked for an NPU
    assert choose("auto").name == "emulator"


def test_module_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    module, why = probe_acl()
    assert module is None
    assert why.endswith("cannot be imported: libascendcl.so: cannot open shared object file")
    with pytest.raises(RuntimeUnavailableError, match=r"libascendcl\.so.*--npudump-runtime=emulator"):
        choose("acl")


def test_other_module_of_that_name_is_not_taken_for_cann_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acl").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    module, why = probe_acl()
    assert module is None
    assert why == f"the module 'acl' that Python finds is not CANN's pyACL but {[str(tmp_path / 'acl')]}"
    assert choose("auto").name == "emulator"


@pytest.mark.usefixtures("emulator")
def test_emulator_never_passes_for_a_device_and_is_loaded_as_the_module_acl() -> None:
    assert probe_acl() == (None, "the module 'acl' of this process is the emulator")
    for refused in (lambda: require("--npudump-runtime=npu"), lambda: choose("npu"), lambda: choose("acl")):
        with pytest.raises(RuntimeUnavailableError, match="is the emulator"):
            refused()
    runtime = load(choose("emulator"), 0)
    assert (runtime.name, runtime.acl) == ("emulator", sys.modules["acl"])
    assert runtime.acl.__npudump_emulator__
