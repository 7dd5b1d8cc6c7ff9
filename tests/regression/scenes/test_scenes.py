"""The table of scenes, and those that have to know each of them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pytest_npudump.regression.scenes import scene_module
from pytest_npudump.request import DumpRequest
from pytest_npudump.scene import SCENES

ARGUMENTS = {field.name for field in fields(DumpRequest)}


def test_model_is_the_first_and_the_default() -> None:
    assert next(iter(SCENES)) == DumpRequest().scene == "model"


def test_a_scene_without_statistics_has_a_judge_and_one_of_failures_looks_for_them() -> None:
    for name, scene in SCENES.items():
        module = scene_module(name) if not scene.statistics else None
        assert hasattr(module, "judge") is not scene.statistics
        assert hasattr(module, "examine") is bool(scene.of_failures)


@pytest.mark.each("name", SCENES)
def test_a_scene_names_arguments_that_there_are(name: str) -> None:
    scene = SCENES[name]
    assert scene.takes | set(scene.alone) <= ARGUMENTS


@pytest.mark.each("name", ["model", "op", "check_op", "overflow", "exception"])
def test_a_scene_that_needs_no_argument_has_no_problem_without_any(name: str) -> None:
    assert SCENES[name].problems(DumpRequest(scene=name)) == []
