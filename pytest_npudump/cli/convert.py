"""``npudump convert``: the tensors of a dump as npy or safetensors, in the host's layout."""

from __future__ import annotations

import math
import os
import secrets
import unicodedata
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.cli.common.source import read_source, report_problems
from pytest_npudump.cli.common.work import open_workers, progress, run_tasks
from pytest_npudump.dump.arrays.decode import VIEWED, coded_tensor, load, packed_tensor
from pytest_npudump.dump.arrays.layouts import JoinedTensor, LayoutError, host_array, host_values
from pytest_npudump.dump.dtypes import is_of_numpy
from pytest_npudump.dump.filebytes import c_order_chunks, file_pieces, raw_bytes
from pytest_npudump.dump.names import MAPPING, read_mapping
from pytest_npudump.dump.records import Dump, TensorRecord, sanitise
from pytest_npudump.errors import DumpError, FormatError, NpudumpError
from pytest_npudump.language.text import byte_size, number_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Iterator, Sequence

    Array = np.ndarray[Any, np.dtype[Any]]


def run(arguments: argparse.Namespace) -> int:
    """Convert the files that can be converted; 0, or 2 where one could not be, or none could."""
    output: Path = arguments.output.absolute()
    files: list[OutputFile] = []
    with _leaving_nothing_behind(files), open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=False, latest=arguments.latest, raw=arguments.bin)
        layout = "" if arguments.raw else arguments.layout
        planned, refused = plan_files(dump, output, arguments.to, layout)
        files += planned
        with progress("converting") as report:
            work = run_tasks(convert, files, workers, weight=lambda file: file.nbytes, progress=report)
            results = [*refused, *work]
    if dump.records and not results:
        count = len(dump.records)
        if all(record.stats is not None for record in dump.records):
            way_out = "collect it with dump_data tensor (MindSpore: saved_data tensor)"
            told = f"is a dump of statistics: none of its tensors ({count}) has data; {way_out}"
        else:
            notes = dict.fromkeys(record.note for record in dump.records if record.note)
            why = f" ({'; '.join(notes)})" if notes else ""
            told = f"has no tensor with data ({count} in all){why}; npudump ls lists them"
        to_stderr(f"npudump: nothing to convert: {dump.root} {told}")
        report_problems(dump.problems)
        return 2
    emit(f"note: {result.note}" for result in results if result.note)
    written, nbytes = sum(one.tensors for one in results), sum(one.nbytes for one in results)
    bare = sum(record.payload is None for record in dump.records)
    rest = f"; {bare} of the dump without data" if bare else ""
    emit([f"{number_of(written, 'tensor')} ({byte_size(nbytes)}) written to {output}{rest}"])
    failures = [text for result in results for text in result.failures]
    for text in failures:
        to_stderr(f"npudump: not converted: {text}")
    report_problems(dump.problems)
    return 2 if failures or dump.problems else 0


@contextmanager
def _leaving_nothing_behind(files: Sequence[OutputFile]) -> Iterator[None]:
    """Remove the unfinished files of workers that were killed, lost or left at work."""
    try:
        yield
    except BaseException:
        for file in files:
            with suppress(OSError):
                file.temporary.unlink(missing_ok=True)
        raise


_LONGEST = 255
"""Bytes of a file name on Linux."""


def plan_files(dump: Dump, output: Path, kind: str, layout: str) -> tuple[list[OutputFile], list[Converted]]:
    """Return the files to write, no two alike, and what is refused.

    The directories are the dump's. An npy file is called after the dump file, direction and slot, as
    CANN's own converter calls it, with the layer before the direction where a file has several layers; the
    npy file of a dump keeps its name. A safetensors file is called after the dump file, with a hash where
    that is too long, and holds its tensors by key.

    Args:
        dump: what is converted.
        output: absolute path of the directory to write to.
        kind: ``npy`` or ``safetensors``.
        layout: host layout; "" for the tensors as they lie on the device.
    """
    groups: defaultdict[Path, list[TensorRecord]] = defaultdict(list)
    layers: defaultdict[Path, set[str]] = defaultdict(set)
    for record in dump.records:
        layers[record.path].add(record.key.layer)
    for record in dump.records:
        if record.payload is not None:
            layer = record.key.layer if len(layers[record.path]) > 1 else ""
            groups[_target(record, layer, dump.root, output, kind)].append(record)
    sources = {os.path.realpath(record.path) for record in dump.records}
    files: list[OutputFile] = []
    refused: list[Converted] = []
    real = {folder: Path(os.path.realpath(folder)) for folder in {output, *(at.parent for at in groups)}}
    taken: set[Path] = set()
    for target, records in groups.items():
        parts = [records] if kind == "safetensors" else [[record] for record in records]
        for number, part in enumerate(parts):
            path = target if number == 0 else target.with_name(f"{target.stem}.{number}.npy")
            if refusal := _refusal(path, real[path.parent], real[output], sources, taken):
                refused.append(Converted(failures=(f"{part[0].path}: {refusal}",)))
                continue
            taken.add(path)
            temporary = path.with_name(f".npudump-{secrets.token_hex(8)}.tmp")
            files.append(OutputFile(path, temporary, tuple(part), kind, layout))
    return files, refused


def _refusal(
    path: Path, directory: Path, output: Path, sources: Collection[str], taken: Collection[Path]
) -> str:
    """Return why nothing may be written to ``path``; "" if it may be.

    Args:
        path: where a tensor would go.
        directory: the directory of ``path``, symbolic links followed.
        output: that of ``-o``, symbolic links followed.
        sources: the files of the dump.
        taken: where other tensors go.
    """
    if str(directory / path.name) in sources:
        return f"{path} is a file of the dump itself, choose another directory for -o"
    if not directory.is_relative_to(output):
        return f"{path} is in {directory}, by a symbolic link, which is not in {output}: remove the link"
    if path in taken:
        return f"{path} is what another tensor of the dump becomes: convert the two files one by one"
    if len(os.fsencode(path.name)) > _LONGEST:
        return f"{path.name} is too long for a file's name: --to safetensors keeps names inside of the file"
    return ""


def _target(record: TensorRecord, layer: str, root: Path, output: Path, kind: str) -> Path:
    base = root if root.is_dir() else root.parent
    directory = output.joinpath(*map(_printable, record.path.parent.relative_to(base).parts))
    name = _printable(_whole_name(record.path))
    if kind == "safetensors":
        return directory / _fitting(name.removesuffix(".npy"), ".safetensors")
    if record.payload is not None and record.payload.kind == "npy":
        return directory / name
    inner = f"{sanitise(layer)}." if layer else ""
    return directory / f"{name}.{inner}{record.key.io}.{record.key.slot}.npy"


def _printable(name: str) -> str:
    """Percent-encode control characters, which a terminal obeys and a line of ``mapping.csv`` ends with."""
    return "".join(
        f"%{ord(letter):02x}" if unicodedata.category(letter) == "Cc" else letter for letter in name
    )


def _whole_name(path: Path) -> str:
    """Return the name of a dump file, or the one that ``mapping.csv`` has for its short one."""
    try:
        return _mapping(path.with_name(MAPPING)).get(path.name, path.name)
    except FormatError:  # the reader has named it
        return path.name


@lru_cache(maxsize=8)
def _mapping(path: Path) -> dict[str, str]:
    return read_mapping(path) if path.is_file() else {}


def _fitting(stem: str, suffix: str) -> str:
    """Return the name of a file, of which a hash stands in the place of what no file system takes."""
    name = os.fsencode(stem)
    if len(name) + len(suffix) <= _LONGEST:
        return f"{stem}{suffix}"
    tail = f"~{blake2b(name, digest_size=8).hexdigest()}{suffix}"
    return name[: _LONGEST - len(tail)].decode("utf-8", "ignore") + tail


Result = TypeVar("Result")

_CHUNK = 1 << 20
"""Elements converted at a time; a multiple of 8, so that packed types are cut between bytes."""

_BUFFER = 1 << 20
"""Bytes copied at a time; a multiple of every type's size. Measured: a quarter of it is slower."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to write.

    Attributes:
        path: where.
        temporary: where the file is written before it gets its name; removed if that fails.
        records: its tensors; one in an npy file.
        kind: ``npy`` or ``safetensors``.
        layout: host layout; "" for the tensors as they lie on the device.
    """

    path: Path
    temporary: Path
    records: tuple[TensorRecord, ...]
    kind: str
    layout: str

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return sum(record.payload.nbytes for record in self.records if record.payload is not None)


@dataclass(frozen=True, slots=True)
class Converted:
    """Result of writing one output file.

    Attributes:
        tensors: how many were written.
        nbytes: bytes of their values in the file.
        failures: what was not converted, and why.
        note: what a user should know; "" if nothing.
    """

    tensors: int = 0
    nbytes: int = 0
    failures: tuple[str, ...] = ()
    note: str = ""


def convert(file: OutputFile) -> Converted:
    """Write one file; what cannot be converted comes back as failures."""
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        return _safetensors(file) if file.kind == "safetensors" else _npy(file)
    except OSError as error:
        return Converted(failures=(f"{file.path}: cannot be written: {error.strerror or error}",))


def _npy(file: OutputFile) -> Converted:
    (record,) = file.records
    try:
        dtype, shape, chunks = values(record, file.layout)
    except NpudumpError as error:
        return Converted(failures=(_failure(record, error),))
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    try:
        with file.temporary.open("xb") as out:
            np.lib.format.write_array_header_1_0(out, header)
            for chunk in chunks:
                out.write(np.ascontiguousarray(chunk, dtype).view(np.uint8).data)
        file.temporary.replace(file.path)
    except NpudumpError as error:
        return Converted(failures=(_failure(record, error),))
    finally:
        file.temporary.unlink(missing_ok=True)
    return Converted(1, math.prod(shape) * dtype.itemsize)


def _safetensors(file: OutputFile) -> Converted:
    """Write the tensors of one dump file under their keys, in the types of the device where it has them."""
    from pytest_npudump.golden.tensors import save_tensors  # noqa: PLC0415 - safetensors only where asked for

    arrays: dict[str, tuple[Array, str]] = {}
    failures = []
    for record in file.records:
        array, failure = _try_array(record, file.layout)
        failures += [failure] if failure else []
        if array is not None:
            arrays[str(record.key)] = (array, record.dtype)
    if arrays:
        try:
            save_tensors(file.temporary, arrays)
            file.temporary.replace(file.path)
        except NpudumpError as error:
            reason = getattr(error.__cause__, "strerror", None) or error.__cause__ or error
            return Converted(failures=(*failures, f"{file.path}: cannot be written: {reason}"))
        finally:
            file.temporary.unlink(missing_ok=True)
    return Converted(len(arrays), sum(array.nbytes for array, _ in arrays.values()), tuple(failures))


def _try_array(record: TensorRecord, layout: str) -> tuple[Array | None, str]:
    try:
        if not layout:
            return _raw_array(record), ""
        return _naming_ways_out(partial(host_array, _load(record)), record, layout), ""
    except NpudumpError as error:
        return None, _failure(record, error)


def _failure(record: TensorRecord, error: NpudumpError) -> str:
    text, path = str(error), str(record.path)
    return f"{record.key}: {text}" if path in text else f"{record.key} of {path}: {text}"


def values(record: TensorRecord, layout: str) -> tuple[np.dtype[Any], tuple[int, ...], Iterator[Array]]:
    """Type, shape and values in C order, in pieces of one axis, as an npy file is to hold them.

    Raises:
        DumpError: the tensor has no values, or its layout cannot be converted.
    """
    packed = packed_tensor(record, layout) if layout else None
    if packed is not None:
        return packed.dtype, packed.shape, packed.pieces(_CHUNK)
    coded = _naming_ways_out(coded_tensor, record, layout) if layout else None
    if coded is not None:
        return coded.dtype, coded.shape, coded.pieces(_CHUNK)
    loaded = _load(record) if layout else _raw_array(record)
    array = _naming_ways_out(partial(host_values, loaded), record, layout) if layout else loaded
    payload = record.payload
    if array is loaded and is_of_numpy(array.dtype) and payload is not None and payload.kind == "raw":
        octets = file_pieces(payload.path, payload.offset, array.nbytes, _BUFFER)
        return array.dtype, array.shape, (piece.view(array.dtype) for piece in octets)
    dtype = array.dtype if is_of_numpy(array.dtype) else np.dtype("<f4")
    if isinstance(array, JoinedTensor):
        return dtype, array.shape, array.pieces(_CHUNK)
    return dtype, array.shape, c_order_chunks(array, _CHUNK, flat=array.flags.c_contiguous)


def _load(record: TensorRecord) -> Array:
    if record.payload is None:
        raise DumpError("no data")
    if record.shape is None:
        raise DumpError("the header has no shape: --raw writes the bytes")
    return load(record.payload, record.dtype, record.shape)


def _naming_ways_out(
    function: Callable[[TensorRecord, str], Result], record: TensorRecord, layout: str
) -> Result:
    try:
        return function(record, layout)
    except LayoutError as error:
        raise LayoutError(f"{error}; --layout names another host layout, --raw keeps the device's") from error


def _raw_array(record: TensorRecord) -> Array:
    """Return the tensor as it lies on the device, a type that numpy lacks as its bits.

    Raises:
        DumpError: the bytes cannot be read.
    """
    if record.payload is None:
        raise DumpError("no data")
    if record.payload.kind == "raw" and (record.dtype not in VIEWED or record.shape is None):
        return raw_bytes(record.payload)
    array = load(record.payload, record.dtype, record.shape)
    return array if is_of_numpy(array.dtype) else array.view(np.dtype(f"<u{array.dtype.itemsize}"))
