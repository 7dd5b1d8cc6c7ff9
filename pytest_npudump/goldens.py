"""One test's golden files: where they are, which variant counts, what they record of their origin."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.config.installed import installed_cann
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.golden.text import Golden
from pytest_npudump.unwritten import UNWRITTEN, by_layer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.compare.table import StatsTable
    from pytest_npudump.request import DumpRequest


@dataclass(frozen=True, slots=True)
class Goldens:
    """The golden files of one test.

    Attributes:
        test: the test's id, recorded in the file.
        request: what the test asks for; scene and mode are recorded.
        common: the file that counts where no variant does.
        variant: the file of the variant named by an option; None without one.
    """

    test: str
    request: DumpRequest
    common: Path
    variant: Path | None = None

    @property
    def path(self) -> Path:
        """The file that is written: the variant where one is named, else the common one."""
        return self.variant or self.common

    @property
    def tensors(self) -> Path:
        """The file of the golden tensors, beside :attr:`path`."""
        return self.path.with_suffix(".safetensors")

    def read_if_any(self) -> Golden | None:
        """Read the variant's file, else the common one; None where neither exists.

        Raises:
            GoldenError: the file cannot be read or trusted.
        """
        found = next((path for path in (self.variant, self.common) if path and path.exists()), None)
        return read_golden(found) if found else None

    def write(
        self,
        previous: Golden | None,
        table: StatsTable,
        producer: Mapping[str, str],
        unwritten: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[Path, bool]:
        """Write the file, keeping what an earlier one holds besides statistics.

        Args:
            previous: the earlier one, if there is any.
            table: the statistics.
            producer: facts about their origin.
            unwritten: tensors that nothing writes, in place of those that the earlier one names.

        Returns:
            The file, and whether its content changed.

        Raises:
            GoldenError: it cannot be written; the old file is as it was.
        """
        facts = self._facts(producer)
        kept = {} if previous is None else {k: v for k, v in previous.extra.items() if k != UNWRITTEN}
        extra = {**kept, UNWRITTEN: by_layer(unwritten)} if unwritten else kept
        golden = Golden(test=self.test, producer=facts, table=table, path=self.path, extra=extra)
        return self.path, write_golden(self.path, golden)

    def _facts(self, producer: Mapping[str, str]) -> dict[str, str]:
        facts = dict(producer)
        if facts.get("runtime") == "emulator":
            facts |= _installed("onnxruntime")
        elif cann := installed_cann():
            facts["cann"] = cann
        return facts | {"scene": self.request.scene, "dump_mode": self.request.dump_mode}

    def differences(self, golden: Golden, producer: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Facts of origin in which the golden and this run differ, as ``name: (golden, this run)``."""
        now = self._facts(producer)
        before = {name: str(value) for name, value in golden.producer.items() if name != "digits"}
        names = dict.fromkeys([*before, *now])
        return {
            name: (before.get(name, "-"), now.get(name, "-"))
            for name in names
            if before.get(name, "-") != now.get(name, "-")
        }


def _installed(package: str) -> dict[str, str]:
    try:
        return {package: version(package)}
    except PackageNotFoundError:
        return {}
