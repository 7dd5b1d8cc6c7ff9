"""The errors this package raises on purpose: what is wrong, where, what was expected, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class NpudumpError(Exception):
    """Base of every error a user is meant to read."""


class RequestError(NpudumpError):
    """A marker, option or tolerance rule asks for something impossible."""


class ConfigError(NpudumpError):
    """A dump configuration that CANN would refuse, or accept and ignore."""


class RuntimeUnavailableError(NpudumpError):
    """The runtime that was chosen cannot work on this machine."""


class DeviceError(NpudumpError):
    """A device that cannot be locked for a test, or more devices than there are."""


class CapturedGraphError(NpudumpError):
    """A captured graph was about to be replayed in a way that CANN does not survive."""


class MissingExtraError(RuntimeUnavailableError):
    """An optional dependency is not installed; the message names the extra to install."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the package {package!r}, which is not installed: "
            f"pip install 'pytest-npudump[{extra}]'"
        )


class DumpError(NpudumpError):
    """A dump that cannot be read, or holds nothing."""


class EmptyDumpError(DumpError):
    """A directory that holds no dump file."""


class FormatError(DumpError):
    """A file whose bytes are not what its format demands.

    Attributes:
        path: the file.
        offset: the byte at which reading failed, or None where no byte is to blame.
        reason: the message without the place.
    """

    def __init__(self, path: Path | str, reason: str, *, offset: int | None = None) -> None:
        place = f"{path}" if offset is None else f"{path}, byte {offset}"
        super().__init__(f"{place}: {reason}")
        self.path = str(path)
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling, as when a worker process hands the error back."""
        return (_format_error, (self.path, self.reason, self.offset))


def _format_error(path: str, reason: str, offset: int | None) -> FormatError:
    return FormatError(path, reason, offset=offset)


class OperatorMismatchError(NpudumpError, AssertionError):
    """An operator that does not give what its reference does, or was not dumped."""


class GoldenError(NpudumpError):
    """A golden file that cannot be read, written or trusted."""


class MisplacedTensorsError(GoldenError):
    """A golden that counts, whose tensors are read from beside their place."""


class StoreError(GoldenError):
    """A stored tensor that is neither cached nor can be had from the store, or is not what its name says."""


class GoldenMissingError(GoldenError):
    """The test has no golden file yet."""
