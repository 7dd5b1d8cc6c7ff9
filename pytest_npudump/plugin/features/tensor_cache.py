"""The tensors that this machine has of a store are kept within ``--npudump-tensor-cache-limit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.plugin.terminal.reporter import reports_here
from pytest_npudump.settings import Option, parse_size

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.plugin.terminal.reporter import Reporter
    from pytest_npudump.settings import Settings

_LIMIT = Option(
    "tensor-cache-limit",
    default="10GiB",
    help="most bytes of stored tensors that this machine keeps between sessions; what was used longest "
    "ago goes first, nothing that was used in the last five minutes",
    metavar="SIZE",
    parse=parse_size,
)
OPTIONS = (_LIMIT,)


def with_tests(config: pytest.Config, settings: Settings) -> TensorCache | None:
    """Return what trims, where there is a store and this process reports."""
    return TensorCache() if settings.tensor_store and reports_here(config) else None


class TensorCache:
    """Trims once the session has ended."""

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Remove what is beyond the limit."""
        from pytest_npudump.golden.objects import trim  # noqa: PLC0415 - only where there is a store
        from pytest_npudump.golden.stored_tensors import store_of  # noqa: PLC0415 - the same

        if reporter.tests:
            settings = reporter.settings
            trim(store_of(settings, reporter.config.rootpath).cache, _LIMIT.of(settings))
