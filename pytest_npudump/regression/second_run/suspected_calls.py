"""Suspects that are calls of torch: what the second run keeps of them, and each recomputed on the CPU."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pytest_npudump.dump.tree.eager import is_eager
from pytest_npudump.reference.call_archive import CallArchive
from pytest_npudump.reference.called_operators import CallBench
from pytest_npudump.reference.operator_alone import UNKNOWN
from pytest_npudump.regression.second_run.by_reference import failing_keys
from pytest_npudump.runtime.aten.kept_calls import CallKeepingRuntime, WantedOutput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.reference.suspects import Isolated
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import FirstRun
    from pytest_npudump.regression.second_run.run_plan import Plan

_OFF = "off"
_CALLS = "calls"
_MOST = 8
"""Outputs that are judged by their calls, at most: each call is computed several times."""


def keep_suspected(case: Case, first: FirstRun | None, plan: Plan | None) -> None:
    """Have the next run keep the calls of the suspects, if the runtime can and it is a second run."""
    if isinstance(case.runtime, CallKeepingRuntime) and case.settings.recompute != _OFF:
        keys = _calls_among(first, plan.suspects) if first is not None and plan is not None else ()
        wanted = [*_wanted(first, keys)] if first is not None else []
        case.runtime.keep_calls(wanted, case.settings.dump_limit)


def _calls_among(
    first: FirstRun, suspects: Sequence[TensorKey], healthy: Collection[str] = ()
) -> tuple[TensorKey, ...]:
    """Return the outputs of calls to judge: the suspects, and others that fail, as any may be a source."""
    if not suspects:
        return ()
    failing = (key for key in failing_keys(first.outcome) if key.io == "output")
    wanted = (key for key in dict.fromkeys((*suspects, *failing)) if str(key.sanitised) not in healthy)
    calls = (key for key in wanted if is_eager(key.layer))
    return tuple(islice(calls, _MOST))


def _wanted(first: FirstRun, suspects: Sequence[TensorKey]) -> Iterator[WantedOutput]:
    """Yield what the first run tells of outputs of calls."""
    comparison, dump = first.outcome.comparison, first.dump
    own = comparison.own_keys if comparison is not None else {}
    records = {str(record.key.sanitised): record for record in dump.records} if dump is not None else {}
    for key in suspects:
        record = records.get(str(own.get(key, key).sanitised))
        if record is None or record.shape is None:
            continue
        yield WantedOutput(key.layer.partition(">")[0], record.dtype, record.shape, _extremes(record))


def _extremes(record: TensorRecord) -> tuple[float, float] | None:
    stats = record.stats
    if stats is None or stats.min is None or stats.max is None:
        return None
    return float(stats.min), float(stats.max)


def isolate_calls(
    case: Case,
    first: FirstRun,
    suspects: Sequence[TensorKey],
    records: Sequence[TensorRecord],
    folder: Path,
    *,
    healthy: Collection[str] = (),
) -> tuple[tuple[Isolated, ...], tuple[str, ...]]:
    """Judge the outputs of calls of torch that :func:`keep_suspected` had kept, by these on the CPU.

    Args:
        case: the test.
        first: its first run.
        suspects: the outputs under suspicion.
        records: the second run's tensors, in execution order.
        folder: of the second run, in which the calls that are convicted are saved.
        healthy: sanitised keys of tensors that failed in the first run only, which are not judged.

    Returns:
        The verdicts, and notes on calls that could not be saved.
    """
    if not isinstance(case.runtime, CallKeepingRuntime) or case.settings.recompute == _OFF:
        return (), ()
    hf32 = case.runtime.producer().get("hf32")
    allowed = frozenset(hf32.split("+")) if hf32 is not None else frozenset({"matmul", "conv"})
    archive = CallArchive(folder / _CALLS, case.settings.dump_limit)
    bench = CallBench(case.runtime.kept_calls(), case.settings.recompute, allowed, archive)
    told = case.steps_of("recomputing calls on the CPU")
    found = bench.isolate(_calls_among(first, suspects, healthy), records, told)
    case.runtime.keep_calls((), 0)
    return found, tuple(archive.notes)


def decided(by_model: Sequence[Isolated], by_call: Sequence[Isolated]) -> tuple[Isolated, ...]:
    """Return one verdict a suspect: by a model where there is one, by its call where that knows more."""
    calls = {one.key: one for one in by_call}
    kept = [
        calls.pop(one.key) if one.alone.verdict == UNKNOWN and one.key in calls else one for one in by_model
    ]
    named = {one.key for one in by_model}
    return (*kept, *(one for key, one in calls.items() if key not in named))
