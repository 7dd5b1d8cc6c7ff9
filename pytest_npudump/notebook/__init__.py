"""Public: two dumps compared, and a session's results, as objects that a notebook shows in charts and tables.

``dump_comparison`` has the first, ``session_results`` the second and the HTML of both.
"""

from pytest_npudump.notebook.dump_comparison import DumpComparison, compare_dumps
from pytest_npudump.notebook.session_results import SessionResults, read_results

__all__ = ["DumpComparison", "SessionResults", "compare_dumps", "read_results"]
