"""Shards of a tensor that one rank holds, as the classes of vLLM's and Megatron's layers imply.

It stands in brackets behind the type of a layer, for ``pytest_npudump.compare.correspondence`` to put parts
together without a text of the user's: ``QKVParallelLinear[tp=2:256+64+64]``. ``tp`` is the number of ranks
that share the tensor along its last axis, or along the one named before it: ``[0:tp=2]``. Behind it stand the
parts that each rank's part is joined of, with ``/R`` where R ranks in a row hold the same; ``unordered``
where their order is not known; or ``partial`` for values that ranks have yet to add. That is of what it
gives, and before a ``>`` of what it is given: ``RowParallelLinear[tp=2>]``. A layer without brackets has
whole tensors on each rank, or its class implies nothing.
"""

from __future__ import annotations

from typing import Any


def shard(module: Any) -> str:
    """Return the layout in brackets for a module's type; "" for none.

    Modules are told by the names of their classes, so that those of plugins are known, too.
    """
    names = " ".join(one.__name__ for one in type(module).__mro__)
    size, sequence = _ranks(module), getattr(module, "sequence_parallel", False)
    parted = f"tp={size}"
    if size < 2:  # noqa: PLR2004 - one rank has all
        return ""
    given = gives = ""
    if "ColumnParallelLinear" in names or "QKVParallelLinear" in names:
        given = f"0:{parted}" if sequence else ""
        gives = "" if getattr(module, "gather_output", False) else f"{parted}{_joined(module)}"
    elif "RowParallelLinear" in names or "VocabParallelEmbedding" in names:
        if "RowParallelLinear" in names and getattr(module, "input_is_parallel", True):
            given = parted
        if sequence or getattr(module, "reduce_scatter_embeddings", False):
            gives = f"0:{parted}"
        elif not getattr(module, "reduce_results", True) or getattr(module, "explicit_expert_comm", False):
            gives = f"{parted}:partial"
    elif getattr(getattr(module, "moe_config", None), "skip_final_all_reduce", False):
        gives = f"{parted}:partial"
    given += ">" if given else ""
    return f"[{given}{gives}]" if given or gives else ""


def _ranks(module: Any) -> int:
    size: Any = getattr(module, "tp_size", None)
    if size is None:
        held: Any = getattr(module, "tp_group", None) or getattr(module, "moe_config", None)
        if hasattr(held, "size"):
            return int(held.size())
        # Ranks that have experts each, vLLM's ``ep_size``, split no layer; those with the same tokens add up.
        experts = getattr(held, "ep_size", 1) // getattr(held, "dp_size", 1)
        size = max(getattr(held, "tp_size", 1), experts)
    return int(size)


def _joined(module: Any) -> str:
    """Return the parts that a column parallel layer's output joins on each rank."""
    sizes = getattr(module, "output_partition_sizes", ())  # vLLM's
    if len(sizes) > 1:
        copies = getattr(module, "num_kv_head_replicas", 1)
        shared = f"/{copies}" if copies > 1 else ""
        return ":" + "+".join(f"{one}{shared if at else ''}" for at, one in enumerate(sizes))
    gated = getattr(getattr(module, "config", None), "gated_linear_unit", False)  # Megatron's
    return ":unordered" if gated else ""
