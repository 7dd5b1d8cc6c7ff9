"""Public: two dumps compared from Python, as an object that a notebook shows as a chart and a table."""

from pytest_npudump.notebook.dump_comparison import DumpComparison, compare_dumps

__all__ = ["DumpComparison", "compare_dumps"]
