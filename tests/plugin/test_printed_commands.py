"""What is printed for a shell does in one what it says, whatever tests and folders are called."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.plugin.conftest import Project

IDS = ("it's", "`touch OWNED`", "$(touch OWNED)", "a b\\", "x[1];touch OWNED", '"\n"', "!1")
IDS += ("##[error]", "a\u202eb\x1b[31m", "é", "plain")
INI = (
    "[pytest]\naddopts = -p no:cacheprovider\n"
    "disable_test_id_escaping_and_forfeit_all_rights_to_community_support = True\n"
)
COMMAND = re.compile(r"(?:to create|创建标杆)[:：] *(?:<code>|&nbsp;)?(.*)")


def arguments(command: str, folder: Path) -> list[str]:
    """Return what a shell in a folder gives to the program ``pytest`` of a command that is pasted into it."""
    told = f"pytest() {{ printf '%s\\0' \"$@\"; }}\n{command}\n"
    done = subprocess.run(["bash"], input=told.encode(), cwd=folder, capture_output=True, check=True)
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def printed(text: str) -> list[str]:
    return [match[1].strip() for match in map(COMMAND.search, text.splitlines()) if match]


def parametrised(project: Project, name: str = "test_small.py") -> None:
    project.test_file(
        f"@pytest.mark.parametrize('i', {IDS!r})\n@pytest.mark.npu_dump\ndef test_small(npu_dump, i):\n"
        f"{project.body}",
        name,
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_medium_has_a_command_that_a_shell_understands(project: Project, language: str) -> None:
    project.pytester.makeini(INI)
    parametrised(project)
    options = (f"-onpudump_lang={language}", "--npudump-output=.", "--npudump-report", "--junitxml=out.xml")
    result = project.run(*options, failed=len(IDS))
    root = project.path
    code, checked, _ = project.command("--lang", language, "check", "results")
    assert code == 2
    properties = ET.parse(root / "out.xml").iterfind(".//property[@name='npudump']")  # noqa: S314 - our own
    [page] = root.joinpath("report").glob("*.html")
    found = {
        "terminal": printed(result.stdout.str()),
        "report.txt": printed("\n".join(path.read_text() for path in root.glob("dumps/*/report.txt"))),
        "check": printed(checked),
        "JUnit": printed("\n".join(json.loads(one.attrib["value"])["way_out"] for one in properties)),
        "summary": [
            unescape(line).strip("`-").removesuffix("</code>")
            for line in printed(unescape(root.joinpath("summary.md").read_text()))
        ],
        "page": [
            unescape(one) for one in re.findall(r"<li>[^<]*(?:: |：)<code>(.*)</code>", page.read_text())
        ],
    }
    tests = {f"test_small.py::test_small[{name}]" for name in IDS}
    for medium, told in found.items():
        given = [arguments(command, root) for command in told]
        assert {words[0] for words in given} == {"--npudump-update-golden"}, medium
        assert {words[1] for words in given} == tests, medium
        assert all(len(words) == 2 for words in given), medium
    assert not root.joinpath("OWNED").exists()


@pytest.mark.e2e
def test_a_command_is_for_the_folder_in_which_pytest_was_started(project: Project, commands: Path) -> None:
    """To create a golden, and to look at the run."""
    project.pytester.makeini("[pytest]\n")
    root = project.path
    folder = root / "my tests"
    for name in ("ci", "my tests/-x", "my tests/@y"):
        (root / name).mkdir(parents=True)
    (root / "ci/other.ini").write_text("[pytest]\n", "utf-8")
    for name in ("test_small.py", "-x/test_x.py", "@y/test_y.py"):
        project.marked()
        (root / "test_small.py").replace(folder / name)
        (folder / name).with_name("small.onnx").write_bytes((root / "small.onnx").read_bytes())
    here = "test_small.py::test_small"
    scenes = {
        (folder, ("--npudump-output=.", "test_small.py")): [here],
        (folder, (".",)): ["./-x/test_x.py::test_small", "./@y/test_y.py::test_small", here],
        (folder, ("-c", "../ci/other.ini", "test_small.py")): ["-c", "../ci/other.ini", here],
        (root, ("-c", "ci/other.ini", "my tests/test_small.py")): ["-c", "ci/other.ini", f"my tests/{here}"],
        (root, (f"--rootdir={folder}", "my tests/test_small.py")): [
            *("--rootdir", "my tests"),
            f"my tests/{here}",
        ],
    }
    for (start, options), expected in scenes.items():
        project.patch.chdir(start)
        result = project.run(*options)
        told = printed(result.stdout.str())
        assert [word for command in told for word in arguments(command, start)[1:]] == expected
        [line] = [line for line in result.outlines if "pending review" in line]
        words = shlex.split(line.partition("npudump golden review")[2])
        code, shown, _ = project.command("golden", "diff", *words)
        assert (code, here in shown) == (1, True), words
    variant = ("-o", "npudump_golden_dir=ours", "-o", "npudump_golden_variant=it's")
    project.patch.chdir(folder)
    [command] = printed(project.run(*variant, "test_small.py").stdout.str())
    assert arguments(command, folder)[1:] == [*variant, here]
    [command] = printed(project.run("-c", "../ci/other.ini", "test_small.py").stdout.str())
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"PATH": path}
    subprocess.run(["bash", "-c", command], env=environment, check=True, capture_output=True)
    assert [found.name for found in root.rglob("test_small.yaml")] == ["test_small.yaml"]
    project.run("-c", "../ci/other.ini", "test_small.py", passed=1, shows="npudump: 1 of 1 tests passed; *")


def test_a_body_that_changes_the_folder_changes_no_command(project: Project) -> None:
    project.patch.chdir(project.path)
    project.marked(body=f"{project.body}    import os\n    os.chdir(os.sep)\n")
    told = "to create:  pytest --npudump-update-golden test_small.py::test_small"
    project.run("--npudump-output=.", shows=["report:     dumps/*/report.txt", told])
