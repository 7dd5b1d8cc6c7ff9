"""Digests of the parameters of a model that no file has: of torch modules and of cells of MindSpore."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.graph.model_digests import parameter_block
from pytest_npudump.record.model_lines import fed_line
from pytest_npudump.runtime.modules.seen import bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST = 1 << 28
"""Bytes of parameters beyond which their digests would take seconds."""


def parameter_lines(name: str, model: Any, fed: Sequence[bytes | None] = (), key: str = "") -> str:
    """Return a golden's lines for the parameters that a model has now, where they are not too large.

    Args:
        name: what the model is called.
        model: a ``torch.nn.Module`` or a ``mindspore.nn.Cell``; nothing is known of an engine.
        fed: digests of what it was given in each capture, with a line, too, unless one is not known.
        key: what keys of tensors call it, where there are several models.
    """
    known = [one for one in fed if one]
    given = fed_line(TensorKey(name, "", 0).name_text, known) if fed and len(known) == len(fed) else ""
    if hasattr(model, "parameters_and_names"):
        named = [*model.parameters_and_names()]
    elif hasattr(model, "named_parameters"):
        held = chain(model.named_parameters(), model.named_buffers())
        named = [
            one for one in held if not hasattr(one[1], "materialize")
        ]  # lazy modules that were not called
    else:
        return ""
    whole = sum(int(one.nbytes) for _, one in named)
    return (parameter_block(name, _arrays(named), key) if 0 < whole <= _MOST else "") + given


def _arrays(named: list[tuple[str, Any]]) -> Iterator[tuple[str, str, tuple[int, ...], bytes]]:
    """Yield of each parameter the path of its module, its name and type, its shape, and its bytes."""
    for path, one in named:
        module, _, leaf = path.replace("_orig_mod.", "").rpartition(".")
        yield module, f"{leaf} {one.dtype}", tuple(one.shape), bytes_of(one)
