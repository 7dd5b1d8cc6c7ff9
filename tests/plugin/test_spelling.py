"""Both spellings of the marker, and marks that are nearly it, in every way that a mark gets on a test."""

from __future__ import annotations

import re

import pytest

from pytest_npudump.plugin.marks import MARKERS, _distance, for_all_spellings
from tests.plugin.conftest import Project

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
    "classmethod": f"class TestIt:\n    {MARK}    @classmethod\n{METHOD.replace('self', 'cls')}",
    "staticmethod": f"class TestIt:\n    @staticmethod\n    {MARK}{METHOD.replace('self', '')}",
    "wrapped": "import contextlib\n\n@contextlib.contextmanager\ndef around():\n    yield\n\n@around()\n"
    + MARK
    + TEST,
    "own_name": f"dumped = pytest.mark.NAME\n\n@dumped\n{TEST}",
    "parameter": "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.NAME)])\n"
    "def test_it(a):\n    pass\n",
    "parameters": "MARKS = [pytest.mark.slow, pytest.mark.NAME]\n\n"
    "@pytest.mark.parametrize('a', [pytest.param(1, marks=MARKS)])\n"
    "def test_it(a):\n    pass\n",
    "fixture_parameter": "@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.NAME)])\n"
    "def a(request):\n    pass\n\ndef test_it(a):\n    pass\n",
    "no_list": f"{TEST}\ntest_it.pytestmark = pytest.mark.NAME\n",
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
        assert f"npudump: test_{way}.py::" in text
    told = "unknown mark npu_dumps, with which the test would not be compared: write"
    assert text.count(f"{told} @pytest.mark.npu_dump; register a mark of your own under markers") >= len(WAYS)
    assert loose.run("-W", "ignore").ret == pytest.ExitCode.INTERRUPTED


UNCOLLECTED = {
    "function": ("tset_it", f"{MARK}{TEST.replace('test', 'tset')}"),
    "beside_another": ("tset_it", f"{TEST}\n{MARK}{TEST.replace('test', 'tset')}"),
    "class": ("SomeTests", f"{MARK}class SomeTests:\n{METHOD}"),
    "method": ("check_it", f"class TestIt:\n{METHOD}\n    {MARK}{METHOD.replace('test', 'check')}"),
    "constructor": ("TestIt", f"{MARK}class TestIt:\n    def __init__(self): ...\n{METHOD}"),
    "of_constructor": ("test_it", f"class TestIt:\n    def __init__(self): ...\n    {MARK}{METHOD}"),
}
CHECK = MARK + TEST.replace("test", "check")
LET_GO = {
    "told": f"{CHECK}\ncheck_it.__test__ = False\n",
    "other_name": f"{CHECK}\ntest_this = check_it\n",
    "wrapped": f"import functools\n\n{CHECK}\n@functools.wraps(check_it)\n{TEST}",
    "imported": f"from test_told import check_it\n\n{TEST}",
    "base": f"{MARK}class Base:\n{METHOD}\nclass Middle(Base):\n    pass\n"
    "\nclass TestIt(Middle):\n    pass\n",
}


def test_what_has_the_marker_and_is_no_test_by_its_name_is_an_error(loose: Project) -> None:
    """But for what is the base of a test, or says that it is none."""
    for name, (_, text) in UNCOLLECTED.items():
        loose.test_file(text.replace("NAME", "npu_dump"), f"test_{name}.py")
    for name, text in LET_GO.items():
        loose.test_file(text.replace("NAME", "npudump"), f"test_{name}.py")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors", "--doctest-modules")
    result.assert_outcomes(errors=len(UNCOLLECTED), failed=3, passed=1)
    rules = "(python_functions: test, python_classes: Test); __test__ = False says so"
    for name, (what, _) in UNCOLLECTED.items():
        words = f"{what} has the marker, and pytest collects no test of it {rules}"
        result.stdout.re_match_lines([rf"npudump: test_{name}\.py\S*: {re.escape(words)}"])


@pytest.mark.each("name", MARKERS)
def test_however_a_spelling_of_the_marker_gets_on_a_test_it_is_judged(loose: Project, name: str) -> None:
    """They dump nothing, and pass where they are not judged."""
    write(loose, name)
    result = loose.run("-W", "ignore", failed=len(WAYS))
    assert result.stdout.str().count("npudump: the dump is empty: ") >= len(WAYS)


LATE = {
    "fixture": "@pytest.fixture(autouse=True)\ndef mark(request):\n    request.applymarker(pytest.mark.{})\n",
    "setup": "def pytest_runtest_setup(item):\n    item.add_marker('{}')\n",
    "call": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_call(item):\n    item.add_marker('{}')\n",
    "teardown": "def pytest_runtest_teardown(item):\n    item.add_marker('{}')\n",
}


def test_a_mark_that_comes_while_tests_run_fails_them_however_it_is_spelt(loose: Project) -> None:
    loose.test_file(TEST)
    for name, words in (
        ("npudump", "npudump: the marker npu_dump was added to this test while tests were running *"),
        ("npu_dumb", "npudump: unknown mark npu_dumb, * write @pytest.mark.npu_dump*"),
    ):
        for hook in LATE.values():
            loose.path.joinpath("conftest.py").write_text(f"import pytest\n\n{hook.format(name)}")
            assert loose.run("-W", "ignore", shows=words).ret == pytest.ExitCode.TESTS_FAILED


ERRORS = {
    "the same but for case and separators": "NPU_DUMP | npu-dump | npuDump | npu_dump_",
    "one edit away": (
        "npu_dumps | npu_dumb | npudumps | npu_dum | npu_dmp | nup_dump | npu_dupm | mpu_dump | npu_dump2 | "
        "np_dump"
    ),
    "two edits away": (
        "npu_dumped | npu_dumper | npu_dmps | np_dumps | npu_dmps(['conv*']) | npu_temp | nup_dmp | nu_dmp | "
        "nup_dumps | nu_dumps"
    ),
    "the marker's words, with others or in another order": (
        "npu_dumping | npu_dumping(layers=['a']) | npu_dump_test(layers=['a']) | needs_npu_dump | "
        "dump_npu(layers=['a']) | dumpNpu | dump_on_npu | cpu_npu_dump"
    ),
    "its beginning, or other names of the platform": (
        "npud | ascend_dump | ascendDumps(['a']) | dump_of_cann | acl_dump"
    ),
    "arguments of the marker's by name": "dump(layers=['a'])",
}
LET_BE = {
    "other processors, and other words": (
        "gpu_dump | gpu_dump(['a']) | cpu_dump(layers=['a']) | xpu_dumps | npu | npu(1) | dump | needs_npu | "
        "core_dump | nodump(reason='x') | input_dump | regression(rtol=1e-3) | distributed(devices=2) | "
        "acl_policy | npu_driver | oracle_dump"
    ),
    "marks of other plugins, also where these are missing": (
        "array_compare(rtol=1e-3, atol=1e-6, file_format='fits') | "
        "mpl_image_compare(tolerance=5, remove_text=True) | asyncio(loop_scope='module') | anyio | "
        "benchmark(group='a', min_rounds=2) | dependency(depends=['a']) | "
        "django_db(transaction=True, databases=['default']) | flaky(reruns=2, reruns_delay=1) | forked | "
        "gpu(devices=2) | integration | order(after='a') | parallel_threads(2) | repeat(3) | run(order=1) | "
        "slow | smoke | timeout(10, method='thread') | vcr(record_mode='none') | xdist_group(name='a') | "
        "skipif(False, reason='x') | usefixtures('tmp_path') | filterwarnings('ignore') | "
        "parametrize('a', [1])"
    ),
}
NEAR = {
    mark: error
    for groups, error in ((ERRORS, True), (LET_BE, False))
    for marks in groups.values()
    for mark in marks.split(" | ")
}
"""Marks, and whether they are taken for misspelt ones of ours."""


def test_what_is_near_is_an_error_and_what_only_resembles_is_let_be(loose: Project) -> None:
    for at, mark in enumerate(NEAR):
        name, _, arguments = mark.partition("(")
        call = f"getattr(pytest.mark, {name!r})" + ("(" * bool(arguments)) + arguments
        loose.test_file(f"@{call}\ndef test_it(request):\n    pass\n", f"test_{at}.py")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors")
    text = result.stdout.str()
    found = {mark: f"npudump: test_{at}.py::test_it: unknown mark " in text for at, mark in enumerate(NEAR)}
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
    result.stdout.fnmatch_lines(["npudump: test_NPU_Dump.py::test_it: * write @pytest.mark.npu_dump"])


def test_pytest_s_own_selection_takes_both_spellings_for_one_marker(loose: Project) -> None:
    """A gate by ``-m`` is whole, whichever spelling it names."""
    for name in MARKERS:
        loose.test_file(f"@pytest.mark.{name}\n{TEST}", f"test_{name}.py")
        loose.test_file(f"@pytest.mark.slow\n@pytest.mark.{name}\n{TEST}", f"test_slow_{name}.py")
    loose.test_file(TEST, "test_plain.py")
    late = "@pytest.hookimpl(tryfirst=True)\ndef pytest_collection_modifyitems(items):\n    [\n"
    late += "        item.add_marker('npudump') for item in items if 'late' in item.nodeid\n    ]\n"
    loose.path.joinpath("conftest.py").write_text(f"import pytest\n\n{late}")
    loose.test_file(TEST, "test_late.py")
    strict = ("-W", "ignore", "-o", "markers=slow", "--strict-markers")
    for chosen, count in (("npudump", 5), ("not slow and (npudump)", 3), ("npu_dump and not npudump", 0)):
        result = loose.run(*strict, "--collect-only", "-q", "-m", chosen)
        assert result.stdout.str().count("::test_it") == count, chosen
    result = loose.run(*strict, "-m", "npu_dump", failed=5)
    assert result.stdout.str().count("npudump: the dump is empty: ") >= 5
    loose.run(*strict, "-m", "npudump", "-n2", failed=5)


def test_an_expression_of_m_names_every_spelling() -> None:
    for given, meant in {
        "": "",
        "slow": "slow",
        "npu_dump and slow": "(npu_dump or npudump) and slow",
        "not(npudump)": "not((npu_dump or npudump))",
        "a.npu_dump or npu_dump-b or npu_dumps": "a.npu_dump or npu_dump-b or npu_dumps",
        "npudump(scene='op)') and a": "(npu_dump(scene='op)') or npudump(scene='op)')) and a",
        "a(npu_dump=1, b='npudump (') or notnpudump": "a(npu_dump=1, b='npudump (') or notnpudump",
    }.items():
        assert for_all_spellings(given) == meant


@pytest.mark.each("name", ["pytestmarks", "pytest_mark", "PYTESTMARK", "pytesmark", "ptestmark"])
def test_a_misspelt_pytestmark_with_the_marker_is_an_error(loose: Project, name: str) -> None:
    for file, text in {
        "a": f"{name} = pytest.mark.npu_dump\n\n{TEST}",
        "b": f"class TestIt:\n    {name} = [pytest.mark.slow, pytest.mark.npudump]\n{METHOD}",
        "c": f"{name} = pytest.mark.slow\npython = test_mark = pytest.mark.npu_dump\n\n{TEST}",
        "d": f"{name} = pytest.mark.npu_dump\n\nclass TestIt:\n{METHOD}",
        "e": f"class Base:\n    {name} = pytest.mark.npudump\n\nclass TestIt(Base):\n{METHOD}",
        "f": f"class TestIt:\n    {name} = pytest.mark.npudump\n    class TestInner:\n"
        + METHOD.replace("    ", "        "),
    }.items():
        loose.test_file(text, f"test_{file}.py")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors", passed=1, errors=5)
    for owner in ("a.py", "b.py::TestIt", "d.py", "e.py::TestIt", "f.py::TestIt"):
        result.stdout.fnmatch_lines([f"npudump: test_{owner}: {name} marks no test: pytest reads pytestmark"])


DECO = "def deco(f):\n    def inner(*args):\n        f(*args)\n    return inner\n\n"
HIDING = {
    "decorator": f"{DECO}@deco\n{MARK}{TEST}",
    "two": f"{DECO}@deco\n@deco\n{MARK}{TEST}",
    "method": f"{DECO}class TestIt:\n    @deco\n    {MARK}{METHOD}",
    "partial": MARK + "def marked(a):\n    pass\n\ntest_it = functools.partial(marked, 1)\n",
}
"""Wrappers that leave out the marks of what they wrap, so that pytest sees none."""


@pytest.mark.each("name", MARKERS)
def test_a_marker_that_a_decorator_hides_is_an_error(loose: Project, name: str) -> None:
    for way, source in HIDING.items():
        loose.test_file(f"import functools\n\n{source}".replace("NAME", name), f"test_{way}.py")
    loose.test_file(
        "def make():\n    def test():\n        assert test\n    return test\n\ntest_it = make()\n"
    )
    loose.test_file(f"{DECO}@deco\n@pytest.mark.slow\n{TEST}", "test_other.py")
    result = loose.run("-W", "ignore", "--continue-on-collection-errors", passed=2, errors=len(HIDING))
    told = "test_it is not marked: a decorator hides the marks of the function that it wraps"
    assert result.stdout.str().count(f": {told}") >= len(HIDING)


def test_pytestmark_where_pytest_reads_none_is_an_error(loose: Project) -> None:
    marked = "import pytest\n\npytestmark = [pytest.mark.npu_dump]\n"
    for folder in ("a", "b", "c/d"):
        loose.path.joinpath(folder).mkdir(parents=True, exist_ok=True)
        loose.test_file(TEST, f"{folder}/test_{folder[-1]}.py")
    loose.path.joinpath("a/conftest.py").write_text(marked)
    loose.path.joinpath("b/conftest.py").write_text("pytestmark = ['slow']\n")
    loose.path.joinpath("c/__init__.py").write_text(marked)
    loose.path.joinpath("c/d/__init__.py").touch()
    assert loose.run("-W", "ignore", "b").ret == pytest.ExitCode.OK
    words = "marks no test: pytest reads pytestmark in test modules and classes only"
    above, beside = "pytestmark in a/conftest.py", "c/d/test_d.py: pytestmark in c/__init__.py"
    for folder, option, told, code in (
        ("a", "-q", above, 4),
        ("a", "--collect-only", above, 4),
        ("a", "-n2", above, 1),
        ("c", "-q", beside, 2),
        ("c", "-n2", beside, 1),
    ):
        result = loose.run("-W", "ignore", option, folder)
        assert result.ret == code, (folder, option)
        assert f"npudump: {told} {words}" in result.stdout.str() + result.stderr.str()


def test_edits_are_counted_with_two_neighbours_swapped_as_one() -> None:
    for edits, names in {0: "npu_dump", 1: "npu_dumps nup_dump", 2: "nup_dumps npudmu", 7: "skipif"}.items():
        assert [_distance(name) for name in names.split()] == [edits] * len(names.split())
    assert _distance("") == 3
