"""onnxruntime sessions, imported when the first model is loaded."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_npudump.dump.values.small_floats import is_of_numpy
from pytest_npudump.errors import MissingExtraError, NpudumpError
from pytest_npudump.onnxmodels.tensor_types import (
    Tensor,
    from_ort_type,
    from_ort_value,
    from_result,
    in_numpy,
    onnx_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ERRORS_ONLY = 3
_PROVIDERS = ("CPUExecutionProvider",)
_EXTERNAL_DATA_FOLDER = "session.model_external_initializers_file_folder_path"


class ModelError(NpudumpError):
    """A model that onnxruntime cannot load or run."""


def onnx() -> Any:
    """Return the package ``onnx``.

    Raises:
        MissingExtraError: it is not installed.
    """
    return _package("onnx")


def onnxruntime() -> Any:
    """Return the package ``onnxruntime``.

    Raises:
        MissingExtraError: it is not installed.
    """
    return _package("onnxruntime")


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("the emulator", name, "emulator") from error


def read_model(source: Path | bytes, content: bytes | None = None) -> Any:
    """Return the ``ModelProto`` of a file or of its bytes, weights in other files left there.

    ``content`` are the bytes of the file, where they were read already.

    Raises:
        ModelError: it is no ONNX model.
    """
    package = onnx()
    try:
        if isinstance(source, bytes) or content is not None:
            return package.load_from_string(source if content is None else content)
        return package.load(str(source), load_external_data=False)
    except Exception as error:
        raise ModelError(f"{_named(source)} is no ONNX model: {error}") from error


def plain_session(source: Path | bytes) -> Any:
    """Return a session with onnxruntime's default options.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    options = onnxruntime().SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    return _session(str(source) if isinstance(source, Path) else source, options, _named(source))


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
    file is there and two runs give the same bits, unless ``threads`` and ``optimised`` say otherwise.
    ``model`` is left as it was.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    runtime = onnxruntime()
    known = {value.name for value in (*model.graph.output, *model.graph.input)}
    outputs = len(model.graph.output)
    model.graph.output.extend(onnx().ValueInfoProto(name=name) for name in tensors if name not in known)
    content = model.SerializeToString()
    del model.graph.output[outputs:]
    options = runtime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if isinstance(source, Path):
        options.add_session_config_entry(_EXTERNAL_DATA_FOLDER, str(source.resolve().parent))
    return _session(content, options, _named(source))


def _session(source: str | bytes, options: Any, name: str) -> Any:
    try:
        return onnxruntime().InferenceSession(source, options, providers=list(_PROVIDERS))
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load {name}: {error}") from error


def run(session: Any, feeds: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """Run ``session`` and return the tensors called ``names``.

    Raises:
        ModelError: onnxruntime cannot run the model on these inputs.
    """
    try:
        if _in_numpy(session):
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


_numpy_sessions: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _in_numpy(session: Any) -> bool:
    """Whether numpy has the types of all inputs and outputs, so that results need not be copied."""
    found = _numpy_sessions.get(session)
    if found is None:
        every = (*session.get_inputs(), *session.get_outputs())
        found = all(in_numpy(from_ort_type(argument.type)) for argument in every)
        _numpy_sessions[session] = found
    return found


def _ort_value(tensor: Tensor) -> Any:
    make = onnxruntime().OrtValue
    array = tensor.data.reshape(tensor.shape)
    if is_of_numpy(array.dtype):
        return make.ortvalue_from_numpy(array)
    if not hasattr(make, "ortvalue_from_numpy_with_onnx_type"):
        raise ModelError(f"this onnxruntime takes no {tensor.dtype.name}: install onnxruntime>=1.20")
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


def _named(source: Path | bytes) -> str:
    return str(source) if isinstance(source, Path) else f"a model of {len(source)} bytes in memory"
