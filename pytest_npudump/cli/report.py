"""``npudump report``: kept results as a page, and as data of a graph viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import complain, emit
from pytest_npudump.errors import RequestError
from pytest_npudump.language import ENGLISH
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import speaking
from pytest_npudump.report.model_explorer import write_node_data
from pytest_npudump.report.verdicts import shown
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import terms_at
from pytest_npudump.results.session_page import INDEX, session_view, write_page

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Write what was asked for, say where, and return 0 or 2."""
    if arguments.output is None and arguments.node_data is None:
        raise RequestError(_("nothing to write: name a folder for the page (-o DIR), or for --node-data"))
    folder = ResultsFolder(arguments.results)
    results = folder.read()
    terms = terms_at(results.entries, arguments.root, arguments.golden_dir)
    if arguments.output is not None:
        view = session_view(folder, results.entries, terms, results.problems)
        write_page(view, arguments.output / INDEX)
        emit([_("page: {path}").format(path=shown(arguments.output.absolute() / INDEX))])
    if arguments.node_data is not None:
        with speaking(ENGLISH):
            view = session_view(folder, results.entries, terms, results.problems)
        for path in write_node_data(view, arguments.node_data):
            emit([_("node data: {path}").format(path=shown(path.absolute()))])
    complain(results.problems)
    return 2 if results.problems else 0
