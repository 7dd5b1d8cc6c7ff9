"""The files for CI services: what schemas and linters say, and whether what they run is there and works."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_npudump.plugin.options import all_options

pytestmark = pytest.mark.e2e
FILES = Path(__file__).parents[2] / "docs" / "how-to" / "ci"
TESTS = """
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

@pytest.fixture
def model(tmp_path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"

@pytest.mark.npu_dump
def test_relu(npu_dump, model):
    with npu_dump.load_model(model) as loaded:
        loaded.run(np.arange(-2, 2, dtype=np.float32))
"""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("github.yml", ["--builtin-schema", "vendor.github-workflows"]),
        ("gitlab-ci.yml", ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]),
    ],
)
def test_file_is_what_its_service_reads(name: str, options: list[str]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", *options, str(FILES / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


ZIZMOR = """\
rules:
  unpinned-uses: {config: {policies: {"*": ref-pin}}}  # readers of a page cannot keep hashes up to date
  unpinned-images: {disable: true}  # the image is the reader's
"""
ACTIONLINT = "self-hosted-runner: {labels: [linux-aarch64-a2b3-1]}\n"
INJECTED = "      - run: echo ${{ github.event.pull_request.title }}\n"


def linter(name: str) -> str:
    """Return the path of a linter; without it the test is skipped, unless a variable promises it."""
    path = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if path is None and os.environ.get("NPUDUMP_TEST_LINTERS") == "1":
        pytest.fail(f"NPUDUMP_TEST_LINTERS=1 promises {name}")
    return path or pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize(("name", "config"), [("zizmor", ZIZMOR), ("actionlint", ACTIONLINT)])
def test_github_s_linters_have_nothing_to_say(tmp_path: Path, name: str, config: str) -> None:
    words = [linter(name)]
    tmp_path.joinpath("config.yaml").write_text(config)
    words += ["--offline", "--config"] if name == "zizmor" else ["-config-file"]
    words.append(str(tmp_path / "config.yaml"))
    file = FILES / "github.yml"
    done = subprocess.run([*words, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    worse = tmp_path / "worse.yml"
    worse.write_text(file.read_text("utf-8").replace("      - run: npu-smi info\n", INJECTED))
    done = subprocess.run([*words, str(worse)], capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout + done.stderr


def test_jenkins_file_can_be_read_as_groovy(tmp_path: Path) -> None:
    words = [
        linter("npm-groovy-lint"),
        "--no-insight",
        "--failon",
        "error",
        "--parse",
        "--path",
        str(tmp_path),
    ]
    file = tmp_path / "Jenkinsfile"
    shutil.copyfile(FILES / "Jenkinsfile", file)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(file.read_text("utf-8").replace("emulator') {", "emulator' {"))
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("name", ["github.yml", "gitlab-ci.yml", "Jenkinsfile"])
def test_files_use_options_that_there_are(name: str) -> None:
    used = re.findall(r"--npudump-[a-z-]+", FILES.joinpath(name).read_text("utf-8"))
    assert used
    assert set(used) <= {option.flag for option in all_options()}


def commands(value: Any) -> Iterator[str]:
    """Yield the lines that a file has run."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key in {"run", "script"}:
                yield from (
                    [part] if isinstance(part, str) else map(str, part) if isinstance(part, list) else []
                )
            else:
                yield from commands(part)
    elif isinstance(value, list):
        for part in value:
            yield from commands(part)


def lines_of(name: str) -> list[str]:
    """Return what a file has run, without the folder that a program is in."""
    text = FILES.joinpath(name).read_text("utf-8")
    if name == "Jenkinsfile":
        return [line.strip().removeprefix("venv/bin/") for line in text.splitlines()]
    return [*commands(yaml.safe_load(text))]


def test_jobs_without_an_npu_pass_on_a_project_and_fail_without_its_test(pytester: pytest.Pytester) -> None:
    files = [lines_of(name) for name in ("github.yml", "gitlab-ci.yml", "Jenkinsfile")]
    [verify], [run] = (
        {next(line for line in found if line.startswith(start)) for found in files}
        for start in ("npudump g", "pytest -")
    )
    pytester.makepyfile(test_it=TESTS)
    pytester.path.joinpath("npudump-tests.txt").write_text("test_it.py::test_relu")
    options = shlex.split(run)[1:]
    pytester.runpytest_subprocess("--npudump-update-golden", *options[:3])
    assert pytester.run(Path(sys.executable).with_name("npudump"), *shlex.split(verify)[1:]).ret == 0
    assert pytester.runpytest_subprocess(*options).ret == 0
    assert pytester.runpytest_subprocess(*options, "-k", "other").ret != 0
