"""Sessions for pages: of hostile names, and of ten thousand layers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.compare.tensors.picture import draw
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.report.view import (
    BAD,
    CHANGED,
    GOOD,
    IDENTICAL,
    OUTSIDE,
    SOURCE,
    Element,
    ElementsView,
    Neighbourhood,
    SessionView,
    TensorView,
    TestView,
    ViewedOperator,
)

if TYPE_CHECKING:
    from collections.abc import Callable


HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "\"'><img src=x onerror=\"document.title='owned'\">",
    "{{ 7 * 7 }}{% raw %}",
    "safe\u202etxt.exe",
    "层/卷积",
    "--><!--",
    "a\0b\nc",
)


def tensor(layer: str, state: str = OUTSIDE, share: float = 50.0) -> TensorView:
    statistics = (1.5, -1.25, 0.125, 3.0, 0, 0, 0)
    other = statistics if state == IDENTICAL else (1.5 + share, -1.25, 0.25, 3.0, 0, 0, 0)
    key = TensorKey(layer, "output", 0)
    rule = "rtol=1e-05 (preset same)" if state in {SOURCE, OUTSIDE} else ""
    decided: tuple[str, tuple[str, str], str] = ("", ("", ""), "")
    if rule:
        decided = "max", ("1.5", f"{1.5 + share:.6g}"), "± 1e-05"
    return TensorView(key, "Conv", state, share, "float32", "1x8", statistics, other, *decided, rule=rule)


@pytest.fixture(scope="session")
def session() -> SessionView:
    """A failing test of hostile names, its source in the middle, and one that passes."""
    names = [f"net/layer_{number}" for number in range(20)]
    tensors = [tensor(name, IDENTICAL, 0.0) for name in names[:8]]
    tensors += [tensor(names[8], CHANGED, 0.25), tensor(HOSTILE[0], SOURCE, math.inf)]
    tensors += [tensor(name, OUTSIDE, 10.0 + at) for at, name in enumerate((*HOSTILE[1:], *names[9:]))]
    golden = np.random.default_rng(5).normal(size=(8, 30))
    picture = draw(golden, golden + np.eye(8, 30), rtol=0, atol=1e-3)
    elements = ElementsView(
        str(tensors[9].key),
        reproduced=True,
        measures=(("max abs error", 1.0), ("cosine similarity", HOSTILE[1])),
        pattern=HOSTILE[0],
        worst=(Element((0, 1), 1.0, "nan", "nan"),),
        picture=picture,
        note=HOSTILE[1],
        path="",
    )
    around = Neighbourhood(
        HOSTILE[0],
        (
            ViewedOperator(names[8], "Conv", CHANGED, 8, -1, 0),
            ViewedOperator(HOSTILE[0], HOSTILE[1], SOURCE, 9, 0, 0),
            ViewedOperator(HOSTILE[1], "Add", OUTSIDE, 10, 1, 0),
        ),
        ((0, 1), (1, 2)),
        0,
    )
    failed = TestView(
        name=f"test_a.py::test_b[{HOSTILE[0]}]",
        word=BAD,
        status="failed",
        runtime=HOSTILE[1],
        headline=HOSTILE[0],
        ways_out=(f"to accept:  pytest --npudump-update-golden '{HOSTILE[1]}'",),
        text=HOSTILE,
        tensors=tuple(tensors),
        sources=(str(tensors[9].key),),
        neighbourhoods=(around,),
        elements=(elements,),
        producers=(("cann", "8.0", HOSTILE[0]), ("model", None, "x")),
        notes=HOSTILE,
        golden=HOSTILE[0],
        preset=HOSTILE[0],
    )
    passed = TestView("test_a.py::test_c", GOOD, "passed", "emulator", tensors=tuple(tensors[:8]))
    return SessionView((failed, passed), problems=HOSTILE[:1], version="1.0")


@pytest.fixture(scope="session")
def large() -> Callable[[str], SessionView]:
    """A test of 10,000 layers with names as long as real ones, all in one state but a source."""

    def make(state: str) -> SessionView:
        rng = np.random.default_rng(6)
        tensors = [
            tensor(
                f"model/decoder/layers.{at // 40}/self_attn/{'qkvo'[at % 4]}_proj/MatMul_{at}", state, share
            )
            for at, share in enumerate((rng.random(10_000) * 1e4).tolist())
        ]
        values = rng.normal(size=(2, 10_000, 7))
        tensors = [
            replace(one, golden=tuple(before), actual=tuple(now))
            for one, before, now in zip(tensors, *values.tolist(), strict=True)
        ]
        tensors[5000] = tensor("model/decoder/layers.125/source", SOURCE, math.inf)
        test = TestView("test_a.py::test_b", BAD, "failed", "pyacl", tensors=tuple(tensors))
        return SessionView((test,), version="1.0")

    return make
