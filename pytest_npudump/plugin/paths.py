"""Places of a test's golden and its dumps."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError, said
from pytest_npudump.golden.path import golden_path
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.marker import Identity, are_one_case, request_of
from pytest_npudump.regression.case import STARTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

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

    def dumps(self, identity: str, request: DumpRequest | None = None, base: Path | None = None) -> Path:
        """Return a directory for a test's dumps that does not exist yet.

        Its name is one that CANN and MindSpore accept; MindSpore takes no dot.

        Args:
            identity: the test's id.
            request: what a test on the emulator asks for, whose dumps may lie in memory; None for others.
            base: the folder for all dumps; None for that of the session.
        """
        output = output_folder(self._config, self._settings)
        base = base or (output / "dumps" if output else _compat.base_temp(self._config) / "npudump")
        base = self._config.hook.pytest_npudump_dumps_base(base=base, request=request) or base
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


def output_folder(config: pytest.Config, settings: Settings) -> Path | None:
    """Return the folder for what a session leaves; None where none is named.

    It has ``results``, ``dumps``, ``report``, ``log``, ``summary.md`` and ``session.json``.
    """
    return config.rootpath / settings.output if settings.output else None


def has_place(config: pytest.Config, settings: Settings) -> bool:
    """Return whether there is a place for results."""
    return bool(settings.output) or getattr(config, "cache", None) is not None


def results_path(config: pytest.Config, settings: Settings) -> Path:
    """Return the folder of the results, where they have a place: the output folder, or pytest's cache.

    Raises:
        OSError: pytest's cache has no folder, and none can be made.
    """
    return kept_folder(config, settings) / "results"


def kept_folder(config: pytest.Config, settings: Settings) -> Path:
    """Return the folder that results and reports are below.

    Raises:
        OSError: pytest's cache has no folder, and none can be made.
    """
    output = output_folder(config, settings)
    cache: Any = getattr(config, "cache", None)
    return cache.mkdir("npudump") if output is None else output


def check_output(config: pytest.Config, settings: Settings) -> None:
    """Refuse an output folder among the goldens, and goldens among what sessions write and remove.

    Raises:
        RequestError: one of them lies so, itself or where its links lead.
    """
    output = output_folder(config, settings)
    if output is None:
        return
    folder, goldens = _real(output), _real(golden_root(config, settings))
    if folder.is_relative_to(goldens):
        raise RequestError(
            said(
                "--npudump-output {output} is in the folder of the goldens, {goldens}: choose another",
                output=output,
                goldens=goldens,
            )
        )
    for name in ("dumps", "results", "report"):
        if goldens.is_relative_to(_real(output / name)):
            raise RequestError(
                said(
                    "npudump_golden_dir {goldens} is in {folder}, where sessions write and remove: "
                    "choose another",
                    goldens=goldens,
                    folder=output / name,
                )
            )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def golden_root(config: pytest.Config, settings: Settings) -> Path:
    """Return the folder of the golden files."""
    return config.rootpath / settings.golden_dir


def started_with(config: pytest.Config) -> dict[str, str]:
    """Return the arguments of the start that decide a test's golden; pytest's paths relative to rootdir."""
    root, option = config.rootpath, config.option
    found = {
        "-c": config.inipath if option.inifilename else None,
        "--rootdir": root if option.rootdir else None,
    }
    told = {name: Path(os.path.relpath(path, root)).as_posix() for name, path in found.items() if path}
    words = _compat.overrides(config)
    return told | {name: words[name] for name in STARTED if words.get(name)}


def shared_goldens(items: Iterable[pytest.Item], paths: Paths) -> Iterator[tuple[pytest.Item, str]]:
    """Yield each test whose golden file is another one's too, and what is wrong with that."""
    owners: dict[Path, pytest.Item] = {}
    for item in items:
        path = paths.golden(item)
        other = owners.setdefault(path, item)
        same = str(Identity.of(item)) == str(Identity.of(other)) and are_one_case(other, item)
        if not same:
            problem = said(
                "{other} and {test} would share the golden {path}: give them different names or "
                "parameter ids",
                other=other.nodeid,
                test=item.nodeid,
                path=path,
            )
            yield item, problem
