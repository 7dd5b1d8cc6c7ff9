"""Scenes whose healthy runs leave no file: what shows that a program or the test's own calls ran."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

# pytester forgets modules that a run imports; a later run would then mix their classes with new ones.
import pytest_npudump.emulator.acl

if TYPE_CHECKING:
    from conftest import Project

APPLICATION = Path(__file__).parents[2] / "data" / "emulator" / "classify.py"
HEADER = """
import sys
from pathlib import Path
START = (
    "import sys, runpy; from pytest_npudump.emulator.install import install; install(); "
    "PLANT"
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
COMMAND = [sys.executable, "-c", START, "classify.py", "half.om", "x.npy", "result.npy"]
"""
RUN = '    npu_dump.run([*COMMAND, "acl.json"], acl_json="acl.json")\n'


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_DUMP_SCENE", "ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def application(project: Project) -> Project:
    """A project whose application squares float16 values from x.npy, which overflow above 256."""
    shutil.copy(APPLICATION, project.path / "classify.py")
    np.save(project.path / "x.npy", np.full((2, 3), 2, np.float16))
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"], name="block/square"),
        helper.make_node("Cast", ["a"], ["y"], name="cast", to=TensorProto.FLOAT),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    model = helper.make_model(
        helper.make_graph(nodes, "half", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, str(project.path / "half.onnx"))
    return project


def write_test(project: Project, marker: str, body: str = RUN, plant: str = "") -> None:
    header = HEADER.replace("PLANT", plant)
    project.test_file(f"{header}\n@pytest.mark.npu_dump({marker})\ndef test_x(npu_dump):\n{body}")


SCENES = ["scene='overflow'", "scene='exception', isolation='none'"]


@pytest.mark.parametrize("marker", SCENES)
def test_a_healthy_application_passes(application: Project, marker: str) -> None:
    write_test(application, marker)
    application.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("marker", SCENES)
def test_an_application_that_never_reads_its_configuration_does_not_pass(
    application: Project, marker: str
) -> None:
    write_test(application, marker, RUN.replace(', "acl.json"]', "]"))
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *nothing shows that*never read acl.json; it has to hand *"])


@pytest.mark.parametrize("marker", SCENES)
def test_one_application_of_two_is_not_enough(application: Project, marker: str) -> None:
    write_test(application, marker, RUN + RUN.replace(', "acl.json"]', "]"))
    application.run().assert_outcomes(failed=1)


@pytest.mark.parametrize("marker", SCENES)
def test_an_application_that_fails_proves_nothing(application: Project, marker: str) -> None:
    body = """
    code = "import sys; open(sys.argv[1]).read(); sys.exit(3)"
    npu_dump.run([sys.executable, "-c", code, "acl.json"], acl_json="acl.json", check=False)
    """
    write_test(application, marker, body)
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *read *acl.json and ended with 3*"])


def test_an_application_that_overflows_fails(application: Project) -> None:
    np.save(application.path / "x.npy", np.full((2, 3), 300, np.float16))
    write_test(application, "scene='overflow'")
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: block/square (Mul) overflowed: *"])


PLANT = "from pytest_npudump.emulator.faults import fail; fail('block/square'); "


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("aic_err_norm_dump", "block/square (Mul) failed on the NPU (device 0, stream 3, task 1)"),
        (
            "aic_err_brief_dump",
            "an operator that its dump does not name failed on the NPU (device 0, stream 3*",
        ),
        (
            "aic_err_detail_dump",
            "the kernel te_mul_block_square__kernel0 failed on the NPU (device 0, stream*",
        ),
    ],
)
def test_an_operator_that_fails_in_an_application_is_named(
    application: Project, scene: str, words: str
) -> None:
    body = RUN.replace(")\n", ", check=False)\n")
    isolation = "" if scene == "aic_err_detail_dump" else ", isolation='none'"
    write_test(application, f"scene='exception', dump_scene={scene!r}{isolation}", body, PLANT)
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"npudump: {words}"])


def test_a_model_scene_says_that_the_application_never_read_its_configuration(application: Project) -> None:
    write_test(application, "", RUN.replace(', "acl.json"]', "]"))
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the dump holds nothing: *ran and dumped nothing: *never read acl.json; *"])


@pytest.mark.parametrize("variable", ["ASCEND_WORK_PATH", "ASCEND_DUMP_SCENE"])
def test_an_application_s_exception_dump_is_not_sent_elsewhere(application: Project, variable: str) -> None:
    body = RUN.replace(")\n", f", env={{{variable!r}: 'aic_err_norm_dump'}})\n")
    write_test(application, "scene='exception', isolation='none'", body)
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*RequestError: run(*{variable}: the program's exception dump would go *"])


OWN_CALLS = """
    import acl
    {switch_on}
    acl.rt.set_device(0)
    model_id, ret = acl.mdl.load_from_file("half.om")
    address, _ = acl.rt.malloc(12, 0)
    data = np.full(6, {value}, np.float16).tobytes()
    acl.rt.memcpy(address, 12, acl.util.bytes_to_ptr(data), 12, 1)
    datasets = [acl.mdl.create_dataset() for _ in range(2)]
    for dataset, room, size in zip(datasets, (address, acl.rt.malloc(24, 0)[0]), (12, 24)):
        acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(room, size))
    {run}
    acl.rt.reset_device(0)
    acl.finalize()
"""
EXECUTE = "assert acl.mdl.execute(model_id, *datasets) == 0"
BY_INIT = "assert acl.init(str(npu_dump.config_path)) == 0"
BY_SET_DUMP = (
    "path = str(npu_dump.config_path); acl.init(); acl.mdl.init_dump(); assert acl.mdl.set_dump(path) == 0"
)


@pytest.mark.parametrize("marker", SCENES)
@pytest.mark.parametrize(
    "switch_on", ["acl.init()", BY_INIT, BY_SET_DUMP], ids=["as-ever", "by-init", "by-set_dump"]
)
def test_what_a_test_runs_through_acl_itself_counts(
    application: Project, marker: str, switch_on: str
) -> None:
    write_test(application, marker, OWN_CALLS.format(switch_on=switch_on, value=2, run=EXECUTE))
    application.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("marker", SCENES)
@pytest.mark.parametrize(
    ("switch_on", "run"),
    [
        (BY_SET_DUMP, "pass"),
        ("npu_dump.config_path; acl.init()", EXECUTE),
        (f"{BY_SET_DUMP}; acl.mdl.finalize_dump()", EXECUTE),
        ("npu_dump.config_path; acl.init(); acl.mdl.init_dump(); acl.mdl.set_dump('x.json')", EXECUTE),
    ],
    ids=["never-run", "never-on", "off-again", "another-file"],
)
def test_calls_that_ran_nothing_under_the_dump_do_not_count(
    application: Project, marker: str, switch_on: str, run: str
) -> None:
    (application.path / "x.json").write_text('{"dump": {"dump_scene": "aic_err_norm_dump"}}')
    write_test(application, marker, OWN_CALLS.format(switch_on=switch_on, value=2, run=run))
    application.run().assert_outcomes(failed=1)


def test_a_model_loaded_before_the_dump_was_on_does_not_count(application: Project) -> None:
    late = "path = str(npu_dump.config_path); acl.mdl.init_dump(); acl.mdl.set_dump(path); " + EXECUTE
    switch_on = "npu_dump.config_path; acl.init()"
    write_test(application, SCENES[0], OWN_CALLS.format(switch_on=switch_on, value=2, run=late))
    application.run().assert_outcomes(failed=1)


def test_pyacl_is_what_it_was_behind_the_test(application: Project) -> None:
    write_test(application, SCENES[0], OWN_CALLS.format(switch_on="acl.init()", value=2, run=EXECUTE))
    before = {name: getattr(pytest_npudump.emulator.acl.mdl, name) for name in ("execute", "set_dump")}
    application.run().assert_outcomes(passed=1)
    assert before == {name: getattr(pytest_npudump.emulator.acl.mdl, name) for name in before}


def test_a_run_that_failed_and_was_passed_over_is_no_run_without_overflow(application: Project) -> None:
    body = """
    from pytest_npudump.emulator.faults import fail
    fail("block/square")
    with npu_dump.load_model("half.onnx") as model:
        with pytest.raises(Exception, match="507011"):
            model.run(np.full((2, 3), 2, np.float16))
    """
    write_test(application, "scene='overflow'", body)
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: no overflow is recorded, and nothing shows*half.onnx was loaded but *"]
    )


OUTSIDE = """
    cold, hot = np.full((2, 3), 2, np.float16), np.full((2, 3), 300, np.float16)
    with npu_dump.load_model("half.onnx") as model:
        with npu_dump.capture("a"):
            {inside}
        {behind}
"""
LOADED_INSIDE = 'npu_dump.load_model("half.onnx").run(cold)'


@pytest.mark.parametrize("marker", SCENES)
@pytest.mark.parametrize(
    ("inside", "behind"),
    [("model.run(hot)", "pass"), (LOADED_INSIDE, "model.run(hot)"), (f"{LOADED_INSIDE}; model.run(hot)", "")],
    ids=["alone", "behind", "beside"],
)
def test_a_model_from_before_a_capture_is_not_dumped_in_or_behind_it(
    application: Project, marker: str, inside: str, behind: str
) -> None:
    write_test(application, marker, OUTSIDE.format(inside=inside, behind=behind))
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: no o*, and *half.onnx was loaded before the dump was set (each *"])


@pytest.mark.parametrize("marker", SCENES)
def test_models_of_a_capture_are_dumped_in_it_and_those_around_it_around_it(
    application: Project, marker: str
) -> None:
    body = """
    cold = np.full((2, 3), 2, np.float16)
    with npu_dump.load_model("half.onnx") as model:
        model.run(cold)
    for name in "ab":
        with npu_dump.capture(name), npu_dump.load_model("half.onnx") as model:
            model.run(cold)
    npu_dump.load_model("half.onnx").run(cold)
    """
    write_test(application, marker, body)
    application.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("marker", SCENES)
def test_a_session_kept_from_an_earlier_test_is_not_dumped(application: Project, marker: str) -> None:
    application.test_file(f"""
kept = []

@pytest.mark.npu_dump({marker})
def test_first(npu_dump):
    kept.append(npu_dump.load_model("half.onnx"))
    kept[0].run(np.full((2, 3), 2, np.float16))

@pytest.mark.npu_dump({marker})
@pytest.mark.parametrize("own", [False, True])
def test_second(npu_dump, own):
    if own:
        npu_dump.load_model("half.onnx").run(np.full((2, 3), 2, np.float16))
    kept[0].run(np.full((2, 3), 300, np.float16))
""")
    result = application.run()
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["npudump: *half.onnx was loaded before the dump was set*"] * 2)


ON_HOT = "run(np.full((2, 3), 300, np.float16))"


@pytest.mark.parametrize("marker", SCENES)
@pytest.mark.parametrize(
    "body",
    [
        f"{RUN}    npu_dump.load_model('half.onnx').{ON_HOT}\n",
        f"    model = npu_dump.load_model('half.onnx')\n{RUN}    model.{ON_HOT}\n",
    ],
    ids=["loaded-after", "loaded-before"],
)
def test_a_model_in_a_process_that_gave_up_its_dump_is_told(
    application: Project, marker: str, body: str
) -> None:
    write_test(application, marker, body)
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: no o*, and not all *half.onnx ran in the test's own process while no dump was on there *"]
    )


PASSED_OVER = """
    try:
        npu_dump.run({command}, acl_json="acl.json", timeout=20{more})
    except Exception:
        pass
"""


@pytest.mark.parametrize("marker", SCENES)
@pytest.mark.parametrize(
    ("command", "more", "words"),
    [
        ('["sh", "-c", "cat acl.json; exit 3"]', "", "ended with exit code 3"),
        ('["sh", "-c", "sleep 30"]', " / 100", "did not end within 0.2 seconds and was ended"),
        ('["./none"]', "", "cannot be started in"),
        ('["true"]', ", cwd='none'", "cannot be started in"),
    ],
    ids=["failed", "ended", "not-started", "nowhere"],
)
def test_a_program_s_failure_that_the_test_passes_over_is_told(
    application: Project, marker: str, command: str, more: str, words: str
) -> None:
    write_test(application, marker, RUN + PASSED_OVER.format(command=command, more=more))
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"npudump: no o*, and not all that ran in the test *{words}*"])


@pytest.mark.parametrize("marker", SCENES)
def test_a_program_that_the_test_itself_interrupts_is_told(application: Project, marker: str) -> None:
    body = f"""{RUN}
    import signal
    def stop(*_):
        raise LookupError
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(LookupError):
        npu_dump.run(["sleep", "30"], acl_json="acl.json")
"""
    write_test(application, marker, body)
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: no o*, and not all *: sleep was interrupted by LookupError"])


def test_a_program_that_is_refused_is_told(application: Project) -> None:
    refused = PASSED_OVER.format(command='["true"]', more=", env={'ASCEND_WORK_PATH': '.'}")
    write_test(application, SCENES[1], RUN + refused)
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: no o*, and not all *ASCEND_WORK_PATH: the program's exception dump*"]
    )


def test_a_program_that_dumped_has_read_its_configuration_whatever_the_file_system_says(
    application: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(application.path / "x.npy", np.full((2, 3), 300, np.float16))
    monkeypatch.setattr("pytest_npudump.runtime.programs.Placed.was_read", lambda _: None)
    write_test(application, "scene='overflow'")
    application.record()
    application.run().assert_outcomes(passed=1)


def test_an_approved_overflow_covers_nothing_that_ran_without_the_dump(application: Project) -> None:
    body = OUTSIDE.format(inside=LOADED_INSIDE.replace("cold", "hot"), behind="pass")
    write_test(application, "scene='overflow'", body)
    application.record()
    application.run().assert_outcomes(passed=1)
    write_test(application, "scene='overflow'", body.replace("pass", "model.run(hot)"))
    result = application.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: not all that ran in the test was under the dump: half.onnx *"])
    application.run("--npudump-update-golden").assert_outcomes(failed=1)
