"""Marked tests of torch_npu and MindSpore, over stand-ins with their calls, answers and files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.record.rows import whole
from tests.plugin.conftest import Project, held

CLIENT = Path(__file__).parents[1] / "data" / "torch_client"
RUNTIME = "--npudump-runtime=torch_npu"
DUMPS = "--npudump-output=."
CALLS = [("aclnnAdd", 1), ("aclnnMul", 2), ("aclnnAdd", 3), ("aclnnMul", 4), ("aclnnAdd", 5)]


class Eager:
    """A project with one test that runs eager operators, or graphs of them."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @property
    def golden(self) -> str:
        return self.project.golden.read_text(encoding="utf-8")

    def write(
        self, body: Sequence[tuple[str, float]] | str, marker: str = "scene='op'", counter: int = 0
    ) -> None:
        """Write the test; the process has made ``counter`` calls before."""
        self.project.patch.setenv("TORCH_CLIENT_COUNTER", str(counter))
        lines = body if isinstance(body, str) else "".join(f"    operator({n!r}, {v})\n" for n, v in body)
        self.file(f"@pytest.mark.npu_dump({marker})\ndef test_eager(npu_dump):\n{lines or '    pass'}\n")

    def file(self, source: str) -> None:
        self.project.test_file(f"from torch_npu import _device, npu\n{HEAD}{source}", "test_eager.py")

    def run(self, *options: str, **expected: Any) -> pytest.RunResult:
        return held(self.project.pytester.runpytest_inprocess(RUNTIME, DUMPS, *options), **expected)

    def record(self) -> None:
        result = self.run("--npudump-update-golden")
        assert result.ret == 0, result.stdout.str()


@pytest.fixture
def eager(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Eager]:
    monkeypatch.syspath_prepend(str(CLIENT))
    monkeypatch.setenv("PYTHONPATH", str(CLIENT))
    _forget_client()
    yield Eager(project)
    _forget_client()


def _forget_client() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in {"torch", "torch_npu"} and str(CLIENT) in str(module.__file__):
            del sys.modules[name]


def rows(eager: Eager) -> list[str]:
    return [whole(line.split()[0]) for line in eager.golden.splitlines() if line.startswith("  aclnn")]


def verdicts(eager: Eager) -> list[tuple[str, str]]:
    """Status and key of every failing tensor of the one report."""
    report: dict[str, Any] = eager.project.report()
    found = report["comparison"]["verdicts"]
    return [
        (verdict["status"], verdict.get("key") or f"{verdict['layer']}:{verdict['io']}.{verdict['slot']}")
        for verdict in found
        if verdict["status"] != "pass"
    ]


def test_a_golden_holds_no_counter_and_one_call_more_or_less_is_one_tensor(eager: Eager) -> None:
    eager.write(CALLS)
    eager.record()
    assert rows(eager) == [
        "aclnnAdd:output.0",
        "aclnnMul:output.0",
        "aclnnAdd#turn=1:output.0",
        "aclnnMul#turn=1:output.0",
        "aclnnAdd#turn=2:output.0",
    ]
    assert "runtime: torch_npu" in eager.golden
    eager.write(CALLS, counter=7_000)
    eager.run(shows="npudump: runtime torch_npu (--npudump-runtime=torch_npu)", passed=1)
    eager.write(CALLS)
    result = eager.project.pytester.runpytest_inprocess(DUMPS)
    held(result, "npudump: runtime torch_npu (auto, *imported torch_npu*", passed=1)
    eager.write([*CALLS[:2], ("aclnnAdd", 9), *CALLS[2:]], counter=40)
    eager.run(shows="*1 only in the dump, of 6: aclnnAdd (call 3)*", failed=1)
    assert verdicts(eager) == [("extra", "aclnnAdd#turn=3:output.0")]
    shutil.rmtree(eager.project.path / "dumps")
    eager.write([*CALLS[:2], *CALLS[3:]])
    eager.run(failed=1)
    assert verdicts(eager) == [("missing", "aclnnAdd#turn=1:output.0")]


def test_the_second_run_compares_a_shifted_call_with_its_own_golden_tensor(eager: Eager) -> None:
    marker = "scene='op', golden_tensors='*'"
    eager.write(CALLS, marker)
    eager.record()
    eager.write([("aclnnAdd", 9), *CALLS[:4], ("aclnnAdd", 5.5)], marker, counter=300)
    eager.run(failed=1)
    assert verdicts(eager) == [("extra", "aclnnAdd#turn=3:output.0"), ("fail", "aclnnAdd#turn=2:output.0")]
    report: dict[str, Any] = eager.project.report()
    (finding,) = report["escalation"]["findings"]
    assert finding["key"] == "aclnnAdd#turn=2:output.0"
    assert finding["reproduced"] is True
    assert finding["elements"]["max_abs"] == 0.5


def test_parts_layers_and_dumps_that_the_test_sets_itself_are_recorded(eager: Eager) -> None:
    cases = {
        "    operator('aclnnAdd', 1)\n"
        "    with npu_dump.capture('part'):\n        operator('aclnnMul', 2)\n"
        "    operator('aclnnExp', 3)\n": (
            "scene='op'",
            ["aclnnAdd:output.0", "aclnnMul#capture=part:output.0", "aclnnExp#capture=after-part:output.0"],
        ),
        "    operator('aclnnAdd', 1)\n    operator('aclnnAdd', 1, kernel='Add')\n": (
            "scene='op', layers=['aclnnAdd>*']",
            ["aclnnAdd>Add:output.0"],
        ),
        "    path = str(npu_dump.config_path)\n    npu.utils.init_dump()\n    npu.utils.set_dump(path)\n"
        "    operator('aclnnAdd', 1)\n": ("scene='op'", ["aclnnAdd:output.0"]),
    }
    for body, (marker, expected) in cases.items():
        eager.write(body, marker)
        eager.record()
        assert rows(eager) == expected


def test_an_empty_dump_fails_and_is_not_said_to_be_without_operators(eager: Eager) -> None:
    """No operator ran, or one of which CANN writes no statistics as it is captured into a graph."""
    captured = "    _device.state['capturing'] = []\n    operator('aclnnAdd', 1)\n"
    words = "either no operator ran on the NPU while the dump was on, or CANN wrote nothing of those that did"
    for body in ([], captured + "    _device.state['capturing'] = None\n"):
        eager.write(body)
        eager.run("--npudump-update-golden", shows=f"*the dump is empty: {words}: *", failed=1)


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


def test_a_graph_of_torchair_is_dumped_by_its_own_configuration(eager: Eager) -> None:
    def write(*, value: float, scope: bool) -> None:
        eager.file(f"import json, pathlib\n{TORCHAIR.format(value=value, scope=scope)}")

    write(value=1, scope=True)
    eager.record()
    assert "  add_1 float32 2 1 1 1" in eager.golden
    write(value=1, scope=False)
    assert eager.run().ret == 0
    for scope in (True, False):
        shutil.rmtree(eager.project.path / "dumps", ignore_errors=True)
        write(value=1.5, scope=scope)
        eager.run("-onpudump_escalate=off", failed=1)
        assert verdicts(eager) == [("fail", "add_1:output.0")]


def test_scenes_whose_healthy_runs_leave_no_file_need_operators_and_a_process_of_their_own(
    eager: Eager,
) -> None:
    words = "*no operator ran on the NPU in the test's own thread while the dump was*"
    for marker in ("scene='overflow'", "scene='exception'"):
        eager.write(CALLS, marker=marker)
        eager.run(passed=1)
        eager.write([], marker=marker)
        eager.run(shows=words, failed=1)
    write = "    import os; open('pids', 'a').write(f'{os.getpid()} ')\n    operator('aclnnAdd', 1)\n"
    eager.write(write, marker="scene='overflow'")
    eager.run(passed=1)
    assert str(os.getpid()) not in eager.project.path.joinpath("pids").read_text().split()
    eager.write("    operator('aclnnAdd', 1)\n", marker="scene='overflow', isolation='none'")
    eager.project.pytester.makeconftest("from torch_npu import _device\n_device.initialise()\n")
    eager.run(shows="*initialised before the dump*leave out isolation='none'*", errors=1)


def test_what_a_chip_or_a_release_of_cann_does_not_know_is_told(eager: Eager) -> None:
    """Statistics in a note of the test; overflows of operators at collection."""
    conftest = "from torch_npu import npu\nnpu.get_device_name = lambda device: 'Ascend310P3'\n"
    eager.project.pytester.makeconftest(conftest)
    eager.write(CALLS, marker="scene='op', acl_json={'dump_stats': ['Max', 'Min', 'Avg']}")
    words = "npudump: note: *dump_stats: documented for Atlas A2 *this is Ascend310P3*"
    assert eager.run("--npudump-update-golden", shows=words).ret == 0
    eager.project.pytester.makeconftest("")
    eager.project.path.joinpath("version.cfg").write_text("version=9.0.0\n", encoding="utf-8")
    eager.project.patch.setenv("ASCEND_HOME_PATH", str(eager.project.path))
    eager.write(CALLS, marker="scene='overflow'")
    eager.run(shows="*in CANN 9.0.0 the overflow dump works for models only*", errors=1)


WORKER = (
    "    import threading\n"
    "    def work():\n        operator('aclnnAdd', 2)\n"
    "    def start(name, work=work):\n"
    "        thread = threading.Thread(target=work, name=name)\n"
    "        thread.start()\n"
    "        return thread\n"
)


def test_eager_operators_of_several_threads_are_refused_unless_they_have_an_order(eager: Eager) -> None:
    for body, named in (
        ("    for thread in [start('one'), start('two')]:\n        thread.join()\n", "one, two"),
        ("    one = start('one')\n    operator('aclnnAdd', 1)\n    one.join()\n", "MainThread, one"),
    ):
        eager.write(WORKER + body)
        words = f"operators were run by several threads ({named}): their executions*(#turn=N)*run them in one"
        eager.run("--npudump-update-golden", shows=f"*{words}*", failed=1)
        assert not [*eager.project.path.joinpath("golden").rglob("*.yaml")]
    for body in (
        "    operator('aclnnAdd', 1)\n    start('one').join()\n",
        "    start('one', lambda: operator('aclnnMul', 2)).join()\n    operator('aclnnAdd', 1)\n",
    ):
        eager.write(WORKER + body)
        eager.record()
        eager.run(passed=1)


HEAD = """\
from torch_npu._device import operator

def captured(value):
    graph = npu.NPUGraph()
    with npu.graph(graph):
        operator("aclnnMul", value)
    return graph

"""
GRAPH = """
@pytest.mark.npu_dump(scene="op", {marker})
def test_graph(npu_dump):
    operator("aclnnAdd", 1)
    graph = captured({value})
    graph.replay()
"""


def test_tensors_of_a_graph_that_is_replayed_once_are_recorded_and_compared(eager: Eager) -> None:
    marker = 'acl_json={"dump_data": "tensor"}, golden_tensors="*"'
    eager.file(GRAPH.format(marker=marker, value=2))
    eager.record()
    assert "  aclnnMul float32 2 2 2 2" in eager.golden
    assert eager.run().ret == 0
    eager.file(GRAPH.format(marker=marker, value=3))
    eager.run(failed=1)
    report: dict[str, Any] = eager.project.report()
    assert [finding["layer"] for finding in report["escalation"]["findings"]] == ["aclnnMul"]
    assert report["escalation"]["reproduced"] is True


KEPT = """
KEPT = {{}}

@pytest.mark.npu_dump(scene="op", acl_json=dict(dump_data="tensor"))
def test_graph(npu_dump):
    first = not KEPT
    graph = KEPT.setdefault("graph", None) or captured(2)
    KEPT["graph"] = graph
    operator("aclnnAdd", {value})
    if first:
        graph.replay()
    else:
        graph.replay()
"""


def test_a_graph_that_the_second_run_takes_from_the_first_is_not_replayed_again(eager: Eager) -> None:
    eager.file(KEPT.format(value=1))
    eager.record()
    eager.file(KEPT.format(value=5))
    eager.run(failed=1)
    assert verdicts(eager) == [("fail", "aclnnAdd:output.0")]
    report: dict[str, Any] = eager.project.report()
    assert "CapturedGraphError" in report["escalation"]["problem"]


def test_what_a_graph_does_not_leave_in_the_dump_fails_the_test(eager: Eager) -> None:
    """It leaves no dump and no error, so that what is eager would be recorded, and would pass."""
    update = "--npudump-update-golden"
    shows = [
        '*npudump: NPUGraph captured at test_eager.py:16: CANN computes no*acl_json={"dump_data": "tensor"}*',
        "*NPUGraph captured at test_eager.py:16 and replayed at test_eager.py:25: CANN computes no*",
    ]
    eager.file(GRAPH.format(marker='acl_json={"dump_data": "stats"}', value=2))
    for options in ((update,), ()):
        eager.run(*options, shows=shows, failed=1)
    again = GRAPH + "    with contextlib.suppress(Exception):\n        graph.replay()\n"
    eager.file("import contextlib\n" + again.format(marker='acl_json={"dump_data": "tensor"}', value=2))
    words = "*replayed at test_eager.py:28: it holds the dump of its tensors*second*"
    eager.run(update, shows=words, failed=1)
    eager.file(
        '\nEARLIER = captured(2)\n\n@pytest.mark.npu_dump(scene="op", acl_json={"dump_data": "tensor"})\n'
        'def test_graph(npu_dump):\n    operator("aclnnAdd", 1)\n    EARLIER.replay()\n'
    )
    words = "*NPUGraph replayed at test_eager.py:*: it was captured before this dump*"
    eager.run(update, shows=words, failed=1)
    assert not list(eager.project.path.rglob("*.yaml"))


MINDSPORE = Path(__file__).parents[1] / "data" / "mindspore_client"
NETS = """
import os
import mindspore

CHANGE = float(os.environ.get("CHANGE", "0"))

def net():
    mindspore.run(0, {"Default/a/Add-op0": 1, "Default/b.c/Mul-op0": 2, "fc.weight": 3})

def other():
    mindspore.run(1, {"Default/a/Add-op1": 4, "Default/d/Mul-op0": 5 + CHANGE, "d.bias": 6 + CHANGE})
"""


@pytest.fixture
def mindspore(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", str(MINDSPORE))
    monkeypatch.syspath_prepend(str(MINDSPORE))
    for name in ("CHANGE", "MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH"):
        monkeypatch.delenv(name, raising=False)
    return project


def write_net(project: Project, body: str, marker: str = "") -> None:
    project.test_file(f"{NETS}\n@pytest.mark.npu_dump({marker})\ndef test_net(npu_dump):\n    {body}\n")


def run_net(project: Project, *options: str, **expected: Any) -> pytest.RunResult:
    options = ("--npudump-runtime=mindspore", "--npudump-output=.", *options)
    return held(project.pytester.runpytest_inprocess(*options), **expected)


def test_steps_of_an_asynchronous_dump_on_ascend_are_judged_by_their_numbers(mindspore: Project) -> None:
    mindspore.patch.setenv("ASCEND", "1")
    write_net(mindspore, "net(); net(); other()")
    assert run_net(mindspore, "--npudump-update-golden").ret == 0
    assert "Default/b.c/Mul-op0#model=net_0,step=1:output.0" in mindspore.golden.read_text()
    run_net(mindspore, shows="npudump: 1 of 1 tests passed; 9 of 9 tensors compared (mindspore)")
    mindspore.patch.setenv("CHANGE", "0.5")
    shows = ["*Default/d/Mul-op0*step=2*", "second run: *reproduced*"]
    assert run_net(mindspore, shows=shows).ret == 1
    mindspore.patch.delenv("CHANGE")
    write_net(mindspore, "net(); other(); net()")
    assert run_net(mindspore, shows="*net_0,step=1*missing*").ret == 1


def test_a_failure_names_the_line_of_source_that_mindspores_graph_tells(mindspore: Project) -> None:
    lines = (
        "subgraph @g() {",
        "  %0(x) = Mul()",
        "      # Fullname with scope: (Default/d/Mul-op0)",
        "      # In file /app/net.py:31, 8~20/        y = self.d(x)/",
    )
    place = "npu_dump.records[0].path.parents[3] / 'graphs' / 'ms_output_trace_code_graph_0.ir'"
    write_net(mindspore, f"other(); ({place}).write_text({chr(10).join(lines)!r})")
    assert run_net(mindspore, "--npudump-update-golden").ret == 0
    mindspore.patch.setenv("CHANGE", "0.5")
    told = "/app/net.py:31: y = self.d(x)"
    run_net(mindspore, shows=f"code:       Default/d/Mul-op0: {told}")
    (report,) = mindspore.path.glob("dumps/*/report.json")
    assert f'"Default_d_Mul-op0": "{told}"' in report.read_text()


def test_names_that_nothing_resolves_are_dumped_with_everything_else(mindspore: Project) -> None:
    """Without a golden's raw names and MindSpore's lists only the files' names are left."""
    write_net(mindspore, "other()")
    assert run_net(mindspore, "--npudump-update-golden").ret == 0
    text = mindspore.golden.read_text().replace("Default/d/Mul", "Default_d_Mul")
    mindspore.golden.write_text(text.replace("d.bias", "d_bias"))
    graphs = "npu_dump.records[0].path.parents[3] / 'graphs'"
    write_net(mindspore, f"other(); import shutil; shutil.rmtree({graphs})")
    mindspore.patch.setenv("CHANGE", "0.5")
    shows = ["second run: reproduced; 2 *", "note:       the raw operator name behind d_bias is not known *"]
    run_net(mindspore, shows=shows)
    files = mindspore.path.glob("dumps/*/run2/dump/**/*.npy")
    assert sorted(path.name.split(".")[1] for path in files) == ["Default_d_Mul-op0", "d_bias"]


def test_an_empty_dump_and_a_layer_that_is_missing_fail(mindspore: Project) -> None:
    write_net(mindspore, "pass")
    run_net(mindspore, shows="npudump: the dump is empty: MindSpore compiled no graph *")
    write_net(mindspore, "net(); other()")
    assert run_net(mindspore, "--npudump-update-golden").ret == 0
    write_net(mindspore, "net()")
    assert run_net(mindspore, shows="*missing*").ret == 1


def test_what_mindspore_cannot_do_is_an_error_at_collection(mindspore: Project) -> None:
    for marker, words in {
        "acl_json={'model_name': 'm'}": "model_name: not with MindSpore: it dumps every network of the *",
        "acl_json={'dump_step': '3-1'}": "MindSpore * would take this dump and ignore part of it: *",
        "data_dump={'kernels': []}": "data_dump[[]'kernels'[]]: not here: use layers",
        "data_dump=[1]": "data_dump: [[]1[]] is not allowed, expected a dict of keys of data_dump.json *",
    }.items():
        write_net(mindspore, "raise AssertionError('must not run')", marker)
        result = run_net(mindspore, shows=f"npudump: test_small.py::test_net: {words}")
        assert result.ret == pytest.ExitCode.INTERRUPTED


NOT_HERE = {
    "npu_dump.run(['true'], acl_json='acl.json')": "run(): hands an acl.json on, and the runtime mindspore",
    "npu_dump.torchair_config()": "torchair_config(): hands an acl.json on",
    "npu_dump.capture('part').__enter__()": "capture(): MindSpore reads its dump configuration once ",
    "npu_dump.load_model('net.om')": "load_model('net.om'): the runtime mindspore loads .mindir files",
}


def test_what_the_fixture_cannot_do_with_mindspore_says_what_can_be_done(mindspore: Project) -> None:
    raises = "\n    with pytest.raises(Exception) as raised:\n        "
    calls = (f"{raises}{call}\n    assert {words!r} in str(raised.value)" for call, words in NOT_HERE.items())
    write_net(mindspore, f"net(){''.join(calls)}\n    raise LookupError('all was said')")
    run_net(mindspore, shows="E * LookupError: all was said", failed=1)
