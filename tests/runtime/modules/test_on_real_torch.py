"""Where torch stays out of the environment, the tests beside this one run with it in another process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__)
BESIDE = set(HERE.parent.glob("test_*.py")) - {HERE}
NAMES = sorted(path.name for path in BESIDE if 'importorskip("torch")' in path.read_text())


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is here: the tests beside this one run")
@pytest.mark.parametrize("name", NAMES)
def test_modules_of_the_real_torch(warm_torch: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(HERE.parents[3])
    words = ["-q", "-n0", "-pno:cacheprovider", "--e2e=all", str(HERE.with_name(name))]
    code, printed, errors = warm_torch.run("-mpytest", *words)
    assert (code, errors) == (0, ""), printed[-8000:] + errors
    assert " skipped" not in printed, printed[-2000:]
