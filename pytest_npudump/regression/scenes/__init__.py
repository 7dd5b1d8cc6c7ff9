"""Scenes without a comparison of statistics: each has a judge and findings of its own.

``check_op``, ``exception``, ``overflow`` and ``watcher`` have the names of scenes. Each makes a result of a
run, and those of failures look for these where the body of a test did not end well. They share ``findings``:
the result that is made of them, and each tensor of an operator described by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def scene_module(name: str) -> Any:
    """Return the module of a scene, imported with the first test that has it."""
    return import_module(f"{__name__}.{name}")
