from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.cann import soc_notes
from pytest_npudump.config.check import check_file
from pytest_npudump.config.json_file import MAX_FILE, StrictJsonError, json_refusal, parse, read_config_file


@pytest.mark.each(
    ("text", "code"),
    [
        (b"", 0),
        (b"{" * 10 + b"}" * 10, 0),
        (b"{" * 11, 100006),
        (b"[" * 11, 100006),
        (b"[{" * 10, 0),
        (b"{}" * 50, 0),
        (b"}}}" + b"{" * 10, 0),
        (b'{"x": "[[[[[[[[[[["}', 100006),
        (b"\x00" + b"{" * 50, 0),
        (b" " * MAX_FILE, 0),
        (b" " * (MAX_FILE + 1), 100003),
    ],
)
def test_size_and_nesting_are_limited_as_in_cann(tmp_path: Path, text: bytes, code: int) -> None:
    path = tmp_path / "acl"
    path.write_bytes(text)
    file = read_config_file(path)
    assert file.code == code
    assert file.text == (b"" if code else text)
    assert (file.reason is None) is (code == 0)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_bytes(b" " * (MAX_FILE + 1))
    for name, why in {
        ".": os.strerror(errno.EISDIR),
        "fifo": "not a regular file",
        "loop": os.strerror(errno.ELOOP),
        "missing": os.strerror(errno.ENOENT),
        "a\0b": "",
        "large": f"{MAX_FILE + 1} bytes, more than {MAX_FILE}",
    }.items():
        file = read_config_file(name, cwd=tmp_path)
        assert file.code == 100003
        assert file.reason is not None
        assert str(file.reason).startswith(f"{name}: cannot be read: {why}")
        assert str(file.reason).endswith("; name a regular file of at most 10 MiB")


def test_a_link_to_a_file_is_followed_and_an_empty_file_configures_nothing(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("real")
    assert read_config_file("link", cwd=tmp_path).text == b"{}"
    (tmp_path / "acl.json").touch()
    for target in ("acl", "ge"):
        verdict = check_file(Path("acl.json"), target, cwd=tmp_path)
        assert (verdict.accepted, verdict.need_dump) == (True, False)
        assert verdict.warnings == ("the file is empty: nothing is configured",)


def test_mindspore_wants_json_in_the_name_of_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text("{}")
    (tmp_path / "dump.cfg").write_text("{}")
    (tmp_path / "link.json").symlink_to("dump.cfg")
    assert "common_dump_settings" in check_file(Path("dump.json"), "mindspore", cwd=tmp_path).message
    assert "end in .json" in check_file(Path("dump.cfg"), "mindspore", cwd=tmp_path).message
    assert "end in .json" in check_file(Path("link.json"), "mindspore", cwd=tmp_path).message


STATS = '{"dump_path": ".", "dump_list": [{}], "dump_data": "stats", "dump_stats": ["Max"]}'


@pytest.mark.each(
    ("dump", "soc", "warned"),
    [
        (STATS, "Ascend910B3", False),
        (STATS, "Ascend310P3", True),
        (STATS, "", True),
        ('{"dump_scene": "aic_err_detail_dump"}', "Ascend910B3", True),
        ('{"dump_scene": "aic_err_norm_dump"}', "", False),
    ],
)
def test_limits_of_a_chip_are_warnings(tmp_path: Path, dump: str, soc: str, *, warned: bool) -> None:
    (tmp_path / "acl.json").write_text(f'{{"dump": {dump}}}')
    verdict = check_file(Path("acl.json"), "acl", soc=soc, cwd=tmp_path, environ={})
    assert verdict.accepted
    assert any("documented for" in text or "a driver" in text for text in verdict.warnings) is warned


@pytest.mark.each(
    ("dump", "warned"),
    [
        ({"dump_list": [{}]}, True),
        ({"dump_debug": "on"}, True),
        ({"dump_scene": "lite_exception"}, False),
        ({}, False),
    ],
)
def test_variables_with_which_ge_dumps_nothing_are_a_warning(
    tmp_path: Path, dump: dict[str, object], *, warned: bool
) -> None:
    tmp_path.joinpath("acl.json").write_text(json.dumps({"dump": {"dump_path": ".", **dump}}))
    environ = {"NPU_COLLECT_PATH": "/d", "NPU_COLLECT_PATH_EXE": ""}
    verdict = check_file(Path("acl.json"), "acl", cwd=tmp_path, environ=environ)
    assert verdict.accepted
    assert [text for text in verdict.warnings if text.endswith("unset NPU_COLLECT_PATH")] != [] or not warned
    assert warned or not any("E10056" in text for text in verdict.warnings)


def test_a_chip_is_judged_by_its_name_and_what_cann_refuses_aloud_is_no_note() -> None:
    stats = {"dump_stats": ["Max"]}
    assert soc_notes(stats, "Ascend910B3") == soc_notes(stats, "") == soc_notes({}, "Ascend310P3") == ()
    (note,) = soc_notes(stats, "Ascend310P3")
    assert note.endswith("and this is Ascend310P3")
    assert soc_notes({"dump_scene": "aic_err_detail_dump"}, "Ascend310P3") == ()


# What nlohmann::json 3.11 does with each, by its documentation and RFC 8259.
TAKEN = [
    (b"{}", {}),
    (b"\xef\xbb\xbf[1]", [1]),
    (b' \t\r\n"a" \n', "a"),
    (b'{"a": 1, "a": 2}', {"a": 2}),
    (b'{"a": 1}\x00 anything', {"a": 1}),
    (b'{"a": 1} \x00{', {"a": 1}),
    (b'{"a": 1}\x00\xff', {"a": 1}),
    *((b'"\\ud83d\\ude00"', "\U0001f600"), (b'"\\\\ud800"', "\\ud800")),
    *((b"18446744073709551615", 18446744073709551615), (b"-9223372036854775808", -9223372036854775808)),
    *((b'"\x7f"', "\x7f"), (b"1E2", 100.0)),
]
REFUSED = [
    b"",
    b" ",
    b"{",
    b"{} {}",
    b"{'a': 1}",
    b'{"a": 1,}',
    b"[1,]",
    b"// c\n{}",
    b"/* c */ {}",
    b"NaN",
    b"[Infinity]",
    b"[-Infinity]",
    b"01",
    b"+1",
    b"1.",
    b".5",
    b"0x1",
    b"1e999",
    b"1" * 400,
    b"True",
    b'"\x01"',
    b'"\n"',
    b'"\\x41"',
    b'"\\u12"',
    b'"\\ud800"',
    b'["\\udc00"]',
    b'{"\\ud800": 1}',
    b'{"a": [["\\ud800"]], "a": 1}',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b"{} \xff",
    b'{"a": "\x00"}',
    b'{"a": 1\x00}',
    b"\xef\xbb{}",
    b"\xff\xfe{\x00}\x00",
    b"\x00{}",
    b"\xc2\xa0{}",
    b"\x0c{}",
]


@pytest.mark.each(("text", "value"), TAKEN)
def test_takes(text: bytes, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.each("text", REFUSED)
def test_refuses(text: bytes) -> None:
    with pytest.raises(StrictJsonError):
        parse(text)


@pytest.mark.each(
    ("text", "value", "kind"),
    [
        (b"18446744073709551616", 2.0**64, float),
        (b"-9223372036854775809", -(2.0**63), float),
        (b"-0", 0, float),
    ],
)
def test_numbers_keep_the_kind_that_nlohmann_gives_them(text: bytes, value: Any, kind: type) -> None:
    assert parse(text) == value
    assert type(parse(text)) is kind


def test_nesting_that_python_cannot_follow_is_an_error_of_its_own() -> None:
    for text in (b"[" * 200_000 + b"]" * 200_000, b"[" * 200_000, b'{"a":' * 200_000):
        with pytest.raises(StrictJsonError, match="nested more deeply than Python follows") as caught:
            parse(text)
        refusal = json_refusal(caught.value, "write less")
        assert str(refusal) == f"{caught.value}; write less"
    assert parse(b"[" * 50 + b"]" * 50)


def test_the_error_names_the_byte_and_the_line() -> None:
    with pytest.raises(StrictJsonError) as caught:
        parse('\ufeff{"é": 1,\n "b" 2}'.encode())
    assert caught.value.offset == 18
    assert "line 2, column 6" in str(caught.value)


def test_what_follows_the_value_is_ignored_where_only_the_value_is_read() -> None:
    for rest in (b" x", b"{", b"\x00", b" \xff", b"\xed\xa0\x80"):
        assert parse(b'{"a": 1}' + rest, whole=False) == {"a": 1}


def test_invalid_utf_8_within_the_value_is_named_though_only_the_value_is_read() -> None:
    with pytest.raises(StrictJsonError, match="invalid UTF-8") as caught:
        parse(b'{"a": "\xff"}', whole=False)
    assert caught.value.offset == 7


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def has_surrogate(value: Any) -> bool:
    return any(0xD800 <= ord(c) <= 0xDFFF for c in json.dumps(value, ensure_ascii=False))


@given(value=JSON, ensure_ascii=st.booleans())
def test_reads_what_the_standard_library_writes(value: Any, *, ensure_ascii: bool) -> None:
    if any(text in json.dumps(value) for text in ("Infinity", "NaN")):
        return
    if has_surrogate(value):
        with pytest.raises(StrictJsonError):
            parse(json.dumps(value).encode())
    else:
        assert parse(json.dumps(value, ensure_ascii=ensure_ascii).encode()) == value


@given(st.binary(max_size=40))
def test_bytes_never_raise_anything_else(text: bytes) -> None:
    with contextlib.suppress(StrictJsonError):
        parse(text)
