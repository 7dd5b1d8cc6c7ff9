"""onnxruntime sessions of ONNX models: plain, with inner tensors handed out, or of the model in float32.

onnxruntime computes operators that it has no kernel of float16 for in float32. Between two of them it leaves
the rounding to float16 out, also without optimisation: the second then reads what no tensor of the model
holds, and which operators do depends on what is handed out. A device writes each tensor, and reads it: so
:func:`exposed_session` rounds.

Every ONNX operator that takes float16 or bfloat16 takes float32 too: for a reference that has its digits,
weights, constants, declared types and the types that operators produce are replaced, and the graph stays.

Wherever a model is read, built or run, one that is none, or that onnxruntime refuses, is a
:class:`ModelError`; onnx or onnxruntime that is not installed is a MissingExtraError.

Models that are run as they are written are kept ready. One is known by the SHA-256 of its bytes, never by its
path or time, and kept if its file holds all that it is (no weights in other files) and its operators have no
memory: those of ONNX itself that draw no random numbers, as the generator of a kept session would go on where
a new one's begins again.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pytest_npudump.dump.dtypes import is_of_numpy
from pytest_npudump.errors import MissingExtraError, NpudumpError
from pytest_npudump.onnxmodels import graph as graph_module
from pytest_npudump.onnxmodels.graph import (
    Operator,
    draws_random,
    every_graph,
    every_name,
    every_node,
    every_tensor,
)
from pytest_npudump.onnxmodels.tensor_types import (
    Tensor,
    from_ort_type,
    from_ort_value,
    from_result,
    in_numpy,
    onnx_number,
)
from pytest_npudump.onnxmodels.variation import PLAIN, Variation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.dump.records import Dump


ERRORS_ONLY = 3
LIMIT = 2**31 - 1
"""Bytes of the largest protobuf message, which is what onnxruntime is given."""
_BYTES = 4
_FLOAT, _FLOAT16, _HALVES = 1, 10, frozenset({10, 16})
"""``FLOAT``, ``FLOAT16``, and that with ``BFLOAT16``, of ``TensorProto.DataType``."""
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype", "output_dtype", "stash_type"})
"""Attributes of ONNX operators whose value is a data type."""
_HALF = "tensor(float16)"


class ModelError(NpudumpError):
    """A model that onnxruntime cannot load or run."""


def onnx() -> Any:
    """Return the package ``onnx``."""
    return MissingExtraError.imported("the emulator", "onnx", "emulator")


def onnxruntime() -> Any:
    """Return the package ``onnxruntime``."""
    return MissingExtraError.imported("the emulator", "onnxruntime", "emulator")


def read_model(source: Path | bytes, content: bytes | None = None) -> Any:
    """Return the ``ModelProto`` of a file or of its bytes, weights in other files left there.

    ``content`` are the bytes of the file, where they were read already.
    """
    package = onnx()
    try:
        if isinstance(source, bytes) or content is not None:
            model = package.load_from_string(source if content is None else content)
        else:
            model = package.load(str(source), load_external_data=False)
        bad = next((name for name in every_name(model) if isinstance(name, bytes)), None)
        if bad is not None:  # protobuf hands names over as bytes that are not UTF-8
            raise ValueError(f"its name {bad!r} is not UTF-8")  # noqa: TRY301 - told as what protobuf refuses
    except Exception as error:
        raise ModelError(f"{named(source)} is no ONNX model: {error}") from error
    return model


def plain_session(source: Path | bytes) -> Any:
    """Return a session with onnxruntime's default options."""
    options = onnxruntime().SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    return open_session(str(source) if isinstance(source, Path) else source, options, named(source))


def open_session(source: str | bytes, options: Any, name: str) -> Any:
    """Return a session of a file's path, or of a model's bytes, that messages call ``name``."""
    try:
        session = onnxruntime().InferenceSession(source, options, providers=["CPUExecutionProvider"])
        _ = [port.name for port in (*session.get_inputs(), *session.get_outputs())]  # not UTF-8: an error
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load {name}: {error}") from error
    return session


def run(session: Any, feeds: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """Run ``session`` and return the tensors called ``names``."""
    try:
        ports = (*session.get_inputs(), *session.get_outputs())
        if all(in_numpy(from_ort_type(port.type)) for port in ports):  # results need not be copied
            arrays = {name: tensor.data.reshape(tensor.shape) for name, tensor in feeds.items()}
            results = map(from_result, session.run(list(names), arrays))
        else:
            values = {name: _ort_value(tensor) for name, tensor in feeds.items()}
            results = map(from_ort_value, session.run_with_ort_values(list(names), values))
        found = dict(zip(names, results, strict=True))
    except Exception as error:
        raise ModelError(f"onnxruntime cannot run the model: {error}") from error
    # An output that is an input as it came is memory of that array, which nothing else keeps alive.
    return {name: feeds.get(name, tensor) for name, tensor in found.items()}


def _ort_value(tensor: Tensor) -> Any:
    make = onnxruntime().OrtValue
    if tensor.dtype.name == "int4":
        value = make.ortvalue_from_shape_and_type([*tensor.shape], onnx_number(tensor.dtype))
        ctypes.memmove(value.data_ptr(), tensor.data.ctypes.data, tensor.nbytes)
        return value
    array = tensor.data.reshape(tensor.shape)
    if is_of_numpy(array.dtype):
        return make.ortvalue_from_numpy(array)
    raw = array.view(f"u{array.dtype.itemsize}")
    return make.ortvalue_from_numpy_with_onnx_type(raw, onnx_number(tensor.dtype))


def ports(arguments: Sequence[Any]) -> tuple[tuple[str, Any, tuple[int, ...]], ...]:
    """Return name, data type and shape of a session's inputs or outputs; -1 for a dimension that varies."""
    return tuple(
        (
            argument.name,
            from_ort_type(argument.type),
            tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in argument.shape),
        )
        for argument in arguments
    )


def named(source: Path | bytes) -> str:
    """Return the name of a model in messages."""
    return str(source) if isinstance(source, Path) else f"a model of {len(source)} bytes in memory"


def holds_halves(model: Any) -> bool:
    """Return whether ``model``, an ONNX ``ModelProto``, holds types that :func:`to_float32` replaces."""
    values = (value for graph in every_graph(model) for value in _values(graph))
    declared = (value.type.tensor_type.elem_type for value in values)
    weights = (tensor.data_type for tensor in every_tensor(model))
    types = (a.i for node in every_node(model) for a in node.attribute if a.name in _TYPE_ATTRIBUTES)
    return any(number in _HALVES for numbers in (declared, weights, types) for number in numbers)


def fits(model: Any) -> bool:
    """Return whether ``model`` in float32 still fits one message, of :data:`LIMIT` bytes in protobuf."""
    halves = sum(math.prod(t.dims) for t in every_tensor(model) if t.data_type in _HALVES)
    return bool(model.ByteSize() + _BYTES * halves <= LIMIT)


def _values(graph: Any) -> Iterator[Any]:
    yield from (*graph.input, *graph.output, *graph.value_info)


def to_float32(model: Any, source: Path) -> None:
    """Replace float16 and bfloat16 by float32 throughout ``model``, an ONNX ``ModelProto``.

    Weights in other files are read for that.

    Args:
        model: changed in place.
        source: its file, beside which weights in other files lie.
    """
    for tensor in every_tensor(model):
        if tensor.data_type in _HALVES:
            array = weight_of(tensor, source)
            with np.errstate(invalid="ignore"):  # signalling NaNs
                tensor.CopyFrom(onnx().numpy_helper.from_array(array.astype("float32"), tensor.name))
    for node in every_node(model):
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALVES:
                attribute.i = _FLOAT
    for graph in every_graph(model):
        for value in _values(graph):
            _convert_type(value.type)


def weight_of(tensor: Any, source: Path) -> np.ndarray:
    """Return the elements of an initializer of the model at ``source``.

    Raises:
        ModelError: they cannot be read.
    """
    try:
        return np.asarray(onnx().numpy_helper.to_array(tensor, base_dir=str(source.resolve().parent)))
    except Exception as error:
        raise ModelError(f"{source}: the weight {tensor.name!r} cannot be read: {error}") from error


def _convert_type(kind: Any) -> None:
    for name in ("tensor_type", "sparse_tensor_type"):
        if kind.HasField(name) and getattr(kind, name).elem_type in _HALVES:
            getattr(kind, name).elem_type = _FLOAT
    for name in ("sequence_type", "optional_type"):
        if kind.HasField(name):
            _convert_type(getattr(kind, name).elem_type)


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
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if isinstance(source, Path):
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(source.resolve().parent)
        )
    name = named(source)
    if optimised or not holds_halves(model):
        return open_session(_content(model, tensors), options, name)
    written = [output for node in model.graph.node for output in node.output if output]
    every = open_session(_content(model, written), options, name)
    halves = frozenset(port.name for port in every.get_outputs() if port.type == _HALF)
    # onnxruntime leaves out even casts of the model's own, but for those whose result it has to hand out.
    handed_out = (*tensors, *(output for output in written if output in halves))
    return open_session(_content(model, tuple(dict.fromkeys(handed_out)), halves), options, name)


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


KEPT = 4
"""Number of models kept, and of sessions of each; the longest unused goes first."""
KEPT_BYTES = 64 << 20
"""Size of the largest model that is kept."""
_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
_EXTERNAL = 1
"""``TensorProto.EXTERNAL``."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that can be run with its inner tensors handed out.

    Attributes:
        source: its file, or its bytes.
        name: the graph's own name.
        operators: its operators in execution order.
        inputs: names of its inputs, weights left out.
        outputs: how many outputs the graph itself has.
        inside: operators inside others, as :func:`~pytest_npudump.onnxmodels.graph.inside` has them.
        random: operators that draw random numbers, also inside others: name, type, and whether these are the
            same in every process.
    """

    source: Path | bytes
    name: str
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: int
    inside: tuple[tuple[str, str], ...]
    random: tuple[tuple[str, str, bool], ...] = ()
    _proto: Any = None
    _content: bytes | None = None
    _sessions: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def session(self, tensors: Sequence[str], variation: Variation = PLAIN) -> Any:
        """Return a session that also hands out the inner ``tensors``, without optimisation, on one thread.

        ``variation`` may have it otherwise.
        """
        how: dict[str, Any] = {"threads": variation.threads, "optimised": variation.optimised}
        key = (*tensors, *how.values())
        found = self._sessions.get(key)
        if found is None:
            proto = read_model(self.source, self._content) if self._proto is None else self._proto
            found = exposed_session(self.source, proto, tensors, **how)
        _keep(self._sessions, key, found)
        return found


_kept: dict[bytes, PreparedModel] = {}
os.register_at_fork(after_in_child=_kept.clear)


def prepare(source: Path | bytes) -> PreparedModel:
    """Return the model of a file, or of its bytes."""
    content = _bytes_of(source)
    key = None if content is None else hashlib.sha256(content).digest()
    found = None if key is None else _kept.get(key)
    if key is None or found is None:
        proto = read_model(source, content)
        graph = proto.graph
        operators, inputs = graph_module.operators(graph), graph_module.inputs(graph)
        held = graph_module.inside(proto)
        drawing = (node for node in every_node(proto) if draws_random(node.op_type))
        random = tuple((node.name, node.op_type, _is_fixed(node)) for node in drawing)
        found = PreparedModel(source, graph.name, operators, inputs, len(graph.output), held, random, proto)
        if key is None or random or not _without_memory(proto):
            return found
        _keep(_kept, key, replace(found, source=b"", _proto=None))
        return found
    _keep(_kept, key, found)
    return replace(found, source=source, _content=content)


def _bytes_of(source: Path | bytes) -> bytes | None:
    """Return the bytes of a model that may be kept; None for any other."""
    if isinstance(source, bytes):
        return source if len(source) <= KEPT_BYTES else None
    if source.suffix != ".onnx":
        return None
    try:
        return source.read_bytes() if source.stat().st_size <= KEPT_BYTES else None
    except OSError:
        return None


def _without_memory(proto: Any) -> bool:
    nodes = graph_module.every_node(proto)
    tensors = graph_module.every_tensor(proto)
    return all(node.domain in _DOMAINS for node in nodes) and not any(
        tensor.data_location == _EXTERNAL for tensor in tensors
    )


def _keep(things: dict[K, V], key: K, thing: V) -> None:
    """Put a thing behind all others, and let the first one go where there are too many."""
    things.pop(key, None)
    things[key] = thing
    while len(things) > KEPT:
        things.pop(next(iter(things)), None)


def random_layers(dump: Dump, models: Iterable[Path]) -> tuple[str, ...]:
    """Return the layers that draw random numbers without a seed of their own, each as ``name (type)``.

    Args:
        dump: of a run; the types of its operators tell.
        models: files that ran. ONNX files tell which operators have a seed, and of some that were not dumped.
    """
    nodes = [node for path in models for node in _random(path)]
    drawing = {op_type: name for name, op_type, fixed in nodes if not fixed}
    fixed = {op_type for _, op_type, _ in nodes} - drawing.keys()
    dumped = {
        f"{record.key.layer} ({record.op_type})": record.op_type
        for record in dump.records
        if draws_random(record.op_type) and record.op_type not in fixed
    }
    unseen = [f"{name or '?'} ({kind})" for kind, name in drawing.items() if kind not in dumped.values()]
    return (*dumped, *unseen)


def _random(path: Path) -> tuple[tuple[str, str, bool], ...]:
    """Return the random operators of a model's ONNX file, or of one beside it, if it can be read."""
    file = path.with_suffix(".onnx")
    try:
        return prepare(file).random if file.is_file() else ()
    except (MissingExtraError, ModelError):
        return ()


def _is_fixed(node: Any) -> bool:
    """Return whether a node of ONNX draws the same numbers in every process, or none."""
    if node.op_type == "Dropout":
        return len(node.input) < 3 or not node.input[2]  # noqa: PLR2004 - training_mode
    return any(attribute.name == "seed" for attribute in node.attribute)
