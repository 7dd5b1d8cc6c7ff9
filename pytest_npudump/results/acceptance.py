"""Pending runs, and how one is accepted or rejected."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.judge import seen_by
from pytest_npudump.compare.stats.alignment import ABSENT, align
from pytest_npudump.compare.stats.tables import describe_not_finite
from pytest_npudump.compare.tolerances.presets import numerics_of
from pytest_npudump.dump.selection import layers_called
from pytest_npudump.dump.table import StatsTable, layer_of, sanitised_key
from pytest_npudump.errors import GoldenError, NpudumpError, StoreError, said
from pytest_npudump.golden.origin import Stamp, changed_tensors, stamped
from pytest_npudump.golden.store import (
    KEY,
    is_stored,
    is_there,
    left_out,
    read_golden,
    source_layers,
    tensors_path,
    write_golden,
)
from pytest_npudump.golden.stored_tensors import GoldenTensor, KeptTensors, TensorStore, stored_tensors
from pytest_npudump.golden.variants import DUMP_DATA, VARIANTS, Goldens, stands_in
from pytest_npudump.language.text import first_of, terminal_columns
from pytest_npudump.onnxmodels.loaded_files import model_digest
from pytest_npudump.record.edges import edges_of_lines, lines_of
from pytest_npudump.record.model_lines import model_lines_of
from pytest_npudump.record.noise import CALIBRATION, REPEATS, Repeats, repeats_of
from pytest_npudump.record.record import (
    EDGES,
    EMPTY,
    MODELS,
    OP_TYPES,
    OUTPUTS,
    POINTERS,
    REASON,
    SHARDS,
    UNWRITTEN,
    Record,
    left_out_of,
    rows_of,
    shards_of,
)
from pytest_npudump.record.rows import by_name
from pytest_npudump.regression.calibration import fed_words
from pytest_npudump.regression.dataflow import edges_of, same_layers
from pytest_npudump.regression.run_record import by_layer, measured_anew, new_entries, same_values
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.verdicts import worst
from pytest_npudump.results.folder import (
    ACCEPTED,
    REJECTED,
    Entry,
    Results,
    ResultsError,
    ResultsFolder,
    file_digest,
)
from pytest_npudump.results.rejudge import GOOD, Overrides, Rejudged, read_record, rejudge, run_of
from pytest_npudump.settings import default_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.compare.stats.verdict import Comparison


@dataclass(frozen=True, slots=True)
class Pending:
    """A run that differs from its golden, or has none.

    Attributes:
        judged: the run, judged by the golden that is there.
        record: its statistics; None where they cannot be read.
        golden: that golden; None where there is none, or it cannot be read.
        path: the golden file that an acceptance writes.
        goldens: its golden files; None where what was kept makes no sense.
        kept_tensors: where golden tensors of the run are.
        refusals: why it cannot be accepted, in words; nothing where it can.
    """

    judged: Rejudged
    record: Record | None
    golden: Record | None
    path: Path
    refusals: tuple[str, ...]
    goldens: Goldens | None
    kept_tensors: TensorStore

    @property
    def entry(self) -> Entry:
        """Saved entry of the run."""
        return self.judged.entry

    @property
    def comparison(self) -> Comparison | None:
        """The comparison with the golden; None where there is none."""
        return self.judged.result.comparison if self.judged.result is not None else None

    def layers_named(self, patterns: Sequence[str]) -> set[str]:
        """Return the layers of golden and run that names and globs mean; without any of these all layers.

        One that means none may be as a report shows it.
        """
        tables = [one.table for one in (self.golden, self.record) if one is not None]
        layers = [layer_of(key) for table in tables for key in table.keys]
        if self.comparison is None or not patterns:
            return layers_called(patterns or ["*"], layers)
        names = LayerNames.of(self.comparison)
        found = (
            next(filter(None, (layers_called([glob], layers) for glob in names.globs(pattern))), set[str]())
            for pattern in patterns
        )
        return set[str]().union(*found)

    @property
    def largest(self) -> float:
        """Largest ratio of a difference to its tolerance; 0 where none is known."""
        return max([times for times in self._excesses if math.isfinite(times)], default=0.0)

    @property
    def incomparable(self) -> int:
        """Number of tensors that are new, missing, or of another type or shape, or that must be equal."""
        return sum(map(math.isinf, self._excesses))

    @property
    def lost(self) -> tuple[str, ...]:
        """Facts that its golden would lose, or a first one lack, if all of the run were accepted."""
        if self.record is None or self.refusals:
            return ()
        if self.golden is None:
            note = said(
                "the first golden is of a single run; {update} also records whether runs repeat",
                update="--npudump-update-golden",
            )
            return (note,)
        return after_rows(self.record, self.golden)[1]

    @property
    def _excesses(self) -> list[float]:
        failing = self.comparison.failing if self.comparison is not None else ()
        reasons = [worst(verdict) for verdict in failing]
        return [reason.excess if reason else math.inf for reason in reasons]


def pending_of(folder: ResultsFolder, results: Results, terms: Overrides) -> list[Pending]:
    """Return the runs that wait for a decision, the largest change first; without a golden last."""
    found = [_pending(folder, entry, terms) for entry in results.entries if entry.is_open]
    waiting = [one for one in found if one.judged.word != GOOD]
    return sorted(waiting, key=lambda one: (-bool(one.incomparable), -one.largest))


def _pending(folder: ResultsFolder, entry: Entry, terms: Overrides) -> Pending:
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
            record, _ = seen_by(golden, run_of(record, entry), terms.judging(entry, goldens))
    except (ResultsError, GoldenError, NpudumpError) as error:
        broken.append(str(error))
    refusals = (*broken, *_refusals(entry, terms, golden, record, path))
    return Pending(judged, record, golden, path, tuple(dict.fromkeys(refusals)), goldens, folder.tensors)


def _refusals(
    entry: Entry, terms: Overrides, golden: Record | None, record: Record | None, path: Path
) -> Iterator[str]:
    data = entry.data
    if data["incomplete"] is not None:
        yield said("its run was incomplete: {why}", why=data["incomplete"])
    yield from map(str, data["refusals"])
    if fed := (data.get("second_run") or {}).get("fed"):  # earlier results lack it
        yield fed_words(fed)
    if record is None:
        yield said("it has no statistics")
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
        yield said("the golden {path} has changed since the run: run the test again", path=path)
    if file["sha256"] is None or file_digest(terms.root / str(file["path"])) != file["sha256"]:
        yield said("{path} has changed since the run: run the test again", path=file["path"])
    for model, told in data.get("models", {}).items():  # earlier results lack it
        if is_there(terms.root / model) and model_digest(terms.root / model) != told:
            yield said("{path} has changed since the run: run the test again", path=model)
    if terms.golden_dir is None and not path.resolve().is_relative_to(terms.root.resolve()):
        yield said(
            "{path} lies outside of {root}: name the folder of goldens with --golden-dir",
            path=path,
            root=terms.root,
        )
    if golden is None:
        return
    if stands_in(record.producer, golden):
        yield said("the run is from the emulator, the golden from a device")
    told = bool(data["refusals"])  # which say why it left none
    if not told and KEY not in record.extra and (KEY in golden.extra or tensors_path(golden.path).exists()):
        yield said("its golden keeps tensors, and the run left none: accept with --npudump-update-golden")


def approve(pending: Pending, layers: Sequence[str] = (), reason: str = "") -> tuple[Entry, tuple[str, ...]]:
    """Write the golden of a run, atomically and under its lock.

    Returned are what is to be kept of the run from here on, and what the golden does not know any more.

    Args:
        pending: the run.
        layers: names or globs of the layers that are accepted; none for all.
        reason: why, kept in the golden; "" for none.

    Raises:
        ResultsError: it cannot be accepted, or none of its layers that differ is named.
        GoldenError: the golden cannot be written, or is another one meanwhile; it is as it was.
    """
    if pending.refusals or pending.record is None or pending.goldens is None:
        raise ResultsError(f"{pending.entry.test}: refused: {'; '.join(pending.refusals)}")
    golden, notes = _approved(pending, pending.record, pending.goldens, layers, reason)
    replacing = pending.golden.file_digest if pending.golden and pending.golden.path == pending.path else ""
    wanted = pending.layers_named(layers)
    chosen = {key for key in golden.table.keys if layer_of(key) in wanted}
    tensors = approved_tensors(pending, golden, chosen)
    if tensors is None:
        write_golden(golden, replacing=replacing)
    else:
        pending.goldens.stage(golden, tensors).commit(replacing)
    data = pending.entry.data
    if not layers:
        return Entry({**data, "decision": ACCEPTED}), notes
    digest = read_golden(pending.path).digest
    file = {**data["golden"], "judged_with": data["golden"]["file"], "sha256": digest}
    file["before"] = pending.entry.golden_of_run
    return Entry({**data, "golden": file, **_failure_of_rest(pending, wanted)}), notes


def _failure_of_rest(pending: Pending, accepted: Collection[str]) -> dict[str, Any]:
    """Return the run's account of its failure, but for sentences about layers that are accepted."""
    found = pending.entry.data["failure"] if pending.judged.failure else {"headline": ""}
    failing = pending.comparison.failing if pending.comparison is not None else ()
    names = "|".join(map(re.escape, {verdict.key.layer for verdict in failing} & {*accepted}))
    gone = re.compile(rf"(?<![\w/.])(?:{names})(?![\w/]|\.\w)" if names else "(?!)")
    if gone.search(found["headline"]):  # as is the operator to hand over
        found = {"headline": "", "why": found.get("why", ())}
    return {"failure": {**found, "why": [text for text in found.get("why", ()) if not gone.search(text)]}}


def refuse_idle(runs: Sequence[Pending], layers: Sequence[str]) -> None:
    """Refuse names and globs of layers of which none of the runs that differ has one that does.

    Raises:
        ResultsError: one is misspelt, or its layer agrees.
    """
    compared = [(one, one.comparison) for one in runs if one.comparison is not None]
    differing = [(run, {verdict.key.layer: None for verdict in found.failing}) for run, found in compared]
    idle = [
        one for one in layers if not any(run.layers_named([one]) & names.keys() for run, names in differing)
    ]
    columns = terminal_columns()
    names = {
        LayerNames.of(run.comparison, columns).short(name): None for run, found in differing for name in found
    }
    if names and idle:
        raise ResultsError(_no_mismatch(idle, names))


def _no_mismatch(layers: Sequence[str], known: Iterable[str]) -> str:
    return said(
        "no layer with a mismatch matches {names}; layers with mismatches: {known}",
        names=", ".join(layers),
        known=first_of(known),
    )


def reject(pending: Pending) -> Entry:
    """Return the entry of a run whose golden stays as it is."""
    return Entry({**pending.entry.data, "decision": REJECTED})


def _approved(
    pending: Pending, record: Record, goldens: Goldens, layers: Sequence[str], reason: str
) -> tuple[Record, tuple[str, ...]]:
    """Return the golden to write, and notes on the facts that it loses."""
    before = pending.golden
    if layers and before is None:
        raise ResultsError(
            said(
                "{test}: has no golden yet: accept all layers",
                test=pending.entry.test,
            )
        )
    if layers and before is not None:
        rows = _chosen_rows(pending, before, record, layers)
        table = rows_of((before.table, record.table), rows)
        golden = replace(before, table=table, path=pending.path, blocks=_blocks(before, record, table, rows))
        if SHARDS in before.extra:
            weights = _weights(before, record, pending.layers_named(layers))
            golden = replace(golden, extra={**golden.extra, SHARDS: weights})
        taken = {key for key, row in zip(table.keys, rows, strict=True) if row[0]}
        golden, notes = after_rows(golden, before, taken if _changed_facts(before, record) else ())
    else:
        golden, notes = after_rows(_successor(goldens, record, before), before)
    other = before is not None and before.path != pending.path
    left = {KEY, REASON, *([VARIANTS] if other else [])}
    extra = {name: value for name, value in golden.extra.items() if name not in left}
    blocks = {name: text for name, text in golden.blocks.items() if name not in {OP_TYPES, POINTERS}}
    golden = replace(golden, extra=extra | ({REASON: reason} if reason else {}), blocks=blocks)
    notes += tuple(filter(None, [describe_not_finite(golden.table)]))
    return stamped(golden, None if other else before, Stamp.today(pending.entry.data["revision"])), notes


def _successor(goldens: Goldens, record: Record, before: Record | None) -> Record:
    """Return a run in the place of a golden, with what people have written into that."""
    known = {EMPTY: record.extra[EMPTY]} if EMPTY in record.extra else {}
    weights = _weights(before, record)
    known |= {SHARDS: weights} if weights else {}
    edges, outputs = record.blocks.get(EDGES, ""), record.blocks.get(OUTPUTS, "")
    if before is not None:
        steady = by_name(before.blocks.get(OUTPUTS, ""))
        outputs = "".join(f"{line}\n" for name, line in by_name(outputs).items() if name in steady)
        left_out = left_out_of(before, record.facts)
        entries = before.extra[UNWRITTEN] if left_out else by_layer(new_entries(before, ()))
        known |= {UNWRITTEN: entries} if entries else {}
        if same_layers(before.table, record.table):  # what only the golden knows stays
            whole = edges_of(record).completed(edges_of(before))
            edges = lines_of(whole, dict.fromkeys(map(layer_of, record.table.keys)))
    told = {EDGES: edges, MODELS: record.blocks.get(MODELS, ""), OUTPUTS: outputs}
    blocks = {name: text for name, text in told.items() if text}
    return goldens.successor(before, record.table, record.facts, known, blocks)


def _weights(golden: Record | None, record: Record, wanted: Collection[str] | None = None) -> dict[str, Any]:
    """Return the digests of weights for a golden with a run's layers: "" where several ranks had parts."""
    told = shards_of(record)
    new, held = told if len(told) == 1 else {}, shards_of(golden) if golden is not None else {}
    if wanted is None and new:
        return new
    return {
        rank: {
            layer: texts
            if wanted is not None and layer not in wanted
            else new.get(rank, {}).get(layer) or dict.fromkeys(texts, "")
            for layer, texts in layers.items()
        }
        for rank, layers in held.items()
    }


def _blocks(
    golden: Record, record: Record, table: StatsTable, rows: Sequence[tuple[int, int]]
) -> dict[str, str]:
    """Return the golden's blocks for a table of some of its rows, 0, and some of a run's, 1.

    Edges are those between layers that are in it; operators of models are the run's where their rows are, all
    of them where all values are.
    """
    text = golden.blocks.get(EDGES, "")
    edges = lines_of(edges_of_lines(text, golden.path.name), dict.fromkeys(map(layer_of, table.keys)))
    taken = {record.table.keys[at].rpartition(":")[0].partition("#")[0] for side, at in rows if side}
    models = (golden.blocks.get(MODELS, ""), record.blocks.get(MODELS, ""))
    whole = same_values(table, record.table)
    return {
        **golden.blocks,
        **({EDGES: edges} if text else {}),
        **(
            {MODELS: models[1] if whole and models[1] else model_lines_of(*models, taken)}
            if models[0]
            else {}
        ),
    }


def _chosen_rows(
    pending: Pending, golden: Record, record: Record, layers: Sequence[str]
) -> list[tuple[int, int]]:
    """Return the rows of the golden, 0, and of the record, 1, in place of its own in some layers."""
    comparison = pending.comparison
    wanted = pending.layers_named(layers)
    failing = comparison.failing if comparison is not None else ()
    if not any(verdict.key.layer in wanted for verdict in failing):
        raise ResultsError(
            said(
                "{value}: {text}",
                value=pending.entry.test,
                text=_no_mismatch(layers, dict.fromkeys(verdict.key.layer for verdict in failing)),
            )
        )
    if comparison is not None and comparison.own_keys:
        raise ResultsError(
            f"{pending.entry.test}: its eager calls have other numbers than in the golden: accept all of it"
        )
    alignment = align(golden.table.keys, record.table.keys)
    rows = []
    for here, there in zip(alignment.golden.tolist(), alignment.actual.tolist(), strict=True):
        key = golden.table.keys[here] if here != ABSENT else record.table.keys[there]
        chosen = (1, there) if layer_of(key) in wanted else (0, here)
        if chosen[1] != ABSENT:
            rows.append(chosen)
    return rows


_NOTHING = "-"


def after_rows(
    golden: Record, before: Record | None, foreign: Collection[str] = ()
) -> tuple[Record, tuple[str, ...]]:
    """Return the new golden, and a note on the facts that it loses.

    Noise is a share of a statistic's scale, and of the machine that computes: a tensor of the same type and
    shape keeps it where the numerics are the same, whatever its values are. That values repeat is known of
    those alone that several runs have given.

    Args:
        golden: the run, or a golden some of whose rows are a run's, as the golden that it would be.
        before: the golden that it replaces; None without one.
        foreign: keys of rows that are of a run with other numerics than the rest.
    """
    if before is None:
        own = golden.facts.get("runtime") in {"acl", "emulator"} and golden.facts.get("scene") == "model"
        note = said(
            "recorded with statistics; --npudump-update-golden also records tensors, if they are small and "
            "the marker sets no dump_data"
        )
        return _of_one_run(golden), (note,) if own and DUMP_DATA not in golden.facts else ()
    if not (before.table.noise or {REPEATS, CALIBRATION} & before.extra.keys()):
        return _without(golden), ()
    head = {name: before.extra[name] for name in (REPEATS, CALIBRATION) if name in before.extra}
    if same_values(before.table, golden.table):
        table = replace(golden.table, noise=before.table.noise)
        return replace(golden, table=table, extra={**golden.extra, **head}), ()
    if changed := _changed_facts(before, golden):
        return _of_one_run(golden), (_dropped(before, changed),)
    if foreign and len(foreign) == len(golden.table):
        return _of_one_run(golden), (_dropped(before, ()),)
    table, anew = _with_noise(golden.table, before.table, foreign)
    changed_rows = {*changed_tensors(golden.table, before.table)} - anew
    noisy = dict(zip(table.keys, table.noise, strict=False))
    old_noise = sum(noisy.get(key, _NOTHING) != _NOTHING for key in changed_rows)
    repeats, no_repeats = repeats_of(before.extra, before.path), 0
    if repeats is not None and repeats.runs > 1:
        no_repeats = len(changed_rows)
        kept = [key for key in table.keys if key not in changed_rows and key not in anew]
        same = {layer_of(key) for key in table.keys if key not in anew}
        head[REPEATS] = _of_the_rest(repeats, kept, same, len(before.table), len(table)).to_head()
    note = said(
        "noise unknown for {count} of {total} tensors; {anew}",
        count=len(anew),
        total=len(table),
        anew=measured_anew(before.extra),
    )
    lost = said(
        "changed tensors ({count} of {total}) are of a single run{kept}; {anew}",
        count=len(changed_rows),
        total=len(table),
        kept=said("; {count} of them keep the noise measured before", count=old_noise) if old_noise else "",
        anew=measured_anew(before.extra),
    )
    told = ((anew, note), (old_noise or no_repeats, lost))
    return replace(golden, table=table, extra={**golden.extra, **head}), tuple(n for at, n in told if at)


def _dropped(before: Record, changed: Sequence[str]) -> str:
    """Return a note on what is not known any more, and the facts that make it so."""
    return said(
        "recorded from a single run{why}; the golden's {lost} was removed; {anew}",
        why=said(", and {facts} changed", facts=", ".join(changed)) if changed else "",
        lost="calibration" if CALIBRATION in before.extra else "noise data",
        anew=measured_anew(before.extra),
    )


def _changed_facts(before: Record, run: Record) -> tuple[str, ...]:
    """Return the facts by which a run may compute otherwise than the run of a golden did."""
    found = numerics_of(before.differences(run), run.facts)
    return (*found.differs, *found.untold)


def _with_noise(
    table: StatsTable, before: StatsTable, foreign: Collection[str]
) -> tuple[StatsTable, frozenset[str]]:
    """Return a table with the noise of the tensors that another has alike, and the keys of all others."""

    def rows(of: StatsTable) -> dict[str, tuple[str, Any]]:
        return dict(zip(of.keys, zip(of.dtypes, of.shapes, strict=True), strict=True))

    old = rows(before)
    anew = frozenset(key for key, kind in rows(table).items() if key in foreign or old.get(key) != kind)
    if not before.noise:
        return replace(table, noise=()), anew
    cells = dict(zip(before.keys, before.noise, strict=True))
    noise = tuple(_NOTHING if key in anew else cells[key] for key in table.keys)
    return replace(table, noise=noise if set(noise) != {_NOTHING} else ()), anew


def _of_the_rest(
    repeats: Repeats, kept: Collection[str], same: Collection[str], before: int, after: int
) -> Repeats:
    """Return the repeats of the remaining rows; ``same`` are layers that were not deterministic if named."""
    unknown = 0 if repeats.compared is None else before - repeats.compared
    compared = len(kept) - unknown
    if compared <= 0:
        return Repeats(1)
    named = tuple(layer for layer in repeats.not_deterministic if layer in same)
    return Repeats(repeats.runs, named, None if compared == after else compared)


def _of_one_run(golden: Record) -> Record:
    bare = _without(golden)
    return replace(bare, extra={REPEATS: Repeats(1).to_head(), **bare.extra})


def _without(golden: Record) -> Record:
    extra = {name: value for name, value in golden.extra.items() if name not in {REPEATS, CALIBRATION}}
    return replace(golden, table=replace(golden.table, noise=()), extra=extra)


def approved_tensors(pending: Pending, golden: Record, chosen: Collection[str]) -> KeptTensors | None:
    """Return the tensors that an acceptance keeps; None where the golden keeps none.

    Raises:
        ResultsError: a tensor that the run had is not kept any more.
        GoldenError: one that stays cannot be had, or all are more than the budget.
    """
    record, before = pending.record, pending.golden
    if record is None or pending.goldens is None or KEY not in record.extra:
        return None
    own = stored_tensors(record, store=pending.kept_tensors) if is_stored(record) else {}
    old = stored_tensors(before, store=pending.goldens.store) if before is not None else {}
    found: dict[str, GoldenTensor] = {}
    inherited = pending.entry.inherited
    for key in golden.table.keys:
        plain = sanitised_key(key)
        if key in chosen and plain in own:
            found[key] = own[plain]
        elif plain in old and (key not in chosen or plain in inherited):
            found[key] = old[plain]
    dtypes = dict(zip(golden.table.keys, golden.table.dtypes, strict=True))
    try:
        tensors = {key: (tensor.array(), dtypes[key]) for key, tensor in found.items()}
    except StoreError as error:
        raise ResultsError(f"{pending.entry.test}: a golden tensor is not at hand: {error}") from error
    layers = {layer_of(key) for key in found}
    named = (*source_layers(record), *(source_layers(before) if before is not None else ()))
    sources = tuple(name for name in dict.fromkeys(named) if name in layers)
    kept = KeptTensors(tensors, left_out(record), sources)
    kept.refuse_beyond(
        int(pending.entry.data["options"].get("tensor_budget", default_settings().tensor_budget))
    )
    return kept
