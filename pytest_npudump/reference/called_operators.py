"""The eager calls under suspicion in a dump, each recomputed on the CPU from what it was given.

A dumped tensor is a call's result if the call may run its operator of CANN and gave the same bytes, and if as
many tensors of that operator have these bytes as calls gave them, so that their order pairs them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import NpudumpError
from pytest_npudump.reference.call_alone import judge_call
from pytest_npudump.reference.dumped_operators import NotAtHandError, host_of
from pytest_npudump.reference.operator_alone import CONVICTED, UNKNOWN, Alone
from pytest_npudump.reference.suspects import Isolated
from pytest_npudump.runtime.aten.call_files import Judged
from pytest_npudump.runtime.aten.kept_calls import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.reference.call_archive import CallArchive
    from pytest_npudump.runtime.aten.kept_calls import Kept, KeptCall

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class CallBench:
    """What calls are recomputed with.

    Attributes:
        kept: the calls of the run.
        wide: type in which the CPU computes, ``float32`` or ``float64``.
        hf32: kinds of operators that may take float32 operands as HF32, ``matmul`` and ``conv``.
        archive: where calls go that are convicted; None for nowhere.
    """

    kept: Kept
    wide: str = "float32"
    hf32: frozenset[str] = frozenset({"matmul", "conv"})
    archive: CallArchive | None = None

    def isolate(
        self,
        suspects: Sequence[TensorKey],
        records: Sequence[TensorRecord],
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Isolated, ...]:
        """Judge outputs by what their calls were given.

        Args:
            suspects: the outputs of eager calls.
            records: the tensors of the run, those of the suspects' layers among them, in execution order.
            progress: called with (outputs judged, outputs in all).
        """
        found = []
        for number, key in enumerate(suspects, 1):
            found.append(self._isolated(key, records))
            if progress is not None:
                progress(number, len(suspects))
        return tuple(found)

    def _isolated(self, key: TensorKey, records: Sequence[TensorRecord]) -> Isolated:
        name, saved = "", None
        try:
            record = next((one for one in records if one.key.sanitised == key.sanitised), None)
            if record is None:
                raise NotAtHandError("the second run has no such tensor")
            output = host_of(record, 0)
            digest = digest_of(output)
            call = self._call_of(record, digest, records)
            name = call.name
            place, alone = self._judged(call, record.dtype, output, digest)
            if alone.verdict == CONVICTED and self.archive is not None:
                judged = self._told(call, place, record.dtype, alone)
                saved = self.archive.save(call, judged, output)
        except NpudumpError as error:
            alone = Alone(UNKNOWN, why=str(error))
        return Isolated(key, "", "", own=False, alone=alone, call=name, saved=saved)

    def _call_of(self, record: TensorRecord, digest: str, records: Sequence[TensorRecord]) -> KeptCall:
        layer = record.key.layer
        api = layer.partition(">")[0]
        related = [call for call in self.kept.calls if call.may_run(api)]
        calls = [call for call in related if any(given.digest == digest for given in call.results)]
        if not calls:
            why = next((call.why_not for call in related if not call.results), self.kept.why_none)
            raise NotAtHandError(why or f"no call of torch that is known to run {api} gave these values")
        turns = [*self._turns_of(record, digest, records)]
        if len(turns) != len(calls):
            raise NotAtHandError(
                f"{len(turns)} dumped tensors of {layer} have these values, and {len(calls)} calls of torch "
                f"gave them: which one gave it is not certain"
            )
        return calls[turns.index(replace(record.key, slot=0))]

    @staticmethod
    def _turns_of(record: TensorRecord, digest: str, records: Sequence[TensorRecord]) -> Iterable[TensorKey]:
        """Return the executions of the operator that gave the same values, in order."""
        alike = (
            one
            for one in records
            if one.key == record.key or (_is_like(one, record) and digest_of(host_of(one, 0)) == digest)
        )
        return dict.fromkeys(replace(one.key, slot=0) for one in alike)

    def _judged(self, call: KeptCall, dtype: str, output: Array, digest: str) -> tuple[int, Alone]:
        """Return a place among the results of a call, and the verdict on what it gave there."""
        if call.why_not:
            raise NotAtHandError(call.why_not)
        places = [given.place for given in call.results if given.digest == digest]
        plain = self._is_plain(call)
        found = [judge_call(call, place, dtype, output, wide=self.wide, plain=plain) for place in places]
        if len({alone.verdict for alone in found}) > 1:
            raise NotAtHandError(f"{call.name} gave these values {len(found)} times, not all of them rightly")
        return places[0], found[0]

    def _is_plain(self, call: KeptCall) -> bool:
        return ("conv" if "conv" in call.operator else "matmul") not in self.hf32

    def _told(self, call: KeptCall, place: int, dtype: str, alone: Alone) -> Judged:
        apart, allowed = (one if math.isfinite(one) else None for one in (alone.apart, alone.allowed))
        return Judged(place, dtype, self.wide, self._is_plain(call), apart, allowed, alone.why)


def _is_like(other: TensorRecord, record: TensorRecord) -> bool:
    """Whether another tensor of the same operator may have the same values, as far as is known unread."""
    alike = other.key.layer == record.key.layer and other.key.io == record.key.io == "output"
    if not alike or (other.dtype, other.shape) != (record.dtype, record.shape):
        return False
    stats, others = record.stats, other.stats
    return stats is None or others is None or (stats.max, stats.min) == (others.max, others.min)
