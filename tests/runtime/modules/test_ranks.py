"""One model on one rank and on two that share its layers by gloo: one golden, and a wrong part named."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import yaml

from pytest_npudump.cli import main
from pytest_npudump.golden import store
from pytest_npudump.record.record import shards_of

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
torch: Any = pytest.importorskip("torch")

LOADED = (yaml, store)
"""What sessions in this process share: they forget what they load themselves."""
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, within itself
PARALLEL = """
import os, torch
from contextlib import nullcontext
import torch.distributed as dist
from pytest_npudump.runtime.modules.worker import watch

class Up(torch.nn.Linear):
    "Holds some rows of the weights: each rank gives a part of the hidden axis."

class Down(torch.nn.Linear):
    "Holds some columns: what ranks give is added up."
    def forward(self, x):
        given = super().forward(x)
        if dist.is_initialized():
            dist.all_reduce(given)
        return given

class Block(torch.nn.Module):
    def __init__(self, number, rank, ranks):
        super().__init__()
        torch.manual_seed(number)
        self.norm = torch.nn.LayerNorm(8)
        whole = torch.randn(32, 8), torch.randn(8, 32)
        self.up, self.down = Up(8, 32 // ranks, bias=False), Down(32 // ranks, 8, bias=False)
        self.up.weight.data = whole[0].chunk(ranks, 0)[rank]
        self.down.weight.data = whole[1].chunk(ranks, 1)[rank]

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))

def main(rank, ranks, fault, store):
    if ranks > 1:
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    model = torch.nn.Sequential(*(Block(number, rank, ranks) for number in range(3)))
    if rank and fault == "part":
        model[1].up.weight.data *= 1.01
    if rank and fault == "copy":
        model[2].norm.weight.data *= 1.01
    if rank and fault == "element":
        model[1].up.weight.data[3, 2] *= 1.0001
    lost = rank and fault == "lost"
    with torch.no_grad(), nullcontext() if lost else watch(model, rank=rank):
        model(torch.linspace(-1, 1, 5 * 8).reshape(5, 8))
    if ranks > 1:
        dist.destroy_process_group()
"""
TEST = """
import multiprocessing, os, pytest
from parallel import main

@pytest.mark.npu_dump(scene="modules", map='names.yaml')
def test_model(tmp_path):
    ranks = int(os.environ.get("RANKS", "1"))
    context = multiprocessing.get_context("fork")
    given = ranks, os.environ.get("FAULT", ""), tmp_path / "store"
    children = [context.Process(target=main, args=(rank, *given)) for rank in range(ranks)]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""


def test_one_rank_and_two_have_one_golden_and_a_wrong_part_or_copy_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(parallel=PARALLEL, test_model=TEST)
    pytester.path.joinpath("names.yaml").write_text('layouts: {"*.up": "t h[tp]"}\n')
    pytester.makeini("[pytest]\nfilterwarnings = ignore\npythonpath = .")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), *sys.path]))
    pytester.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
    golden = (pytester.path / "golden/test_model/test_model.yaml").read_text()
    assert "1.up float32 5x32" in golden
    assert "rank" not in golden.partition("tensors: |")[2]
    monkeypatch.setenv("RANKS", "2")
    passed = pytester.runpytest_inprocess()
    passed.assert_outcomes(passed=1)
    passed.stdout.fnmatch_lines(["npudump: 1 of 1 tests passed; 23 of 23 tensors compared (modules)"])
    for fault, layer, key in (("part", "1.up", "1.up"), ("copy", "2.norm", "2.norm#rank=1")):
        monkeypatch.setenv("FAULT", fault)
        failed = pytester.runpytest_inprocess()
        failed.assert_outcomes(failed=1)
        words = f"weights differ from the golden's: {layer}.weight (rank 1); first mismatch: {key}:output.0"
        failed.stdout.fnmatch_lines([f"npudump: {words} *"])
    monkeypatch.setenv("FAULT", "element")
    failed = pytester.runpytest_inprocess()
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["npudump: weights differ from the golden's: 1.up.weight (rank 1)"])
    assert main(["check"]) == 1
    path = pytester.path / "golden/test_model/test_model.yaml"
    path.write_text(golden.replace("1.up: {weight: ", "1.up: {weights: "))
    passed = pytester.runpytest_inprocess("-v")
    passed.assert_outcomes(passed=1)
    passed.stdout.fnmatch_lines(["npudump: note: *: weights not compared: 1.up.weights"])
    path.write_text(golden.replace("1.up: {weight: ", "1.up: {weight: !"))
    pytester.runpytest_inprocess().assert_outcomes(failed=1)
    path.write_text(golden.replace("1.up: {weight: ", "1.up: {weight: none, bias: "))
    failed = pytester.runpytest_inprocess()
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["npudump: *test_model.yaml: shards is damaged: accept anew with *"])


def test_a_rank_that_records_nothing_fails_unless_the_golden_has_none_of_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "Up.__name__, Down.__name__ = 'ColumnParallelLinear', 'RowParallelLinear'\n"
    text = PARALLEL.replace("    model =", "    Up.tp_size = Down.tp_size = ranks\n    model =") + names
    test = TEST.replace("map='names.yaml'", "layers=['*.norm', '*.down']")
    pytester.makepyfile(parallel=text, test_model=test)
    pytester.makeini("[pytest]\nfilterwarnings = ignore\npythonpath = .")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), *sys.path]))
    lost = "npudump: not all ranks were recorded: 2 share layers, and the run has 1"
    for recorded, words in ((("1", ""), lost), (("2", ""), lost), (("2", "lost"), "")):
        monkeypatch.setenv("RANKS", recorded[0])
        monkeypatch.setenv("FAULT", recorded[1])
        pytester.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
        monkeypatch.setenv("RANKS", "2")
        monkeypatch.setenv("FAULT", "lost")
        result = pytester.runpytest_inprocess("--npudump-output=out")
        result.assert_outcomes(passed=not words, failed=bool(words))
        if words:
            result.stdout.fnmatch_lines([words])
            assert main(["check", "out"]) == 1


@pytest.mark.parametrize(
    ("ranks", "layers", "left"), [("2", (), 0), ("2", ("1.up",), 11), ("1", ("1.up",), 12)]
)
def test_accepted_layers_have_weights_of_one_rank_or_none(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ranks: str, layers: tuple[str, ...], left: int
) -> None:
    pytester.makepyfile(parallel=PARALLEL.replace("if rank and", "if"), test_model=TEST)
    pytester.path.joinpath("names.yaml").write_text("{}")
    pytester.makeini("[pytest]\nfilterwarnings = ignore\npythonpath = .")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), *sys.path]))
    pytester.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
    path = pytester.path / "golden/test_model/test_model.yaml"
    before = shards_of(store.read_golden(path))["0"]
    monkeypatch.setenv("RANKS", ranks)
    monkeypatch.setenv("FAULT", "part")
    pytester.runpytest_inprocess().assert_outcomes(failed=1)
    assert main(["golden", "accept", "test_model", *(f"--layers={one}" for one in layers)]) == 0
    after = shards_of(store.read_golden(path))["0"]
    assert sum(bool(text) for texts in after.values() for text in texts.values()) == left
    assert before["1.up"] != after["1.up"]
    assert not layers or {**before, "1.up": 0} == {**after, "1.up": 0}


EXPERTS = """
import torch
import torch.distributed as dist
from pytest_npudump.runtime.modules.worker import watch

def whole(x):
    if not dist.is_initialized():
        return x
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)

class Moe(torch.nn.Module):
    "Each rank has its tokens, and its experts, which compute the tokens of all."
    def __init__(self, number, rank, ranks):
        super().__init__()
        torch.manual_seed(number)
        self.rank, self.ranks, self.router = rank, ranks, torch.nn.Linear(8, 4)
        every = [torch.nn.Linear(8, 8) for _ in range(4)]
        self.experts = torch.nn.ModuleList(every[rank * 4 // ranks : (rank + 1) * 4 // ranks])

    def forward(self, x):
        gates, tokens = whole(self.router(x).softmax(-1)), whole(x)
        own = gates.chunk(self.ranks, 1)[self.rank]
        given = sum(own[:, [at]] * expert(tokens) for at, expert in enumerate(self.experts))
        if self.ranks > 1:
            dist.all_reduce(given)
        return x + given.chunk(self.ranks, 0)[self.rank]

def main(rank, ranks, fault, store):
    if ranks > 1:
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    model = torch.nn.Sequential(*(Moe(number, rank, ranks) for number in range(2)))
    if rank and fault:
        model[1].experts[1].weight.data *= 1.01 if fault == "expert" else 1.00001
    x = torch.linspace(-1, 1, 6 * 8).reshape(6, 8).chunk(ranks, 0)[rank]
    with torch.no_grad(), watch(model, rank=rank):
        model(x)
    if ranks > 1:
        dist.destroy_process_group()
"""


def test_tokens_and_experts_that_two_ranks_share_have_the_golden_of_one(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(parallel=EXPERTS, test_model=TEST)
    pytester.path.joinpath("names.yaml").write_text(
        'layouts: {"*.experts.*": "{2}[ep] t h", "*": "t[ep] h"}\n'
    )
    pytester.makeini("[pytest]\nfilterwarnings = ignore\npythonpath = .")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), *sys.path]))
    pytester.runpytest_inprocess("--npudump-update-golden").assert_outcomes(passed=1)
    monkeypatch.setenv("RANKS", "2")
    passed = pytester.runpytest_inprocess()
    passed.stdout.fnmatch_lines(["npudump: 1 of 1 tests passed; 13 of 13 tensors compared (modules)"])
    monkeypatch.setenv("FAULT", "expert")
    failed = pytester.runpytest_inprocess()
    failed.stdout.fnmatch_lines(["*1.experts.3:output.0 *"])
    monkeypatch.setenv("FAULT", "weight")
    failed = pytester.runpytest_inprocess()
    failed.stdout.fnmatch_lines(["npudump: weights differ from the golden's: 1.experts.3.weight (rank 1)"])
