"""Loads and runs that only their order tells apart: one thread keeps an order, several do not."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
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
                f"their order (#load=N), which threads do not keep from run to run; load and run it in one "
                f"thread, or in one thread after the other, each inside an npu_dump.capture(name); or load "
                f"it in one thread, once for each thread that runs it, which calls acl.rt.set_context() first"
            )


def runs_without_order(
    records: Collection[TensorRecord], runners: Iterable[Mapping[tuple[str, str], Collection[Thread]]]
) -> Iterator[str]:
    """Say which models and operators were run by several threads, so that another run may swap their steps.

    Threads that ran one after the other are no exception: nothing tells those that had to from those that
    happened to.

    Args:
        records: of a dump whose directories CANN has named.
        runners: as in :attr:`~pytest_npudump.runtime.base.Evidence.runners`.
    """
    folders = {record.path.parent.parent for record in records}
    models = {name for folder in folders for name in (folder.name, folder.parent.name)}
    operators = {record.op_type for record in records}
    again = any(record.key.turn for record in records)
    for dump in runners:
        for (name, model), threads in dump.items():
            dumped = model in models if model else name in operators if name else again
            if len(threads) > 1 and dumped:
                yield _without_order(name, model, ", ".join(sorted(thread.name for thread in threads)))


def _without_order(name: str, model: str, threads: str) -> str:
    what, whose, number, way = f"the operator {name} was", "its", "#turn=N", "run it"
    if model:
        what, number, way = f"the model {name} was", "#step=N", "load and run it"
    elif not name:
        what, whose, way = "operators were", "their", "run them"
    return (
        f"{what} run by several threads ({threads}): {whose} executions are told apart by their order "
        f"({number}), which threads do not keep from run to run; {way} in one thread, or in one thread after "
        f"the other, each inside an npu_dump.capture(name)"
    )
