from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pytest_npudump.config.cann import soc_notes
from pytest_npudump.config.check import check_file
from pytest_npudump.config.json_file import MAX_FILE, read_config_file


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


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("real")
    assert read_config_file("link", cwd=tmp_path).text == b"{}"


def test_an_empty_file_configures_nothing(tmp_path: Path) -> None:
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


@pytest.mark.each(
    ("dump", "soc", "warned"),
    [
        (
            '{"dump_path": ".", "dump_list": [{}], "dump_data": "stats", "dump_stats": ["Max"]}',
            "Ascend910B3",
            False,
        ),
        (
            '{"dump_path": ".", "dump_list": [{}], "dump_data": "stats", "dump_stats": ["Max"]}',
            "Ascend310P3",
            True,
        ),
        ('{"dump_path": ".", "dump_list": [{}], "dump_data": "stats", "dump_stats": ["Max"]}', "", True),
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
