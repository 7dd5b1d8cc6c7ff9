"""Which threads run operators on the NPU at a time at which others may: nothing orders their executions.

Threads that are started while a dump is on are looked at, and from then on the one that starts them. What a
thread ran before it started another one has an order.
"""

from __future__ import annotations

from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.graphs.dispatch import DispatchedOperators
from pytest_npudump.runtime.graphs.lowest_mode import leaves_graphs_alone
from pytest_npudump.runtime.replaced import Replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.runtime.base import Evidence


class ThreadsOfTest:
    """The threads of a test from :meth:`watch` to :meth:`stop`.

    A torch that compiles nothing while operators are looked at (before 2.13) is left alone: what such a test
    runs counts for more than which thread runs it.

    Args:
        device: type of the device, as ``torch.Tensor.device`` has it.
    """

    def __init__(self, device: str = "npu") -> None:
        self._device = device
        self._replaced = Replaced()
        self._seen: dict[Thread, DispatchedOperators] = {}

    def watch(self) -> None:
        """Look at threads that are started from now on."""
        self.stop()
        if leaves_graphs_alone():
            self._replaced.put(Thread, "start", self._start)

    def stop(self, evidence: Evidence | None = None) -> None:
        """Look no more; tell ``evidence`` of the threads that ran operators, where there are several."""
        self._replaced.put_back()
        seen, self._seen = self._seen, {}
        if current_thread() in seen:
            seen[current_thread()].stop()
        runners = {thread for thread, operators in seen.items() if operators.first}
        if evidence is not None and len(runners) > 1:
            evidence.runners.append({("", ""): runners})

    def _start(self, original: Callable[..., Any], thread: Thread) -> Any:
        if current_thread() not in self._seen:
            self._seen[current_thread()] = operators = DispatchedOperators(self._device)
            operators.start()
        operators = self._seen[thread] = DispatchedOperators(self._device)
        run = thread.run

        def watched() -> None:
            operators.start()
            try:
                run()
            finally:
                operators.stop()

        thread.run = watched  # type: ignore[method-assign]
        return original(thread)
