"""A repository whose tests were run elsewhere: goldens, test files, and what a session kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import render
from pytest_npudump.request import DumpRequest
from pytest_npudump.results.folder import ResultsFolder, record_name
from pytest_npudump.results.serialisation import blank_line
from pytest_npudump.settings import default_settings
from tests.conftest import table_of_layers

Values = dict[str, float]


@dataclass(frozen=True)
class Repository:
    """A folder with goldens, a test file and results of an earlier session."""

    path: Path

    @property
    def kept(self) -> Path:
        return self.path / "kept"

    def golden(self, name: str) -> Path:
        return self.path / "golden" / "test_a" / f"{name}.yaml"

    def approve(self, name: str, values: Values, **extra: Any) -> None:
        """Write a golden."""
        producer = {"runtime": extra.pop("runtime", "acl"), "scene": "model", "dump_mode": "output"}
        told = replace(table_of_layers(values), noise=extra.pop("noise", ()))
        path = self.golden(name)
        write_golden(Record(f"test_a.py::{name}", producer, told, path, extra))

    def values(self, name: str) -> Values:
        """What a golden holds: the maximum of each layer."""
        found = read_golden(self.golden(name)).table
        return {
            TensorKey.parse(key).layer: found.value(row, 0)  # type: ignore[misc]
            for row, key in enumerate(found.keys)
        }

    def keep(self, name: str, values: Values, **changes: Any) -> None:
        """Keep a run that has these values."""
        path = self.golden(name)
        producer = {"runtime": changes.pop("runtime", "acl"), "scene": "model", "dump_mode": "output"}
        golden = Record(f"test_a.py::{name}", producer, table_of_layers(values), path)
        known = read_golden(path) if path.exists() else None
        if known is not None:
            golden = replace(golden, extra=known.extra | changes.pop("extra", {}))
        record = render(golden).encode()
        file = f"test_a/{name}.yaml"
        record_file = record_name(file, record)
        line = blank_line(golden.test, DumpRequest(), default_settings(), file, None) | {
            "session": "s",
            "status": "failed" if known else "golden missing",
            "outcome": "failed",
            "incomplete": None,
            "runtime": "acl",
            "tensors": len(values),
            "producer": producer,
            "details": None,
            "revision": None,
            "record": {"file": record_file, "sha256": sha256(record).hexdigest()},
            "snapshot": {"problems": [], "notes": [], "has_tensors": False},
            "test_file": {
                "path": "test_a.py",
                "sha256": sha256((self.path / "test_a.py").read_bytes()).hexdigest(),
            },
        }
        if known is not None:
            line["golden"] |= {"judged_with": file, "sha256": known.digest}
        ResultsFolder(self.kept).add([line | changes], {record_file: record})

    def decisions(self) -> dict[str, str | None]:
        """What was decided about each test."""
        text = (self.kept / "results.jsonl").read_text("utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        return {line["test"].partition("::")[2]: line["decision"] for line in lines}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository with one test file; the current folder is its root."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_a.py").write_text("# tests\n", "utf-8")
    return Repository(tmp_path)


@pytest.fixture
def golden_command(run: Callable[..., Any]) -> Callable[..., Any]:
    """Run a verb of ``npudump golden`` on what was kept."""

    def call(verb: str, *words: object) -> Any:
        return run("golden", verb, *words, "--results", "kept")

    return call
