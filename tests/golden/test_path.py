from __future__ import annotations

import unicodedata
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.golden.path import golden_path, is_variant

ROOT = Path("/repo/golden")


def place(
    file: str = "tests/test_ocr.py",
    classes: Any = (),
    name: str = "test_x",
    param_id: str | None = None,
    variant: str = "",
) -> Any:
    return golden_path(
        ROOT, test_file=PurePosixPath(file), classes=classes, name=name, param_id=param_id, variant=variant
    )


def relative(*args: Any, **kwargs: Any) -> Any:
    return place(*args, **kwargs).relative_to(ROOT).as_posix()


def test_a_plain_name_stands_as_it_is() -> None:
    assert relative(name="test_classifier") == "tests/test_ocr/test_classifier.yaml"
    assert relative(name="test_x", param_id="fp16-0.5") == "tests/test_ocr/test_x[fp16-0.5].yaml"
    assert relative(variant="ascend910b3") == "tests/test_ocr/test_x@ascend910b3.yaml"


@pytest.mark.each(
    ("given_", "pattern"),
    [
        ({"param_id": "a/b"}, "test_x[a_b]-??????????.yaml"),
        ({"param_id": "FP16"}, "test_x[FP16]-??????????.yaml"),
        ({"classes": ("TestOcr",)}, "TestOcr.test_x-??????????.yaml"),
        ({"name": "nul"}, "_nul-??????????.yaml"),
        ({"classes": ("con",)}, "_con.test_x-??????????.yaml"),
        ({"variant": "Ascend910B3"}, "test_x@Ascend910B3-??????????.yaml"),
        ({"param_id": "日本"}, "test_x[[]_[]]-??????????.yaml"),
    ],
)
def test_any_other_name_is_presentable_and_hashed(given_: Any, pattern: str) -> None:
    glob = pattern if "[[]" in pattern else pattern.replace("[", "[[]")
    assert place(**given_).match(glob)


def test_names_do_not_change_between_runs() -> None:
    """A renamed golden is a missing golden."""
    assert (
        relative(classes=("TestOcr",), param_id="A/b") == "tests/test_ocr/TestOcr.test_x[A_b]-cc73670d01.yaml"
    )


@pytest.mark.each(
    ("left", "right"),
    [
        ({"param_id": "a/b"}, {"param_id": "a_b"}),
        ({"param_id": "a"}, {"param_id": "A"}),
        ({"param_id": "\u00e9"}, {"param_id": "e\u0301"}),
        ({"param_id": None}, {"param_id": ""}),
        ({"param_id": "None"}, {"param_id": None}),
        ({"classes": ("TestA",)}, {"classes": ("TestB",)}),
        ({"classes": ("a", "b")}, {"classes": ("a.b",)}),
        ({"classes": ("test_x",), "name": "y"}, {"name": "test_x.y"}),
        ({"name": "test_x[a]"}, {"param_id": "a"}),
        ({"file": "tests/a.py", "name": "b"}, {"file": "tests/a/b.yaml", "name": "b"}),
        ({"file": "tests/a.py", "classes": ("b",)}, {"file": "tests/a/b.py"}),
        ({"file": "tests/a.py"}, {"file": "tests/a.txt"}),
        ({"file": "tests/a.py"}, {"file": "tests/A.py"}),
        ({"file": "../a.py"}, {"file": "a.py"}),
        ({"file": "/a.py"}, {"file": "a.py"}),
        ({"variant": "a"}, {"variant": "A"}),
        ({"param_id": "x" * 300}, {"param_id": "x" * 301}),
        ({"param_id": "a", "variant": "b"}, {"param_id": "a@b"}),
    ],
)
def test_tests_that_look_alike_have_files_of_their_own(left: Any, right: Any) -> None:
    assert place(**left).as_posix().casefold() != place(**right).as_posix().casefold()


@pytest.mark.each(
    ("name", "other"),
    [("910B", "another"), ("prod", "another"), ("a b", "a?b"), ("x" * 40, "y" * 40)],
)
def test_a_rank_s_own_golden_is_of_its_variant_and_of_no_other(name: str, other: str) -> None:
    for variant in (name, f"{name}@rank1of2", f"{name}@rank0of0"):
        spelled = place(variant=variant).stem.partition("@")[2]
        assert is_variant(spelled, name)
        assert not is_variant(spelled, other)


def test_a_name_that_looks_hashed_cannot_meet_a_hashed_one() -> None:
    hashed = place(file="Tests/test_a.py").relative_to(ROOT).parts[0]
    assert place(file=f"{hashed.lower()}/test_a.py").relative_to(ROOT).parts[0].lower() != hashed.lower()


texts = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="aA._-[]/\\:é\u0301e@%# ", max_size=6),
    st.sampled_from(["con", "NUL", "com1", "..", ".", "", "a" * 300, "ß", "ss", "\u0131", "\u212a"]),
)
parts = st.lists(texts.filter(lambda s: "/" not in s and "\0" not in s and s != "."), min_size=1, max_size=3)
identities = st.builds(
    lambda parts, classes, name, param_id, variant: {
        "file": "/".join(parts),
        "classes": tuple(classes),
        "name": name,
        "param_id": param_id,
        "variant": variant,
    },
    parts,
    st.lists(texts, max_size=2),
    texts,
    st.one_of(st.none(), texts),
    texts,
)


def raw(identity: Any) -> Any:
    return {**identity, "file": PurePosixPath(identity["file"])}


@given(identities, identities)
def test_distinct_tests_have_distinct_files_on_any_file_system(left: Any, right: Any) -> None:
    if raw(left) == raw(right):
        assert place(**left) == place(**right)
        return
    forms = [unicodedata.normalize("NFC", str(place(**identity))).casefold() for identity in (left, right)]
    assert forms[0] != forms[1]


@given(identities)
def test_every_file_lies_inside_the_root_and_any_file_system_takes_it(identity: Any) -> None:
    path = place(**identity)
    inside = path.relative_to(ROOT)
    assert ".." not in inside.parts
    for part in inside.parts:
        assert part.isascii()
        assert len(part) <= 143
        assert part[0] not in ".-"
        assert part[-1] not in ". "
        assert not set(part) & set('\\/:*?"<>|\0\n ')
        assert part.partition(".")[0].lower() not in {"con", "prn", "aux", "nul", "com1", "lpt1"}
    assert path.suffix == ".yaml"
