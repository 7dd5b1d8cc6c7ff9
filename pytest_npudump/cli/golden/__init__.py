"""``npudump golden``: what golden files hold, and what becomes of them, one module of this folder a verb.

``waiting_runs`` are what the verbs about results share, ``owners`` what those about files do;
``idle_rules`` are what ``stale`` says of tolerances.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_json_option, add_place_options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

DESCRIPTION = "Look at golden files and at what may take their place. Exit 0; 2 where a file cannot be read."
_PENDING = (
    "List the runs that differ from their goldens, or have none, and wait for a decision: the largest change "
    "first. Exit 0: there are none; 1: there are; 2: results that cannot be read."
)
_DIFF = (
    "Show what differs between each waiting run and its golden, layer by layer, and by how much. Exit codes "
    "as for pending."
)
_ACCEPT = (
    "Write the golden of each waiting run from what was kept of it, without running again. Refused where the "
    "run was not complete, where its golden or its test's file has changed since, and where the run is the "
    "emulator's and the golden a device's. Exit 0; 2 where one was refused, or results cannot be read."
)
_REVIEW = (
    "Go through the waiting runs one by one, the largest change first, and decide about each: a accept, r "
    "reject, s skip; A, R and S for it and all that follow; l accept some layers; d show all that differs; q "
    "quit. A key decides on a terminal, a line elsewhere. Exit 0: no run waits any more; 1: some do; 2: one "
    "was refused, or results cannot be read."
)
_REJECT = "Take waiting runs off the list; their goldens stay, and the next runs are judged by them."
_SHOW = (
    "Say how many tensors a golden file has, which run recorded it, and whether it repeats. With --noise: "
    "the tensors whose measured noise makes their bounds widest, and those that these bounds let pass "
    "whatever they hold."
)

_VERIFY = (
    "Read golden files, and the tensors beside them, as a test would: whether each can be read, has no "
    "conflict markers of git, belongs to the tensors beside it, and claims a test of its own. Exit 0: all "
    "are sound; 1: some are not; 2: there is nothing to look at."
)

_MERGE = (
    "Join two approvals of a golden that touch different layers, as git's merge driver: OURS becomes the "
    "joined golden. What both have changed has conflict markers around it. Exit 0; 1 where there are "
    "conflicts; 2 where a file cannot be read or written."
)

_LIST = "Collect the tests of this folder, as pytest does, and list the goldens that they have."
_STALE = (
    "Collect the tests of this folder, as pytest does, and list the goldens that none of them has, tensors "
    "without a golden, and what updates that were killed have left. What cannot be judged is listed apart: "
    "goldens of test files that were not collected, or that may be another rootdir's. Exit 0: nothing is "
    "stale; 1: something is; 2: a test file cannot be collected, or no golden is of a variant that was "
    "named, so that nothing is known."
)
_PRUNE = (
    "Remove the files that 'npudump golden stale' lists, goldens before their tensors; without --yes say "
    "which. Exit 0; 1 where files wait for --yes; 2: nothing is known, or a file cannot be removed."
)

_SPLIT = (
    "Write variants as what differs from the common golden beside them, which names each for the runs that "
    "it counts for: those of its SoC, CANN release or runtime. Exit 0; 2 where one cannot be split."
)
_FOLD = (
    "Take variants back: their files are removed, and their runs are compared with the common golden. Where "
    "tensors differ, only with --yes. With --whole a variant stays, written as a golden of its own. Exit 0; "
    "1 where one waits for --yes; 2 where one cannot be taken back."
)

_INIT = (
    "Tell git, in .gitattributes of this folder, that goldens are merged by npudump golden merge, and with "
    "--lfs that their tensors are kept by Git LFS. Lines that are there stay as they are. Exit 0."
)

_REMOTE = (
    "Golden tensors in a store (npudump_tensor_store of pytest's ini file). status: which of those that "
    "goldens name are there, and cached here. push: put cached ones there that are lacking. pull: cache all, "
    "for work without the store. move: put tensors that lie beside goldens there, and name them in these. "
    "Exit 0; 1 where something is not where it is to be; 2 where a golden cannot be read, or there is no "
    "store."
)

_LOG = (
    "Tell a golden's history from git, the latest first: commit, date, author, reason, and what changed, "
    "tensor by tensor. Exit 0; 2 where git does not know the file."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's verbs; :data:`VERBS` has what adds the arguments of each."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, (summary, description, add) in VERBS.items():
        add(verbs.add_parser(name, help=summary, description=description))


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("golden", type=Path, metavar="GOLDEN", help="a golden file")
    parser.add_argument("--noise", action="store_true", help="the widest bounds that were measured")
    parser.add_argument("-n", "--limit", type=int, default=20, help="most tensors shown (default 20; 0: all)")
    add_json_option(parser)


def _verify(parser: argparse.ArgumentParser) -> None:
    _add_goldens(parser)
    add_json_option(parser)


def _add_goldens(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="golden files, and folders of them; default: as pytest's configuration says, else golden",
    )


def _remote(parser: argparse.ArgumentParser) -> None:
    actions = ("status", "push", "pull", "move", "clear")
    parser.add_argument(
        "action", choices=actions, metavar="ACTION", help="what to do: status, push, pull, move, clear"
    )
    _add_goldens(parser)
    parser.add_argument(
        "--store", default="", metavar="URL", help="the store, whatever pytest's ini file says"
    )
    parser.add_argument("--cache", default="", metavar="DIR", help="the folder of the cache, the same")
    parser.add_argument(
        "--verify", action="store_true", help="status: read all of each tensor, here and there, for its hash"
    )
    parser.add_argument("--replace", action="store_true", help="push: also what is there, as damaged")
    add_json_option(parser)


def _merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "base", type=Path, metavar="BASE", help="the golden that both were made of (git's %%O)"
    )
    parser.add_argument("ours", type=Path, metavar="OURS", help="our golden, which is replaced (%%A)")
    parser.add_argument("theirs", type=Path, metavar="THEIRS", help="their golden (%%B)")
    parser.add_argument("name", type=Path, nargs="?", metavar="NAME", help="its name in messages (%%P)")


def _stale(parser: argparse.ArgumentParser) -> None:
    _add_variants(parser)
    add_json_option(parser)


def _prune(parser: argparse.ArgumentParser) -> None:
    _add_variants(parser)
    parser.add_argument("--yes", action="store_true", help="remove them")


def _add_variants(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="NAME",
        help="a variant that runs select, as --npudump-golden-variant takes it or its file spells it; may be "
        "repeated: files of all others are stale, but those that a common golden names; without it no "
        "variant is",
    )


def _init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lfs", action="store_true", help="keep golden tensors by Git LFS")
    parser.add_argument(
        "--golden-dir",
        type=Path,
        metavar="DIR",
        help="the folder of the goldens; default: as pytest's configuration says, else golden",
    )


def _split(parser: argparse.ArgumentParser) -> None:
    _add_variant_files(parser)
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        choices=("soc", "cann", "runtime"),
        help="the fact by which it is chosen; may be repeated; default: the first in which it and the common "
        "golden were produced differently",
    )


def _fold(parser: argparse.ArgumentParser) -> None:
    _add_variant_files(parser)
    parser.add_argument("--whole", action="store_true", help="write it whole, and keep it")
    parser.add_argument("--yes", action="store_true", help="remove it although its tensors differ")


def _add_variant_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "variants", nargs="+", type=Path, metavar="VARIANT", help="files of variants: test@NAME.yaml"
    )


def _log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("golden", type=Path, metavar="GOLDEN", help="a golden file")
    parser.add_argument("layer", nargs="?", metavar="LAYER", help="a layer's name or glob; default: all")
    parser.add_argument(
        "-n", "--limit", type=int, default=20, help="most lines of a revision (default 20; 0: all)"
    )
    add_json_option(parser)


def _add_tests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "tests", nargs="*", metavar="TEST", help="node ids, files or globs of them; default: all that wait"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="the folder of a session's results; default: that in pytest's cache, here or in a folder above",
    )
    add_place_options(parser)


def _pending(parser: argparse.ArgumentParser) -> None:
    _add_tests(parser)
    add_json_option(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    _add_tests(parser)
    _add_layers(parser)
    add_json_option(parser)


def _accept(parser: argparse.ArgumentParser) -> None:
    _add_tests(parser)
    _add_layers(parser)
    _add_approval(parser)


def _review(parser: argparse.ArgumentParser) -> None:
    _add_tests(parser)
    _add_approval(parser)


def _add_approval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, kept in the golden")
    parser.add_argument("--allow-in-ci", action="store_true", help="accept in CI")


def _add_layers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layers",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these layers; may be repeated",
    )


VERBS: dict[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "pending": ("the runs that differ from their goldens and wait for a decision", _PENDING, _pending),
    "diff": ("what differs between these runs and their goldens", _DIFF, _diff),
    "accept": ("make these runs the goldens, without running again", _ACCEPT, _accept),
    "review": ("decide about these runs one by one", _REVIEW, _review),
    "reject": ("keep the goldens, and take these runs off the list", _REJECT, _add_tests),
    "verify": ("whether golden files can be read and belong together", _VERIFY, _verify),
    "merge": ("join two approvals of a golden, as git's merge driver", _MERGE, _merge),
    "remote": ("golden tensors in a store: status, push, pull, move, clear", _REMOTE, _remote),
    "init": ("tell git how goldens are merged and kept", _INIT, _init),
    "split": ("write a variant as what differs from the common golden", _SPLIT, _split),
    "fold": ("take a variant back", _FOLD, _fold),
    "log": ("a golden's history from git, layer by layer", _LOG, _log),
    "list": ("the goldens of the tests of this folder", _LIST, add_json_option),
    "stale": ("files of goldens that no test reads", _STALE, _stale),
    "prune": ("remove the files that no test reads", _PRUNE, _prune),
    "show": ("what a golden says of its origin and of its noise", _SHOW, _show),
}
"""By the name of a module of this folder with ``run(arguments) -> exit code``: summary, description, and what
adds its arguments."""
