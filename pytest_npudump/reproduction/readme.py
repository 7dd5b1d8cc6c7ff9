"""The words that a reproduction comes with."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from pytest_npudump import __version__
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.golden.origin import installed
from pytest_npudump.language.shell import typed
from pytest_npudump.reproduction.operands import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    import numpy as np

    from pytest_npudump.reproduction.failing_piece import FailingPiece
    from pytest_npudump.reproduction.failure import Failure

    Array = np.ndarray[Any, np.dtype[Any]]

FILE = "README.md"

_COLUMNS = ("max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")
_PACKAGES = ("numpy", "onnx", "onnxruntime", "pytest")

_COMMANDS = """\
## Run it

Without an NPU, on the emulator:

```console
$ pip install 'pytest-npudump[emulator]'
$ pytest
```

On an Atlas machine, with the options of ATC that the whole model is built with (`--precision_mode` and its
like):

```console
$ {atc}
$ pytest --npudump-runtime=acl
```
"""


def readme_text(made: FailingPiece) -> str:
    """Return the file, Markdown."""
    return "\n".join((*_head(made), *_findings(made), *_files(made), *_versions(made), ""))


def _head(made: FailingPiece) -> Iterator[str]:
    several = f"{len(made.layers)} operators, of which the last is {made.key.layer}"
    yield f"# {code(several if len(made.layers) > 1 else made.key.layer)} by itself"
    given = "the inputs that it had"
    if made.computed:
        given = "the inputs that onnxruntime computes for it"
    elif made.drawn:
        given = "drawn inputs with the statistics of those that it had"
    test = code(made.failure.test)
    again = "`test_repro.py` fails where it is wrong."
    if made.failure.reproduced is False:
        now = f", in which {code(str(made.key))} is {made.failure.now}" if made.failure.now else ""
        again = f"The failure did not reproduce: what is here is of the second run{now}."
    yield f"\nOf {code(made.origin)}, on {given} in {test}. {again}\n"
    soc = made.failure.producer.get("soc", "") if made.failure.runtime != "emulator" else ""
    options = [f"--model={made.name}.onnx", "--framework=5", f"--output={made.name}"]
    yield _COMMANDS.format(atc=typed("atc", *options, f"--soc_version={soc or 'SOC'}"))


def _findings(made: FailingPiece) -> Iterator[str]:
    yield from failing_lines(made.failure)
    by_golden = made.criterion == GOLDEN
    against = f"onnxruntime on the CPU, which runs {code(made.reference_file)}"
    yield f"Here the output is held against {'its golden, in `golden/`' if by_golden else against}."
    if made.alone is not None and not by_golden:
        apart, allowed = f"{made.alone.apart:.3g}", f"{made.alone.allowed:.3g}"
        measured = f"it was {apart} off (relative L2), a healthy operator is by no more than {allowed}"
        yield f"On the {_who(made)} {made.alone.why or measured}."
    yield from made.remarks
    yield ""
    columns = {f"the {_who(made)}'s {code(name)}": array for name, array in made.got.items()}
    columns |= {f"onnxruntime's {code(name)}": array for name, array in made.expected.items()}
    yield from statistics_table(columns)


def _who(made: FailingPiece) -> str:
    return "emulator" if made.failure.runtime == "emulator" else "device"


def failing_lines(failure: Failure) -> Iterator[str]:
    """Yield the beginning of the section that tells what fails: what the report says of it."""
    yield "## What fails\n"
    if failure.reasons:
        yield f"In {code(failure.test)}, {code(str(failure.key))} was not what it is to be:\n"
        yield from (f"* {code(reason)}" for reason in failure.reasons)
        yield ""


def statistics_table(columns: Mapping[str, Array]) -> Iterator[str]:
    """Yield a table of the statistics of arrays, by what each is called."""
    yield f"| | {' | '.join(_COLUMNS)} |"
    yield f"|---{'|---' * len(_COLUMNS)}|"
    yield from (f"| {title} | {' | '.join(_statistics(array))} |" for title, array in columns.items())
    yield ""


def _statistics(array: Array) -> Iterator[str]:
    stats = tensor_stats(array)
    for name in _COLUMNS:
        value = getattr(stats, name)
        yield "-" if value is None else f"{value:.6g}"


def _files(made: FailingPiece) -> Iterator[str]:
    yield "## Files\n"
    yield f"* {code(f'{made.name}.onnx')}: {', '.join(map(code, made.layers))}, with the weights"
    if made.reference is not None:
        yield f"* {code(made.reference_file)}: the same of the model that says what is right"
    yield "* `inputs.npz`: what it is run on, `input_0` and so on in the order of the model's inputs"
    yield f"* `outputs.npz`: what the {_who(made)} and onnxruntime made of them, as far as it is known"
    yield "* `test_repro.py`, `pytest.ini`, `conftest.py`: the test, and what makes this a project of its own"
    yield ""


def _versions(made: FailingPiece) -> Iterator[str]:
    golden = made.golden.producer if made.golden is not None else {}
    return versions_table(made.failure.producer, golden, _PACKAGES)


def versions_table(
    failing: Mapping[str, str], golden: Mapping[str, str], packages: Iterable[str]
) -> Iterator[str]:
    """Yield a section with the facts of the failing run, of its golden, and of this machine's packages."""
    yield "## Versions\n"
    yield "| | | |\n|---|---|---|"
    here = {"pytest-npudump": __version__, "Python": platform.python_version()}
    here |= dict(pair for package in packages for pair in installed(package).items())
    for who, facts in (("the failing run", failing), ("its golden", golden), ("this folder", here)):
        yield from (f"| {who} | {code(name)} | {code(str(value))} |" for name, value in facts.items())


def code(text: str) -> str:
    """Return text as code, whatever a layer is called: nothing in it is Markdown."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text).replace("|", "\\|")
    longest = max(map(len, "".join(c if c == "`" else " " for c in plain).split()), default=0)
    edge = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{'`' * (longest + 1)}{edge}{plain}{edge}{'`' * (longest + 1)}"
