"""Where torch stays out of the environment, the tests that ask for it run with it in another process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__)
ROOT = HERE.parents[3]
OTHERS = set((ROOT / "tests").rglob("test_*.py")) - {HERE}
NAMES = sorted(str(path.relative_to(ROOT)) for path in OTHERS if 'importorskip("torch")' in path.read_text())


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is here: these tests run by themselves")
@pytest.mark.parametrize("name", NAMES)
def test_modules_of_the_real_torch(warm_torch: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(ROOT)
    words = ["-q", "-n0", "-pno:cacheprovider", "--e2e=all", name]
    code, printed, errors = warm_torch.run("-mpytest", *words)
    assert (code, errors) == (0, ""), printed[-8000:] + errors
    assert " skipped" not in printed, printed[-2000:]
