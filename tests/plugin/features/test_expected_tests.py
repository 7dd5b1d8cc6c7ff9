"""Sessions that compare fewer tests than they were to."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npudump.errors import RequestError
from pytest_npudump.results.expected_tests import missing_tests, read_expected
from tests.plugin.conftest import Project

TWO = """
@pytest.mark.npu_dump
@pytest.mark.parametrize("side", ["left", "right"])
def test_small(npu_dump, side):
    run(npu_dump)

def test_other():
    pass
"""
NAMES = ("test_small.py::test_small[left]", "test_small.py::test_small[right]")


def test_fewer_tests_than_expected_do_not_pass(project: Project) -> None:
    project.test_file(TWO)
    failed = pytest.ExitCode.TESTS_FAILED
    words = "npudump: npudump_expect={}: {} marked tests were compared: *"
    assert (
        project.run("-onpudump_expect=2", "--npudump-update-golden", shows=words.format(2, 0)).ret == failed
    )
    for options in ((), ("--count=2",)):
        assert project.run("-onpudump_expect=2", *options).ret == 0
        assert project.run("-onpudump_expect=3", *options, shows=words.format(3, 2)).ret == failed
    printed = project.pytester.runpytest_inprocess("--collect-only", "-q", "-m", "npu_dump")
    for text in (printed.stdout.str(), "# of the release\n\n" + "\n".join(NAMES)):
        project.path.joinpath("expected.txt").write_text(text)
        assert read_expected("expected.txt", project.path) == NAMES
        assert project.run("-onpudump_expect=expected.txt").ret == 0
    assert project.run("-onpudump_expect=expected.txt", "--collect-only").ret == 0
    missed = f"*1 of 2 tests were not compared: {NAMES[1].replace('[', '[[]')}: *"
    assert project.run("-onpudump_expect=expected.txt", "-k", "left", shows=missed).ret == failed
    project.test_file(TWO.replace("    run(", "    if side == 'right': pytest.skip()\n    run("))
    assert project.run("-onpudump_expect=expected.txt", passed=2, skipped=1, shows=missed).ret == failed
    project.test_file("def test_other():\n    pass\n")
    assert project.run("-onpudump_expect=1", shows=words.format(1, 0)).ret == failed
    project.test_file("import missing_module\n")
    assert project.run("-onpudump_expect=1").ret == pytest.ExitCode.INTERRUPTED
    project.refused("ERROR: npudump: npudump_expect is 'none.txt': *", "-onpudump_expect=none.txt")


@pytest.mark.e2e
def test_list_with_colours_and_warnings_is_a_list(project: Project) -> None:
    project.test_file(TWO + "class TestNone:\n    def __init__(self):\n        pass\n")
    printed = project.pytester.runpytest_subprocess(
        "--collect-only", "-q", "-m", "npu_dump", "--color=yes", "-W", "default"
    )
    text = printed.stdout.str()
    assert "\x1b[" in text
    assert "warnings summary" in text
    project.path.joinpath("expected.txt").write_text(text)
    assert read_expected("expected.txt", project.path) == NAMES


def test_kept_results_of_several_sessions_are_counted_together(project: Project) -> None:
    def check(expect: str) -> tuple[int, str]:
        code, _, errors = project.command("check", "results", "--expect", expect)
        return code, errors

    project.test_file(TWO)
    project.record()
    project.path.joinpath("expected.txt").write_text("\n".join(NAMES))
    project.run("--npudump-output=.", "-k", "left")
    assert check("1") == (0, "")
    assert check("2") == (2, "npudump: --expect=2: 1 marked test was compared\n")
    code, text = check("expected.txt")
    assert (code, text) == (2, f"npudump: --expect: 1 of 2 tests were not compared: {NAMES[1]}\n")
    project.run("--npudump-output=.", "-k", "right")
    assert check("expected.txt") == (0, "")
    project.model(change=0.1)
    project.run("--npudump-output=.", "-k", "right")
    assert check("expected.txt") == (1, "")
    assert check("")[0] == 2


@pytest.mark.e2e
def test_workers_of_xdist_are_counted_together(project: Project) -> None:
    project.test_file(TWO)
    project.record()
    project.path.joinpath("expected.txt").write_text("\n".join(NAMES))
    expect = "-onpudump_expect=expected.txt"
    assert project.run(expect, "-n2", "--dist=loadgroup").ret == 0
    assert project.run(expect, "-n2", "-k", "left").ret == 1


@pytest.mark.each(
    ("given", "content", "words"),
    [
        ("", None, "is '', expected a number of tests"),
        (" ", None, "is ' ', expected a number of tests"),
        ("0", None, "is '0', expected a number of tests"),
        ("00", None, "is '00', expected a number of tests"),
        ("none.txt", None, "neither a number of tests nor a file"),
        ("-3", None, "neither a number"),
        ("list.txt", b"a.py::t\n::test_net\n", "line 2 is '::test_net', as pytest calls any test outside"),
        ("list.txt", b"", "names no test"),
        ("list.txt", b"# only\n", "names no test"),
        ("list.txt", b"\xff\xfe", "neither a number"),
        ("list.txt", b"test_a.py::test\ntest_b.py\n", "line 2 is 'test_b.py', expected a test"),
        ("list.txt", b"ERROR collecting test_a.py\n", "line 1 is 'ERROR"),
    ],
)
def test_what_is_no_expectation_is_refused(
    tmp_path: Path, given: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        tmp_path.joinpath(given).write_bytes(content)
    with pytest.raises(RequestError, match="npudump_expect") as caught:
        read_expected(given, tmp_path)
    assert words in str(caught.value)


def test_tests_that_were_not_compared_do_not_count() -> None:
    told = {"b": "passed", "c": "not compared", "d": "process died", "e": "golden missing", "f": "error"}
    results = [(f"a::{name}", {"status": one, "test": f"a::{name}"}) for name, one in told.items()]
    assert missing_tests(("a::b",), results) == ""
    assert "2 of 3 tests were not compared: a::c, a::d" in missing_tests(("a::b", "a::c", "a::d"), results)
    assert "1 marked test was" in missing_tests(2, results)


def test_of_tests_that_share_a_name_each_has_to_be_compared() -> None:
    """As those outside of rootdir do: pytest calls both ``::b``."""
    told = [("passed", "../a/t.py::b", "a.yaml"), ("not compared", "../c/t.py::b", "c.yaml")]
    results = [("::b", {"status": status, "test": test, "golden": file}) for status, test, file in told]
    for order in (results, results[::-1]):
        assert missing_tests(("../a/t.py::b",), order) == ""
        assert "1 of 1 tests were not compared: ::b" in missing_tests(("::b",), order)
        assert "1 marked test was compared" in missing_tests(2, order)
    both = [("::b", {**result, "status": "failed"}) for _, result in results]
    assert missing_tests(2, both) == missing_tests(("::b",), both) == ""
