"""Does a runtime work? Asked in a process of its own, which may hang or die where a driver is broken."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict

from pytest_npudump.errors import RuntimeUnavailableError
from pytest_npudump.language.translation import said
from pytest_npudump.runtime.registry import Examined, Probe, provider_of

SECONDS = 60
"""How long a runtime may take to answer; the first call to a device after a start takes some seconds."""


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
        return Probe(works=False, why=said("no answer within {seconds:g} seconds", seconds=seconds))
    except OSError as error:
        return Probe(works=False, why=said("no process could be started to ask: {error}", error=error))
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        with suppress(ValueError, TypeError):
            return Probe(**json.loads(lines[-1]))
    reason = next(reversed(done.stderr.strip().splitlines()), said("it printed nothing"))
    return Probe(
        works=False,
        why=said(
            "the process that asked {ended}: {reason}",
            ended=_ended(done.returncode),
            reason=reason[:300],
        ),
    )


def _ended(code: int) -> str:
    if code >= 0:
        return said("ended with {code}", code=code)
    try:
        return said("was killed by {name}", name=signal.Signals(-code).name)
    except ValueError:
        return said("was killed by signal {number}", number=-code)


def ask(name: str) -> Probe:
    """Ask the runtime in this process, which has to be a new one."""
    from pytest_npudump.runtime.select import choose, load  # noqa: PLC0415 - in the child process only

    try:
        provider = provider_of(name)
        if isinstance(provider, Examined):
            return provider.probe()
        facts = load(choose(name), 0).producer()
    except RuntimeUnavailableError as error:
        return Probe(works=False, why=str(error))
    return Probe(works=True, why=said("it can be loaded"), soc=facts.get("soc", ""))


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(asdict(ask(sys.argv[1]))) + "\n")
