"""Sphinx: the site of these pages. ``sphinx-build -W --keep-going -b html docs OUT``."""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from pytest_npudump import __version__
from pytest_npudump.cli import COMMANDS
from pytest_npudump.cli.arguments import VERBS
from pytest_npudump.compare.tolerances.presets import DESCRIPTIONS, bound
from pytest_npudump.plugin.marks import ARGUMENTS
from pytest_npudump.plugin.options import all_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx


project = "pytest-npudump"
author = "the authors of pytest-npudump"
copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
nitpicky = False  # annotations name types of numpy and pytest, whose indexes would have to be fetched

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autodoc_class_signature = "separated"  # nobody but the plugin makes these
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": False, "exclude-members": "__init__, __new__"}
napoleon_use_ivar = True  # attributes are described once, in the class
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "pytest-npudump"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}

LONGEST_NUMBERS = 16
"""Characters of a table's cell that stay on one line: ``6e-3, 1.5e-2`` would break after a ``-``."""


def keep_numbers_together(_app: Sphinx, doctree: nodes.document) -> None:
    """Give cells of numbers the class that ``wide.css`` keeps on one line."""
    for cell in doctree.findall(nodes.entry):
        text = cell.astext()
        if len(text) <= LONGEST_NUMBERS and any(map(str.isdigit, text)):
            cell["classes"].append("numbers")


TYPED = (
    r"[\w/@-]*\.(?:gitattributes|html|json|md|npy|npz|pbtxt|svg|txt|yaml)\b"
    r"|--?[a-z][\w-]*(?:=\w+)?|=[a-z]+|pytest --[\w -]*\w|\w+://[\w/]+"
    r"|'[\w-]+'|\[?\{'[^}]*\}\]?|\w+\[\d+\]|\w+_\w+(?:\.\w+\(\))?"
)
"""What a help writes as it is typed, beside its own values: options, keys, files, Python."""


class Row(NamedTuple):
    """An option or argument: as it is typed, what its help says, and its value's names."""

    typed: str
    words: str
    choices: Iterable[str] = ()


class Help(SphinxDirective):
    """What ``npudump COMMAND --help``, ``pytest --help -v`` or ``pytest --markers`` prints of this package.

    That command is the block's content: a page has the texts from the code alone, and where it is not built
    it says what to type.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a paragraph, if there is a description, and a list of definitions."""
        program, *words = shlex.split("".join(self.content))
        description = ""
        if program == "npudump":
            description, rows = help_of_command(words[:-1])
        elif "--markers" in words:
            rows = [Row(names, text) for names, text in ARGUMENTS.items()]
        else:
            rows = options_of_pytest()
        values = {name for row in rows for name in re.findall(r"\b[A-Z]{2,}\b", row.typed)}
        found: list[nodes.Node] = (
            [nodes.paragraph("", "", *inline(description, values))] if description else []
        )
        items = nodes.definition_list()
        for row in rows:
            term = nodes.term("", "", nodes.literal(text=row.typed))
            told = nodes.paragraph("", "", *inline(row.words, {*values, *row.choices}))
            items += nodes.definition_list_item("", term, nodes.definition("", told))
        return [*found, items]


class Presets(SphinxDirective):
    """A table of presets: rtol and atol of max and min, or rtol of the statistics that are its arguments.

    The block's content is the module that has them, for readers of the page where it is not built.
    """

    has_content = True
    optional_arguments = 3

    def run(self) -> list[nodes.Node]:
        """Return the table, of all presets or of those with bounds of their own for these statistics."""
        dtypes, words = ("float32", "float16", "bfloat16"), ", ".join(self.arguments)
        names = ("same", "other", "hf32") if self.arguments else DESCRIPTIONS
        head = [f"{dtype}: {words}" for dtype in dtypes] if words else ["after", *dtypes]
        lines = [["preset", *head], ["---"] * (len(head) + 1)]
        for name in names:
            found = [
                [bound(name, dtype, statistic)[0] for statistic in self.arguments]
                if words
                else bound(name, dtype, "max")
                for dtype in dtypes
            ]
            told = [] if words else [DESCRIPTIONS[name]]
            lines.append([f"`{name}`", *told, *(", ".join(map(shortly, numbers)) for numbers in found)])
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def shortly(number: float) -> str:
    """Return ``2^-20``, ``1.2e-2`` or ``0.14``."""
    mantissa, exponent = math.frexp(number)
    if mantissa == 0.5 and number < 1 / 64:  # noqa: PLR2004 - a power of two
        return f"2^{exponent - 1}"
    return f"{number:g}" if not number or number >= 0.05 else re.sub(r"\.?0*e-0?", "e-", f"{number:.2e}")  # noqa: PLR2004


def inline(text: str, names: Iterable[str]) -> Iterator[nodes.Node]:
    """Yield a text of the code, in which names and what is typed are literal."""
    literal = "|".join([TYPED, *(rf"{re.escape(name)}(?![\w-])" for name in names)])
    for number, part in enumerate(re.split(rf"(?<![\w-])({literal})", text)):
        if part:
            yield nodes.literal(text=part) if number % 2 else nodes.Text(part)


def options_of_pytest() -> list[Row]:
    """Return the options of the command line, then those that are keys alone."""
    rows = []
    for option in sorted(all_options(), key=lambda option: not option.typed):
        name, value = option.flag.removeprefix("-o "), option.metavar or "|".join(option.choices)
        default = f"; default: {option.default}" if option.default and "default" not in option.help else ""
        rows.append(Row(f"{name}={value}" if value else name, option.help + default, option.choices))
    return rows


def help_of_command(words: list[str]) -> tuple[str, list[Row]]:
    """Return the description and the arguments of a command, or the commands that there are."""
    if not words:
        return "", [Row(name, summary) for name, summary in COMMANDS.items()]
    verb = VERBS[words[0]]
    for word in words[1:]:
        verb = verb.verbs[word]
    rows = []
    for names, given in verb.arguments:
        choices = given.get("choices", ())
        name = f"{{{','.join(choices)}}}" if choices else names[-1].lstrip("-").upper()
        form = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}.get(given.get("nargs", ""), "{}")
        typed = [", ".join(names)] if names[0].startswith("-") else []
        if given.get("action") != "store_true":
            typed.append(form.format(given.get("metavar", name)))
        rows.append(Row(" ".join(typed), given["help"].replace("%%", "%"), choices))
    text = (verb.description or COMMANDS[words[0]]).rstrip(".")
    return f"{text[0].upper()}{text[1:]}.", rows


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_directive("help", Help)
    app.add_directive("presets", Presets)
    app.connect("doctree-read", keep_numbers_together)
