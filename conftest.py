"""A place for compiled modules, and Hypothesis profiles: many examples where HYPOTHESIS_PROFILE=thorough."""

import atexit
import os
import shutil
import sys
import tempfile

if sys.dont_write_bytecode:
    # Hundreds of sessions and child processes within the tests would each compile pytest and its plugins.
    # Beside the sources nothing is written, as asked; workers of pytest-xdist inherit the folder.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = tempfile.mkdtemp(prefix="npudump-pycache-")
    atexit.register(shutil.rmtree, sys.pycache_prefix, ignore_errors=True)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
