"""Fixed facts of a marked test, for its runs and their comparison."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import BY_DEFAULT, EVERY, Terms
from pytest_npudump.compare.tolerances.presets import AUTO
from pytest_npudump.compare.tolerances.tolerance import DEFAULT, Tolerances
from pytest_npudump.errors import NpudumpError
from pytest_npudump.graph.model_digests import model_lines
from pytest_npudump.record.run_folder import RunFolder
from pytest_npudump.regression.result import Origin
from pytest_npudump.request import AUTO_LAYERS, DumpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.compare.correspondence import Correspondence
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.explain.reference import Reference
    from pytest_npudump.golden.variants import Goldens
    from pytest_npudump.ranks.rank import Exchange
    from pytest_npudump.record.edges import Edges
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Settings


@dataclass(frozen=True, slots=True)
class Case:
    """One test with the marker, before and after any of its runs.

    Attributes:
        nodeid: the test's name: that of its file, relative to pytest's rootdir, and what the file calls it.
        request: what its markers ask for.
        settings: the options of the session.
        runtime: what runs its models.
        goldens: its golden files.
        tolerances: what its statistics may differ by.
        directory: where its dumps and reports go.
        arguments: what a user types behind ``pytest`` in the folder ``here`` to run the test alone.
        here: the folder in which pytest was started, or kept results are judged.
        started: what pytest's start gave of :data:`STARTED`, by option; those of pytest are relative to
            rootdir.
        progress: called with (what is being done, steps done, steps in all); None for nobody.
        reference: the ONNX model its layers are compared with; None without one.
        graph: the file that tells which tensor feeds which; None where only what ran does.
        exchange: what the ranks of a distributed run tell each other by; None for a process of its own.
        isolated: whether each run has a process of its own.
        past_sources: layers in which the last failure of the test began, where that is known.
        names: what layers are called in the golden, and what ranks hold; None where both call all alike.
    """

    nodeid: str
    request: DumpRequest
    settings: Settings
    runtime: Runtime
    goldens: Goldens
    tolerances: Tolerances
    directory: Path
    arguments: tuple[str, ...]
    here: Path
    started: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] | None = None
    reference: Reference | None = None
    graph: Path | None = None
    exchange: Exchange | None = None
    isolated: bool = False
    past_sources: tuple[str, ...] = ()
    names: Correspondence | None = None

    @property
    def folder(self) -> RunFolder:
        """Folder of its runs' files."""
        return RunFolder(self.directory)

    def steps_of(self, what: str) -> Callable[[int, int], None] | None:
        """Return the callback of one piece of work for (steps done, steps in all); None without one."""
        return None if self.progress is None else partial(self.progress, what)


PYTEST_PATHS = ("-c", "--rootdir")
STARTED = (*PYTEST_PATHS, "npudump_golden_dir", "npudump_golden_variant")
"""Options and ini keys that have to be given again for a test to have the golden that it had."""


def arguments_of(test: str, file: str, root: Path, here: Path, started: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments of ``pytest`` in the folder ``here`` that run one test alone.

    Args:
        test: its name.
        file: its file, relative to ``root``, with which the name begins.
        root: pytest's rootdir.
        here: the folder.
        started: as :attr:`Case.started`.
    """
    options = [
        word
        for name, given in started.items()
        for word in (
            (name, _relative(root / given, here)) if name in PYTEST_PATHS else ("-o", f"{name}={given}")
        )
    ]
    return (*options, _relative(root / file, here) + test[len(file) :])


def _relative(path: Path, here: Path) -> str:
    """Return a path that pytest takes for no option, nor for a file of arguments."""
    found = os.path.relpath(path, here)
    return f"./{found}" if found[0] in "-@" else found


def names_of(name: str | None, folder: Path) -> Correspondence | None:
    """Read a file of names and layouts; None without one.

    Args:
        name: of the file, relative to the test's folder.
        folder: of the test.

    Raises:
        RequestError: it cannot be read, or makes no sense.
    """
    if name is None:
        return None
    from pytest_npudump.compare.correspondence import Correspondence  # noqa: PLC0415 - for tests that have one

    return Correspondence.read(folder / name)


def terms_of(case: Case) -> Terms:
    """Return the terms of a test."""
    return terms_from(case.request, case.settings, case.tolerances, case.names, case.goldens.why)


def terms_from(
    request: DumpRequest, settings: Settings, tolerances: Tolerances, names: Correspondence | None, why: str
) -> Terms:
    """Return the terms of a test that asks for this, under these options."""
    kept = tuple(request.golden_tensors)
    return Terms(
        tolerances,
        settings.bounds if request.preset in {None, DEFAULT} else AUTO,
        tensors=EVERY if AUTO_LAYERS in kept else kept,
        layers=tuple(request.layers),
        kept=kept,
        fail_on=settings.fail_on,
        unasked=() if request.dump_stats else BY_DEFAULT,
        why=why,
        names=names,
    )


def onnx_models(case: Case) -> list[Path]:
    """Return the ONNX models that ran, or lie beside what ran."""
    files = (path.with_suffix(".onnx") for path in case.runtime.activity.models)
    return [file for file in dict.fromkeys(files) if file.is_file()]


def known_edges(case: Case, root: Path, table: StatsTable) -> tuple[Edges, tuple[str, ...]]:
    """Return the known edges between tensors of a run, and why some are not known.

    Args:
        case: the test, which has loaded its models.
        root: of the run's dump.
        table: its statistics.
    """
    from pytest_npudump.graph.model_files import edges_at_hand  # noqa: PLC0415 - not in a pass

    activity = case.runtime.activity
    known = [path for path in activity.models if activity.evidence.files.keeps_graph(path)]
    edges, notes = edges_at_hand(known, root, table, case.graph)
    again = (
        f"which tensor feeds which is not known from {path.name}, which was written again after it was "
        f"loaded; graph= in the marker can tell"
        for path in dict.fromkeys(activity.models)
        if path not in known
    )
    return edges, (*notes, *again)


def digests_of_models(case: Case, known: str = "") -> str:
    """Return the block of a golden with digests of the models; "" where those of one are not known.

    Args:
        case: the test.
        known: the golden's, which is taken as it is where the files are the same.
    """
    activity, emulated = case.runtime.activity, case.runtime.name == "emulator"
    files = activity.evidence.files
    every = (*map(Path, activity.evidence.models), *activity.models)
    paths = {os.path.realpath(path): path for path in every}.values()
    # The emulator runs the ONNX model beside an om in its place.
    ran = [path.with_suffix(".onnx") if emulated and path.suffix == ".om" else path for path in paths]
    keeps = all(map(files.keeps_graph, paths)) and all(map(files.keeps_weights, ran))
    return model_lines(ran, known) if keeps else ""


def delete_dumps(case: Case) -> None:
    """Delete the dumps, unless the user keeps all."""
    if case.settings.keep_dumps != "all":
        case.folder.delete()


def origin_of(case: Case, *, with_digests: bool) -> Origin:
    """Return the origin of a result for reports.

    Args:
        case: the test.
        with_digests: whether those of its models are wanted: they take as long as reading the files.
    """
    reference, rank = case.reference, case.exchange.rank if case.exchange is not None else None
    return Origin(
        test=case.nodeid,
        runtime=case.runtime.name,
        directory=case.directory,
        here=case.here,
        arguments=case.arguments,
        rank=rank,
        isolated=case.isolated,
        lang=case.settings.lang,
        producer=case.goldens.facts(case.runtime.producer()),
        models=tuple(map(str, case.runtime.activity.models)),
        digests=_digests(case) if with_digests else {},
        layers=tuple(case.request.layers),
        reference=reference.path if reference is not None else None,
        reference_map=reference.map_path if reference is not None else None,
    )


def _digests(case: Case) -> dict[str, str]:
    """Return the SHA-256 of a run's ONNX models; "" of one that was written again after it was loaded."""
    from pytest_npudump.onnxmodels.loaded_files import model_digest  # noqa: PLC0415 - only for failures

    files, found = case.runtime.activity.evidence.files, {}
    reference = (case.reference.path,) if case.reference is not None else ()
    for path in dict.fromkeys((*onnx_models(case), *reference)):
        with suppress(NpudumpError):  # whoever wants to run it is told
            found[str(path)] = model_digest(path) if files.keeps_weights(path) else ""
    return found
