"""Scenes that need no comparison of statistics: each has a judge and findings of its own.

Their modules have the scenes' names. ``judge`` makes the result of a run; ``examine``, of each scene
``of_failures``, looks for failures where the body of a test did not end well. They share ``findings``: the
result that is made of them, and each tensor of an operator described by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def scene_module(name: str) -> Any:
    """Return the module of a scene, imported with the first test that has it."""
    return import_module(f"{__name__}.{name}")
