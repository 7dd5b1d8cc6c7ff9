"""The text of a CI job that compares with the goldens, for the service that the repository uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.cli.init.survey import Survey

_GITHUB = """\
name: npudump
on: [push, pull_request]
permissions:
  contents: read
jobs:
  npudump:
    runs-on: {runner}
    steps:
      - uses: actions/checkout@v4
        with:
          lfs: true
{python}      - run: pip install "pytest-npudump{extra}"
      - run: npudump golden verify
      - run: pytest {options}--npudump-dump-dir=npudump-dumps --npudump-results=npudump-results
      - uses: actions/upload-artifact@v4
        if: failure()
        with:
          name: npudump
          path: |
            npudump-dumps
            npudump-results
"""
_PYTHON = """\
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
"""
_GITLAB = """\
npudump:
{tags}  script:
    - pip install "pytest-npudump{extra}"
    - npudump golden verify
    - pytest {options}--npudump-dump-dir=npudump-dumps --npudump-results=npudump-results
  artifacts:
    when: on_failure
    paths: [npudump-dumps, npudump-results]
"""
_NPU = mark('which label the runners with an NPU have: the job asks for "npu"')
_SOURCE = mark(
    "where CI installs pytest-npudump from, and what else your tests need: the job asks pip for "
    "pytest-npudump alone"
)
_EMULATED = mark("whether CI has an NPU: the job runs on the emulator; on an NPU add --npudump-require-npu")


def ci_job(found: Survey) -> tuple[Path, str, tuple[str, ...]]:
    """Return the job's file, its text, and what was not known or is left to do."""
    device = bool(found.cann) and "acl" in found.packages
    options = "--npudump-require-npu " if device else "--npudump-runtime=emulator "
    extra = "" if device else "[emulator]"
    told = {"extra": extra, "options": options}
    unknown = (_(_NPU if device else _EMULATED), _(_SOURCE))
    if (found.root / ".gitlab-ci.yml").is_file() and not (found.root / ".github").is_dir():
        path = found.root / "npudump.gitlab-ci.yml"
        tags = "  tags: [npu]\n" if device else "  image: python:3.11\n"
        include = _("left to you: add 'include: npudump.gitlab-ci.yml' to .gitlab-ci.yml")
        return path, _GITLAB.format(tags=tags, **told), (*unknown, include)
    runner = "[self-hosted, npu]" if device else "ubuntu-latest"
    python = "" if device else _PYTHON
    text = _GITHUB.format(runner=runner, python=python, **told)
    return found.root / ".github" / "workflows" / "npudump.yml", text, unknown
