"""Which file each tensor of a dump is converted to."""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING

from pytest_npudump.cli.convert_tasks import Converted, OutputFile

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.records import Dump, TensorRecord

_LONGEST = 255
"""Bytes of a file name on Linux."""


def plan_files(dump: Dump, output: Path, kind: str, layout: str) -> tuple[list[OutputFile], list[Converted]]:
    """Return the files to write, no two alike, and what is refused.

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
    files, refused = [], []
    for target, records in groups.items():
        parts = [records] if kind == "safetensors" else [[record] for record in records]
        for number, part in enumerate(parts):
            path = _fitting(target if number == 0 else target.with_name(f"{target.stem}.{number}.npy"))
            if os.path.realpath(path) in sources:
                text = f"{path} is a file of the dump itself, choose another directory for -o"
                refused.append(Converted(failures=(text,)))
            else:
                temporary = path.with_name(f".npudump-{secrets.token_hex(8)}.tmp")
                files.append(OutputFile(path, temporary, tuple(part), kind, layout))
    return files, refused


def _target(record: TensorRecord, root: Path, output: Path, kind: str) -> Path:
    base = root if root.is_dir() else root.parent
    directory = output / os.path.relpath(record.path.parent, base)
    name = record.path.name
    if kind == "safetensors":
        return directory / f"{name.removesuffix('.npy')}.safetensors"
    if record.payload is not None and record.payload.kind == "npy":
        return directory / name
    return directory / f"{name}.{record.key.io}.{record.key.slot}.npy"


def _fitting(path: Path) -> Path:
    """Shorten a name that no file system takes; a hash keeps it apart from others."""
    name = os.fsencode(path.name)
    if len(name) <= _LONGEST:
        return path
    digest = blake2b(name, digest_size=8).hexdigest()
    tail = f"~{digest}{path.suffix}"
    head = name[: _LONGEST - len(tail) - 20].decode("utf-8", "ignore")
    return path.with_name(f"{head}{tail}")
