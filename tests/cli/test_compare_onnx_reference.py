"""``npudump compare MODEL.onnx DUMP`` on dumps that CANN's own code wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Done

DATA = Path(__file__).parents[1] / "data" / "reference"


def test_dump_that_agrees_is_0(run: Callable[..., Done], classifier: Path) -> None:
    done = run("compare", classifier, DATA / "golden", "--inputs", classifier.with_suffix(".npz"))
    assert done.code == 0, done
    assert "of 5 of 5 layers, all within tolerance" in done.out


def test_dump_of_changed_weights_is_1(run: Callable[..., Done], classifier: Path) -> None:
    inputs = ("--inputs", classifier.with_suffix(".npz"))
    done = run("compare", classifier, DATA / "regressed", *inputs)
    assert done.code == 1
    assert "\nagainst the reference classifier.onnx: net/Conv@22:input.0 relative_l2 0.11102 from" in done.out
    assert run("compare", classifier, DATA / "regressed", *inputs, "--rtol", "0.5").code == 0
    assert run("compare", classifier, DATA / "golden", *inputs, "--rtol", "1e-7").code == 1
    found = run("compare", classifier, DATA / "regressed", *inputs, "--json", "-").json
    assert found["first"] == "net/Conv@22:input.0"
    assert len(found["comparison"]["verdicts"]) == found["comparison"]["summary"]["compared"]


@pytest.mark.each(
    ("words", "message"),
    [
        ((), "the inputs of the model are not known"),
        (("--inputs", "gone.npz"), "--inputs gone.npz: cannot be read"),
        (("--map", "gone.yaml"), "map: gone.yaml cannot be read"),
        (("--rtol", "-1"), "--rtol -1.0: expected a finite number"),
        (("--preset", "nope"), "unknown tolerance preset 'nope'"),
    ],
)
def test_what_cannot_be_compared_is_2(
    run: Callable[..., Done], classifier: Path, words: tuple[str, ...], message: str
) -> None:
    done = run("compare", classifier, DATA / "golden", *words)
    assert done.code == 2
    assert message in done.out + done.err


def test_inputs_of_another_kind_or_without_a_model_are_2(
    run: Callable[..., Done], classifier: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.savez(tmp_path / "o.npz", x=np.array([object()]))
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 no archive")
    for name, told in (("x.npy", "expected an npz file"), ("o.npz", ""), ("b.npz", "")):
        done = run("compare", classifier, DATA / "golden", "--inputs", tmp_path / name)
        assert (done.code, told in done.err) == (2, True)
    done = run("compare", DATA / "golden", DATA / "golden", "--inputs", classifier.with_suffix(".npz"))
    assert done.code == 2
    assert "--inputs: only with an ONNX model in place of GOLDEN" in done.err
