"""Makes ``review.svg`` anew: ``npudump golden review`` as a terminal of 120 columns shows it.

    python docs/pictures/make_review.py

needs the extras ``demo`` and ``review``, and pyte. A test holds the picture against what the command draws.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte
from rich.text import Text
from terminal_svg import terminal_svg

from pytest_npudump.demo.project import break_model, write_project
from pytest_npudump.settings import CI_VARIABLES

PICTURE = Path(__file__).with_name("review.svg")
COLUMNS, ROWS = 120, 22
TEST = """\
import numpy as np
import pytest


@pytest.mark.npu_dump
@pytest.mark.parametrize("page", ["invoice", "letter", "ticket"])
def test_angle(npu_dump, page):
    rng = np.random.default_rng(sum(map(ord, page)))
    with npu_dump.load_model("angle_classifier.onnx") as model:
        model.run(rng.uniform(-1, 1, (1, 3, 48, 192)).astype(np.float32))
"""
_COMMAND = "import sys; from pytest_npudump.cli import main; sys.exit(main(sys.argv[1:]))"


def recorded(folder: Path, keys: tuple[str, ...]) -> list[list[str]]:
    """Review what waits in ``folder``, and return the screen before the first key and after each."""
    size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm"}
    command = [sys.executable, "-c", _COMMAND, "golden", "review", "--results", "results"]
    environment = _own_environment() | size
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, command, environment)  # noqa: S606 - ourselves
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    shots: list[list[str]] = []
    try:
        for key in ("", *keys):
            os.write(terminal, key.encode())
            _read(terminal, stream)
            shots.append([line.rstrip() for line in screen.display])
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return shots


def _read(terminal: int, stream: pyte.ByteStream) -> None:
    """Read until nothing has come for a second, at most for a minute."""
    end, came = time.monotonic() + 60, False
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 1)
        if not ready and came:
            return
        if ready:
            read = os.read(terminal, 65536)
            came = True
            if b"\x1b[6n" in read:
                os.write(terminal, b"\x1b[1;1R")
            stream.feed(read)


def _own_environment() -> dict[str, str]:
    """Return this process's variables without those that forbid approving or add options."""
    return {
        name: value for name, value in os.environ.items() if name not in {*CI_VARIABLES, "PYTEST_ADDOPTS"}
    }


def session(folder: Path) -> list[list[str]]:
    """Have three tests differ from their goldens, and review them: the first is accepted, one is rejected."""
    write_project(folder)
    (folder / "test_angle_classifier.py").unlink()
    (folder / "test_pages.py").write_text(TEST, encoding="utf-8")
    environment = _own_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = [
        "-q",
        "-p",
        "npudump",
        "-p",
        "no:cacheprovider",
        "--npudump-repeats=1",
        "--npudump-escalate=off",
    ]
    for more in (["--npudump-update-golden"], ["--npudump-results=results"]):
        command = [sys.executable, "-m", "pytest", *options, *more]
        subprocess.run(  # noqa: S603 - ourselves
            command, cwd=folder, env=environment, check=False, capture_output=True
        )
        break_model(folder, 0.01)
    shutil.rmtree(folder / "dumps", ignore_errors=True)
    return recorded(folder, ("a", "r"))


def picture(screen: list[str]) -> str:
    """Return the SVG of a screen."""
    return terminal_svg(Text("\n".join(screen)), COLUMNS, "npudump golden review", "npudump-review")


def main() -> None:
    """Record a session, and draw its screen behind the first decision."""
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(picture(session(Path(folder))[1]), encoding="utf-8")


if __name__ == "__main__":
    main()
