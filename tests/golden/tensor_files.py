"""Golden tensors read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pytest_npudump.golden.tensors import TensorFile


def load_tensors(path: Path) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Return the tensors of a file by key text."""
    file = TensorFile.read(path)
    return {key: file.tensor(key) for key in file.entries}
