"""``npudump init``: what a repository needs for its first test, written beside what is there."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from pytest_npudump import __version__
from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.first_test import MODELS, Survey, first_test, survey, values_for, with_keys
from pytest_npudump.errors import RequestError
from pytest_npudump.language.text import padded, typed
from pytest_npudump.storage.atomic import write_whole


def run(arguments: argparse.Namespace) -> int:
    """Write it, and report what was found, written and unknown; 0.

    Raises:
        RequestError: neither a folder nor a model is there, or a file cannot be read or written.
    """
    place: Path = arguments.place
    model = place if place.is_file() and place.suffix in MODELS else None
    root = place.absolute() if model is None else Path.cwd()
    if not root.is_dir():
        raise RequestError(f"{place}: no such folder or model: name a repository's folder or a .onnx file")
    try:
        found = survey(root, model)
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{root}: cannot be looked at: {error}") from error
    planned = additions(found)
    if not arguments.dry_run:
        for one in planned:
            one.write()
    emit(_lines(found, planned, dry=arguments.dry_run))
    return 0


def _lines(found: Survey, planned: Sequence[Addition], *, dry: bool) -> Iterator[str]:
    yield "found:"
    yield f"  CANN:     {found.cann or 'none'}"
    yield f"  packages: {', '.join(sorted(found.packages)) or 'none'}"
    shown = ", ".join(map(str, found.models[:3])) + (", ..." if len(found.models) > 3 else "")  # noqa: PLR2004
    yield f"  models:   {shown or 'none'}"
    yield "would be written (--dry-run):" if dry else "written:"
    for one in planned:
        if one.before is None or one.lines:
            yield f"  {padded(one.word + ':', 10)} {one.path.relative_to(found.root)}"
            yield from (f"             {line}" for line in one.lines if one.before is not None)
    if kept := [str(one.path.relative_to(found.root)) for one in planned if one.before and not one.lines]:
        yield f"  as it is:  {', '.join(kept)}"
    unknown = [words for one in planned for words in one.unknown]
    if not found.all_seen:
        unknown.append("whether there are more models: the repository has too many files to look at all")
    if not found.has_git:
        unknown.append("where the repository's root is: there is no .git here (then: npudump golden init)")
    to_do = [words for words in unknown if words.startswith("# ")]
    unknown = [words for words in unknown if words not in to_do]
    if unknown:
        yield "not known:"
        yield from (f"  {words}" for words in unknown)
    yield "next:"
    if not found.root.samefile(Path.cwd()):
        yield f"  {typed('cd', found.root)}"
    if (
        any(one.path == found.test and not one.after for one in planned)
        and "onnxruntime" not in found.packages
    ):
        yield '  pip install "pytest-npudump[emulator]" && npudump init  # writes a test'
    if any(one.path == found.test and one.after for one in planned):
        test = found.test.relative_to(found.root)
        yield from (f"  {words}" for words in to_do)
        yield f"  {typed('pytest', '--npudump-update-golden', test)}"
        yield f"  {typed('pytest', test)}"
    if any((folder / ".git").exists() for folder in (found.root, *found.root.parents)):
        yield from (f"  {line}" for line in DRIVER)


_ATTRIBUTES = ".gitattributes"
DRIVER = (
    'git config merge.npudump.name "npudump golden"',
    'git config merge.npudump.driver "npudump golden merge %O %A %B %P"',
)
"""Commands that each clone needs besides, since git takes none from a repository."""


def with_goldens(text: str, golden_dir: str = "golden", *, lfs: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the text of a ``.gitattributes`` with what it lacks, and the lines that were added.

    Args:
        text: as it is; "" for a new file.
        golden_dir: the folder of goldens, relative to the repository's root.
        lfs: whether tensors are kept by Git LFS; else that line is there as a comment.
    """
    added = tuple(_missing(text, golden_dir, lfs=lfs))
    if not added:
        return text, ()
    gap = "" if not text or text.endswith("\n") else "\n"
    return text + gap + "".join(f"{line}\n" for line in added), added


def _missing(text: str, golden_dir: str, *, lfs: bool) -> Iterator[str]:
    yaml, tensors = _pattern(golden_dir, "*.yaml"), _pattern(golden_dir, "*.safetensors")
    lines = [line.strip() for line in text.splitlines()]
    if not _told(lines, yaml):
        yield f"{yaml} text eol=lf merge=npudump"
    large = f"{tensors} filter=lfs diff=lfs merge=lfs -text"
    of_tensors = _told(lines, tensors)
    if any("filter=lfs" in words.split() for words in of_tensors):
        return
    if lfs:
        yield large
    elif not of_tensors and f"# {large}" not in text:
        yield f"{tensors} binary"
        yield f"# {large}"


def _told(lines: Sequence[str], pattern: str) -> list[str]:
    """Return the attributes of the lines that have a pattern."""
    return [line[len(pattern) :] for line in lines if re.match(rf"{re.escape(pattern)}(?:\s|$)", line)]


def _pattern(folder: str, name: str) -> str:
    """Return git's pattern for the files of a name in a folder, whatever characters that has."""
    own = "" if folder == "." else re.sub(r"([\\*?\[\]!#])", r"\\\1", folder) + "/"
    pattern = f"{own}**/{name}"
    if not re.search(r'[\s"]', pattern):
        return pattern
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class Addition:
    """One file.

    Attributes:
        path: the file.
        before: its text; None where there is none.
        after: its text with what is added; as before where nothing is.
        lines: what is added to a file that is there.
        unknown: what was not known, or is left to do, in words.
    """

    path: Path
    before: str | None
    after: str
    lines: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """Word for the change of the file: ``new``, ``added to`` or ``as it is``."""
        if self.before is None:
            return "new"
        return "as it is" if self.before == self.after else "added to"

    def write(self) -> None:
        """Write it, where anything is added, and nobody has written it since it was read.

        Raises:
            RequestError: it is another file meanwhile, or cannot be written; it is as it was.
        """
        if self.before == self.after:
            return
        try:
            if read(self.path) != self.before:
                raise RequestError(f"{self.path}: was written meanwhile: it is as it is; run this again")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, [self.after.encode()])
        except OSError as error:
            raise RequestError(f"{self.path}: cannot be written: {error.strerror or error}") from error


def read(path: Path) -> str | None:
    """Return the text of a file, line ends as they are; None where there is none.

    Raises:
        RequestError: it cannot be read as text, or is a symbolic link, which writing would replace.
    """
    if path.is_symlink():
        raise RequestError(f"{path}: is a symbolic link: put a file in its place, and run this again")
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: cannot be read: {error}") from error


def git_attributes(root: Path, golden_dir: str = "golden", *, lfs: bool = False) -> Addition:
    """Return the additions to ``.gitattributes``."""
    path = root / _ATTRIBUTES
    before = read(path)
    after, lines = with_goldens(before or "", golden_dir, lfs=lfs)
    return Addition(path, before, after, lines)


def additions(found: Survey) -> list[Addition]:
    """Return the additions to a repository."""
    return [
        _configuration(found),
        _new(found.test, *first_test(found)),
        git_attributes(found.root, found.golden_dir),
        _new(*ci_job(found)),
    ]


def _configuration(found: Survey) -> Addition:
    path, keys = found.configuration, values_for(found.configuration, found.section)
    before = read(path)
    if not found.section:
        told = ", ".join(f"{name} = {value}" for name, value in keys.items())
        left = "left to you: pytest's keys in {path} stand in no section of their own, add {keys}"
        return Addition(path, before, before or "", unknown=(left.format(path=path.name, keys=told),))
    after, lines = with_keys(before or "", found.section, keys)
    left = "left to you: add pytest-npudump to required_plugins in {path}, which names other plugins"
    return Addition(path, before, after, lines, () if found.requires else (left.format(path=path.name),))


def _new(path: Path, text: str, unknown: tuple[str, ...]) -> Addition:
    if (before := read(path)) is not None:
        return Addition(path, before, before)
    return Addition(path, None if text else "", text, unknown=unknown)


_GITHUB = """\
name: npudump
on: [push, pull_request]
permissions:
  contents: read
jobs:
  npudump:
    runs-on: {runner}
{origin}    steps:
      - uses: actions/checkout@v4
        with:
          lfs: true
{python}      - run: pip install {what}
      - run: npudump golden status --no-collect
      - run: pytest {options}--npudump-output=npudump-output
      - uses: actions/upload-artifact@v4
        if: failure()
        with:
          name: npudump
          path: npudump-output
"""
_PYTHON = """\
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
"""
_GITLAB = """\
npudump:
{tags}{origin}  script:
    - pip install {what}
    - npudump golden status --no-collect
    - pytest {options}--npudump-output=npudump-output
  artifacts:
    when: on_failure
    paths: [npudump-output]
"""
_NPU = 'which label the runners with an NPU have: the job asks for "npu"'
_WHEEL = """\
{outer}{key}:
{outer}  # No package index has a release of pytest-npudump. Make a wheel of a checkout, and add it here:
{outer}  # pip wheel --no-deps --wheel-dir wheels PATH_OF_THE_CHECKOUT
{outer}  NPUDUMP_WHEEL: {wheel}
"""
_SOURCE = (
    "where CI installs pytest-npudump from, as no package index has a release: the job takes {wheel}, which "
    "you add"
)
_NEEDS = "what else your tests need: there is no requirements.txt, nor a project in pyproject.toml"
_EMULATED = "whether CI has an NPU: the job runs on the emulator; on an NPU set its --npudump-runtime to npu"


def ci_job(found: Survey) -> tuple[Path, str, tuple[str, ...]]:
    """Return the job's file, its text, and what was not known or is left to do."""
    device = bool(found.cann) and "acl" in found.packages
    gitlab = (found.root / ".gitlab-ci.yml").is_file() and not (found.root / ".github").is_dir()
    extra = "" if device else "[emulator]"
    wheel = f"wheels/pytest_npudump-{__version__}-py3-none-any.whl"
    unknown = [_NPU if device else _EMULATED]
    revision, needs = _installed_revision(), _needs(found.root)
    if revision:
        what, origin = f'"pytest-npudump{extra} @ {revision}"', ""
    else:
        outer, key = ("  ", "variables") if gitlab else ("    ", "env")
        what, origin = f'"${{NPUDUMP_WHEEL}}{extra}"', _WHEEL.format(outer=outer, key=key, wheel=wheel)
        unknown.append(_SOURCE.format(wheel=wheel))
    if not needs:
        unknown.append(_NEEDS)
    told = {
        "what": what + needs,
        "origin": origin,
        "options": "--npudump-runtime=npu " if device else "--npudump-runtime=emulator ",
    }
    if gitlab:
        tags = "  tags: [npu]\n" if device else "  image: python:3.11\n"
        unknown.append("left to you: add 'include: npudump.gitlab-ci.yml' to .gitlab-ci.yml")
        return found.root / "npudump.gitlab-ci.yml", _GITLAB.format(tags=tags, **told), tuple(unknown)
    runner = "[self-hosted, npu]" if device else "ubuntu-latest"
    text = _GITHUB.format(runner=runner, python="" if device else _PYTHON, **told)
    return found.root / ".github" / "workflows" / "npudump.yml", text, tuple(unknown)


def _installed_revision() -> str:
    """Return pip's source of the installed revision (PEP 610); "" where it was none."""
    try:
        told = json.loads(distribution("pytest-npudump").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return ""
    vcs = told.get("vcs_info", {})
    return f"{vcs['vcs']}+{told['url']}@{vcs['commit_id']}" if vcs else ""


def _needs(root: Path) -> str:
    """Return the arguments of pip for what a repository's tests need."""
    if (root / "requirements.txt").is_file():
        return " -r requirements.txt"
    project = root / "pyproject.toml"
    return " -e ." if project.is_file() and re.search(r"(?m)^\[project\]", project.read_text("utf-8")) else ""
