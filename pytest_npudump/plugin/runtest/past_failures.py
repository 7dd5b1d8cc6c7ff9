"""Where the last failure of a test began, by what was kept of it: for a recording that keeps those layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import NpudumpError
from pytest_npudump.plugin.paths import golden_root, keeps_results, results_path
from pytest_npudump.regression.kept_layers import source_names
from pytest_npudump.request import AUTO_LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.request import DumpRequest
    from pytest_npudump.results.entry import Entry
    from pytest_npudump.settings import Settings

_FAILED: pytest.StashKey[Mapping[str, Entry]] = pytest.StashKey()
"""By golden file, relative to the folder of goldens, the runs of earlier sessions that differ from it."""


def past_sources(
    config: pytest.Config, settings: Settings, request: DumpRequest, golden: Path
) -> tuple[str, ...]:
    """Return the layers in which the kept run of a test begins to differ from its golden.

    Nothing where none was kept, or the golden is another one since.

    Args:
        config: of the session.
        settings: its options.
        request: what the test asks for.
        golden: its golden file.
    """
    if AUTO_LAYERS not in request.golden_tensors or not settings.approves:
        return ()
    if _FAILED not in config.stash:
        config.stash[_FAILED] = _failed(config, settings)
    entry = config.stash[_FAILED].get(golden.relative_to(golden_root(config, settings)).as_posix())
    return () if entry is None else _sources(config, settings, entry)


def _failed(config: pytest.Config, settings: Settings) -> Mapping[str, Entry]:
    from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - few sessions need it

    try:
        if not keeps_results(config, settings):
            return {}
        entries = ResultsFolder(results_path(config, settings)).read().entries
    except (OSError, NpudumpError):  # there are none, or they are another version's
        return {}
    return {entry.golden_file: entry for entry in entries if entry.is_open}


def _sources(config: pytest.Config, settings: Settings, entry: Entry) -> tuple[str, ...]:
    from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - as above
    from pytest_npudump.results.rejudge import Overrides, rejudge  # noqa: PLC0415 - the same

    terms = Overrides(config.rootpath, golden_root(config, settings))
    judged = rejudge(ResultsFolder(results_path(config, settings)), entry, terms)
    result, golden = judged.result, judged.golden
    if result is None or result.outcome.comparison is None:
        return ()
    if golden is None or golden.digest != entry.data["golden"]["sha256"]:
        return ()
    return source_names(result.outcome.comparison, result.outcome.sources)
