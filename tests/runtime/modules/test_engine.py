"""Rows of batches by request and position, against numpy, on a runner that batches as vLLM's does."""

from __future__ import annotations

import marshal
import os
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.stats.projections import distance, project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.errors import RequestError, RuntimeUnavailableError
from pytest_npudump.runtime.modules import engine
from pytest_npudump.runtime.modules.engine import EngineCapture, WorkerExtension, plugin, prompt_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
torch: Any = pytest.importorskip("torch")

WORDS, WIDTH = 11, 3
PROMPTS = {"a": [1, 2, 3, 4, 5], "b": [7, 8], "c": [9], "again": [7, 8]}
TABLE = np.random.default_rng(0).normal(size=(WORDS, WIDTH))
HEAD = np.random.default_rng(1).normal(size=(WIDTH, WORDS))


class Model(torch.nn.Module):
    """A row a token, of which the rest of a batch knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH, _weight=torch.tensor(TABLE))
        self.act = torch.nn.Tanh()
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False, dtype=torch.float64)
        self.head.weight.data = torch.tensor(HEAD.T)

    def forward(self, words: Any, places: Any) -> Any:
        return self.act(self.embed(words) + places[:, None])

    def compute_logits(self, rows: Any) -> Any:
        return self.head(rows)


class Runner:
    """The part of vLLM's GPUModelRunner that a capture knows."""

    speculative_config = None

    def __init__(self, pad: int = 1) -> None:
        self.model, self.pad = Model(), pad
        self.requests = {name: SimpleNamespace(prompt_token_ids=prompt) for name, prompt in PROMPTS.items()}
        self.words = {name: [*prompt] for name, prompt in PROMPTS.items()}
        self.computed = dict.fromkeys(PROMPTS, 0)

    def run(self, batch: Mapping[str, int]) -> None:
        begins = np.array([self.computed[name] for name in batch])
        # Rows of requests that have left are behind those that count.
        self.input_batch = SimpleNamespace(
            req_ids=[*batch, "left"], num_reqs=len(batch), num_computed_tokens_cpu=np.append(begins, 99)
        )
        self.execute_model(SimpleNamespace(num_scheduled_tokens=batch))

    def execute_model(self, scheduled: Any) -> None:
        words, places, last = [], [], []
        for name, count in scheduled.num_scheduled_tokens.items():
            begin = self.computed[name]
            words += self.words[name][begin : begin + count]
            places += range(begin, begin + count)
            last.append(len(words) - 1)
            self.computed[name] += count
        more = -len(words) % self.pad
        hidden = self.model(torch.tensor(words + [0] * more), torch.tensor(places + [0] * more).double())
        sampled = self.model.compute_logits(hidden[last]).argmax(-1).tolist()
        for name, word in zip(scheduled.num_scheduled_tokens, sampled, strict=True):
            if self.computed[name] == len(self.words[name]):
                self.words[name].append(word)


def sent(value: Any) -> Any:
    return marshal.loads(marshal.dumps(value))  # noqa: S302 - it refuses what is a subclass of plain data


class LLM:
    """One with a worker a runner, in this process."""

    def __init__(self, *runners: Any) -> None:
        self.workers = []
        for rank, runner in enumerate(runners):
            worker: Any = WorkerExtension()
            worker.model_runner, worker.rank = runner, rank
            self.workers.append(worker)
        parallel = SimpleNamespace(world_size=len(runners))
        self.llm_engine = SimpleNamespace(vllm_config=SimpleNamespace(parallel_config=parallel))

    def collective_rpc(self, name: str, _timeout: float, args: tuple[Any, ...]) -> list[Any]:
        """As between processes, which take plain data alone."""
        return [sent(getattr(worker, name)(*sent(args))) for worker in self.workers]


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.32"))


def captured(
    folder: Path, batches: Iterable[Mapping[str, int]], *, pad: int = 1, **asked: Any
) -> tuple[EngineCapture, Runner]:
    runner = Runner(pad)
    capture = EngineCapture(LLM(runner), folder, force=asked.pop("force", {}), **asked)
    with capture:
        for batch in batches:
            if "preempted" in batch:
                runner.computed["a"] = 0
            else:
                runner.run(batch)
    return capture, runner


def truth(words: list[int], prompt: int) -> dict[tuple[str, int], Any]:
    """What each module gives, by step, computed for one request alone."""
    embedded = TABLE[words]
    hidden = np.tanh(embedded + np.arange(len(words))[:, None])
    found: dict[tuple[str, int], Any] = {}
    for step in range(len(words) - prompt):
        rows = slice(0, prompt) if step == 0 else slice(prompt + step - 1, prompt + step)
        last = slice(prompt + step - 1, prompt + step)
        found |= {("embed", step): embedded[rows], ("act", step): hidden[rows], ("Model", step): hidden[rows]}
        found["head", step] = hidden[last] @ HEAD
    return found


ALL = dict(zip(PROMPTS, (5, 2, 1, 2), strict=True))
ONE = dict.fromkeys(PROMPTS, 1)
WAYS: dict[str, list[dict[str, int]]] = {
    "together": [ALL, ONE, ONE],
    "another order": [dict(reversed(ALL.items())), ONE, dict(reversed(ONE.items()))],
    "one by one": [{name: count} for name in ALL for count in (ALL[name], 1, 1)],
    "prompts in pieces": [{"a": 2, "b": 1}, {"c": 1, "a": 2, "b": 1, "again": 2}, {"a": 1, "b": 1}, ONE, ONE],
    "preempted": [ALL, ONE, {"preempted": 0}, {"a": 3, "b": 1}, {"a": 4, "c": 1}, {"again": 1}],
}


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_of_each_request_alone(tmp_path: Path, way: str, *, tensors: bool) -> None:
    capture, runner = captured(tmp_path, WAYS[way], pad=4, tensors=tensors)
    assert (capture.problems, capture.notes, capture.name) == ([], (), "Model")
    assert capture.facts["vllm"] == "0.32"
    found = {str(record.key): record for record in read_dump(tmp_path).records}
    expected = {}
    for name, prompt in PROMPTS.items():
        load = ",load=1" if name == "again" else ""
        for (layer, step), array in truth(runner.words[name], len(prompt)).items():
            key = f"{layer}#model={prompt_hash(prompt)}{load}{f',step={step}' * bool(step)}:output.0"
            expected[key] = array
    assert {*found} == {*expected}
    for key, array in expected.items():
        stats, told = tensor_stats(array), found[key].stats
        if tensors:
            assert found[key].shape == array.shape
            np.testing.assert_allclose(np.load(found[key].payload.path), array, rtol=1e-12)
        else:
            assert found[key].shape == array.shape
            assert told.count == stats.count
            for one in ("max", "min", "avg", "l2norm"):
                assert getattr(told, one) == pytest.approx(getattr(stats, one), rel=1e-9, abs=1e-12), (
                    key,
                    one,
                )
            # Of one token alone it is known in which order its elements are: no batch cuts it.
            assert (told.projections is not None) == (len(array) == 1), key
            if told.projections is not None:
                assert distance(told.projections, project(array)) <= 1e-3 * stats.l2norm, key


def test_later_tokens_are_those_that_a_test_gives(tmp_path: Path) -> None:
    force = {tuple(PROMPTS["a"]): [10, 0], tuple(PROMPTS["b"]): [6]}
    _, runner = captured(tmp_path, WAYS["prompts in pieces"], force=force)
    assert runner.words["a"][5:7] == [10, 0]
    assert [runner.words[name][2] for name in ("b", "again")] == [6, 6]


def test_tokens_that_cannot_be_given_are_told(tmp_path: Path) -> None:
    for token in (WORDS, -1):
        force = {tuple(PROMPTS["a"]): [10, token], (1, 2, 3): [4]}
        capture, runner = captured(tmp_path / str(token), WAYS["together"], force=force)
        assert runner.words["a"][5] == 10
        told = "force: no request has the prompt [1, 2, 3]", f"force: token {token} is none of {WORDS}"
        assert {*capture.problems} == {*told}
    for given in ([1, 2], {1: [2]}, {(1,): 2}, {("a",): [2]}):
        with pytest.raises(RequestError, match=r"force is .*, expected the tokens to go on with"):
            captured(tmp_path, [], force=given)


def test_what_a_cache_holds_is_a_problem(tmp_path: Path) -> None:
    runner = Runner()
    runner.computed["a"] = 4
    capture = EngineCapture(LLM(runner), tmp_path, force={})
    with capture:
        runner.run({"a": 1})
    assert "from the cache of prefixes, not computed: 4; " in capture.problems[0]


def test_a_tensor_without_a_row_a_token_is_told(tmp_path: Path) -> None:
    runner = Runner()
    model, forward = runner.model, runner.model.forward
    model.scale = torch.nn.Identity()
    model.forward = lambda words, places: forward(words, places) * model.scale(torch.tensor(1.0))
    capture = EngineCapture(LLM(runner), tmp_path, force={})
    with capture:
        runner.run({"a": 5})
    assert "scale gives a tensor without one row per token: not recorded" in capture.notes


def test_ranks_have_folders_and_words_of_their_own(tmp_path: Path) -> None:
    runners = Runner(), Runner()
    capture = EngineCapture(LLM(*runners), tmp_path, force={})
    runners[1].computed["b"] = 1
    with capture:
        for runner in runners:
            runner.run({"a": 5})
        runners[1].run({"b": 1})
    assert capture.facts["ranks"] == "2"  # sums of several ranks are rounded otherwise
    assert {record.key.rank for record in read_dump(tmp_path).records} == {0, 1}
    assert [words.partition(";")[0][-16:] for words in capture.problems] == [" not computed: 1"]
    assert capture.problems[0].startswith("rank 1: tokens of a prompt ")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_second_capture_of_a_test_keeps_what_the_first_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    for stamp in ("20260101000000", "20260101000001"):
        monkeypatch.setattr("time.strftime", lambda *_, stamp=stamp: stamp)
        runners = [Runner() for _ in range(ranks)]
        with EngineCapture(LLM(*runners), tmp_path, force={}, layers=["act"]):
            for runner in runners:
                runner.run({"b": 2, "again": 2})
    found = {(one.key.load, one.key.rank) for one in read_dump(tmp_path).records}
    assert found == {(load, rank) for load in range(4) for rank in ((-1,) if ranks == 1 else (0, 1))}


def test_equal_prompts_of_two_engines_at_once_are_refused(tmp_path: Path) -> None:
    """As of data-parallel ranks, of which each is an engine: the second would overwrite the first."""
    runners = Runner(), Runner()
    captures = [EngineCapture(LLM(runner), tmp_path, force={}) for runner in runners]
    with captures[0], captures[1]:
        runners[0].run({"a": 5, "b": 2})
        runners[1].run({"b": 2, "again": 2})
    assert captures[1].problems == []
    (words,) = captures[0].problems
    assert words.startswith(f"{prompt_hash(PROMPTS['b'])}: two engines recorded equal prompts at once")


def test_workers_that_cannot_be_called_are_told_as_such(tmp_path: Path) -> None:
    class Broken(LLM):
        def collective_rpc(self, name: str, _timeout: float, args: tuple[Any, ...]) -> list[Any]:
            del name, args
            raise self.why

        why: Exception = AttributeError("'CPUWorker' object has no attribute 'npudump_start'")

    llm = Broken(Runner())
    with pytest.raises(RuntimeUnavailableError, match=r"do not know pytest-npudump.*worker_extension_cls"):
        EngineCapture(llm, tmp_path, force={}).start()
    llm.why = TimeoutError("RPC call timed out")
    words = (
        r"collective_rpc\('npudump_start'\) failed after 300 seconds: a worker has died.*RPC call timed out$"
    )
    with pytest.raises(RuntimeUnavailableError, match=words):
        EngineCapture(llm, tmp_path, force={}).start()
    runner = Runner()
    runner.speculative_config = SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(RuntimeUnavailableError, match="a speculative engine"):
        EngineCapture(LLM(runner), tmp_path, force={}).start()
    del runner.speculative_config, runner.requests
    with pytest.raises(RuntimeUnavailableError, match="set VLLM_USE_V2_MODEL_RUNNER=0"):
        EngineCapture(LLM(runner), tmp_path, force={}).start()
    llm = Broken(Runner())
    capture = EngineCapture(llm, tmp_path, force={})
    capture.stopped = False
    llm.why = RuntimeError("EngineCore died")
    with pytest.raises(RuntimeUnavailableError, match=r"npudump_stop.*EngineCore died"):
        capture.stop()


def test_workers_that_never_answer_and_engines_that_end_do_not_hang_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_GRACE", 0)
    silent = threading.Event()

    class Silent(LLM):
        def collective_rpc(self, name: str, _timeout: float, args: tuple[Any, ...]) -> list[Any]:
            if name.endswith("stop"):
                silent.wait(30)
            return super().collective_rpc(name, _timeout, args)

    llm = Silent(Runner())
    capture = EngineCapture(llm, tmp_path, force={}, timeout=0.3)
    capture.start()
    with pytest.raises(
        RuntimeUnavailableError, match=r"npudump_stop'\) failed after 0.3 seconds: .*no answer"
    ):
        capture.stop()
    llm.llm_engine.engine_core = SimpleNamespace(resources=SimpleNamespace(engine_dead=True))
    capture = EngineCapture(llm, tmp_path, force={})
    capture.stopped = False
    with pytest.raises(RuntimeUnavailableError, match=r"RuntimeError: the process of the engine has ended$"):
        capture.stop()
    capture.stopped = False
    with pytest.raises(ArithmeticError), capture:  # what failed first is what a test fails by
        raise ArithmeticError
    assert "has ended" in capture.problems[0]
    silent.set()


def test_the_entry_point_changes_workers_where_a_test_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a test nothing of vLLM is imported; hooks of an engine that compiles are in as it loads."""
    monkeypatch.delenv("NPUDUMP_WORKERS", raising=False)
    plugin()

    class Base:
        def __init__(self, *, eager: bool) -> None:
            self.model_config = SimpleNamespace(enforce_eager=eager)

    class Worker(Base):
        def load_model(self) -> str:
            self.model_runner = Runner()
            return "loaded"

    monkeypatch.setitem(sys.modules, "vllm.v1.worker.worker_base", SimpleNamespace(WorkerBase=Base))
    monkeypatch.setenv("NPUDUMP_WORKERS", "1")
    monkeypatch.setenv("VLLM_DISABLE_COMPILE_CACHE", "0")
    plugin()
    assert os.environ["VLLM_DISABLE_COMPILE_CACHE"] == "1"
    for eager, hooked in ((True, False), (False, True)):
        worker: Any = Worker(eager=eager)
        assert worker.load_model() == "loaded"
        assert bool(worker.model_runner.model.act._forward_hooks) is hooked
        assert worker.npudump_start.__self__ is worker
        assert not hasattr(Worker, "npudump_start"), "vLLM refuses an extension that has what a class has"


def test_hooks_of_a_compiled_engine_tell_a_test_and_forget_the_rest(tmp_path: Path) -> None:
    from pytest_npudump.runtime.modules.engine import TokenCapture

    runner = Runner()
    kept = TokenCapture(runner, tmp_path / "never", force={})
    kept.idle = True
    kept.start()
    runner._npudump_kept = kept  # type: ignore[attr-defined]
    llm = LLM(runner)
    runner.run({"c": 1})
    runner.words["c"], runner.computed["c"] = [9], 0
    for turn in range(2):
        capture = EngineCapture(llm, tmp_path / f"{turn}", force={}, layers=["act"])
        capture.start()
        with capture:
            runner.run({"a": 5} if turn == 0 else {"b": 2})
        assert len(runner.model.act._forward_hooks) == 1  # those of the first capture alone
        keys = {str(record.key) for record in read_dump(tmp_path / f"{turn}").records}
        assert keys == {"act:output.0"}, turn
    with EngineCapture(llm, tmp_path / "all", force={}) as capture:
        runner.model.compute_logits = lambda rows: (
            rows @ torch.tensor(HEAD)
        )  # as a compiler that swallows a module
        runner.run({"again": 2})
    assert [words[:32] for words in capture.notes] == ["modules of Model not recorded: 1"]
    runner.run({"c": 1})
    assert not (tmp_path / "never").exists()
    kept.stop()
