"""``npudump repro``: what is written, and whether it fails here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import emit, to_stderr, write_json
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.errors import RequestError
from pytest_npudump.reproduction.call_folder import CPU, of_call
from pytest_npudump.reproduction.failure import read_failure
from pytest_npudump.reproduction.make import of_operator, write_and_try
from pytest_npudump.reproduction.operands import models_of
from pytest_npudump.reproduction.reduction import Reduction, reduced

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.reproduction.call_folder import CallReproduction
    from pytest_npudump.reproduction.failure import Failure
    from pytest_npudump.reproduction.make import Made
    from pytest_npudump.reproduction.written_files import Reproduction


def run(arguments: argparse.Namespace) -> int:
    """Make it; 0 where its test fails or was not to run, 1 where it passes, 2 where it cannot run."""
    _check(arguments)
    failure = read_failure(arguments.report, arguments.layer)
    found: Reduction | None = None
    if failure.call is not None and arguments.model is None:
        _check_call(arguments, failure)
        reproduction: Reproduction | CallReproduction = of_call(failure, drawn=arguments.synthetic)
    elif arguments.reduce:
        models = models_of(failure, arguments.model)
        with progress("looking for the smallest piece that fails") as report:
            found = reduced(failure, models, arguments.inputs, arguments.runtime, report)
        reproduction = found.reproduction
    else:
        reproduction = of_operator(failure, models_of(failure, arguments.model), drawn=arguments.synthetic)
    made = write_and_try(
        arguments.output,
        reproduction,
        runs=not arguments.no_run,
        runtime=arguments.runtime,
        must_fail=arguments.synthetic,
    )
    if arguments.json:
        write_json(_as_json(arguments.output, made, found), arguments.json)
    if arguments.json != "-":
        emit(_lines(arguments.output, made, found))
    return _ended(arguments, made)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.synthetic and (arguments.reduce or arguments.no_run):
        other = "--reduce" if arguments.reduce else "--no-run"
        raise RequestError(
            f"--synthetic with {other}: drawn values are kept only where the operator's own test has been "
            f"seen to fail on them"
        )
    if arguments.reduce and arguments.no_run:
        raise RequestError("--reduce with --no-run: a piece is known to fail only by running it")
    if arguments.inputs and not arguments.reduce:
        raise RequestError(
            "--inputs: only --reduce runs the whole model; an operator has its own in the dump"
        )


def _check_call(arguments: argparse.Namespace, failure: Failure) -> None:
    """Refuse what a call of torch cannot be."""
    if arguments.reduce:
        raise RequestError(f"--reduce: {failure.key} is of a call of torch, which is one operator already")
    if arguments.runtime not in ("", "auto", "torch_npu"):
        raise RequestError(
            f"--runtime={arguments.runtime}: {failure.key} is of a call of torch: torch_npu runs it, or "
            f"without --runtime the CPU where there is no NPU"
        )


def _lines(folder: Path, made: Made, found: Reduction | None) -> Iterator[str]:
    reproduction, trial = made.reproduction, made.trial
    layers = reproduction.layers
    what = layers[0] if len(layers) == 1 else f"{layers[0]} to {layers[-1]} ({len(layers)} operators)"
    if found is not None:
        yield f"smallest piece: {what}, of {found.operators} that {reproduction.key.layer} follows from"
        yield from (f"checked: {line}" for line in found.checks)
    if trial is None:
        yield f"{what}: written to {folder}, not run: cd {folder} && {reproduction.command}"
    elif trial.fails:
        against = "the CPU" if reproduction.criterion == CPU else f"its {reproduction.criterion}"
        yield f"{what}: fails by itself, held against {against}: cd {folder} && {reproduction.command}"


def _ended(arguments: argparse.Namespace, made: Made) -> int:
    trial, layer = made.trial, made.reproduction.key.layer
    if trial is None or trial.fails:
        return 0
    if trial.error:
        to_stderr(f"npudump: {arguments.output}: its test cannot run here:\n{trial.error}")
        return 2
    if arguments.synthetic:
        to_stderr(f"npudump: {layer}: passes on drawn values, so nothing was written: leave out --synthetic")
    else:
        to_stderr(
            f"npudump: {layer}: passes here by itself, what failed there is not in its inputs and weights: "
            f"is it the device, its driver, the kernel? {arguments.output} is for the machine where it failed"
        )
    return 1


def _as_json(folder: Path, made: Made, found: Reduction | None) -> dict[str, Any]:
    reproduction, trial = made.reproduction, made.trial
    return {
        "folder": str(folder),
        "test": reproduction.failure.test,
        "key": str(reproduction.key),
        "layers": list(reproduction.layers),
        "criterion": reproduction.criterion,
        "synthetic": reproduction.drawn,
        "fails": None if trial is None or trial.error else trial.fails,
        "error": trial.error or None if trial is not None else None,
        "checks": list(found.checks) if found is not None else [],
    }
