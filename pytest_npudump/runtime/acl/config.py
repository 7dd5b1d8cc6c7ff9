"""The configuration of every runtime that dumps by an acl.json."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_npudump.config.acl_json import asks_for_statistics, dump_section, write_acl_json
from pytest_npudump.config.cann import collecting_words
from pytest_npudump.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_npudump.request import RunRequest


class AclJson:
    """The part of a runtime that is configured by an acl.json.

    Attributes:
        refused_while_collecting: scenes of which GE dumps nothing while ``NPU_COLLECT_PATH`` is set.
    """

    config_name = "acl.json"
    refused_while_collecting = frozenset({"model", "op", "check_op", "overflow", "watcher"})

    def write_config(self, path: Path, request: RunRequest) -> None:
        """Write the acl.json of a request.

        Raises:
            ConfigError: the dump path is one that CANN would accept and then not use, or the environment
                has GE dump nothing.
            RuntimeUnavailableError: the device that is asked what it is cannot be used.
        """
        refused = collecting_words(os.environ) if request.test.scene in self.refused_while_collecting else ""
        if refused:
            raise ConfigError(refused)
        soc = self.soc_name() if asks_for_statistics(request) else ""
        write_acl_json(path, dump_section(request, soc))

    def producer(self) -> Mapping[str, str]:
        """Return facts about the origin of what is dumped, as a golden records them: here none."""
        return {}

    def soc_name(self) -> str:
        """Return the name of the chip that computes the statistics; "" where it is not known."""
        return str(self.producer().get("soc", ""))
