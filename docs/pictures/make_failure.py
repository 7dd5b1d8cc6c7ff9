"""Makes ``failure.svg`` anew: the failure of ``npudump demo``, as a terminal of 120 columns shows it.

    python docs/pictures/make_failure.py

needs the extra ``demo``. A test holds the picture against what the demonstration prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.text import Text
from terminal_svg import terminal_svg

PICTURE = Path(__file__).with_name("failure.svg")
COLUMNS = 120


def failure(demonstration: str) -> str:
    """Return the part of the demonstration's output that the picture shows, with its colours."""
    begin = demonstration.index("$ pytest --npudump-output")
    command, _, rest = demonstration[begin:].partition("\n")
    report = rest[rest.index("\ntest_angle_classifier.py ") :]
    end = re.search(r"\n[^\n]*short test summary info", report)
    return f"{command}\n{report[1 : end.start() if end else None]}"


def picture(demonstration: str) -> str:
    """Return the SVG of what the demonstration printed on a terminal of ``COLUMNS`` columns."""
    return terminal_svg(Text.from_ansi(failure(demonstration)), COLUMNS, "npudump demo", "npudump")


def main() -> None:
    """Run the demonstration and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", "from pytest_npudump.cli import main; main(['demo'])"],
            cwd=folder,
            env={**os.environ, "COLUMNS": str(COLUMNS), "PY_COLORS": "1"},
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=True,
        )
    PICTURE.write_text(picture(done.stdout), encoding="utf-8")


if __name__ == "__main__":
    main()
