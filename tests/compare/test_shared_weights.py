"""Digests of parameters that ranks share: 20 small faults are named with their rank, healthy parts pass."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pytest_npudump.compare.shared_weights import other_weights, without_parts
from pytest_npudump.runtime.modules.shard_digests import shard_digests

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
torch: Any = pytest.importorskip("torch")

HEADS = (32, 16, 16)


class Qkv(torch.nn.Linear):  # type: ignore[misc]
    """What vLLM joins: each rank has a part of each piece."""

    output_partition_sizes = HEADS


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


def _sides(*models: Any) -> dict[str, dict[str, str]]:
    return {str(rank): shard_digests(model) for rank, model in enumerate(models)}


WHOLE = _sides(_model())


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_healthy_parts_are_those_of_the_whole(ranks: int) -> None:
    parts = _sides(*(_model(ranks, rank) for rank in range(ranks)))
    assert other_weights(WHOLE, parts) == other_weights(without_parts(parts), WHOLE) == {}
    assert other_weights(parts, without_parts(parts)) == {}
    twice = _sides(*(_model(ranks, rank % ranks) for rank in range(2 * ranks)))
    assert other_weights(WHOLE, twice) == {}


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
        for change in (_scaled, _element)
    ],
    *[(name, change) for name in ("up.weight", "down.weight", "qkv.weight") for change in (_rows, _columns)],
    ("norm.weight", _scaled),
    ("norm.weight", _element),
    ("norm.weight", _rows),
    ("up.weight", _rolled),
    ("up.bias", _element),
    ("up.weight", "layer"),
    ("down.weight", "layer"),
    ("down.weight", "rank"),
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
    for golden in (WHOLE, without_parts(_sides(*(_model(ranks, rank) for rank in range(ranks))))):
        found = other_weights(golden, _sides(*models))
        assert {one.partition("[")[0] for one in found} == {f"1.{name}"}
        assert {rank for out in found.values() for rank in out} == {"1"}


def test_parts_in_an_order_of_their_own_add_up_and_a_changed_value_among_them_does_not() -> None:
    models = [_model(2, rank) for rank in range(2)]
    for at, model in enumerate(models):
        for layer in range(2):
            whole = dict(_model().named_parameters())[f"{layer}.up.weight"].data
            model[layer]["up"].weight.data = torch.cat([*whole.split(16)][at::2])
    assert other_weights(WHOLE, _sides(*models)) == {}
    models[1][1]["up"].weight.data[0, 0] += 1e-3
    assert other_weights(WHOLE, _sides(*models)) == {"1.up.weight": []}


def test_other_types_shapes_and_numbers_of_ranks_are_not_compared() -> None:
    half = [_model(2, rank).half() for rank in range(2)]
    assert other_weights(WHOLE, _sides(*half)) == {}
    assert other_weights(WHOLE, _sides(_model(2, 0))) == {}
    assert other_weights(WHOLE, _sides(*(_model(4, rank) for rank in range(3)))) == {}
    two, four = (_sides(*(_model(ranks, rank) for rank in range(ranks))) for ranks in (2, 4))
    assert other_weights(two, four) == {}
