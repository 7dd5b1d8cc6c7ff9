"""Does a runtime work? Asked in a process of its own, which may hang or die where a driver is broken."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass

from pytest_npudump.errors import MissingExtraError, RuntimeUnavailableError

SECONDS = 60
"""How long a runtime may take to answer; the first call to a device after a start takes some seconds."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a runtime answered.

    Attributes:
        works: whether models can be run with it.
        why: the reason in both cases.
        devices: number of devices that answer.
        soc: name of the chip, as ``acl.get_soc_name()`` gives it; empty where it is not known.
    """

    works: bool
    why: str
    devices: int = 0
    soc: str = ""


def probe_runtime(name: str, *, seconds: float = SECONDS) -> Probe:
    """Ask the runtime ``name``, as ``--npudump-runtime`` takes it, in a child process; never raises."""
    command = [sys.executable, "-m", __name__, name]
    try:
        done = subprocess.run(  # noqa: S603 - this module, run by this interpreter
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return Probe(works=False, why=f"no answer within {seconds:g} seconds")
    except OSError as error:
        return Probe(works=False, why=f"no process could be started to ask: {error}")
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        with suppress(ValueError, TypeError):
            return Probe(**json.loads(lines[-1]))
    reason = next(reversed(done.stderr.strip().splitlines()), "it printed nothing")
    return Probe(works=False, why=f"the process that asked {_ended(done.returncode)}: {reason[:300]}")


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def ask(name: str) -> Probe:
    """Ask the runtime in this process, which has to be a new one."""
    if name == "acl":
        return _ask_acl()
    return _ask_emulator() if name == "emulator" else _ask_framework(name)


def _ask_acl() -> Probe:
    from pytest_npudump.runtime.pyacl.provider import probe_acl  # noqa: PLC0415 - in the child process only

    acl, why = probe_acl()
    if acl is None:
        return Probe(works=False, why=why)
    return Probe(works=True, why=why, devices=acl.rt.get_device_count()[0], soc=acl.get_soc_name() or "")


def _ask_framework(name: str) -> Probe:
    from pytest_npudump.runtime.select import choose, load  # noqa: PLC0415 - in the child process only

    try:
        facts = load(choose(name), 0).producer()
    except RuntimeUnavailableError as error:
        return Probe(works=False, why=str(error))
    if name == "mindspore":
        why = f"MindSpore {facts['mindspore']} runs on {facts['device_target']}"
        return Probe(works=True, why=why, soc=facts.get("soc", ""))
    return Probe(works=True, why="a device answers", soc=facts.get("soc", ""))


def _ask_emulator() -> Probe:
    from pytest_npudump.onnxmodels.sessions import onnx, onnxruntime  # noqa: PLC0415 - the same

    try:
        versions = f"onnxruntime {onnxruntime().__version__}, onnx {onnx().__version__}"
    except MissingExtraError as error:
        return Probe(works=False, why=str(error))
    return Probe(works=True, why=versions)


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(asdict(ask(sys.argv[1]))) + "\n")
