"""Torch models for tests, and a graph on the CPU that is captured and replayed as a device's is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DIM, WORDS = 16, 50


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(x)


class Transformer(nn.Module):
    """A decoder of ``blocks`` blocks."""

    def __init__(self, blocks: int = 12) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, DIM), nn.Linear(DIM, WORDS)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, words: Any) -> Any:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def transformer(blocks: int = 12) -> Any:
    torch.manual_seed(0)
    return Transformer(blocks).eval().requires_grad_(requires_grad=False)


def words(seed: int = 0) -> Any:
    return torch.randint(0, WORDS, (2, 8), generator=torch.Generator().manual_seed(seed))


class _Recorded(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = call(*args, **(kwargs or {}))
        self.calls.append((call, args, kwargs or {}, found))
        return found


class Graph:
    """Operators that run again at every replay, on the memory that they had when they were captured."""

    def __init__(self) -> None:
        self.mode = _Recorded()

    def capture_begin(self) -> None:
        self.mode.__enter__()

    def capture_end(self) -> None:
        self.mode.__exit__(None, None, None)

    def replay(self) -> None:
        for call, args, kwargs, found in self.mode.calls:
            for old, new in zip(tree_leaves(found), tree_leaves(call(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():  # no view
                    old.copy_(new)


def captured(model: Any, given: Any) -> Graph:
    """Capture one call as people do: behind a call that warms it up."""
    graph = Graph()
    model(given)
    graph.capture_begin()
    model(given)
    graph.capture_end()
    return graph
