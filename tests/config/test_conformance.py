"""The published conformance table: CANN's own unit tests at four tags, GE's, TorchAir's and MindSpore's.

Sequences of calls (layer acl-lifecycle) are in ``tests/emulator``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_npudump.config import adump, ge, mindspore, torchair
from pytest_npudump.config.rule_table import CheckerVerdict

TABLE = Path(__file__).parents[1] / "data" / "config_cases.yaml"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CASES = yaml.load(TABLE.read_bytes(), Loader=LOADER)["cases"]  # noqa: S506 - both are safe loaders
UNPRIVILEGED = 65534


def of_layer(layer: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{case.get('version', '')} {case['id']}".lstrip())
        for case in CASES
        if case["layer"] == layer and not case.get("fixture", {}).get("requires_non_root")
    ]


def text_of(case: dict[str, Any]) -> bytes:
    return case["text"].encode() if "text" in case else json.dumps(case["config"]).encode()


def lay_out(case: dict[str, Any], root: Path) -> dict[str, str]:
    fixture = case.get("fixture", {})
    for name in fixture.get("dirs", ()):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, content in fixture.get("files", {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    for name, mode in fixture.get("chmod", {}).items():
        (root / name).chmod(int(mode, 8))
    return fixture.get("env", {})


def expected_of(case: dict[str, Any]) -> dict[str, Any]:
    columns = {"set_dump_ret": "code"}
    keys = ("accepted", "need_dump", "dump_type", "reason_code", "set_dump_ret", "dump_path", "kernel_data")
    return {columns.get(key, key): case[key] for key in keys if key in case}


def found_in(verdict: CheckerVerdict, expected: dict[str, Any]) -> dict[str, Any]:
    found = {key: getattr(verdict, key) for key in expected}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


@pytest.mark.each("case", of_layer("adump"))
def test_adump_answers_as_cann_does(case: dict[str, Any], tmp_path: Path) -> None:
    environ = lay_out(case, tmp_path)
    verdict = adump.validate(text_of(case), version=case["version"], cwd=tmp_path, environ=environ)
    expected = expected_of(case)
    assert found_in(verdict, expected) == expected
    assert bool(verdict.reasons) is not case["accepted"]


@pytest.mark.each("case", of_layer("ge"))
def test_ge_answers_as_its_callback_does(case: dict[str, Any]) -> None:
    verdict = ge.validate(text_of(case))
    assert verdict.accepted is case["accepted"]
    assert bool(verdict.reasons) is not case["accepted"]


@pytest.mark.each("case", of_layer("torchair"))
def test_torchair_answers_as_its_option_classes_do(case: dict[str, Any], tmp_path: Path) -> None:
    lay_out(case, tmp_path)
    verdict = torchair.validate(json.dumps({case["option"]: case["value"]}).encode(), cwd=tmp_path)
    assert verdict.accepted is case["accepted"]
    assert case.get("exception", "") in verdict.message


@pytest.mark.each("case", of_layer("mindspore"))
def test_mindspore_answers_as_its_parser_does(case: dict[str, Any], tmp_path: Path) -> None:
    environ = lay_out(case, tmp_path)
    verdict = mindspore.validate(text_of(case), device=case["device"], environ=environ)
    assert verdict.accepted is case["accepted"]
    assert bool(verdict.reasons) is not case["accepted"]


CHILD = """
import json, os, sys
from pathlib import Path
from pytest_npudump.config.adump import validate
text = sys.stdin.buffer.read()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({uid})
    os.setuid({uid})
verdict = validate(text, cwd=Path("."), environ={{}})
print(json.dumps([verdict.code, verdict.reason_code, verdict.message]))
"""


def test_a_directory_without_permissions_is_refused_to_all_but_root(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.get("fixture", {}).get("requires_non_root"))
    lay_out(case, tmp_path)
    tmp_path.chmod(0o755)
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(uid=UNPRIVILEGED)],
        input=text_of(case),
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        check=True,
        env={**os.environ, "PYTHONPATH": str(TABLE.parents[2])},
    )
    code, reason_code, message = json.loads(child.stdout)
    assert (code, reason_code) == (case["set_dump_ret"], case["reason_code"])
    assert "may not be read and written" in message


def test_the_table_has_not_shrunk() -> None:
    assert Counter((case["layer"], case.get("version", "")) for case in CASES) == {
        ("adump", "8.5.0"): 43,
        ("adump", "9.0.0"): 51,
        ("adump", "9.1.0-beta.3"): 33,
        ("adump", "9.1.0"): 264,
        ("ge", ""): 30,
        ("torchair", ""): 28,
        ("mindspore", ""): 56,
        ("acl-lifecycle", ""): 23,
    }
