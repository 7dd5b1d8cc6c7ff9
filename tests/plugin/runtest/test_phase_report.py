"""What editors and CI make of a report: where a failure is, and its first line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project


@pytest.mark.parametrize("options", [(), ("--npudump-isolation=process",), ("-n1",)])
def test_a_verdict_is_at_the_test_and_not_in_this_package(project: Project, options: tuple[str, ...]) -> None:
    project.marked()
    project.record()
    project.model(change=0.5)
    source = project.path.joinpath("test_small.py").read_text().splitlines()
    line = source.index("@pytest.mark.npu_dump()") + 1
    shown = project.run("--tb=line", "--npudump-dump-dir=dumps", *options).stdout
    found = [text for text in shown.lines if text.startswith(f"{project.path}/test_small.py:")]
    assert [text.partition(": Failed: ")[0] for text in found] == [f"{project.path}/test_small.py:{line}"]
    assert ": Failed: npudump: block/conv.2" in found[0]


def test_an_exception_of_the_body_stays_where_it_was_raised(project: Project) -> None:
    body = "    npu_dump.load_model('no such model.onnx').__enter__()\n"
    project.marked(body=body)
    line = project.path.joinpath("test_small.py").read_text().splitlines(keepends=True).index(body) + 1
    project.run("--tb=line", "--npudump-dump-dir=dumps").stdout.fnmatch_lines(
        [f"{project.path}/test_small.py:{line}: *AclError: acl.mdl.load_from_file*"]
    )
