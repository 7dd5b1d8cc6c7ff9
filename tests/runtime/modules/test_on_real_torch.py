"""Where torch stays out of the environment, the tests beside this one run with it in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
HERE = Path(__file__)


@pytest.mark.e2e
@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is here: the tests beside this one run")
@pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with torch")
def test_modules_of_the_real_torch() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-pno:cacheprovider", str(HERE.parent)]
    paths = os.pathsep.join([FOLDER, str(HERE.parents[3])])
    environment = {**os.environ, "PYTHONPATH": paths, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [*command, f"--ignore={HERE}", f"--ignore={HERE.with_name('test_cells.py')}"],  # MindSpore's run here
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=HERE.parents[3],
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert " skipped" not in done.stdout, done.stdout[-2000:]
