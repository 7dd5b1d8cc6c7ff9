"""Both spellings of the marker, and marks that are nearly it, in every way that a mark gets on a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.plugin.marks import MARKERS, _distance

if TYPE_CHECKING:
    from conftest import Project


MARK = "@pytest.mark.NAME\n"
TEST = "def test_it():\n    pass\n"
METHOD = "    def test_it(self):\n        pass\n"
WAYS = {
    "function": MARK + TEST,
    "called": "@pytest.mark.NAME(repeats=1)\n" + TEST,
    "fixtures": "@pytest.mark.NAME\ndef test_it(tmp_path, request):\n    pass\n",
    "class": f"{MARK}class TestIt:\n{METHOD}",
    "method": f"class TestIt:\n    {MARK}{METHOD}",
    "class_pytestmark": f"class TestIt:\n    pytestmark = pytest.mark.NAME\n{METHOD}",
    "nested_class": f"{MARK}class TestIt:\n    class TestInner:\n    {METHOD.replace('    ', '        ')}",
    "inherited": f"{MARK}class Base:\n{METHOD}\nclass TestIt(Base):\n    pass\n",
    "inherited_method": f"class Base:\n    {MARK}{METHOD}\nclass TestIt(Base):\n    pass\n",
    "mixed_in": f"{MARK}class Mixin:\n    pass\n\nclass TestIt(Mixin):\n{METHOD}",
    "module": f"pytestmark = pytest.mark.NAME\n\n{TEST}",
    "module_list": f"pytestmark = [pytest.mark.slow, pytest.mark.NAME]\n\n{TEST}",
    "module_late": f"{TEST}\npytestmark = pytest.mark.NAME\n",
    "by_getattr": f"@getattr(pytest.mark, 'NAME')\n{TEST}",
    "with_args": f"@pytest.mark.NAME.with_args()\n{TEST}",
    "own_name": f"dumped = pytest.mark.NAME\n\n@dumped\n{TEST}",
    "parameter": "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.NAME)])\n"
    "def test_it(a):\n    pass\n",
    "parameters": "MARKS = [pytest.mark.slow, pytest.mark.NAME]\n\n"
    "@pytest.mark.parametrize('a', [pytest.param(1, marks=MARKS)])\n"
    "def test_it(a):\n    pass\n",
    "unittest": f"{MARK}class TestIt(unittest.TestCase):\n{METHOD}",
    "unittest_method": f"class TestIt(unittest.TestCase):\n    {MARK}{METHOD}",
    "unittest_inherited": f"{MARK}class Base(unittest.TestCase):\n    pass\n\nclass TestIt(Base):\n{METHOD}",
    "generated": TEST.replace("()", "(a)"),
    "collected": TEST,
    "modified": TEST,
    "modified_by_name": TEST,
    "own_markers": TEST,
    "parent": f"class TestIt:\n{METHOD}",
    "made": TEST,
    "report": TEST,
}
"""Ways that a mark gets on a test by the collection's end, by the file that it is in; the rest is HOOKS'."""

HOOKS = """
import pytest

def pytest_generate_tests(metafunc):
    if "generated" in metafunc.module.__name__:
        metafunc.parametrize("a", [pytest.param(1, marks=pytest.mark.NAME)])

def pytest_pycollect_makeitem(collector, name, obj):
    if name == "test_it" and "made" in collector.nodeid:
        pytest.mark.NAME(obj)

def pytest_itemcollected(item):
    if "_collected" in item.nodeid:
        item.add_marker(pytest.mark.NAME)

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "modified_by_name" in item.nodeid:
            item.add_marker("NAME", append=False)
        elif "modified" in item.nodeid:
            item.add_marker(pytest.mark.NAME)
        elif "own_markers" in item.nodeid:
            item.own_markers.append(pytest.mark.NAME.mark)
        elif "parent" in item.nodeid:
            item.parent.add_marker(pytest.mark.NAME)

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):
    report = yield
    for node in report.result:
        if isinstance(node, pytest.Item) and "report" in node.nodeid:
            node.add_marker(pytest.mark.NAME)
    return report
"""


@pytest.fixture
def loose(project: Project) -> Project:
    """A project without ``--strict-markers``, where pytest itself takes any mark."""
    project.path.joinpath("tox.ini").write_text("[pytest]\n")
    return project


def write(project: Project, name: str) -> None:
    project.path.joinpath("conftest.py").write_text(HOOKS.replace("NAME", name))
    for way, source in WAYS.items():
        text = f"import unittest\n{source}".replace("NAME", name)
        project.test_file(text, f"test_{way}.py")


@pytest.mark.each("options", [(), ("-n2",)])
def test_however_a_misspelt_mark_gets_on_a_test_it_is_an_error_that_names_test_and_marker(
    loose: Project, options: tuple[str, ...]
) -> None:
    write(loose, "npu_dumps")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors", *options)
    result.assert_outcomes(errors=len(WAYS))
    text = result.stdout.str()
    for way in WAYS:
        assert f"npu_dump: test_{way}.py::" in text
    told = "the mark npu_dumps is none that this plugin knows, and the test would not be judged: write"
    assert text.count(f"{told} @pytest.mark.npu_dump; a mark of your own is let be") >= len(WAYS)
    assert loose.run("-W", "ignore").ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.each("name", MARKERS)
def test_however_a_spelling_of_the_marker_gets_on_a_test_it_is_judged(loose: Project, name: str) -> None:
    """They dump nothing, and pass where they are not judged."""
    write(loose, name)
    result = loose.run("-W", "ignore", failed=len(WAYS))
    assert result.stdout.str().count("npudump: the dump holds nothing: ") >= len(WAYS)


LATE = {
    "fixture": "@pytest.fixture(autouse=True)\ndef mark(request):\n    request.applymarker(pytest.mark.{})\n",
    "setup": "def pytest_runtest_setup(item):\n    item.add_marker('{}')\n",
    "call": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_call(item):\n    item.add_marker('{}')\n",
    "teardown": "def pytest_runtest_teardown(item):\n    item.add_marker('{}')\n",
}


@pytest.mark.each(
    ("name", "words"),
    [
        ("npudump", "npudump: the marker npu_dump was added to this test while tests were running *"),
        (
            "npu_dumb",
            "npudump: the mark npu_dumb is none that this plugin knows, * write @pytest.mark.npu_dump*",
        ),
    ],
)
def test_a_mark_that_comes_while_tests_run_fails_them_however_it_is_spelt(
    loose: Project, name: str, words: str
) -> None:
    loose.test_file(TEST)
    for hook in LATE.values():
        loose.path.joinpath("conftest.py").write_text(f"import pytest\n\n{hook.format(name)}")
        result = loose.run("-W", "ignore")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines([words])


NEAR = {
    # the same but for case and separators
    "NPU_DUMP": True,
    "npu-dump": True,
    "npuDump": True,
    "npu_dump_": True,
    # one edit away
    "npu_dumps": True,
    "npu_dumb": True,
    "npudumps": True,
    "npu_dum": True,
    "npu_dmp": True,
    "nup_dump": True,
    "npu_dupm": True,
    "mpu_dump": True,
    "npu_dump2": True,
    "np_dump": True,
    # two edits away
    "npu_dumped": True,
    "npu_dumper": True,
    "npu_dmps": False,
    "npu_dmps(layers=['a'])": True,
    "npu_dmps(['a'])": False,
    "npu_dummy": False,
    "npu_temp": False,
    "input_dump": False,
    "nodump(reason='x')": False,
    # other processors, and other words
    "gpu_dump": False,
    "cpu_dump(layers=['a'])": False,
    "ascend_dump(layers=['a'])": False,
    "npu": False,
    "dump(layers=['a'])": False,
    "npu_dumping": False,
    "needs_npu_dump": False,
    "parametrize('a', [1])": False,
}


def test_what_is_near_is_an_error_and_what_only_resembles_is_let_be(loose: Project) -> None:
    for at, mark in enumerate(NEAR):
        name, _, arguments = mark.partition("(")
        call = f"getattr(pytest.mark, {name!r})" + ("(" * bool(arguments)) + arguments
        loose.test_file(f"@{call}\ndef test_it(request):\n    pass\n", f"test_{at}.py")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors")
    text = result.stdout.str()
    found = {mark: f"npu_dump: test_{at}.py::test_it: the mark " in text for at, mark in enumerate(NEAR)}
    found["parametrize('a', [1])"] = False  # whose test has no such argument
    assert found == NEAR


def test_a_mark_that_somebody_registers_is_his_but_for_case_and_separators(loose: Project) -> None:
    for name in ("npu_dumb", "npu_dumps", "NPU_Dump"):
        loose.test_file(f"@pytest.mark.{name}(layers=['a'])\n{TEST}", f"test_{name}.py")
    registered = "\n".join(
        f"    config.addinivalue_line('markers', {line!r})"
        for line in ("npu_dumb: mine", "NPU_Dump(a): mine")
    )
    loose.path.joinpath("conftest.py").write_text(f"def pytest_configure(config):\n{registered}\n")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors", "-o", "markers=npu_dumps")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["npu_dump: test_NPU_Dump.py::test_it: * write @pytest.mark.npu_dump"])


def test_pytest_s_own_selection_takes_each_spelling_by_its_name(loose: Project) -> None:
    for name in MARKERS:
        loose.test_file(f"@pytest.mark.{name}\n{TEST}", f"test_{name}.py")
    loose.test_file(TEST, "test_plain.py")
    for chosen, count in (("npu_dump", 1), ("npudump", 1), ("npu_dump or npudump", 2), ("not npu_dump", 2)):
        result = loose.run("--strict-markers", "--collect-only", "-q", "-m", chosen)
        assert result.stdout.str().count("::test_it") == count, chosen


@pytest.mark.each("name", ["pytestmarks", "pytest_mark", "PYTESTMARK", "pytesmark"])
def test_a_misspelt_pytestmark_with_the_marker_is_an_error(loose: Project, name: str) -> None:
    loose.test_file(f"{name} = pytest.mark.npu_dump\n\n{TEST}", "test_a.py")
    loose.test_file(
        f"class TestIt:\n    {name} = [pytest.mark.slow, pytest.mark.npudump]\n{METHOD}", "test_b.py"
    )
    loose.test_file(f"{name} = pytest.mark.slow\npython = pytest.mark.npu_dump\n\n{TEST}", "test_c.py")
    loose.test_file(f"{name} = pytest.mark.npu_dump\n\nclass TestIt:\n{METHOD}", "test_d.py")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors", passed=1, errors=3)
    for owner in ("test_a.py", "test_b.py::TestIt", "test_d.py"):
        result.stdout.fnmatch_lines([f"npu_dump: {owner}: {name} marks no test: pytest reads pytestmark"])


@pytest.mark.each(
    ("name", "edits"),
    [
        ("npu_dump", 0),
        ("npu_dumps", 1),
        ("nup_dump", 1),
        ("nup_dumps", 2),
        ("npudmu", 2),
        ("skipif", 7),
        ("", 3),
    ],
)
def test_edits_are_counted_with_two_neighbours_swapped_as_one(name: str, edits: int) -> None:
    assert _distance(name) == edits
