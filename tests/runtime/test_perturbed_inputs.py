"""Inputs in memory that is not ours: other values for as long as a model runs, and its own behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_npudump.onnxmodels.variation import Variation
from pytest_npudump.runtime.replacement import PerturbedInputs, Replaced, Unreached


@dataclass
class Held:
    """An input whose memory is an array."""

    values: np.ndarray
    name: str = "x"
    written: list[np.ndarray] = field(default_factory=list)

    def read(self) -> np.ndarray:
        return self.values.copy()

    def write(self, values: np.ndarray) -> None:
        self.written.append(values)
        self.values = values.copy()


class Hidden:
    name = "mask"

    def read(self) -> np.ndarray:
        raise Unreached("in a private format")

    def write(self, values: np.ndarray) -> None:
        raise AssertionError(values)


@pytest.fixture
def inputs() -> PerturbedInputs:
    found = PerturbedInputs()
    found.begin(Variation(seed=4))
    return found


def image() -> np.ndarray:
    return np.linspace(0.1, 0.9, 100, dtype=np.float32)


def test_values_differ_by_a_step_while_the_model_runs_and_are_back_behind_it(inputs: PerturbedInputs) -> None:
    held = Held(image())
    with inputs.of([held]):
        steps = np.abs(held.values.view(np.int32) - image().view(np.int32))
        assert 0 < steps.max() <= 2
    np.testing.assert_array_equal(held.values, image())
    assert inputs.varying.perturbed == {"x"}


def test_what_the_model_writes_to_its_input_stays(inputs: PerturbedInputs) -> None:
    cache = Held(image())
    with inputs.of([cache]):
        cache.values[3] = 7
    assert cache.values[3] == 7


def test_executions_of_a_run_differ_and_runs_of_one_seed_do_not(inputs: PerturbedInputs) -> None:
    def seen() -> list[np.ndarray]:
        held = Held(image())
        for _ in range(2):
            with inputs.of([held]):
                pass
        return held.written[::2]

    first = seen()
    inputs.begin(Variation(seed=4))
    again = seen()
    assert (first[0] != first[1]).any()
    np.testing.assert_array_equal(first, again)


def test_integers_and_what_cannot_be_reached_stay_and_are_named(inputs: PerturbedInputs) -> None:
    ids = Held(np.arange(4), "ids")
    with inputs.of([ids, Hidden()]):
        assert not ids.written
    assert inputs.varying.unperturbed == {"ids"}
    assert inputs.varying.unreached == {"mask (in a private format)"}
    assert not inputs.varying.perturbed


def test_an_error_of_the_model_is_raised_and_its_inputs_are_left_alone(inputs: PerturbedInputs) -> None:
    held = Held(image())
    with pytest.raises(RuntimeError, match="507015"), inputs.of([held]):
        raise RuntimeError("507015")
    assert len(held.written) == 1


def test_a_replacement_beside_another_runs_through_both_and_comes_back_in_any_order() -> None:
    def called() -> list[str]:
        owner.f()
        return [seen.pop() for _ in range(len(seen))]

    seen: list[str] = []
    owner = SimpleNamespace(f=lambda: seen.append("f"))
    original, first, second = owner.f, Replaced(), Replaced()
    for ends in (second, first), (first, second):
        first.put(owner, "f", lambda f: (f(), seen.append("first")))
        second.put(owner, "f", lambda f: (f(), seen.append("second")), beside=True)
        assert called() == ["second", "first", "f"]
        kept = owner.f
        ends[0].put_back()
        assert called() == ["first" if ends[0] is second else "second", "f"]
        ends[1].put_back()
        assert (owner.f is original, called()) == (True, ["f"])
        owner.f = kept  # as a fixture does that had replaced the function
        first.put(owner, "f", lambda f: (f(), seen.append("left behind")))
        second.put(owner, "f", lambda f: (f(), seen.append("anew")))
        assert called() == ["anew", "f"]
        second.put_back()
        assert owner.f is original
