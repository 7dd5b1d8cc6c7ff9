"""From a report to a folder whose test fails: read, cut, write, run."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import RequestError
from pytest_npudump.reproduction.drawn import draw
from pytest_npudump.reproduction.model_piece import cut_piece
from pytest_npudump.reproduction.operands import GOLDEN, read_operands
from pytest_npudump.reproduction.written_files import Reproduction, golden_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.reproduction.call_folder import CallReproduction
    from pytest_npudump.reproduction.failure import Failure
    from pytest_npudump.reproduction.operands import Models
    from pytest_npudump.reproduction.trial import Trial

_KEPT_WEIGHTS = ("The weights are those of the models: that they differ may be the fault.",)


@dataclass(frozen=True, slots=True)
class Made:
    """A reproduction that was written.

    Attributes:
        reproduction: what is in the folder: a model, or a call of torch.
        trial: what became of its test; None where it was not run.
    """

    reproduction: Reproduction | CallReproduction
    trial: Trial | None


def of_operator(failure: Failure, models: Models, *, drawn: bool = False) -> Reproduction:
    """Return the reproduction of one operator on the inputs that the second run dumped.

    Args:
        failure: what is to be reproduced.
        models: of the failing test.
        drawn: whether inputs, and the weights of an operator whose own model says what is right, are drawn.

    Raises:
        RequestError: the operator does not fail by itself, its inputs were not dumped, or only a golden could
            show the fault, which has no say about drawn inputs.
        ModelError: onnxruntime refuses a model.
    """
    operands = read_operands(failure, models)
    if drawn and operands.criterion == GOLDEN:
        raise RequestError(
            f"--synthetic: {failure.key} is held against its golden, which has no say about other inputs; "
            f"with reference= in the marker of {failure.test} a reference can say what is right"
        )
    found, judged = operands.found, operands.judged
    feeds = {name: draw(one, at) if drawn else one for at, (name, one) in enumerate(found.feeds.items())}
    piece = cut_piece(models.device, [found.node], feeds, tensor=found.tensor, drawn=drawn and models.own)
    reference = None
    if not models.own:
        pairs = zip(judged.feeds.items(), feeds.values(), strict=True)
        same = {name: one.astype(array.dtype) for (name, array), one in pairs}
        reference = cut_piece(models.reference, [judged.node], same, tensor=judged.tensor)
    golden = failure.golden if operands.criterion == GOLDEN else None
    return Reproduction(
        failure=failure,
        name=models.device.path.stem,
        origin=models.device.path.name,
        layers=(found.node.name,),
        model=piece.content,
        inputs=feeds,
        criterion=operands.criterion,
        reference=reference.content if reference is not None else None,
        golden=golden_of(golden, failure.key) if golden is not None else None,
        expected=(reference or piece).outputs,
        got={} if drawn else {found.tensor: found.output},
        alone=operands.alone,
        drawn=drawn,
        remarks=_KEPT_WEIGHTS if drawn and not models.own else (),
    )


def write_and_try(
    folder: Path,
    reproduction: Reproduction | CallReproduction,
    *,
    runs: bool,
    runtime: str = "",
    must_fail: bool = False,
) -> Made:
    """Write a reproduction, and run its test, or its script.

    Args:
        folder: where to; it must not exist, or be empty. It appears whole or not at all.
        reproduction: what to write.
        runs: whether its test runs.
        runtime: as in ``--npudump-runtime``; "" for what is found.
        must_fail: nothing is left where the test does not fail.

    Raises:
        RequestError: the folder holds something.
        OSError: it cannot be written.
    """
    with staged(folder) as stage:
        reproduction.write(stage)
        trial = reproduction.run(stage, runtime) if runs else None
        if not must_fail or (trial is not None and trial.fails):
            _publish(stage, folder)
    return Made(reproduction, trial)


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Give a folder beside ``folder`` to write into, which goes afterwards.

    Raises:
        RequestError: ``folder`` is there and holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"-o {folder}: is there already and not empty: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish(stage: Path, folder: Path) -> None:
    for cache in (*stage.rglob("__pycache__"), stage / ".pytest_cache"):
        shutil.rmtree(cache, ignore_errors=True)
    stage.chmod(0o777 & ~_umask())
    stage.replace(folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
