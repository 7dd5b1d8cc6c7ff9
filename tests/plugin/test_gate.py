"""What a CI gate relies on."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial

import pytest

from pytest_npudump.settings import ci_variable
from tests.plugin.conftest import Project, held


@pytest.mark.each(
    ("variable", "value", "told"),
    [
        *((name, value, name) for name, value in (("CI", "1"), ("BUILD_NUMBER", "17"), ("TF_BUILD", "True"))),
        *(("CI", value, "") for value in ("", "0", "false", "No")),
    ],
)
def test_any_ci_service_is_known_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert ci_variable() == told


def test_a_session_without_a_part_of_the_plugin_ends_at_once(project: Project) -> None:
    project.recorded(change=0.01)
    approved = project.golden.read_bytes()
    for part in ("npudump-runner", "npudump-reporter"):
        project.refused(f"ERROR: npudump: -p no:{part} blocks a part of the plugin *", "-p", f"no:{part}")
    assert project.golden.read_bytes() == approved


def test_required_npu_ends_the_run_before_the_first_test(project: Project) -> None:
    project.test_file("def test_other():\n    open('ran', 'w').close()\n", "test_small.py")
    run = project.pytester.runpytest_inprocess
    result = run("--npudump-runtime=npu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: --npudump-runtime=npu: no module 'acl'*set_env.sh*"])
    project.pytester.makeini("[pytest]\nnpudump_runtime = npu\n")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: ini key npudump_runtime = npu: no module 'acl'*"])
    assert not project.path.joinpath("ran").exists()
    project.pytester.makeini("[pytest]\n")
    project.marked()
    words = "*--npudump-runtime=acl: no module 'acl'*--npudump-runtime=emulator*"
    held(run("--npudump-runtime=acl", "-p", "no:cacheprovider"), words, errors=1, passed=0)


FAKE_ACL = """
import os

class rt:
    asked = 0

    @staticmethod
    def get_device_count():
        rt.asked += 1
        worker = "PYTEST_XDIST_WORKER" in os.environ
        return (0 if worker or ("ONCE" in os.environ and rt.asked > 1) else 1), 0
"""


@pytest.mark.e2e
@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_required_npu_that_stops_answering_never_becomes_the_emulator(
    project: Project, workers: tuple[str, ...]
) -> None:
    project.recorded()
    project.path.joinpath("acl.py").write_text(FAKE_ACL)
    project.patch.setenv("PYTHONPATH", str(project.path))
    project.patch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if not workers:
        project.patch.setenv("ONCE", "1")
    result = project.pytester.runpytest_subprocess("--npudump-runtime=npu", *workers)
    words = "*--npudump-runtime=npu: pyACL is installed but no device answers*"
    assert held(result, words, errors=1).ret != 0


@pytest.mark.parametrize("options", [(), ("-onpudump_isolation=process",)])
def test_without_an_npu_marked_tests_are_skipped_with_the_reason_where_that_is_asked_for(
    project: Project, options: tuple[str, ...]
) -> None:
    plain = "def test_other():\n    pass\n"
    project.test_file(f"@pytest.mark.npu_dump\ndef test_small(npu_dump):\n{project.body}{plain}")
    run = partial(project.pytester.runpytest_inprocess, "--npudump-runtime=npu-or-skip", *options)
    reason = "--npudump-runtime=npu-or-skip: no module 'acl'; *"
    shows = [f"npudump: marked tests are skipped: {reason}", f"SKIPPED [[]1] *{reason}"]
    shows.insert(1, "npudump: nothing compared: 1 marked test skipped")
    assert held(run("-rs"), shows, "*runtime emulator*", skipped=1, passed=1).ret == 0
    assert run("-onpudump_expect=1").ret == pytest.ExitCode.TESTS_FAILED


def test_a_session_says_so_where_all_marked_tests_are_skipped(project: Project) -> None:
    skip = "@pytest.mark.skip(reason='later')\n"
    words = "npudump: nothing compared: 2 marked tests skipped"
    plain = f"{skip}def test_plain():\n    pass\n"
    marked = f"{skip}@pytest.mark.npu_dump\ndef test_{{}}(npu_dump):\n    pass\n"
    project.test_file(plain + marked.format("a") + marked.format("b"))
    for workers in ((), ("-n1",)):
        project.run(*workers, skipped=3, shows=words)
    project.test_file(plain)
    project.run(skipped=1, hides="*npudump: nothing*")
    project.test_file(f"{marked.format('a')}@pytest.mark.npu_dump\ndef test_small(npu_dump):\n{project.body}")
    project.run("-n1", skipped=1, failed=1, hides="*npudump: nothing*")


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_an_emulator_without_its_packages_is_told_in_one_line(project: Project, missing: str) -> None:
    project.marked()
    find = importlib.util.find_spec

    def found(name: str, *rest: str) -> object:
        return None if name == missing else find(name, *rest)

    project.patch.delitem(sys.modules, missing)
    project.patch.setattr(importlib.util, "find_spec", found)
    words = f"npudump: the emulator needs the package '{missing}'*pip install 'pytest-npudump[[]emulator]'"
    project.run(errors=1, shows=words, hides="*MissingExtraError*")


def test_header_says_how_many_tests_name_layers_by_glob_and_thus_dump_all(project: Project) -> None:
    mark = "@pytest.mark.npu_dump(layers=[{!r}])\ndef test_{}(npu_dump):\n    pass\n"
    project.test_file(mark.format("conv", "exact") + mark.format("conv*", "glob"))
    words = "npudump: layers named by glob in 1 of 2 marked tests: CANN dumps all layers; full *"
    session = project.pytester.runpytest_inprocess
    held(session("--collect-only", "-v", "--npudump-runtime=acl"), words)
    for runtime in ("emulator", "mindspore"):
        held(session("--collect-only", "-v", f"--npudump-runtime={runtime}"), hides="*by glob*")


@pytest.mark.e2e
def test_nothing_heavy_is_imported_where_no_test_is_marked(project: Project) -> None:
    heavy = ["numpy", "onnx", "pytest_npudump.explain.reference_model", "yaml", "google.protobuf", "rich"]
    heavy += ["onnxruntime", "ml_dtypes", "safetensors", "filelock"]
    project.path.joinpath("test_cost.py").write_text(
        f"import sys\n\ndef test_cost(request):\n"
        f"    assert request.config.pluginmanager.has_plugin('npudump')\n"
        f"    assert not [name for name in {heavy!r} if name in sys.modules]\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "test_cost.py"]
    result = project.pytester.run(*command)
    assert result.ret == 0, result.stdout.str()


@pytest.mark.e2e
def test_a_test_that_passes_imports_nothing_of_failures_and_no_module_by_pytest(project: Project) -> None:
    project.recorded()
    of_failures = ["second_run", "exception", "rounding", "sources", "difference", "origins"]
    of_failures += ["agreement", "model_files", "programs", "repetitions"]
    of_failures += ["torchair", "graphs"]
    project.path.joinpath("conftest.py").write_text(
        f"""
import sys

def pytest_unconfigure():
    ours = {{name: module for name, module in sys.modules.items() if name.startswith("pytest_npudump.")}}
    assert "pytest_npudump.regression.first_run" in ours
    assert not [name for name in ours if name.rpartition(".")[2] in {of_failures!r}]
    rewritten = [name for name, module in ours.items() if "Assertion" in type(module.__loader__).__name__]
    assert rewritten == ["pytest_npudump.plugin"]
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "--npudump-runtime=emulator"]
    result = project.pytester.run(*command)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()


def test_emulator_takes_the_place_of_acl_only_where_it_was_chosen(project: Project) -> None:
    """A module that imports acl at the top works there."""
    project.test_file("def test_import():\n    with pytest.raises(ImportError):\n        import acl\n")
    project.pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert "acl" not in sys.modules
    body = "    assert acl.init() == 0\n    assert acl.finalize() == 0\n"
    project.test_file(f"import acl\n\ndef test_import():\n{body}")
    project.run(passed=1)
    held(project.pytester.runpytest_inprocess(), "*No module named 'acl'*")
