"""The text of a CI job that compares with the goldens, for the service that the repository uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump import __version__
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
    env:
{wheel}    steps:
      - uses: actions/checkout@v4
        with:
          lfs: true
{python}      - run: pip install "${{NPUDUMP_WHEEL}}{extra}"
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
{tags}  variables:
{wheel}  script:
    - pip install "${{NPUDUMP_WHEEL}}{extra}"
    - npudump golden verify
    - pytest {options}--npudump-dump-dir=npudump-dumps --npudump-results=npudump-results
  artifacts:
    when: on_failure
    paths: [npudump-dumps, npudump-results]
"""
_NPU = mark('which label the runners with an NPU have: the job asks for "npu"')
_WHEEL = """\
{indent}# No package index has a release of pytest-npudump. Make a wheel of a checkout, and add it here:
{indent}# pip wheel --no-deps --wheel-dir wheels PATH_OF_THE_CHECKOUT
{indent}NPUDUMP_WHEEL: {wheel}
"""
_SOURCE = mark(
    "where CI installs pytest-npudump from, as no package index has a release: the job takes {wheel}, which "
    "you add; and what else your tests need"
)
_EMULATED = mark("whether CI has an NPU: the job runs on the emulator; on an NPU add --npudump-require-npu")


def ci_job(found: Survey) -> tuple[Path, str, tuple[str, ...]]:
    """Return the job's file, its text, and what was not known or is left to do."""
    device = bool(found.cann) and "acl" in found.packages
    options = "--npudump-require-npu " if device else "--npudump-runtime=emulator "
    extra = "" if device else "[emulator]"
    told = {"extra": extra, "options": options}
    wheel = f"wheels/pytest_npudump-{__version__}-py3-none-any.whl"
    unknown = (_(_NPU if device else _EMULATED), _(_SOURCE).format(wheel=wheel))
    if (found.root / ".gitlab-ci.yml").is_file() and not (found.root / ".github").is_dir():
        path = found.root / "npudump.gitlab-ci.yml"
        tags = "  tags: [npu]\n" if device else "  image: python:3.11\n"
        include = _("left to you: add 'include: npudump.gitlab-ci.yml' to .gitlab-ci.yml")
        return (
            path,
            _GITLAB.format(tags=tags, wheel=_WHEEL.format(indent=" " * 4, wheel=wheel), **told),
            (*unknown, include),
        )
    runner = "[self-hosted, npu]" if device else "ubuntu-latest"
    python = "" if device else _PYTHON
    lines = _WHEEL.format(indent=" " * 6, wheel=wheel)
    text = _GITHUB.format(runner=runner, python=python, wheel=lines, **told)
    return found.root / ".github" / "workflows" / "npudump.yml", text, unknown
