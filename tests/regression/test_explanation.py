"""What a second run says of the failure of the first, and what it adds to a recording."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.errors import RequestError
from pytest_npudump.record.run_folder import RunFolder, _head, keep_context, read_context
from pytest_npudump.regression import result as status
from pytest_npudump.regression.explanation import RunContext, explain
from pytest_npudump.regression.result import Escalation
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.storage.atomic import dump_bytes, load_bytes
from tests.regression.conftest import HEALTHY, REGRESSED, Flow, files, float16_at_end, run, unchanged


def _remove(dump: Path) -> None:
    for path in dump.rglob("*net_Softmax@0*"):
        path.unlink()


def _cut(dump: Path) -> None:
    for path in dump.rglob("*net_Softmax@0*"):
        os.truncate(path, 100)


def _both(
    flow: Flow, second: Path, change: Callable[[Path], None] = unchanged, **given: Any
) -> tuple[CaseSession, Escalation]:
    """Make a first run that fails and a second one that leaves ``second``."""
    session = flow.session(flow.case(**given), REGRESSED, second, change=change)
    run(session)
    assert session.wants_second_run
    run(session)
    assert not session.good
    assert session.judged is not None
    assert session.judged.status == status.FAILED
    assert session.result.escalation is not None
    return session, session.result.escalation


def test_a_failure_that_reproduces_is_said_to(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, REGRESSED)
    assert (escalation.reproduced, escalation.problem) == (True, "")
    assert escalation.layers == ("net/MatMul@0", "net/Softmax@0")
    assert flow.runtime.asked[-1] == (("net/MatMul@0", "net/Softmax@0"), "tensor")


def test_a_failure_that_does_not_reproduce_still_fails_and_says_what_both_runs_had(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, HEALTHY)
    assert escalation.reproduced is False
    finding = next(found for found in escalation.findings if str(found.key) == "net/MatMul@0:output.0")
    before, after = (float16_at_end(dump, "net/MatMul@0", 2).max() for dump in (REGRESSED, HEALTHY))
    assert finding.differences["max"] == (float(before), float(after))


def test_a_tensor_is_described_where_no_golden_has_it(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, REGRESSED)
    found = {str(finding.key): finding for finding in escalation.findings}["net/MatMul@0:output.0"]
    expected = float16_at_end(REGRESSED, "net/MatMul@0", 2)
    assert (found.difference, found.note) == (None, "")
    assert found.description is not None
    assert (found.description.max, found.description.min) == (expected.max(), expected.min())


def test_a_tensor_is_compared_with_the_golden_s_element_by_element(flow: Flow) -> None:
    kept = {"golden_tensors": ("net/MatMul@0",), "dump_data": "stats"}
    flow.record(**kept)
    _, escalation = _both(flow, REGRESSED, **kept)
    found = {str(finding.key): finding for finding in escalation.findings}["net/MatMul@0:output.0"]
    golden, actual = (
        float16_at_end(dump, "net/MatMul@0", 2).astype(np.float64) for dump in (HEALTHY, REGRESSED)
    )
    distance = np.abs(actual - golden)
    assert found.difference is not None
    assert found.difference.max_abs == distance.max()
    assert found.difference.worst[0].index == (0, int(distance.argmax()))


def test_only_files_of_the_layers_that_fail_are_kept(flow: Flow) -> None:
    flow.record()
    session, _ = _both(flow, REGRESSED)
    assert files(session.attempt.dump_path) == ["net_MatMul@0", "net_Softmax@0"]


def test_a_tensor_that_the_second_run_lacks_is_named(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, REGRESSED, _remove)
    lacking = [finding for finding in escalation.findings if finding.reproduced is None]
    assert {finding.key.layer for finding in lacking} == {"net/Softmax@0"}
    assert all(finding.note.startswith("the second run did not dump it") for finding in lacking)
    assert escalation.reproduced is True


def test_a_second_dump_that_is_damaged_explains_nothing(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, REGRESSED, _cut)
    assert escalation.problem.startswith("what the second run dumped cannot be compared: ")
    assert "net_Softmax@0" in escalation.problem
    assert escalation.findings == ()


def test_a_second_run_of_which_a_part_was_not_dumped_explains_nothing(flow: Flow) -> None:
    flow.record()
    session = flow.session(flow.case(), REGRESSED, REGRESSED)
    run(session)
    flow.runtime.activity.evidence.undumped.append("a graph was replayed")
    run(session)
    assert session.result.escalation is not None
    assert session.result.escalation.problem.endswith("is in its dump: a graph was replayed")


def test_layers_beyond_the_limit_are_named_beside_what_was_found(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, REGRESSED, dump_limit=404)
    assert (escalation.layers, escalation.omitted) == (("net/MatMul@0",), ("net/Softmax@0",))
    assert {finding.key.layer for finding in escalation.findings} == {"net/MatMul@0"}


def test_a_recording_keeps_the_tensors_that_it_was_asked_for(flow: Flow) -> None:
    flow.record(golden_tensors=("net/Softmax@0",))
    kept = load_file(flow.golden.with_suffix(".safetensors"))
    assert sorted(kept) == ["net/Softmax@0:input.0", "net/Softmax@0:output.0"]
    expected = float16_at_end(HEALTHY, "net/Softmax@0", 2)
    np.testing.assert_array_equal(kept["net/Softmax@0:output.0"].ravel(), expected)


@pytest.mark.parametrize(
    ("second", "change", "problem"),
    [
        (REGRESSED, unchanged, "two runs of the test disagree in "),
        (HEALTHY, _remove, "net/Softmax@0"),
        (HEALTHY, _cut, "net_Softmax@0"),
    ],
    ids=["another run", "without the tensor", "damaged"],
)
def test_a_recording_whose_second_run_does_not_bear_it_out_records_nothing(
    flow: Flow, second: Path, change: Callable[[Path], None], problem: str
) -> None:
    case = flow.case(golden_tensors=("net/Softmax@0",), update_golden="all")
    session = flow.session(case, HEALTHY, second, change=change)
    run(session)
    run(session)
    assert (session.good, session.recording) == (False, None)
    assert session.result.escalation is not None
    told = (*session.result.problems, session.result.escalation.problem)
    assert problem in " ".join(told)
    assert not flow.golden.exists()


AGAIN = """
import sys
from pathlib import Path
from pytest_npudump.record.run_folder import RunFolder
from pytest_npudump.regression.explanation import explain
from pytest_npudump.storage.atomic import dump_bytes
Path(sys.argv[2]).write_bytes(dump_bytes(explain(RunFolder(Path(sys.argv[1])))))
"""


def _explained_elsewhere(warm: Any, folder: Path, told: Path) -> Escalation:
    """Explain a run folder in a process that has seen nothing of the runs."""
    assert warm.run("-c", AGAIN, str(folder), str(told)) == (0, "", "")
    found: Escalation = load_bytes(told.read_bytes())
    return found


@pytest.mark.parametrize("kept", [{}, {"golden_tensors": ("net/MatMul@0",), "dump_data": "stats"}])
def test_a_run_folder_is_explained_in_a_later_process_as_in_its_own(
    flow: Flow, kept: dict[str, Any], tmp_path: Path, warm: Any
) -> None:
    flow.record(**kept)
    session, escalation = _both(flow, REGRESSED, **kept)
    again = _explained_elsewhere(warm, session.case.directory, tmp_path / "told")
    assert again.to_json() == escalation.to_json()
    assert (again.drawing, again.alike.keys()) == (escalation.drawing, escalation.alike.keys())
    assert escalation.findings


def _calling(module: str, name: str, *arguments: Any) -> bytes:
    """Return a pickle that calls what a module has by a name, dotted or not."""
    given = pickle.dumps(arguments, 4)[2:-1]
    head = given[9:] if given[:1] == b"\x95" else given  # without its frame
    return (
        b"\x80\x04"
        + b"".join(b"\x8c" + bytes([len(t)]) + t.encode() for t in (module, name))
        + (b"\x93" + head + b"R.")
    )


def _holding(file: Path, content: bytes) -> None:
    file.write_bytes(f"{_head(content)}\n".encode() + content)


def test_what_was_deleted_of_a_run_folder_is_not_explained(flow: Flow) -> None:
    flow.record()
    session, _ = _both(flow, REGRESSED)
    folder = session.case.folder
    context = folder.run(2) / "context"
    told = context.read_bytes()
    for before, after in ((b" format ", b" format 1"), (b"pytest-npudump ", b"pytest-npudump 9")):
        context.write_bytes(told.replace(before, after, 1))
        with pytest.raises(
            RequestError, match=r"context: was written by another version.*: run the test again"
        ):
            explain(folder)
    context.write_bytes(told)
    (folder.path / "run2x").mkdir()
    (folder.path / "run2x" / "context").write_bytes(b"")
    assert explain(folder).findings
    shutil.rmtree(folder.run(2) / "dump")
    with pytest.raises(RequestError, match=r"dump is not there any more: run test\.py::test again"):
        explain(folder)
    context.unlink()
    with pytest.raises(RequestError, match="no second run is there"):
        explain(folder)


def test_a_context_that_was_crafted_runs_nothing(flow: Flow, tmp_path: Path) -> None:
    flow.record()
    session, _ = _both(flow, REGRESSED)
    folder, ran = session.case.folder, tmp_path / "ran"
    touch = f"touch {ran}"
    for module, name, *arguments in (
        ("ml_dtypes", "_np._pytesttester.os.system", touch),
        ("numpy", "_pytesttester.os.system", touch),
        ("numpy._core.numeric", "_frombuffer.__globals__", touch),
        ("pathlib", "PosixPath.touch", Path(ran)),
        ("builtins", "eval", f"open({str(ran)!r}, 'w')"),
        ("builtins", "getattr", [], "append"),
        ("os", "system", touch),
        ("posix", "system", touch),
        ("ml_dtypes", "finfo", "float16"),
        ("numpy", "fromfile", touch),
        ("copyreg", "_reconstructor", dict, dict, None),
        ("pytest_npudump.record.run_folder", "shutil.os.system", touch),
        ("pytest_npudump.record.run_folder", "read_report", Path(ran)),
        ("pytest_npudump.record.run_folder", "_ValuesUnpickler", b""),
        ("pytest_npudump.regression.explanation", "replace", ()),
        ("pytest_npudump.storage.atomic", "write_whole", Path(ran), [b""]),
        ("pytest_npudump.runtime.mindspore.adapter", "MindSporeRuntime"),
        ("pytest_npudump.cli.app", "main", ()),
    ):
        crafted = _calling(module, name, *arguments)
        _holding(folder.run(2) / "context", crafted)
        _holding(folder.path / "other-memory.stats", crafted)
        for read in (explain, RunFolder.read_probe):
            with pytest.raises(
                RequestError, match=r"cannot be read: it names .*, which is no plain value: run"
            ):
                read(folder)
        assert not ran.exists()
    for other in (dump_bytes({"test": "any"}), dump_bytes(session.case.tolerances)):
        _holding(folder.run(2) / "context", other)
        with pytest.raises(RequestError, match="cannot be read: it holds no RunContext: run the test again"):
            explain(folder)


def test_a_context_holds_what_a_dump_has_and_arrays_of_every_type(flow: Flow) -> None:
    flow.record()
    session, _ = _both(flow, REGRESSED)
    run2 = session.case.folder.run(2)
    dump = read_dump(run2 / "dump")
    keep_context(run2, dump)
    assert read_context(run2, Dump) == dump
    names = (name for name in dir(ml_dtypes) if re.match(r"(bfloat|float|u?int)\d", name))
    arrays = {name: np.ones(3, getattr(ml_dtypes, name)) for name in names}
    arrays |= {kind: np.ones((2, 3), kind, order="F") for kind in "?bBhHiIlLefdFD"}
    assert {"bfloat16", "float8_e4m3fn", "int4"} <= arrays.keys()
    held = replace(session.case.tolerances, names=(arrays, np.float32(1), {1j}, slice(1)))  # type: ignore[arg-type]
    keep_context(run2, held)
    found: Any = read_context(run2, Tolerances).names
    assert found[1:] == held.names[1:]  # type: ignore[index]
    for name, array in arrays.items():
        assert found[0][name].dtype == array.dtype
        assert found[0][name].tobytes("A") == array.tobytes("A")


def test_a_damaged_context_is_refused_whatever_is_wrong(flow: Flow) -> None:
    flow.record()
    session, _ = _both(flow, REGRESSED)
    context = session.case.folder.run(2) / "context"
    told = context.read_bytes()
    content = told.partition(b"\n")[2]
    draw = np.random.default_rng(7)
    for at in [*range(60), *(int(draw.integers(len(told))) for _ in range(90))]:
        damaged = bytearray(told)
        damaged[at] ^= 1 << int(draw.integers(8))
        context.write_bytes(damaged)
        with pytest.raises(RequestError, match=rf"{re.escape(str(context))}: .*: run the test again"):
            read_context(context.parent, RunContext)
    module = "pytest_npudump.dump.records"
    for whole in (
        *(content[: len(content) * part // 8] for part in range(8)),
        _calling(module, "TensorKez"),
        _calling("pytest_npudump.dump.recordz", "TensorKey"),
        _calling(module, "TensorKey", *range(40)),
        _calling("pytest_npudump.errors", "_said", "{a:9999999999999999}", {"a": 1}),
        _calling("numpy", "dtype", "what"),
        b"\x80\x04\x8e" + b"\xff" * 8 + b".",
        content.replace(b"FAILED", b"FAILEX").replace(b"TensorKey", b"TensorKez"),
    ):
        _holding(context, whole)
        with pytest.raises(
            RequestError, match=rf"{re.escape(str(context))}: cannot be read: .*: run the test again"
        ):
            read_context(context.parent, RunContext)
    context.write_bytes(told)
    assert read_context(context.parent, RunContext).test == "test.py::test"
