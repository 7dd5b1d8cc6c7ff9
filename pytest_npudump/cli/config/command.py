"""``npudump config``: judge a dump configuration before the runtime does, and show the one of a test."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.config import show as config_show
from pytest_npudump.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npudump.config.verdict import Verdict

_TARGETS = {
    "acl": "aclmdlSetDump",
    "ge": "GE",
    "torchair": "TorchAir",
    "mindspore": "MindSpore",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands of ``npudump config``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="say whether a configuration is accepted, and what it does",
        description="Exit status: 0 accepted, 1 refused, 2 wrong usage.",
    )
    check.add_argument(
        "file", type=Path, metavar="FILE", help="acl.json, options for TorchAir, or data_dump.json"
    )
    check.add_argument(
        "--for",
        dest="target",
        choices=tuple(_TARGETS),
        default="acl",
        help="who will read it (default: acl); for torchair FILE is an object of dump_config options",
    )
    check.add_argument(
        "--cann",
        type=_version,
        metavar="VERSION",
        help="rules of this CANN release (default: the installed one, else 9.1.0)",
    )
    check.add_argument("--soc", default="", metavar="NAME", help="chip the file is for, such as Ascend910B3")
    check.add_argument(
        "--device",
        choices=("Ascend", "CPU", "GPU"),
        default="Ascend",
        help="device_target, for mindspore (default: Ascend)",
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    config_show.configure(
        actions.add_parser(
            "show",
            help="print the file that configures a test's dump",
            description="Exit status: 0 printed, 1 refused, 2 there is no such test.",
        )
    )


def run(args: argparse.Namespace) -> int:
    """Do ``check`` or ``show``; return 0 if the configuration is accepted, else 1."""
    return config_show.run(args) if args.action == "show" else _check(args)


def _check(args: argparse.Namespace) -> int:
    from pytest_npudump.config.acl.installed import rules_version  # noqa: PLC0415 - the same
    from pytest_npudump.config.check import check_file  # noqa: PLC0415 - only for this command

    version = args.cann or rules_version()
    verdict = check_file(args.file, args.target, version=version, device=args.device, soc=args.soc)
    text = json.dumps(verdict.to_json(), indent=2) if args.json else _described(verdict, args.target, version)
    emit([text])
    return 0 if verdict.accepted else 1


def _version(text: str) -> str:
    from pytest_npudump.config.acl.profile import profile_for  # noqa: PLC0415 - only for this command

    try:
        profile_for(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _described(verdict: Verdict, target: str, version: str) -> str:
    reader = _TARGETS[target]
    if target == "acl":
        reader += f" of CANN {version}"
    elif target == "ge" and getattr(verdict, "code", 0) != 0:
        reader = "aclmdlSetDump, so that GE never sees it"
    lines = [f"{'accepted' if verdict.accepted else 'refused'} by {reader}: {_effect(verdict)}"]
    lines += [f"error: {reason}" for reason in verdict.reasons]
    lines += [f"warning: {warning}" for warning in verdict.warnings]
    return "\n".join(lines)


def _effect(verdict: Verdict) -> str:
    code = getattr(verdict, "code", 0)
    if not verdict.accepted or code:
        return f"it returns {code}" if code else "see below"
    if not verdict.need_dump:
        return "nothing is switched on"
    place = getattr(verdict, "dump_path", "")
    what = f"switches on {verdict.dump_type}" if verdict.dump_type else "switches the dump on"
    return f"{what}, into {place}" if place else what
