"""The demonstration's model: PP-OCR's text angle classifier, and one weight of it changed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_npudump.errors import MissingExtraError, RequestError

MODEL = "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
"""258 operators, 0.6 MB, Apache-2.0; part of the wheel of rapidocr."""


_NEEDED = ("rapidocr", "onnx", "onnxruntime")
"""What the demonstration asks of the extra: the model, the means to change it, and to run it."""


def check_packages() -> None:
    """Say at once what is not installed, rather than after the first runs; nothing is imported.

    Raises:
        MissingExtraError: a package of the extra is missing.
    """
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingExtraError("npudump demo", package, "demo")


def find_model() -> Path:
    """Return the model inside the installed package rapidocr, which is not imported.

    Raises:
        MissingExtraError: rapidocr is not installed.
        RequestError: it is, but of a version without this model.
    """
    spec = find_spec("rapidocr")
    if spec is None:
        raise MissingExtraError("npudump demo", "rapidocr", "demo")
    folders = list(spec.submodule_search_locations or ())
    for folder in folders:
        path = Path(folder) / "models" / MODEL
        if path.is_file():
            return path
    raise RequestError(
        f"the rapidocr in {', '.join(folders)} has no models/{MODEL}: pip install 'pytest-npudump[demo]' "
        "installs a version that has it"
    )


def change_weights(path: Path, layer: str, amount: float) -> None:
    """Add ``amount`` to every weight of one operator of an ONNX file, in place.

    Raises:
        MissingExtraError: onnx is not installed.
        RequestError: the model has no such operator, or the operator has no constant weights.
    """
    try:
        import onnx  # noqa: PLC0415 - an extra
        from onnx import numpy_helper  # noqa: PLC0415 - the same
    except ImportError:
        raise MissingExtraError("npudump demo", "onnx", "demo") from None
    model = onnx.load(str(path))
    node = next((node for node in model.graph.node if node.name == layer), None)
    if node is None:
        raise RequestError(f"{path} has no operator named {layer!r}")
    for tensor in _constants(model, set(node.input)):
        values = numpy_helper.to_array(tensor)
        if values.ndim > 1:
            changed = numpy_helper.from_array((values + amount).astype(values.dtype), tensor.name)
            tensor.CopyFrom(changed)
            onnx.save(model, str(path))
            return
    raise RequestError(f"{layer!r} of {path} has no constant weights to change")


def _constants(model: Any, names: set[str]) -> list[Any]:
    found = [tensor for tensor in model.graph.initializer if tensor.name in names]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            found += [attribute.t for attribute in node.attribute if attribute.name == "value"]
    return found
