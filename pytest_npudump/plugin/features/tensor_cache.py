"""The tensors that this machine has of a store are kept within ``npudump_tensor_cache_limit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.golden.objects import trim
from pytest_npudump.golden.stored_tensors import store_of
from pytest_npudump.plugin.features import TENSOR_CACHE_LIMIT
from pytest_npudump.plugin.reporter import Reporter, reports_here

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.settings import Settings


def feature(config: pytest.Config, _settings: Settings) -> TensorCache | None:
    """Return the trimmer, where this process reports."""
    return TensorCache() if reports_here(config) else None


class TensorCache:
    """Trims once the session has ended."""

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Remove tensors beyond the limit."""
        if reporter.tests:
            settings = reporter.settings
            trim(store_of(settings, reporter.config.rootpath).cache, TENSOR_CACHE_LIMIT.of(settings))
