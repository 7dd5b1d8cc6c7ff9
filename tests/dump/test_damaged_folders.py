"""Folders that other tools left, damaged: nothing crashes, and no tensor goes in silence."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import settings

from pytest_npudump.cli import main
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import TensorRecord

DATA = Path(__file__).parents[1] / "data"
FOLDERS = [
    *(path for path in sorted((DATA / "tools").glob("*")) if path.name in {"hooks", "plain", "sglang-tp2"}),
    *sorted((DATA / "tools" / "msprobe").iterdir()),
    *(
        one
        for one in sorted((DATA / "trees").iterdir())
        if one.name not in {"acl-overflow", "acl-stats-host"}
    ),
]
"""Those with tensors, each by the tool that it is of."""
ROUNDS = settings.default.max_examples // 70 if settings.default else 0
"""28 of all damages, 10,000 cases, under HYPOTHESIS_PROFILE=thorough; else a fourth of one."""

Damage = Callable[[random.Random, Path, list[Path]], "list[Path]"]
"""Damage a folder, given its files; return the files that it touched."""


def truncated(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(max(len(content), 1))])
    return [path]


def flipped(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 4]) if content else 0):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return [path]


def huge(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    content = path.read_bytes()
    at = draw.randrange(min(len(content), 200) + 1)
    number = draw.choice([struct.pack("<Q", 1 << 62), b"\xff" * 8, b"9" * 30])
    path.write_bytes(content[:at] + number + content[at + draw.choice([0, len(number)]) :])
    return [path]


def removed(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    path.unlink()
    return [path]


def emptied(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    path.write_bytes(b"")
    return [path]


def swapped(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    one, other = draw.choice(files), draw.choice(files)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return [one, other]


def duplicated(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    copy = path.with_name(
        draw.choice([f"{path.name}.1", f"{path.stem} (copy){path.suffix}", f"0{path.name}"])
    )
    shutil.copy(path, copy)
    return [copy]


def foreign(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    name = draw.choice(
        ["notes.txt", "x.npy", "x.csv", "x.pt", "dump.json", "statistic.csv", "mapping.csv", "x.bin"]
    )
    added = path.with_name(name)
    if not added.exists():
        added.write_bytes(draw.choice([b"", b"hello\n", b"\0" * 64, draw.randbytes(100)]))
    return [added]


def folder_instead(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    path.unlink()
    path.mkdir()
    return [path]


def linked(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    path.unlink()
    path.symlink_to(draw.choice(["/dev/zero", "nowhere", str(path), "/"]))
    return [path]


def fifo(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    path.unlink()
    os.mkfifo(path)
    return [path]


def line_of_text(draw: random.Random, _folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice([path for path in files if path.suffix in {".csv", ".json"}] or files)
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    at = draw.randrange(len(lines))
    lines[at : at + 1] = draw.choice([[], [lines[at]] * 2, [lines[at - 1]]])
    path.write_bytes(b"".join(lines))
    return [path]


def moved(draw: random.Random, folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files)
    there = draw.choice([folder, *(one.parent for one in files)]) / path.name
    if not there.exists():
        path.rename(there)
    return [path, there.parent]


def renamed_folder(draw: random.Random, folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files).parent
    there = path.with_name(draw.choice([f"{path.name}_", "0", "x", f"1{path.name}", path.name[:-1] + "7"]))
    if path != folder and folder in there.parents and not there.exists():
        path.rename(there)
    return [path, there]


def copied_folder(draw: random.Random, folder: Path, files: list[Path]) -> list[Path]:
    path = draw.choice(files).parent
    there = path.with_name(draw.choice([f"{path.name}_", "0", "x", f"1{path.name}", path.name[:-1] + "7"]))
    if path != folder and folder in there.parents and not there.exists():
        shutil.copytree(path, there)
    return [path, there]


DAMAGES: list[Damage] = [
    *(truncated, flipped, huge, removed, emptied, swapped, duplicated, foreign, folder_instead, linked, fifo),
    *(line_of_text, moved, renamed_folder, copied_folder),
]


def told(folder: Path) -> set[object]:
    """What a folder holds, but for values."""

    def of(one: TensorRecord) -> object:
        return str(one.key), one.dtype, one.shape, one.payload is None, one.stats is None

    dump = read_dump(folder, latest=True, stats=False)
    assert not dump.problems
    return {of(record) for record in dump.records}


def test_no_damage_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is an error that names the file, seen by ``compare``, or changes nothing that is read."""
    folder = tmp_path / "dump"
    for number, good in enumerate(FOLDERS):
        known = told(good)
        damages = DAMAGES if ROUNDS else DAMAGES[number % 4 :: 4]
        for round_, damage in product(range(max(ROUNDS, 1)), damages):
            shutil.copytree(good, folder)
            seed = f"{good.name} {damage.__name__} {round_}"
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            touched = damage(random.Random(seed), folder, files)  # noqa: S311 - chance that repeats
            code = main(["compare", str(good), str(folder), "--latest"])
            text = "".join(capsys.readouterr())
            assert code in {0, 1, 2}, seed
            if code == 2:
                named = any(path.name in text for path in touched)
                assert named or f"{folder} holds" in text, (seed, touched, text)
            if code == 0:
                assert told(folder) == known, (seed, touched)
            shutil.rmtree(folder)
