"""Markers that hooks, fixtures and tests add after a test was collected: they count, or the test fails."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

UNMARKED = """
def test_small(npu_dump):
    run(npu_dump)
"""
STATIC = "\n@pytest.mark.npu_dump\ndef test_other():\n    pytest.skip('not today')\n"
ADD = "item.add_marker(pytest.mark.npu_dump({arguments}))"
EARLY_ENOUGH = {
    "itemcollected": "def pytest_itemcollected(item):\n    {add}\n",
    "modifyitems": "def pytest_collection_modifyitems(items):\n    for item in items:\n        {add}\n",
    "modifyitems at the very last": (
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n"
        "    result = yield\n    for item in items:\n        {add}\n    return result\n"
    ),
}
FIXTURE = "@pytest.fixture(autouse=True)\ndef mark(request):\n    item = request.node{}\n    {{add}}\n"
TOO_LATE = {
    "autouse fixture": FIXTURE.format(""),
    "runtest_setup": "def pytest_runtest_setup(item):\n    {add}\n",
    "runtest_setup first": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_setup(item):\n    {add}\n",
    "class or module": FIXTURE.format(".parent"),
}
ONE_ID = """
@pytest.mark.parametrize("a", ["c", "b-c"])
@pytest.mark.parametrize("b", ["a-b", "a"])
def test_small(a, b):
    pass
"""
SAYS_SO = "npudump: the marker npu_dump was {what} while tests were running *, too late to have any effect: *"


def conftest(project: Project, source: str, arguments: str = "") -> None:
    text = source.format(add=ADD.format(arguments=arguments))
    project.path.joinpath("conftest.py").write_text(f"import pytest\n\n{text}")


def test_marker_of_a_collection_hook_is_run_like_any_other(project: Project) -> None:
    for hook in EARLY_ENOUGH.values():
        conftest(project, hook, "['block/conv.2']")
        project.model()
        project.test_file(UNMARKED)
        project.record("-onpudump_repeats=1")
        assert "  block/conv.2 float32 " in project.golden.read_text()
        project.model(change=0.01)
        project.run("-onpudump_escalate=off", failed=1)
        project.golden.unlink()


def test_wrong_argument_of_a_late_marker_names_test_and_argument(project: Project) -> None:
    for hook, static in (*((hook, False) for hook in EARLY_ENOUGH), ("modifyitems", True)):
        conftest(project, EARLY_ENOUGH[hook], "nonsense=1")
        project.test_file(UNMARKED + (STATIC if static else ""))
        words = "npudump: test_small.py::test_small: nonsense: unknown argument; allowed are layers, *"
        result = project.run(errors=1 + static, shows=words, hides="INTERNALERROR*")
        assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.e2e
def test_what_is_wrong_with_markers_is_said_under_xdist(project: Project) -> None:
    late, unknown = (
        SAYS_SO.format(what="added to this test"),
        "npudump: test_small.py::test_small: nonsense: *",
    )
    for hook, arguments, source, words in (
        ("modifyitems", "nonsense=1", UNMARKED, unknown),
        ("", "", f"@pytest.mark.npu_dump{ONE_ID}", "npudump: *a-b-c* would share the golden *"),
        ("autouse fixture", "", "def test_small():\n    pass\n", late),
    ):
        conftest(project, {**EARLY_ENOUGH, **TOO_LATE, "": ""}[hook], arguments)
        project.test_file(source)
        assert project.run("-n1", shows=words, hides="INTERNALERROR*").ret != 0


def test_marker_that_a_collection_hook_takes_off_does_not_count(project: Project) -> None:
    """Late ones that would share a golden are refused."""
    take_off = "def pytest_collection_modifyitems(items):\n    items[0].own_markers.clear()\n"
    project.path.joinpath("conftest.py").write_text(take_off)
    project.test_file("@pytest.mark.npu_dump\ndef test_small():\n    pass\n")
    project.run(passed=1, hides="npudump: *")
    conftest(project, EARLY_ENOUGH["modifyitems"])
    project.test_file(ONE_ID)
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: *a-b-c* would share the golden *"])


def test_marker_that_comes_too_late_fails_the_test_and_says_so(project: Project) -> None:
    """The fixture of such a test says why."""
    update, words = "--npudump-update-golden", SAYS_SO.format(what="added to this test")
    for place, option, static in (
        *((place, update, "") for place in TOO_LATE),
        ("class or module", "-q", STATIC),
    ):
        conftest(project, TOO_LATE[place])
        project.test_file("def test_small():\n    pass\n" + static)
        assert project.run(option, shows=words).ret == pytest.ExitCode.TESTS_FAILED
        assert not project.path.joinpath("golden").exists()
    conftest(project, TOO_LATE["autouse fixture"])
    project.test_file(UNMARKED)
    project.run(errors=1, shows=words, hides="*without the marker*")
    conftest(project, "")
    project.test_file("def test_small(request):\n    request.node.add_marker(pytest.mark.npu_dump)\n")
    project.run(failed=1, shows=words)


def test_marker_of_a_fixture_that_ends_fails_the_teardown(project: Project) -> None:
    ends = "def mark(request):\n    item = request.node\n    yield\n    {add}\n"
    conftest(project, f"@pytest.fixture(autouse=True)\n{ends}")
    for arguments, what in (
        (None, "added to this test"),
        ("isolation='none'", "changed on this test"),
        ("isolation='process', repeats=1", "changed on this test"),
    ):
        if arguments is None:
            project.test_file("def test_small():\n    pass\n")
        else:
            project.marked(arguments)
        words = SAYS_SO.format(what=what)
        project.run("--npudump-update-golden", passed=1, errors=1, shows=words)
        assert not [path for path in project.path.joinpath("golden").rglob("*") if path.is_file()]


def test_arguments_that_come_too_late_fail_a_marked_test_and_record_nothing(project: Project) -> None:
    for place, isolation in (*((place, "none") for place in TOO_LATE), ("autouse fixture", "process")):
        project.marked(f"isolation={isolation!r}")
        conftest(project, TOO_LATE[place], "rtol=10, atol=10")
        words = SAYS_SO.format(what="changed on this test")
        project.run("--npudump-update-golden", failed=1, shows=words)
        assert not project.path.joinpath("golden").exists()
