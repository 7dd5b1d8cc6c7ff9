"""The options as pytest knows them: each row of the table is a command-line option and an ini key."""

from __future__ import annotations

import os
import shlex
from argparse import SUPPRESS
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import RequestError, said
from pytest_npudump.language import AUTO, LANGUAGES
from pytest_npudump.plugin.features import feature_options
from pytest_npudump.settings import OPTIONS, Option, Settings, settings_from

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Runtimes(tuple[str, ...]):
    """Our runtimes, and those that other packages offer, looked for only where none of ours fits."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        """Whether there is a runtime of this name."""
        if super().__contains__(name):
            return True
        from pytest_npudump.runtime.registry import offered  # noqa: PLC0415 - no session of ours asks

        return name in offered()


def all_options() -> tuple[Option, ...]:
    """Return the options: those that every session has, and those of features."""
    return (*OPTIONS, *feature_options())


def _choices(option: Option) -> tuple[str, ...]:
    return _Runtimes(option.choices) if option.name == "runtime" else option.choices


def add_options(parser: pytest.Parser) -> None:
    """Register every row as a command-line option and as an ini key of the same name.

    The keys of options that no file may set are known all the same: they are refused with the reason.
    """
    group = parser.getgroup("npudump", "numerical regression tests on Ascend NPUs")
    for option in all_options():
        if not option.standing:
            _add_approving(group, option)
            words = said("refused: {flag} is for the command line only", flag=option.flag)
            how: dict[str, Any] = {"type": "string" if option.metavar or option.modes else "bool"}
            parser.addini(option.dest, words, default=None, **how)
            continue
        text = f"{option.help} (ini: {option.dest})"
        if isinstance(option.default, bool):
            group.addoption(option.flag, dest=option.dest, action="store_true", default=None, help=text)
            parser.addini(option.dest, option.help, type="bool", default=option.default)
            continue
        shown = f"{text}; default {option.default}" if option.default else text
        choices = _choices(option)
        extra: dict[str, Any] = {"choices": choices} if choices else {"metavar": option.metavar}
        group.addoption(option.flag, dest=option.dest, default=None, help=shown, **extra)
        parser.addini(option.dest, option.help, default=option.default)


def _add_approving(group: Any, option: Option) -> None:
    """Add an option for one run; one with modes has an option string a mode.

    An option whose value may be left out would take the path behind it for one.
    """
    text = f"{option.help}; on the command line only"
    how: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {"action": "store_true"}
    if option.modes:
        how = {"action": "store_const", "const": option.modes[0]}
    group.addoption(option.flag, dest=option.dest, default=None, help=text, **how)
    for mode in option.modes:
        how = {"action": "store_const", "const": mode, "help": SUPPRESS}
        group.addoption(f"{option.flag}={mode}", dest=option.dest, default=None, **how)


def settings_of(config: pytest.Config) -> Settings:
    """Resolve the options of ``config``: command line before ini file before default.

    Raises:
        RequestError: an ini key holds a value that the option of that name would refuse, or something
            that stands for every run approves.
    """
    _refuse_standing(config)
    settings = settings_from({option.dest: _resolve(option, config) for option in OPTIONS})
    given = {option: option.value(_resolve(option, config)) for option in feature_options()}
    unusual = {option.field: it for option, it in given.items() if it != option.value(option.default)}
    return settings._replace(features=unusual)


def usage_error(config: pytest.Config, text: str) -> pytest.UsageError:
    """Return the error that ends a run before its tests, in the language that is asked for.

    Args:
        config: pytest's, which may not be complete.
        text: in English.
    """
    from pytest_npudump.language.text import inert  # noqa: PLC0415 - for errors
    from pytest_npudump.language.translation import speaking, spoken  # noqa: PLC0415 - for errors

    option = next(one for one in OPTIONS if one.name == "lang")
    language = getattr(config.option, option.dest, None) or config.getini(option.dest)
    with speaking(language if language in LANGUAGES else AUTO):
        return pytest.UsageError(inert(spoken(text)))


def _refuse_standing(config: pytest.Config) -> None:
    """Refuse to approve by anything that stands for runs to come."""
    everywhere = {
        said("addopts of pytest's configuration file"): config.getini("addopts"),
        said("the variable PYTEST_ADDOPTS"): shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
    }
    for option in OPTIONS:
        if option.standing:
            continue
        places = [
            f"{option.flag} in {place}"
            for place, words in everywhere.items()
            if any(word.partition("=")[0] == option.flag for word in _all(words))
        ]
        # Where the key is absent, pytest 7 answers with an empty list.
        found = config.getini(option.dest)
        if isinstance(found, bool) or ((option.metavar or option.modes) and found):
            places.append(said("ini key {key}", key=option.dest))
        if places:
            raise RequestError(
                said(
                    "{place}: approving is never a standing setting: every plain 'pytest' would rewrite "
                    "the goldens it is to check, and pass. Remove it there, and give {flag} on the "
                    "command line of the one run that approves",
                    place=places[0],
                    flag=option.flag,
                )
            )


def _all(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command line, with those of the files that ``@FILE`` among them names."""
    if not any(word.startswith("@") for word in words):
        return words
    from pytest_npudump.storage.regular_file import with_argument_files  # noqa: PLC0415 - seldom needed

    try:
        return [*with_argument_files(words, Path())]
    except OSError:  # a pytest that reads such files has refused it; to an older one it is no file
        return words


def _resolve(option: Option, config: pytest.Config) -> Any:
    given = config.getoption(option.dest)
    if not option.standing:
        return given or option.default
    value = config.getini(option.dest) if given is None else given
    choices = _choices(option)
    if choices and value not in choices:
        allowed = ", ".join(choices)
        raise RequestError(
            said(
                "ini key {key} is {value!r}, expected one of {allowed}",
                key=option.dest,
                value=value,
                allowed=allowed,
            )
        )
    return value
