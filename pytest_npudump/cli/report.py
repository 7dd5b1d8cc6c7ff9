"""``npudump report``: kept results as a page, and whatever else the table of media offers."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from pytest_npudump.cli.common.output import complain, emit
from pytest_npudump.cli.common.project import last_results
from pytest_npudump.language import ENGLISH
from pytest_npudump.language.translation import gettext as _, speaking
from pytest_npudump.report.media import MEDIA
from pytest_npudump.report.verdicts import shown
from pytest_npudump.results.rejudge import terms_at
from pytest_npudump.results.session_view import session_view


def run(arguments: argparse.Namespace) -> int:
    """Write the reports asked for, by default the page beside the results; 0 or 2."""
    asked = [(medium, target) for medium in MEDIA if (target := getattr(arguments, medium.dest)) is not None]
    folder = last_results(arguments.results)
    beside = folder.path.absolute().parent
    asked = asked or [(one, beside / one.option.name) for one in MEDIA if one.option is not None]
    results = folder.read()
    terms = terms_at(results.entries, arguments.root, arguments.golden_dir)
    for medium, target in asked:
        with nullcontext() if medium.spoken else speaking(ENGLISH):
            view = session_view(folder, results.entries, terms, results.problems)
            written = medium.write(view, target)
        for path in written:
            emit([_(medium.written).format(path=shown(path.absolute()))])
    complain(view.problems)
    return 2 if results.problems else 0
