"""Our file formats keep the protocol, on files that CANN, MindSpore, numpy and safetensors wrote."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_npudump.dump.files import formats
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import TensorRecord
from pytest_npudump.errors import DumpError, EmptyDumpError, FormatError
from pytest_npudump.testing import FormatConformance, Sample

DATA = Path(__file__).parents[1] / "data"


class OurFormat(FormatConformance):
    """A format of ours is read by its file's name, in a dump."""

    def read(self, path: Path) -> Sequence[TensorRecord]:
        try:
            dump = read_dump(path.parent)
        except EmptyDumpError as error:
            raise FormatError(path, str(error)) from error
        if dump.problems:
            raise dump.problems[0]
        if not dump.records:
            raise FormatError(path, "; ".join(dump.notes))
        return dump.records


class TestContainer(OurFormat):
    samples = (
        Sample(
            DATA / "dump" / "containers" / "mixed-op",
            {
                "net/block 1/mat\\mul.x:input.0": np.arange(12, dtype=np.float32).reshape(3, 4),
                **{
                    f"net/block 1/mat\\mul.x:{slot}": None
                    for slot in ("input.1", "input.2", "output.0", "output.1", "workspace.0")
                },
            },
            "MatMul.net_block_1_mat_mul_x.3.7.1795228705872229",
        ),
    )


def npy(path: Path) -> Sample:
    """A file of MindSpore's, read by numpy."""
    layer, io, slot = path.name.split(".")[1], *path.name.split(".")[5:7]
    return Sample(path, {f"{layer}:{io}.{slot}": np.load(path)})


class TestNpy(OurFormat):
    samples = tuple(
        npy(next((DATA / "trees" / "mindspore-dtypes").rglob(f"*.{name}.npy")))
        for name in ("Float16", "UInt64")
    )


def table(path: Path) -> Sample:
    """The rows of a statistics table that CANN's dump code wrote, by Python's own reader of such tables."""
    with path.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    layer = path.name.split(".")[1]
    return Sample(path, {f"{layer}:{row['Input/Output'].lower()}.{row['Index']}": None for row in rows})


class TestStatisticsTable(OurFormat):
    has_lines = True
    samples = tuple(map(table, sorted((DATA / "trees" / "acl-stats").rglob("*.csv"))[:1]))


def merged() -> Sample:
    path = DATA / "trees" / "mindspore-statistic" / "statistic.csv"
    lines = [line.split(",") for line in path.read_text().splitlines()[1:]]
    return Sample(path, {f"{line[1]}:{line[5]}.{line[6]}": None for line in lines})


class TestMergedStatistics(OurFormat):
    has_lines = True
    samples = (merged(),)


TOOLS = DATA / "tools"
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5


class TestMsprobe(OurFormat):
    """Statistics alone: tensors are in files of their own, see tests/dump/files/test_msprobe.py."""

    path = TOOLS / "msprobe" / "L1-md5" / "step0" / "proc7" / "dump.json"
    samples = (
        Sample(
            path,
            {
                f"{'.'.join(name.split('.')[:2])}{'.backward' * name.endswith('backward')}"
                f"{'#turn=' * (turn > 0)}{turn or ''}:{io.removesuffix('_args')}.{slot}": None
                for name, call in json.loads(path.read_text())["data"].items()
                for turn in [int(name.split(".")[2])]
                for io in ("input_args", "input", "output")
                for slot, one in enumerate(call.get(io, ()))
                if isinstance(one, dict) and "shape" in one
            },
        ),
    )


class TestTorchSave(OurFormat):
    samples = (
        Sample(
            TOOLS / "plain" / "layers.pt",
            {
                "half:output.0": VALUES.astype(np.float16),
                "brain:output.0": VALUES.astype(ml_dtypes.bfloat16),
                "e4m3:output.0": VALUES.astype(ml_dtypes.float8_e4m3fn),
                "nested.transposed:output.0": VALUES.T,
                "nested.list:output.0": VALUES.astype(np.int32),
                "nested.list:output.1": VALUES > 0,
                "weight:output.0": VALUES[:, 1],
                "unsigned:output.0": np.array([1, 65535], np.uint16),
                "scalar:output.0": np.array(7),
                "empty:output.0": np.zeros((0, 3), np.float32),
            },
        ),
        Sample(
            TOOLS / "plain" / "value.pt",
            {"attn.layer_id=2:output.0": VALUES},
            "name=attn___rank=1___dump_index=12___step=3___recompute_status=disabled___layer_id=2.pt",
        ),
    )


class TestArrays(OurFormat):
    samples = (
        Sample(TOOLS / "plain" / "arrays.npz", {"x:output.0": VALUES, "y:output.0": np.arange(3)}),
        Sample(
            TOOLS / "plain" / "weights.safetensors",
            {"w:output.0": VALUES, "b:output.0": VALUES.astype(ml_dtypes.bfloat16)},
        ),
        Sample(TOOLS / "plain" / "outtensor0.bin", {"outtensor0:output.0": VALUES.astype(np.float16)}),
    )


ARRAYS = {
    "conv1:input.0": np.arange(-3, 3, dtype=np.int8).reshape(2, 3),
    "conv1:output.0": np.array([1.5, -0.25, np.pi], np.float32),
    "relu1:output.0": np.array([[0.5]], np.float32),
}


@pytest.fixture
def _offered(monkeypatch: pytest.MonkeyPatch, others: Any) -> None:
    monkeypatch.setattr(formats, "offered", lambda: (others.Safetensors(),))


@pytest.fixture(scope="session")
def safetensors_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("safetensors") / "step0.safetensors"
    save_file(ARRAYS, path)
    return path


@pytest.mark.usefixtures("_offered")
class TestAnotherPackagesFormat(OurFormat):
    """Read where it lies among the files of a dump."""

    samples = (Sample(DATA / "absent", ARRAYS, "step0.safetensors"),)

    @pytest.fixture
    def sample(self, safetensors_file: Path) -> Sample:
        return Sample(safetensors_file, ARRAYS)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """The sample is made by safetensors itself, when the tests run."""


def test_a_file_that_no_format_claims_is_as_it_was(tmp_path: Path, safetensors_file: Path) -> None:
    (tmp_path / "step0.tensors").write_bytes(safetensors_file.read_bytes())
    with pytest.raises(EmptyDumpError, match=r"holds only step0\.tensors: no dump file"):
        read_dump(tmp_path)


@pytest.mark.usefixtures("_offered")
def test_statistics_of_another_packages_tensors_are_computed(tmp_path: Path, safetensors_file: Path) -> None:
    (tmp_path / "step0.safetensors").write_bytes(safetensors_file.read_bytes())
    dump = read_dump(tmp_path)
    stats = {str(record.key): record.stats for record in dump.records}
    for key, array in ARRAYS.items():
        found = stats[key]
        assert found is not None
        values = array.astype(np.float64)
        assert (found.max, found.min, found.count) == (values.max(), values.min(), values.size)


def test_two_packages_that_claim_a_file_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: Any
) -> None:
    monkeypatch.setattr(formats, "offered", lambda: (others.Safetensors(), others.Safetensors()))
    (tmp_path / "a.safetensors").write_bytes(b"x")
    with pytest.raises(DumpError, match="2 formats of other packages claim it"):
        read_dump(tmp_path)


def test_a_suite_without_a_reader_says_what_it_lacks(tmp_path: Path) -> None:
    class Mine(FormatConformance):
        pass

    with pytest.raises(NotImplementedError, match=r"^Mine\.read\(path\): expected a method that returns"):
        Mine().read(tmp_path / "a.wave")
