"""What a CI gate relies on."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.plugin.options import all_options

if TYPE_CHECKING:
    from conftest import Project


def test_update_is_refused_under_any_ci_service(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.marked()
    for variable, value in (
        *(("CI", value) for value in ("true", "1", "yes")),
        ("BUILD_NUMBER", "17"),
        ("GITHUB_ACTIONS", "true"),
        ("GITLAB_CI", "true"),
        ("JENKINS_URL", "https://ci.example/"),
        ("TEAMCITY_VERSION", "2026.1"),
        ("TF_BUILD", "True"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            result = project.run("--npudump-update-golden")
        assert result.ret == pytest.ExitCode.USAGE_ERROR, variable
        words = f"ERROR: npudump: --npudump-update-golden is refused because the variable {variable} is set*"
        result.stderr.fnmatch_lines([words])
    assert not project.path.joinpath("golden").exists()


@pytest.mark.parametrize("value", ["", "0", "false", "No"])
def test_variable_that_says_no_is_no_ci(
    project: Project, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CI", value)
    project.marked()
    project.record()


def test_update_under_ci_is_possible_when_told_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    project.marked()
    project.record("--npudump-allow-update-in-ci")
    assert project.golden.exists()


def test_update_says_in_the_header_that_it_approves(project: Project) -> None:
    project.marked()
    result = project.run("--npudump-update-golden")
    result.stdout.fnmatch_lines(["npudump: THIS RUN APPROVES (--npudump-update-golden): *", "collected*"])
    project.run().stdout.no_fnmatch_line("*APPROVES*")


def test_ini_file_that_approves_ends_the_run_before_a_golden_is_written(project: Project) -> None:
    project.marked()
    project.record()
    approved = project.golden.read_bytes()
    project.model(change=0.01)
    project.pytester.makeini("[pytest]\nnpudump_update_golden = true\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: ini key npudump_update_golden: approving is never a *"])
    assert project.golden.read_bytes() == approved


@pytest.mark.parametrize("part", ["npudump-runner", "npudump-reporter"])
def test_run_without_a_part_of_the_plugin_is_refused(project: Project, part: str) -> None:
    project.test_file("@pytest.mark.npu_dump\ndef test_small():\n    pass\n")
    result = project.run("-p", f"no:{part}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: npudump: -p no:{part} blocks a part of the plugin *"])


def test_comparison_runs_under_ci(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.marked()
    project.record()
    monkeypatch.setenv("CI", "true")
    project.model(change=0.01)
    project.run().assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "option", ["--npudump-runtime=auto", "--npudump-runtime=acl", "--npudump-runtime=emulator"]
)
def test_required_npu_ends_the_run_before_the_first_test(project: Project, option: str) -> None:
    project.test_file("def test_other():\n    open('ran', 'w').close()\n")
    result = project.pytester.runpytest_inprocess("--npudump-require-npu", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: --npudump-require-npu*"])
    assert not project.path.joinpath("ran").exists()


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
    project: Project, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    project.marked()
    project.record()
    project.path.joinpath("acl.py").write_text(FAKE_ACL)
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if not workers:
        monkeypatch.setenv("ONCE", "1")
    result = project.pytester.runpytest_subprocess("--npudump-require-npu", *workers)
    assert result.ret != 0
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--npudump-require-npu: pyACL is installed but no device answers*"])


def test_required_npu_can_be_asked_for_in_the_ini_file(project: Project) -> None:
    project.pytester.makeini("[pytest]\nnpudump_require_npu = true\n")
    project.test_file("def test_other():\n    pass\n")
    assert project.pytester.runpytest_inprocess().ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("options", [(), ("--npudump-runtime=acl",), ("--npudump-isolation=process",)])
def test_without_an_npu_marked_tests_are_skipped_with_the_reason_where_that_is_asked_for(
    project: Project, options: tuple[str, ...]
) -> None:
    project.test_file(
        f"@pytest.mark.npu_dump\ndef test_small(npu_dump):\n{project.body}def test_other():\n    pass\n"
    )
    result = project.pytester.runpytest_inprocess("--npudump-skip-without-npu", "-rs", *options)
    result.assert_outcomes(skipped=1, passed=1)
    assert result.ret == 0
    reason = "--npudump-skip-without-npu: no module 'acl' (CANN's pyACL) can be imported; *"
    result.stdout.fnmatch_lines([f"npudump: marked tests are skipped: {reason}", f"SKIPPED [[]1] *{reason}"])
    result.stdout.no_fnmatch_line("*runtime emulator*")
    expecting = project.pytester.runpytest_inprocess(
        "--npudump-skip-without-npu", "--npudump-expect=1", *options
    )
    assert expecting.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_an_emulator_without_its_packages_is_told_in_one_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    project.marked()
    find = importlib.util.find_spec
    monkeypatch.delitem(sys.modules, missing)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == missing else find(name, *rest)
    )
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"npudump: the emulator needs the package '{missing}'*pip install 'pytest-npudump[[]emulator]'"]
    )
    result.stdout.no_fnmatch_line("*MissingExtraError*")


@pytest.mark.e2e
def test_with_an_npu_none_is_skipped(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.marked()
    project.path.joinpath("acl.py").write_text(FAKE_ACL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(project.path), *sys.path]))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    result = project.pytester.runpytest_subprocess("--npudump-skip-without-npu", "--collect-only")
    result.stdout.fnmatch_lines(["npudump: runtime acl *"])
    result.stdout.no_fnmatch_line("npudump: marked tests are skipped*")


@pytest.mark.parametrize("option", ["--npudump-require-npu", "--npudump-runtime=emulator"])
def test_skipping_without_an_npu_excludes_what_else_is_done_then(project: Project, option: str) -> None:
    project.marked()
    result = project.pytester.runpytest_inprocess("--npudump-skip-without-npu", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: npudump: --npudump-skip-without-npu and {option} exclude each other*"]
    )


def test_runtime_acl_without_a_device_is_an_error_that_names_the_emulator(project: Project) -> None:
    project.marked()
    result = project.pytester.runpytest_inprocess("--npudump-runtime=acl")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--npudump-runtime=acl: no module 'acl'*--npudump-runtime=emulator*"])


def test_header_says_which_runtime_auto_chose(project: Project) -> None:
    project.marked()
    result = project.pytester.runpytest_inprocess("--npudump-runtime=auto")
    result.stdout.fnmatch_lines(["npudump: runtime emulator (--npudump-runtime=auto, no module 'acl'*"])


def test_header_says_how_many_tests_name_layers_by_glob_and_thus_dump_all(project: Project) -> None:
    named = [
        f"@pytest.mark.npu_dump(layers=[{layer!r}])\ndef test_{name}(npu_dump):\n    pass\n"
        for name, layer in [("exact", "conv"), ("glob", "conv*")]
    ]
    project.test_file("\n".join(["import pytest", *named]))
    result = project.pytester.runpytest_inprocess("--collect-only", "-v")
    words = "npudump: layers named by glob in 1 of 2 marked tests; CANN takes names: there all*"
    result.stdout.fnmatch_lines([words])


def test_every_option_is_an_ini_key(project: Project) -> None:
    values = {
        "runtime": "emulator",
        "escalate": "off",
        "keep-dumps": "all",
        "device": "0",
        "golden-dir": "approved",
        "dump-dir": "dumps",
        "dump-limit": "1MiB",
        "preset": "torch",
    }
    lines = [f"npudump_{name.replace('-', '_')} = {value}" for name, value in values.items()]
    project.pytester.makeini("\n".join(["[pytest]", "addopts = --strict-config", *lines]))
    project.marked()
    project.pytester.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
    assert list(project.path.joinpath("approved").rglob("*.yaml"))
    assert list(project.path.joinpath("dumps").rglob("*.csv"))
    assert {option.name for option in all_options()} >= set(values)


@pytest.mark.parametrize(
    ("ini", "message"),
    [
        (
            "npudump_runtime = gpu",
            "ini key npudump_runtime is 'gpu', expected one of auto, acl, torch_npu, mindspore, emulator",
        ),
        ("npudump_device = first", "--npudump-device is 'first', expected a device id such as 0"),
        ("npudump_dump_limit = big", "--npudump-dump-limit is 'big', expected a size such as 512MiB"),
    ],
)
def test_bad_ini_value_is_a_usage_error(project: Project, ini: str, message: str) -> None:
    project.pytester.makeini(f"[pytest]\n{ini}\n")
    project.test_file("def test_other():\n    pass\n")
    result = project.pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: npudump: {message}*"])


def test_variant_is_read_before_the_common_golden_and_written_when_named(project: Project) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    project.record("--npudump-golden-variant=ascend310p")
    assert len(list(project.path.joinpath("golden").rglob("*.yaml"))) == 2
    project.run("--npudump-golden-variant=ascend310p").assert_outcomes(passed=1)
    project.run().assert_outcomes(failed=1)
    project.model()
    project.run("--npudump-golden-variant=ascend910b").assert_outcomes(passed=1)


@pytest.mark.e2e
def test_nothing_heavy_is_imported_where_no_test_is_marked(project: Project) -> None:
    heavy = (
        "numpy",
        "yaml",
        "google.protobuf",
        "rich",
        "onnxruntime",
        "ml_dtypes",
        "safetensors",
        "filelock",
    )
    project.path.joinpath("test_cost.py").write_text(
        f"import sys\n\ndef test_cost(request):\n"
        f"    assert request.config.pluginmanager.has_plugin('npudump')\n"
        f"    assert not [name for name in {heavy!r} if name in sys.modules]\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "test_cost.py"]
    result = project.pytester.run(*command)
    assert result.ret == 0, result.stdout.str()


def test_emulator_takes_the_place_of_acl_only_where_it_was_chosen(project: Project) -> None:
    project.test_file(
        """
        def test_import():
            try:
                import acl
            except ImportError:
                pass
            else:
                raise AssertionError("acl was offered although nothing asked for it")
        """
    )
    project.pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert "acl" not in sys.modules


def test_module_that_imports_acl_at_the_top_works_on_the_emulator(project: Project) -> None:
    project.test_file(
        "import acl\n\ndef test_import():\n    assert acl.init() == 0\n    assert acl.finalize() == 0\n"
    )
    project.run().assert_outcomes(passed=1)
    result = project.pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["*No module named 'acl'*"])
