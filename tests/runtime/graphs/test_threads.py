"""Threads that run operators of the real torch on the CPU; ``NPUDUMP_TORCHAIR`` names a folder with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
SCRIPT = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.graphs import ThreadsOfTest

tensor = torch.ones(3)

def work():
    (tensor + tensor).sum()

def told(body):
    threads, evidence = ThreadsOfTest("cpu"), Evidence()
    threads.watch()
    body()
    threads.stop(evidence)
    print([sorted(thread.name for thread in found) for dump in evidence.runners for found in dump.values()])

def together(*names, between=lambda: None):
    started = [threading.Thread(target=work, name=name) for name in names]
    for thread in started:
        thread.start()
    between()
    for thread in started:
        thread.join()

told(lambda: together("one", "two"))
told(lambda: (work(), together("one")))
told(lambda: together("one", between=work))
told(lambda: together("one", between=lambda: torch.zeros(2)))
print(_get_current_dispatch_mode_stack())
"""


@pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with torch")
def test_threads_without_an_order_are_told() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, FOLDER],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.splitlines() == ["[['one', 'two']]", "[]", "[['MainThread', 'one']]", "[]", "[]"], (
        ended.stderr
    )
