"""The tensors of a golden that is approved by what was kept of a run: the run's, and those that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.table import layer_of, sanitised_key
from pytest_npudump.errors import StoreError
from pytest_npudump.golden.kept_tensors import KeptTensors, stored_tensors
from pytest_npudump.golden.pair import KEY, left_out, source_layers
from pytest_npudump.results.entry import ResultsError
from pytest_npudump.settings import default_settings

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.golden.tensors import GoldenTensor
    from pytest_npudump.results.pending_run import Pending


def approved_tensors(pending: Pending, golden: Golden, chosen: Collection[str]) -> KeptTensors | None:
    """Return the tensors that an approval keeps; None where the golden keeps none.

    Args:
        pending: the run.
        golden: what the approval writes.
        chosen: keys of the tensors whose statistics are the run's.

    Raises:
        ResultsError: a tensor that the run had is not kept any more.
        GoldenError: one that stays cannot be had, or all are more than the budget.
    """
    record, before = pending.record, pending.golden
    if record is None or pending.goldens is None or KEY not in record.extra:
        return None
    own = stored_tensors(record, store=pending.kept_tensors)
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
