"""The folder of results: lines of many processes, whatever is killed, as the schema describes them."""

from __future__ import annotations

import json
import os
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import pytest_npudump.results
from pytest_npudump.report.result_json import COUNTS
from pytest_npudump.results.folder import (
    VERSION,
    ResultsError,
    ResultsFolder,
    line_of,
    parse_line,
    record_name,
)

SESSION = {"version": 1, "kind": "session", "session": "s", "tests": 1}


SCHEMA = json.loads((Path(pytest_npudump.results.__file__).parent / "schema.json").read_text("utf-8"))


def line(name: str = "", record: bytes | None = None, session: str = "s") -> dict[str, Any]:
    """Return the line of a test, with what the schema requires, and with a record of its own or none."""
    kinds = {"string": "", "integer": 0, "boolean": False, "array": [], "object": {}, "null": None}
    found = {
        name: kinds[kind["type"] if isinstance(kind["type"], str) else kind["type"][-1]]
        for name, kind in SCHEMA["$defs"]["test"]["properties"].items()
        if "type" in kind and name in SCHEMA["$defs"]["test"]["required"]
    }
    golden = {"folder": "golden", "file": f"{name or 'a/b'}.yaml", "judged_with": None, "sha256": None}
    if record is not None:
        found["record"] = {"file": record_name(golden["file"], record), "sha256": sha256(record).hexdigest()}
    return found | {
        "version": VERSION,
        "kind": "test",
        "session": session,
        "test": name,
        "outcome": "passed",
        "golden": golden,
        "tolerances": {"preset": "default", "rules": []},
        "test_file": {"path": "a.py", "sha256": None},
    }


def add(folder: ResultsFolder, name: str, record: bytes = b"x") -> None:
    found = line(name, record)
    folder.add([found], {found["record"]["file"]: record})


def test_the_last_line_of_a_test_counts_and_what_is_superseded_goes(tmp_path: Path) -> None:
    tmp_path = tmp_path / "not" / "there"
    folder = ResultsFolder(tmp_path)
    folder.add([SESSION], {})
    for record in (b"1", b"2"):
        add(folder, "a", record)
    add(folder, "b", b"3")
    for _ in range(2):
        results = folder.read()
        assert [folder.record(entry) for entry in results.entries] == [b"2", b"3"]
        assert results.problems == ()
        assert [entry.test for entry in folder.compact()] == ["a", "b"]
    assert len((tmp_path / "results.jsonl").read_text("utf-8").splitlines()) == 3
    assert len([*tmp_path.glob("records/*.yaml")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records", "results.jsonl"]


def test_of_items_of_a_session_that_share_a_name_the_worst_counts(tmp_path: Path) -> None:
    """A later run of one item counts in place of its earlier one, and a later session in place of all."""
    failed, passed, skipped = ({"outcome": one} for one in ("failed", "passed", "skipped"))
    first, second = ({"item": item} for item in ("#0", "gw1#0"))
    older = {"session": "older"}
    for lines, outcome in (
        ([first | failed, second | passed], "failed"),
        ([first | passed, second | failed], "failed"),
        ([first | passed, second | skipped], "skipped"),
        ([first | failed, first | passed], "passed"),
        ([first | failed, second | passed, first | passed], "passed"),
        ([failed, passed], "passed"),
        ([first | {"outcome": "of a later version"}, second | failed], "of a later version"),
        ([first | failed | older, second | passed], "passed"),
        ([first | failed | {"incomplete": "killed"}, second | failed], "failed"),
    ):
        path = tmp_path / str(len([*tmp_path.iterdir()]))
        folder = ResultsFolder(path)
        folder.add([SESSION, *(line("a") | one for one in lines)], {})
        for _ in range(2):
            found = [(entry.data["outcome"], entry.data["incomplete"]) for entry in folder.read().entries]
            assert found == [(outcome, lines[0].get("incomplete"))], lines
            folder.compact()


@pytest.mark.parametrize(
    ("content", "why"), [("x\n", "line 1: not JSON"), ("", "has no tests"), ("{", "ends within a line")]
)
def test_results_of_which_none_can_be_read_say_why(tmp_path: Path, content: str, why: str) -> None:
    tmp_path.joinpath("results.jsonl").write_text(content, "utf-8")
    with pytest.raises(ResultsError, match=why):
        ResultsFolder(tmp_path).read()


@pytest.mark.parametrize("piece", [b"{", b'{"version":1,"kind":"te'])
def test_a_piece_of_a_line_that_a_kill_left_gives_way_to_the_next_line(tmp_path: Path, piece: bytes) -> None:
    folder = ResultsFolder(tmp_path)
    add(folder, "a")
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(piece)
    assert "ends within a line" in folder.read().problems[0]
    add(folder, "b")
    assert [entry.test for entry in folder.read().entries] == ["a", "b"]
    assert folder.read().problems == ()


def test_results_with_a_damaged_line_are_not_tidied(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    add(folder, "a", b"1")
    add(folder, "a", b"2")
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b"nonsense\n")
    before = (tmp_path / "results.jsonl").read_bytes()
    assert folder.compact() == []
    assert (tmp_path / "results.jsonl").read_bytes() == before
    with pytest.raises(ResultsError, match="line 3: not JSON"):
        folder.update(folder.read().entries)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, warm: Any) -> None:
    folder = ResultsFolder(tmp_path)
    add(folder, "a")
    before = (tmp_path / "results.jsonl").read_bytes()
    code = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[2]); from test_folder import *\n"
        "from pathlib import Path\n"
        "sys.dont_write_bytecode = True  # what is cut off would be read by the next process\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 100}, -1))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n    add(ResultsFolder(Path(sys.argv[1])), 'b')\n"
        "except OSError as error:\n    print(type(error).__name__)\n"
    )
    here = os.path.dirname(__file__)  # noqa: PTH120 - for a child's search path
    assert warm.run("-c", code, str(tmp_path), here) == (0, "OSError\n", "")
    assert (tmp_path / "results.jsonl").read_bytes() == before


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_folder import ResultsFolder, add
folder = ResultsFolder(Path(sys.argv[1]))
for number in range(25):
    add(folder, f"{sys.argv[3]}-{number}", str(number).encode())
    if number == 12:
        folder.compact()
print("done")
"""


@pytest.mark.e2e
def test_eight_writers_lose_no_line_while_sessions_end(tmp_path: Path, warm: Any) -> None:
    here = os.path.dirname(__file__)  # noqa: PTH120 - as above
    words = [*warm.client, "-c", WRITER, str(tmp_path), here]
    writers = [subprocess.Popen([*words, str(number)]) for number in range(8)]
    assert [writer.wait(120) for writer in writers] == [0] * 8
    results = ResultsFolder(tmp_path).read()
    assert results.problems == ()
    assert len(results.entries) == 200


KILLED = """
import json, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from killed import killed
from test_folder import ResultsFolder, add

def held(folder):
    results = folder.read()
    return [[entry.test, folder.record(entry).decode()] for entry in results.entries] + [*results.problems]

found = []
for step in range(1, 60):
    folder = ResultsFolder(Path(sys.argv[1]) / str(step))
    add(folder, "a", b"old")
    add(folder, "a", b"older")
    status = [killed(lambda: add(folder, "a", b"new"), step), held(folder)]
    status += [killed(lambda: folder.compact() and None, step), held(folder)]
    found.append(status)
    if status[0] == status[2] == 0:
        break
print(json.dumps(found))
"""


def test_kill_before_any_step_leaves_the_old_result_or_the_new_one(tmp_path: Path, where_killed: Any) -> None:
    here = os.path.dirname(__file__)  # noqa: PTH120 - as above
    *cut, whole = where_killed(KILLED, tmp_path, here)
    assert len(cut) >= 5
    assert whole == [0, [["a", "new"]], 0, [["a", "new"]]]
    for _, added, _, tidied in cut:
        assert added in ([["a", "older"]], [["a", "new"]])
        assert tidied == added


def test_every_property_is_required_and_described() -> None:
    test = SCHEMA["$defs"]["test"]
    earlier = {"item", "failure", "second_run", "models"}  # lines without these are read
    assert set(test["required"]) == set(test["properties"]) - earlier
    undescribed = [
        name for name, one in test["properties"].items() if not {"description", "const"} & one.keys()
    ]
    assert undescribed == []
    assert all(name in test["properties"]["counts"]["description"] for name in COUNTS)


def test_a_line_is_read_back_and_values_that_json_lacks_are_text() -> None:
    assert parse_line(line_of(line())) == line()
    written = line() | {"reference": {"off": float("nan"), "by": [float("inf")]}}
    assert parse_line(line_of(written))["reference"] == {"off": "nan", "by": ["inf"]}


ODD = [
    "",
    "/a.yaml",
    "../a.yaml",
    "a/../../b.yaml",
    "a\\b.yaml",
    "a.txt",
    "a\0.yaml",
    "a\n/../b.yaml",
    3,
    None,
]


def test_what_is_no_line_or_lacks_something_or_leads_elsewhere_is_refused() -> None:
    def refused(text: bytes, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            parse_line(text)

    for text in (b"", b"{", b"[]", b'"a"', b"{}", b"[" * 100_000, b'{"kind":"x"}'):
        refused(text, "JSON|kind")
    for name in SCHEMA["$defs"]["test"]["required"]:
        refused(line_of({key: value for key, value in line().items() if key != name}), "version|kind|has no")
    for name in ("tensors", "counts", "problems", "isolated", "golden", "record"):
        refused(line_of(line() | {name: "text"}), f"'{name}' of the line is 'text'")
    for name in ODD:
        refused(
            line_of(line() | {"golden": line()["golden"] | {"file": name}}), "'file' of 'golden' of the line"
        )
    broken = {"file": "a.yaml\n", "sha256": f"{'0' * 64}\n", "tensors": [f"{'0' * 64}\n"]}
    odd = {"file": "../a.yaml", "sha256": "0", "tensors": ["x"], "inherited": [1]}
    for key, wrong in (*odd.items(), *broken.items()):
        record = {"file": "a.yaml", "sha256": "0" * 64, key: wrong}
        refused(line_of(line() | {"record": record}), f"'{key}' of 'record' of the line")
    for fed in (None, [], "x"):
        refused(line_of(line() | {"snapshot": {"fed": fed}}), "'fed' of 'snapshot' of the line")
