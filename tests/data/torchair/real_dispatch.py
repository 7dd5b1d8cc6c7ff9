"""Has the real torch dispatch operators, to the device "meta" for an NPU, and prints what was seen."""

import json
import sys
import threading
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from pytest_npudump.runtime.graphs import DispatchedOperators

HERE, THERE = torch.ones(4), torch.ones(4, device="meta", requires_grad=True)
PLAIN = THERE.detach()
DOUBLED = THERE * 2
MAKE = (torch.ones, torch.zeros, torch.randn, torch.empty)


class Users(TorchDispatchMode):
    """A mode of the test's own."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        return function(*args, **(kwargs or {}))


def in_thread() -> None:
    thread = threading.Thread(target=lambda: PLAIN + 1)
    thread.start()
    thread.join()


def backward() -> None:
    torch.autograd.backward(DOUBLED, PLAIN)


def under_users_mode() -> None:
    with Users():
        PLAIN.mul(2)


COUNTED = {
    "add": lambda: PLAIN + 1,
    "in place": lambda: PLAIN.add_(1),
    "linear": lambda: torch.nn.functional.linear(PLAIN, torch.ones(4, 4, device="meta")),
    "cat": lambda: torch.cat([PLAIN, PLAIN]),
    "foreach": lambda: torch._foreach_add_([PLAIN], 1),
    "out": lambda: torch.mul(PLAIN, 2, out=torch.empty(4, device="meta")),
    "cast": PLAIN.half,
    "with gradients": lambda: THERE * 2,
    "inference": torch.inference_mode()(lambda: PLAIN + 1),
    "gradient": backward,
    "user's mode": under_users_mode,
}
NOT_COUNTED = {
    "on the CPU": lambda: torch.nn.Linear(4, 4)(HERE),
    "to the device": lambda: HERE.to("meta"),
    "made there": lambda: [make(4, device="meta") for make in MAKE],
    "made alike": lambda: [torch.ones_like(PLAIN), torch.empty_like(PLAIN), PLAIN.new_zeros(3)],
    "copied": lambda: [PLAIN.clone(), PLAIN.contiguous(), torch.empty(4, device="meta").copy_(HERE)],
    "views": lambda: [PLAIN.view(2, 2), PLAIN[1:], PLAIN.detach(), PLAIN.reshape(2, 2).t()],
    "filled": lambda: [PLAIN.zero_(), PLAIN.fill_(1), PLAIN.normal_()],
    "initialised": lambda: torch.nn.Linear(4, 4, device="meta"),
    "other thread": in_thread,
}


def seen(action: Any) -> str:
    operators = DispatchedOperators("meta")
    operators.start()
    try:
        action()
    finally:
        operators.stop()
    return operators.first


def modes() -> list[str]:
    return [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]


def stacks() -> list[list[str]]:
    """Return the modes while ours comes and goes inside of another, and the other inside of ours."""
    found = []
    outer, inner, operators = Users(), Users(), DispatchedOperators("meta")
    with outer:
        operators.start()
        found.append(modes())
    found.append(modes())
    inner.__enter__()
    operators.stop()
    found.append(modes())
    inner.__exit__(None, None, None)
    return [*found, modes()]


def compiled() -> dict[str, Any]:
    """Compile a function while operators are looked at: it has to become a graph."""
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        del inputs
        graphs.append(graph)
        return graph.forward

    function = torch.compile(lambda x: (x.sin() + 1).cos(), backend=backend)
    operators = DispatchedOperators("cpu")
    operators.start()
    same = torch.equal(function(HERE), (HERE.sin() + 1).cos())
    operators.stop()
    return {"graphs": len(graphs), "same": same}


def recorded() -> str:
    """Return what is seen of an operator that is only recorded into a graph."""
    operators = DispatchedOperators("meta", lambda: True)
    operators.start()
    PLAIN.add(1)
    operators.stop()
    return operators.first


result = {
    "counted": {name: seen(action) for name, action in COUNTED.items()},
    "not counted": {name: seen(action) for name, action in NOT_COUNTED.items()},
    "recorded": recorded(),
    "stacks": stacks(),
    "compiled": compiled(),
}
sys.stdout.write(json.dumps(result))
