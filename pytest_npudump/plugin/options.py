"""The one table of options: every row is a command-line option, and an ini key unless it approves."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError
from pytest_npudump.settings import Settings, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: without prefix, as in ``--npudump-NAME`` and the ini key ``npudump_NAME``.
        default: value where neither the command line nor the ini file says anything; False for a switch.
        help: one sentence.
        metavar: what ``--help`` calls the value; "" for a switch.
        choices: allowed values; empty where any text is allowed.
        standing: whether an ini file may set it; approving is for one run, and never for all of them.
    """

    name: str
    default: str | bool
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    standing: bool = True

    @property
    def flag(self) -> str:
        """The option as typed on the command line."""
        return f"--npudump-{self.name}"

    @property
    def dest(self) -> str:
        """The ini key, and the attribute in pytest's namespace."""
        return f"npudump_{self.name.replace('-', '_')}"


OPTIONS: tuple[Option, ...] = (
    Option(
        "update-golden",
        default=False,
        help="write what the layers say now into the golden files, for review in a diff; refused under CI",
        standing=False,
    ),
    Option(
        "runtime",
        default="auto",
        help="what runs the models: the real pyACL, torch_npu, mindspore, the emulator, or (auto) torch_npu "
        "where the tests have imported it, pyACL where a device answers, else the emulator",
        choices=("auto", "acl", "torch_npu", "mindspore", "emulator"),
    ),
    Option(
        "require-npu",
        default=False,
        help="end the run with an error before the first test where no NPU answers",
    ),
    Option(
        "device",
        default="auto",
        help="device id that models are loaded on; auto is LOCAL_RANK of a distributed run, else 0",
        metavar="ID",
    ),
    Option(
        "golden-dir",
        default="golden",
        help="folder of the golden files, relative to pytest's rootdir",
        metavar="DIR",
    ),
    Option(
        "golden-variant",
        default="",
        help="read and write goldens of this variant (a SoC, say), with the common golden as fall-back",
        metavar="NAME",
    ),
    Option(
        "preset",
        default="",
        help="tolerance preset where the marker names none; else that of the tolerance file, else 'default'",
        metavar="NAME",
    ),
    Option(
        "tolerances",
        default="",
        help="YAML file of tolerance rules, relative to rootdir",
        metavar="FILE",
    ),
    Option(
        "escalate",
        default="on",
        help="whether a failing test runs again with a tensor dump of its failing layers",
        choices=("on", "off"),
    ),
    Option(
        "dump-dir",
        default="",
        help="folder for dumps and reports of failing tests; default below pytest's temporary folder",
        metavar="DIR",
    ),
    Option(
        "dump-limit",
        default="1GiB",
        help="most bytes of tensors that one escalation dumps",
        metavar="SIZE",
    ),
    Option(
        "keep-dumps",
        default="failed",
        help="whose dumps are kept: those of failed tests, or of all",
        choices=("failed", "all"),
    ),
    Option(
        "isolation",
        default="auto",
        help="whether marked tests run in a child process each: all of them, or (auto) those whose marker, "
        "scene or runtime needs it",
        choices=("auto", "process"),
    ),
    Option(
        "isolation-timeout",
        default="1800",
        help="seconds that one isolated run of a test may take",
        metavar="SECONDS",
    ),
    Option(
        "allow-update-in-ci",
        default=False,
        help="let update-golden write although the variable CI is set",
        standing=False,
    ),
)


def add_options(parser: pytest.Parser) -> None:
    """Register every row as a command-line option and as an ini key of the same name.

    The keys of options that no file may set are known all the same: they are refused with the reason.
    """
    group = parser.getgroup("npudump", "numerical regression tests on Ascend NPUs")
    for option in OPTIONS:
        if not option.standing:
            help_ = f"{option.help}; on the command line only"
            group.addoption(option.flag, dest=option.dest, action="store_true", default=None, help=help_)
            parser.addini(
                option.dest, f"refused: {option.flag} is for the command line only", type="bool", default=None
            )
            continue
        text = f"{option.help} (ini: {option.dest})"
        if isinstance(option.default, bool):
            group.addoption(option.flag, dest=option.dest, action="store_true", default=None, help=text)
            parser.addini(option.dest, option.help, type="bool", default=option.default)
            continue
        shown = f"{text}; default {option.default}" if option.default else text
        extra: dict[str, Any] = {"choices": option.choices} if option.choices else {"metavar": option.metavar}
        group.addoption(option.flag, dest=option.dest, default=None, help=shown, **extra)
        parser.addini(option.dest, option.help, default=option.default)


def settings_of(config: pytest.Config) -> Settings:
    """Resolve the options of ``config``: command line before ini file before default.

    Raises:
        RequestError: an ini key holds a value that the option of that name would refuse, or something
            that stands for every run approves.
    """
    _refuse_standing(config)
    values = {option.dest: _resolve(option, config) for option in OPTIONS}
    values = {name.removeprefix("npudump_"): value for name, value in values.items()}
    values["device"] = _device(str(values["device"]))
    values["dump_limit"] = parse_size(str(values["dump_limit"]))
    values["escalate"] = values["escalate"] == "on"
    values["isolation_timeout"] = _seconds(str(values["isolation_timeout"]))
    return Settings(**values)


def _refuse_standing(config: pytest.Config) -> None:
    """Refuse to approve by anything that stands for runs to come."""
    everywhere = {
        "addopts of pytest's configuration file": config.getini("addopts"),
        "the variable PYTEST_ADDOPTS": shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
    }
    for option in OPTIONS:
        if option.standing:
            continue
        places = [
            f"{option.flag} in {place}"
            for place, words in everywhere.items()
            if option.flag in _with_argument_files(words)
        ]
        # Where the key is absent, pytest 7 answers with an empty list.
        if isinstance(config.getini(option.dest), bool):
            places.append(f"ini key {option.dest}")
        if places:
            raise RequestError(
                f"{places[0]}: approving is never a standing setting: every plain 'pytest' would rewrite the "
                f"goldens it is to check, and pass. Remove it there, and give {option.flag} on the command "
                f"line of the one run that approves"
            )


def _with_argument_files(words: Iterable[str]) -> Iterator[str]:
    """Yield words of a command line and those of the files that ``@FILE`` among them names, one on a line."""
    for word in words:
        yield word
        if word.startswith("@"):
            try:
                lines = Path(word[1:]).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            except OSError:  # a pytest that reads such files has refused it; to an older one it is no file
                continue
            yield from _with_argument_files(lines)


def _resolve(option: Option, config: pytest.Config) -> Any:
    given = config.getoption(option.dest)
    if not option.standing:
        return bool(given)
    value = config.getini(option.dest) if given is None else given
    if option.choices and value not in option.choices:
        allowed = ", ".join(option.choices)
        raise RequestError(f"ini key {option.dest} is {value!r}, expected one of {allowed}")
    return value


def _device(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.strip().isdecimal():
        raise RequestError(f"--npudump-device is {text!r}, expected a device id such as 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise RequestError(f"--npudump-isolation-timeout is {text!r}, expected seconds, greater than 0")
    return seconds
