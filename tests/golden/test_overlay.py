"""A variant as what differs: it stands for exactly what it was made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.store import VARIANT, as_written, differing, laid_over, read_golden, write_golden
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import parse, render
from tests.golden.golden_text import golden_text

FIVE = "calibration: {members: 5, factor: 5, varied: [repeats]}\n"
WIDE = "calibration: {members: 9, factor: 50, varied: [inputs]}\n"
PROJECTIONS = "1 2 3 4 5 6 7 8"
NAMES = ("conv", "relu", "fc", "out", "extra")


def text(values: dict[str, float], *, soc: str = "A", **golden: Any) -> str:
    return golden_text(values, f"runtime: acl, soc: {soc}", **golden)


def written(folder: Path, base: str, whole: str) -> tuple[Record, Record]:
    """Write both, the variant as what differs, and return its file as it is and as it is read."""
    folder.joinpath("test_a.yaml").write_text(base, encoding="utf-8")
    path = folder / "test_a@x.yaml"
    golden = replace(parse(whole, path), base=read_golden(folder / "test_a.yaml"))
    write_golden(golden)
    return parse(path.read_text(encoding="utf-8"), path), read_golden(path)


def test_only_what_differs_is_in_the_file(tmp_path: Path) -> None:
    """When a tensor changed that both share, the common golden tells."""
    base = {"conv": 1, "relu": 2, "fc": 3}
    own, whole = written(tmp_path, text(base), text(base | {"relu": 9}, soc="B"))
    assert own.table.keys == ("relu:output.0",)
    assert own.extra[VARIANT] == {"base": "test_a.yaml"}
    assert render(whole) == render(parse(text(base | {"relu": 9}, soc="B"), whole.path))
    assert whole.file_digest != whole.digest
    stamps = {f"{name}:output.0": "2026-01-01" for name in base}
    common = replace(read_golden(tmp_path / "test_a.yaml"), changed=stamps)
    own = replace(own, changed={"relu:output.0": "2026-02-02"})
    assert laid_over(own, common).changed == stamps | own.changed
    assert "relu:output.0" not in laid_over(replace(own, changed={}), common).changed


def test_tensors_that_only_one_of_both_has_keep_their_places(tmp_path: Path) -> None:
    variant = text({"first": 7, "conv": 1, "second": 8, "third": 8, "fc": 3, "last": 1})
    own, whole = written(tmp_path, text({"conv": 1, "relu": 2, "fc": 3}), variant)
    assert own.table.keys == tuple(f"{name}:output.0" for name in ("first", "second", "third", "last"))
    assert render(whole) == render(parse(variant, whole.path))


def test_what_runs_in_another_order_is_written_whole(tmp_path: Path) -> None:
    variant = text({"fc": 3, "conv": 1})
    own, whole = written(tmp_path, text({"conv": 1, "fc": 3}), variant)
    assert VARIANT not in own.extra
    assert render(whole) == render(parse(variant, whole.path))


def test_a_row_that_both_share_follows_the_common_golden(tmp_path: Path) -> None:
    base = {"conv": 1, "relu": 2}
    written(tmp_path, text(base), text(base | {"relu": 9}))
    tmp_path.joinpath("test_a.yaml").write_text(text(base | {"conv": 5}), encoding="utf-8")
    whole = read_golden(tmp_path / "test_a@x.yaml")
    assert whole.table.values[:, 0].tolist() == [5, 9]


def test_noise_of_another_calibration_is_no_bound_of_the_variant(tmp_path: Path) -> None:
    base = {"conv": 1, "relu": 2}
    cells = dict.fromkeys(base, "1e-3,-,-,-")
    written(tmp_path, text(base, head=FIVE, cells=cells), text(base | {"relu": 9}, head=FIVE, cells=cells))
    tmp_path.joinpath("test_a.yaml").write_text(text(base, head=WIDE, cells=cells), encoding="utf-8")
    whole = read_golden(tmp_path / "test_a@x.yaml")
    assert whole.table.noise == ("-", "1e-3,-,-,-")


def test_projections_and_edges_belong_to_what_is_compared(tmp_path: Path) -> None:
    block = "projections: |\n  conv:output.0 {}\nedges: |\n  relu < conv:output.0\n"
    base = text({"conv": 1, "relu": 2}, blocks=block.format(PROJECTIONS))
    variant = text({"conv": 1, "relu": 2}, blocks=block.format(PROJECTIONS.replace("8", "9")))
    own, whole = written(tmp_path, base, variant)
    assert own.table.keys == ("conv:output.0",)
    assert "edges" not in own.blocks
    assert render(whole) == render(parse(variant, whole.path))


@pytest.mark.each("projected", ["conv", "relu"])
def test_one_of_two_files_may_have_projections(projected: str, tmp_path: Path) -> None:
    block = f"projections: |\n  {projected}:output.0 {PROJECTIONS}\n"
    base = text({"conv": 1, "relu": 2}, blocks=block if projected == "conv" else "")
    variant = text({"conv": 1, "relu": 9}, blocks=block)
    own, whole = written(tmp_path, base, variant)
    assert own.table.keys == ("relu:output.0",)
    assert render(whole) == render(parse(variant, whole.path))


@pytest.mark.each("digest", ["wwwwww", "vvvvvv"])
def test_a_variant_has_lines_of_models_where_they_are_others(digest: str, tmp_path: Path) -> None:
    models = "models: |\n  #m.onnx AAAAAAAAAAAAAAAA graph1\n  conv - {} 0000\n"
    base = text({"conv": 1, "relu": 2}, blocks=models.format("wwwwww"))
    variant = text({"conv": 1, "relu": 3}, blocks=models.format(digest))
    own, whole = written(tmp_path, base, variant)
    assert ("models" in own.blocks) is (digest != "wwwwww")
    assert render(whole) == render(parse(variant, whole.path))


@pytest.mark.each(
    ("base", "reason"),
    [
        (text({"conv": 1}), "has no tensor 'relu:output.0', behind which"),
        (text({"relu": 2}).replace("::test_a", "::test_b"), "is of 'test_a.py::test_b', this one of"),
        (None, r"test_a\.yaml: the golden file does not exist"),
    ],
)
def test_a_base_that_is_gone_or_does_not_fit_is_an_error(
    tmp_path: Path, base: str | None, reason: str
) -> None:
    written(tmp_path, text({"relu": 2}), text({"relu": 2, "new": 3}))
    tmp_path.joinpath("test_a.yaml").unlink()
    if base is not None:
        tmp_path.joinpath("test_a.yaml").write_text(base, encoding="utf-8")
    with pytest.raises(GoldenError, match=reason):
        read_golden(tmp_path / "test_a@x.yaml")


def test_a_tensor_that_the_common_golden_has_meanwhile_is_the_variants_own(tmp_path: Path) -> None:
    written(tmp_path, text({"relu": 2}), text({"relu": 2, "new": 3}))
    tmp_path.joinpath("test_a.yaml").write_text(text({"new": 7, "relu": 2}), encoding="utf-8")
    whole = read_golden(tmp_path / "test_a@x.yaml")
    assert whole.table.keys == ("new:output.0", "relu:output.0")
    assert whole.table.values[:, 0].tolist() == [3, 2]


def test_a_row_that_no_key_places_is_an_error(tmp_path: Path) -> None:
    own, _ = written(tmp_path, text({"relu": 2}), text({"relu": 2, "new": 3}))
    content = own.path.read_text(encoding="utf-8")
    own.path.write_text(content.replace("new:output.0", "other:output.0", 1), encoding="utf-8")
    with pytest.raises(GoldenError, match="does not tell where 'new:output"):
        read_golden(own.path)


@pytest.mark.each(
    "told", ["x", "{base: ../test_a.yaml}", "{base: test_a@y.yaml}", "{base: test_a.yaml, a: 1}"]
)
def test_a_key_that_leads_elsewhere_is_an_error(tmp_path: Path, told: str) -> None:
    path = tmp_path / "test_a@x.yaml"
    path.write_text(text({"relu": 2}, head=f"variant: {told}\n"), encoding="utf-8")
    with pytest.raises(GoldenError, match="variant is "):
        read_golden(path)


def test_a_variant_is_not_written_over_a_base_that_has_changed_meanwhile(tmp_path: Path) -> None:
    _, whole = written(tmp_path, text({"relu": 2}), text({"relu": 3}))
    tmp_path.joinpath("test_a.yaml").write_text(text({"relu": 4}), encoding="utf-8")
    before = whole.path.read_bytes()
    with pytest.raises(GoldenError, match="was written meanwhile"):
        write_golden(replace(whole, extra={"reason": "why"}))
    assert whole.path.read_bytes() == before


GOLDENS = st.builds(
    lambda order, values, cells, head: text(
        {name: values[name] for name in order}, head=head, cells=cells, soc="B"
    ),
    st.lists(st.sampled_from(NAMES), unique=True),
    st.fixed_dictionaries({name: st.sampled_from([1, 2]) for name in NAMES}),
    st.none() | st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1e-3,-,-,-", "~2e-3,-,-,-"])),
    st.sampled_from(["", FIVE, WIDE, "repeats: {runs: 2}\n"]),
)


@given(GOLDENS, GOLDENS)
def test_any_golden_is_what_its_file_stands_for(
    tmp_path_factory: pytest.TempPathFactory, base: str, variant: str
) -> None:
    folder = tmp_path_factory.mktemp("golden")
    _, whole = written(folder, base, variant)
    expected = parse(variant, whole.path)
    assert render(whole) == render(expected)
    if whole.base is not None:
        assert laid_over(as_written(whole), whole.base).table.keys == expected.table.keys
        assert set(differing(whole, whole.base)) <= set(expected.table.keys)
