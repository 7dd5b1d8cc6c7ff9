"""``scene="model"``: the operators of a model that was loaded as a whole."""

from __future__ import annotations

from pytest_npudump.scenes.scene import Scene

SCENE = Scene("model", statistics=True)
