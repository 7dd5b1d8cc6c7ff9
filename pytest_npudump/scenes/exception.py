"""``scene="exception"``: what an operator that fails on the device was working on."""

from __future__ import annotations

from types import MappingProxyType

from pytest_npudump.scenes.scene import Scene

EXCEPTION_SCENES = ("aic_err_norm_dump", "aic_err_brief_dump", "aic_err_detail_dump", "lite_exception")
"""Values of ``dump_scene`` that dump what a failed operator was working on; the first is the default."""

SCENE = Scene(
    "exception",
    takes=frozenset({"dump_scene"}),
    alone=MappingProxyType({"dump_scene": "only with scene='exception'; every other scene sets it itself"}),
    acl_json=lambda request: {"dump_scene": request.dump_scene or EXCEPTION_SCENES[0]},
    of_failures=True,
    own_process=True,
)
