"""Marked tests of eager operators, over a stand-in with torch_npu's calls and answers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conftest import Project

CLIENT = Path(__file__).parents[1] / "data" / "torch_client"
RUNTIME = "--npudump-runtime=torch_npu"
DUMPS = "--npudump-dump-dir=dumps"
CALLS = [("aclnnAdd", 1), ("aclnnMul", 2), ("aclnnAdd", 3), ("aclnnMul", 4), ("aclnnAdd", 5)]


class Eager:
    """A project with one test that runs eager operators."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = project
        self._patch = monkeypatch

    def write(
        self, body: Sequence[tuple[str, float]] | str, marker: str = "scene='op'", counter: int = 0
    ) -> None:
        """Write the test; the process has made ``counter`` calls before."""
        self._patch.setenv("TORCH_CLIENT_COUNTER", str(counter))
        lines = body if isinstance(body, str) else "".join(f"    operator({n!r}, {v})\n" for n, v in body)
        self.project.test_file(
            f"from torch_npu import _device, npu\nfrom torch_npu._device import operator\n\n"
            f"@pytest.mark.npu_dump({marker})\ndef test_eager(npu_dump):\n{lines or '    pass'}\n",
            "test_eager.py",
        )

    def run(self, *options: str) -> pytest.RunResult:
        return self.project.pytester.runpytest_inprocess(RUNTIME, DUMPS, *options)

    def record(self) -> None:
        result = self.run("--npudump-update-golden")
        assert result.ret == 0, result.stdout.str()


@pytest.fixture
def eager(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Eager]:
    monkeypatch.syspath_prepend(str(CLIENT))
    monkeypatch.setenv("PYTHONPATH", str(CLIENT))
    _forget_client()
    yield Eager(project, monkeypatch)
    _forget_client()


def _forget_client() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in {"torch", "torch_npu"} and str(CLIENT) in str(module.__file__):
            del sys.modules[name]


def rows(eager: Eager) -> list[str]:
    text = eager.project.golden.read_text(encoding="utf-8")
    return [line.split()[0] for line in text.splitlines() if line.startswith("  aclnn")]


def verdicts(eager: Eager) -> list[tuple[str, str]]:
    """Status and key of every failing tensor of the one report."""
    report: dict[str, Any] = eager.project.report()
    found = report["comparison"]["verdicts"]
    return [
        (verdict["status"], verdict.get("key") or f"{verdict['layer']}:{verdict['io']}.{verdict['slot']}")
        for verdict in found
        if verdict["status"] != "pass"
    ]


def test_a_golden_holds_no_counter_and_later_calls_pass(eager: Eager) -> None:
    eager.write(CALLS)
    eager.record()
    assert rows(eager) == [
        "aclnnAdd:output.0",
        "aclnnMul:output.0",
        "aclnnAdd#turn=1:output.0",
        "aclnnMul#turn=1:output.0",
        "aclnnAdd#turn=2:output.0",
    ]
    assert "runtime: torch_npu" in eager.project.golden.read_text(encoding="utf-8")
    eager.write(CALLS, counter=7_000)
    result = eager.run()
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["npudump: runtime torch_npu (--npudump-runtime=torch_npu)"])


def test_auto_finds_torch_npu_where_the_test_imports_it(eager: Eager) -> None:
    eager.write(CALLS)
    eager.record()
    result = eager.project.pytester.runpytest_inprocess(DUMPS)
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["npudump: runtime torch_npu (--npudump-runtime=auto, *imported torch_npu*"])


def test_one_call_more_is_one_extra_tensor(eager: Eager) -> None:
    eager.write(CALLS)
    eager.record()
    eager.write([*CALLS[:2], ("aclnnAdd", 9), *CALLS[2:]], counter=40)
    result = eager.run()
    result.assert_outcomes(failed=1)
    assert verdicts(eager) == [("extra", "aclnnAdd#turn=3:output.0")]
    result.stdout.fnmatch_lines(["*1 only in the dump, of 6: aclnnAdd (call 3)*"])


def test_one_call_less_is_one_missing_tensor(eager: Eager) -> None:
    eager.write(CALLS)
    eager.record()
    eager.write([*CALLS[:2], *CALLS[3:]])
    eager.run().assert_outcomes(failed=1)
    assert verdicts(eager) == [("missing", "aclnnAdd#turn=1:output.0")]


def test_the_second_run_compares_a_shifted_call_with_its_own_golden_tensor(eager: Eager) -> None:
    marker = "scene='op', golden_tensors='*'"
    eager.write(CALLS, marker)
    eager.record()
    eager.write([("aclnnAdd", 9), *CALLS[:4], ("aclnnAdd", 5.5)], marker, counter=300)
    eager.run().assert_outcomes(failed=1)
    assert verdicts(eager) == [("extra", "aclnnAdd#turn=3:output.0"), ("fail", "aclnnAdd#turn=2:output.0")]
    report: dict[str, Any] = eager.project.report()
    (finding,) = report["escalation"]["findings"]
    assert finding["key"] == "aclnnAdd#turn=2:output.0"
    assert finding["reproduced"] is True
    assert finding["elements"]["max_abs"] == 0.5


def test_a_part_of_a_test_has_a_dump_of_its_own(eager: Eager) -> None:
    eager.write(
        "    operator('aclnnAdd', 1)\n"
        "    with npu_dump.capture('part'):\n        operator('aclnnMul', 2)\n"
        "    operator('aclnnExp', 3)\n"
    )
    eager.record()
    assert rows(eager) == [
        "aclnnAdd:output.0",
        "aclnnMul#capture=part:output.0",
        "aclnnExp#capture=after-part:output.0",
    ]


def test_layers_are_chosen_by_api_and_kernel(eager: Eager) -> None:
    eager.write(
        "    operator('aclnnAdd', 1)\n    operator('aclnnAdd', 1, kernel='Add')\n",
        "scene='op', layers=['aclnnAdd>*']",
    )
    eager.record()
    assert rows(eager) == ["aclnnAdd>Add:output.0"]


def test_a_refused_configuration_fails_the_test(eager: Eager) -> None:
    eager.write(CALLS)
    eager.record()
    conftest = "from torch_npu import _device\n_device.answers['aclmdlSetDump'] = 100009\n"
    eager.project.pytester.makeconftest(conftest)
    result = eager.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*set_dump(*acl.json') returned 100009 (ACL_ERROR_INVALID_DUMP_CONFIG)*"])


def test_an_empty_dump_fails_and_is_not_said_to_be_without_operators(eager: Eager) -> None:
    """No operator ran, or one of which CANN writes no statistics as it is captured into a graph."""
    captured = "    _device.state['capturing'] = []\n    operator('aclnnAdd', 1)\n"
    for body in ([], captured + "    _device.state['capturing'] = None\n"):
        eager.write(body)
        result = eager.run("--npudump-update-golden")
        result.assert_outcomes(failed=1)
        words = (
            "either no operator ran on the NPU while the dump was on, or CANN wrote nothing of those that did"
        )
        result.stdout.fnmatch_lines([f"*the dump holds nothing: {words}: *"])


def test_a_model_file_is_refused_with_the_way_out(eager: Eager) -> None:
    eager.write("    npu_dump.load_model('net.om')\n")
    result = eager.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*net.om*loads no model files*--npudump-runtime=acl*"])


def test_a_test_may_switch_the_dump_on_itself(eager: Eager) -> None:
    eager.write(
        "    path = str(npu_dump.config_path)\n    npu.utils.init_dump()\n    npu.utils.set_dump(path)\n"
        "    operator('aclnnAdd', 1)\n"
    )
    eager.record()
    assert rows(eager) == ["aclnnAdd:output.0"]


def test_a_dump_set_with_the_functions_that_say_nothing_fails(eager: Eager) -> None:
    eager.write(
        "    path = str(npu_dump.config_path)\n    npu.init_dump()\n    npu.set_dump(path)\n"
        "    operator('aclnnAdd', 1)\n"
    )
    result = eager.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*raise where torch_npu.npu.set_dump says nothing*"])


TORCHAIR = """
class Option:
    def __init__(self, value):
        self.value = value

class DumpConfig:
    def __init__(self):
        vars(self).update(
            {{name: Option(None) for name in "enable_dump dump_path dump_mode dump_data dump_step".split()}},
            dump_layer=Option(""), dump_config_path=Option(None),
        )
    def __setattr__(self, name, value):
        vars(self)[name].value = value

class CompilerConfig:
    def __init__(self):
        self.mode = Option("max-autotune")
        self.dump_config = DumpConfig()

def compile_and_run(config):
    '''What TorchAir does with the dump of a graph, and what CANN then writes for one layer.'''
    wanted = config.dump_config
    file = wanted.dump_config_path.value
    if file is None:
        root = pathlib.Path(wanted.dump_path.value, "worldsize1_global_rank0")
        root.mkdir()
        file = root.parent.parent / "options.json"
        file.write_text(json.dumps({{"dump": {{"dump_path": str(root)}}}}))
    npu.utils.init_dump()
    npu.utils.set_dump(str(file))
    folder = pathlib.Path(_device.state["config"]["dump_path"], "20261121051811", "0", "graph_1", "1", "0")
    folder.mkdir(parents=True)
    row = "Output,0,8,DT_FLOAT,ND,2,{value:g},{value:g},{value:g},2,0,0,0\\n"
    folder.joinpath("Add.add_1.3.2.1795228705872229.csv").write_text(_device._HEADER + row)

@pytest.mark.npu_dump
def test_graph(npu_dump):
    config = CompilerConfig()
    assert npu_dump.torchair_config(config, scope={scope}) is config
    compile_and_run(config)
"""


def write_torchair(eager: Eager, *, value: float, scope: bool) -> None:
    head = "import json, pathlib\nfrom torch_npu import _device, npu\n"
    eager.project.test_file(head + TORCHAIR.format(value=value, scope=scope), "test_eager.py")


@pytest.mark.parametrize("scope", [True, False])
def test_a_graph_of_torchair_is_dumped_by_its_own_configuration(eager: Eager, *, scope: bool) -> None:
    write_torchair(eager, value=1, scope=scope)
    eager.record()
    assert "  add_1:output.0 float32 2 1 1 1" in eager.project.golden.read_text(encoding="utf-8")
    write_torchair(eager, value=1, scope=not scope)
    assert eager.run().ret == 0
    write_torchair(eager, value=1.5, scope=scope)
    eager.run("--npudump-escalate=off").assert_outcomes(failed=1)
    assert verdicts(eager) == [("fail", "add_1:output.0")]


@pytest.mark.parametrize("scene", ["overflow", "exception"])
def test_healthy_operators_pass_a_scene_whose_healthy_runs_leave_no_file(eager: Eager, scene: str) -> None:
    marker = f"scene='{scene}'"
    eager.write(CALLS, marker=marker)
    eager.run().assert_outcomes(passed=1)
    eager.write([], marker=marker)
    result = eager.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no operator ran on the NPU in the test's own thread while the dump was*"])


def test_overflows_get_a_process_of_their_own_and_one_that_used_the_npu_before_is_refused(
    eager: Eager,
) -> None:
    write = "    import os; open('pids', 'a').write(f'{os.getpid()} ')\n    operator('aclnnAdd', 1)\n"
    eager.write(write, marker="scene='overflow'")
    eager.run().assert_outcomes(passed=1)
    assert str(os.getpid()) not in eager.project.pytester.path.joinpath("pids").read_text().split()
    eager.write("    operator('aclnnAdd', 1)\n", marker="scene='overflow', isolation='none'")
    eager.project.pytester.makeconftest("from torch_npu import _device\n_device.initialise()\n")
    result = eager.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*initialised before the dump*leave out isolation='none'*"])


def test_no_overflow_in_inf_nan_mode_is_no_pass(eager: Eager) -> None:
    eager.write(
        "    _device.state['inf_nan'] = True\n    operator('aclnnAdd', 1)\n", marker="scene='overflow'"
    )
    result = eager.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*none could be: the NPU computes in INF/NAN mode*FORCE_DISABLE=1*"])


def test_a_chip_that_knows_no_dump_stats_is_a_note_of_the_test(eager: Eager) -> None:
    conftest = "from torch_npu import npu\nnpu.get_device_name = lambda device: 'Ascend310P3'\n"
    eager.project.pytester.makeconftest(conftest)
    eager.write(CALLS, marker="scene='op', dump_stats=['Max', 'Min', 'Avg']")
    result = eager.run("--npudump-update-golden")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["npudump: note: *dump_stats: documented for Atlas A2 *this is Ascend310P3*"])


def test_overflows_of_operators_are_refused_at_collection_where_cann_sees_none(
    eager: Eager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.joinpath("version.cfg").write_text("version=9.0.0\n", encoding="utf-8")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    eager.write(CALLS, marker="scene='overflow'")
    result = eager.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*in CANN 9.0.0 the overflow dump works for models only*"])


def test_operators_are_dumped_while_ge_refuses_to_and_overflows_are_not_tested(
    eager: Eager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    eager.write(CALLS)
    eager.record()
    monkeypatch.setenv("NPU_COLLECT_PATH", str(tmp_path))
    assert eager.run().ret == 0
    eager.write(CALLS, marker="scene='overflow'")
    result = eager.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*unset NPU_COLLECT_PATH*"])


WORKER = (
    "    import threading\n"
    "    def work():\n        operator('aclnnAdd', 2)\n"
    "    def start(name, work=work):\n"
    "        thread = threading.Thread(target=work, name=name)\n"
    "        thread.start()\n"
    "        return thread\n"
)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("    for thread in [start('one'), start('two')]:\n        thread.join()\n", "one, two"),
        ("    one = start('one')\n    operator('aclnnAdd', 1)\n    one.join()\n", "MainThread, one"),
    ],
)
def test_eager_operators_of_several_threads_are_refused(eager: Eager, body: str, named: str) -> None:
    eager.write(WORKER + body)
    result = eager.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"*operators were run by several threads ({named}): their executions*(#turn=N)*run them in one*"]
    )
    assert not [*eager.project.path.joinpath("golden").rglob("*.yaml")]


@pytest.mark.parametrize(
    "body",
    [
        "    operator('aclnnAdd', 1)\n    start('one').join()\n",
        "    start('one', lambda: None).join()\n    operator('aclnnAdd', 1)\n    operator('aclnnAdd', 3)\n",
        "    start('one', lambda: operator('aclnnMul', 2)).join()\n    operator('aclnnAdd', 1)\n",
    ],
)
def test_eager_operators_that_have_an_order_or_need_none_are_recorded(eager: Eager, body: str) -> None:
    eager.write(WORKER + body)
    eager.record()
    eager.run().assert_outcomes(passed=1)
