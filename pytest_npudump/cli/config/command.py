"""``npudump config``: judge a dump configuration before the runtime does, and show the one of a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.config import show as config_show
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken

if TYPE_CHECKING:
    import argparse

    from pytest_npudump.config.rule_table import CheckerVerdict

_TARGETS = {
    "acl": "aclmdlSetDump",
    "ge": "GE",
    "torchair": "TorchAir",
    "mindspore": "MindSpore",
}


def run(args: argparse.Namespace) -> int:
    """Do ``check`` or ``show``; return 0 if the configuration is accepted, else 1."""
    return config_show.run(args) if args.action == "show" else _check(args)


def _check(args: argparse.Namespace) -> int:
    from pytest_npudump.config.cann import rules_version  # noqa: PLC0415 - the same
    from pytest_npudump.config.check import check_file  # noqa: PLC0415 - only for this command

    version = args.cann or rules_version()
    verdict = check_file(args.file, args.target, version=version, device=args.device, soc=args.soc)
    text = json.dumps(verdict.to_json(), indent=2) if args.json else _described(verdict, args.target, version)
    emit([text])
    return 0 if verdict.accepted else 1


def _described(verdict: CheckerVerdict, target: str, version: str) -> str:
    reader = _TARGETS[target]
    if target == "acl":
        reader += _(" of CANN {version}").format(version=version)
    elif target == "ge" and getattr(verdict, "code", 0) != 0:
        reader = _("aclmdlSetDump, so that GE never sees it")
    if verdict.accepted:
        lines = [_("accepted by {reader}: {effect}").format(reader=reader, effect=_effect(verdict))]
    elif verdict.accepted is None:
        lines = [_("neither accepted nor refused: {reader} alone can say").format(reader=reader)]
    else:
        lines = [_("refused by {reader}: {effect}").format(reader=reader, effect=_effect(verdict))]
    lines += [_("error: {reason}").format(reason=spoken(str(reason))) for reason in verdict.reasons]
    lines += [_("warning: {warning}").format(warning=spoken(warning)) for warning in verdict.warnings]
    return "\n".join(lines)


def _effect(verdict: CheckerVerdict) -> str:
    code = getattr(verdict, "code", 0)
    if not verdict.accepted or code:
        return _("it returns {code}").format(code=code) if code else _("see below")
    if not verdict.need_dump:
        return _("nothing is switched on")
    place = getattr(verdict, "dump_path", "")
    what = (
        _("switches on {dump_type}").format(dump_type=verdict.dump_type)
        if verdict.dump_type
        else _("switches the dump on")
    )
    return _("{what}, into {place}").format(what=what, place=place) if place else what
