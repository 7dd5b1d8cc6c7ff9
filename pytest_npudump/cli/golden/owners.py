"""The files of goldens, and the tests that a collection finds for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.collection import collect
from pytest_npudump.golden.census import Census, Collection, census
from pytest_npudump.language.translation import spoken
from pytest_npudump.report.verdicts import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.golden.census import Finding


@dataclass(frozen=True, slots=True)
class Stock:
    """What a collection of tests says of the files beside them.

    Attributes:
        census: of the goldens.
        tolerances: the file of rules that runs read; None without one.
        missing: tests that have no golden yet.
    """

    census: Census
    tolerances: Path | None
    missing: tuple[str, ...]


def take_stock(variants: Sequence[str] = ()) -> Stock:
    """Collect the tests of the current folder, and judge the files of their goldens.

    Raises:
        RequestError: something cannot be collected: nothing is judged.
        OSError: a folder cannot be looked at.
    """
    found = collect("pytest_npudump.plugin.golden_owners", "--npudump-owners-to", [])
    goldens = {Path(path): test for path, test in found["goldens"].items()}
    collection = Collection(
        *(Path(found["root"]), Path(found["rootdir"]), goldens),
        *(frozenset(found["files"]), frozenset(found["unclear"])),
    )
    expected = goldens.keys() - {Path(path) for path in found["without"]}
    missing = tuple(test for path, test in goldens.items() if path in expected and not path.exists())
    rules = Path(found["tolerances"]) if found["tolerances"] else None
    return Stock(census(collection, variants), rules, missing)


def lines(findings: Sequence[Finding], heading: str) -> Iterator[str]:
    """Yield a heading and a line for each file; nothing where there are none."""
    if findings:
        yield heading
    for finding in findings:
        why = spoken(finding.why.removeprefix(f"{finding.path}: "))
        yield f"  {shown(finding.path)}: {why}"


def as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as plain JSON data."""
    return [{"path": str(finding.path), "why": finding.why} for finding in findings]
