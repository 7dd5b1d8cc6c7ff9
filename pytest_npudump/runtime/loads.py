"""Loads of one model that only their order tells apart: one thread keeps an order, several do not."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from threading import Thread

    from pytest_npudump.dump.records import TensorRecord


def loads_without_order(records: Iterable[TensorRecord], loaders: Mapping[str, Thread]) -> Iterator[str]:
    """Say which loads of a model (``#load=N``) came from several threads, so that another run may swap them.

    Args:
        records: of a dump whose directories CANN has named: ``{model}/{model id}/{step}``.
        loaders: the thread that loaded each model id, where that is known.
    """
    found: defaultdict[tuple[object, ...], dict[str, str]] = defaultdict(dict)
    for record in records:
        key = record.key
        found[key.rank, key.device, key.capture, key.model][record.path.parent.parent.name] = (
            record.path.parent.parent.parent.name
        )
    for models in found.values():
        threads = {loaders[model] for model in models if model in loaders}
        if len(threads) > 1:
            names = ", ".join(sorted(thread.name for thread in threads))
            model = next(iter(models.values()))
            yield (
                f"the model {model} was loaded by several threads ({names}): its loads are told apart by "
                f"their order (#load=N), which threads do not keep from run to run; load it in one thread "
                f"and run what was loaded in several, or load and run it in one thread after the other, "
                f"each inside an npu_dump.capture(name)"
            )
