"""Which variant counts for a run: exactly one, or an error; and which runs may be written into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.variants import (
    Goldens,
    as_recorded,
    choose,
    names_variants,
    not_calibrated,
    not_recorded,
    replaced_words,
    variants_of,
)
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import render
from pytest_npudump.request import DumpRequest


def common(**variants: Any) -> Record:
    table = StatsTable.from_records([])
    producer = {"runtime": "acl", "soc": "A", "cann": "8.0"}
    return Record("t.py::t", producer, table, Path("golden/t.yaml"), {"variants": variants})


def facts(soc: str = "A", cann: str = "8.0", runtime: str = "acl") -> dict[str, str]:
    return {"soc": soc, "cann": cann, "runtime": runtime, "driver": "25"}


def test_the_one_whose_facts_the_run_has_counts_and_it_is_said_why() -> None:
    found = choose(common(b={"soc": "B"}, e={"runtime": "emulator", "soc": "E"}), facts("B"))
    assert found.name == "b"
    assert found.why == "compared with the variant 'b', which t.yaml names for soc B"


def test_none_counts_for_a_run_that_is_another_or_does_not_tell_a_fact_and_that_is_said() -> None:
    given = common(b={"soc": "B"})
    found = choose(given, facts("C"))
    assert (found.name, found.foreign) == ("", "of soc A, and this run of soc C")
    assert "none of its variants (b: soc B) is for soc C, cann 8.0, runtime acl" in found.why
    assert choose(given, facts("A")).foreign == ""
    assert [choose(given, told).name for told in ({"runtime": "acl"}, {"soc": "B"})] == ["", "b"]


def test_the_more_special_one_counts_where_both_fit() -> None:
    given = common(b={"soc": "B"}, b81={"soc": "B", "cann": "8.1"})
    assert choose(given, facts("B", "8.1")).name == "b81"
    assert choose(given, facts("B", "8.0")).name == "b"
    turned = common(a81={"soc": "B", "cann": "8.1"}, b={"soc": "B"})  # the same in whatever order
    assert [choose(turned, facts("B", cann)).name for cann in ("8.1", "8.0")] == ["a81", "b"]


@pytest.mark.each(
    ("one", "other"),
    [
        ({"soc": "B"}, {"cann": "8.1"}),
        ({"soc": "B"}, {"soc": "B"}),
        ({"soc": "B", "runtime": "acl"}, {"soc": "B", "cann": "8.1"}),
    ],
)
def test_two_that_fit_one_run_are_an_error_for_every_run(one: dict[str, str], other: dict[str, str]) -> None:
    for run in (facts("B", "8.1"), facts("A")):
        with pytest.raises(GoldenError, match=r"the variants 'x' .* and 'y' .* fit one run"):
            choose(common(x=one, y=other), run)


WRONG: list[dict[str, Any]] = [
    *({"a": {}}, {"a": {"driver": "25"}}, {"a": {"soc": 3}}, {"../a": {"soc": "B"}}, {"a": "B"}),
    {"a@b": {"soc": "B"}},
]


@pytest.mark.each("wrong", WRONG)
def test_a_key_that_is_not_as_written_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(GoldenError, match=r"variants is .* expected a mapping such as"):
        variants_of(common(**wrong))


def test_the_head_of_a_file_tells_whether_it_names_variants(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    assert not names_variants(path)
    path.write_text(render(common(b={"soc": "B"})), encoding="utf-8")
    assert names_variants(path)
    text = path.read_text(encoding="utf-8").replace("variants:", "others:")
    path.write_text(f"{text}  variants:output.0\n", encoding="utf-8")
    assert not names_variants(path)
    path.write_text("a: " + "x" * 70_000 + "\nvariants: {b: {soc: B}}\ntensors: |\n", encoding="utf-8")
    assert names_variants(path)


TABLE = "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"
ROW = "  fc float16 1x2 0.225464 -0.093811 0.0658264 - 0 0 0\n"
DEVICE = {"runtime": "acl", "soc": "Ascend910B3", "cann": "9.1.0"}
EMULATOR = {"runtime": "emulator", "soc": "Emulator"}


def goldens(folder: Path, producer: dict[str, str], variant: str = "") -> Goldens:
    path = folder / "test_b.yaml"
    facts = ", ".join(f"{name}: {value}" for name, value in producer.items())
    head = "npudump-golden: 1\ntest: test_a.py::test_b\n"
    producer_line = f"producer: {{{facts}, scene: model, dump_mode: output}}\n"
    path.write_text(head + producer_line + TABLE + ROW, encoding="utf-8")
    own = folder / f"test_b@{variant}.yaml" if variant else None
    return Goldens("test_a.py::test_b", DumpRequest(), path, own)


OTHER = {**DEVICE, "soc": "Ascend310P3"}


@pytest.mark.each(
    ("recorded", "run", "variant", "replaces", "calibrates"),
    [
        (DEVICE, EMULATOR, "", False, False),
        ({**DEVICE, "runtime": "mindspore"}, EMULATOR, "", False, False),
        (EMULATOR, EMULATOR, "", True, True),
        (EMULATOR, DEVICE, "", True, False),
        (DEVICE, {**DEVICE, "cann": "9.2.0"}, "", True, True),
        (DEVICE, OTHER, "", True, False),
        (DEVICE, EMULATOR, "emulated", True, False),  # which is not there, and lends no noise
    ],
)
def test_emulators_run_replaces_no_devices_golden_and_noise_is_of_the_chip_that_recorded_it(
    *, tmp_path: Path, recorded: Any, run: Any, variant: str, replaces: bool, calibrates: bool
) -> None:
    found = goldens(tmp_path, recorded, variant)
    assert (not not_recorded(found, run), not not_calibrated(found, run)) == (replaces, calibrates)


def test_what_another_chip_had_recorded_is_told(tmp_path: Path) -> None:
    found = goldens(tmp_path, DEVICE)
    golden = found.read_if_any()
    words = "the golden was of runtime acl, soc Ascend910B3, and is of runtime acl, soc Ascend310P3"
    (note,) = replaced_words(found, golden, {"runtime": "acl", "soc": "Ascend310P3"})
    assert note.startswith(words)
    for run in ({**DEVICE, "cann": "9.2.0"}, {"runtime": "acl"}):
        assert replaced_words(found, golden, run) == ()
    assert replaced_words(found, None, EMULATOR) == ()
    beside = goldens(tmp_path, DEVICE, "b")
    assert replaced_words(beside, beside.read_if_any(), {"runtime": "acl", "soc": "Ascend310P3"}) == ()


def test_variant_that_option_names_and_the_common_golden_in_its_place_are_told_apart(tmp_path: Path) -> None:
    found = goldens(tmp_path, DEVICE, "b")
    named = "npudump_golden_variant names test_b@b.yaml"
    assert found.for_run(DEVICE).why == (
        f"compared with the common golden test_b.yaml: {named}, which is not there"
    )
    found.path.write_bytes(found.common.read_bytes())
    assert found.for_run(DEVICE).why == f"compared with the variant test_b@b.yaml: {named}"


def test_an_update_of_a_golden_with_variants_tells_what_these_share_with_it(tmp_path: Path) -> None:
    alone, own = goldens(tmp_path, DEVICE), goldens(tmp_path, DEVICE, "b")
    before = alone.read_if_any()
    assert before is not None
    named = replace(before, extra={"variants": {"b": {"soc": "B"}}})
    assert alone.lost_by_update(before) == own.lost_by_update(named) == ()
    assert alone.lost_by_update(named) == ("what its variants (b) share with test_b.yaml is theirs too",)


def test_what_cannot_be_read_stands_in_no_updates_way(tmp_path: Path) -> None:
    found = goldens(tmp_path, DEVICE)
    found.common.write_text("<<<<<<< ours\n", encoding="utf-8")
    assert not not_recorded(found, EMULATOR)


def test_a_golden_names_what_computed_its_run(tmp_path: Path) -> None:
    """By which bounds a run is compared: a version that is not told is the same."""
    found = goldens(tmp_path, DEVICE)
    assert "onnxruntime" in found.facts(EMULATOR)
    assert "onnxruntime" not in found.facts(DEVICE)
    assert found.facts(DEVICE).items() >= {"scene": "model", "dump_mode": "output"}.items()


@pytest.mark.each(
    ("asked", "producer", "expected"),
    [
        (DumpRequest(), {**DEVICE, "dump_data": "tensor"}, "tensor"),
        (DumpRequest(), DEVICE, None),
        (DumpRequest(dump_data="stats"), {**DEVICE, "dump_data": "tensor"}, "stats"),
        (DumpRequest(scene="overflow"), {**DEVICE, "dump_data": "tensor"}, None),
    ],
)
def test_a_run_dumps_what_was_chosen_for_its_golden_unless_the_test_says(
    tmp_path: Path, asked: DumpRequest, producer: dict[str, str], expected: str | None
) -> None:
    assert as_recorded(asked, goldens(tmp_path, producer).common).dump_data == expected
    assert as_recorded(asked, tmp_path / "none.yaml") == asked
