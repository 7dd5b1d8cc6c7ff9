"""Where a test's golden and its dumps lie."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.golden.path import golden_path
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.repetitions import are_one_case
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from pytest_npudump.plugin.memory_folder import MemoryFolder
    from pytest_npudump.ranks.rank import Rank
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.settings import Settings

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]+")
_SHOWN = 80


class Paths:
    """The folders of one session."""

    def __init__(self, config: pytest.Config, settings: Settings, rank: Rank | None = None) -> None:
        self._config = config
        self._settings = settings
        self._rank = rank
        self._memory_opened = False
        self._memory: MemoryFolder | None = None

    def golden(self, item: pytest.Item, variant: str = "") -> Path:
        """Return the golden file of a test, or that of a variant; each rank's own, unless they share one."""
        if self._rank is not None and request_of(item).ranks == "each":
            variant = f"{variant}@{self._rank.variant}" if variant else self._rank.variant
        identity = Identity.of(item)
        return golden_path(
            golden_root(self._config, self._settings),
            test_file=identity.test_file,
            classes=identity.classes,
            name=identity.name,
            param_id=identity.param_id,
            variant=variant,
        )

    def dumps(self, identity: str, request: DumpRequest | None = None) -> Path:
        """Return a directory for a test's dumps that does not exist yet.

        Its name is one that CANN and MindSpore accept; MindSpore takes no dot.

        Args:
            identity: the test's id.
            request: what a test on the emulator asks for, whose dumps may lie in memory; None for others.
        """
        base = self._dumps_base(request)
        plain = _NOT_PLAIN.sub("_", identity).strip("_")[-_SHOWN:]
        digest = blake2b(identity.encode(), digest_size=4).hexdigest()
        if self._rank is not None:
            plain = f"rank{self._rank.number}-{plain}"
        names = (base / f"{plain}-{digest}-{number}" for number in count(1))
        return next(directory for directory in names if not directory.exists())

    def claimed(self, identity: str, request: DumpRequest | None = None) -> Path:
        """Return the same once it is made, so that no other process gives it to a test of its own.

        One that cannot be made is returned as it is: the test says why, as it makes it.
        """
        while True:
            directory = self.dumps(identity, request)
            try:
                directory.mkdir(parents=True, mode=0o700)
            except FileExistsError:
                if directory.exists():  # another worker, or session, was quicker
                    continue
            except OSError:
                pass
            return directory

    def _dumps_base(self, request: DumpRequest | None) -> Path:
        base = dumps_base(self._config, self._settings)
        if request is None or self._settings.dump_dir or self._settings.keep_dumps == "all":
            return base
        if _is_small(request):
            if not self._memory_opened:
                from pytest_npudump.plugin.memory_folder import MemoryFolder  # noqa: PLC0415 - only for these

                self._memory_opened, self._memory = True, MemoryFolder.open(base)
            if self._memory is None or self._memory.roomy:
                return base
        return base.with_name(f"{base.name}-disk")

    def close(self) -> None:
        """Put dumps that are in memory, and still there, on the disk."""
        if self._memory is not None:
            self._memory.close()


def _is_small(request: DumpRequest) -> bool:
    """Whether a test dumps no more than some lines an operator."""
    statistics = request.dump_data in {None, "stats"} and SCENES[request.scene].statistics
    return statistics and not request.golden_tensors


def dumps_base(config: pytest.Config, settings: Settings) -> Path:
    """Return the folder in which the dumps and reports of a session lie, as an absolute path."""
    given = settings.dump_dir
    return Path(given).absolute() if given else _compat.base_temp(config) / "npudump"


def golden_root(config: pytest.Config, settings: Settings) -> Path:
    """Return the folder of the golden files."""
    return config.rootpath / settings.golden_dir


def started_with(config: pytest.Config) -> dict[str, str]:
    """Return what was given at the start that decides a test's golden; pytest's paths relative to rootdir."""
    root, option = config.rootpath, config.option
    found = {
        "-c": config.inipath if option.inifilename else None,
        "--rootdir": root if option.rootdir else None,
    }
    told = {name: Path(os.path.relpath(path, root)).as_posix() for name, path in found.items() if path}
    words = {
        "--npudump-golden-dir": getattr(option, "npudump_golden_dir", None),
        "--npudump-golden-variant": getattr(option, "npudump_golden_variant", None),
    }
    return told | {name: str(word) for name, word in words.items() if word}


def keeps_results(config: pytest.Config, settings: Settings) -> bool:
    """Whether there is a place for results: a folder that was named, that of a report, or pytest's cache."""
    return bool(settings.results or settings.report) or getattr(config, "cache", None) is not None


def results_path(config: pytest.Config, settings: Settings) -> Path:
    """Return the folder of the results that a session keeps, where :func:`keeps_results` says so.

    Raises:
        OSError: pytest's cache has no folder, and none can be made.
    """
    if settings.results:
        return config.rootpath / settings.results
    if settings.report and getattr(config, "cache", None) is None:
        return config.rootpath / settings.report / "results"
    cache = config.cache
    assert cache is not None  # noqa: S101 - the caller has asked
    return cache.mkdir("npudump") / "results"


def shared_goldens(items: Iterable[pytest.Item], paths: Paths) -> Iterator[tuple[pytest.Item, str]]:
    """Yield each test whose golden file is another one's too, and what is wrong with that."""
    owners: dict[Path, pytest.Item] = {}
    for item in items:
        path = paths.golden(item)
        other = owners.setdefault(path, item)
        same = str(Identity.of(item)) == str(Identity.of(other)) and are_one_case(other, item)
        if not same:
            problem = (
                f"{other.nodeid} and {item.nodeid} would share the golden {path}: give each a name, or its "
                f"parameters an id, of its own"
            )
            yield item, problem
