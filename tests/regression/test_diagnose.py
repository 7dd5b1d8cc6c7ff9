"""A dump that holds nothing names what most likely emptied it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import DumpError
from pytest_npudump.regression import diagnose
from pytest_npudump.regression.diagnose import explain_empty, full_words, what_ran
from pytest_npudump.request import DumpRequest
from pytest_npudump.runtime.base import Evidence
from tests.plugin.conftest import small_model
from tests.regression.conftest import Activity

MODEL = Path("models/net.om")

loaded = partial(Activity, models=(MODEL,))


def explain(path: Path, activity: Activity, **request: Any) -> str:
    try:
        read_dump(path, acl=True)
    except DumpError as error:
        return explain_empty(DumpRequest(**request), activity, path, str(error))
    raise AssertionError("the dump was readable")


CASES: dict[str, tuple[Activity, dict[str, Any]]] = {
    "the test took npu_dump.config_path*acl.mdl.set_dump(path)": (
        loaded(released=True, initialised=False),
        {},
    ),
    "./main (with acl.json) ran and dumped nothing*aclInit*a filter matched nothing: layers=['conv9']": (
        loaded(programs=("./main (with acl.json)",), released=True, initialised=False, models=()),
        {"layers": ("conv9",)},
    ),
    "./main (with x) ran and dumped nothing: main never read x; it has to hand that acl.json to *": (
        loaded(programs=("./main (with x)",), evidence=Evidence(missing=["main never read x"])),
        {},
    ),
    "./main (with x) ran and dumped nothing: main read x; it has to hand that acl.json to aclInit*": (
        loaded(programs=("./main (with x)",), evidence=Evidence(shown=["main read x"])),
        {},
    ),
    "the dump is empty: ./main did not end within 3 seconds and was ended; what ./main (with x) *": (
        loaded(
            programs=("./main (with x)",),
            evidence=Evidence(unfinished=["./main did not end within 3 seconds and was ended"]),
        ),
        {},
    ),
    "net.om was loaded before the dump was set: load it inside the test, or the capture that runs it*": (
        loaded(executions=0, evidence=Evidence(missing=["net.om was loaded before the dump was set"])),
        {},
    ),
    "most likely a filter matched nothing: dump_step='7'": (
        loaded(evidence=Evidence(missing=["a.om was loaded before"])),
        {"dump_step": "7"},
    ),
    "ACL was never initialised while the dump was on": (
        loaded(initialised=False, models=(), executions=0),
        {},
    ),
    "no single operator ran through acl.op": (loaded(models=(), executions=0), {"scene": "op"}),
    "no model was loaded through npu_dump.load_model()": (loaded(models=(), executions=0), {}),
    "no loaded model was run to its end (net.om": (loaded(executions=0), {}),
    "most likely a filter matched nothing: layers=['conv9']": (loaded(), {"layers": ("conv9",)}),
    "most likely a filter matched nothing: dump_step='7' (steps count from 0)": (
        loaded(),
        {"dump_step": "7"},
    ),
    "most likely a filter matched nothing: model_name='other'": (loaded(), {"model_name": "other"}),
    "the blacklists or opname_range": (loaded(), {"opname_blacklist": ({"name": "a"},)}),
    "dump_level='kernel' (it switches the dump of models and of acl.op off)": (
        loaded(),
        {"dump_level": "kernel"},
    ),
    "the runtime reported no error*ASCEND_GLOBAL_LOG_LEVEL=1": (loaded(), {}),
}


@pytest.mark.each("cause", CASES)
def test_likeliest_cause_comes_first(tmp_path: Path, cause: str) -> None:
    activity, request = CASES[cause]
    text = explain(tmp_path, activity, **request)
    assert text.startswith("the dump is empty: ")
    position = -1
    for part in cause.split("*"):
        position = text.index(part, position + 1)


def test_all_filters_are_named_and_globs_are_none_as_cann_dumps_all_for_them(tmp_path: Path) -> None:
    text = explain(tmp_path, loaded(), layers=("a",), dump_step="3", model_name="m")
    assert [word in text for word in ("layers=['a']", "dump_step='3'", "model_name='m'")] == [True] * 3
    for layers, named in ((("conv9",), True), (("conv9", "encoder/*"), False)):  # the test calls ACL itself
        text = explain(tmp_path, loaded(models=(), executions=0), layers=layers)
        assert "no model was loaded through npu_dump.load_model()" in text
        assert ("or a filter matched nothing: layers=['conv9']" in text) is named
        assert ("layers=" in text) is named


def test_a_directory_that_is_gone_a_full_disk_or_a_variable_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dump"
    text = explain(path, loaded())
    assert text.startswith(f"the dump is empty ({path} does not exist")
    assert f"its directory {path} is gone or cannot be written" in text
    for variable in ("NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE"):  # with which GE dumps nothing
        with monkeypatch.context() as patch:
            patch.setenv(variable, "/d")
            assert explain(tmp_path, loaded(released=True)).endswith(f"unset {variable}")
    (tmp_path / "20260101010101").mkdir()
    assert full_words(tmp_path) == ""
    monkeypatch.setattr(diagnose, "LITTLE", 1 << 80)
    assert f"the file system of {tmp_path} is full (" in explain(tmp_path, loaded())
    assert full_words(tmp_path / "gone") == ""


def test_dump_that_cannot_be_read_is_not_called_empty(tmp_path: Path) -> None:
    for run in ("20260101010101", "20260101010102"):
        folder = tmp_path / run / "0"
        folder.mkdir(parents=True)
        source = Path(__file__).parents[1] / "data" / "emulator" / "mixed-dtypes.csv"
        (folder / f"Add.add.1.2.17952287058851{run[-2:]}.csv").write_bytes(source.read_bytes())
    text = explain(tmp_path, loaded(released=True))
    assert text.startswith("two runs in one dump: ")
    assert "holds nothing" not in text


@pytest.mark.each(
    ("activity", "words"),
    [
        (loaded(), "loaded under the dump: net.om, ran once"),
        (loaded(executions=3), "loaded under the dump: net.om, ran 3 times"),
        (loaded(executions=0), "loaded under the dump: net.om, no execution succeeded"),
        (loaded(models=(), executions=0), ""),
        (
            loaded(models=(), programs=("./main",), evidence=Evidence(failed=["acl.mdl.execute: 507015"])),
            "./main ran; acl.mdl.execute: 507015",
        ),
    ],
)
def test_what_ran_is_told_as_far_as_the_runtime_knows(activity: Activity, words: str) -> None:
    assert what_ran(activity) == words


def test_layers_that_no_model_has_share_the_list_of_those_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model())
    dump = tmp_path / "dump"
    dump.mkdir()
    text = explain(dump, loaded(models=(path,)), layers=("conv1", "fc", "head/softmx"))
    assert text.count("the model has ") == 1
    assert "is empty: layers= names no operator of the model: conv1, fc (the model has " in text
    assert "; head/softmx (did you mean head/softmax" in text
