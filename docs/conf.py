"""Sphinx: the site of these pages. ``sphinx-build -W --keep-going -b html docs OUT``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from pytest_npudump import __version__

if TYPE_CHECKING:
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


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", keep_numbers_together)
