"""Applications in a process of their own: pyACL programs, unchanged, that read an acl.json."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.plugin.conftest import APPLICATION, Project

pytestmark = pytest.mark.e2e
ACL_JSON = b'{"err_msg_mode": "1"}'
RUN = '    npu_dump.run([*COMMAND, "acl.json"], acl_json="acl.json", models=["small.onnx"])\n'


@pytest.fixture
def application(classify: Project) -> Project:
    """A project whose model is run by an application that calls ``acl.init("acl.json")``."""
    (classify.path / "acl.json").write_bytes(ACL_JSON)
    write_test(classify)
    return classify


def write_test(project: Project, body: str = RUN, marker: str = "") -> None:
    project.test_file(f"{APPLICATION}\n@pytest.mark.npu_dump({marker})\ndef test_small(npu_dump):\n{body}")


def rows(project: Project) -> list[str]:
    """Return the golden's lines, one a tensor."""
    tensors: str = yaml.safe_load(project.golden.read_text())["tensors"]
    return tensors.splitlines()


def test_an_application_s_layers_are_those_of_the_same_model_in_the_test(application: Project) -> None:
    """A calibration only repeats it, and a note says why."""
    application.record("-onpudump_repeats=1")
    outside = rows(application)
    producer = yaml.safe_load(application.golden.read_text())["producer"]
    assert (producer["runtime"], "onnxruntime" in producer) == ("external", False)
    assert (application.path / "acl.json").read_bytes() == ACL_JSON
    calibrate = ("--npudump-update-golden=calibrate", "-onpudump_calibration_runs=3")
    words = "*only repetitions were measured, as the plugin cannot vary what the test runs*"
    application.run(*calibrate, passed=1, shows=words)
    assert yaml.safe_load(application.golden.read_text())["calibration"]["varied"] == ["repeats"]
    application.golden.unlink()
    application.recorded('acl_json={"dump_data": "stats"}')
    assert outside == rows(application)
    assert len(outside) == 5


SWAPPED = """
import pathlib, runpy, sys
from pytest_npudump.emulator.install import install
install()
model = pathlib.Path("small.onnx")
right = model.read_bytes()
model.write_bytes(pathlib.Path("wrong.onnx").read_bytes())
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    model.write_bytes(right)
"""


def test_no_operator_is_judged_by_a_model_that_the_application_wrote_in_between(application: Project) -> None:
    application.record("-onpudump_repeats=1")
    right = application.path.joinpath("small.onnx").read_bytes()
    application.model(change=0.01)
    application.path.joinpath("small.onnx").rename(application.path / "wrong.onnx")
    application.path.joinpath("small.onnx").write_bytes(right)
    application.path.joinpath("swapped.py").write_text(SWAPPED)
    command = '[*CLIENT, "swapped.py", *ARGUMENTS, "acl.json"]'
    write_test(application, f'    npu_dump.run({command}, acl_json="acl.json", models=["small.onnx"])\n')
    words = "recomputed: *small.onnx was written again after it was loaded, *"
    application.run(failed=1, shows=words, hides="*must be wrong*")


def test_what_the_application_gets_is_its_own_file_with_the_dump_of_the_test(application: Project) -> None:
    body = """
    done = npu_dump.run([sys.executable, "-c", "print(open('acl.json').read())"], acl_json="acl.json")
    (npu_dump.directory / "seen.json").write_text(done.stdout.read_text())
    (npu_dump.directory / "written.json").write_text(npu_dump.config_path.read_text())
    """
    write_test(application, body, 'layers=["block/conv.1"]')
    application.run()
    seen = json.loads((application.path / "seen.json").read_text())
    written = json.loads((application.path / "written.json").read_text())
    assert seen == {"err_msg_mode": "1", **written}
    assert seen["dump"]["dump_list"] == [{"layer": ["block/conv.1"]}]


def test_an_application_that_fails_fails_the_test_with_its_last_words(application: Project) -> None:
    """One that is passed over is not said to ignore its configuration."""
    (application.path / "small.onnx").unlink()
    shows = ["*ExternalProgramError: *", "*acl.mdl.load_from_file failed: 145002*"]
    application.run(failed=1, shows=shows, hides=["*in run_program*", "*external.py:*"])
    assert (application.path / "acl.json").read_bytes() == ACL_JSON
    for program, limit, words in (
        ("import time; time.sleep(600)", 0.5, "did not end within 0.5 seconds and was ended"),
        ("raise SystemExit(3)", 60, "ended with exit code 3"),
    ):
        body = f"""
    with pytest.raises(Exception):
        npu_dump.run([sys.executable, "-c", {program!r}], acl_json="acl.json", timeout={limit})
    """
        write_test(application, body)
        shows = f"npudump: the dump is empty: *{words}*; what *printed is in *"
        application.run(failed=1, shows=shows, hides="*it has to hand*")


LOAD = "    run(npu_dump, np.ones((1, 1, 8, 8), np.float32))\n"


def test_two_applications_are_told_apart_by_captures(application: Project) -> None:
    """None gets a dump that holds another run."""
    body = f"""{LOAD}
    for name in ("first", "second"):
        with npu_dump.capture(name) as folder:
            assert npu_dump.config["dump"]["dump_path"] == str(folder)
            npu_dump.run([*COMMAND, "acl.json"], acl_json="acl.json", models=["small.onnx"])
    """
    write_test(application, body)
    application.record("-onpudump_repeats=1")
    names = [row.split()[0] for row in rows(application)]
    assert len(names) == 15
    assert sum("first" in name for name in names) == sum("second" in name for name in names) == 5
    application.run(passed=1)
    write_test(application, LOAD + RUN)
    words = "*RequestError: *holds another run already*with npu_dump.capture(name)*"
    application.run("--npudump-update-golden", failed=1, shows=words)


def test_output_is_kept_with_the_dump(application: Project) -> None:
    """The test's own process has no dump while the application runs."""
    write_test(application, RUN.replace("*COMMAND", '*CLIENT, "-c", f"print(7); {START}", *ARGUMENTS'))
    application.record("--npudump-output=.", "-onpudump_keep_dumps=all", "-onpudump_repeats=1")
    (path,) = (application.path / "dumps").rglob("stdout.txt")
    assert path.read_text() == "7\n"
    assert (path.parent / "stderr.txt").read_text() == ""
    off = "    assert acl.mdl.finalize_dump() == 100045\n    assert acl.finalize() == 0\n"
    write_test(application, f"    import acl\n    assert acl.init() == 0\n{RUN}{off}")
    application.record("-onpudump_repeats=1")


def test_what_a_killed_run_left_is_put_back_and_reported(application: Project) -> None:
    killer = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
    application.test_file(
        f"{APPLICATION}\n@pytest.mark.npu_dump\ndef test_killed(npu_dump):\n"
        f"    npu_dump.run([sys.executable, '-c', {killer!r}], acl_json='acl.json')\n",
        "killed.py",
    )
    options = ("--npudump-runtime=emulator", "killed.py")
    assert application.pytester.runpytest_subprocess(*options).ret == -9
    assert (application.path / "acl.json").read_bytes() != ACL_JSON
    words = "*acl.json was left by a run that was killed; it has been put back*"
    application.run("--npudump-update-golden", "-W", "default", passed=1, warnings=1, shows=words)
    assert (application.path / "acl.json").read_bytes() == ACL_JSON
