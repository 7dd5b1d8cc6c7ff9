"""Parsers of arguments that speak the language asked for, argparse's own words included."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

from pytest_npudump.cli.common.output import encodable, screen
from pytest_npudump.errors import hint, nearest, said
from pytest_npudump.language import AUTO, LANGUAGES
from pytest_npudump.language.text import hung, wrapped
from pytest_npudump.language.translation import gettext, is_english, ngettext, spoken

_OPTION = "--lang"


class SpokenFormatter(argparse.HelpFormatter):
    """Translates a help where it is shown; in English it is argparse's."""

    def start_section(self, heading: str | None) -> None:
        """Begin a section with its title."""
        super().start_section(heading and gettext(heading))

    def add_text(self, text: str | None) -> None:
        """Add a paragraph."""
        super().add_text(text and gettext(text))

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help and gettext(action.help)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return super()._split_lines(text, width) if is_english() else wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if is_english():
            return super()._fill_text(text, width, indent)
        return "\n".join(f"{indent}{line}" for line in wrapped(text, width - len(indent)))


class SpokenParser(argparse.ArgumentParser):
    """Takes ``--lang`` like ``--help``, everywhere.

    Attributes:
        lang: the action of that option, which no help shows that is not told to.
        renamed: commands and options of an earlier release, by what they are called now.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": SpokenFormatter, "allow_abbrev": False, **kwargs})
        self.renamed: Mapping[str, str] = {}
        self.lang = self.add_argument(
            _OPTION, type=_language, default=argparse.SUPPRESS, metavar="LANG", help=argparse.SUPPRESS
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse words, unless one is a name of an earlier release: that is refused with the new one."""
        verbs = self._subparsers._group_actions[0].choices if self._subparsers else None  # noqa: SLF001 - argparse has no other way
        for word in args or ():
            name = word.partition("=")[0]
            if name in self.renamed and (verbs is None or not name.startswith("-")):
                now = self.renamed[name]
                words = gettext("{old} is called {new} now") if now else gettext("{old} has been removed")
                self.error(words.format(old=f"{self.prog} {name}", new=now))
            if verbs is not None and word in verbs:
                break
        if verbs is not None and not (sys.argv[1:] if args is None else args):
            self.print_help(sys.stderr)
            self.exit(2)
        found, left = super().parse_known_args(args, namespace)
        if verbs is None and left:  # else npudump itself refuses them, without the options of the command
            self.error(gettext("unrecognized arguments: %s") % " ".join(left) + self._near(left[0]))
        return found, left

    def _near(self, word: str) -> str:
        """Suggest the option that is nearly a refused word; "" for none."""
        near = nearest(word.partition("=")[0], self._option_string_actions, 0.8)
        return spoken(said(": did you mean {near}?", near=near)) if near and word.startswith("--") else ""

    def error(self, message: str) -> NoReturn:
        """End with what is wrong with a call; Python 3.10 begins in English, whatever the rest is in."""
        if found := re.fullmatch(r"argument (.+?): (.*)", message, re.DOTALL):
            name, reason = found.groups()
            words = gettext("argument %(argument_name)s: %(message)s")
            message = words % {"argument_name": name, "message": reason}
        self.print_usage(sys.stderr)
        words = gettext("%(prog)s: error: %(message)s\n") % {"prog": self.prog, "message": message}
        self.exit(2, "".join(f"{line}\n" for line in hung(words.rstrip(), screen(sys.stderr))))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown choice with the nearest one, in the same words on every version of Python."""
        if action.choices is not None and value not in action.choices:
            told = said("there is no {value}{hint}", value=value, hint=hint(str(value), action.choices))
            raise argparse.ArgumentError(action, spoken(told))

    def _print_message(self, message: str, file: Any = None) -> None:
        stream: TextIO | None = file or sys.stderr
        super()._print_message(encodable(message, stream) if stream else message, stream)


def asked_language(words: Iterable[str]) -> str:
    """Return the value of ``--lang`` in a command line before that is parsed.

    A language that there is not counts as none: the parser knows better.
    """
    language, before = AUTO, ""
    for word in words:
        name, _, value = word.partition("=")
        if before == _OPTION:
            language = word
        elif name == _OPTION and value:
            language = value
        before = word
    return language if language in LANGUAGES else AUTO


@contextmanager
def spoken_argparse() -> Iterator[None]:
    """Have argparse take its own words from the catalogue: it looks for them in its module.

    In English too: its own way looks for files, for three words of each parser.
    """
    names: dict[str, Any] = vars(argparse)
    before: dict[str, Any] = {name: names[name] for name in ("_", "ngettext") if name in names}
    names.update({name: gettext if name == "_" else ngettext for name in before})
    try:
        yield
    finally:
        names.update(before)


def _language(text: str) -> str:
    if text not in LANGUAGES:
        raise argparse.ArgumentTypeError(
            gettext("expected {languages}").format(languages=", ".join(LANGUAGES))
        )
    return text
