"""The real configuration object of TorchAir, filled and read back; its pure Python part needs no device.

``NPUDUMP_TORCHAIR`` names a folder with ``torch`` and ``torch_npu`` (``pip install --target FOLDER
torch==2.13.0``, and the same with ``--no-deps torch_npu==2.13.0``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.config.acl_json import dump_section, write_acl_json
from pytest_npudump.config.torchair import GRAPHS, OPTIMISED, validate_options
from pytest_npudump.request import DumpRequest, RunRequest

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
SCRIPT = Path(__file__).parents[1] / "data" / "torchair" / "real_config.py"
pytestmark = pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with TorchAir")
ODD: list[Any] = [
    *(None, True, False, 0, 1, 2, 1.0, 0.5, [], ["0"], {}, "", " ", "\n", "0\n", "0|1\n\n"),
    *("\u0661", "0|", "|"),
    *("all", "ALL", "0,1", "5-3", "0-1-2", "1|-2", "0||1", "tensor", "stats", "statistic", "input"),
    *("optimized", "Add", "Add 1", "Add\t1", "a\\b/c.d", 'a"b', "a-b", "\u00e9", "Add\n"),
    *("x.json", "./dump", "./dump/", "dump.json"),
]
OPTIONS = (
    *("enable_dump", "dump_path", "dump_mode", "quant_dumpable", "dump_step", "dump_layer", "dump_data"),
    *("dump_config_path", "data_dump_stage", "dump_everything"),
)


def ask(fill: list[tuple[str, bool]], options: list[dict[str, Any]]) -> dict[str, Any]:
    """Have the real object filled, and given ``options``, in a process that has torch and TorchAir."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps({"fill": fill, "options": options}),
        env={**os.environ, "PYTHONPATH": FOLDER, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_the_real_object_asks_for_the_dump_of_a_request(tmp_path: Path) -> None:
    requests = {
        "plain": (DumpRequest(layers=("conv1", "fc"), dump_step="0|2-5"), False),
        "scope": (DumpRequest(layers=("conv1", "fc"), dump_step="0|2-5", dump_mode="all"), True),
        "tensor": (DumpRequest(dump_data="tensor"), True),
        "beyond": (DumpRequest(model_name="resnet"), True),
    }
    paths = []
    for name, (request, scope) in requests.items():
        dump_path = tmp_path / f"dump_{name}"
        dump_path.mkdir()
        write_acl_json(tmp_path / f"{name}.json", dump_section(RunRequest(request, dump_path)))
        paths.append((str(tmp_path / f"{name}.json"), scope))
    plain, scope, tensor, beyond = ask(paths, [])["filled"]
    for filled in (plain, scope, tensor):
        written = Path(filled.pop("graphs"))
        assert written.parent == tmp_path / GRAPHS
        assert written.match(OPTIMISED)
    assert plain == {"ge_dump_with_acl_config": str(tmp_path / "plain.json")}
    assert scope == {
        "ge.exec.enableDump": "1",
        "ge.exec.dumpPath": str(tmp_path / "dump_scope" / "worldsize1_global_rank0"),
        "ge.exec.dumpMode": "all",
        "ge.quant_dumpable": "0",
        "ge.exec.dumpStep": "0|2-5",
        "ge.exec.dumpLayer": "conv1 fc",
        "ge.exec.dumpData": "stats",
    }
    assert tensor["ge.exec.dumpData"] == "tensor"
    assert "ge.exec.dumpLayer" not in tensor
    assert beyond["refused"].startswith("model_name: this TorchAir cannot be told so")


def test_the_checker_takes_and_refuses_what_the_real_object_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("dump").mkdir()
    tmp_path.joinpath("dump.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    cases = [{name: value} for name, value in product(OPTIONS, ODD)]
    taken = ask([], [{"folder": str(tmp_path), "options": case} for case in cases])["taken"]
    wrong = []
    for case, error in zip(cases, taken, strict=True):
        verdict = validate_options(case)
        if verdict.accepted != (error == ""):
            wrong.append((case, error, verdict.message))
    assert not wrong
    assert len(taken) == len(OPTIONS) * len(ODD)
