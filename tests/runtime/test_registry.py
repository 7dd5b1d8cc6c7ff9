"""Runtimes that an installed package offers, from the option to the golden."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.runtime.registry import OURS, Examined, Provider, choose, offered, provider_of
from pytest_npudump.settings import OPTIONS

EXAMPLE = Path(__file__).parents[1] / "testing" / "conftest.py"
PROVIDER = """\
import importlib.util, sys

LOADED = []

def find(option):
    return "numpy is here"

def load(option, device):
    specification = importlib.util.spec_from_file_location("numpy_runtime_example", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    LOADED.append(module.NumpyRuntime())
    return LOADED[-1]

def needs_process(scene):
    return False
"""
TEST = """\
import numpy, pytest
import numpy_provider

@pytest.mark.npu_dump(acl_json={"dump_data": "tensor"})
def test_it():
    numpy_provider.LOADED[-1].negative(numpy.array(VALUES, numpy.float32))
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages in which one offers the runtime ``numpy``."""
    site = tmp_path / "site"
    metadata = site / "numpy_provider-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy-provider\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pytest_npudump.runtimes]\nnumpy = numpy_provider\n")
    (site / "numpy_provider.py").write_text(PROVIDER.replace("EXAMPLE", repr(str(EXAMPLE))))
    monkeypatch.syspath_prepend(str(site))
    return site


@pytest.fixture
def run(site: Path, warm: Any) -> Callable[..., str]:
    """Run the test on these values, in a session that finds the runtime."""

    def session(folder: Path, values: list[float], *options: str) -> str:
        folder.joinpath("test_it.py").write_text(TEST.replace("VALUES", repr(values)))
        ended = subprocess.run(
            [*warm.client, "-mpytest", "-pno:cacheprovider", "--npudump-runtime=numpy", *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.stdout + ended.stderr

    return session


def test_a_runtime_of_another_package_is_recorded_and_judged(run: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    recorded = run(folder, [1.5, -2.0], "--npudump-update-golden")
    assert "npudump: runtime numpy (--npudump-runtime=numpy, numpy is here)" in recorded
    assert "1 passed" in recorded
    (golden,) = folder.glob("golden/**/*.yaml")
    assert "runtime: numpy" in golden.read_text()
    changed = run(folder, [1.5, -2.5])
    assert "1 failed" in changed
    assert "neg-op0:output.0" in changed


@pytest.mark.usefixtures("site")
def test_an_offered_runtime_is_found_by_its_name() -> None:
    assert "numpy" in offered()
    assert isinstance(provider_of("numpy"), Provider)
    assert choose("numpy").why == "--npudump-runtime=numpy, numpy is here"
    assert not choose("numpy").isolates("model")
    sys.modules.pop("numpy_provider")


def test_a_name_that_nobody_offers_says_where_runtimes_come_from() -> None:
    with pytest.raises(
        RuntimeUnavailableError,
        match=r"no package offers it as an entry point 'pytest_npudump\.runtimes'; ours are acl, torch_npu",
    ):
        provider_of("absent")


def test_an_offer_that_is_no_provider_is_refused(site: Path) -> None:
    for text, words in (
        ("def find(option): pass\n", "numpy_provider is no provider: expected"),
        ("import absent_client\n", "cannot be imported: ModuleNotFoundError: .*absent_client"),
    ):
        site.joinpath("numpy_provider.py").write_text(text)
        with pytest.raises(RuntimeUnavailableError, match=words):
            provider_of("numpy")
        sys.modules.pop("numpy_provider", None)


def test_the_option_names_each_runtime_of_ours_and_each_is_a_provider() -> None:
    (option,) = [option for option in OPTIONS if option.name == "runtime"]
    assert option.choices == ("auto", "npu", "npu-or-skip", *OURS)
    assert all(isinstance(provider_of(name), Provider) for name in OURS)
    examined = [name for name in OURS if isinstance(provider_of(name), Examined)]
    assert examined == [name for name in OURS if name != "modules"]  # which needs no device
