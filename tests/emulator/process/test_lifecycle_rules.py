"""What each call of the life cycle answers in each state, by the rules; the published sequences are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "dump.json": '{"dump": {"dump_path": ".", "dump_list": [{}]}}',
    "path.json": '{"dump": {"dump_path": "."}}',
    "overflow.json": '{"dump": {"dump_path": ".", "dump_debug": "on"}}',
    "exception.json": '{"dump": {"dump_scene": "lite_exception"}}',
    "refused.json": '{"dump": {"dump_path": "nowhere", "dump_list": [{}]}}',
    "profiler.json": '{"profiler": {}}',
    "messages.json": '{"err_msg_mode": "1"}',
    "bad_messages.json": '{"err_msg_mode": "2"}',
    "array_messages.json": '{"err_msg_mode": []}',
    "object_messages.json": '{"err_msg_mode": {}}',
    "number_messages.json": '{"err_msg_mode": 1}',
    "null_messages.json": '{"err_msg_mode": null}',
    "malformed.json": '{"dump":',
    "blank.json": "  ",
    "empty.json": "",
    "objects.json": '{"a":' * 11 + "1" + "}" * 11,
    "arrays.json": "[" * 11 + "]" * 11,
    "string.json": '{"a": "[[[[[[[[[[["}',
}
# One call a line: its name, its argument if it has one, the code.
SEQUENCES = {
    "set_dump before all": "set_dump dump.json 100001",
    "set_dump of NULL before all": "set_dump 100001",
    "init_dump before all": "init_dump 100001",
    "finalize_dump before all": "finalize_dump 100001",
    "set_dump before init_dump": "init 0, set_dump dump.json 100045, set_dump 100045, finalize_dump 100045",
    "set_dump of NULL": "init 0, init_dump 0, set_dump 100000",
    "files": (
        "init 0, init_dump 0, set_dump missing 100003, set_dump . 100003, set_dump objects.json 100006, "
        "set_dump arrays.json 100006, set_dump string.json 100006, set_dump malformed.json 100009, "
        "set_dump blank.json 100009, set_dump refused.json 100009, set_dump empty.json 0, "
        "set_dump profiler.json 0, set_dump path.json 0, set_dump dump.json 0, set_dump overflow.json 0, "
        "init_dump 100002, finalize_dump 0, finalize_dump 100045, init_dump 0, finalize_dump 0"
    ),
    "references": (
        "init 0, init 100002, finalize_reference 0, finalize_reference 0, finalize_reference 100037"
    ),
    "finalize without init": "finalize 0, finalize 100037",
    "finalize drops every reference": "init 0, init 100002, finalize 0, finalize 100037, init 0",
    "a failed init leaves nothing": "init missing 100003, init 0",
    "a failed init is not remembered": "init malformed.json 100006, init dump.json 0",
    "init of a blank file": "init blank.json 100006",
    "init of nesting": "init objects.json 100006",
    "init of a refused dump": "init refused.json 100009, init_dump 100001, init dump.json 0",
    "init without a file fixes the content": "init 0, finalize 0, init dump.json 100000, init 0",
    "a second init is not read": "init dump.json 0, init profiler.json 100002, init missing 100002",
    "another content": "init dump.json 0, finalize 0, init profiler.json 100000, init dump.json 0",
    "err_msg_mode": "init bad_messages.json 100000, init messages.json 0",
    "err_msg_mode of another type": (
        "init array_messages.json 100000, init object_messages.json 100000, "
        "init number_messages.json 100000, init null_messages.json 100000, init messages.json 0"
    ),
    "an empty file": "init empty.json 0",
    "a dump of init needs init_dump to be ended": (
        "init dump.json 0, set_dump dump.json 100045, finalize_dump 100045, init_dump 0, finalize_dump 0"
    ),
    "finalize keeps the dump's flag": (
        "init 0, init_dump 0, finalize 0, init_dump 100001, set_dump dump.json 100001, "
        "finalize_dump 100001, init 0, init_dump 100002, finalize_dump 0"
    ),
    "exceptions twice": "init 0, init_dump 0, set_dump exception.json 0, set_dump exception.json 0",
}


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_codes_follow_the_state(
    acl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sequence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for step in sequence.split(", "):
        name, *argument, code = step.split()
        home = acl if name in ("init", "finalize", "finalize_reference") else acl.mdl
        answer = getattr(home, name)(*argument)
        assert (answer[-1] if isinstance(answer, tuple) else answer) == int(code), step
