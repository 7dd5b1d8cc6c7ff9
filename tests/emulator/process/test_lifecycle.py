"""Sequences of calls with the codes that ACL's own unit tests and sources give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = yaml.safe_load((Path(__file__).parents[2] / "data" / "acl_lifecycle.yaml").read_text())["cases"]


def test_every_published_sequence_is_there() -> None:
    assert len(CASES) == 23


@pytest.mark.conformance("acl-lifecycle")
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


@pytest.mark.parametrize("size", [10 * 1024 * 1024, 10 * 1024 * 1024 + 1])
def test_configuration_over_ten_mebibytes_is_no_valid_file(started: Any, tmp_path: Path, size: int) -> None:
    config = tmp_path / "acl.json"
    config.write_bytes(b"{}".ljust(size))
    started.mdl.init_dump()
    assert started.mdl.set_dump(str(config)) == (0 if size <= 10 * 1024 * 1024 else 100003)


def test_directory_as_configuration_is_no_valid_file(started: Any, tmp_path: Path) -> None:
    started.mdl.init_dump()
    assert started.mdl.set_dump(str(tmp_path)) == 100003


def test_remote_dump_path_is_an_internal_error_of_the_emulator(started: Any, tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"dump": {"dump_path": "10.0.0.1:/dumps", "dump_list": [{}]}}')
    started.mdl.init_dump()
    assert started.mdl.set_dump(str(config)) == 500000
    assert "10.0.0.1" in started.get_recent_err_msg()


@pytest.mark.parametrize(
    "call",
    [
        lambda acl: acl.init(None),
        lambda acl: acl.init(b"acl.json"),
        lambda acl: acl.mdl.set_dump(None),
        lambda acl: acl.mdl.set_dump("a", "b"),
        lambda acl: acl.rt.malloc(10),
        lambda acl: acl.rt.malloc(10.0, 0),
        lambda acl: acl.rt.set_device(1 << 40),
        lambda acl: acl.mdl.load_from_file("a\0b"),
        lambda acl: acl.create_tensor_desc(0, (1, 2), 2),
        lambda acl: acl.create_tensor_desc(0, ["1"], 2),
        lambda acl: acl.op.execute_v2("Add", 1, 2, 3, 4, 0, 0),
    ],
)
def test_bad_argument_list_is_a_type_error(acl: Any, call: Any) -> None:
    with pytest.raises(TypeError, match="args parse failed"):
        call(acl)


def test_functions_without_parameters_ignore_arguments(acl: Any) -> None:
    assert acl.init() == 0
    assert acl.mdl.init_dump("ignored") == 0
    assert acl.mdl.finalize_dump(1, 2) == 0
    assert acl.finalize("ignored") == 0
