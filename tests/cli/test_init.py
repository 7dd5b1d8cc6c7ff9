"""``npudump init``: a repository gets what it lacks, nothing is overwritten, and its first test runs."""

from __future__ import annotations

import configparser
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump import __version__
from pytest_npudump.cli import first_test, init
from pytest_npudump.cli.first_test import with_keys
from pytest_npudump.cli.init import with_goldens
from tests.onnxmodels.models import onnx_file

Run = Callable[..., Any]
pytestmark = pytest.mark.e2e

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository on a machine with the emulator alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_test, "find_spec", lambda name: name in {"onnx", "onnxruntime"})
    monkeypatch.setattr(first_test, "installed_cann", lambda: None)
    (tmp_path / ".git").mkdir()
    return tmp_path


def model(path: Path, batch: int | str = 2) -> None:
    nodes = [
        helper.make_node("Cast", ["mask"], ["m"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["image", "m"], ["out"], name="mul"),
    ]
    given = {"image": [batch, 4], "mask": (TensorProto.INT64, [4])}
    onnx_file(path, nodes, given, {"out": [batch, 4]})


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def run_pytest(warm: Any) -> Callable[..., str]:
    """Run pytest in a folder, where it is to pass."""

    def run(root: Path, *options: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            code, out, err = warm.run("-mpytest", "-q", "-p", "no:cacheprovider", *options)
        assert code == 0, out + err
        return str(out)

    return run


def test_an_empty_repository_has_a_test_that_runs(
    repository: Path, run: Run, run_pytest: Callable[..., str]
) -> None:
    done = run("init")
    assert (done.code, done.err) == (0, "")
    assert files(repository).keys() == {
        "pytest.ini",
        "test_npudump_first.py",
        ".gitattributes",
        ".github/workflows/npudump.yml",
    }
    assert "which model to run: the test makes one of two operators" in done.out
    assert "whether CI has an NPU" in done.out
    assert "1 recorded" in run_pytest(repository, "--npudump-update-golden", "test_npudump_first.py")
    assert "tests passed" in run_pytest(repository, "test_npudump_first.py")
    job = yaml.safe_load((repository / ".github/workflows/npudump.yml").read_text("utf-8"))
    assert job["jobs"]["npudump"]["steps"][0] == {"uses": "actions/checkout@v4", "with": {"lfs": True}}


def test_the_smallest_model_is_run_with_inputs_of_its_shapes(
    repository: Path, run: Run, run_pytest: Callable[..., str]
) -> None:
    model(repository / "models" / "small-net.onnx", batch="batch")
    (repository / "models" / "large.onnx").write_bytes(b"x" * 10_000)
    (repository / "tests").mkdir()
    done = run("init")
    assert done.code == 0
    text = (repository / "tests" / "test_npudump_first.py").read_text("utf-8")
    assert "'../models/small-net.onnx'" in text
    assert "rng.uniform(0, 1, (1, 4)).astype('float32'),  # 'image'; guessed: axis 0\n" in text
    assert "rng.integers(0, 2, (4,)).astype('int64'),  # 'mask'; guessed: values\n" in text
    assert "models/small-net.onnx: the shape of the input 'image': the test takes (1, 4)" in done.out
    assert "which of 2 models matter" in done.out
    words = "models/small-net.onnx: the values of its inputs: the test makes those of 'image', 'mask'\n"
    assert words in done.out
    assert "1 recorded" in run_pytest(repository, "--npudump-update-golden", "tests")


def graph(path: Path, nodes: list[Any], inputs: list[Any], **weights: Any) -> None:
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    out = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    found = helper.make_graph(nodes, "g", inputs, out, initializer=constants)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(found, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def test_inputs_are_those_with_which_the_model_runs(
    repository: Path, run: Run, run_pytest: Callable[..., str]
) -> None:
    value, node = helper.make_tensor_value_info, helper.make_node
    graph(
        repository / "tokens" / "net.onnx",
        [
            node("Gather", ["words", "ids"], ["word"], name="embed"),
            node("Cast", ["segment"], ["index"], name="cast", to=TensorProto.INT64),
            node("Gather", ["kinds", "index"], ["kind"], name="kind"),
            node("Add", ["word", "kind"], ["out"], name="add"),
        ],
        [value("ids", TensorProto.INT64, ["n", "t"]), value("segment", TensorProto.INT32, ["n", "t"])],
        words=np.ones((50, 4), np.float32),
        kinds=np.ones((3, 4), np.float32),
    )
    graph(
        repository / "image" / "net.onnx",
        [
            node("Conv", ["x", "w"], ["a"], name="conv.1", strides=[4, 4]),
            node("Conv", ["a", "v"], ["out"], name="conv.2"),
        ],
        [value("x", TensorProto.FLOAT, ["n", "c", "h", "w_"])],
        w=np.ones((2, 3, 4, 4), np.float32),
        v=np.ones((1, 2, 3, 3), np.float32),
    )
    seen = [value("step", TensorProto.INT64, []), value("more", TensorProto.BOOL, [])]
    body = helper.make_graph(
        [
            node("Identity", ["more"], ["again"], name="again"),
            node("Add", ["sum", "sum"], ["sum2"], name="twice"),
        ],
        "body",
        [*seen, value("sum", TensorProto.FLOAT, ["n", "t"])],
        [value("again", TensorProto.BOOL, []), value("sum2", TensorProto.FLOAT, None)],
    )
    graph(
        repository / "audio" / "net.onnx",
        [
            node("Equal", ["rate", "known"], ["is"], name="is"),
            node("Cast", ["is"], ["factor"], name="factor", to=TensorProto.FLOAT),
            node("Mul", ["x", "factor"], ["a"], name="mul"),
            node("MatMul", ["a", "w"], ["b"], name="matmul"),
            node("ReduceSum", ["state", "axis"], ["s"], name="sum", keepdims=0),
            node("Add", ["b", "s"], ["c"], name="add"),
            node("Loop", ["times", "yes", "c"], ["out"], name="loop", body=body),
        ],
        [
            value("x", TensorProto.FLOAT, ["n", "t"]),
            value("state", TensorProto.FLOAT, [2, None, 5]),
            value("rate", TensorProto.INT64, []),
        ],
        known=np.array(16000),
        w=np.ones((7, 5), np.float32),
        axis=np.array([0]),
        times=np.array(2),
        yes=np.array(1, bool),
    )
    graph(
        repository / "bytes" / "net.onnx",
        [
            node("Cast", ["x"], ["a"], name="cast", to=TensorProto.FLOAT),
            node("Sub", ["a", "mean"], ["b"], name="sub"),
            node("Transpose", ["b"], ["c"], name="nchw", perm=[0, 3, 1, 2]),
            node("Conv", ["c", "w"], ["out"], name="conv", strides=[2, 2]),
        ],
        [value("x", TensorProto.UINT8, ["n", "h", "w_", "c"])],
        mean=np.ones(3, np.float32),
        w=np.ones((4, 3, 2, 2), np.float32),
    )
    graph(
        repository / "lengths" / "net.onnx",
        [
            node("LSTM", ["x", "w", "r", "", "lengths"], ["a"], name="lstm", hidden_size=2),
            node("Squeeze", ["a", "axis"], ["b"], name="squeeze"),
            node("TopK", ["b", "k"], ["out", "index"], name="topk"),
        ],
        [
            value("x", TensorProto.FLOAT, ["t", "n", None]),
            value("lengths", TensorProto.INT32, ["n"]),
            value("k", TensorProto.INT64, [1]),
        ],
        w=np.ones((1, 8, 6), np.float32),
        r=np.ones((1, 8, 2), np.float32),
        axis=np.array([1]),
    )
    expected = {
        "bytes": ["rng.integers(0, 256, (1, 64, 64, 3)).astype('uint8')"],
        "lengths": [
            "rng.uniform(0, 1, (1, 1, 6)).astype('float32')",
            "np.full((1,), 1, 'int32')",
            "np.full((1,), 1, 'int64')",
        ],
        "tokens": [
            "rng.integers(0, 50, (1, 8)).astype('int64')",
            "rng.integers(0, 3, (1, 8)).astype('int32')",
        ],
        "audio": [
            "rng.uniform(0, 1, (1, 7)).astype('float32')",
            "rng.uniform(0, 1, (2, 1, 5)).astype('float32')",
            "np.full((), 16000, 'int64')",
        ],
        "image": ["rng.uniform(0, 1, (1, 3, 64, 64)).astype('float32')"],
    }
    for folder, arrays in expected.items():
        done = run("init", folder)
        text = (repository / folder / "test_npudump_first.py").read_text("utf-8")
        found = [line.strip().partition(",  #")[0] for line in text.splitlines() if ",  # '" in line]
        assert found == arrays
        assert "none of those that were tried" not in done.out
    assert "net.onnx: the shape of the input 'x': the test takes (1, 3, 64, 64)" in done.out
    folders = ("--import-mode=importlib", *expected)
    assert "5 recorded" in run_pytest(repository, "--npudump-update-golden", *folders)
    assert "5 of 5 tests passed" in run_pytest(repository, *folders)


def test_a_model_that_runs_with_none_of_the_inputs_is_told(
    repository: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reshape = helper.make_node("Reshape", ["x", "shape"], ["out"], name="reshape")
    for shape in (["n"], ["n", "a", "b", "c"]):  # of these most tries would take hundreds of GiB
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        graph(repository / "net.onnx", [reshape], [x], shape=np.array([1009]))
        done = run("init", "--dry-run")
        assert "net.onnx: inputs with which it runs: none of those that were tried: " in done.out
        assert "Reshape" in done.out
        steps = done.out.partition("next:\n")[2].splitlines()
        assert steps[0] == "  # first write inputs with which net.onnx runs into the test"
        assert steps[1].startswith("  pytest ")
    monkeypatch.setattr(first_test, "find_spec", lambda name: name == "onnx")
    assert "net.onnx: whether it runs with these inputs: it was not tried" in run("init", "--dry-run").out


def test_nothing_of_the_repository_is_imported_to_try_a_model(repository: Path, run: Run) -> None:
    model(repository / "net.onnx")
    for name in ("onnx", "json", "numpy"):
        (repository / f"{name}.py").write_text("raise SystemExit('imported')\n", "utf-8")
    assert "none of those that were tried" not in run("init").out
    assert (repository / "test_npudump_first.py").is_file()


def test_a_job_installs_a_wheel_that_the_repository_has(repository: Path, run: Run) -> None:
    for service in ("github", "gitlab"):
        if service == "gitlab":
            (repository / ".gitlab-ci.yml").write_text("stages: [test]\n", "utf-8")
            shutil.rmtree(repository / ".github")
        done = run("init")
        file = "npudump.gitlab-ci.yml" if service == "gitlab" else ".github/workflows/npudump.yml"
        job = yaml.safe_load((repository / file).read_text("utf-8"))
        job = job["npudump"] if service == "gitlab" else job["jobs"]["npudump"]
        variables = job["variables" if service == "gitlab" else "env"]
        steps = job["script"] if service == "gitlab" else [step.get("run", "") for step in job["steps"]]
        (install,) = [step for step in steps if step.startswith("pip install ")]
        shell = ["sh", "-c", install.replace("pip install", "printf %s")]
        told = subprocess.run(shell, env=variables, capture_output=True, text=True, check=True).stdout
        assert told == f"wheels/pytest_npudump-{__version__}-py3-none-any.whl[emulator]"
        assert variables["NPUDUMP_WHEEL"] in done.out


def test_a_job_installs_what_can_be_installed(
    repository: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"url": "https://host/npudump.git", "vcs_info": {"vcs": "git", "commit_id": "5c1f09a"}}
    text = {"direct_url.json": json.dumps(told)}
    monkeypatch.setattr(init, "distribution", lambda _: SimpleNamespace(read_text=text.get))
    origin = '"pytest-npudump[emulator] @ git+https://host/npudump.git@5c1f09a"'
    job = repository / ".github/workflows/npudump.yml"
    for file, content, needs in (
        ("", "", ""),
        ("pyproject.toml", "[tool.ruff]\n", ""),
        ("pyproject.toml", "[project]\nname = 'x'\n", " -e ."),
        ("requirements.txt", "numpy\n", " -r requirements.txt"),
    ):
        if file:
            (repository / file).write_text(content, "utf-8")
        job.unlink(missing_ok=True)
        done = run("init")
        steps = yaml.safe_load(job.read_text("utf-8"))["jobs"]["npudump"]["steps"]
        assert f"pip install {origin}{needs}" in [step.get("run") for step in steps]
        assert ("what else your tests need" in done.out) == (not needs)
        assert "where CI installs" not in done.out


def test_the_first_test_lies_where_pytest_looks(repository: Path, run: Run) -> None:
    for name in ("checks", "pack_a/checks", "pack_b/checks", "tests"):
        (repository / name).mkdir(parents=True)
    for testpaths, folder in (
        ("checks", "checks"),
        ("missing checks", "checks"),
        ("pack*/checks", "pack_a/checks"),
        (".", "."),
        ("../elsewhere", "tests"),
        ("/usr", "tests"),
        ("", "tests"),
    ):
        (repository / "pytest.ini").write_text(f"[pytest]\ntestpaths = {testpaths}\n", "utf-8")
        assert run("init").code == 0, testpaths
        (written,) = repository.rglob("test_npudump_first.py")
        assert written.parent == repository / folder, testpaths
        written.unlink()


def test_what_is_left_to_a_person_is_told(repository: Path, run: Run) -> None:
    project, config = repository / "pyproject.toml", repository / "pytest.ini"
    text = '[tool]\npytest.ini_options.addopts = "-q"\n'
    project.write_text(text, "utf-8")
    done = run("init")
    assert "left to you: pytest's keys in pyproject.toml stand in no section of their own" in done.out
    assert (project.read_text("utf-8"), config.exists()) == (text, False)
    project.unlink()
    config.write_text("[pytest]\nrequired_plugins = pytest-cov\n", "utf-8")
    (repository / ".github/workflows/npudump.yml").unlink()
    done = run("init")
    assert "left to you: add pytest-npudump to required_plugins in pytest.ini" in done.out
    assert "where CI installs pytest-npudump from" in done.out
    config.write_text("[pytest]\nrequired_plugins = pytest-cov pytest-npudump>=0.1\n", "utf-8")
    assert "required_plugins" not in run("init").out


def test_a_dry_run_and_a_second_run_write_nothing(repository: Path, run: Run) -> None:
    done = run("init", "--dry-run")
    assert (files(repository), "would be written" in done.out) == ({}, True)
    run("init")
    before = files(repository)
    done = run("init")
    assert files(repository) == before
    there = "pytest.ini, test_npudump_first.py, .gitattributes, .github/workflows/npudump.yml"
    assert f"as it is:  {there}" in done.out


@pytest.mark.each(("git", "configures"), [(".git", True), ("../.git", True), ("", False)])
def test_git_is_configured_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, git: str, *, configures: bool
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    if git:
        (folder / git).mkdir()
    monkeypatch.chdir(folder)
    done = run("init", "--dry-run")
    assert ("git config " in done.out) is configures
    assert ("then: npudump golden init" in done.out) is (git != ".git")


def test_what_is_there_stays_line_by_line(repository: Path, run: Run) -> None:
    own = {
        "pyproject.toml": '[project]\nname = "x"\n\n[tool.pytest.ini_options]  \naddopts = "-q"  # mine\n\n'
        "[tool.other]\na = 1\n",
        ".gitattributes": "*.png binary",
        "tests/test_npudump_first.py": "def test_mine():\n    pass\n",
        ".github/workflows/npudump.yml": "name: mine\n",
    }
    for name, text in own.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert run("init").code == 0
    for name in ("tests/test_npudump_first.py", ".github/workflows/npudump.yml"):
        assert (repository / name).read_text("utf-8") == own[name]
    project = (repository / "pyproject.toml").read_text("utf-8")
    assert [line for line in project.splitlines() if "npudump" not in line] == own[
        "pyproject.toml"
    ].splitlines()
    options = tomllib.loads(project)["tool"]["pytest"]["ini_options"]
    assert options == {"addopts": "-q", "required_plugins": "pytest-npudump", "npudump_golden_dir": "golden"}
    lines = (repository / ".gitattributes").read_text("utf-8").splitlines()
    assert lines[:2] == ["*.png binary", "golden/**/*.yaml text eol=lf merge=npudump"]
    assert not (repository / "pytest.ini").exists()


@pytest.mark.skipif(int(pytest.__version__.split(".")[0]) < 9, reason="read by pytest since 9")
def test_tables_of_pytest_9_get_values_of_their_types(
    repository: Path, run: Run, run_pytest: Callable[..., str]
) -> None:
    for name, text in (
        ("pyproject.toml", '[tool.pytest]  # of pytest 9\naddopts = ["-q"]\n'),
        ("pytest.toml", '[pytest]\naddopts = ["-q"]\n'),
        (".pytest.toml", ""),
    ):
        path = repository / name
        path.write_text(text, "utf-8")
        assert run("init").code == 0
        found: Any = tomllib.loads(path.read_text("utf-8"))
        found = found["tool"]["pytest"] if name == "pyproject.toml" else found["pytest"]
        told = {"required_plugins": ["pytest-npudump"], "npudump_golden_dir": "golden"}
        assert found == told | ({"addopts": ["-q"]} if text else {})
        assert not (repository / "pytest.ini").exists()
        run_pytest(repository, "--collect-only")
        path.unlink()


def test_a_folder_of_goldens_that_is_named_is_the_one_that_git_and_ci_hear_of(
    repository: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = repository / ".gitattributes"
    done = run("golden", "init", "--golden-dir", "../refs")
    assert (done.code, "lies outside of" in done.err, attributes.exists()) == (2, True, False)
    (repository / "tox.ini").write_text("[pytest]\nnpudump_golden_dir = tests/refs\n", "utf-8")
    for verb in (("golden", "init"), ("init",)):
        assert run(*verb).code == 0
        assert attributes.read_text("utf-8").startswith("tests/refs/**/*.yaml text ")
        attributes.unlink()
    job = (repository / ".github/workflows/npudump.yml").read_text("utf-8")
    assert "npudump golden status --no-collect\n" in job
    run("golden", "init")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-onpudump_golden_dir=other")
    run("golden", "init")
    assert "\nother/**/*.yaml text " in attributes.read_text("utf-8")
    done = run("init", str(repository / "none"))
    assert (done.code, "no such folder" in done.err) == (2, True)


def test_a_repository_on_gitlab_gets_a_job_to_include(repository: Path, run: Run) -> None:
    (repository / ".gitlab-ci.yml").write_text("stages: [test]\n", "utf-8")
    done = run("init")
    assert "add 'include: npudump.gitlab-ci.yml' to .gitlab-ci.yml" in done.out
    job = yaml.safe_load((repository / "npudump.gitlab-ci.yml").read_text("utf-8"))
    assert job["npudump"]["artifacts"]["when"] == "on_failure"
    assert (repository / ".gitlab-ci.yml").read_text("utf-8") == "stages: [test]\n"


def test_a_framework_without_a_model_is_run(
    repository: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, words in (("torch_npu", "torch.nn.Linear"), ("mindspore", "mindspore.ops")):
        monkeypatch.setattr(first_test, "find_spec", lambda name, package=package: name == package)
        run("init")
        path = repository / "test_npudump_first.py"
        assert words in path.read_text("utf-8")
        compile(path.read_text("utf-8"), path.name, "exec")
        path.unlink()


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_a_model_that_is_named_is_tested_in_this_repository(
    repository: Path, run: Run, run_pytest: Callable[..., str], place: str
) -> None:
    outside = place == "outside"
    root = repository / "project" if outside else repository
    model(root / "small.onnx", batch=1)
    named = repository / "models" / "larger.onnx"
    model(named, batch=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        done = run("init", "../models/larger.onnx" if outside else str(named))
    assert (done.code, done.err) == (0, "")
    told = f"{'../' * outside}models/larger.onnx"
    assert f"models:   {told}\n" in done.out
    assert "small.onnx" not in done.out
    assert ".github/workflows/npudump.yml" in files(root)
    assert told in (root / "test_npudump_first.py").read_text("utf-8")
    if outside:
        run_pytest(root, "--npudump-update-golden", "test_npudump_first.py")
        assert "64" in next(root.rglob("golden/**/*.yaml")).read_text("utf-8").split("tensors", 1)[1]


def test_a_model_that_is_named_behind_another_has_a_test_of_its_own(repository: Path, run: Run) -> None:
    for name, batch in (("small", 1), ("half.2", 64), ("deep/small", 32)):
        model(repository / f"{name}.onnx", batch)
    run("init", "small.onnx")
    assert run("init", "half.2.onnx").out.count(" test_npudump_half_2.py\n") == 3  # written, and to be run
    before = files(repository)
    for name, file in (("small", "first"), ("half.2", "half_2")):
        done = run("init", f"{name}.onnx")
        assert f"as it is:  pytest.ini, test_npudump_{file}.py, " in done.out
        assert f"'{name}.onnx'" in before[f"test_npudump_{file}.py"].decode()
    assert files(repository) == before
    run("init", "deep/small.onnx")
    assert "deep/small.onnx" in (repository / "test_npudump_deep_small.py").read_text("utf-8")


def test_a_machine_with_nothing_to_run_gets_no_test_and_is_told_why(
    repository: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_test, "find_spec", lambda _: False)
    (repository / "net.om").write_bytes(b"")
    done = run("init")
    assert done.code == 0
    assert not (repository / "test_npudump_first.py").exists()
    assert "net.om: which inputs it has" in done.out
    assert [line for line in done.out.splitlines() if "pip install" in line] == [
        '  pip install "pytest-npudump[emulator]" && npudump init  # writes a test'
    ]


def test_a_device_here_asks_for_one_in_ci(
    repository: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_test, "find_spec", lambda name: name in {"acl", "onnx", "onnxruntime"})
    monkeypatch.setattr(first_test, "installed_cann", lambda: "8.0.RC1")
    done = run("init")
    job = (repository / ".github/workflows/npudump.yml").read_text("utf-8")
    assert "--npudump-runtime=npu" in job
    assert yaml.safe_load(job)["jobs"]["npudump"]["runs-on"] == ["self-hosted", "npu"]
    assert "which label the runners with an NPU have" in done.out


def test_the_commands_to_go_on_with_are_typed_as_they_are_printed(repository: Path, run: Run) -> None:
    root = repository / "it's $(touch OWNED)"
    model(root / "my tests" / "net.onnx")
    (root / "pytest.ini").write_text("[pytest]\ntestpaths = 'my tests'\n", "utf-8")
    lines = run("init", root).out.splitlines()
    told = "\n".join(line.strip() for line in lines[lines.index("next:") + 1 :])
    shown = """() { printf '%s|' "$PWD" "$@"; }"""
    script = f"pytest{shown}\ngit{shown}\n{told}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    test = "my tests/test_npudump_first.py"
    assert done.stdout.startswith(f"{root}|--npudump-update-golden|{test}|{root}|{test}|{root}|config|")
    assert [*repository.rglob("OWNED")] == []


def test_no_file_is_written_in_place_of_a_link(repository: Path, run: Run) -> None:
    for name in (".gitattributes", "pytest.ini"):
        link = repository / name
        target = repository / "elsewhere"
        target.write_text("[pytest]\n", "utf-8")
        link.symlink_to(target)
        done = run("init", repository)
        assert (done.code, f"{name}: is a symbolic link" in done.err) == (2, True)
        assert link.is_symlink()
        assert target.read_text("utf-8") == "[pytest]\n"
        link.unlink()


def test_golden_init_offers_git_lfs(repository: Path, run: Run) -> None:
    path = repository / ".gitattributes"
    run("golden", "init")
    assert "# golden/**/*.safetensors filter=lfs" in path.read_text("utf-8")
    done = run("golden", "init", "--lfs")
    assert path.read_text("utf-8").endswith("\ngolden/**/*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    assert "git lfs install" in done.out
    before = path.read_bytes()
    run("golden", "init", "--lfs")
    run("golden", "init")
    assert path.read_bytes() == before


@pytest.mark.each(
    "name", ["refs/", "./refs", "my refs", "a[1]", "#1", "!new", 'a"b', r"a\b", "a*b", "grüße", "."]
)
def test_git_finds_the_goldens_of_any_folder(repository: Path, run: Run, name: str) -> None:
    subprocess.run(["git", "init", "-q", repository], check=True)
    assert run("golden", "init", "--lfs", "--golden-dir", name).code == 0
    for file, attribute in (("b.yaml", "merge: npudump"), ("b.safetensors", "filter: lfs")):
        asked = ["git", "check-attr", attribute.partition(":")[0], str(Path(name) / "test_a" / file)]
        told = subprocess.run(asked, cwd=repository, check=True, capture_output=True, text=True)
        assert told.stdout.endswith(f": {attribute}\n")
    before = (repository / ".gitattributes").read_bytes()
    run("golden", "init", "--lfs", "--golden-dir", name)
    assert (repository / ".gitattributes").read_bytes() == before


def test_keys_are_those_of_their_section_and_what_is_there_stays() -> None:
    for text in ("", "[pytest]\n", "[pytest]\naddopts =\n  -q\n", "[other]\na = 1", "[pytest]"):
        after, added = with_keys(text, "[pytest]")
        parser = configparser.ConfigParser()
        parser.read_string(after)
        assert (parser["pytest"]["npudump_golden_dir"], len(added)) == ("golden", 2)
        assert with_keys(after, "[pytest]") == (after, ())
    text = "[pytest]\r\nnpudump_golden_dir: mine\r\n[other]\r\nrequired_plugins = x\r\n"
    after, added = with_keys(text, "[pytest]")
    assert added == ("required_plugins = pytest-npudump",)
    assert after == text.replace("[pytest]\r\n", "[pytest]\r\nrequired_plugins = pytest-npudump\r\n")
    text = "golden/**/*.yaml merge=mine\ngolden/**/*.safetensors filter=lfs\n"
    assert with_goldens(text) == (text, ())
