"""onnxruntime sessions, imported when the first model is loaded."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_npudump.dump.arrays.decode import is_of_numpy
from pytest_npudump.errors import MissingExtraError, NpudumpError
from pytest_npudump.onnxmodels.graph import every_name
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

ERRORS_ONLY = 3
_PROVIDERS = ("CPUExecutionProvider",)


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
            model = package.load_from_string(source if content is None else content)
        else:
            model = package.load(str(source), load_external_data=False)
        _check_names(model)
    except Exception as error:
        raise ModelError(f"{named(source)} is no ONNX model: {error}") from error
    return model


def _check_names(model: Any) -> None:
    """Refuse names that are not UTF-8, which protobuf hands over as bytes.

    Raises:
        ValueError: there is one.
    """
    bad = next((name for name in every_name(model) if isinstance(name, bytes)), None)
    if bad is not None:
        raise ValueError(f"its name {bad!r} is not UTF-8")


def plain_session(source: Path | bytes) -> Any:
    """Return a session with onnxruntime's default options.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    options = onnxruntime().SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    return open_session(str(source) if isinstance(source, Path) else source, options, named(source))


def open_session(source: str | bytes, options: Any, name: str) -> Any:
    """Return a session of a file's path, or of a model's bytes, that messages call ``name``.

    Raises:
        ModelError: onnxruntime refuses the model.
    """
    try:
        session = onnxruntime().InferenceSession(source, options, providers=list(_PROVIDERS))
        _ = [port.name for port in (*session.get_inputs(), *session.get_outputs())]  # not UTF-8: an error
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load {name}: {error}") from error
    return session


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


def named(source: Path | bytes) -> str:
    """Return what messages call a model."""
    return str(source) if isinstance(source, Path) else f"a model of {len(source)} bytes in memory"
