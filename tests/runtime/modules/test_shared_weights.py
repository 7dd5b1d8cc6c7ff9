"""Digests of parameters that ranks share: 20 small faults are named with their rank, healthy parts pass."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.runtime.modules.shards import other_weights, shard_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
torch: Any = pytest.importorskip("torch")

HEADS = (32, 16, 16)


class Qkv(torch.nn.Linear):  # type: ignore[misc]
    """What vLLM joins: each rank has a part of each piece."""

    output_partition_sizes: tuple[int, ...] = HEADS


def _model(ranks: int = 1, rank: int = 0) -> Any:
    layers = []
    for at in range(2):
        drawn = torch.Generator().manual_seed(at)
        draw = lambda *shape: torch.randn(shape, generator=drawn)  # noqa: E731, B023
        whole = {
            "up.weight": draw(64, 32),
            "up.bias": torch.zeros(64) if at else draw(64),
            "down.weight": draw(32, 64),
            "norm.weight": draw(32),
            "qkv.weight": draw(sum(HEADS), 32),
            "experts": draw(4, 16, 32),
        }
        qkv = Qkv(32, sum(HEADS) // ranks, bias=False)
        qkv.output_partition_sizes = tuple(one // ranks for one in HEADS)
        layer = torch.nn.ModuleDict(
            {
                "up": torch.nn.Linear(32, 64 // ranks),
                "down": torch.nn.Linear(64 // ranks, 32, bias=False),
                "norm": torch.nn.RMSNorm(32),
                "qkv": qkv,
            }
        )
        layer.register_parameter("experts", torch.nn.Parameter(whole["experts"].chunk(ranks, 1)[rank]))
        layer["up"].weight.data = whole["up.weight"].chunk(ranks, 0)[rank].clone()
        layer["up"].bias.data = whole["up.bias"].chunk(ranks, 0)[rank].clone()
        layer["down"].weight.data = whole["down.weight"].chunk(ranks, 1)[rank].clone()
        layer["norm"].weight.data = whole["norm.weight"].clone()
        pieces = [one.chunk(ranks, 0)[rank] for one in whole["qkv.weight"].split(HEADS)]
        qkv.weight.data = torch.cat(pieces)
        layers.append(layer)
    return torch.nn.ModuleList(layers)


def _texts(*models: Any) -> dict[str, dict[str, str]]:
    told = [shard_digests(model)[0] for model in models]
    return {
        str(rank): {f"{layer}.{name}": text for layer, texts in one.items() for name, text in texts.items()}
        for rank, one in enumerate(told)
    }


WHOLE = _texts(_model())["0"]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_healthy_parts_are_those_of_the_whole(ranks: int) -> None:
    assert other_weights(WHOLE, _texts(*(_model(ranks, rank) for rank in range(ranks)))) == ({}, [])
    for twice in ([*range(ranks)] * 2, [at // 2 for at in range(2 * ranks)]):
        assert other_weights(WHOLE, _texts(*(_model(ranks, rank) for rank in twice))) == ({}, [])


def _scaled(one: Any) -> None:
    one *= 1.001


def _element(one: Any) -> None:
    one.view(-1)[7] = torch.nextafter(one.view(-1)[7], torch.tensor(9.0))


def _rows(one: Any) -> None:
    one[[3, 4]] = one[[4, 3]]


def _columns(one: Any) -> None:
    one[:, [3, 4]] = one[:, [4, 3]]


def _rolled(one: Any) -> None:
    one.copy_(one.roll(len(one) // 2, 0))


FAULTS = [
    *[
        (name, change)
        for name in ("up.weight", "down.weight", "qkv.weight")
        for change in (_scaled, _element, _rows, _columns)
    ],
    *(("norm.weight", _scaled), ("norm.weight", _element), ("norm.weight", _rows), ("up.weight", _rolled)),
    *(("up.bias", _element), ("up.weight", "layer"), ("down.weight", "layer"), ("down.weight", "rank")),
]


@pytest.mark.parametrize(("name", "change"), FAULTS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_wrong_part_is_named_with_its_rank(ranks: int, name: str, change: Any) -> None:
    models = [_model(ranks, rank) for rank in range(ranks)]
    held = dict(models[1].named_parameters())[f"1.{name}"].data
    if change == "layer":
        held.copy_(dict(models[1].named_parameters())[f"0.{name}"].data)
    elif change == "rank":
        held.copy_(dict(models[0].named_parameters())[f"1.{name}"].data)
    else:
        change(held)
    found, untold = other_weights(WHOLE, _texts(*models))
    assert {one.partition("[")[0] for one in found} == {f"1.{name}"}
    assert {rank for out in found.values() for rank in out} == {"1"}
    assert untold == []


def _layers(*weights: Any, sizes: Sequence[int] = ()) -> Any:
    """Return a model with a layer for each weight."""
    layers = []
    for weight in weights:
        layer = Qkv(1, 1, bias=False)
        layer.output_partition_sizes = tuple(sizes)
        name = "bias" if weight.ndim == 1 else "weight"
        layer.weight = None
        layer.register_parameter(name, torch.nn.Parameter(weight, requires_grad=False))
        layers.append(layer)
    return torch.nn.Sequential(*layers)


def _drawn(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


W, V, SMALL = _drawn(64, 8), _drawn(64, 9)[:, :8], _drawn(10, 8)
MANY, ZERO = [*W.split(8)], torch.zeros(64, 8)
LAYOUTS: dict[str, tuple[Any, list[Any], dict[str, list[str]], list[str]]] = {
    "heads of keys on two ranks each": (
        _layers(torch.cat(MANY), sizes=(32, 16, 16)),
        [
            _layers(torch.cat([MANY[r], MANY[4 + r // 2], MANY[6 + r // 2]]), sizes=(8, 8, 8))
            for r in range(4)
        ],
        {},
        [],
    ),
    "the same, in two groups": (
        _layers(torch.cat(MANY), sizes=(32, 16, 16)),
        [
            _layers(torch.cat([MANY[r], MANY[4 + r // 2], MANY[6 + r // 2]]), sizes=(8, 8, 8))
            for r in [*range(4)] * 2
        ],
        {},
        [],
    ),
    "a wrong head of values on rank 3": (
        _layers(torch.cat(MANY), sizes=(32, 16, 16)),
        [
            _layers(torch.cat([MANY[r], MANY[4 + r // 2], MANY[6 + (r == 2)]]), sizes=(8, 8, 8))
            for r in range(4)
        ],
        {"0.weight[2]": ["3"]},
        [],
    ),
    "gate and up in each rank's own order, and a layer that is all zero": (
        _layers(W, ZERO),
        [_layers(torch.cat([W[16 * r :][:16], W[32 + 16 * r :][:16]]), ZERO[:32]) for r in range(2)],
        {},
        [],
    ),
    "a changed value in an own order": (
        _layers(W),
        [_layers(torch.cat([W[16 * r :][:16], W[32 + 16 * r :][:16]]) + r * 1e-3) for r in range(2)],
        {"0.weight": []},
        [],
    ),
    "parts in order beside others of another shape in an own order": (
        _layers(W, _drawn(32, 8)),
        [_layers(W[r::2].clone(), _drawn(32, 8).chunk(2)[r]) for r in range(2)],
        {},
        [],
    ),
    "three ranks, and parts of two sizes": (
        _layers(SMALL),
        [_layers(one.clone()) for one in SMALL.split([4, 4, 2])],
        {},
        [],
    ),
    "a wrong value there": (
        _layers(SMALL),
        [_layers(one * (1 + 1e-3 * (len(one) == 2))) for one in SMALL.split([4, 4, 2])],
        {"0.weight": []},
        [],
    ),
    "a vocabulary that is filled up with zeros on one rank, too": (
        _layers(torch.cat([SMALL, 0 * SMALL[:6]])),
        [_layers(one) for one in torch.cat([SMALL, 0 * SMALL[:6]]).chunk(2)],
        {},
        [],
    ),
    "one that is filled up for more ranks": (
        _layers(SMALL),
        [_layers(one) for one in torch.cat([SMALL, 0 * SMALL[:6]]).chunk(4)],
        {},
        ["0.weight"],
    ),
    "a bias that one rank adds": (
        _layers(W[0]),
        [_layers(W[0] if r == 1 else ZERO[0]) for r in range(3)],
        {},
        [],
    ),
    "a bias that is half of it": (_layers(W[0]), [_layers(W[0]), _layers(W[0] / 2)], {"0.bias": ["1"]}, []),
    "half precision": (_layers(W), [_layers(one.half()) for one in W.chunk(2)], {}, ["0.weight"]),
    "fewer ranks than parts": (_layers(W), [_layers(one) for one in W.chunk(4)[:3]], {}, ["0.weight"]),
    "layers on one rank each": (
        _layers(W, V),
        [_layers(W), torch.nn.Sequential(torch.nn.Identity(), *_layers(V))],
        {},
        [],
    ),
    "8-bit floats that each rank scales by itself": (
        _layers(W.to(torch.float8_e4m3fn)),
        [_layers((one * (1 + r)).to(torch.float8_e4m3fn)) for r, one in enumerate(W.chunk(2))],
        {},
        ["0.weight"],
    ),
    "packed integers": (
        _layers(W.view(torch.int32)),
        [_layers(one.contiguous().view(torch.int32)) for one in W.chunk(2, 1)],
        {},
        [],
    ),
    "bfloat16, zeros of which have another sign": (
        _layers(ZERO.bfloat16()),
        [_layers(one * sign) for one, sign in zip(ZERO.bfloat16().chunk(2), (1, -1), strict=True)],
        {"0.weight": ["1"]},
        [],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_ranks(layout: str) -> None:
    whole, ranks, wrong, untold = LAYOUTS[layout]
    assert other_weights(_texts(whole)["0"], _texts(*ranks)) == (wrong, untold)


def _trained(model: Any) -> None:
    model[0].weight.requires_grad_().sum().backward()


def _lazy(model: Any) -> None:
    model[0] = torch.nn.LazyLinear(3)


def _elsewhere(model: Any) -> None:
    model[0] = torch.nn.Linear(3, 3, bias=False, device="meta")


@pytest.mark.parametrize(("change", "known"), [(_trained, set()), (_lazy, {"1"}), (_elsewhere, {"1"})])
def test_what_has_no_digests(change: Callable[[Any], None], known: set[str]) -> None:
    change(model := _layers(W.clone(), V))
    assert shard_digests(model)[0].keys() == known


def test_more_than_four_gib_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_npudump.runtime.modules.shards._MOST", 1 << 10)
    (note,) = shard_digests(_layers(W))[1]
    assert note.startswith("weights not compared: ")
    assert shard_digests(_layers(W))[0] == {}
