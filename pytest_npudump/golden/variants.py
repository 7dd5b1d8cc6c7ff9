"""One test's golden files: where they are, which variant counts, what they record of their origin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.cann import installed_cann, installed_driver
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden import pair
from pytest_npudump.golden.applicable import VARIANTS, Choice, choose, names_variants, variant_path
from pytest_npudump.golden.objects.stored_golden import stage_stored
from pytest_npudump.golden.objects.tensor_store import TensorStore
from pytest_npudump.golden.origin import installed, processor, revision
from pytest_npudump.golden.stamps import Stamp, stamped
from pytest_npudump.golden.store import is_there, read_golden, stage_golden
from pytest_npudump.record.noise import CALIBRATION, REPEATS
from pytest_npudump.record.record import OF_A_RUN, OVERFLOW, REASON, Record
from pytest_npudump.record.rows import same_lines
from pytest_npudump.record.text import unwritable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.golden.kept_tensors import KeptTensors
    from pytest_npudump.request import DumpRequest


ASKED = ("scene", "dump_mode")
"""Facts of a golden that say what was dumped, as a test asks for it."""


@dataclass(frozen=True, slots=True)
class Goldens:
    """The golden files of one test.

    Attributes:
        test: the test's id, recorded in the file.
        request: what the test asks for; scene and mode are recorded.
        common: the file that counts where no variant does.
        variant: the file of the variant named by an option, or of the one that applies; None without one.
        why: why this file counts, in words; "" where there is only one.
        chosen: the name of the variant that applies by what ran; "" where none was chosen so.
        unrecordable: why this run may not be recorded in the common golden, which has variants; "" where it
            may.
        store: where golden tensors are that do not lie beside the file; those of an update do where it names
            no place.
        root: a folder of the repository whose revision a golden names; None for none.
    """

    test: str
    request: DumpRequest
    common: Path
    variant: Path | None = None
    why: str = ""
    chosen: str = ""
    unrecordable: str = ""
    store: TensorStore = field(default_factory=TensorStore)
    root: Path | None = None

    @property
    def path(self) -> Path:
        """The file that is written: the variant where one is named, else the common one."""
        return self.variant or self.common

    def for_run(self, facts: Mapping[str, str]) -> Goldens:
        """Return the golden files with the variant that applies to a run.

        One that an option names counts whatever ran.

        Args:
            facts: of the run's origin, as :meth:`facts` has them.

        Raises:
            GoldenError: the common golden does not tell rightly which applies, or that file is not there.
        """
        if self.variant is not None:
            return replace(self, why=self._why_named())
        if not names_variants(self.common):
            return self
        choice = choose(read_golden(self.common), facts)
        if not choice.name:
            return replace(self, why=choice.why, unrecordable=self._unrecordable(choice))
        path = variant_path(self.common, choice.name)
        if not is_there(path):
            raise GoldenError(
                f"{path}: {self.common.name} names this variant for what ran, and it is not there: restore "
                f"it from version control, or take it out of the key {VARIANTS!r}"
            )
        return replace(self, variant=path, why=choice.why, chosen=choice.name)

    def _unrecordable(self, choice: Choice) -> str:
        if not choice.foreign:
            return ""
        return (
            f"{self.common} has variants, none of them for this run, and is itself {choice.foreign}: record "
            f"a variant with --npudump-golden-variant=NAME --npudump-update-golden, and name it by "
            f"npudump golden split"
        )

    def _why_named(self) -> str:
        found = self._found()
        if found is None:
            return ""
        named = f"--npudump-golden-variant names {self.path.name}"
        if found == self.variant:
            return f"compared with the variant {found.name}: {named}"
        return f"compared with the common golden {found.name}: {named}, which is not there"

    def read_if_any(self) -> Record | None:
        """Read the variant's file, else the common one; None where neither exists.

        Raises:
            GoldenError: the file cannot be read or trusted.
        """
        found = self._found()
        return read_golden(found) if found else None

    def lost_by_update(self, previous: Record | None) -> tuple[str, ...]:
        """Return what an update cannot keep of the file that is there, in words; to be asked before it.

        Args:
            previous: that file; None where it cannot be read or there is none.
        """
        if previous is not None:
            notes = self._shared(previous)
            keys = ", ".join(map(repr, unwritable(previous)))
            if keys:
                notes += (f"{previous.path}: its key {keys} cannot be written again, and is dropped",)
            return notes
        try:
            self.read_if_any()
        except GoldenError as error:
            return (f"the golden that was there could not be read, and nothing of it is kept: {error}",)
        return ()

    def _shared(self, previous: Record) -> tuple[str, ...]:
        found = previous.extra.get(VARIANTS)
        if not found or previous.path != self.path or not isinstance(found, dict):
            return ()
        return (
            f"what its variants ({', '.join(map(str, found))}) share with {self.path.name} is theirs too",
        )

    def _found(self) -> Path | None:
        return next((path for path in (self.variant, self.common) if path and is_there(path)), None)

    def record(
        self,
        previous: Record | None,
        table: StatsTable,
        producer: Mapping[str, str],
        tensors: KeptTensors | None = None,
        known: Mapping[str, object] = MappingProxyType({}),
        *,
        blocks: Mapping[str, str] = MappingProxyType({}),
    ) -> pair.Recording:
        """Write what is to replace the file and the tensors beside it, once the test has passed.

        What an earlier file holds besides statistics is kept.

        Args:
            previous: the earlier one, if there is any.
            table: the statistics.
            producer: facts about their origin.
            tensors: those kept beside the file; None leaves what lies there.
            known: what the run says of tensors without a row, in place of what the earlier one says.
            blocks: lines behind the table, in place of all that the earlier one has.

        Raises:
            GoldenError: it cannot be written; the old file is as it was.
        """
        golden = self.successor(previous, table, self.facts(producer), known, blocks)
        same_file = previous is not None and previous.path == self.path
        stamp = Stamp.today(revision(self.root) if self.root else None)
        golden = stamped(golden, previous if same_file else None, stamp)
        return self.stage(golden, tensors)

    def stage(self, golden: Record, tensors: KeptTensors | None) -> pair.Recording:
        """Write what is to replace a golden file and the tensors that it keeps, beside it or in the store.

        Args:
            golden: its path is that of the file.
            tensors: those kept; None leaves what lies there.

        Raises:
            GoldenError: it cannot be written; the old file is as it was.
        """
        if tensors is None:
            staged = stage_golden(golden.path, golden)
            return pair.Recording(golden.path, staged.file, staged.digest)
        if self.store.url:
            layers = (tensors.left_out, self.store, tensors.sources)
            return stage_stored(replace(golden, base=None), tensors.tensors, *layers)
        told = (tensors.metadata(golden), tensors.left_out, tensors.sources)
        return pair.stage_pair(replace(golden, base=None), tensors.tensors, *told)

    def calibrate(self, golden: Record, cells: tuple[str, ...], head: Mapping[str, Any]) -> pair.Recording:
        """Write what is to replace a golden that only learns its noise: all else of it stays.

        Args:
            golden: as it was read.
            cells: its column ``noise``; empty for none.
            head: its keys ``repeats`` and ``calibration``.

        Raises:
            GoldenError: it cannot be written; the old file is as it was.
        """
        table = replace(golden.table, noise=cells)
        calibrated = replace(golden, table=table, extra={**golden.extra, **head})
        staged = stage_golden(golden.path, calibrated)
        return pair.Recording(golden.path, staged.file, staged.digest)

    def successor(
        self,
        previous: Record | None,
        table: StatsTable,
        facts: Mapping[str, str],
        known: Mapping[str, object] = MappingProxyType({}),
        blocks: Mapping[str, str] = MappingProxyType({}),
    ) -> Record:
        """Return the golden that an update with these statistics makes of the earlier one.

        Args:
            previous: the earlier one, if there is any.
            table: the statistics.
            facts: of their origin, as :meth:`facts` has them.
            known: what the run says of tensors without a row, in place of what the earlier one says.
            blocks: lines behind the table, in place of all that the earlier one has.
        """
        measured = {pair.KEY, *OF_A_RUN, REPEATS, CALIBRATION}
        dropped = (measured | set(unwritable(previous) if previous else ())) - known.keys()
        kept = dict(previous.extra) if previous else {}
        if previous is not None and previous.path != self.path:
            kept.pop(VARIANTS, None)
        told = dict(known)
        changes = previous is None or not same_lines(previous.table, table)
        changes = changes or kept.get(OVERFLOW) != told.get(OVERFLOW)
        # Where something changes, an earlier reason is another change's; where nothing does, it stands.
        (kept if changes else told).pop(REASON, None)
        extra = {name: value for name, value in kept.items() if name not in dropped} | told
        base = previous.base if previous is not None and previous.path == self.path else None
        return Record(self.test, facts, table, self.path, extra, blocks, base=base)

    def facts(self, producer: Mapping[str, str]) -> dict[str, str]:
        """Return what a golden records of its origin: ``producer``, what is installed, and what was asked.

        Args:
            producer: what the runtime says of itself.
        """
        facts = dict(producer)
        if facts.get("runtime") == "emulator":
            facts |= installed("onnxruntime") | processor()
        else:
            found = {"cann": installed_cann(), "driver": installed_driver()}
            facts |= {name: value for name, value in found.items() if value}
        return facts | self._asked

    @property
    def _asked(self) -> dict[str, str]:
        return {"scene": self.request.scene, "dump_mode": self.request.dump_mode}


def foreign(golden: Record, test: str, facts: Mapping[str, str]) -> tuple[str, ...]:
    """Return in what a golden is not one of a test and of what that asks for, in words.

    Args:
        golden: the golden.
        test: the test's id.
        facts: of its run, as :meth:`Goldens.facts` has them.
    """
    way_out = "approve anew with --npudump-update-golden"
    found = []
    if golden.test != test:
        found.append(
            f"{golden.path} is the golden of {golden.test!r}, this test is {test!r}: if it has a new name "
            f"correct the file's key 'test', else {way_out}"
        )
    for name in ASKED:
        asked = facts.get(name, "")
        recorded = golden.producer.get(name, asked)
        if recorded != asked:
            found.append(
                f"{golden.path} was recorded with {name} {recorded!r}, this test asks for {asked!r}: "
                f"{way_out}"
            )
    return tuple(found)


def unsaid(golden: Record) -> tuple[str, ...]:
    """Return a note on facts that a golden does not tell, and which are taken to be the run's."""
    names = " and ".join(name for name in ASKED if name not in golden.producer)
    return (f"the golden does not say which {names} it was recorded with",) if names else ()
