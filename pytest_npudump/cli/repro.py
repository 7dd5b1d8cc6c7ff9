"""``npudump repro``: what is written, and whether it fails here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from pytest_npudump.cli.common.output import present, to_stderr
from pytest_npudump.cli.common.project import last_results
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.reproduction.failure import models_of, read_failure
from pytest_npudump.explain.reproduction.reproduction import (
    CPU,
    CallReproduction,
    OperatorReproduction,
    Reproduction,
    TrialRun,
    of_call,
    of_operator,
    write_and_try,
)
from pytest_npudump.language.text import typed
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.regression.result import GOOD
from pytest_npudump.report.verdicts import shown
from pytest_npudump.results.folder import LINES, results_in


def run(arguments: argparse.Namespace) -> int:
    """Make it; 0 where its test fails or was not to run, 1 where it passes, 2 where it cannot run."""
    if arguments.synthetic and arguments.no_run:
        raise RequestError(
            "--synthetic with --no-run: drawn values are kept only where the operator's own test has "
            "been seen to fail on them"
        )
    failure = read_failure(_report(arguments.report), arguments.layer)
    if failure.call is not None and arguments.model is None:
        if arguments.runtime not in ("", "auto", "torch_npu"):
            raise RequestError(
                f"--runtime={arguments.runtime}: {failure.key} is of a call of torch: torch_npu runs it, or "
                "without --runtime the CPU where there is no NPU"
            )
        reproduction: CallReproduction | OperatorReproduction = of_call(failure, drawn=arguments.synthetic)
    else:
        models = models_of(failure, arguments.model)
        operators = {sanitise(node.name) for node in models.device.nodes}
        if sanitise(failure.key.layer) in {*map(sanitise, models.device.inputs)} - operators:
            raise RequestError(
                f"{failure.key} is an input of {models.device.path.name}, which no operator computes: what "
                "the test feeds in has changed, or the golden was recorded with something else"
            )
        reproduction = of_operator(failure, models, drawn=arguments.synthetic)
    trial = write_and_try(
        arguments.output,
        reproduction,
        runs=not arguments.no_run,
        runtime=arguments.runtime,
        must_fail=arguments.synthetic,
    )
    present(
        arguments,
        lambda: {
            "folder": str(arguments.output),
            "test": reproduction.failure.test,
            "key": str(reproduction.key),
            "layers": [reproduction.layer],
            "criterion": reproduction.criterion,
            "synthetic": reproduction.drawn,
            "fails": None if trial is None or trial.error else trial.fails,
            "error": trial.error or None if trial is not None else None,
        },
        _lines(arguments.output, reproduction, trial),
    )
    return _ended(arguments, reproduction, trial)


def _report(named: Path | None) -> Path:
    """Return the report that is named, or the only one of a folder's last session, else of all its tests."""
    if named is not None and not (results_in(named) / LINES).is_file():
        return named
    results = last_results(named).read()
    entries = [one for one in results.entries if one.data["details"]]
    last = [one for one in entries if one.data["session"] == results.session]
    reports = [Path(one.data["details"]).parent for one in last or entries]
    if all(one.status in GOOD for one in results.entries):
        raise RequestError(_("no test failed: there is nothing to reproduce"))
    if len(reports) != 1:
        words = _("{count} tests have a report: name one as RESULT").format(count=len(reports))
        listed = [*map(shown, reports[:_LISTED])]
        if (left := len(reports) - _LISTED) > 0:
            listed.append(_("... and {left} more").format(left=left))
        raise RequestError("\n  ".join([words, *listed]))
    return reports[0]


_LISTED = 10


def _lines(folder: Path, reproduction: Reproduction, trial: TrialRun | None) -> Iterator[str]:
    command = f"{typed('cd', folder)} && {reproduction.command}"
    if trial is None:
        yield f"{reproduction.layer}: written to {folder}, not run: {command}"
    elif trial.fails:
        by_cpu = reproduction.criterion == CPU
        against = "the CPU" if by_cpu else f"its {reproduction.criterion}"
        yield f"{reproduction.layer}: failure reproduced against {against}: {command}"


def _ended(arguments: argparse.Namespace, reproduction: Reproduction, trial: TrialRun | None) -> int:
    layer = reproduction.key.layer
    if trial is None or trial.fails:
        return 0
    if trial.error:
        to_stderr(f"npudump: {arguments.output}: its test cannot run here:\n{trial.error}")
        return 2
    if arguments.synthetic:
        to_stderr(f"npudump: {layer}: passes on drawn values, so nothing was written: leave out --synthetic")
    elif reproduction.failure.reproduced is False:
        to_stderr(
            f"npudump: {layer}: passes here; the second run of {reproduction.failure.test}, "
            "whose inputs these are, did not reproduce the failure"
        )
    else:
        to_stderr(
            f"npudump: {layer}: passes here, so its inputs and weights are not the cause; run "
            f"{arguments.output} where it failed: its README.md has the versions of both runs"
        )
    return 1
