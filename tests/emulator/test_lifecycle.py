"""Sequences of calls with the codes that ACL's own unit tests, its sources and the rules give."""

from __future__ import annotations

import importlib
import operator
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from pytest_npudump.emulator import install
from pytest_npudump.errors import RuntimeUnavailableError

CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "acl_lifecycle.yaml").read_text())["cases"]


def test_every_published_sequence_is_there() -> None:
    assert len(CASES) == 23


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_sequence_returns_the_codes_of_acl(
    acl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in case.get("fixture", {}).get("dirs", ()):
        (tmp_path / name).mkdir()
    for name, text in case.get("fixture", {}).get("files", {}).items():
        (tmp_path / name).write_text(text)
    calls = {
        "init": acl.init,
        "finalize": acl.finalize,
        "finalize_reference": lambda: acl.finalize_reference()[1],
        "init_dump": acl.mdl.init_dump,
        "set_dump": acl.mdl.set_dump,
        "finalize_dump": acl.mdl.finalize_dump,
    }
    for step in case["sequence"]:
        args = step.get("args", [])
        # NULL is what pyACL passes where no argument is given; None itself is a TypeError.
        code = calls[step["call"]](*[] if args == [None] else args)
        assert code == step["ret"], (step, acl.get_recent_err_msg())


def test_refusal_of_a_configuration_names_its_reason_code(started: Any, tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"dump": {"dump_path": "nowhere", "dump_list": [{}]}}')
    assert started.mdl.init_dump() == 0
    assert started.mdl.set_dump(str(config)) == 100009
    message = started.get_recent_err_msg()
    assert message.startswith("EP0003")
    assert "nowhere" in message
    assert started.get_recent_err_msg() is None


def test_configuration_over_ten_mebibytes_is_no_valid_file_nor_is_a_directory(
    started: Any, tmp_path: Path
) -> None:
    config = tmp_path / "acl.json"
    started.mdl.init_dump()
    for size, code in ((10 << 20, 0), ((10 << 20) + 1, 100003)):
        config.write_bytes(b"{}".ljust(size))
        assert started.mdl.set_dump(str(config)) == code
    assert started.mdl.set_dump(str(tmp_path)) == 100003


def test_remote_dump_path_is_an_internal_error_of_the_emulator(started: Any, tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"dump": {"dump_path": "10.0.0.1:/dumps", "dump_list": [{}]}}')
    started.mdl.init_dump()
    assert started.mdl.set_dump(str(config)) == 500000
    assert "10.0.0.1" in started.get_recent_err_msg()


def test_bad_argument_list_is_a_type_error_that_names_the_call(acl: Any) -> None:
    bad: tuple[tuple[Any, ...], ...] = (
        ("init", None),
        ("init", b"acl.json"),
        ("mdl.set_dump", None),
        ("mdl.set_dump", "a", "b"),
        ("rt.malloc", 10),
        ("rt.malloc", 10.0, 0),
        ("rt.set_device", 1 << 40),
        ("mdl.load_from_file", "a\0b"),
        ("create_tensor_desc", 0, (1, 2), 2),
        ("create_tensor_desc", 0, ["1"], 2),
        ("op.execute_v2", "Add", 1, 2, 3, 4, 0, 0),
    )
    for call, *arguments in bad:
        with pytest.raises(TypeError, match=f"^acl.{call} args parse failed!$"):
            operator.attrgetter(call)(acl)(*arguments)


WITHOUT_ARGUMENTS = """
    finalize finalize_reference get_recent_err_msg get_soc_name get_version
    mdl.create_config_handle mdl.create_dataset mdl.create_desc mdl.finalize_dump mdl.init_dump op.create_attr
    rt.create_event rt.create_stream rt.get_context rt.get_device rt.get_device_count rt.get_device_sat_mode
    rt.get_run_mode rt.synchronize_device
"""


def test_only_functions_without_parameters_ignore_arguments(acl: Any) -> None:
    ignoring = WITHOUT_ARGUMENTS.split()
    for home in ("", "mdl.", "op.", "rt.", "util."):
        module = operator.attrgetter(home.rstrip("."))(acl) if home else acl
        for name in sorted({*module.__all__} - {"mdl", "op", "rt", "util"}):
            if home + name in ignoring:
                getattr(module, name)(*[0] * 20)
            else:
                with pytest.raises(TypeError, match=f"^acl.{home}{name} args parse failed!$"):
                    getattr(module, name)(*[0] * 20)


def test_a_call_that_is_refused_says_so_and_answers_as_pyacl_does(acl: Any) -> None:
    unknown = 0x5000_0000_0001
    answers: dict[str, tuple[tuple[Any, ...], Any]] = {
        "destroy_data_buffer": ((unknown,), 100000),
        "get_data_buffer_addr": ((unknown,), 0),
        "get_tensor_desc_type": ((unknown,), -1),
        "get_tensor_desc_name": ((unknown,), ""),
        "get_tensor_desc_dim_v2": ((unknown, 0), (0, 100000)),
        "set_tensor_const": ((unknown, 0, 0), 100000),
        "mdl.add_dataset_buffer": ((unknown, unknown), (unknown, 100000)),
        "mdl.set_dataset_tensor_desc": ((unknown, unknown, 0), (unknown, 100000)),
        "mdl.get_num_inputs": ((unknown,), 0),
        "mdl.get_output_data_type": ((unknown, 0), -1),
        "mdl.get_input_dims": ((unknown, 0), ({}, 100000)),
        "mdl.get_desc_from_file": ((unknown, "no.onnx"), 100000),
        "mdl.get_tensor_real_name": ((unknown, "x"), None),
        "op.set_attr_data_type": ((unknown, "dtype", 0), (unknown, 100000)),
        "op.execute_with_handle": ((unknown, [], [], 0), 100000),
        "rt.set_context": ((unknown,), 100000),
        "rt.stream_query": ((0,), (65535, 107002)),
        "rt.get_mem_info": ((1,), (0, 0, 107002)),
        "rt.event_elapsed_time": ((0, 0), (0.0, 100000)),
    }
    for name, (arguments, answer) in answers.items():
        assert operator.attrgetter(name)(acl)(*arguments) == answer, name
        assert acl.get_recent_err_msg().startswith(f"acl.{name}: "), name


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
    "set_dump before init_dump": "init 0, set_dump dump.json 100045, set_dump 100045, finalize_dump 100045",
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


def test_codes_follow_the_state(acl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for title, sequence in SEQUENCES.items():
        install.reset()
        for step in sequence.split(", "):
            name, *argument, code = step.split()
            home = acl if name in ("init", "finalize", "finalize_reference") else acl.mdl
            answer = getattr(home, name)(*argument)
            assert (answer[-1] if isinstance(answer, tuple) else answer) == int(code), (title, step)


def test_import_gives_the_emulator_and_its_modules_with_names_of_pyacl_alone(acl: Any) -> None:
    """In the state of a new process."""
    parts = ("rt", "mdl", "op", "util")
    assert [importlib.import_module(f"acl.{name}") for name in parts] == [
        getattr(acl, name) for name in parts
    ]
    assert acl.__npudump_emulator__
    assert acl.get_soc_name() == "Emulator"
    for module in (acl, acl.rt, acl.mdl, acl.op, acl.util):
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(callable(getattr(module, name)) or name in parts for name in module.__all__)
    assert acl.init() == 0
    install.reset()
    assert acl.mdl.init_dump() == 100001


def test_uninstall_restores_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("acl")
    monkeypatch.setitem(sys.modules, "acl", other)
    monkeypatch.delitem(sys.modules, "acl.rt", raising=False)
    install.install()
    install.install()
    assert sys.modules["acl"] is not other
    install.uninstall()
    install.uninstall()
    assert sys.modules["acl"] is other
    assert "acl.rt" not in sys.modules


def test_what_is_not_emulated_says_so_by_its_name(acl: Any) -> None:
    names = ("media.dvpp_create_channel", "rt.get_overflow_status", "op.start_dump_args", "no_call")
    for name in names:
        home, _, last = name.rpartition(".")
        module = getattr(acl, home) if home else acl
        assert not hasattr(module, last)
        with pytest.raises(RuntimeUnavailableError, match=rf"acl\.{name}"):
            getattr(module, last)


def test_installing_needs_neither_onnx_nor_onnxruntime() -> None:
    code = (
        "import sys; from pytest_npudump.emulator.install import install; install(); import acl; acl.init();"
        "assert not {'onnx', 'onnxruntime', 'pytest'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
