"""``transport="callback"``: the dump comes to the test's process, and nothing is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.dump.callback import (
    receiver as streaming,  # loaded here once, not anew in every session within a test
)
from pytest_npudump.emulator.process import callback

if TYPE_CHECKING:
    from conftest import Project

CALLBACK = 'transport="callback"'
KEEP = "--npudump-keep-dumps=all"


def _dump_files(project: Project, run: str = "run1") -> list[str]:
    (folder,) = project.path.joinpath("dumps").rglob(run)
    return [path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"]


def _digits(project: Project) -> bool:
    return "digits: 6" in project.golden.read_text()


def test_record_and_compare_write_no_dump(project: Project) -> None:
    project.marked(f'{CALLBACK}, dump_mode="all"')
    project.record(KEEP, "--npudump-dump-dir=dumps")
    assert not _dump_files(project)
    assert not _digits(project)
    result = project.run(KEEP, "--npudump-dump-dir=dumps")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["npudump: 1 of 1 tests good, * tensors compared*"])


@pytest.mark.parametrize("slice_bytes", [64, 1000])
def test_small_chunks_make_no_difference(
    project: Project, monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    project.marked(CALLBACK)
    project.record()
    before = project.golden.read_text()
    monkeypatch.setattr(callback, "SLICE_BYTES", slice_bytes)
    project.record()
    assert project.golden.read_text() == before


@pytest.mark.parametrize("nan", [False, True], ids=["finite", "nan"])
@pytest.mark.parametrize(
    ("recorded", "run"),
    [("", CALLBACK), (CALLBACK, ""), (CALLBACK, 'dump_data="tensor"'), ('dump_data="tensor"', CALLBACK)],
    ids=["files to callback", "callback to files", "callback to tensors", "tensors to callback"],
)
@pytest.mark.parametrize("mode", ["all", "output"])
def test_the_ways_agree(project: Project, recorded: str, run: str, nan: Any, mode: str) -> None:
    project.model(nan=nan)
    project.marked(f'{recorded + ", " if recorded else ""}dump_mode="{mode}"')
    project.record()
    project.marked(f'{run + ", " if run else ""}dump_mode="{mode}"')
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*differs*")


@pytest.mark.parametrize("recorded", ["", CALLBACK], ids=["golden by files", "golden by callback"])
def test_a_regression_is_found_as_by_files_and_explained_from_files(project: Project, recorded: str) -> None:
    project.marked(recorded)
    project.record()
    project.model(change=0.01)
    found = {}
    for transport in ("files", "callback"):
        project.marked(f'transport="{transport}"')
        result = project.run(f"--npudump-dump-dir=dumps/{transport}")
        result.assert_outcomes(failed=1)
        (path,) = project.path.joinpath("dumps", transport).rglob("report.json")
        report: dict[str, Any] = json.loads(path.read_text())
        found[transport] = [finding["key"] for finding in report["escalation"]["findings"]]
        assert report["escalation"]["reproduced"] is True
        result.stdout.fnmatch_lines(["*first:*output 0 of block/conv.2 is the first mismatch*"])
    assert found["files"] == found["callback"]


def test_a_nan_that_a_layer_hides_is_found(project: Project) -> None:
    project.marked(CALLBACK)
    project.record()
    project.model(nan=True)
    result = project.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*block/conv.2*"])


def test_a_nan_model_that_regresses_fails_against_a_golden_by_files(project: Project) -> None:
    project.model(nan=True)
    project.marked()
    project.record()
    body = project.body.replace("model.run(image)", "model.run(image * np.float32(1.01))")
    for transport in ("files", "callback"):
        project.marked(f'transport="{transport}"', body)
        result = project.run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*second run: the failure reproduced*"])


def test_golden_tensors_are_recorded_and_compared_by_the_second_run(project: Project) -> None:
    project.marked(f'{CALLBACK}, golden_tensors=["block/conv.2"]')
    project.record()
    assert list(project.path.joinpath("golden").rglob("*.safetensors"))
    project.run().assert_outcomes(passed=1)
    project.model(change=0.01)
    result = project.run("--npudump-dump-dir=dumps")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*against the golden tensor: max abs *"])
    assert _dump_files(project, "run2")


def test_captures_are_handed_over_apart(project: Project) -> None:
    body = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    for name in ("first", "second"):
        with npu_dump.capture(name):
            with npu_dump.load_model("small.onnx") as model:
                model.run(image)
    assert len({str(record.key) for record in npu_dump.records}) == 10
    """
    project.marked(CALLBACK, body)
    project.record(KEEP, "--npudump-dump-dir=dumps")
    assert not _dump_files(project)
    text = project.golden.read_text()
    assert "#capture=first:output.0" in text
    assert "#capture=second:output.0" in text
    project.run().assert_outcomes(passed=1)


def test_steps_get_the_keys_of_files(project: Project) -> None:
    body = project.body + "        model.run(image * 2)\n"
    project.marked("", body)
    project.record()
    project.marked(CALLBACK, body)
    project.run().assert_outcomes(passed=1)


def test_single_operators_are_handed_over(project: Project) -> None:
    body = """
    import acl
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    desc = [acl.create_tensor_desc(0, [6], 2) for _ in range(2)]
    at = [acl.rt.malloc(24, 0)[0] for _ in range(2)]
    data = x.tobytes()
    acl.rt.memcpy(at[0], 24, acl.util.bytes_to_ptr(data), 24, 1)
    buffers = [acl.create_data_buffer(address, 24) for address in at]
    attr = acl.op.create_attr()
    assert acl.op.execute_v2("Relu", desc[:1], buffers[:1], desc[1:], buffers[1:], attr, 0) == 0
    """
    project.marked(f'scene="op", {CALLBACK}', body)
    project.record(KEEP, "--npudump-dump-dir=dumps")
    assert "Relu:output.0 float32 6 " in project.golden.read_text()
    assert not _dump_files(project)


def test_a_dump_that_holds_nothing_fails(project: Project) -> None:
    project.marked(CALLBACK)
    project.record()
    project.marked(CALLBACK, "    pass")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the dump holds nothing: ACL was never initialised*"])


def test_a_chunk_that_is_lost_fails_the_test(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise MemoryError("no room")

    project.marked(CALLBACK)
    project.record()
    monkeypatch.setattr(streaming.ContainerStream, "feed", failing)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a chunk was lost: MemoryError: no room*"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (f'{CALLBACK}, dump_data="stats"', "*transport: 'callback' takes full tensors*leave dump_data out*"),
        (f'{CALLBACK}, dump_stats=["Max"]', "*dump_stats: not with transport='callback'*"),
        (
            f'{CALLBACK}, dump_data="tensor", golden_tensors=["a"]',
            "*golden_tensors: dump_data='tensor' compares*",
        ),
        (f'{CALLBACK}, scene="overflow"', "*transport: not with scene='overflow'*"),
        (f'{CALLBACK}, scene="watcher", layers=["a"], watcher_nodes=["b"]', "*transport: not with scene=*"),
        ('transport="socket"', "*transport: 'socket' is not allowed, expected one of 'files', 'callback'*"),
    ],
)
def test_what_does_not_go_with_it_is_refused_at_collection(
    project: Project, marker: str, message: str
) -> None:
    project.marked(marker)
    result = project.run()
    assert result.ret
    (result.stdout if result.ret == 2 else result.stderr).fnmatch_lines([message])


@pytest.mark.parametrize(
    "use", ["npu_dump.config_path", "npu_dump.config", 'npu_dump.run(["true"], acl_json="acl.json")']
)
def test_the_dump_cannot_be_left_to_others(project: Project, use: str) -> None:
    project.marked(CALLBACK, f"    {use}\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*transport='callback': the dump is handed to this process by*'files'*"])


def test_a_function_of_the_tests_own_is_found_out(project: Project) -> None:
    project.marked(CALLBACK)
    project.record()
    project.marked(
        CALLBACK,
        project.body.replace(
            "        model.run(image)", "        import acl; acl.mdl.dump_unreg_callback(); model.run(image)"
        ),
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*was written although the dump was to come by callback*"])


@pytest.mark.parametrize("options", [(), ("--npudump-update-golden",)], ids=["compare", "update"])
def test_a_function_of_the_tests_own_in_place_of_ours_loses_the_dump(
    project: Project, options: tuple[str, ...]
) -> None:
    """Half of the runs go to it: without a golden nothing else would tell that they are missing."""
    project.marked(CALLBACK)
    project.record()
    before = project.golden.read_text()
    project.marked(
        CALLBACK,
        f"{project.body}        import acl\n"
        "        assert acl.mdl.dump_reg_callback(lambda chunk: 0, 0) == 0\n"
        "        model.run(image)\n",
    )
    result = project.run(*options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*registered a function of its own with acl.mdl.dump_reg_callback()*"])
    assert project.golden.read_text() == before


def test_an_emulator_that_is_left_as_it_was_found(project: Project) -> None:
    """A test with files behind one by callback."""
    project.test_file(f"""
        @pytest.mark.npu_dump({CALLBACK})
        def test_first(npu_dump):
        {project.body.replace(chr(10), chr(10) + "        ")}

        @pytest.mark.npu_dump
        def test_second(npu_dump):
        {project.body.replace(chr(10), chr(10) + "        ")}
    """)
    project.record(KEEP, "--npudump-dump-dir=dumps", "--npudump-repeats=1")
    written = list(project.path.joinpath("dumps").rglob("*.csv"))
    assert len(written) == 5
    assert all("test_second" in str(path) for path in written)


@pytest.mark.e2e
def test_a_process_of_its_own_receives_its_dump(project: Project) -> None:
    project.marked(f'{CALLBACK}, isolation="process"')
    project.record(KEEP, "--npudump-dump-dir=dumps")
    assert not _dump_files(project)
    project.run().assert_outcomes(passed=1)
    project.model(change=0.01)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*second run: the failure reproduced*"])
