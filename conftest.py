"""Compiled modules, workers, and Hypothesis profiles: many examples where HYPOTHESIS_PROFILE=thorough."""

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from unittest import mock

import pytest

from pytest_npudump.plugin.features import memory_folder

# Tens of thousands of small files, some of them programs, with which a disk's file system has more work.
if (
    "TMPDIR" not in os.environ
    and memory_folder._is_tmpfs(memory_folder.SHARED_MEMORY)
    and memory_folder._has_room()
    and not os.statvfs(memory_folder.SHARED_MEMORY).f_flag & os.ST_NOEXEC
):
    os.environ["TMPDIR"] = str(memory_folder.SHARED_MEMORY)
    tempfile.tempdir = None

if sys.dont_write_bytecode:
    # Hundreds of sessions and child processes within the tests, and workers of pytest-xdist, would compile
    # pytest, its plugins and the tests. Beside the sources nothing is written, as asked.
    sys.dont_write_bytecode = False
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sys.pycache_prefix = str(caches / "npudump-tests-pycache")

    def _forget_temporary_folders(caches: str) -> None:
        """Delete what was compiled in folders of tests, or in temporary ones that have gone."""
        for temporary in {"/tmp", tempfile.gettempdir()}:  # noqa: S108 - some tests have the shortest folders
            for cache in Path(caches + temporary).glob("*"):
                if cache.name.startswith("pytest-of-") or not Path(temporary, cache.name).exists():
                    shutil.rmtree(cache, ignore_errors=True)

    atexit.register(_forget_temporary_folders, sys.pycache_prefix)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Workers of pytest-xdist have 80 columns, and commands in pipes would keep to that. Where readline is
# imported, as by pytest, it tells so to processes that are started, past os.environ.
os.environ.pop("COLUMNS", None)
with contextlib.suppress(ImportError):
    import readline  # noqa: F401
os.unsetenv("COLUMNS")

# Workers of pytest-xdist take the cores; threads of numpy's BLAS, which begin with its import, would spin on
# them. What tests start has as many as anywhere.
with mock.patch.dict(os.environ, OPENBLAS_NUM_THREADS="1"):
    import numpy as np  # noqa: F401

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than cores, unless a number is given: tests wait for processes that they start."""
    return (yield) + ("PYTEST_XDIST_AUTO_NUM_WORKERS" not in os.environ)
