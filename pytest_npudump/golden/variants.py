"""Choice of a golden's variant for a run, by the common golden and the run's facts.

``variants: {a3: {soc: Ascend910_9391}}`` in the common golden names each variant and the facts that a run
must have. Where several fit, the one counts whose facts hold those of all others; else there is an error, as
none may be guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.config.cann import installed_cann, installed_driver
from pytest_npudump.errors import GoldenError, NpudumpError, said
from pytest_npudump.golden.origin import Stamp, installed, processor, revision, stamped
from pytest_npudump.golden.store import (
    KEY,
    Recording,
    differing,
    is_there,
    read_golden,
    stage_golden,
    stage_pair,
    tensors_path,
    write_golden,
)
from pytest_npudump.golden.stored_tensors import KeptTensors, TensorStore, stage_stored
from pytest_npudump.record.noise import CALIBRATION, REPEATS
from pytest_npudump.record.record import OF_A_RUN, OVERFLOW, REASON, Record
from pytest_npudump.record.rows import same_lines
from pytest_npudump.record.text import unwritable
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.atomic import locked
from pytest_npudump.storage.regular_file import open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.request import DumpRequest


VARIANTS = "variants"
"""Key of a common golden: the facts of each of its variants, by its name."""
FACTS = ("soc", "cann", "runtime")
"""Facts of a producer by which variants are chosen."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """Variant chosen for a run.

    Attributes:
        name: of the variant; "" for the common golden.
        why: in words.
        foreign: in which facts the common golden was produced by something else than the run; "" where it was
            not, or a variant applies.
    """

    name: str
    why: str
    foreign: str = ""


def variant_path(common: Path, name: str) -> Path:
    """Return the file of a variant, by its name as files spell it."""
    return common.with_name(f"{common.stem}@{name}{common.suffix}")


def names_variants(common: Path) -> bool:
    """Return whether a golden file has the key, by its head: most have none, and tables take time."""
    try:
        head = read_regular(common).partition(b"\ntensors:")[0]
    except OSError:
        return False  # who reads it tells what is wrong
    return f"\n{VARIANTS}:".encode() in head


def variants_of(common: Record) -> dict[str, dict[str, str]]:
    """Return the facts of each variant that a common golden names.

    Raises:
        GoldenError: the key is not as it is written, or two variants would fit one run.
    """
    found = common.extra.get(VARIANTS, {})
    if not isinstance(found, dict) or not all(map(_is_entry, found.items())):
        raise GoldenError(
            f"{common.path}: {VARIANTS} is {found!r}, expected a mapping such as "
            f"{{a3: {{soc: Ascend910_9391}}}}, by any of {', '.join(FACTS)}. Restore the file from "
            f"version control"
        )
    for name, facts in found.items():
        for other, others in found.items():
            if name < other and _clash(facts, others):
                both = f"{name!r} ({_words(facts)}) and {other!r} ({_words(others)})"
                raise GoldenError(
                    f"{common.path}: the variants {both} fit one run, and neither is for a part of the "
                    f"other's runs: give one of them more facts"
                )
    return {name: dict(facts) for name, facts in found.items()}


def choose(common: Record, facts: Mapping[str, str]) -> VariantChoice:
    """Return the variant that a run is compared with.

    Args:
        common: the golden beside which the variants are.
        facts: of the run's producer.

    Raises:
        GoldenError: as :func:`variants_of`.
    """
    found = variants_of(common)
    fitting = [name for name, asked in found.items() if asked.items() <= dict(facts).items()]
    own = _words({name: facts.get(name, "unknown") for name in FACTS})
    if not fitting:
        told = "; ".join(f"{name}: {_words(asked)}" for name, asked in found.items())
        asked_by = {fact: facts.get(fact, "unknown") for asked in found.values() for fact in asked}
        recorded = {fact: str(common.producer.get(fact, "unknown")) for fact in asked_by}
        foreign = "" if recorded == asked_by else f"of {_words(recorded)}, and this run of {_words(asked_by)}"
        return VariantChoice(
            "", f"compared with {common.path.name}: none of its variants ({told}) is for {own}", foreign
        )
    name = max(fitting, key=lambda one: len(found[one]))
    words = f"compared with the variant {name!r}, which {common.path.name} names for {_words(found[name])}"
    return VariantChoice(name, words)


def _clash(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    if any(one[name] != other[name] for name in one.keys() & other.keys()):
        return False
    return one == other or not (one.items() < other.items() or other.items() < one.items())


def _is_entry(entry: tuple[object, object]) -> bool:
    name, facts = entry
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(facts, dict) or not facts:
        return False
    return all(fact in FACTS and isinstance(value, str) and value for fact, value in facts.items())


def _words(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


@dataclass(frozen=True, slots=True)
class Part:
    """A variant and its common golden.

    Attributes:
        path: the variant's file.
        base: the common golden's.
        facts: for which runs it is; none where the common golden does not name it.
        differing: the number of its tensors that are other ones than in the common golden.
        tensors: the number of its tensors.
    """

    path: Path
    base: Path
    facts: Mapping[str, str]
    differing: int
    tensors: int


def split(path: Path, by: Sequence[str] = ()) -> Part:
    """Write a variant as what differs from the common golden, which then names it for runs like its own.

    Args:
        path: the variant's golden file, ``test@NAME.yaml``.
        by: the facts by which it is chosen; none for the first in which the two were produced differently.

    Raises:
        GoldenError: it cannot be told when it is to count, or a file cannot be read or written.
    """
    base_path, name = _common(path)
    variant, base = read_golden(path), read_golden(base_path)
    if KEY in variant.extra or tensors_path(path).exists():
        raise GoldenError(
            f"{path}: keeps tensors, which belong to all of its values: it stays a golden of its own"
        )
    if variant.test != base.test:
        raise GoldenError(f"{path}: is of {variant.test!r}, and {base_path.name} of {base.test!r}")
    told = [{fact: str(one.producer.get(fact, "")) for fact in FACTS} for one in (variant, base)]
    chosen = by or [fact for fact in FACTS if told[0][fact] and told[0][fact] != told[1][fact]][:1]
    if not chosen:
        raise GoldenError(
            f"{path}: was produced by the same {', '.join(FACTS)} as {base_path.name}: nothing tells when it "
            f"is to count; keep it for npudump_golden_variant"
        )
    if missing := [fact for fact in chosen if not told[0][fact]]:
        raise GoldenError(f"{path}: does not say by which {missing[0]} it was produced")
    facts = {fact: told[0][fact] for fact in chosen}
    if all(told[1][fact] == value for fact, value in facts.items()):
        raise GoldenError(
            f"{path}: {base_path.name} was itself produced by {', '.join(facts.values())}, and would count "
            f"for no run that it is of; choose by another fact"
        )
    known = {**variants_of(base), name: facts}
    named = replace(base, extra={**base.extra, VARIANTS: known})
    variants_of(named)  # refuses what would be ambiguous
    write_golden(replace(variant, base=base), replacing=variant.file_digest)
    write_golden(named, replacing=base.digest)
    return _part(variant, base, facts)


def fold(path: Path, *, whole: bool = False, dry: bool = False) -> Part:
    """Take a variant back: its runs are compared with the common golden; or write it whole again.

    Args:
        path: the variant's golden file.
        whole: write it as a golden of its own, which stays and counts as before.
        dry: only say what it comes to.

    Raises:
        GoldenError: a file cannot be read, written or removed.
    """
    base_path, name = _common(path)
    variant, base = read_golden(path), read_golden(base_path)
    known = variants_of(base)
    part = _part(variant, base, known.get(name, {}))
    if dry:
        return part
    if whole:
        write_golden(replace(variant, base=None), replacing=variant.file_digest)
        return part
    if KEY in variant.extra or tensors_path(path).exists():
        raise GoldenError(f"{path}: keeps tensors beside it: remove both files yourself, if they are to go")
    if name in known:
        rest = {other: facts for other, facts in known.items() if other != name}
        extra = {key: value for key, value in base.extra.items() if key != VARIANTS}
        named = replace(base, extra=extra | ({VARIANTS: rest} if rest else {}))
        write_golden(named, replacing=base.digest)
    with locked(path):
        try:
            path.unlink()
        except OSError as error:
            raise GoldenError(f"{path}: cannot be removed: {error.strerror or error}") from error
    return part


def _part(variant: Record, base: Record, facts: Mapping[str, str]) -> Part:
    gone = len({*base.table.keys} - {*variant.table.keys})
    return Part(variant.path, base.path, facts, len(differing(variant, base)) + gone, len(variant.table))


def _common(path: Path) -> tuple[Path, str]:
    place, sign, name = path.stem.partition("@")
    if not sign or "@" in name or path.suffix != ".yaml":
        raise GoldenError(
            f"{path}: is no variant, expected a file such as test_small@NAME.yaml beside test_small.yaml, "
            f"which pytest -o npudump_golden_variant=NAME --npudump-update-golden writes"
        )
    return path.with_name(f"{place}.yaml"), name


ASKED = ("scene", "dump_mode")
"""Facts of a golden that say what was dumped, as a test asks for it."""
DUMP_DATA = "dump_data"
"""Fact of a golden: what was chosen to be dumped when it was recorded; none of one of statistics."""


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
            unrecordable = choice.foreign and (
                f"{self.common} has variants, none of them for this run, and is itself {choice.foreign}: "
                f"record a variant with -o npudump_golden_variant=NAME --npudump-update-golden, and name it "
                f"by npudump golden split"
            )
            return replace(self, why=choice.why, unrecordable=unrecordable)
        path = variant_path(self.common, choice.name)
        if not is_there(path):
            raise GoldenError(
                f"{path}: {self.common.name} names this variant for what ran, and it is not there: restore "
                f"it from version control, or take it out of the key {VARIANTS!r}"
            )
        return replace(self, variant=path, why=choice.why, chosen=choice.name)

    def _why_named(self) -> str:
        found = self._found()
        if found is None:
            return ""
        named = f"npudump_golden_variant names {self.path.name}"
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
        """Return the facts of the present file that an update loses, in words; to be asked before it.

        Args:
            previous: that file; None where it cannot be read or there is none.
        """
        if previous is not None:
            notes: tuple[str, ...] = ()
            found = previous.extra.get(VARIANTS)
            if found and isinstance(found, dict) and previous.path == self.path:
                names = ", ".join(map(str, found))
                notes += (f"what its variants ({names}) share with {self.path.name} is theirs too",)
            if keys := ", ".join(map(repr, unwritable(previous))):
                notes += (f"{previous.path}: its key {keys} cannot be written again, and is dropped",)
            return notes
        try:
            self.read_if_any()
        except GoldenError as error:
            return (f"the golden that was there could not be read, and nothing of it is kept: {error}",)
        return ()

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
    ) -> Recording:
        """Write the new golden file and tensors beside the present ones, once the test has passed.

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

    def stage(self, golden: Record, tensors: KeptTensors | None) -> Recording:
        """Write a new golden file and its tensors, beside it or in the store.

        Args:
            golden: its path is that of the file.
            tensors: those kept; None leaves what lies there.

        Raises:
            GoldenError: it cannot be written; the old file is as it was.
        """
        if tensors is None:
            return stage_golden(golden)
        if self.store.url:
            layers = (tensors.left_out, self.store, tensors.sources)
            return stage_stored(replace(golden, base=None), tensors.tensors, *layers)
        told = (tensors.metadata(golden), tensors.left_out, tensors.sources)
        return stage_pair(replace(golden, base=None), tensors.tensors, *told)

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
        measured = {KEY, *OF_A_RUN, REPEATS, CALIBRATION}
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
        """Return a golden's facts of origin: ``producer``, installed packages, and the request.

        Args:
            producer: what the runtime says of itself.
        """
        facts = dict(producer)
        if facts.get("runtime") == "emulator":
            facts |= installed("onnxruntime") | processor()
        else:
            found = {"cann": installed_cann(), "driver": installed_driver()}
            facts |= {name: value for name, value in found.items() if value}
        chosen = {DUMP_DATA: str(self.request.dump_data)} if self.request.chosen else {}
        return facts | {"scene": self.request.scene, "dump_mode": self.request.dump_mode} | chosen


_HEAD = 1 << 13
_PRODUCER = re.compile(rb"^producer:(?: *\{[^}]*\}|(?:\r?\n +.*)+)", re.MULTILINE)
_CHOSEN = re.compile(rb"\bdump_data['\"]?: *['\"]?tensor\b")


def as_recorded(request: DumpRequest, golden: Path) -> DumpRequest:
    """Return a request with what was chosen to be dumped when its golden was recorded, if the test leaves it.

    Args:
        request: what the marker asks for.
        golden: the file, which need not be there.
    """
    if request.dump_data is not None or not SCENES[request.scene].statistics or request.dump_stats:
        return request
    try:
        with open_regular(golden) as file:
            producer = _PRODUCER.search(file.read(_HEAD))
            chosen = producer is not None and _CHOSEN.search(producer[0]) is not None
    except (OSError, NpudumpError):  # whoever reads all of it says what is wrong
        return request
    return replace(request, dump_data="tensor", chosen=True) if chosen else request


def foreign(golden: Record, test: str, facts: Mapping[str, str], *, off: bool = False) -> tuple[str, ...]:
    """Describe how a golden is of another test or request.

    Args:
        golden: the golden.
        test: the test's id.
        facts: of its run, as :meth:`Goldens.facts` has them.
        off: whether values mismatch, so that it is no time to accept what else was dumped.
    """
    way_out = "accept anew with --npudump-update-golden"
    found = []
    if golden.test != test:
        found.append(
            said(
                "{path} is the golden of {recorded!r}, this test is {test!r}: if it has a new "
                "name correct the file's key 'test', else {way_out}",
                path=golden.path,
                recorded=golden.test,
                test=test,
                way_out=way_out,
            )
        )
    for name in ASKED:
        asked = facts.get(name, "")
        recorded = golden.producer.get(name, asked)
        if off and (name, recorded, asked) == ("dump_mode", "output", "all"):
            found.append(said("the golden has no inputs (recorded with dump_mode=output)"))
        elif recorded != asked:
            found.append(
                said(
                    "{path} was recorded with {name} {recorded!r}, this test asks for {asked!r}: {way_out}",
                    path=golden.path,
                    name=name,
                    recorded=recorded,
                    asked=asked,
                    way_out=way_out,
                )
            )
    return tuple(found)


def unsaid(golden: Record) -> tuple[str, ...]:
    """Return a note on facts that a golden lacks, and which are taken to be the run's."""
    names = " and ".join(name for name in ASKED if name not in golden.producer)
    return (said("the golden does not record its {names}", names=names),) if names else ()


_EMULATOR = "emulator"
_MEASURED = ("runtime", "soc")
"""Facts of what computes: the noise of one is no bound for another."""


def stands_in(facts: Mapping[str, str], golden: Record) -> bool:
    """Return whether a run is the emulator's, and a golden a device's.

    Args:
        facts: of the run's origin.
        golden: what it would replace.
    """
    return facts.get("runtime") == _EMULATOR != golden.producer.get("runtime")


def not_recorded(goldens: Goldens, facts: Mapping[str, str]) -> str:
    """Return why a run may not replace its golden file, in words; "" where it may.

    Args:
        goldens: of the test, with the variant that applies.
        facts: of the run's origin, as :meth:`Goldens.facts` has them.
    """
    golden = _readable(goldens)
    if golden is None or golden.path != goldens.path or not stands_in(facts, golden):
        return ""
    return (
        f"{golden.path} is a device's ({_facts_in_words(golden.producer)}), and this run the emulator's: "
        "record it on the device, or beside it with -o npudump_golden_variant=NAME --npudump-update-golden; "
        "remove the file first if the device's is to go"
    )


def not_calibrated(goldens: Goldens, facts: Mapping[str, str]) -> str:
    """Return why a run's noise may not be added to its golden, in words; "" where it may.

    Args:
        goldens: of the test, with the variant that applies.
        facts: of the run's origin, as :meth:`Goldens.facts` has them.
    """
    golden = _readable(goldens)
    if golden is None or all(golden.producer.get(name) == facts.get(name) for name in _MEASURED):
        return ""
    return (
        f"{golden.path} is of {_facts_in_words(golden.producer)}, and this run of {_facts_in_words(facts)}, "
        f"whose noise is no bound for it: calibrate where it was recorded, or record a variant with "
        f"-o npudump_golden_variant=NAME --npudump-update-golden"
    )


def replaced_words(goldens: Goldens, golden: Record | None, facts: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note where an update replaces the golden of another device.

    Args:
        goldens: of the test, with the variant that applies.
        golden: what is there; None where it cannot be read or there is none.
        facts: of the run's origin.
    """
    if golden is None or golden.path != goldens.path or golden.producer.get("runtime") == _EMULATOR:
        return ()
    told = [name for name in _MEASURED if name in golden.producer and name in facts]
    if all(golden.producer[name] == facts[name] for name in told):
        return ()
    before, now = _facts_in_words(golden.producer), _facts_in_words(facts)
    return (
        f"the golden was of {before}, and is of {now} now: -o npudump_golden_variant=NAME keeps one of each",
    )


def _readable(goldens: Goldens) -> Record | None:
    try:
        return goldens.read_if_any()
    except GoldenError:
        return None  # an update replaces it, a comparison says what is wrong with it


def _facts_in_words(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {facts.get(name, 'unknown')}" for name in _MEASURED)
