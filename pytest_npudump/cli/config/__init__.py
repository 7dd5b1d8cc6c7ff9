"""``npudump config``: what a runtime would say of a configuration, and the configuration of a test.

``command`` checks a file; ``show`` prints a test's, which it learns from a collection by pytest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_npudump.errors import ConfigError

_READERS = ("acl", "ge", "torchair", "mindspore")
_SHOWN = ("acl", "mindspore", "torchair")
_DEVICES = ("Ascend", "CPU", "GPU")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands of ``npudump config``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="say whether a configuration is accepted, and what it does",
        description="Exit status: 0 accepted, 1 refused, 2 wrong usage.",
    )
    _configure_check(check)
    show = actions.add_parser(
        "show",
        help="print the file that configures a test's dump",
        description="Exit status: 0 printed, 1 refused, 2 there is no such test.",
    )
    _configure_show(show)


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="acl.json, options for TorchAir, or data_dump.json"
    )
    parser.add_argument(
        "--for",
        dest="target",
        choices=_READERS,
        default="acl",
        help="who will read it (default: acl); for torchair FILE is an object of dump_config options",
    )
    parser.add_argument(
        "--cann",
        type=_version,
        metavar="VERSION",
        help="rules of this CANN release (default: the installed one, else 9.1.0)",
    )
    parser.add_argument("--soc", default="", metavar="NAME", help="chip the file is for, such as Ascend910B3")
    parser.add_argument(
        "--device",
        choices=_DEVICES,
        default="Ascend",
        help="device_target, for mindspore (default: Ascend)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "test",
        nargs="?",
        metavar="NODEID",
        help="test/file.py::test_name, as pytest takes it; without one, the only marked test there is",
    )
    parser.add_argument(
        "--for",
        dest="target",
        choices=_SHOWN,
        help="who will read it: an acl.json, a data_dump.json for mindspore, or the dump_config options that "
        "npu_dump.torchair_config() sets (default: mindspore where the project's runtime is that, else acl)",
    )
    parser.add_argument(
        "--device",
        choices=_DEVICES,
        default="Ascend",
        help="device_target whose rules count, for mindspore (default: Ascend)",
    )


def _version(text: str) -> str:
    from pytest_npudump.config.cann import profile_for  # noqa: PLC0415 - only for this command

    try:
        profile_for(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
