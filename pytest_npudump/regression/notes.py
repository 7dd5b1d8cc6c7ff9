"""What CANN does less of than a test's configuration says, and what else a report should know of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.config.acl.acl_json import dump_section, request_warnings
from pytest_npudump.config.acl.installed import rules_version
from pytest_npudump.config.acl.soc import soc_notes

if TYPE_CHECKING:
    from pytest_npudump.regression.case import Case


def notes_of(case: Case) -> tuple[str, ...]:
    """Return the notes on a run that has ended: on its acl.json, by CANN's release and chip, and itself."""
    runtime = case.runtime
    notes = list(runtime.activity.evidence.notes)
    if runtime.config_name == "acl.json":
        section = dump_section(case.request, ".")
        notes += request_warnings(case.request, version=rules_version(), cwd=case.directory)
        notes += soc_notes(section, runtime.producer().get("soc", ""))
    return tuple(dict.fromkeys(notes))
