"""Shards that one rank holds: layouts of tensors, and digests of parameters that add up to those of all.

A layout stands in brackets behind the type of a layer, as the classes of vLLM's and Megatron's layers imply
it, for ``pytest_npudump.compare.correspondence`` to put parts together without a text of the user's:
``QKVParallelLinear[tp=2:256+64+64]``. ``tp`` is the number of ranks that share the tensor along its last
axis, or along the one named before it: ``[0:tp=2]``. Behind it stand the parts that each rank's part is
joined of, with ``/R`` where R ranks in a row hold the same; ``unordered`` where their order is not known; or
``partial`` for values that ranks have yet to add. That is of what it gives, and before a ``>`` of what it is
given: ``RowParallelLinear[tp=2>]``. A layer without brackets has whole tensors on each rank, or its class
implies nothing.

Digests are a text per parameter: its type, its shape, and a word for each of the first three axes. Each slice
along an axis has a hash of all its elements and their places in it. A word has the sum of these hashes, which
those of ranks add up to in whatever order; then a digest of them in order; and one of each part, were there
2, 4 or 8. Zeros have the hash 0: padding changes no sum. Sums of the digests of parts tell a value that is
not the golden's, whatever tolerances are; digests in order tell which rank has it, and elements in other
places where other layers of the kind have theirs in order.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from functools import reduce
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.errors import said
from pytest_npudump.runtime.modules.statistics import bytes_of
from pytest_npudump.runtime.modules.wrappers import plain_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]


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


_MOST = 1 << 32
"""Bytes of a rank's parameters beyond which their digests would take longer than loading them."""
_AXES = 3
_AT_ONCE = 1 << 20
"""Elements that are hashed at once."""
_SUM, _DIGEST = 6, 2
"""Characters of a sum, and of a digest, of six bits each."""
_PARTS = (1, 2, 4, 8)


def shard_digests(model: Any) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return by layer a text for each parameter by its name; of what a layer has joined, for each piece.

    There is none of parameters whose bytes cannot be had, and none at all of those that training has changed,
    which ranks round otherwise, and of more than 4 GiB, which a note says.
    """
    named = [one for one in getattr(model, "named_parameters", list)() if not hasattr(one[1], "materialize")]
    if any(one.grad is not None for _, one in named):
        return {}, []
    if (size := sum(int(one.nbytes) for _, one in named)) > _MOST:
        return {}, [said("weights not compared: {size}, limit 4 GiB", size=f"{size / (1 << 30):.3g} GiB")]
    modules, found = dict(model.named_modules()) if named else {}, dict[str, dict[str, str]]()
    for path, one in named:
        layer, _, leaf = path.rpartition(".")
        with suppress(AttributeError, RuntimeError, TypeError, ValueError):  # of stand-ins
            own = one.to_local() if hasattr(one, "to_local") else one  # torch's DTensor
            flat = np.frombuffer(bytes_of(own), f"u{own.element_size()}")
            array = flat.reshape(tuple(own.shape) or (1,))
            sizes = getattr(modules.get(layer), "output_partition_sizes", ())  # vLLM's
            cut = len(sizes) > 1 and sum(sizes) == len(array)
            parts = np.split(array, np.cumsum(sizes)[:-1]) if cut else [array]
            dtype = str(one.dtype).removeprefix("torch.")
            for at, part in enumerate(parts if array.size else ()):
                words = (dtype, "x".join(map(str, part.shape)), *map(_word, _hashes(part)))
                held = found.setdefault(plain_path(layer), {})
                held[leaf + f"[{at}]" * cut] = " ".join(words)
    return found, []


def _hashes(array: NDArray[Any]) -> list[Hashes]:
    """Return the hashes of slices along each of the first axes."""
    found = [np.zeros(size, np.uint64) for size in array.shape[:_AXES]]
    row = array[0].size
    rows = max(1, _AT_ONCE // row)
    for first in range(0, len(array), rows):
        part = array[first : first + rows].astype(np.uint64)
        for axis, sums in enumerate(found):
            slices = np.moveaxis(part, axis, 0).reshape(part.shape[axis], -1)
            begin = first * (row // array.shape[axis]) if axis else 0
            held = slice(None) if axis else slice(first, first + rows)
            sums[held] += np.einsum("ij,j->i", slices, _factors(begin, slices.shape[1]))
    return [_mixed(sums) for sums in found]


def _factors(begin: int, count: int) -> Hashes:
    return np.asarray(_mixed(np.arange(begin + 1, begin + count + 1, dtype=np.uint64)) | np.uint64(1))


def _mixed(numbers: Hashes) -> Hashes:
    """Return numbers whose every bit depends on all bits of those given, by MurmurHash3's last step."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
        numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(factor)
    return numbers


def _word(hashes: Hashes) -> str:
    digests = [
        int((part * _factors(0, len(part))).sum()) >> (64 - 6 * _DIGEST)
        for count in _PARTS
        if not len(hashes) % count
        for part in np.split(hashes, count)
    ]
    number = reduce(lambda told, one: told << 6 * _DIGEST | one, digests, int(hashes.sum()) % (1 << 6 * _SUM))
    return urlsafe_b64encode(number.to_bytes(6 * (_SUM + _DIGEST * len(digests)) // 8, "big")).decode()


_BEGIN = {2: 8, 4: 12, 8: 20}
"""Where in a word the digests of so many parts begin."""


class _Fit(NamedTuple):
    """How the parts of a parameter fit the whole.

    Attributes:
        kind: what those of other layers have in common with it.
        whole: whether parts add up to it, or copies are equal.
        out: ranks whose part is not the one that is theirs in order; all where no order is known.
        ordered: whether the parts are surely in order.
    """

    kind: tuple[str, str, int]
    whole: bool
    out: list[str]
    ordered: bool


def other_weights(
    golden: Mapping[str, str], run: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the parameters of which some rank has not its part, and those that are not compared.

    The first by name, with these ranks: with none where layers have their parts in an order of their own. Not
    compared are what no rank has, other types, shapes that do not add up along one axis, and layers with
    weights in 8-bit floats, which ranks may scale by their own extremes.

    Args:
        golden: the text of each parameter by its name, of one rank.
        run: by rank, the same of its parameters.
    """
    scaled = {name.rpartition(".")[0] for name, text in golden.items() if text.startswith("float8")}
    known = {name: text for name, text in golden.items() if text and name.rpartition(".")[0] not in scaled}
    found = {
        name: _fit(name, text, {rank: texts[name] for rank, texts in run.items() if texts.get(name)})
        for name, text in known.items()
    }
    fits = {name: fit for name, fit in found.items() if fit is not None}
    ordered = {fit.kind for fit in fits.values() if fit.ordered}
    return {
        name: fit.out if fit.kind in ordered or len(fit.out) < len(run) else []
        for name, fit in fits.items()
        if not fit.whole or (fit.out and fit.kind in ordered)
    }, [name for name in golden if name not in fits]


def _fit(name: str, text: str, parts: Mapping[str, str]) -> _Fit | None:
    """Return how the parts that ranks have fit a whole; None where types or shapes are of something else."""
    dtype, shape, *words = text.split(" ")
    held = [part.split(" ") for part in parts.values()]
    size, *shapes = [tuple(map(int, one.split("x"))) for one in (shape, *(part[1] for part in held))]
    if {part[0] for part in held} != {dtype} or {*map(len, shapes)} != {len(size)}:
        return None
    axes = [axis for axis, count in enumerate(size) if {one[axis] for one in shapes} != {count}]
    kind = re.sub(r"\d+(?![]\d])", "0", name), shape, axes[0] if axes else -1
    if not axes:
        out = [rank for rank, part in parts.items() if part != text]
        # Where ranks add up what they give, one of them adds a bias.
        if (
            name.endswith("bias")
            and len(out) == len(parts) - 1
            and not any(_sum(parts[one].split(" ")[2]) for one in out)
        ):
            out = []
        return _Fit(kind, not out, out, ordered=True)
    copies, rest = divmod(sum(one[axes[0]] for one in shapes), size[axes[0]])
    if rest or len(axes) > 1 or axes[0] >= len(words):
        return None
    word, own = words[axes[0]], [part[2 + axes[0]] for part in held]
    count = len(own) // copies
    begin = _BEGIN.get(count, len(word))
    told = [word[at : at + _DIGEST] for at in range(begin, begin + count * _DIGEST, _DIGEST)]
    # Copies follow each other so many in a row, as those of heads do, and groups of ranks in turns.
    rows = [row for row in range(1, copies + 1) if not copies % row]
    orders = [[told[at % (count * row) // row] for at in range(len(own))] for row in rows]
    digests = [one[_SUM : _SUM + _DIGEST] for one in own]
    wrong = ([*map(str.__ne__, digests, order)] for order in orders)
    out = [*compress(parts, min(wrong, key=sum))]
    whole = not (sum(map(_sum, own)) - copies * _sum(word)) % (1 << 6 * _SUM)
    return _Fit(kind, whole, out, ordered=whole and not out and len({*told}) == count)


def _sum(word: str) -> int:
    return int.from_bytes(urlsafe_b64decode(word[: _SUM + _DIGEST]), "big") >> 6 * _DIGEST
