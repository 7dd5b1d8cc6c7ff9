"""Sessions that hand out inner tensors, so that each operator reads what is handed out of the one before it.

onnxruntime computes operators that it has no kernel of float16 for in float32. Between two of them it leaves
the rounding to float16 out, also without optimisation: the second then reads what no tensor of the model
holds, and which operators do depends on what is handed out. A device writes each tensor, and reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.precision import holds_halves
from pytest_npudump.onnxmodels.sessions import onnx, onnxruntime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_EXTERNAL_DATA_FOLDER = "session.model_external_initializers_file_folder_path"
_HALF = "tensor(float16)"
_FLOAT, _FLOAT16 = 1, 10
"""Of ``TensorProto.DataType``."""


def exposed_session(
    source: Path | bytes,
    model: Any,
    tensors: Sequence[str],
    *,
    threads: int = 1,
    optimised: bool = False,
) -> Any:
    """Return a session of ``model``, read from ``source``, that also hands out the inner ``tensors``.

    The graph runs as it is written, without optimisation, on one thread, so that every operator of the
    file is there and two runs give the same bits, unless ``threads`` and ``optimised`` say otherwise. What
    is float16 is rounded to it before another operator reads it, but in branches and bodies of loops, and
    where the graph is optimised; all that is, is handed out too, behind ``tensors``. ``model`` is left as
    it was.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = sessions.ERRORS_ONLY
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if isinstance(source, Path):
        options.add_session_config_entry(_EXTERNAL_DATA_FOLDER, str(source.resolve().parent))
    name = sessions.named(source)
    if optimised or not holds_halves(model):
        return sessions.open_session(_content(model, tensors), options, name)
    written = [output for node in model.graph.node for output in node.output if output]
    every = sessions.open_session(_content(model, written), options, name)
    halves = frozenset(port.name for port in every.get_outputs() if port.type == _HALF)
    # onnxruntime leaves out even casts of the model's own, but for those whose result it has to hand out.
    named = (*tensors, *(output for output in written if output in halves))
    return sessions.open_session(_content(model, tuple(dict.fromkeys(named)), halves), options, name)


def _content(model: Any, tensors: Sequence[str], halves: Collection[str] = ()) -> bytes:
    """Return the bytes of ``model`` with ``tensors`` among its outputs, those in ``halves`` rounded."""
    graph = model.graph
    known = {value.name for value in (*graph.output, *graph.input)}
    outputs, nodes = len(graph.output), list(map(_copied, graph.node)) if halves else []
    graph.output.extend(onnx().ValueInfoProto(name=name) for name in tensors if name not in known)
    if halves:
        rounding = [made for node in nodes for made in _with_rounding(_copied(node), halves)]
        _replace(graph.node, rounding)
    content: bytes = model.SerializeToString()
    if halves:
        _replace(graph.node, nodes)
    del graph.output[outputs:]
    return content


def _with_rounding(node: Any, halves: Collection[str]) -> Iterator[Any]:
    """Yield a node, and behind it casts that round its float16 outputs."""
    make, casts = onnx().helper.make_node, []
    for place, name in enumerate(node.output):
        if name in halves:
            node.output[place] = f"{name}/unrounded"
            casts.append(make("Cast", [f"{name}/unrounded"], [f"{name}/wide"], to=_FLOAT))
            casts.append(make("Cast", [f"{name}/wide"], [name], to=_FLOAT16))
    yield node
    yield from casts


def _copied(node: Any) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


def _replace(repeated: Any, nodes: Sequence[Any]) -> None:
    del repeated[:]
    repeated.extend(nodes)
