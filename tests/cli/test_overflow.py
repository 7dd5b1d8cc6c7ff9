from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
TREES = Path(__file__).parents[1] / "data" / "trees"
RECORDS = Path(__file__).parents[1] / "data" / "dump" / "overflow"


def _table(text: str) -> list[str]:
    """Return the lines from the table of overflows on."""
    lines = text.splitlines()
    return lines[next(at for at, line in enumerate(lines) if line.startswith("unit ")) :]


def test_the_layer_is_that_of_the_records_stream_and_task(run: Run, tmp_path: Path) -> None:
    shutil.copytree(TREES / "acl-overflow", tmp_path / "tree")
    source = next((TREES / "acl-tensor").rglob("MatMul*"))
    for task in (3, 4):
        shutil.copy(source, tmp_path / "tree" / f"MatMul.net_fc{task}.{task}.2.1795229153283276")
    done = run("ls", tmp_path / "tree", "--json", "-")
    assert done.json["overflows"][0]["overflowed"] == [
        {"unit": "AIC", "reasons": ["floating-point overflow"], "layers": ["MatMul net_fc3"]}
    ]
    assert "MatMul net_fc3" in run("ls", tmp_path / "tree").out


def test_a_record_of_zeros_is_not_taken_for_one_without_overflow(run: Run, tmp_path: Path) -> None:
    whole = (RECORDS / "old").read_bytes()
    path = tmp_path / "Opdebug.Node_OpDebug.7.2.1795229153283276"
    path.write_bytes(whole[:-2048] + bytes(2048))
    done = run("ls", path)
    assert (done.code, "2048 zeros" in done.err) == (2, True)


def test_a_record_with_a_damaged_magic_is_no_record_without_overflow(run: Run, tmp_path: Path) -> None:
    shutil.copytree(TREES / "acl-overflow", tmp_path / "tree")
    path = next((tmp_path / "tree").glob("Opdebug*[0-9]"))
    data = bytearray(path.read_bytes())
    at = data.index(b"\x5a" * 4)
    data[at] ^= 1
    path.write_bytes(data)
    done = run("ls", tmp_path / "tree")
    assert done.code == 2
    assert f"{path}, byte {at}" in done.err
    assert "report no overflow" not in done.out


REAL = TREES / "acl-overflow" / "Opdebug.Node_OpDebug.7.2.1795229153283277"
"""Its record tells model 1, stream 2, task 3."""
OPERATOR = next((TREES / "acl-tensor").rglob("MatMul*"))


def tree_in(folder: Path, record: str, *operators: str) -> Path:
    """Lay out a dump of copies of a real record and of a real operator, the latter under other names."""
    copies = {f"{record}/{REAL.name}": REAL} | dict.fromkeys(operators, OPERATOR)
    for place, source in copies.items():
        target = folder / "dump" / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return folder / "dump"


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    return partial(tree_in, tmp_path)


def _operator(place: str, name: str) -> str:
    return f"{place}/MatMul.{name}.3.2.1795229153283276"


def _layers(done: Any) -> list[str]:
    units = (unit for record in done.json["overflows"] for unit in record["overflowed"])
    return [layer for unit in units for layer in unit["layers"]]


TIME = "20261121000000"


def test_operators_of_other_devices_and_models_are_not_blamed(run: Run, tree: Run) -> None:
    places = {"own": f"{TIME}/0/m/1/0", "device": f"{TIME}/1/m/1/0", "load": f"{TIME}/0/m/9/0"}
    places |= {"name": f"{TIME}/0/other/1/0", "run": "20261121000001/0/m/1/0"}
    root = tree(places["own"], *(_operator(place, name) for name, place in places.items()))
    for part in (root, root / TIME, root / TIME / "0" / "m" / "1" / "0"):  # as the directories above it tell
        done = run("ls", part, "--json", "-")
        assert _layers(done) == ["MatMul own"]
        assert "layers_without" not in done.json["overflows"][0]
    assert "do not tell" not in run("ls", root).out
    for path in root.rglob("MatMul.*"):
        path.unlink()
    root = tree(places["own"], _operator(places["device"], "foreign"))  # which another device has alone
    done = run("ls", root, "--json", "-")
    assert (done.code, _layers(done)) == (1, [])
    assert "foreign" not in "".join(_table(run("ls", root).out))


def test_ranks_are_told_apart_and_the_operator_of_the_records_step_comes_first(run: Run, tree: Run) -> None:
    places = [f"worldsize2_global_rank{rank}/{TIME}/0/m/1/0" for rank in (0, 1)]
    root = tree(places[1], *(_operator(place, f"rank{rank}") for rank, place in enumerate(places)))
    assert _layers(run("ls", root, "--json", "-")) == ["MatMul rank1"]
    shutil.rmtree(root)
    steps = [f"{TIME}/0/m/1/{step}" for step in (0, 1)]
    root = tree(steps[1], *(_operator(place, f"step{step}") for step, place in enumerate(steps)))
    assert _layers(run("ls", root, "--json", "-")) == ["MatMul step1"]
    root = tree(f"{TIME}/0/m/1/2")
    assert sorted({*_layers(run("ls", root, "--json", "-"))}) == ["MatMul step0", "MatMul step1"]


def test_the_records_model_id_decides_where_its_directory_tells_none(run: Run, tree: Run) -> None:
    models = [f"{TIME}/0/m/{model}/0" for model in (1, 2)]
    root = tree(f"{TIME}/0", *(_operator(place, f"model{at}") for at, place in enumerate(models, 1)))
    done = run("ls", root, "--json", "-")
    assert _layers(done) == ["MatMul model1"]
    assert "layers_without" not in done.json["overflows"][0]


@pytest.mark.each(
    ("place", "lacking", "told"),
    [
        (f"{TIME}/0", ["model"], "lack the model of records (1, first"),
        ("", ["device", "model"], "lack the device and the model"),
    ],
)
def test_it_is_said_where_the_dump_tells_no_model_or_device(
    run: Run, tmp_path: Path, place: str, lacking: list[str], told: str
) -> None:
    root = tree_in(tmp_path, place, _operator(place or ".", "single"))
    done = run("ls", root, "--json", "-")
    assert (_layers(done), done.json["overflows"][0]["layers_without"]) == (["MatMul single"], lacking)
    (note,) = [line for line in _table(run("ls", root).out) if line.startswith("note:")]
    assert told in note
    assert str(root / place / REAL.name) in note


@pytest.mark.parametrize("executor", ["serial", "threads:2", "processes:1"])
def test_every_executor_finds_the_same(
    run: Run, tree: Run, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    @contextmanager
    def progress(_: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr("pytest_npudump.cli.ls.progress", progress)
    root = tree(f"{TIME}/0/m/1/0", _operator(f"{TIME}/0/m/1/0", "own"))
    source = root / TIME / "0/m/1/0" / REAL.name
    for number in range(1, 100):
        shutil.copy(source, source.with_name(f"Opdebug.Node_OpDebug.7.2.{1795229153283277 + number}"))
    damaged = source.with_name("Opdebug.Node_OpDebug.7.2.1795229153283000")
    damaged.write_bytes(source.read_bytes()[:-8])
    done = run("ls", root, "--json", "-", "--executor", executor)
    assert done.code == 2
    assert str(damaged) in done.err
    assert _layers(done) == ["MatMul own"] * 100
    assert len({record["file"] for record in done.json["overflows"]}) == 100
    assert told[-1] == (101, 101)
    assert len(told) > 1
