"""Runs that differ from their goldens and wait for a decision, and what stands in the way of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import seen_by
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import layer_of
from pytest_npudump.errors import GoldenError, NpudumpError
from pytest_npudump.golden.pair import KEY, tensors_path
from pytest_npudump.golden.replaceable import stands_in
from pytest_npudump.golden.store import is_there
from pytest_npudump.language.translation import said
from pytest_npudump.report.verdicts import excess, worst
from pytest_npudump.results.entry import ResultsError
from pytest_npudump.results.provenance import file_digest
from pytest_npudump.results.rejudge import GOOD, read_record, rejudge, run_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.golden.objects.tensor_store import TensorStore
    from pytest_npudump.golden.variants import Goldens
    from pytest_npudump.results.entry import Entry
    from pytest_npudump.results.folder import Results, ResultsFolder
    from pytest_npudump.results.rejudge import Rejudged
    from pytest_npudump.results.terms import Terms


@dataclass(frozen=True, slots=True)
class Pending:
    """A run that differs from its golden, or has none.

    Attributes:
        judged: the run, judged by the golden that is there.
        record: its statistics; None where they cannot be read.
        golden: that golden; None where there is none, or it cannot be read.
        path: the golden file that an approval writes.
        goldens: its golden files; None where what was kept makes no sense.
        kept_tensors: where golden tensors of the run are.
        refusals: why it cannot be approved, in words; nothing where it can.
    """

    judged: Rejudged
    record: Golden | None
    golden: Golden | None
    path: Path
    refusals: tuple[str, ...]
    goldens: Goldens | None
    kept_tensors: TensorStore

    @property
    def entry(self) -> Entry:
        """What was kept of the run."""
        return self.judged.entry

    @property
    def comparison(self) -> Comparison | None:
        """The comparison with the golden; None where there is none."""
        return self.judged.result.outcome.comparison if self.judged.result is not None else None

    def layers_named(self, patterns: Sequence[str]) -> set[str]:
        """Return the layers of golden and run that names and globs mean; without any of these all layers."""
        tables = [one.table for one in (self.golden, self.record) if one is not None]
        return layers_meant(patterns or ["*"], (layer_of(key) for table in tables for key in table.keys))

    @property
    def largest(self) -> float:
        """How many times its allowance the worst value is off; 0 where none can be told."""
        return max([times for times in self._excesses if math.isfinite(times)], default=0.0)

    @property
    def incomparable(self) -> int:
        """Number of tensors that are new, missing, or of another type or shape, or that must be equal."""
        return sum(map(math.isinf, self._excesses))

    @property
    def _excesses(self) -> list[float]:
        failing = self.comparison.failing if self.comparison is not None else ()
        reasons = [worst(verdict) for verdict in failing]
        return [excess(reason) if reason else math.inf for reason in reasons]


def pending_of(folder: ResultsFolder, results: Results, terms: Terms) -> list[Pending]:
    """Return the runs that wait for a decision, the largest change first; those without a golden come last.

    Args:
        folder: of the results.
        results: what it holds.
        terms: where the goldens are.
    """
    found = [_pending(folder, entry, terms) for entry in results.entries if entry.is_open]
    waiting = [one for one in found if one.judged.word != GOOD]
    return sorted(waiting, key=lambda one: (-bool(one.incomparable), -one.largest))


def _pending(folder: ResultsFolder, entry: Entry, terms: Terms) -> Pending:
    judged = rejudge(folder, entry, terms)
    path = terms.golden_root(entry) / entry.golden_file
    record = golden = goldens = None
    broken: list[str] = []
    try:
        goldens = terms.goldens(entry)
        golden = goldens.read_if_any()
        broken = [goldens.unrecordable] if goldens.unrecordable else []
        record = read_record(folder, entry) if entry.record_file else None
        if record is not None and golden is not None:
            record, _ = seen_by(golden, run_of(record, entry), terms.judging(entry))
    except (ResultsError, GoldenError, NpudumpError) as error:
        broken.append(str(error))
    refusals = (*broken, *_refusals(entry, terms, golden, record, path))
    return Pending(judged, record, golden, path, tuple(dict.fromkeys(refusals)), goldens, folder.tensors)


def _refusals(
    entry: Entry, terms: Terms, golden: Golden | None, record: Golden | None, path: Path
) -> Iterator[str]:
    data = entry.data
    if data["incomplete"] is not None:
        yield said("its run was not complete: {why}", why=data["incomplete"])
    yield from map(str, data["refusals"])
    if record is None:
        yield said("there are no statistics of it")
        return
    file = data["test_file"]
    if not is_there(terms.root / str(file["path"])):
        yield said(
            "{path} is not in {root}: name the repository with --root, or reject the run if its test is gone",
            path=file["path"],
            root=terms.root,
        )
        return
    digest = golden.digest if golden is not None else None
    if digest != data["golden"]["sha256"] or (golden is not None and golden.path != path and is_there(path)):
        yield said(
            "the golden {path} is not the one that the run was judged with: run the test again", path=path
        )
    if file["sha256"] is None or file_digest(terms.root / str(file["path"])) != file["sha256"]:
        yield said("{path} is not as it was in the run: run the test again", path=file["path"])
    if terms.golden_dir is None and not path.resolve().is_relative_to(terms.root.resolve()):
        yield said(
            "{path} lies outside of {root}: name the folder of goldens with --golden-dir",
            path=path,
            root=terms.root,
        )
    if golden is None:
        return
    if stands_in(record.producer, golden):
        yield said("the run is the emulator's, and the golden a device's")
    told = bool(data["refusals"])  # which say why it left none
    if not told and KEY not in record.extra and (KEY in golden.extra or tensors_path(golden.path).exists()):
        yield said("its golden keeps tensors, and the run left none: approve with --npudump-update-golden")
