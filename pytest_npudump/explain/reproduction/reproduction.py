"""Reproduction as a folder: written whole or not at all, run in a process of its own, with a README."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.errors import RequestError
from pytest_npudump.golden.origin import installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.explain.reproduction.failure import FailingTensor

    Array = np.ndarray[Any, np.dtype[Any]]


README = "README.md"
_COLUMNS = ("max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_LAST = 20
"""Lines of what a process printed that say why nothing could be judged."""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """Result of a reproduction's test.

    Attributes:
        fails: whether its layers differ; a test that cannot run does not fail so.
        error: why nothing could be judged, in words; "" where something was.
    """

    fails: bool
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reproduction(ABC):
    """Reproduction of a failure by itself, and its folder.

    Attributes:
        failure: what the report knows of it.
        layer: name of the operator.
        criterion: what the output is held against.
        drawn: whether inputs, and weights, are drawn.
    """

    command: ClassVar[str]
    """Command that runs it in its folder."""

    failure: FailingTensor
    layer: str
    criterion: str
    drawn: bool = False

    @property
    def key(self) -> TensorKey:
        """The tensor that fails."""
        return self.failure.key

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write it into an empty folder.

        Raises:
            NpudumpError: what it consists of cannot be written.
            OSError: a file cannot be written.
        """

    @abstractmethod
    def run(self, folder: Path, runtime: str) -> TrialRun:
        """Run it where it was written, on a runtime as in ``--npudump-runtime``; "" for what is found."""


def write_and_try(
    folder: Path, reproduction: Reproduction, *, runs: bool, runtime: str = "", must_fail: bool = False
) -> TrialRun | None:
    """Write a reproduction, and run its test, or its script.

    Args:
        folder: where to; it must not exist, or be empty. It appears whole or not at all.
        reproduction: what to write.
        runs: whether its test runs.
        runtime: as in ``--npudump-runtime``; "" for what is found.
        must_fail: nothing is left where the test does not fail.

    Returns:
        What became of its test; None where it was not run.

    Raises:
        RequestError: the folder holds something.
        OSError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"-o {folder}: is there already and not empty: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        reproduction.write(stage)
        trial = reproduction.run(stage, runtime) if runs else None
        if not must_fail or (trial is not None and trial.fails):
            for cache in (*stage.rglob("__pycache__"), stage / ".pytest_cache"):
                shutil.rmtree(cache, ignore_errors=True)
            mask = os.umask(0)
            os.umask(mask)
            stage.chmod(0o777 & ~mask)
            stage.replace(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return trial


def ran(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in a folder, with the environment that pytest was started in."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return subprocess.run(  # noqa: S603 - pytest or a script of ours, of this interpreter
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )


def trial_of(done: subprocess.CompletedProcess[str], name: str, *, fails: bool) -> TrialRun:
    """Parse the end of a process: exit code 0 for a pass, 1 for the expected failure.

    Args:
        done: the process.
        name: of the program.
        fails: whether it says that layers differ.
    """
    if done.returncode == 0:
        return TrialRun(fails=False)
    if done.returncode == 1 and fails:
        return TrialRun(fails=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return TrialRun(fails=False, error="\n".join(lines[-_LAST:]) or f"{name} ended with {done.returncode}")


def readme(
    failure: FailingTensor,
    *,
    title: str,
    given: str,
    run: str,
    judged: Iterable[str],
    arrays: Mapping[str, Array],
    arguments: Iterable[str] = (),
    files: Mapping[str, str],
    packages: Iterable[str],
    golden: Mapping[str, str],
) -> str:
    """Return the README of a reproduction, in Markdown.

    Args:
        failure: what the report knows of it.
        title: name of the operator.
        given: on what, in a sentence.
        run: the section on how to run it.
        judged: what the output is compared with, and its error, a sentence each.
        arrays: what is known of the output, by who made it.
        arguments: lines behind the table of these.
        files: what each is, by name.
        packages: of which the versions here are told.
        golden: facts of the golden's run.
    """
    lines = [f"# Reproduction of {code(title)}", f"\n{given}\n", run, "## What fails\n"]
    if failure.reasons:
        lines.append(f"Mismatch of {code(str(failure.key))} in {code(failure.test)}:\n")
        lines += [*(f"* {code(reason)}" for reason in failure.reasons), ""]
    lines += [*judged, f"\n| | {' | '.join(_COLUMNS)} |", f"|---{'|---' * len(_COLUMNS)}|"]
    for who, array in arrays.items():
        stats = tensor_stats(array)
        values = (getattr(stats, name) for name in _COLUMNS)
        lines.append(f"| {who} | {' | '.join('-' if v is None else f'{v:.6g}' for v in values)} |")
    lines += ["", *arguments, "## Files\n", *(f"* {name}: {what}" for name, what in files.items())]
    lines.append("\n## Versions\n\n| | | |\n|---|---|---|")
    here = {**installed("pytest-npudump"), "Python": platform.python_version()}
    here |= dict(pair for package in packages for pair in installed(package).items())
    told = {"the failing run": failure.producer, "its golden": golden, "this folder": here}
    for who, facts in told.items():
        lines += [f"| {who} | {code(name)} | {code(str(value))} |" for name, value in facts.items()]
    return "\n".join((*lines, ""))


def code(text: str) -> str:
    """Return text as code, whatever a layer is called: nothing in it is Markdown."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text).replace("|", "\\|")
    longest = max(map(len, "".join(c if c == "`" else " " for c in plain).split()), default=0)
    edge = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{'`' * (longest + 1)}{edge}{plain}{edge}{'`' * (longest + 1)}"


_SEED = 20


def draw(array: Array, number: int = 0) -> Array:
    """Return random values like those of an array.

    Floats: as many NaN, infinities and zeros, in other places; the others from a normal distribution of the
    same mean and deviation, cut at the least and the greatest. Integers: evenly from the least to the
    greatest. Booleans: as many that are true. None of the values is taken over but these limits.

    Args:
        array: of any shape and numeric type.
        number: which array it is: each has random numbers of its own, and the same in each call.
    """
    if not array.size:
        return array
    rng = np.random.default_rng([_SEED, number])
    kind = BY_NAME[array.dtype.name].kind
    if kind == "bool":
        flat: Array = array.reshape(-1).copy()
        rng.shuffle(flat)
        return np.reshape(flat, array.shape)
    if kind == "int":
        least, most = int(array.min()), int(array.max())
        wide = np.uint64 if most > _INT64 else np.int64
        whole = rng.integers(least, most, array.size, dtype=wide, endpoint=True)
        return np.reshape(whole.astype(array.dtype), array.shape)
    return _floats(array, rng)


_INT64 = np.iinfo(np.int64).max


def _floats(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind == "c":
        both = np.empty_like(array)
        both.real, both.imag = _floats(array.real, rng), _floats(array.imag, rng)
        return both
    wide: Array = array.astype(np.float64).reshape(-1)
    usual = np.isfinite(wide) & (wide != 0)
    values = wide[usual]
    if values.size:
        scale = np.abs(values).max()  # squares of large values overflow
        shares = values / scale
        new = rng.normal(shares.mean(), shares.std(), values.size)
        drawn = np.clip(new, shares.min(), shares.max()) * scale
        wide[usual] = np.clip(drawn, values.min(), values.max())  # the product may be off by a last digit
    rng.shuffle(wide)
    with np.errstate(over="ignore"):
        return np.reshape(wide.astype(array.dtype), array.shape)
