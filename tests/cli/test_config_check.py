from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_npudump.cli import config
from pytest_npudump.cli.arguments import VERBS, configure

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def npudump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME"):
        monkeypatch.delenv(variable, raising=False)

    def run(content: str | None, *words: str, name: str = "config.json") -> tuple[int, str]:
        if content is not None:
            (tmp_path / name).write_text(content)
        parser = argparse.ArgumentParser(prog="npudump config")
        configure(parser, VERBS["config"])
        code = config.check(parser.parse_args(["check", name, *words]))
        return code, capsys.readouterr().out

    return run


def test_the_directory_that_the_environment_puts_in_place_is_said(
    npudump: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_DUMP_PATH", raising=False)
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path))
    _, out = npudump('{"dump": {"dump_scene": "aic_err_norm_dump", "dump_path": "/there"}}')
    assert out.splitlines() == [
        f"accepted by aclmdlSetDump of CANN 9.1.0: switches on EXCEPTION, into {tmp_path}",
        f'warning: dump_path: not used, for ASCEND_WORK_PATH is set: the dump goes to "{tmp_path}"',
    ]


def test_a_refused_file_exits_1_and_says_what_to_write_and_warnings_follow(npudump: Run) -> None:
    code, out = npudump('{"dump": {"dump_path": ".", "dump_mode": "Input"}}', "--cann", "9.0.0")
    assert code == 1
    assert out.splitlines() == [
        "refused by aclmdlSetDump of CANN 9.0.0: it returns 100009",
        'error: dump_mode: "Input" is unknown; write "input" [EP0002]',
    ]
    code, out = npudump('{"dump": {"dump_path": ".", "dump_debug": "on", "dump_list": [{}]}}')
    assert code == 0
    assert "warning: no model is dumped, for GE refuses silently: dump_list" in out
    code, out = npudump('{"dump": {"dump_scene": "lite_exception"}}', "--json")
    documented = {"accepted": True, "code": None, "reasons": [], "warnings": [], "need_dump": True}
    documented["dump_type"] = "ARGS_EXCEPTION"
    assert (code, json.loads(out) | documented) == (0, json.loads(out))


@pytest.mark.each(
    ("content", "words", "accepted", "reason_code"),
    [
        ('{"dump": {}}', "--cann 8.5.0", False, "EP0001"),
        ('{"dump": {}}', "--for acl", True, None),
        ('{"dump": {}}', "--for ge", False, None),
        ('{"dump_step": "0|1"}', "--for torchair", True, None),
        ('{"dump_step": "1-"}', "--for torchair", False, None),
        ("{}", "--for mindspore --device CPU", False, None),
        ("{", "--for acl", False, "EP0004"),
        ("", "--for acl", True, None),
    ],
)
def test_every_checker_can_be_asked(
    npudump: Run, content: str, words: str, reason_code: str | None, *, accepted: bool
) -> None:
    code, out = npudump(content, *words.split(), "--json")
    verdict = json.loads(out)
    assert (code, verdict["accepted"], verdict["code"]) == (0 if accepted else 1, accepted, reason_code)
    assert bool(verdict["reasons"]) is not accepted


def test_device_decides_for_mindspore(npudump: Run) -> None:
    common = {"dump_mode": 2, "path": "/d", "net_name": "n", "iteration": "all", "input_output": 0}
    common |= {"kernels": [], "support_device": [0], "op_debug_mode": 0}
    text = json.dumps({"common_dump_settings": common, "e2e_dump_settings": {}})
    words = ("--for", "mindspore", "--device")
    assert [npudump(text, *words, device)[0] for device in ("Ascend", "CPU", "GPU")] == [0, 1, 1]


@pytest.mark.each("target", ["acl", "ge", "torchair", "mindspore"])
def test_a_file_that_cannot_be_read_is_refused_for_every_reader(npudump: Run, target: str) -> None:
    for name in ("missing.json", "."):
        code, out = npudump(None, "--for", target, name=name)
        assert code == 1
        assert "name a regular file" in out
        assert "GE:" not in out
        code, out = npudump(None, "--for", target, "--json", name=name)
        told = json.loads(out)
        assert (code, told["accepted"], told["code"], told["need_dump"]) == (1, False, None, False)
        assert len(told["reasons"]) == 1
        assert "regular file" in told["reasons"][0]
    assert json.loads(npudump(None, "--json", name=".")[1])["acl_code"] == 100003


def test_json_that_python_cannot_follow_is_refused_in_words_of_its_own(npudump: Run) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    for target in ("mindspore", "torchair"):
        code, out = npudump(f'{{"other": {deep}}}', "--for", target)
        assert code == 1
        assert "error: nested more deeply than Python follows, so that it cannot be checked here; " in out


def test_a_regular_expression_that_cannot_be_checked_is_neither_accepted_nor_refused(npudump: Run) -> None:
    settings = {"op_debug_mode": 0, "dump_mode": 1, "path": "/d", "net_name": "n", "iteration": "0"}
    settings |= {"input_output": 0, "kernels": ["name-regex(a{2})"], "support_device": [0]}
    content = json.dumps({"common_dump_settings": settings, "e2e_dump_settings": {"enable": True}})
    code, out = npudump(content, "--for", "mindspore")
    assert (code, out.splitlines()[0]) == (1, "neither accepted nor refused: MindSpore alone can say")
    assert out.count("cannot be checked here") == 1
    code, out = npudump(content, "--for", "mindspore", "--json")
    told = json.loads(out)
    assert (code, told["accepted"], told["need_dump"], len(told["reasons"])) == (1, None, False, 1)


def test_the_installed_release_decides_unless_one_is_named(
    npudump: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ascend_toolkit_install.info").write_text("version=8.5.0\n")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert npudump('{"dump": {}}')[0] == 1
    assert npudump('{"dump": {}}', "--cann", "9.1.0")[0] == 0
    with pytest.raises(SystemExit) as caught:
        npudump("{}", "--cann", "latest")
    assert caught.value.code == 2
    assert "expected a release such as 8.5.0" in capsys.readouterr().err
