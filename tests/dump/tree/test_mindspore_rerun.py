"""A second dump of fewer operators gets the keys that the first one has for the same tensors."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.tree.mindspore import under_first_keys

DATA = Path(__file__).parents[2] / "data" / "trees"
TREE = DATA / "mindspore-control_flow_multigraph"
ACL = DATA / "acl-stats"


def part_of(tree: Path, target: Path, layer: str) -> Path:
    """Copy the files of one layer, as a dump would have them whose ``kernels`` name it, under later times."""
    for path in tree.rglob("*.npy"):
        op_type, name, task, stream, time, *rest = path.name.split(".")
        if name == layer:
            folder = target / path.parent.relative_to(tree)
            folder.mkdir(parents=True, exist_ok=True)
            later = ".".join((op_type, name, task, stream, str(int(time) + 10**9), *rest))
            shutil.copyfile(path, folder / later)
    return target


def layers_of(tree: Path) -> list[str]:
    return sorted({record.key.layer for record in read_dump(tree, stats=False).records})


@pytest.mark.each("layer", layers_of(TREE))
def test_graphs_steps_and_turns_of_a_real_dump_are_those_of_the_first_run(tmp_path: Path, layer: str) -> None:
    first = read_dump(TREE, stats=False)
    again = read_dump(part_of(TREE, tmp_path, layer), stats=False, one_run=True)
    keyed = under_first_keys(first, again)
    assert {r.key for r in keyed.records} == {r.key for r in first.records if r.key.layer == layer}
    assert [r.path for r in keyed.records] == [r.path for r in again.records]
    by_key = {record.key: record.path for record in first.records}
    for record in keyed.records:
        assert record.path.read_bytes() == by_key[record.key].read_bytes()


def test_without_the_first_run_the_keys_would_be_others(tmp_path: Path) -> None:
    layers = [record.key for record in read_dump(TREE, stats=False).records if record.key.model == "CF/4"]
    again = read_dump(part_of(TREE, tmp_path, layers[0].layer), stats=False, one_run=True)
    assert not {record.key for record in again.records} & set(layers)


def test_a_tensor_that_the_first_run_lacks_keeps_its_key(tmp_path: Path) -> None:
    first = read_dump(TREE, stats=False)
    layer = layers_of(TREE)[0]
    fewer = Dump(first.root, tuple(r for r in first.records if r.key.layer != layer))
    again = read_dump(part_of(TREE, tmp_path, layer), stats=False, one_run=True)
    assert under_first_keys(fewer, again) == again


def test_dumps_of_other_producers_stay_as_they_are() -> None:
    dump = read_dump(ACL)
    renamed = Dump(dump.root, dump.records[:1])
    assert under_first_keys(renamed, dump) == dump


@pytest.mark.each(("place", "qualifier"), [("0/other/1/0", "model=other"), ("1/ppocr_cls/1/0", "device=1")])
def test_one_of_several_models_or_devices_has_the_keys_that_it_has_beside_others(
    tmp_path: Path, place: str, qualifier: str
) -> None:
    for run in ("first", "again"):
        (tmp_path / run).mkdir()
        (source,) = (DATA / "acl-tensor").glob("*/0/ppocr_cls/1/0")
        time = tmp_path / run / source.relative_to(DATA / "acl-tensor").parts[0]
        for one in ("0/ppocr_cls/1/0", place)[run == "again" :]:
            shutil.copytree(source, time / one)
    first, again = (read_dump(tmp_path / run, stats=False) for run in ("first", "again"))
    wanted = {record.key for record in first.records if qualifier in str(record.key)}
    assert len(wanted) == len(again.records) > 1
    assert {record.key for record in under_first_keys(first, again).records} == wanted
    assert under_first_keys(first, first) == first


def test_a_layer_of_later_steps_keeps_their_numbers_in_an_asynchronous_dump(tmp_path: Path) -> None:
    name = "Add.{}.0.0.179522870587222{}.output.0.DefaultFormat.float32.npy"
    dumps = (("first", "20260101010101", {5: "ab", 6: "b"}), ("again", "20260202020202", {6: "b"}))
    for run, time, steps in dumps:
        for step, layers in steps.items():
            folder = tmp_path / run / f"{step}/{time}/0"
            folder.mkdir(parents=True)
            for layer in layers:
                np.save(folder / name.format(layer, step), np.float32([step]))
    first, again = (read_dump(tmp_path / run, one_run=True) for run, *_ in dumps)
    assert [str(record.key) for record in under_first_keys(first, again).records] == ["b#step=1:output.0"]
