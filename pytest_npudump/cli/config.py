"""``npudump config``: a runtime's verdict on a configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit

if TYPE_CHECKING:
    import argparse

    from pytest_npudump.config.rule_table import CheckerVerdict


_TARGETS = {"acl": "aclmdlSetDump", "ge": "GE", "torchair": "TorchAir", "mindspore": "MindSpore"}


def check(args: argparse.Namespace) -> int:
    """Judge a file as its reader would; return 0 if the configuration is accepted, else 1."""
    from pytest_npudump.config.cann import rules_version  # noqa: PLC0415 - the same
    from pytest_npudump.config.check import check_file  # noqa: PLC0415 - only for this command

    version = args.cann or rules_version()
    verdict = check_file(args.file, args.target, version=version, device=args.device, soc=args.soc)
    if args.json:
        emit([json.dumps(verdict.to_json(), indent=2)], whole=True)
    else:
        emit(_described(verdict, args.target, version).splitlines())
    return 0 if verdict.accepted else 1


def _described(verdict: CheckerVerdict, target: str, version: str) -> str:
    reader = _TARGETS[target]
    if target == "acl":
        reader += f" of CANN {version}"
    elif target == "ge" and getattr(verdict, "code", 0) != 0:
        reader = "aclmdlSetDump, so that GE never sees it"
    if verdict.accepted:
        lines = [f"accepted by {reader}: {_effect(verdict)}"]
    elif verdict.accepted is None:
        lines = [f"neither accepted nor refused: {reader} alone can say"]
    else:
        lines = [f"refused by {reader}: {_effect(verdict)}"]
    lines += [f"error: {reason}" for reason in verdict.reasons]
    lines += [f"warning: {warning}" for warning in verdict.warnings]
    return "\n".join(lines)


def _effect(verdict: CheckerVerdict) -> str:
    code = getattr(verdict, "code", 0)
    if not verdict.accepted or code:
        return f"it returns {code}" if code else "see below"
    if not verdict.need_dump:
        return "nothing is switched on"
    place = getattr(verdict, "dump_path", "")
    what = f"switches on {verdict.dump_type}" if verdict.dump_type else "switches the dump on"
    return f"{what}, into {place}" if place else what
