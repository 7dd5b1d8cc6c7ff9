"""Golden tensors of a run that differs from its golden: kept with its results, for an approval later.

They are those of the run itself, where it dumped any, or of the second run, whose statistics have to be the
first one's. A layer whose statistics are the golden's digit for digit keeps the tensor that is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import alike_layers
from pytest_npudump.errors import NpudumpError
from pytest_npudump.golden.kept_tensors import KeptTensors
from pytest_npudump.golden.objects.stored_golden import naming
from pytest_npudump.golden.objects.tensor_store import content_of
from pytest_npudump.golden.pair import HASH, STORED, facts_of
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.kept_layers import named_layers
from pytest_npudump.regression.outcome import Escalation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.records import Dump, TensorRecord
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.golden.tensors import Tensor
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.kept_layers import KeptLayers
    from pytest_npudump.regression.outcome import FirstRun, Result

_WAITING = (status.FAILED, status.MISSING_GOLDEN)
_UPDATE = "approve with --npudump-update-golden"


@dataclass(frozen=True, slots=True, eq=False)
class PendingTensors:
    """What a run has of the tensors that its golden is to keep.

    Attributes:
        tensors: those that are kept with its results.
        inherited: keys, as file names spell them, of tensors that stay as the golden has them.
        refusals: why the run cannot be approved without running again, in words.
    """

    tensors: KeptTensors = field(default_factory=lambda: KeptTensors({}))
    inherited: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def named_by(self, record: Golden, found: dict[str, Tensor]) -> Golden:
        """Return a run's record that names the tensors.

        Args:
            record: without.
            found: gets the tensors, by the SHA-256 of their bytes.
        """
        arrays = {key: array for key, (array, _) in self.tensors.tensors.items()}

        def keep(array: Tensor) -> tuple[str, int]:
            digest, size = content_of(array)
            found.update({digest: array} if size else {})
            return digest, size

        facts = facts_of({STORED: HASH}, self.tensors.left_out, self.tensors.sources)
        return naming(record, arrays, facts, keep)


def pending_tensors(case: Case, result: Result, first: FirstRun) -> PendingTensors | None:
    """Return what can be kept of a test that waits for a decision; None where its golden keeps no tensors.

    Args:
        case: the test.
        result: what became of the test.
        first: the run that decided.
    """
    dump, snapshot = first.dump, first.snapshot
    if not case.request.golden_tensors or snapshot is None or result.outcome.status not in _WAITING:
        return None
    if dump is None or first.kept is None:
        return PendingTensors(refusals=(f"its golden keeps tensors, which only a run has: {_UPDATE}",))
    again = result.escalation or Escalation()
    try:
        return _collected(case, first.kept, dump, again)
    except NpudumpError as error:
        return PendingTensors(refusals=(f"its golden tensors cannot be kept: {error}",))


def _collected(case: Case, kept: KeptLayers, dump: Dump, again: Escalation) -> PendingTensors:
    wanted, named, doubtful = {*kept.layers}, named_layers(case), alike_layers(dump)
    found: list[TensorRecord] = []
    inherited: list[str] = []
    lacking: list[str] = []
    left_out: list[str] = []
    for record in dump.records:
        key, layer = str(record.key.sanitised), sanitise(record.key.layer)
        if record.key.layer not in wanted:
            continue
        at_hand = record if record.payload is not None else again.alike.get(key)
        if layer in doubtful:
            (lacking if layer in named else left_out).append(layer)
        elif at_hand is not None:
            found.append(at_hand)
        elif key in kept.inherited:
            inherited.append(key)
        else:
            lacking.append(str(record.key))
    if lacking:
        return PendingTensors(refusals=(_lacking(lacking, again.problem),))
    tensors = KeptTensors.of(found, dict.fromkeys(left_out), kept.sources)
    tensors.refuse_beyond(case.settings.tensor_budget)
    return PendingTensors(tensors, tuple(inherited))


def _lacking(keys: Sequence[str], problem: str) -> str:
    why = f" ({problem})" if problem else ""
    return (
        f"its golden keeps tensors, and neither the run nor its second run has that of "
        f"{first_of(dict.fromkeys(keys))}{why}: {_UPDATE}"
    )
