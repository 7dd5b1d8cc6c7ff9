"""Which statistics a run asks for and judges: projections of tensors, l2norm where the chip computes it."""

from __future__ import annotations

import json
import re
from itertools import takewhile

import numpy as np
from onnx import helper

from pytest_npudump.emulator.acl import _base
from pytest_npudump.golden.store import read_golden
from tests.onnxmodels.models import onnx_file
from tests.plugin.conftest import Project

KEEP = ("-onpudump_keep_dumps=all", "--npudump-output=.")
BODY = """
    import numpy as np
    with npu_dump.load_model("chain.onnx") as model:
        model.run(np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32))
"""


def chain(project: Project) -> None:
    """Write three products of matrices."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16)).astype(np.float32) for _ in range(3)]
    names = ["x", "y0", "y1", "y2"]
    nodes = [
        helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]], name=f"product{at}")
        for at in range(3)
    ]
    arrays = {f"w{at}": array for at, array in enumerate(weights)}
    ports = {"x": [4, 16]}, {"y2": [4, 16]}
    onnx_file(project.path / "chain.onnx", nodes, *ports, arrays, name="chain", opset=13)


def marked(project: Project, marker: str = "") -> None:
    project.test_file(f"import pytest\n\n@pytest.mark.npu_dump({marker})\ndef test_chain(npu_dump):{BODY}")
    chain(project)


def golden_text(project: Project) -> str:
    (path,) = project.path.glob("golden/**/*.yaml")
    return path.read_text("utf-8")


def asked(project: Project) -> list[str] | None:
    path = max(project.path.joinpath("dumps").rglob("acl.json"), key=lambda path: path.stat().st_mtime_ns)
    names: list[str] | None = json.loads(path.read_text())["dump"].get("dump_stats")
    return names


def norms(project: Project) -> set[str]:
    lines = golden_text(project).partition("\ntensors: |\n")[2].splitlines()
    rows = [*takewhile(lambda line: line.startswith("  "), lines)]
    assert len(rows) == 4
    return {line.split()[6] for line in rows}


def test_l2norm_is_asked_for_and_judged_on_a_chip_that_computes_it(project: Project) -> None:
    project.patch.setattr(_base, "SOC_NAME", "Ascend910B3")
    marked(project)
    project.record(*KEEP, "-onpudump_auto_tensors=0")
    assert asked(project) == ["Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm"]
    assert "-" not in norms(project)
    project.run(passed=1)
    text = golden_text(project)
    norm = re.findall(r"(?m)^  product2 \S+(?: \S+){4} (\S+)", text)[0]
    project.golden.write_text(text.replace(f" {norm} ", f" {2 * float(norm)} "), "utf-8")
    project.run(failed=1, shows="*l2norm *, expected *")


def test_a_golden_in_full_precision_and_one_that_cann_printed_serve_either_way(project: Project) -> None:
    """As goldens do that were recorded with ``transport="callback"``, which computed what tensors give."""
    for nan in (False, True):
        project.model(nan=nan)
        for recorded, run in (({}, {"dump_data": "tensor"}), ({"dump_data": "tensor"}, {})):
            project.marked(f"acl_json={ {'dump_mode': 'all'} | recorded }")
            project.record("-onpudump_repeats=1")
            assert ("digits: 6" in golden_text(project)) == (not recorded)
            assert read_golden(project.golden).table.projected.all() == bool(recorded)
            project.marked(f"acl_json={ {'dump_mode': 'all'} | run }")
            project.run(passed=1, hides="*differs*")


def test_l2norm_is_not_asked_for_elsewhere_nor_against_the_marker(project: Project) -> None:
    marked(project)
    for soc in ("Emulator", "Ascend910_9391", "Ascend310P3", "Ascend950", ""):
        project.patch.setattr(_base, "SOC_NAME", soc)
        project.record(*KEEP, "-onpudump_repeats=1")
        assert asked(project) is None, soc
        assert norms(project) == {"-"}, soc
    project.patch.setattr(_base, "SOC_NAME", "Ascend910B3")
    assert "not compared" not in project.run(passed=1).stdout.str()
    project.record()
    assert "-" not in norms(project)
    project.patch.setattr(_base, "SOC_NAME", "Ascend310P3")
    project.run(passed=1, shows="*no tensor of this dump has it but the golden does: l2norm*")
    project.patch.setattr(_base, "SOC_NAME", "Ascend910B3")
    # Beside a dump of other statistics in the process.
    project.test_file(
        f'@pytest.mark.npu_dump(acl_json=dict(dump_stats=["Max", "Min"]))\ndef test_few(npu_dump):{BODY}\n'
        f"@pytest.mark.npu_dump\ndef test_chain(npu_dump):{BODY}"
    )
    project.run("--npudump-update-golden", *KEEP, passed=2)
    project.run(passed=2)
    (few,) = project.path.glob("golden/**/test_few.yaml")
    (both,) = project.path.glob("golden/**/test_chain.yaml")
    told = (path.read_text().partition("edges:")[0] for path in (few, both))
    assert [" - " in text for text in told] == [True, False]
