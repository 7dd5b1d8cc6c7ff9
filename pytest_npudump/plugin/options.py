"""The options as pytest knows them: each row is an ini key, and few are options of the command line.

What is a key alone is given for one run by pytest's own ``-o KEY=VALUE``. Names that are gone are refused,
with those that have taken their place.
"""

from __future__ import annotations

import os
import shlex
from argparse import SUPPRESS
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.errors import NpudumpError, RequestError, hint, nearest, said
from pytest_npudump.language import AUTO, LANGUAGES
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.features import feature_options
from pytest_npudump.settings import CALIBRATE, OPTIONS, Option, Settings, settings_from

_CALIBRATE = "npudump_calibrate"
_OURS = "--npudump-"
_REFUSED = "npudump_refused"
_HELP = "pytest --help -v"
_ALIKE = 0.75
"""How alike a word is at least to the option that it is likely meant for, from 0 to 1."""
_GONE = {
    "calibrate": "--npudump-update-golden=calibrate -o npudump_calibration_runs=N",
    "require-npu": "--npudump-runtime=npu",
    "skip-without-npu": "--npudump-runtime=npu-or-skip",
    "device": "-o npudump_devices=IDS",
    "numerics": "-o npudump_preset=NAME",
    "recompute": "-o npudump_escalate=on,float64 or =on,no-recompute",
    "isolation-timeout": "-o npudump_isolation=SECONDS",
    "dump-dir": "--npudump-output=DIR",
    "results": "--npudump-output=DIR",
    "artifacts": "--npudump-output=DIR",
    "summary": "--npudump-output=DIR",
    "artifacts-limit": "-o npudump_output_limit=SIZE",
    "allow-update-in-ci": "-o npudump_allow_in_ci=true",
}
"""Replacements of former options, by name; their ini keys have gone, too."""


class _Runtimes(tuple[str, ...]):
    """Our runtimes, and those that other packages offer, looked for only where none of ours fits."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        from pytest_npudump.runtime.registry import offered  # noqa: PLC0415 - no session of ours asks

        return name in offered()


def all_options() -> tuple[Option, ...]:
    """Return the options: those that every session has, and those of features."""
    return (*OPTIONS, *feature_options())


def _choices(option: Option) -> tuple[str, ...]:
    return _Runtimes(option.choices) if option.name == "runtime" else option.choices


def _given(config: Any) -> list[str]:
    """Return the words of the command line, of what stands before it and of files of arguments, each once."""
    if config is None:
        return []
    words = map(str, config.invocation_params.args)
    return [*dict.fromkeys((*_all([*words]), *chain(*map(_all, _everywhere(config).values()))))]


def _everywhere(config: pytest.Config) -> Mapping[str, Sequence[str]]:
    """Return the words that stand for every run, by their place."""
    words: dict[str, Sequence[str]] = {}
    with suppress(ValueError):  # pytest, that was given us as an object, has read neither
        words[said("addopts of pytest's configuration file")] = config.getini("addopts")
        words[said("the variable PYTEST_ADDOPTS")] = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    return words


def add_options(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register every row as an ini key, some as options of the command line, and the names that are gone.

    The keys of options that no file may set are known all the same: they are refused with the reason.
    """
    group = parser.getgroup("npudump", "numerical regression tests on Ascend NPUs")
    for option in all_options():
        if option.typed:
            # One with modes has an option string a mode: if its value could be left out, it would take the
            # path behind it for one.
            choices = _choices(option)
            # What is chosen is looked at later, in words of ours.
            how: dict[str, Any] = {"metavar": f"{{{','.join(choices)}}}" if choices else option.metavar}
            if option.modes:
                how = {"action": "store_const", "const": option.modes[0]}
            elif isinstance(option.default, bool):
                how = {"action": "store_true"}
            group.addoption(option.flag, dest=option.dest, default=None, help=option.help, **how)
            for mode in option.modes:
                how = {"action": "store_const", "const": mode, "help": SUPPRESS}
                group.addoption(f"{option.flag}={mode}", dest=option.dest, default=None, **how)
        if option.standing:
            kind: Any = "bool" if isinstance(option.default, bool) else None
            parser.addini(option.dest, option.help, type=kind, default=option.default)
        else:
            kind = "string" if option.typed else "bool"
            words = said("refused: {flag} is for the command line only", flag=option.flag)
            parser.addini(option.dest, words, type=kind, default=None)
    for word in _given(pluginmanager.get_plugin("pytestconfig")):
        if told := _refusal(word):
            group.addoption(word, dest=_REFUSED, action="store_const", const=told, help=SUPPRESS)
    group.addoption(
        f"--npudump-update-golden={CALIBRATE}",
        dest=_CALIBRATE,
        action="store_true",
        default=None,
        help=SUPPRESS,
    )


def _refusal(word: str) -> str:
    """Describe a word that is a former option, nearly one, or one with a wrong mode; "" for any other."""
    name, _, value = word.partition("=")
    for option in OPTIONS:
        if name == option.flag and option.modes and value and value not in {*option.modes, CALIBRATE}:
            modes = hint(value, [*option.modes, CALIBRATE])
            return said("{name} takes no {value!r}{hint}", name=name, value=value, hint=modes)
    dashed = name.replace("_", "-")
    own, now = dashed.removeprefix(_OURS), _now()
    if own == dashed or now.get(own) == name:
        return ""
    near = nearest(own, now, _ALIKE) or next((one for one in now if own.startswith(one)), "")
    return said("there is no {given}: did you mean {near}?", given=name, near=now[near]) if near else ""


def _now() -> dict[str, str]:
    """Return what is typed for an option, by its name; for one that has gone, what has taken its place."""
    options = [option for option in all_options() if option.typed or option.standing]
    typed = {
        one.name: one.flag if one.typed else f"{one.flag}={one.metavar or '|'.join(one.choices)}"
        for one in options
    }
    return typed | {"allow-in-ci": _GONE["allow-update-in-ci"]} | _GONE


def shorten_help(config: pytest.Config) -> None:
    """Have ``pytest --help`` name the page of the ini keys, which it describes with ``-v``."""
    verbose = {"-v", "-vv", "--verbose"} & {*_given(config)}  # pytest parses nothing behind --help
    keys = [option for option in all_options() if option.standing and not option.typed]
    hidden = {option.dest for option in all_options() if not verbose or option not in keys}
    words = said(
        "{count} further settings, for one run with -o npudump_NAME=VALUE: {page}",
        count=len(keys),
        page=_HELP,
    )
    _compat.show_ini_keys_as_one(config, hidden, "npudump_*", words)


def settings_of(config: pytest.Config) -> Settings:
    """Resolve the options of ``config``: command line before ini file before default.

    Raises:
        RequestError: an option or ini key has gone or is none, a key holds a value that is none of its, or
            something that stands for every run accepts.
    """
    # Refuse to accept by settings for runs to come.
    place, flag = next(_standing(config), ("", ""))
    if place:
        raise RequestError(
            said(
                "{place}: every 'pytest' would rewrite the goldens it is to check, and pass: remove it "
                "there, and give {flag} on the command line of one run",
                place=place,
                flag=flag,
            )
        )
    _refuse_unknown(config)
    given = {option.dest: _resolve(option, config) for option in OPTIONS}
    settings = settings_from(given | {_CALIBRATE: config.getoption(_CALIBRATE)})
    more = {option: option.value(_resolve(option, config)) for option in feature_options()}
    unusual = {option.field: it for option, it in more.items() if it != option.value(option.default)}
    return settings._replace(features=unusual)


@contextmanager
def usage_errors(config: pytest.Config) -> Iterator[None]:
    """End the run before its tests for an error of the block, in the language that is asked for."""
    try:
        yield
    except NpudumpError as error:
        from pytest_npudump.language.text import inert  # noqa: PLC0415 - for errors
        from pytest_npudump.language.translation import speaking, spoken  # noqa: PLC0415 - for errors

        language = config.getini("npudump_lang")
        with speaking(language if language in LANGUAGES else AUTO):
            text = inert(spoken(said("npudump: {error}", error=str(error))))
        raise pytest.UsageError(text) from None


def _standing(config: pytest.Config) -> Iterator[tuple[str, str]]:
    """Yield the places at which something that stands accepts, and what is typed in its stead."""
    typed = {option.flag: option.flag for option in OPTIONS if option.typed and not option.standing}
    key, now = "npudump_allow_in_ci", "-o npudump_allow_in_ci=true"
    keys = {flag.removeprefix("--").replace("-", "_"): flag for flag in typed}
    for place, given in _everywhere(config).items():
        words = _all(given)
        line, names = "\n".join(words), {word.partition("=")[0] for word in words}
        yield from ((f"{dest} in {place}", typed[flag]) for dest, flag in keys.items() if f"{dest}=" in line)
        yield from ((f"{flag} in {place}", instead) for flag, instead in typed.items() if flag in names)
        if any(key in word for word in words):  # whichever way -o is written
            yield f"{key} in {place}", now
    # Where a key is absent, pytest 7 answers with an empty list.
    if key not in _compat.overrides(config) and isinstance(config.getini(key), bool):
        yield said("ini key {key}", key=key), now
    for dest, flag in keys.items():
        if dest not in _compat.overrides(config) and _text(config, dest):
            yield said("ini key {key}", key=dest), typed[flag]


def _text(config: pytest.Config, key: str) -> str:
    """Return why a key of the type string is refused; "" where it is not."""
    try:
        return str(config.getini(key) or "")
    except (TypeError, pytest.UsageError) as error:  # TOML has types
        return str(error)


def _refuse_unknown(config: pytest.Config) -> None:
    """Refuse what is no option or key of ours, and keys of what is an option only."""
    for option in OPTIONS:
        if option.typed and not option.standing and option.dest in _compat.overrides(config):
            raise RequestError(
                said("{key} is no key for -o: give the option, {typed}", key=option.dest, typed=option.flag)
            )
    if told := config.getoption(_REFUSED, None):
        raise RequestError(told)
    # What a key that is nobody's was to check would go unchecked.
    for key in _compat.unknown_keys(config, "npudump_"):
        given, now = said("ini key {key}", key=key), _now()
        if near := nearest(key[len("npudump_") :].replace("_", "-").strip().lower(), now):
            instead = now[near] if near in _GONE else f"npudump_{near}".replace("-", "_")
            raise RequestError(said("there is no {given}: did you mean {near}?", given=given, near=instead))
        raise RequestError(said("there is no {given}: see {page}", given=given, page=_HELP))


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
    given = config.getoption(option.dest) if option.typed else None
    if option.typed and not option.standing:
        return given or option.default
    if isinstance(option.default, bool):
        return given or _switch(option, config)
    value = config.getini(option.dest) if given is None else given
    if (choices := _choices(option)) and value not in choices:
        place = said("ini key {key}", key=option.dest) if given is None else option.flag
        raise RequestError(
            said("{place} is {value!r}{hint}", place=place, value=value, hint=hint(str(value), choices))
        )
    return value


def _switch(option: Option, config: pytest.Config) -> bool:
    try:
        return bool(config.getini(option.dest))
    except (TypeError, ValueError, pytest.UsageError) as error:  # the last of pytest 9.2
        raise RequestError(
            said("ini key {key}: {error}, expected true or false", key=option.dest, error=str(error))
        ) from error
