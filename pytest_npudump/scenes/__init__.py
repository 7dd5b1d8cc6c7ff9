"""What a test looks for, a module a scene: what each takes from the marker and writes to acl.json.

Scenes without statistics have a judge in ``regression.scenes`` and words in ``report.scenes``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.scenes import exception, model, op, overflow, watcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.scenes.scene import Scene

SCENES: Mapping[str, Scene] = MappingProxyType(
    {scene.name: scene for scene in (model.SCENE, op.SCENE, overflow.SCENE, watcher.SCENE, exception.SCENE)}
)
"""The scenes by name; the first is the default."""
