"""GitLab's code-quality report: an entry a failing test, shown in the merge request and beside the line.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pytest_npudump.language.excerpt import cut
from pytest_npudump.report.ci.judged import sources_of
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.report.ci.judged import Judged

_CHECK = "pytest-npudump"
_WIDTH = 1000


def code_quality(tests: Sequence[Judged], before: bytes = b"") -> bytes:
    """Return the report of a job of several sessions, sorted by place.

    Args:
        tests: of this session.
        before: the report that earlier sessions of the job left: what it says of other files is kept, and
            anything that is no such report is replaced.
    """
    files = {test.file for test in tests}
    kept = [entry for entry in _entries(before) if entry["location"]["path"] not in files]
    entries = kept + [_entry(test) for test in tests if not test.good]
    entries.sort(key=lambda entry: (entry["location"]["path"], entry["location"]["lines"]["begin"]))
    return json.dumps(entries, indent=1).encode() + b"\n"


def _entry(test: Judged) -> dict[str, Any]:
    source = sources_of(test.result)
    what = str(test.result.get("headline") or f"npudump: {test.status}")
    # Without numbers: the same fault in the next run is the same entry to GitLab.
    name = "\n".join((test.test, test.status, str(test.result.get("first") or "")))
    return {
        "description": plain(cut(f"{test.test}: {what}" + (f"; source: {source}" if source else ""), _WIDTH)),
        "check_name": _CHECK,
        "fingerprint": sha256(name.encode("utf-8", "surrogatepass")).hexdigest(),
        "severity": "major",
        "location": {"path": test.file, "lines": {"begin": test.line}},
    }


def _entries(text: bytes) -> list[dict[str, Any]]:
    try:
        entries = json.loads(text or b"[]")
        ours = [entry for entry in entries if entry["check_name"] == _CHECK]
        return [entry for entry in ours if entry["location"]["path"] and entry["location"]["lines"]["begin"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
