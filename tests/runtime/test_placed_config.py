"""A configuration put in a program's place, and what was there put back whatever happens."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_npudump.config.adump import validate
from pytest_npudump.errors import ConfigError
from pytest_npudump.runtime.programs import LeftBehindWarning, placed

ODD = (
    b'\xef\xbb\xbf{ "err_msg_mode": "1",\r\n\t"dump": {"dump_scene": "watcher"}, '
    b'"profiler": {"a\xc3\xa9": 1e300}}'
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run1.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_list": [{}]}}))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app" / "acl.json"


def beside(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def refused(target: Path, config: Path, words: str) -> None:
    with pytest.raises(ConfigError, match=words), placed(target, config):
        raise AssertionError


def test_all_but_the_dump_is_kept_and_cann_accepts_it(target: Path, config: Path, tmp_path: Path) -> None:
    target.write_bytes(ODD)
    with placed(target, config):
        content = json.loads(target.read_bytes())
        verdict = validate(target.read_bytes())
    assert content == {
        "err_msg_mode": "1",
        "dump": {"dump_path": str(tmp_path), "dump_list": [{}]},
        "profiler": {"aé": 1e300},
    }
    assert list(content) == ["err_msg_mode", "dump", "profiler"]
    assert verdict.accepted
    assert verdict.need_dump


def test_the_file_is_put_back_byte_for_byte_with_mode_and_time_though_it_is_read(
    target: Path, config: Path
) -> None:
    target.write_bytes(ODD)
    target.chmod(0o640)
    os.utime(target, ns=(10**18, 10**18))
    before = target.stat()
    for read in (False, True):
        with placed(target, config):
            assert stat.S_IMODE(target.stat().st_mode) == 0o640
            if read:
                target.read_bytes()
        after = target.stat()
        told = after.st_ino, after.st_mode, after.st_mtime_ns, target.read_bytes()
        assert told == (before.st_ino, before.st_mode, before.st_mtime_ns, ODD)
    assert beside(target) == ["acl.json"]


def test_where_there_was_none_there_is_none_afterwards_and_an_empty_file_configures_nothing(
    target: Path, config: Path
) -> None:
    with placed(target, config):
        assert json.loads(target.read_text()) == json.loads(config.read_text())
    assert beside(target) == []
    target.write_bytes(b"")
    with placed(target, config):
        assert list(json.loads(target.read_text())) == ["dump"]
    assert target.read_bytes() == b""


def test_it_is_put_back_however_block_ends_and_whatever_program_did_to_it(target: Path, config: Path) -> None:
    target.write_bytes(ODD)
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), placed(target, config):
            raise error
        assert target.read_bytes() == ODD
    for change in (lambda: target.write_text("{}"), target.unlink):
        with placed(target, config):
            change()
        assert target.read_bytes() == ODD
    assert beside(target) == ["acl.json"]


def test_a_link_stays_a_link_and_its_file_untouched(target: Path, config: Path, tmp_path: Path) -> None:
    content = '{"defaultDevice": {"default_device": "0"}}'
    (tmp_path / "shared.json").write_text(content)
    target.symlink_to("../shared.json")
    with placed(target, config):
        assert not target.is_symlink()
        assert json.loads(target.read_text())["defaultDevice"] == {"default_device": "0"}
        refused(target, config, "another run")
    assert (str(target.readlink()), (tmp_path / "shared.json").read_text()) == ("../shared.json", content)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary(max_size=40)
    | st.dictionaries(
        st.text(max_size=5),
        st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5),
        max_size=4,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_file_is_the_same_afterwards(target: Path, config: Path, content: bytes) -> None:
    target.write_bytes(content)
    with suppress(ConfigError), placed(target, config):  # most of it is no acl.json
        now = json.loads(target.read_bytes())
        assert now["dump"] == json.loads(config.read_text())["dump"]
        if content:
            before = json.loads(content.removeprefix(b"\xef\xbb\xbf").partition(b"\0")[0])
            assert {**before, "dump": None} == {**now, "dump": None}
    assert target.read_bytes() == content
    assert beside(target) == ["acl.json"]


def test_a_file_that_is_no_acl_json_is_refused_and_left(target: Path, config: Path, tmp_path: Path) -> None:
    cases = {
        b"{'dump': 1}": "not JSON",
        b'{"a": NaN}': "not JSON",
        b"\xff\xfe": "not JSON: invalid UTF-8",
        b"[]": "not a JSON object",
        b"null": "not a JSON object",
        b"[" * 11 + b"]" * 11: "11 levels",
    }
    for content, message in cases.items():
        target.write_bytes(content)
        refused(target, config, message)
        assert target.read_bytes() == content
        assert beside(target) == ["acl.json"]
    target.unlink()
    target.mkdir()
    refused(tmp_path / "gone" / "acl.json", config, "the folder has to exist")
    refused(target, config, "cannot be read: ")
    assert beside(target) == ["acl.json"]


def test_a_second_use_at_the_same_time_is_refused_but_of_another_file(
    target: Path, config: Path, tmp_path: Path
) -> None:
    target.write_bytes(ODD)
    (tmp_path / "link").symlink_to(target.parent)
    other = target.with_name("other.json")
    with placed(target, config):
        for same in (target, tmp_path / "link" / "acl.json"):
            refused(same, config, "another run has put its configuration there")
        with placed(other, config):
            assert json.loads(other.read_bytes()) == json.loads(config.read_bytes())
    with placed(target, config):
        pass
    assert target.read_bytes() == ODD
    assert beside(target) == ["acl.json"]


HOLD = """
import pathlib, sys
from pytest_npudump.runtime.programs import placed
with placed(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])):
    print("in", flush=True)
    sys.stdin.read()
"""


def hold(target: Path, config: Path, temporary: Path | None = None) -> subprocess.Popen[str]:
    """Start a process that has its configuration in place until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(target), str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ({"TMPDIR": str(temporary)} if temporary else {}),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    return process


def kill(target: Path, config: Path) -> None:
    """Leave what a process leaves that is killed while its configuration is in place."""
    with hold(target, config) as process:
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_another_process_is_refused_whatever_its_temporary_directory(
    target: Path, config: Path, tmp_path: Path
) -> None:
    target.write_bytes(ODD)
    (tmp_path / "elsewhere").mkdir()
    with hold(target, config, tmp_path / "elsewhere") as process:
        placed_there = target.read_bytes()
        refused(target, config, "another run")
        assert target.read_bytes() == placed_there
        process.communicate("")
    assert process.returncode == 0
    assert target.read_bytes() == ODD
    assert beside(target) == ["acl.json"]


def test_what_a_killed_run_leaves_the_next_one_puts_back_and_reports(target: Path, config: Path) -> None:
    """Also where the kill was between the two renames; and a file that was changed since stays."""
    target.write_bytes(ODD)
    kill(target, config)
    (backup,) = [name for name in beside(target) if name.startswith("acl.json.npudump-backup-")]
    assert (target.parent / backup).read_bytes() == ODD
    with pytest.warns(LeftBehindWarning, match="put back as it was before"), placed(target, config):
        assert json.loads(target.read_text())["err_msg_mode"] == "1"
    assert (target.read_bytes(), beside(target)) == (ODD, ["acl.json"])
    kill(target, config)
    target.unlink()
    (target.parent / "acl.json.npudump-tmp").write_text("half")
    with pytest.warns(LeftBehindWarning), placed(target, config):
        pass
    assert (target.read_bytes(), beside(target)) == (ODD, ["acl.json"])
    kill(target, config)
    target.write_text('{"mine": 1}')
    refused(target, config, r"keep the one you want as acl\.json")
    assert (target.read_text(), len(beside(target))) == ('{"mine": 1}', 2)
    target.write_bytes(ODD)  # by hand, as git checkout does: there is nothing to report
    with placed(target, config):
        pass
    assert (target.read_bytes(), beside(target)) == (ODD, ["acl.json"])


def test_what_a_killed_run_leaves_where_there_was_no_file_is_cleaned_up(target: Path, config: Path) -> None:
    kill(target, config)
    assert any(name.startswith("acl.json.npudump-absent-") for name in beside(target))
    with pytest.warns(LeftBehindWarning, match="it has been removed"), placed(target, config):
        pass
    assert beside(target) == []
    kill(target, config)
    target.write_bytes(ODD)
    with placed(target, config):
        pass
    assert (target.read_bytes(), beside(target)) == (ODD, ["acl.json"])


def test_two_backups_are_left_to_the_user_and_that_of_another_file_alone(target: Path, config: Path) -> None:
    other = target.parent / "my.acl.json.npudump-backup-0123456789abcdef"
    other.write_text("x")
    with placed(target, config):
        pass
    assert beside(target) == [other.name]
    for digest in ("a" * 16, "b" * 16):
        (target.parent / f"acl.json.npudump-backup-{digest}").touch()
    refused(target, config, "2 backups lie beside it")


def test_a_folder_that_goes_away_is_an_error_that_says_where_the_file_is(
    target: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write_bytes(ODD)
    replace = type(target).replace

    def refuse(self: Path, other: Path) -> Path:
        if "npudump-backup" in self.name:
            raise PermissionError(13, "Permission denied")
        return replace(self, other)

    monkeypatch.setattr(type(target), "replace", refuse)
    with (
        pytest.raises(ConfigError, match=r"cannot be put back.*kept in .*npudump-backup"),
        placed(target, config),
    ):
        pass


def test_a_program_that_reads_the_file_is_seen_and_one_that_only_looks_for_it_has_not(
    target: Path, config: Path
) -> None:
    target.write_text("{}")
    for number, source in enumerate(("os.stat(sys.argv[1])", "open(sys.argv[1]).read()", "")):
        with placed(target, config) as place:
            assert (place.unknown, place.was_read()) == ("", False), "what an earlier run read is nothing"
            subprocess.run([sys.executable, "-c", f"import os, sys; {source}", target], check=True)
            assert place.was_read() is (number == 1)


def test_of_a_file_that_was_changed_meanwhile_nothing_is_known(target: Path, config: Path) -> None:
    for change in ("replace", "append", "remove"):
        with placed(target, config) as place:
            content = target.read_text()
            if change != "append":
                target.unlink()
            if change != "remove":
                target.write_text(f"{content} " if change == "append" else "{}")
            assert place.was_read() is None, change


def test_where_reading_leaves_no_trace_nothing_is_known(
    target: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = type(target).read_bytes

    def without_a_trace(path: Path) -> bytes:
        before = path.stat()
        content = read(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return content

    monkeypatch.setattr(type(target), "read_bytes", without_a_trace)
    with placed(target, config) as place:
        assert "does not record when a file is read" in place.unknown
        assert place.was_read() is None
