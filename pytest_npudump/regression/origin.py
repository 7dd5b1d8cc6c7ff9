"""The origin of a result: which test it is of and what ran it, for reports."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.errors import NpudumpError
from pytest_npudump.regression.case import onnx_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.ranks.rank import Rank
    from pytest_npudump.regression.case import Case


@dataclass(frozen=True, slots=True)
class Origin:
    """Which test a result is of, and what ran it: all that reports say of it besides what came of it.

    Attributes:
        test: its name: that of its file, relative to pytest's rootdir, and what the file calls it.
        runtime: what ran its models.
        directory: where its dumps and reports lie.
        here: the folder in which pytest was started, or kept results are judged.
        arguments: what a user types behind ``pytest`` in that folder to run the test alone.
        rank: of a distributed run; None for a process of its own.
        isolated: whether each run had a process of its own.
        artifacts: whether its reports are kept for a CI.
        lang: the language of its reports.
        producer: facts of the run, as a golden records them.
        models: files of the models that ran.
        digests: their SHA-256, of ONNX models and where somebody may run these again; "" of one that was
            written again after it was loaded.
        reference, reference_map: the model it was compared with, and the names in it; None without.
    """

    test: str
    runtime: str
    directory: Path
    here: Path
    arguments: tuple[str, ...]
    rank: Rank | None = None
    isolated: bool = False
    artifacts: bool = False
    lang: str = ""
    producer: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    reference: Path | None = None
    reference_map: Path | None = None


def origin_of(case: Case, *, with_digests: bool) -> Origin:
    """Return what reports say of a test besides what came of it.

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
        artifacts=bool(case.settings.artifacts),
        lang=case.settings.lang,
        producer=case.goldens.facts(case.runtime.producer()),
        models=tuple(map(str, case.runtime.activity.models)),
        digests=_digests(case) if with_digests else {},
        reference=reference.path if reference is not None else None,
        reference_map=reference.map_path if reference is not None else None,
    )


def _digests(case: Case) -> dict[str, str]:
    """Return the SHA-256 of a run's ONNX models; "" of one that was written again after it was loaded."""
    from pytest_npudump.onnxmodels.loaded_files import model_digest  # noqa: PLC0415 - only for failures

    files, found = case.runtime.activity.evidence.files, {}
    reference = (case.reference.path,) if case.reference is not None else ()
    for path in dict.fromkeys((*onnx_files(case), *reference)):
        with suppress(NpudumpError):  # whoever wants to run it is told
            found[str(path)] = model_digest(path) if files.keeps_weights(path) else ""
    return found
