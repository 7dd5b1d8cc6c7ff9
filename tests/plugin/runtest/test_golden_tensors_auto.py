"""Layers that keep tensors because they tell most: outputs of the graph, and sources of past failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_npudump.golden.tensors import load_tensors

if TYPE_CHECKING:
    from conftest import Project

OUTPUT = "head/softmax"


def kept(project: Project) -> set[str]:
    """Return the layers whose tensors lie beside the golden."""
    return {key.partition(":")[0] for key in load_tensors(project.golden.with_suffix(".safetensors"))}


def sources(project: Project) -> list[str]:
    head = project.golden.read_text().partition("tensors: |")[0]
    found: list[str] = yaml.safe_load(head.rpartition("columns:")[0])["golden_tensors"].get("sources", [])
    return found


@pytest.fixture
def auto(project: Project) -> Project:
    project.marked("golden_tensors='auto', dump_data='tensor'")
    project.record()
    return project


def test_outputs_are_kept(auto: Project) -> None:
    assert kept(auto) == {OUTPUT}
    assert sources(auto) == []
    auto.run().assert_outcomes(passed=1)


def test_where_an_approved_change_begins_is_kept_from_then_on(auto: Project) -> None:
    auto.model(change=0.5)
    auto.run().assert_outcomes(failed=1)
    auto.record()
    assert (kept(auto), sources(auto)) == ({OUTPUT, "block/conv.2"}, ["block/conv.2"])
    auto.run().assert_outcomes(passed=1)
    before = auto.golden.read_bytes()
    auto.record()
    assert auto.golden.read_bytes() == before


def test_where_the_kept_run_failed_is_kept_although_it_was_mended(project: Project) -> None:
    kept_results = "--npudump-results=kept"
    project.marked("golden_tensors='auto', dump_data='tensor'")
    project.record(kept_results)
    project.model(change=0.5)
    project.run(kept_results).assert_outcomes(failed=1)
    project.model()
    project.record(kept_results)
    assert (kept(project), sources(project)) == ({OUTPUT, "block/conv.2"}, ["block/conv.2"])
    project.run(kept_results).assert_outcomes(passed=1)


def test_a_source_that_the_model_has_not_any_more_goes(auto: Project) -> None:
    text = auto.golden.read_text()
    auto.golden.write_text(text.replace("{recording: ", "{sources: [gone, block_relu.1], recording: "))
    auto.record()
    assert (kept(auto), sources(auto)) == ({OUTPUT, "block/relu.1"}, ["block/relu.1"])


def test_names_may_stand_beside_it(project: Project) -> None:
    project.marked("golden_tensors=['auto', 'block/relu.1']")
    project.record()
    assert kept(project) == {OUTPUT, "block/relu.1"}
    project.run().assert_outcomes(passed=1)


def test_names_beside_it_that_are_not_kept_fail_the_test(auto: Project) -> None:
    auto.marked("golden_tensors=['auto', 'block/relu.1'], dump_data='tensor'")
    result = auto.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: golden tensors named in the marker are not beside*block/relu.1:*"])


def test_a_change_of_elements_alone_is_found(auto: Project) -> None:
    tensors = auto.golden.with_suffix(".safetensors")
    content = bytearray(tensors.read_bytes())
    content[-4:], content[-8:-4] = content[-8:-4], content[-4:]  # two elements change places
    tensors.write_bytes(bytes(content))
    result = auto.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"npudump: {OUTPUT} *"])


def test_a_golden_without_tensors_fails_and_says_what_to_do(project: Project) -> None:
    project.marked()
    project.record()
    result = project.run("--npudump-golden-tensors=auto")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: golden_tensors is 'auto', and test_small.yaml keeps no tensors: *"]
    )
    project.record("--npudump-golden-tensors=auto")
    project.run("--npudump-golden-tensors=auto").assert_outcomes(passed=1)


def test_lost_tensors_fail_the_test(auto: Project) -> None:
    auto.golden.with_suffix(".safetensors").unlink()
    result = auto.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: golden_tensors is 'auto', and test_small.yaml keeps no tensors: *"]
    )


def test_the_option_leaves_tests_alone_that_name_layers(project: Project) -> None:
    project.marked("golden_tensors=['block/relu.1']")
    project.record("--npudump-golden-tensors=auto")
    assert kept(project) == {"block/relu.1"}


def test_the_option_leaves_tests_alone_that_have_no_tensors(project: Project) -> None:
    project.marked("scene='overflow'")
    project.run("--npudump-golden-tensors=auto").assert_outcomes(passed=1)


def test_tensors_of_a_store_are_chosen_alike(project: Project) -> None:
    project.path.joinpath("store").mkdir()
    place = (f"--npudump-tensor-store=file://{project.path}/store", "--npudump-tensor-cache=cache")
    project.marked("golden_tensors='auto', dump_data='tensor'")
    project.record(*place)
    project.model(change=0.5)
    project.record(*place)
    text = project.golden.read_text()
    assert "stored: sha256" in text
    assert sources(project) == ["block/conv.2"]
    assert text.partition("stored_tensors: |\n")[2].count("\n") == 2
    project.run(*place).assert_outcomes(passed=1)


@pytest.mark.e2e
def test_a_test_in_a_process_of_its_own_chooses_alike(project: Project) -> None:
    project.marked("golden_tensors='auto', isolation='process'")
    project.record()
    project.model(change=0.5)
    project.record()
    assert (kept(project), sources(project)) == ({OUTPUT, "block/conv.2"}, ["block/conv.2"])
    project.run().assert_outcomes(passed=1)


def test_more_than_the_budget_is_refused_with_the_largest_named(project: Project) -> None:
    project.marked("golden_tensors='auto'")
    result = project.run("--npudump-update-golden", "--npudump-tensor-budget=100")
    result.stdout.fnmatch_lines(
        [f"npudump: nothing was recorded: golden_tensors: *{OUTPUT}:output.0 (128 bytes)*"]
    )
