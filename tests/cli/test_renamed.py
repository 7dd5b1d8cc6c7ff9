"""Names of an earlier release are refused, with the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli import main

RENAMED = [
    ("stats dump", "npudump ls --stats"),
    ("--lang en overflow dump", "npudump ls"),
    ("tolerance explain golden.yaml", "npudump golden show --tolerances"),
    ("plot", "npudump report --plots DIR"),
    ("golden approve", "npudump golden accept"),
    ("golden pending", "npudump golden diff"),
    ("golden list", "npudump golden status -v"),
    ("golden stale", "npudump golden status"),
    ("golden prune --yes", "npudump golden status --prune"),
    ("golden verify golden", "npudump golden status --no-collect"),
    ("compare a b --numerics hf32", "--preset"),
    ("check --numerics=other", "--preset"),
    ("golden accept --allow-update-in-ci", "--allow-in-ci"),
    ("golden review --allow-update-in-ci", "--allow-in-ci"),
]


MISSPELT = [
    ("ls --stast dump", "ls: error: unrecognized arguments: --stast: did you mean --stats?"),
    ("golden accept --resaon=x", "accept: error: unrecognized arguments: --resaon=x: did you mean --reason?"),
    (
        "golden verdict",
        (
            "there is no verdict, expected one of review, accept, reject, diff, show, status, log, merge, "
            "split, fold, remote, init"
        ),
    ),
    ("reprot results", "there is no reprot: did you mean report?"),
    ("ls dump more", "ls: error: unrecognized arguments: more"),
    ("repro results --reduce", "npudump repro --reduce has been removed"),
]


@pytest.mark.each(
    ("words", "told"), [*((words, f" is called {now} now") for words, now in RENAMED), *MISSPELT]
)
def test_a_name_that_went_or_is_misspelt_is_refused_with_the_one_to_use(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(told)


def test_results_are_found_in_the_output_folder_that_is_configured(
    run: Callable[..., Any], kept: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept("out/results", {"conv": 1.0})
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert "nor in a folder above" in run("check").err
    (tmp_path / "pytest.ini").write_text("[pytest]\nnpudump_output = out\n", "utf-8")
    (tmp_path / "test_a.py").write_text("", "utf-8")
    expected = run("check", tmp_path / "out" / "results")
    assert run("check", tmp_path / "out") == run("check") == expected
    assert "test_a.py::test_x" in expected.out
