"""The errors this package raises on purpose: what is wrong, where, what was expected, what to do.

What they say is English, and carries its template and values where people may read it in another language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType


class Said(str):
    """English text that carries its template and values, so that it can be spoken in another language.

    Attributes:
        template: with a placeholder for each value, by name.
        values: of the placeholders; one may be such a text itself.
    """

    __slots__ = ("template", "values")

    template: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        """Return this text with what it carries, so that ``str(error)`` has it too."""
        return self

    def __add__(self, other: str) -> str:
        """Return this text and another, which can be spoken as both can."""
        return joined("", (self, other))

    def __radd__(self, other: str) -> str:
        """Return another text and this, which can be spoken as both can."""
        return joined("", (other, self))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the values as they stand in the text: whatever they were, they can be pickled then."""
        return (_said, self.parts())

    def parts(self) -> tuple[str, dict[str, str]]:
        """Return the template without formats, and its values as they stand in the text."""
        from string import Formatter  # noqa: PLC0415 - an import that most commands do without

        template, parts = "", {}
        for literal, name, form, conversion in Formatter().parse(self.template):
            template += literal.replace("{", "{{").replace("}", "}}")
            if name is None:
                continue
            template += f"{{{name}}}"
            value = self.values[name]
            if conversion is not None:
                value = Formatter().convert_field(value, conversion)
            parts[name] = str(value) if not form else format(value, form)
        return template, parts

    def mapped(self, function: Callable[[str], str]) -> str:
        """Return this text with a change of its values; without template where the text changes otherwise."""
        template, parts = self.parts()
        plain = function(str.__str__(self))
        text = _said(template, {name: mapped(part, function) for name, part in parts.items()})
        return text if text == plain else plain


def said(template: str, /, **values: object) -> str:
    """Return a message in English that can be spoken in another language.

    Args:
        template: the message, with placeholders by name.
        values: what fills them; an error as ``str(error)``, so that it is not kept alive.
    """
    text = Said(template.format_map(values))
    text.template, text.values = template, values
    return text


def _said(template: str, values: Mapping[str, str]) -> str:
    return said(template, **values)


def joined(separator: str, texts: Iterable[str]) -> str:
    """Return texts with a separator between them, as one that can be spoken where one of them can."""
    every = [*texts] if separator else [*filter(None, texts)]
    if len(every) == 1:
        return every[0]
    if not any(isinstance(text, Said) for text in every):
        return separator.join(every)
    template = (
        separator.replace("{", "{{").replace("}", "}}").join(f"{{text{at}}}" for at in range(len(every)))
    )
    return said(template, **{f"text{at}": text for at, text in enumerate(every)})


def mapped(text: str, function: Callable[[str], str]) -> str:
    """Apply a function to a text, which stays translatable where only values change."""
    return text.mapped(function) if isinstance(text, Said) else function(text)


class NpudumpError(Exception):
    """Base of every error a user is meant to read."""


class RequestError(NpudumpError):
    """A marker, option or tolerance rule asks for something impossible."""


class ConfigError(NpudumpError):
    """A dump configuration that CANN would refuse, or accept and ignore."""


class RuntimeUnavailableError(NpudumpError):
    """The runtime that was chosen cannot work on this machine."""


class DeviceError(NpudumpError):
    """A device that cannot be locked for a test, or more devices than there are."""


class CapturedGraphError(NpudumpError):
    """A captured graph was about to be replayed in a way that CANN does not survive."""


class MissingExtraError(RuntimeUnavailableError):
    """An optional dependency is not installed; the message names the extra to install."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            said(
                "{what} needs the package {package!r}, which is not installed: "
                "pip install 'pytest-npudump[{extra}]'",
                what=what,
                package=package,
                extra=extra,
            )
        )

    @classmethod
    def imported(cls, what: str, package: str, extra: str) -> ModuleType:
        """Return the module of an optional dependency.

        Raises:
            MissingExtraError: it is not installed.
        """
        try:
            return import_module(package)
        except ImportError as error:
            raise cls(what, package, extra) from error


class DumpError(NpudumpError):
    """A dump that cannot be read, or holds nothing."""


class EmptyDumpError(DumpError):
    """A directory that holds no dump file."""


class FormatError(DumpError):
    """A file whose bytes are not what its format demands.

    Attributes:
        path: the file.
        offset: the byte at which reading failed, or None where no byte is to blame.
        reason: the message without the place.
    """

    def __init__(self, path: Path | str, reason: str, *, offset: int | None = None) -> None:
        place = str(path) if offset is None else said("{path}, byte {offset}", path=path, offset=offset)
        super().__init__(said("{place}: {reason}", place=place, reason=reason))
        self.path = str(path)
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling, as when a worker process hands the error back."""
        return (_format_error, (self.path, self.reason, self.offset))


def _format_error(path: str, reason: str, offset: int | None) -> FormatError:
    return FormatError(path, reason, offset=offset)


class OperatorMismatchError(NpudumpError, AssertionError):
    """An operator that does not give what its reference does, or was not dumped."""


class ModuleMismatchError(NpudumpError, AssertionError):
    """Modules that are not the same in two runs, or that a device computes wrongly."""


class GoldenError(NpudumpError):
    """A golden file that cannot be read, written or trusted."""


class MisplacedTensorsError(GoldenError):
    """A golden that counts, whose tensors are read from beside their place."""


class StoreError(GoldenError):
    """A stored tensor that is neither cached nor can be had from the store, or is not what its name says."""


class GoldenMissingError(GoldenError):
    """The test has no golden file yet."""


def in_one_line(words: object) -> str:
    """Join the lines of an error's text into one."""
    return " ".join(str(words).split())


def hint(value: str, choices: Iterable[str]) -> str:
    """Return the end of a refusal of an unknown choice: the nearest one, else all."""
    known = [*choices]
    if near := nearest(value, known):
        return said(": did you mean {near}?", near=near)
    return said(", expected one of {known}", known=", ".join(known))


def nearest(value: str, names: Iterable[str], least: float = 0.6) -> str:
    """Return the name that a misspelt or abbreviated one is likely meant for; "" where none is near.

    Args:
        value: as it was written.
        names: those that there are; the ones that begin with it go before others, and of several that are
            none too like it the last one.
        least: how alike the two are at least, from 0 to 1.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - for errors

    known = [*names]
    begun = [name for name in known if value[1:] and name.startswith(value)]
    swapped = [name for name in known if value[2:] and sorted(name) == sorted(value)]
    alike = get_close_matches(value[:_LONGEST], begun or known, 1, least)
    return (swapped or alike or begun[-1:] or [""])[0]


_LONGEST = 80
"""Characters of a name that are looked at: the time grows with the square."""
