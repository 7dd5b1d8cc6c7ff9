"""False alarms and faults of a vLLM engine whose modules are watched: shuffled batches against one golden.

``python -m docs.benchmarks.engine_runs [RUNS] [FAULTS] [compiled]``; it needs vLLM, whose CPU build does, and
no model: a Qwen2 of two blocks with weights by chance, in bfloat16. The golden is one run of eight
prompts. Each further run has some of them, in another order and with strangers, in batches of four requests
and 32 tokens, so that prompts are computed in pieces, whole, and beside others that already decode. Bounds
are those that a test has where it names none. Faults are hooks that change what a module gives, as changed
weights do; compiled code does not call them, so that with ``compiled`` there are to be 0.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
os.environ.setdefault("NPUDUMP_WORKERS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import torch
from vllm import LLM, SamplingParams
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

from pytest_npudump.compare.judge import Terms, judge
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.record.record import Record
from pytest_npudump.runtime.modules.engine import EXTENSION, EngineCapture, prompt_hash

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
TOKENS = 4
LAYERS = [f"model.layers.{at}.{name}" for at in range(2) for name in ("self_attn.", "mlp.")]
LINEAR = [f"{one}{name}" for one in LAYERS[::2] for name in ("qkv_proj", "o_proj")]
LINEAR += [f"{one}{name}" for one in LAYERS[1::2] for name in ("gate_up_proj", "down_proj")]
OTHERS = [
    "model.layers.0.self_attn.attn",
    "model.layers.1.mlp.act_fn",
    "model.layers.1.input_layernorm",
    "model.norm",
]


def weights(_: Any, model: Any, *__: Any) -> None:
    """Give a model weights by chance that keep the size of what passes through."""
    made = torch.Generator().manual_seed(0)
    for name, one in model.named_parameters():
        drawn = torch.randn(one.shape, generator=made)
        scale = 0.1 if one.dim() == 1 else one.shape[-1] ** -0.5
        one.data.copy_(drawn * scale + (one.dim() == 1 and "norm" in name))


def _drawing(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - chance that repeats


class Engine:
    """An engine, its prompts and the golden."""

    def __init__(self, folder: Path, *, compiled: bool) -> None:
        """Start it, and record the golden."""
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
        DummyModelLoader.load_weights = weights
        self.llm = LLM(
            str(folder / "model"),
            skip_tokenizer_init=True,
            load_format="dummy",
            enforce_eager=not compiled,
            max_model_len=128,
            max_num_seqs=4,
            max_num_batched_tokens=32,
            enable_prefix_caching=False,
            worker_extension_cls=EXTENSION,
        )
        self.model: Any = self.llm.collective_rpc(lambda worker: worker.model_runner.model)[0]
        self.folder, self.runs = folder, 0
        drawn = _drawing(0)
        self.prompts = [[drawn.randrange(512) for _ in range(size)] for size in (3, 4, 7, 11, 17, 25, 33, 40)]
        self.force: dict[Any, list[int]] = {}
        self.golden, tokens = self.run(self.prompts)
        self.force = {tuple(prompt): found for prompt, found in zip(self.prompts, tokens, strict=True)}

    def run(self, prompts: list[list[int]]) -> tuple[list[Any], list[list[int]]]:
        """Return the records of a batch, and the tokens that followed each prompt."""
        self.runs += 1
        capture = EngineCapture(self.llm, self.folder / f"{self.runs}", force=self.force)
        with capture:
            told = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True, detokenize=False)
            given = [{"prompt_token_ids": prompt} for prompt in prompts]
            done = self.llm.generate(given, told, use_tqdm=False)
        if capture.problems:
            raise SystemExit(capture.problems)
        records = [*read_dump(capture.folder).records]
        return records, [[*one.outputs[0].token_ids] for one in done]

    def judged(self, drawn: random.Random) -> Any:
        """Return what a run by chance comes to against the golden."""
        mine = drawn.sample(self.prompts, drawn.randint(2, len(self.prompts)))
        strangers = [
            [drawn.randrange(512) for _ in range(drawn.randint(2, 40))] for _ in range(drawn.randint(0, 3))
        ]
        prompts = mine + strangers
        drawn.shuffle(prompts)
        names = {prompt_hash(prompt) for prompt in mine}
        sides = [
            [one for one in side if one.key.model in names] for side in (self.golden, self.run(prompts)[0])
        ]
        golden, run = (Record.of(StatsTable.from_records(tuple(side))) for side in sides)
        return judge(golden, run, Terms())


def fault(kind: str, model: Any, name: str, at: int) -> Any:
    """Put a fault into a module, as a hook that changes what it gives, and return what takes it out."""
    calls = [0]

    def put(_: Any, given: Any, output: Any) -> Any:
        calls[0] += 1
        first = output[0] if isinstance(output, tuple) else output
        if kind == "noise":  # a tenth of the weights' size
            drawn = torch.randn(
                first.shape[-1], given[0].shape[-1], generator=torch.Generator().manual_seed(at)
            )
            wrong = first + (given[0].float() @ drawn.T * 0.1 * drawn.shape[-1] ** -0.5).to(first.dtype)
        elif kind == "step":
            wrong = first * 1.05 if calls[0] == 2 + at % 3 else first
        else:
            wrong = first * (1.02 if kind == "scale" else 1)
        if kind == "element":
            wrong = first.clone()
            wrong[:, at] += 4 * first.float().std().to(first.dtype)
        return (wrong, *output[1:]) if isinstance(output, tuple) else wrong

    return dict(model.named_modules())[name].register_forward_hook(put)


def main(runs: int = 200, faults: int = 20, *, compiled: bool = False) -> None:
    """Print false alarms, and how many faults of each kind are found and named."""
    with TemporaryDirectory() as folder:
        engine = Engine(Path(folder), compiled=compiled)
        drawn, alarms, compared, began = _drawing(1), 0, 0, time.monotonic()
        for number in range(runs):
            comparison = engine.judged(drawn)
            compared += comparison.expected
            alarms += bool(comparison.failing)
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
            kind = ("scale", "noise", "element", "step")[number % 4]
            names = LINEAR if kind in {"scale", "noise"} else LINEAR + OTHERS
            name = names[(number * 5 + number // 4) % len(names)]
            hook = fault(kind, engine.model, name, number)
            comparison = engine.judged(drawn)
            hook.remove()
            first = comparison.failing[0].key.layer if comparison.failing else None
            every[kind] += 1
            found[kind] += first is not None
            named[kind] += first == name
            if first != name:
                print(f"{kind} in {name}: named {first}")
        for kind, count in every.items():
            print(f"{kind:8} {count:3} faults, {found[kind]:3} found, {named[kind]:3} named")
        print(f"all      {faults} faults, {sum(found.values())} found, {sum(named.values())} named")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), compiled="compiled" in sys.argv)
