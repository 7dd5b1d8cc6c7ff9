"""Which file each tensor of a dump is converted to.

The names are a dump's, which nobody vouches for: whatever they are, the files lie in the directory that was
asked for, and no two tensors become one file.
"""

from __future__ import annotations

import os
import secrets
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.convert.tasks import Converted, OutputFile
from pytest_npudump.dump.files.mapping import MAPPING, read_mapping
from pytest_npudump.errors import FormatError
from pytest_npudump.language.translation import said
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_npudump.dump.records import Dump, TensorRecord

_LONGEST = 255
"""Bytes of a file name on Linux."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a conversion is to write.

    Attributes:
        files: the files, no two alike.
        refused: what cannot be written.
        shortened: by path, the names that are too long for a file system.
    """

    files: list[OutputFile]
    refused: list[Converted]
    shortened: dict[Path, str]


def plan_files(dump: Dump, output: Path, kind: str, layout: str) -> Plan:
    """Return the files to write and what is refused.

    The directories are the dump's. An npy file is called after the dump file, direction and slot, as
    CANN's own converter calls it; the npy file of a dump keeps its name. A safetensors file is called after
    the dump file and holds its tensors by key.

    Args:
        dump: what is converted.
        output: absolute path of the directory to write to.
        kind: ``npy`` or ``safetensors``.
        layout: host layout; "" for the tensors as they lie on the device.
    """
    groups: defaultdict[Path, list[TensorRecord]] = defaultdict(list)
    for record in dump.records:
        if record.payload is not None:
            groups[_target(record, dump.root, output, kind)].append(record)
    sources = {os.path.realpath(record.path) for record in dump.records}
    plan = Plan([], [], {})
    real = {folder: Path(os.path.realpath(folder)) for folder in {output, *(at.parent for at in groups)}}
    taken: set[Path] = set()
    for target, records in groups.items():
        parts = [records] if kind == "safetensors" else [[record] for record in records]
        for number, part in enumerate(parts):
            whole = target if number == 0 else target.with_name(f"{target.stem}.{number}.npy")
            path = _fitting(whole)
            refusal = _refusal(path, real[path.parent], real[output], sources, taken)
            if refusal := refusal or (_untellable(path, whole) if path != whole else ""):
                plan.refused.append(
                    Converted(failures=(said("{path}: {reason}", path=part[0].path, reason=refusal),))
                )
                continue
            taken.add(path)
            if path != whole:
                plan.shortened[path] = whole.name
            temporary = path.with_name(f".npudump-{secrets.token_hex(8)}.tmp")
            plan.files.append(OutputFile(path, temporary, tuple(part), kind, layout))
    return plan


def _refusal(
    path: Path, directory: Path, output: Path, sources: Collection[str], taken: Collection[Path]
) -> str:
    """Say why nothing may be written to ``path``; "" if it may be.

    Args:
        path: where a tensor would go.
        directory: the directory of ``path``, symbolic links followed.
        output: that of ``-o``, symbolic links followed.
        sources: the files of the dump.
        taken: where other tensors go.
    """
    if str(directory / path.name) in sources:
        return said("{path} is a file of the dump itself, choose another directory for -o", path=path)
    if not directory.is_relative_to(output):
        return said(
            "{path} is in {directory}, by a symbolic link, which is not in {output}: remove the link",
            path=path,
            directory=directory,
            output=output,
        )
    if path in taken:
        return said(
            "{path} is what another tensor of the dump becomes: convert the two files one by one", path=path
        )
    return ""


def _untellable(path: Path, whole: Path) -> str:
    """Say why the whole name of a file that is shortened cannot be told beside it; "" if it can be."""
    try:
        _earlier_names(path.with_name(MAPPING))
    except FormatError as error:
        return said(
            "{name} is too long for a file's name, and {mapping} cannot tell it: {error}",
            name=whole.name,
            mapping=MAPPING,
            error=error,
        )
    return ""


def _target(record: TensorRecord, root: Path, output: Path, kind: str) -> Path:
    base = root if root.is_dir() else root.parent
    directory = output.joinpath(*map(_printable, record.path.parent.relative_to(base).parts))
    name = _printable(_whole_name(record.path))
    if kind == "safetensors":
        return directory / f"{name.removesuffix('.npy')}.safetensors"
    if record.payload is not None and record.payload.kind == "npy":
        return directory / name
    return directory / f"{name}.{record.key.io}.{record.key.slot}.npy"


def _printable(name: str) -> str:
    """Percent-encode control characters, which a terminal obeys and a line of ``mapping.csv`` ends with."""
    return "".join(
        f"%{ord(letter):02x}" if unicodedata.category(letter) == "Cc" else letter for letter in name
    )


def _whole_name(path: Path) -> str:
    """The name of a dump file, or what ``mapping.csv`` has for the short one that stands for it."""
    try:
        return _mapping(path.with_name(MAPPING)).get(path.name, path.name)
    except FormatError:  # the reader has named it
        return path.name


@lru_cache(maxsize=8)
def _mapping(path: Path) -> dict[str, str]:
    return read_mapping(path) if path.is_file() else {}


def write_mappings(shortened: Mapping[Path, str]) -> list[str]:
    """Tell the whole names of files in ``mapping.csv`` beside them, those of earlier conversions included.

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
            failures.append(
                said("{path}: cannot be written: {reason}: {told}", path=path, reason=reason, told=told)
            )
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
    digest = blake2b(name, digest_size=8).hexdigest()
    tail = f"~{digest}{path.suffix}"
    head = name[: _LONGEST - len(tail) - 20].decode("utf-8", "ignore").replace(",", "_")
    return path.with_name(f"{head}{tail}")
