"""``npudump config show``: the file a test would use, without running it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_npudump.cli import main

Show = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("collects")
SOURCE = """
import pytest

pytestmark = []

@pytest.mark.npu_dump(layers=["conv1"], acl_json={"dump_mode": "all"})
def test_one(npu_dump):
    raise AssertionError("this test must not run")

def test_unmarked():
    pass

@pytest.mark.npu_dump(acl_json={"dump_level": "op"})
class TestGroup:
    @pytest.mark.npu_dump(acl_json={"model_name": "m", "opname_range": [{"begin": "a", "end": "b"}]})
    @pytest.mark.parametrize("size", [1, 2])
    def test_sizes(self, size):
        pass

@pytest.mark.npu_dump("conv*")
def test_glob():
    pass
"""


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    for name in ("PYTEST_DEBUG_TEMPROOT", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins cost a second each time
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p npudump")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    project(SOURCE)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["config", "show", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def project(source: str, ini: str = "", runtime: str = "emulator") -> None:
    Path("pytest.ini").write_text(f"[pytest]\nnpudump_runtime = {runtime}\n{ini}\n")
    Path("test_shown.py").write_text(dedent(source))


def dump_of(out: str) -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = json.loads(out)
    assert list(content) == ["dump"]
    return content["dump"]


@pytest.mark.e2e
def test_the_printed_file_is_the_one_the_test_s_run_writes(show: Show, warm: Any) -> None:
    project(
        """
        import pathlib, pytest

        @pytest.mark.npu_dump(layers=["conv1"], acl_json={"dump_mode": "all", "dump_stats": ["Max", "Min"]})
        def test_one(npu_dump):
            pathlib.Path("written.json").write_text(npu_dump.config_path.read_text())
        """,
        "npudump_output = .",
    )
    code, out, _ = show("test_shown.py::test_one")
    assert code == 0
    warm.run("-mpytest")
    assert json.loads(out) == json.loads(Path("written.json").read_text())


def test_what_was_chosen_with_the_golden_is_shown_and_torchair_gets_the_acl_json(show: Show) -> None:
    golden = Path("golden/test_shown/test_one.yaml")
    golden.parent.mkdir(parents=True)
    for told, data in (("{dump_data: tensor}", "tensor"), ("{}", "stats")):
        golden.write_text(f"producer: {told}\n")
        assert dump_of(show("test_shown.py::test_one")[1])["dump_data"] == data
    code, out, _ = show("test_shown.py::test_one", "--for", "torchair")
    options = json.loads(out)
    assert code == 0
    assert options.pop("dump_config_path").endswith("-1/run1/acl.json")
    assert options == {"enable_dump": False}


def test_markers_of_class_and_function_are_merged_and_warnings_go_to_standard_error(show: Show) -> None:
    code, out, err = show("test_shown.py::TestGroup::test_sizes[2]")
    dump = dump_of(out)
    assert code == 0
    assert dump["dump_level"] == "op"
    assert dump["dump_list"] == [{"model_name": "m", "opname_range": [{"begin": "a", "end": "b"}]}]
    assert 'warning: dump_level: "op" switches the dump of aclnn operators' in err
    assert "warning" not in out
    _, out, err = show("test_shown.py::test_glob")
    assert dump_of(out)["dump_list"] == [{}]
    assert "every layer is dumped, and 'conv*' selects afterwards" in err


def test_the_only_marked_test_needs_no_name_and_the_chip_and_the_environment_warn(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = "@pytest.mark.npu_dump(scene='op', acl_json={'dump_stats': ['Max']})"
    project(f"import pytest\n\n{marker}\ndef test_one(): pass\n")
    monkeypatch.setenv("NPU_COLLECT_PATH", "/d")
    code, out, err = show("--for", "acl")
    assert code == 0
    assert dump_of(out)["dump_op_switch"] == "on"
    assert "warning: dump_stats: documented for Atlas A2 (Ascend910B) only, and the chip is not known" in err
    assert "warning: NPU_COLLECT_PATH: " in err


def test_dump_path_is_the_place_it_would_be_and_nothing_is_made(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(temporary))
    code, out, err = show("test_shown.py::test_one")
    path = dump_of(out)["dump_path"]
    assert code == 0
    assert path.startswith(str(temporary))
    assert "/pytest-N/npudump/test_shown_py_test_one-" in path
    assert path.endswith("-1/run1/dump")
    assert "note: N in the path" in err
    assert list(temporary.iterdir()) == []
    project(SOURCE, f"addopts = --basetemp={tmp_path / 'base'}")
    _, out, err = show("test_shown.py::test_one")
    assert dump_of(out)["dump_path"].startswith(f"{tmp_path}/base/npudump/test_shown_py_test_one-")
    assert "note:" not in err
    assert not (tmp_path / "base").exists()
    project(SOURCE, "npudump_output = with blank")  # which GE refuses
    code, out, err = show("test_shown.py::test_one")
    assert code == 1
    assert dump_of(out)["dump_path"].startswith(f"{tmp_path}/project/with blank/dumps/")
    assert err.startswith("error: no model is dumped, for GE refuses silently: dump_path: ")


@pytest.mark.each(
    ("words", "message"),
    [
        (("test_shown.py::test_nothing",), "pytest collects nothing: not found: "),
        (("gone.py",), "pytest collects nothing: file or directory not found: gone.py"),
        (("test_shown.py::test_unmarked",), "test_shown.py::test_unmarked is without the marker npu_dump"),
        (("test_shown.py::TestGroup",), "2 tests with the marker npu_dump: name one of test_shown.py::TestG"),
        ((), "4 tests with the marker npu_dump"),
    ],
)
def test_a_test_that_cannot_be_shown_is_one_line(show: Show, words: tuple[str, ...], message: str) -> None:
    code, out, err = show(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"npudump: {message}")
    assert err.count("\n") == 1


@pytest.mark.each(
    ("source", "ini", "message"),
    [
        ("import nothing_of_this_name", "", "cannot be collected: ModuleNotFoundError: No module named"),
        (
            "import pytest\n\n@pytest.mark.npu_dump(acl_json={'dump_mode': 'Input'})\ndef test_one(): pass\n",
            "",
            "cannot be collected: npudump: test_shown.py::test_one: acl_json: dump_mode: 'Input' is not",
        ),
        (SOURCE, "addopts = -k other", "is deselected, by -k, -m or a plugin"),
        ("", "", "pytest collects no test in test_shown.py"),
        ("import os\n\nos._exit(9)", "", "pytest ended with 9 before it collected anything: "),
    ],
)
def test_a_collection_that_fails_has_its_reason(show: Show, source: str, ini: str, message: str) -> None:
    project(source, ini)
    code, out, err = show("test_shown.py")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_of_a_file_and_a_test_the_reason_is_that_of_the_one_at_fault(show: Show) -> None:
    marker = "@pytest.mark.npu_dump(scene='{0}')\ndef test_{0}(): pass\n"
    for source, test, reason in (
        ("import nothing_of_this_name\n", "test_one", "ModuleNotFoundError"),
        (
            f"import pytest\n\n{marker.format('bad')}\n{marker.format('worse')}",
            *("test_worse", "npudump: test_shown.py::test_worse: scene: 'worse' is not allowed"),
        ),
    ):
        project(source)
        code, _, err = show(f"test_shown.py::{test}")
        assert code == 2
        assert f"test_shown.py::{test} cannot be collected: {reason}" in err


def test_a_project_that_switches_the_plugin_off_is_told_so(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:npudump")
    Path("pytest.ini").write_text("[pytest]\n")
    code, _, err = show("test_shown.py")
    assert code == 2
    assert "this needs the plugin npudump, and addopts or PYTEST_ADDOPTS switch it off" in err


MINDSPORE = """
import pytest

@pytest.mark.npu_dump(layers=["Default/fc1-Dense/MatMul-op0"], acl_json={"dump_step": "0|2-3"})
def test_net():
    pass

@pytest.mark.npu_dump(
    acl_json={"dump_data": "stats", "dump_stats": ["Max"]}, data_dump={"stat_calc_mode": "device"}
)
def test_statistics():
    pass

@pytest.mark.npu_dump(acl_json={"model_name": "m"})
def test_model():
    pass
"""
NETWORK = MINDSPORE.partition('@pytest.mark.npu_dump(acl_json={"model_name')[0]


def test_mindspore_s_file_has_the_marker_s_wishes_under_mindspore_s_names(show: Show) -> None:
    project(NETWORK, runtime="mindspore")
    code, out, err = show("test_shown.py::test_net")
    common = json.loads(out)["common_dump_settings"]
    assert code == 0
    assert (common["dump_mode"], common["kernels"]) == (1, ["Default/fc1-Dense/MatMul-op0"])
    assert (common["iteration"], common["input_output"], common["saved_data"]) == ("0|2-3", 2, "tensor")
    assert json.loads(out)["e2e_dump_settings"] == {"enable": True, "trans_flag": True}
    assert common["path"].endswith("-1/run1/dump")
    assert err.startswith("note: N in the path")
    code, out, _ = show("test_shown.py::test_statistics", "--for", "mindspore")
    assert code == 0
    assert json.loads(out)["common_dump_settings"]["statistic_category"] == ["max"]
    assert json.loads(out)["e2e_dump_settings"]["stat_calc_mode"] == "device"
    code, _, err = show("test_shown.py::test_net", "--for", "acl")
    assert code == 2
    assert "this project's runtime is mindspore, which reads no acl.json" in err


def test_mindspore_s_file_is_judged_for_the_device_and_what_it_has_not_is_an_error(show: Show) -> None:
    project(NETWORK)
    words = ("test_shown.py::test_statistics", "--for", "mindspore", "--device", "CPU")
    code, out, err = show(*words[:1])
    assert (code, out) == (2, "")
    assert "data_dump: keys of MindSpore's data_dump.json, only with --npudump-runtime=mindspore" in err
    code, out, err = show(*words)
    assert code == 1
    assert "error: MindSpore refuses it on CPU: common_dump_settings.saved_data" in err
    project(MINDSPORE)
    code, _, err = show("test_shown.py::test_model", "--for", "mindspore")
    assert code == 2
    assert "model_name: not with MindSpore: it dumps every network of the process" in err


TORCHAIR = """
import pytest

@pytest.mark.npu_dump(isolation="process")
def test_isolated(npu_dump):
    pass

@pytest.mark.npu_dump(scene="op")
def test_operators(npu_dump):
    pass
"""


def test_torchair_in_the_process_of_other_tests_is_a_warning_and_without_acl_json_refused(show: Show) -> None:
    project(TORCHAIR)
    words = ("test_shown.py::test_operators", "--for", "torchair")
    code, out, err = show(*words)
    assert (code, json.loads(out)["enable_dump"]) == (0, False)
    assert "warning: TorchAir reads its dump setting with the first graph of a process" in err
    assert "first graph" not in show("test_shown.py::test_isolated", *words[1:])[2]
    Path("pytest.ini").write_text("[pytest]\nnpudump_isolation = process\n")
    assert "first graph" not in show(*words)[2]
    project(TORCHAIR, runtime="mindspore")
    code, out, err = show(*words)
    assert (code, out) == (1, "")
    assert "this project's runtime is mindspore, which has no acl.json to hand on" in err


@pytest.mark.e2e
@pytest.mark.usefixtures("show")
def test_pytest_is_loaded_by_the_process_that_collects_alone() -> None:
    program = (
        "import sys; from pytest_npudump.cli import main; "
        "code = main(['config', 'show', 'test_shown.py::test_one']); "
        "print(code, sorted({'pytest', '_pytest', 'numpy', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "0 []"


@pytest.mark.e2e
@pytest.mark.usefixtures("show")
def test_a_full_disk_is_told_in_a_line() -> None:
    program = (
        "import resource, sys; from pytest_npudump.cli import main; "
        "sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); "
        "sys.exit(main(['config', 'show', 'test_shown.py::test_one']))"
    )
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # the processes that this one starts as well
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "File too large" in done.stderr
