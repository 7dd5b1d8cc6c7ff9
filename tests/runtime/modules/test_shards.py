"""What classes of layers imply that ranks hold: stand-ins with attributes of vLLM 0.32 and Megatron."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.runtime.modules.shards import shard

TP = SimpleNamespace(size=lambda: 2)


def moe(**sizes: Any) -> Any:
    return SimpleNamespace(
        **{"tp_size": 1, "ep_size": 1, "dp_size": 1, "skip_final_all_reduce": True, **sizes}
    )


@pytest.mark.each(
    ("kind", "attributes", "expected"),
    [
        ("ColumnParallelLinear", {"tp_size": 2}, "[tp=2]"),
        ("ColumnParallelLinear", {"tp_size": 1}, ""),
        ("ColumnParallelLinear", {"tp_size": 2, "gather_output": True}, ""),
        ("MergedColumnParallelLinear", {"tp_size": 2, "output_partition_sizes": [8, 8]}, "[tp=2:8+8]"),
        (
            "QKVParallelLinear",
            {"tp_size": 4, "output_partition_sizes": [8, 4, 4], "num_kv_head_replicas": 2},
            "[tp=4:8+4/2+4/2]",
        ),
        ("TEColumnParallelLinear", {"tp_group": TP, "sequence_parallel": True}, "[0:tp=2>tp=2]"),
        ("RowParallelLinear", {"tp_size": 2}, "[tp=2>]"),
        ("RowParallelLinear", {"tp_size": 2, "reduce_results": False}, "[tp=2>tp=2:partial]"),
        ("RowParallelLinear", {"tp_group": TP, "sequence_parallel": True}, "[tp=2>0:tp=2]"),
        ("VocabParallelEmbedding", {"tp_size": 2}, ""),
        ("FusedMoE", {"moe_config": moe(tp_size=2)}, "[tp=2:partial]"),
        ("FusedMoE", {"moe_config": moe(ep_size=2)}, "[tp=2:partial]"),
        ("FusedMoE", {"moe_config": moe(ep_size=4, dp_size=2)}, "[tp=2:partial]"),
        ("FusedMoE", {"moe_config": moe(ep_size=2, dp_size=2)}, ""),
        ("FusedMoE", {"moe_config": moe(ep_size=2, skip_final_all_reduce=False)}, ""),
        ("Linear", {"tp_size": 2}, ""),
    ],
)
def test_the_class_of_a_layer_implies_what_ranks_hold(kind: str, attributes: Any, expected: str) -> None:
    module = type(kind, (), attributes)()
    assert shard(module) == expected
