"""Runtimes: a folder each of ours, those that other packages offer, and which one a session uses.

Another package offers one under the entry-point group ``pytest_npudump.runtimes``: the name is what
``--npudump-runtime`` takes, the value a module (or object) with the functions of :class:`Provider`::

    [project.entry-points."pytest_npudump.runtimes"]
    my_device = "my_package.provider"

``pytest_npudump.testing.RuntimeConformance`` says whether the runtime does what the protocol wants.

A choice is made without loading the runtime, which is loaded when the first marked test runs.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from pytest_npudump.errors import RuntimeUnavailableError, in_one_line, joined, mapped
from pytest_npudump.settings import NPU, NPU_OR_SKIP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.runtime.base import Runtime


GROUP: Final = "pytest_npudump.runtimes"

OURS: Mapping[str, str] = MappingProxyType(
    {
        "acl": "pytest_npudump.runtime.pyacl",
        "torch_npu": "pytest_npudump.runtime.torch_npu",
        "mindspore": "pytest_npudump.runtime.mindspore",
        "emulator": "pytest_npudump.runtime.emulator",
        "modules": "pytest_npudump.runtime.modules",
    }
)


@runtime_checkable
class Provider(Protocol):
    """Provider of a runtime before it is loaded; importing it imports neither client nor numpy.

    ``option`` is the option that asks, for the messages of errors: ``--npudump-runtime=acl``.
    """

    def find(self, option: str) -> str:
        """Return the sign that the runtime is here, in words; "" for none.

        Raises:
            RuntimeUnavailableError: it cannot be used on this machine; the message says why.
        """

    def load(self, option: str, device: int) -> Runtime:
        """Load the runtime for a device id.

        Raises:
            RuntimeUnavailableError: its client cannot be imported, or finds no device.
        """

    def needs_process(self, scene: str) -> bool:
        """Return whether each run of a test of this scene needs a process that has used no device yet."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Answer of a runtime.

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


@runtime_checkable
class Examined(Protocol):
    """Provider that can examine its runtime beyond loading it, for ``npudump doctor``.

    ``REMEDY`` is what to do where it does not work, and ``NPU`` whether it runs models on nothing else.
    """

    REMEDY: str
    NPU: bool

    def probe(self) -> Probe:
        """Ask the runtime, in a process that does nothing else."""


def offered() -> frozenset[str]:
    """Return the names of the runtimes that other packages offer."""
    return frozenset(found.name for found in entry_points(group=GROUP)) - OURS.keys()


def imported(name: str, option: str, hint: str = "") -> Any:
    """Import the module of a framework.

    Args:
        name: of the module.
        option: that names its runtime.
        hint: end of the message on a failure.

    Raises:
        RuntimeUnavailableError: it cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise RuntimeUnavailableError(
            f"{option}: {name} cannot be imported: {in_one_line(error)}{hint}"
        ) from error


def provider_of(name: str) -> Provider:
    """Return the provider of a runtime.

    Raises:
        RuntimeUnavailableError: there is none of this name, two packages offer one, it cannot be imported,
            or it lacks a function.
    """
    if name in OURS:
        return cast("Provider", importlib.import_module(OURS[name]))
    found = [*entry_points(group=GROUP, name=name)]
    if len(found) != 1:
        why = f"{len(found)} packages offer it" if found else "no package offers it"
        raise RuntimeUnavailableError(
            f"--npudump-runtime={name}: {why} as an entry point {GROUP!r}; ours are {', '.join(OURS)}"
        )
    try:
        provider = found[0].load()
    except Exception as error:
        raise RuntimeUnavailableError(
            f"--npudump-runtime={name}: {found[0].value} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(provider, Provider):
        raise RuntimeUnavailableError(
            f"--npudump-runtime={name}: {found[0].value} is no provider: expected the functions find, load "
            f"and needs_process (see pytest_npudump.runtime.registry)"
        )
    return provider


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision for a runtime.

    Attributes:
        name: as in ``--npudump-runtime``, but never ``auto``.
        why: what it was decided by.
    """

    name: str
    why: str

    def isolates(self, scene: str) -> bool:
        """Return whether each run of a test of this scene needs a process of its own."""
        return provider_of(self.name).needs_process(scene)


def choose(option: str, given: str = "") -> Choice:
    """Decide for a runtime, with ``auto`` for the first that works here.

    ``auto`` means ``torch_npu`` where the tests collected so far have imported it, and not ``acl``, and it
    has a device; torch is never imported to find that out. Else it means ``acl``, else ``emulator``. It never
    means ``mindspore``, which works without a device too: that has to be asked for. ``npu`` means the same
    but ``emulator``; so does ``npu-or-skip``, of which nothing is asked where no NPU answers.

    Args:
        option: the runtime, or one of these words.
        given: how it was given, for people; "" for ``--npudump-runtime``.

    Raises:
        MissingExtraError: MindSpore was asked for and is not installed.
        RuntimeUnavailableError: the runtime that was asked for is not installed, or no device answers, or
            ``npu`` finds none in this process.
    """
    asked = given or f"--npudump-runtime={option}"
    if option in {"auto", NPU, NPU_OR_SKIP}:
        name, why = _first_that_works(asked if option == NPU else "")
        if name == "emulator":
            why = mapped(why, lambda one: one.replace(cast("Any", provider_of("acl")).SOURCED, ""))
    else:
        name, why = option, provider_of(option).find(asked)
    return Choice(name, joined(", ", [*filter(None, (asked, why))]))


def _first_that_works(requiring: str = "") -> tuple[str, str]:
    pyacl, torch_npu, mindspore = (
        cast("Any", provider_of(name)) for name in ("acl", "torch_npu", "mindspore")
    )
    if not pyacl.is_imported_by_tests() and torch_npu.is_imported_with_device():
        return "torch_npu", "the tests have imported torch_npu and a device answers"
    acl, why = pyacl.probe_acl()
    if acl is None and requiring:
        raise RuntimeUnavailableError(f"{requiring}: {why}")
    # What dumps nothing of the tests' own framework has been chosen.
    hint = "; tests import mindspore, which --npudump-runtime=mindspore dumps"
    return "emulator" if acl is None else "acl", why + (hint if mindspore.is_imported() else "")


def why_no_npu(given: str = f"--npudump-runtime={NPU_OR_SKIP}") -> str:
    """Return why no NPU answers, as the reason for which tests are skipped; "" where one answers."""
    name, why = _first_that_works()
    return joined(": ", (given, why)) if name == "emulator" else ""


def load(choice: Choice, device: int) -> Runtime:
    """Load the runtime that was decided for.

    Raises:
        MissingExtraError: the emulator's packages are not installed.
        RuntimeUnavailableError: torch_npu or MindSpore cannot be imported, or torch_npu finds no device.
    """
    return provider_of(choice.name).load(f"--npudump-runtime={choice.name}", device)


def require(option: str) -> None:
    """Refuse to go on where pyACL finds no NPU, for an option that wants one.

    Raises:
        RuntimeUnavailableError: says why.
    """
    acl, why = cast("Any", provider_of("acl")).probe_acl()
    if acl is None:
        raise RuntimeUnavailableError(f"{option}: {why}")
