"""python docs/benchmarks/verdicts/run_main_flow.py: what a test finds, names and says, by default settings.

Faults in models that no rule was drawn on, through pytest and the plugin: a session per model, a test per
fault, judged by the model's golden. And healthy runs, in the golden's numerics and in others. Five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TEST = """
import os, pickle, sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock
import pytest
sys.path.insert(0, {benchmarks!r})
from verdicts.unseen_faults import rewritten
from pytest_npudump.emulator import onnx_model
from pytest_npudump.emulator.faults import PLANTED
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.variation import Variation

CASES = pickle.loads(Path("cases.pickle").read_bytes())
DUMPED = onnx_model._load_dumped
onnx_model.distorted_model = lambda source, faults: rewritten(sessions.read_model(source), faults)

@pytest.mark.npu_dump
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(tuple(os.environ["CHOSEN"].split()))])
def test_model(npu_dump, name):
    path, feeds, kernels, threads, optimised = CASES[name]
    varied = Variation(threads=threads, optimised=optimised)
    load = lambda source, settings, faults, variation: DUMPED(source, settings, faults, varied)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(onnx_model, "_load_dumped", load))
        for kernel in kernels:
            stack.callback(PLANTED.end, kernel)
            PLANTED.planted.append(kernel)
        with npu_dump.load_model(path) as model:
            model.run(*feeds)
"""
_TOLD = """
import json
def pytest_runtest_logreport(report):
    if report.when == "call":
        told = getattr(report, "npudump", None) or {"status": report.outcome}
        with open("told.jsonl", "a") as file:
            file.write(json.dumps([report.nodeid, report.outcome, told, report.longreprtext]) + "\\n")
"""
_GOLDENS = 4
_WORDS = ("kernel error", "weights changed", "channels permuted", "attributes changed", "is traced to")


class Project:
    """A folder with a model's tests, their goldens and what came of them."""

    def __init__(self, folder: Path, name: str, path: Path, feeds: Mapping[str, np.ndarray]) -> None:
        from verdicts.unseen_faults import Subject

        self.folder, self.name = folder, name
        self.feeds, self.path = dict(feeds), f"golden-model/{path.name}"
        self.subject = Subject(onnx.load(str(path)), self.feeds)
        self.cases: dict[str, Any] = {}
        self.faults: dict[str, Any] = {}
        (folder / "golden-model").mkdir(parents=True)
        (folder / self.path).write_bytes(path.read_bytes())
        benchmarks = str(Path(__file__).parents[1])
        (folder / "test_it.py").write_text(_TEST.format(benchmarks=benchmarks))
        (folder / "conftest.py").write_text(_TOLD)
        (folder / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\n")
        for number in range(_GOLDENS):
            self.case(f"golden-{number}", number)

    def case(
        self,
        name: str,
        number: int = 0,
        kernels: Any = (),
        *,
        path: str = "",
        threads: int = 1,
        opt: bool = False,
    ) -> None:
        rng = np.random.default_rng(number)
        feeds = self.feeds
        if number:
            feeds = {
                name: rng.permutation(array.reshape(-1)).reshape(array.shape) for name, array in feeds.items()
            }
        self.cases[name] = (path or self.path, list(feeds.values()), tuple(kernels), threads, opt)

    def fill(self, count: int, seed: int) -> None:
        """Make the cases: faults, and healthy runs of each golden's input."""
        from verdicts.unseen_faults import faults, orders

        for number, fault in enumerate(faults(self.subject, count, seed)):
            name = f"fault-{number}"
            path = f"{name}/{Path(self.path).name}"
            (self.folder / name).mkdir()
            if fault.model is self.subject.model:
                path = self.path
            else:
                onnx.save(fault.model, self.folder / path)
            self.faults[name] = fault
            self.case(name, 0, fault.kernels, path=path)
        for number in range(_GOLDENS):
            self.case(f"same-{number}-repeated", number)
            self.case(f"same-{number}-threads", number, threads=3)
            self.case(f"other-{number}-optimised", number, opt=True)
            self.case(f"other-{number}-order", number, orders(self.subject, number))
            self.case(f"other-{number}-order-again", number, orders(self.subject, 7 + number))
        (self.folder / "cases.pickle").write_bytes(pickle.dumps(self.cases))

    def session(self, chosen: str, *options: str, python: str = sys.executable) -> list[list[Any]]:
        """Run pytest; return the id, outcome, property and text of each test."""
        told = self.folder / "told.jsonl"
        told.unlink(missing_ok=True)
        command = [
            python,
            "-m",
            "pytest",
            "-q",
            "-n0",
            "-p",
            "no:cacheprovider",
            "--npudump-output=out",
            *options,
        ]
        environ = {k: v for k, v in os.environ.items() if k not in {"CI", "PYTEST_ADDOPTS"}} | {
            "CHOSEN": chosen
        }
        done = subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
        assert told.exists(), done.stdout + done.stderr
        return [json.loads(line) for line in told.read_text().splitlines()]

    def record(self, *options: str, **how: str) -> int:
        """Record the goldens, and give each case its own; return their bytes."""
        recorded = self.session("golden-", "--npudump-update-golden", *options, **how)
        assert all(outcome == "passed" for _, outcome, *_ in recorded), recorded
        made = {path.stem: path for path in (self.folder / "golden").rglob("*.yaml")}
        for name in self.cases:
            number = name.split("-")[1] if name.startswith(("same", "other")) else "0"
            own = f"golden-{number}"
            (source,) = [path for stem, path in made.items() if stem.endswith(f"[{own}]")]
            if not name.startswith("golden"):
                text = source.read_text().replace(f"[{own}]", f"[{name}]")
                source.with_name(source.name.replace(f"[{own}]", f"[{name}]")).write_text(text)
        return sum(path.stat().st_size for path in made.values())


def names_in(text: str, operators: Sequence[str]) -> list[str]:
    """The operators that a text names, in its order; of names inside of others the longer ones."""
    either = "|".join(re.escape(name) for name in sorted(operators, key=len, reverse=True))
    return re.findall(rf"(?<![\w/@.])(?:{either})(?![\w/@])", text)


def weighed(project: Project, fault: Any, outcome: str, told: Mapping[str, Any], text: str) -> dict[str, Any]:
    """What a failure has got right."""
    wrong, operators = set(fault.operators), list(project.subject.nodes)
    if outcome == "passed":
        changed = told.get("changed") or any(map(told.get("model", {}).get, ("weights", "attributes")))
        return {"found": False, "said": bool(changed)}
    report: dict[str, Any] = {}
    if details := told.get("details"):
        report = json.loads((project.folder / details).with_name("report.json").read_text())
    first = ((report.get("comparison") or {}).get("first_divergence") or {}).get("layer")
    alone = (report.get("escalation") or {}).get("isolated") or []
    convicted = {each["layer"] for each in alone if each["verdict"] == "convicted"}
    model = report.get("model") or {}
    changed = {*model.get("weights", ()), *model.get("permuted", ()), *model.get("attributes", ())}
    changed |= {*model.get("operators", ())}
    independent = [s for s in (report.get("sources") or {}).get("found", ()) if s["behind"] is None]
    sources = {(each["begins"] or each["key"]).split(":")[0] for each in independent}
    line = told.get("headline") or next(
        (line for line in text.splitlines() if line.startswith("npudump:")), ""
    )
    named = names_in(line, operators)
    every = convicted | changed | sources | set(named[:1])
    return {
        "found": True,
        "first": first in wrong,
        "end": wrong <= every if len(wrong) > 1 else bool(wrong & every),
        "headline": bool(named) and named[0] in wrong,
        "convicted wrongly": bool(convicted - wrong - changed),
        "line": line,
        "every": sorted(every),
    }


_COLUMNS = ("found", "said", "first", "end", "headline", "convicted wrongly")


def table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Rows of Markdown: counts by kind, and the share of all; shares behind the first are of those found."""
    yield f"| | faults | {' | '.join(_COLUMNS)} |"
    yield f"|---|{'---|' * (len(_COLUMNS) + 1)}"
    rows = {**found, "all": [each for rows in found.values() for each in rows]}
    for kind, rows_ in rows.items():
        counts = [sum(bool(each.get(column)) for each in rows_) for column in _COLUMNS]
        yield f"| {kind} | {len(rows_)} | {' | '.join(map(str, counts))} |"


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from verdicts.unseen import MODELS, outside

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=4, help="of each kind, for each model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="*", help="names of models; all without")
    parser.add_argument("--outside", type=Path, help="folder with more models: see unseen.outside")
    parser.add_argument("--options", nargs="*", default=[], metavar="=OPTION", help="more options of pytest")
    parser.add_argument("--folder", type=Path, help="where projects are kept")
    parser.add_argument("--misses", action="store_true", help="print what went wrong")
    chosen = parser.parse_args()
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    alarms: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        base = chosen.folder or Path(temporary)
        (base / "models").mkdir(parents=True)
        models = [(name, *make(base / "models" / f"{name}.onnx")) for name, make in MODELS.items()]
        models += outside(chosen.outside) if chosen.outside else []
        for name, path, feeds in models:
            if chosen.models and name not in chosen.models:
                continue
            begun = time.monotonic()
            project = Project(base / name, name, path, feeds)
            project.fill(chosen.faults, chosen.seed)
            size = project.record(*chosen.options)
            missed = []
            for nodeid, outcome, told, text in project.session("fault-", *chosen.options):
                case = nodeid.split("[")[1][:-1]
                fault = project.faults[case]
                got = weighed(project, fault, outcome, told, text)
                found[fault.kind].append(got)
                if not got["found"] or not (got["end"] and got["headline"]) or got["convicted wrongly"]:
                    missed.append((case, fault, got))
            for numerics, options in (("default", ()), ("other", ("-o", "npudump_preset=other"))):
                for nodeid, outcome, told, _ in project.session("same- other-", *options, *chosen.options):
                    kind = re.sub(r"-\d+-", ", ", nodeid.split("[")[1][:-1]).replace("order-again", "order")
                    alarms[numerics, kind] += outcome != "passed"
                    alarms["runs", kind] += numerics == "other"
                    if outcome != "passed" and chosen.misses:
                        print(f"  alarm {numerics} {nodeid}: {told.get('headline')}")
            print(
                f"{name}: {len(project.faults)} faults, {size} bytes, {time.monotonic() - begun:.0f} s",
                flush=True,
            )
            for case, fault, got in missed if chosen.misses else ():
                print(f"  {case} {fault.kind} {fault.operators}: {got}", flush=True)
    print("\n".join(["", *table(found), ""]))
    print("| healthy | runs | default | other |\n|---|---|---|---|")
    for numerics, kind in sorted(alarms):
        if numerics == "runs":
            counts = " | ".join(str(alarms[column, kind]) for column in ("runs", "default", "other"))
            print(f"| {kind} | {counts} |")


if __name__ == "__main__":
    main()
