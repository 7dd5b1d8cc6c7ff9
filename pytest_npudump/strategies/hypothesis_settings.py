"""hypothesis itself, and how it is to treat a test that runs operators on a device."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pytest_npudump.errors import MissingExtraError


def hypothesis(module: str = "hypothesis") -> Any:
    """Return hypothesis, or a module of it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError("pytest_npudump.strategies", "hypothesis", "testing") from error


def settings(**changes: Any) -> Any:
    """Return ``hypothesis.settings`` for a test that takes ``npu_dump``, as a decorator.

    An example has no deadline, as a device takes the time it takes; none is run only to explain a failure
    by lines of Python; and hypothesis is told that all share the fixture, which gives each a dump of its own.

    Args:
        changes: settings of hypothesis, which go before these.

    Raises:
        MissingExtraError: hypothesis is not installed.
    """
    checks, phases = hypothesis().HealthCheck, hypothesis().Phase
    ours = {
        "deadline": None,
        "phases": [phase for phase in phases if phase is not phases.explain],
        "suppress_health_check": [checks.function_scoped_fixture, checks.too_slow],
    }
    return hypothesis().settings(**{**ours, **changes})
