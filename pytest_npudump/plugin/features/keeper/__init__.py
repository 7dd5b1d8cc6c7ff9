"""Kept results: what a session leaves of its marked tests for ``npudump check`` and ``npudump golden``.

``keeper`` writes them; here is where they lie, for features that rest on them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.settings import Option

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.plugin.features.keeper.keeper import Keeper
    from pytest_npudump.settings import Settings

RESULTS = Option(
    "results",
    default="",
    help="folder in which verdicts and statistics of each marked test are kept for npudump check and "
    "npudump golden; default in pytest's cache",
    metavar="DIR",
)
OPTIONS = (RESULTS,)
IN_PLACE_OF_A_CACHE = pytest.StashKey[str]()
"""Folder of results, relative to rootdir, in a session without a cache, where a feature needs them."""


def has_place(config: pytest.Config, settings: Settings) -> bool:
    """Whether there is a place for results."""
    in_cache = getattr(config, "cache", None) is not None
    return bool(RESULTS.of(settings) or in_cache or config.stash.get(IN_PLACE_OF_A_CACHE, ""))


def results_path(config: pytest.Config, settings: Settings) -> Path:
    """Return the folder of the results, where they have a place: one that was named, or in pytest's cache.

    Raises:
        OSError: pytest's cache has no folder, and none can be made.
    """
    if named := RESULTS.of(settings):
        return config.rootpath / str(named)
    cache = getattr(config, "cache", None)
    if cache is None:
        return config.rootpath / config.stash[IN_PLACE_OF_A_CACHE]
    folder: Path = cache.mkdir("npudump")
    return folder / "results"


def with_tests(config: pytest.Config, settings: Settings) -> Keeper:
    """Return what keeps results, which every session with marked tests does."""
    from pytest_npudump.plugin.features.keeper.keeper import Keeper  # noqa: PLC0415 - with marked tests

    place = partial(results_path, config, settings) if has_place(config, settings) else None
    return Keeper(config, settings, place, named=bool(RESULTS.of(settings)))
