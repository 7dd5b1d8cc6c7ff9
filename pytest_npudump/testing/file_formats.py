"""What a reader of a file format must do: say all that a file holds, and refuse one that is damaged."""

from __future__ import annotations

import os
import pickle
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_npudump.errors import FormatError
from pytest_npudump.testing.damage import cuts, damaged
from pytest_npudump.testing.record_checks import assert_holds, assert_sound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from pytest_npudump.dump.records import TensorRecord

_HANG = 10.0
"""Seconds after which a reader is taken to wait for what never comes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A file of the format that another program wrote.

    Attributes:
        path: where it is kept.
        tensors: what is in it, by key (``conv1:output.0``), as somebody else computed or decoded it; None for
            a tensor whose values are not known.
        name: what the file is called in a dump, where its name matters; "" for the one it has.
    """

    path: Path
    tensors: Mapping[str, np.ndarray | None]
    name: str = ""


class FormatConformance:
    """The tests of a file format; to subclass as ``class TestMyFormat(FormatConformance)``.

    Attributes:
        samples: files that another program wrote; one at least, and one of each kind that there is.
        has_lines: whether a file that is cut off behind a line is a whole one to whoever reads it, with less
            in it. Tables are so.
    """

    samples: Sequence[Sample] = ()
    has_lines = False

    def read(self, path: Path) -> Sequence[TensorRecord]:
        """Read one file.

        Raises:
            FormatError: the file is damaged.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.read(path): expected a method that returns the tensors of a file"
        )

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test on every sample."""
        if "sample" in metafunc.fixturenames:
            assert self.samples, f"{type(self).__name__}.samples: expected files that another program wrote"
            ids = [sample.name or sample.path.name for sample in self.samples]
            metafunc.parametrize("sample", self.samples, ids=ids)

    @pytest.fixture
    def file(self, sample: Sample, tmp_path: Path) -> Path:
        """A copy of the sample under its name in a dump."""
        path = tmp_path / "dump" / (sample.name or sample.path.name)
        path.parent.mkdir()
        path.write_bytes(sample.path.read_bytes())
        return path

    def test_every_tensor_is_read_with_its_values(self, sample: Sample, file: Path) -> None:
        """Nothing is left out in silence, and nothing made up."""
        assert_holds(self.read(file), sample.tensors)

    def test_records_are_sound(self, file: Path) -> None:
        """Keys, shapes and extents are such as the rest of the package relies on."""
        for record in self.read(file):
            assert_sound(record, file)

    def test_reading_twice_says_the_same(self, file: Path) -> None:
        """A reader keeps nothing from one file to the next."""
        assert repr([*self.read(file)]) == repr([*self.read(file)])

    def test_records_cross_processes(self, file: Path) -> None:
        """Files are read by several processes."""
        records = [*self.read(file)]
        assert repr(pickle.loads(pickle.dumps(records))) == repr(records)  # noqa: S301 - made in this line

    def test_no_file_is_left_open(self, file: Path) -> None:
        """A dump has a hundred thousand files."""
        self.read(file)
        before = _open_files()
        for _ in range(3):
            self.read(file)
        assert _open_files() <= before

    def test_a_file_that_is_cut_off_is_refused(self, file: Path) -> None:
        """At whatever length; what lies behind the last byte that counts may go."""
        whole = [*self.read(file)]
        content = file.read_bytes()
        near = [place for record in whole if record.payload for place in _extent(record)]
        for length in cuts(len(content), near):
            file.write_bytes(content[:length])
            found = self._read_or_refuse(file)
            if found is None:
                continue
            alike = _alike(found, whole)
            less = self.has_lines and alike and len(found) < len(whole) and _ends_a_line(content, length)
            assert less or (alike and len(found) == len(whole)), (
                f"cut off at byte {length} of {len(content)}, and read as {len(found)} of {len(whole)} "
                f"tensors without an error"
            )

    @settings(
        max_examples=100,
        deadline=None,
        database=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,  # each format is a class of its own
            HealthCheck.too_slow,
        ],
    )
    @given(data=st.data())
    def test_a_damaged_file_is_read_as_far_as_it_goes_or_refused(
        self, file: Path, sample: Sample, data: st.DataObject
    ) -> None:
        """Whatever a file says of lengths: no other error, no extent beyond its end."""
        file.write_bytes(data.draw(damaged(sample.path.read_bytes())))
        for record in self._read_or_refuse(file) or ():
            assert_sound(record, file)

    def test_an_empty_file_is_refused(self, file: Path) -> None:
        """It is what a full disk leaves."""
        file.write_bytes(b"")
        assert self._read_or_refuse(file) is None, "an empty file was read without an error"

    def test_what_is_no_file_is_refused_and_never_waited_for(self, file: Path) -> None:
        """A folder, a pipe that nobody writes to, and nothing at all."""
        file.unlink()
        assert self._read_or_refuse(file) is None, "a file that is not there was read"
        file.mkdir()
        assert self._read_or_refuse(file) is None, "a folder was read"
        file.rmdir()
        os.mkfifo(file)
        reader = threading.Thread(target=self._read_pipe, args=(file,), daemon=True)
        reader.start()
        reader.join(_HANG)
        waits = reader.is_alive()
        if waits:
            with suppress(OSError):
                os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
            reader.join(_HANG)
        assert not waits, "the reader waits for a pipe that nobody writes to"

    def _read_pipe(self, path: Path) -> None:
        with suppress(FormatError, OSError):
            self.read(path)

    def _read_or_refuse(self, path: Path) -> Sequence[TensorRecord] | None:
        """Return what is read; None where the file is refused, by an error that says which and where."""
        try:
            return self.read(path)
        except FormatError as error:
            refused: FormatError | OSError = error
        except OSError as error:
            refused = error
        if isinstance(refused, FormatError):
            assert str(path) in str(refused), f"the error does not name {path}: {refused}"
            assert refused.reason, "the error does not say what is wrong"
            size = path.stat().st_size if path.is_file() else 0
            assert refused.offset is None or 0 <= refused.offset <= size, (
                f"the error names byte {refused.offset} of a file of {size}: {refused}"
            )
        else:
            assert not path.is_file(), f"{path} can be read, and failed with {refused!r}"
        return None


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _extent(record: TensorRecord) -> tuple[int, int]:
    assert record.payload is not None
    return record.payload.offset, record.payload.offset + record.payload.nbytes


def _alike(found: Sequence[TensorRecord], whole: Sequence[TensorRecord]) -> bool:
    """Whether each record that was found is one of the whole file, in order."""
    remaining = iter(map(repr, whole))  # by their text, in which NaN equals NaN
    return all(any(repr(record) == other for other in remaining) for record in found)


def _ends_a_line(content: bytes, length: int) -> bool:
    return content[length - 1 : length] == b"\n" or content[length : length + 1] in {b"\n", b"\r"}
