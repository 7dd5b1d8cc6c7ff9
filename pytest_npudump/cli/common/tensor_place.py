"""Where stored tensors are, for a command: as pytest's configuration says, unless options say otherwise."""

from __future__ import annotations

from pathlib import Path

from pytest_npudump.cli.common.pytest_settings import pytest_settings
from pytest_npudump.golden.objects.tensor_store import TensorStore

_STORE, _CACHE = "npudump_tensor_store", "npudump_tensor_cache"


def tensor_place(folder: Path, url: str = "", cache: str = "") -> TensorStore:
    """Return where stored tensors are.

    Args:
        folder: a pytest that starts here would run the tests.
        url: the store, whatever the configuration says; "" for that.
        cache: the folder of the cache, the same.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    root, told = pytest_settings(folder, (_STORE, _CACHE))
    own = cache or (str(root / Path(told[_CACHE]).expanduser()) if told[_CACHE] else "")
    return TensorStore(url or told[_STORE], own)
