"""The command ``npudump``: what the plugin does, for dumps collected elsewhere, without CANN or pytest.

A module is a verb, imported when it is to work: ``arguments`` has the words of all of them, ``common/`` what
they share. ``compare`` is told by ``compare_report``; ``compare_results`` has kept results;
``init`` writes a ``first_test``. The table below is the index.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_npudump import __version__
from pytest_npudump.cli.common.output import INTERRUPTED, emit, exit_code, leave_threads_behind, screen
from pytest_npudump.cli.common.spoken_parser import SpokenParser, asked_language, spoken_argparse
from pytest_npudump.language import AUTO
from pytest_npudump.language.translation import is_english, speaking

_DESCRIPTION = (
    "Compare dumps, review goldens and set up tests of Ascend NPUs. Reading dumps needs neither CANN nor an "
    "NPU."
)

COMMANDS = {
    "ls": "list tensors and overflow records of a dump, statistics with --stats",
    "compare": "compare two dumps, a golden file and a dump, or saved results",
    "check": "compare a session's results again, with other tolerances or goldens",
    "report": "write a session's results as a page, pictures, or data of a graph viewer",
    "convert": "write the tensors of a dump as npy or safetensors",
    "golden": "review and accept changes; inspect goldens and their history",
    "repro": "write a failing operator as a folder: model, inputs, and a failing test",
    "config": "check a dump configuration as CANN, GE, TorchAir or MindSpore does, or show that of a test",
    "doctor": "show what is installed, which runtimes work, and whether a dump can be written",
    "init": "set up a repository: configuration, a first test, .gitattributes, a CI job",
    "demo": "write a small test project, record its golden, change a weight, and show the failure",
}
"""The commands and their help."""

_RENAMED = {
    "stats": "npudump ls --stats",
    "overflow": "npudump ls",
    "tolerance": "npudump golden show --tolerances",
    "plot": "npudump report --plots DIR",
    "trend": "npudump compare",
}

_READING = frozenset(("ls", "compare", "convert", "check", "report", "golden"))
"""Commands that read dumps and start no other program."""

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


_REPORT = Path(__file__).parents[1] / "report"
_WIDTH = 100


class _Explain(argparse.Action):
    """Shows the page of failures, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print it without links to other pages, and without the classes of errors."""
        from io import StringIO  # noqa: PLC0415 - only for this option

        from rich.console import Console  # noqa: PLC0415 - the same
        from rich.markdown import Markdown  # noqa: PLC0415 - the same

        text = (_REPORT / ("failures.md" if is_english() else "failures.zh.md")).read_text("utf-8")
        page = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).partition("\n## Errors")[0]
        wide, shown = screen() or _WIDTH, StringIO()
        Console(file=shown, width=wide).print(Markdown(page))
        emit((line.rstrip() for line in shown.getvalue().splitlines()), whole=True)
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 good; 1 a difference; 2 an unreadable or wrong input, or work that failed; 130 interrupted. Without
    ``argv`` this is the process's own command, and an interrupt ends the process at once.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    code = exit_code(lambda: _spoken(words))
    if argv is None:
        gc.freeze()  # which ends; looking for garbage in what is left takes a tenth of the time
    if argv is None and code == INTERRUPTED:
        leave_threads_behind(code)
    return code


def _spoken(words: list[str]) -> int:
    """Parse the words, do the work, and report failures in the requested language too."""
    with speaking(asked_language(words)), spoken_argparse():
        arguments = _parser(words).parse_args(words, argparse.Namespace(lang=AUTO))
    module, _, function = arguments.work.partition(":")
    with speaking(arguments.lang), _quick(reads=arguments.command in _READING):
        return exit_code(
            lambda: getattr(importlib.import_module(f"{__name__}.{module}"), function)(arguments)
        )


@contextmanager
def _quick(*, reads: bool) -> Iterator[None]:
    """Have a command that only reads start no threads of numpy's BLAS, 20 ms each, and collect no garbage.

    Records are no cycles, and looking through ten thousands of them takes a sixth of the time.
    """
    collecting, alone = gc.isenabled(), reads and _BLAS_THREADS not in os.environ
    gc.disable()
    if alone:
        os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        if collecting:
            gc.enable()
        if alone:
            del os.environ[_BLAS_THREADS]


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser; only commands among ``words`` get their arguments."""
    parser = SpokenParser(prog="npudump", description=_DESCRIPTION)
    parser.lang.help = "language of messages: en, zh, or auto (default: the locale's)"
    parser.add_argument("--version", action="version", version=f"npudump {__version__}")
    parser.add_argument("--explain", action=_Explain, nargs=0, help="explain a failure, line by line")
    parser.renamed = _RENAMED
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name in words:
            command.description = summary
            command.set_defaults(work=f"{name}:run")
            from pytest_npudump.cli.arguments import VERBS, configure  # noqa: PLC0415 - not for the list of commands

            configure(command, VERBS[name])
    return parser
