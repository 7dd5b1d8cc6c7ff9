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
from pytest_npudump.cli.common.work import Tally, Workers, open_workers, progress, run_tasks
from pytest_npudump.dump.arrays.decode import VIEWED, coded_tensor, load, packed_tensor
from pytest_npudump.dump.arrays.layouts import JoinedTensor, LayoutError, host_array, host_values
from pytest_npudump.dump.dtypes import is_of_numpy
from pytest_npudump.dump.filebytes import c_order_chunks, file_pieces, raw_bytes
from pytest_npudump.dump.names import MAPPING, read_mapping
from pytest_npudump.dump.records import Dump, TensorRecord, sanitise
from pytest_npudump.errors import DumpError, FormatError, NpudumpError
from pytest_npudump.language.text import byte_size, number_of
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    Array = np.ndarray[Any, np.dtype[Any]]
    Reached = Callable[[Path, int], None]


def run(arguments: argparse.Namespace) -> int:
    """Convert the files that can be converted; 0, or 2 where one could not be, or none could."""
    output: Path = arguments.output.absolute()
    files: list[OutputFile] = []
    with _leaving_nothing_behind(files), open_workers(arguments.executor) as workers:
        dump = read_source(arguments.dump, workers, stats=False, latest=arguments.latest, raw=arguments.bin)
        layout = "" if arguments.raw else arguments.layout
        planned, refused, shortened = plan_files(dump, output, arguments.to, layout)
        files += planned
        with progress("converting") as report:
            results = [*refused, *_converted(files, workers, report)]
        unmapped = write_mappings({path: name for path, name in shortened.items() if path.exists()})
    if dump.records and not results:
        to_stderr(f"npudump: {_nothing(dump)}")
        report_problems(dump.problems)
        return 2
    emit(f"note: {result.note}" for result in results if result.note)
    written, nbytes = sum(one.tensors for one in results), sum(one.nbytes for one in results)
    bare = sum(record.payload is None for record in dump.records)
    rest = f"; {bare} of the dump without data" if bare else ""
    emit([f"{number_of(written, 'tensor')} ({byte_size(nbytes)}) written to {output}{rest}"])
    failures = [*(text for result in results for text in result.failures), *unmapped]
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


def _converted(
    files: Sequence[OutputFile], workers: Workers, report: Callable[[int, int], None]
) -> Iterator[Converted]:
    """Yield the result of each file, reporting bytes; files where the work is done elsewhere."""
    if not workers.here:
        return run_tasks(convert, files, workers, weight=lambda file: file.nbytes, progress=report)
    tally = Tally(report, sum(file.nbytes for file in files))
    work = partial(convert, reached=tally.reached)
    return run_tasks(
        work, files, workers, weight=lambda file: file.nbytes, progress=lambda _done, _total: None
    )


def _nothing(dump: Dump) -> str:
    """Explain why a dump without data cannot be converted."""
    count = len(dump.records)
    if all(record.stats is not None for record in dump.records):
        return (
            f"nothing to convert: {dump.root} is a dump of statistics: none of its tensors ({count}) has "
            "data; collect it with dump_data tensor (MindSpore: saved_data tensor)"
        )
    notes = dict.fromkeys(record.note for record in dump.records if record.note)
    why = f" ({'; '.join(notes)})" if notes else ""
    return (
        f"nothing to convert: no tensor of {dump.root} ({count} in all) has data{why}; npudump ls lists them"
    )


_LONGEST = 255
"""Bytes of a file name on Linux."""


def plan_files(
    dump: Dump, output: Path, kind: str, layout: str
) -> tuple[list[OutputFile], list[Converted], dict[Path, str]]:
    """Return the files to write, no two alike, what is refused, and by path names that no file system takes.

    The directories are the dump's. An npy file is called after the dump file, direction and slot, as
    CANN's own converter calls it, with the layer before the direction where a file has several layers; the
    npy file of a dump keeps its name. A safetensors file is called after the dump file and holds its tensors
    by key.

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
    shortened: dict[Path, str] = {}
    real = {folder: Path(os.path.realpath(folder)) for folder in {output, *(at.parent for at in groups)}}
    taken: set[Path] = set()
    for target, records in groups.items():
        parts = [records] if kind == "safetensors" else [[record] for record in records]
        for number, part in enumerate(parts):
            whole = target if number == 0 else target.with_name(f"{target.stem}.{number}.npy")
            path = _fitting(whole)
            refusal = _refusal(path, real[path.parent], real[output], sources, taken)
            if refusal := refusal or (_untellable(path, whole) if path != whole else ""):
                refused.append(Converted(failures=(f"{part[0].path}: {refusal}",)))
                continue
            taken.add(path)
            if path != whole:
                shortened[path] = whole.name
            temporary = path.with_name(f".npudump-{secrets.token_hex(8)}.tmp")
            files.append(OutputFile(path, temporary, tuple(part), kind, layout))
    return files, refused, shortened


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
    return ""


def _untellable(path: Path, whole: Path) -> str:
    """Return why the whole name of a shortened file cannot be written beside it; "" if it can be."""
    try:
        _earlier_names(path.with_name(MAPPING))
    except FormatError as error:
        return f"{whole.name} is too long for a file's name, and {MAPPING} cannot tell it: {error}"
    return ""


def _target(record: TensorRecord, layer: str, root: Path, output: Path, kind: str) -> Path:
    base = root if root.is_dir() else root.parent
    directory = output.joinpath(*map(_printable, record.path.parent.relative_to(base).parts))
    name = _printable(_whole_name(record.path))
    if kind == "safetensors":
        return directory / f"{name.removesuffix('.npy')}.safetensors"
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


def write_mappings(shortened: Mapping[Path, str]) -> list[str]:
    """Write the whole names of files to ``mapping.csv`` beside them, those of earlier conversions included.

    Returns:
        Which files cannot be written, and why; the names that each would have told included.
    """
    failures: list[str] = []
    for directory in sorted({path.parent for path in shortened}):
        path = directory / MAPPING
        own = {short.name: long for short, long in shortened.items() if short.parent == directory}
        try:
            names = _earlier_names(path) | own
            write_whole(path, [_line(short, long) for short, long in names.items()])
        except (OSError, FormatError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            told = "; ".join(f"{short} is {long}" for short, long in own.items())
            failures.append(f"{path}: cannot be written: {reason}: {told}")
    return failures


def _earlier_names(path: Path) -> dict[str, str]:
    return read_mapping(path) if os.path.exists(path) else {}  # noqa: PTH110 - Path.exists raises before 3.12


def _line(short: str, long: str) -> bytes:
    quoted = '"' + long.replace('"', '""') + '"' if long.startswith('"') else long
    return f"{short},{quoted}\n".encode("utf-8", "surrogateescape")


def _fitting(path: Path) -> Path:
    """Shorten a name that no file system takes; a hash keeps it apart from others."""
    name = os.fsencode(path.name)
    if len(name) <= _LONGEST:
        return path
    tail = f"~{blake2b(name, digest_size=8).hexdigest()}{path.suffix}"
    head = name[: _LONGEST - len(tail) - 20].decode("utf-8", "ignore").replace(",", "_")
    return path.with_name(f"{head}{tail}")


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


def convert(file: OutputFile, reached: Reached | None = None) -> Converted:
    """Write one file; what cannot be converted comes back as failures.

    Args:
        file: what to write.
        reached: called with the file's path and how many of its ``nbytes`` are dealt with, as they are.
    """
    reached = reached or (lambda _path, _nbytes: None)
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        return _safetensors(file, reached) if file.kind == "safetensors" else _npy(file, reached)
    except OSError as error:
        return Converted(failures=(f"{file.path}: cannot be written: {error.strerror or error}",))
    finally:
        reached(file.path, file.nbytes)


def _npy(file: OutputFile, reached: Reached) -> Converted:
    (record,) = file.records
    try:
        dtype, shape, chunks = values(record, file.layout)
    except NpudumpError as error:
        return Converted(failures=(_failure(record, error),))
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    count, done = math.prod(shape), 0
    try:
        with file.temporary.open("xb") as out:
            np.lib.format.write_array_header_1_0(out, header)
            for chunk in chunks:
                out.write(np.ascontiguousarray(chunk, dtype).view(np.uint8).data)
                done += chunk.size
                reached(file.path, file.nbytes * done // max(count, 1))
        file.temporary.replace(file.path)
    except NpudumpError as error:
        return Converted(failures=(_failure(record, error),))
    finally:
        file.temporary.unlink(missing_ok=True)
    return Converted(1, count * dtype.itemsize)


def _safetensors(file: OutputFile, reached: Reached) -> Converted:
    """Write the tensors of one dump file under their keys, in the types of the device where it has them."""
    from pytest_npudump.golden.tensors import save_tensors  # noqa: PLC0415 - safetensors only where asked for

    arrays: dict[str, tuple[Array, str]] = {}
    failures = []
    done = 0
    for record in file.records:
        array, failure = _try_array(record, file.layout)
        done += record.payload.nbytes if record.payload is not None else 0
        reached(file.path, done)
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
