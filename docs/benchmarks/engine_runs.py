"""False alarms and faults of a vLLM engine whose modules are watched: shuffled batches against one golden.

``python -m docs.benchmarks.engine_runs [RUNS] [FAULTS] [compiled] [process] [tp [own]] [tensors]``; it needs
vLLM, whose CPU build does, and no model: a Qwen2 of two blocks with weights by chance, in bfloat16. The
golden is one run of eight prompts. Each further run has some of them, in another order and with strangers, in
batches of four requests and 32 tokens, so that prompts are computed in pieces, whole, and beside others that
already decode. Bounds are those that a test has where it names none.

The engine is eager and in this process; ``compiled``; in a ``process`` of its own; or with ``tp`` spread over
two ranks, against the golden of one, or its ``own``. Faults are wrong weights of a module, in one run: all of
them by a factor, by chance, or those of one row, or in a single step of the engine; with ``tp`` on one rank
alone. A module is named where a failure's first line does: as its first mismatch, or, in the golden's own
numerics, as the first change, within tolerance, before that. Against the golden of one rank, where bounds are
those of other numerics, weights are compared exactly, too, and some ranks hold the wrong half of a module's
rows. ``tensors`` compares elements.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

os.environ.update({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"})
os.environ.setdefault("NPUDUMP_WORKERS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import torch
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.model_executor.layers import utils

from pytest_npudump.compare.correspondence import Correspondence
from pytest_npudump.compare.judge import Terms, judge
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.record.record import SHARDS, Record
from pytest_npudump.runtime.modules.engine import EngineCapture, WorkerExtension, prompt_hash
from pytest_npudump.runtime.modules.shards import other_weights

if TYPE_CHECKING:
    from collections.abc import Collection

WIDTH, INNER, WORDS, HEAD = 256, 512, 512, 64
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": WORDS,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
TOKENS = 4
LINEAR = [
    f"model.layers.{at}.{name}"
    for at in range(2)
    for name in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
]
NORMS = ["model.layers.0.post_attention_layernorm", "model.layers.1.input_layernorm", "model.norm"]


def save_model(folder: Path) -> None:
    """Write a model whose weights, by chance, keep the size of what passes through."""
    made = torch.Generator().manual_seed(0)

    def drawn(*shape: int, scale: float = 1) -> Any:
        return (torch.randn(shape, generator=made) * scale * shape[-1] ** -0.5).bfloat16()

    weights = {"model.embed_tokens": drawn(WORDS, WIDTH, scale=16), "lm_head": drawn(WORDS, WIDTH)}
    weights["model.norm"] = 1 + drawn(WIDTH)
    for at in range(2):
        layer = f"model.layers.{at}."
        weights |= {
            layer + name: 1 + drawn(WIDTH) for name in ("input_layernorm", "post_attention_layernorm")
        }
        for name, heads in (("q", 4), ("k", 2), ("v", 2)):
            weights[f"{layer}self_attn.{name}_proj"] = drawn(heads * HEAD, WIDTH)
        weights[f"{layer}self_attn.o_proj"] = drawn(WIDTH, 4 * HEAD)
        weights |= {f"{layer}mlp.{name}_proj": drawn(INNER, WIDTH) for name in ("gate", "up")}
        weights[f"{layer}mlp.down_proj"] = drawn(WIDTH, INNER)
    tensors = {f"{name}.weight": one for name, one in weights.items()}
    tensors |= {
        f"{name}.bias": drawn(len(one))
        for name, one in weights.items()
        if name.endswith(("q_proj", "k_proj", "v_proj"))
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _plain(layer: Any, **_: object) -> None:
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = _plain  # which packs weights, so that they could not be changed


class Extension(WorkerExtension):
    """Workers whose weights can be made wrong."""

    def bench_fault(self, rank: int, name: str, kind: str, number: int, size: float) -> None:
        """Make weights of a module wrong on a rank, until :meth:`bench_mend`."""
        if self.rank != rank:
            return
        runner = self.model_runner
        weight = dict(runner.model.named_parameters())[f"{name}.weight"].data
        self.kept = weight, weight.clone()
        wrong = weight.clone()
        if kind == "noise":
            made = torch.Generator().manual_seed(number)
            wrong += torch.randn(wrong.shape, generator=made).to(wrong.dtype) * wrong.std() * 0.1 * size
        elif kind == "row":
            wrong[number % len(wrong)] *= 3
        elif kind == "shard":
            wrong = wrong.roll(len(wrong) // 2, 0)
        else:
            wrong *= 1 + size * (0.05 if kind == "step" else 0.02)
        if kind != "step":
            weight.copy_(wrong)
            return
        calls, execute = [0], runner.execute_model
        self.replaced = execute

        def once(*given: Any, **named: Any) -> Any:
            calls[0] += 1
            weight.copy_(wrong if calls[0] == 2 + number % 3 else self.kept[1])
            return execute(*given, **named)

        runner.execute_model = once

    def bench_mend(self) -> None:
        """Put the weights back."""
        if replaced := self.__dict__.pop("replaced", None):
            self.model_runner.execute_model = replaced
        if kept := self.__dict__.pop("kept", ()):
            kept[0].copy_(kept[1])


def _drawing(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - chance that repeats


class Engine:
    """An engine, its prompts and the golden."""

    def __init__(self, folder: Path, ways: Collection[str], tp: int = 1) -> None:
        """Start it, and record the golden."""
        compiled, process, self.tensors = (one in ways for one in ("compiled", "process", "tensors"))
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(process or tp > 1))
        self.llm = LLM(
            str(folder / "model"),
            skip_tokenizer_init=True,
            enforce_eager=not compiled,
            max_model_len=128,
            max_num_seqs=4,
            max_num_batched_tokens=32,
            enable_prefix_caching=False,
            tensor_parallel_size=tp,
            worker_extension_cls=f"docs.benchmarks.engine_runs.{Extension.__name__}",
        )
        self.folder, self.runs, self.terms = folder, 0, Terms()
        self.untold = set[str]()
        drawn = _drawing(0)
        self.prompts = [[drawn.randrange(512) for _ in range(size)] for size in (3, 4, 7, 11, 17, 25, 33, 40)]
        self.force: dict[Any, list[int]] = {}
        self.golden, tokens, self.weights = self.run(self.prompts)
        self.force = {tuple(prompt): found for prompt, found in zip(self.prompts, tokens, strict=True)}

    def judge_by(self, other: Engine) -> None:
        """Take the golden of another engine, and the tokens that followed there."""
        self.golden, self.force, self.terms = other.golden, other.force, Terms(option="other")
        self.weights = other.weights

    def run(self, prompts: list[list[int]]) -> tuple[list[Any], list[list[int]], Any]:
        """Return the records of a batch, the tokens that followed each prompt, and digests of weights."""
        self.runs += 1
        folder = self.folder / f"{id(self)}-{self.runs}"
        capture = EngineCapture(self.llm, folder, force=self.force, tensors=self.tensors)
        with capture:
            told = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True, detokenize=False)
            given = [{"prompt_token_ids": prompt} for prompt in prompts]
            done = self.llm.generate(given, told, use_tqdm=False)
        if capture.problems:
            raise SystemExit(capture.problems)
        records = [*read_dump(capture.folder).records]
        return records, [[*one.outputs[0].token_ids] for one in done], capture.shards

    def judged(self, drawn: random.Random) -> tuple[Any, dict[str, list[str]]]:
        """Return what a run by chance comes to against the golden, and which weights are not its own."""
        mine = drawn.sample(self.prompts, drawn.randint(2, len(self.prompts)))
        strangers = [
            [drawn.randrange(512) for _ in range(drawn.randint(2, 40))] for _ in range(drawn.randint(0, 3))
        ]
        prompts = mine + strangers
        drawn.shuffle(prompts)
        names = {prompt_hash(prompt) for prompt in mine}
        records, _, weights = self.run(prompts)
        golden, run = (
            replace(
                Record.of(StatsTable.from_records(told := [one for one in side if one.key.model in names])),
                tensors=tuple(told) if self.tensors else (),
                extra={SHARDS: held},
            )
            for side, held in ((self.golden, self.weights), (records, weights))
        )
        found: dict[str, list[str]] = {}
        if len(self.weights) == 1 < len(weights):
            found, untold = other_weights(*Correspondence().weights(golden, run))
            self.untold.update(untold)
        return judge(golden, run, self.terms), found


def main(runs: int = 200, faults: int = 20, *ways: str) -> None:
    """Print false alarms, and how many faults of each kind are found and named."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        save_model(folder / "model")
        engine = Engine(folder, ways)
        if "tp" in ways:
            one, engine = engine, Engine(folder, ways, tp=2)
            if "own" not in ways:
                engine.judge_by(one)
        drawn, alarms, compared, began = _drawing(1), 0, 0, time.monotonic()
        for number in range(runs):
            comparison, weights = engine.judged(drawn)
            compared += comparison.expected
            alarms += bool(comparison.failing or weights)
            if weights:
                print(f"run {number}: weights {weights}")
            for verdict in comparison.failing[:3]:
                print(f"run {number}: {verdict.key} {verdict.to_json()['reasons']}")
        seconds = time.monotonic() - began
        print(
            f"shuffled: {alarms} of {runs} runs fail, {compared} tensors compared, "
            f"{seconds / max(runs, 1):.2f} s a run"
        )
        found: Counter[str] = Counter()
        named: Counter[str] = Counter()
        every: Counter[str] = Counter()
        for number in range(faults):
            kinds = ("scale", "noise", "row", "step", "shard")[: 4 + ("tp" in ways and "own" not in ways)]
            kind = kinds[number % len(kinds)]
            names = LINEAR + NORMS if kind in {"scale", "step"} else LINEAR
            name, rank = names[(number * 5 + number // 4) % len(names)], number % (1 + ("tp" in ways))
            engine.llm.collective_rpc(
                "bench_fault",
                args=(rank, name, kind, number, 10.0 if kind == "step" and engine.terms.option else 1.0),
            )
            comparison, weights = engine.judged(drawn)
            engine.llm.collective_rpc("bench_mend")
            first = comparison.failing[0].key.layer if comparison.failing else None
            change = None if engine.terms.option else comparison.first_change
            if first is not None and change is not None and change.layer == name:
                first = name
            if weights:
                layers, (ranks, *_) = {one.rpartition(".")[0] for one in weights}, weights.values()
                first = name if (layers, ranks) == ({name}, [str(rank)]) else str(weights)
            every[kind] += 1
            found[kind] += first is not None
            named[kind] += first == name
            if first != name:
                print(f"{kind} in {name}: named {first}")
        for kind, count in every.items():
            print(f"{kind:8} {count:3} faults, {found[kind]:3} found, {named[kind]:3} named")
        print(f"weights not compared: {sorted(engine.untold)}")
        print(f"all      {faults} faults, {sum(found.values())} found, {sum(named.values())} named")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
