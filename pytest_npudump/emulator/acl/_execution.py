"""Execution of models.

Sources: ``model.cpp`` of hicann/ge's ``acl_model`` and the documents of ``acl.mdl.execute``: a model is
loaded, executed and unloaded in one context. ``ModelExecute`` of hicann/runtime's ``api_impl.cc`` has the
code for another one: 107004. What goes wrong in a call that only puts the execution on a stream is told by
what waits for that stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.acl._datasets import Dataset
from pytest_npudump.emulator.acl._load import refusal
from pytest_npudump.emulator.acl._model_data import check_outputs, inputs_of, store
from pytest_npudump.emulator.acl._refusals import RefusedError, own_stream, wait_for
from pytest_npudump.emulator.dumps.exceptions import dumped
from pytest_npudump.emulator.execution.failed_operator import OperatorFailedError
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.machine.streams import FOR_EVER, Failure, Stream, Work
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.sessions import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.execution.onnx_model import Model


def execute(*args: object) -> int:
    """``(model id, inputs, outputs) -> ret``."""
    call = "acl.mdl.execute"
    state = process()
    try:
        run = _prepare(call, *parse(call, "Ikk", args))
    except RefusedError as error:
        return error.told(call)
    failure = run()
    return codes.SUCCESS if failure is None else state.explain(failure.code, f"{call}: {failure.why}")


def execute_async(*args: object) -> int:
    """``(model id, inputs, outputs, stream) -> ret``: what fails on the device is told by the stream."""
    *what, stream = parse("acl.mdl.execute_async", "Ikkk", args)
    placed = _put("acl.mdl.execute_async", stream, what)
    return placed if isinstance(placed, int) else codes.SUCCESS


def execute_v2(*args: object) -> int:
    """``(model id, inputs, outputs, stream, handle) -> ret``, when done; the configuration is unused."""
    call = "acl.mdl.execute_v2"
    *what, stream, _ = parse(call, "Ikkkk", args)
    placed = _put(call, stream, what)
    return placed if isinstance(placed, int) else wait_for(call, placed, FOR_EVER)


def _put(call: str, handle: int, what: list[int]) -> Stream | int:
    """Put an execution on a stream and return the stream, or the code that stands against it."""
    state = process()
    stream = own_stream(call, handle)
    if not isinstance(stream, Stream):
        return stream
    try:
        model_id, inputs, outputs = what
        run = _prepare(call, model_id, inputs, outputs, allocate=False)
    except RefusedError as error:
        return error.told(call)
    state.streams.put(stream, Work(stream, run))
    return stream


def _prepare(
    call: str, model_id: int, inputs: int, outputs: int, *, allocate: bool = True
) -> Callable[[], Failure | None]:
    """Check everything that is known before a model runs, and return the run.

    ``allocate`` tells whether empty output buffers get memory: on a stream CANN does not hand it out.

    Raises:
        RefusedError: something stands against it.
    """
    source, target = _dataset(inputs), _dataset(outputs)
    code = refusal(call)
    if code:
        raise RefusedError(code, process().take_message() or "")
    model = _model(model_id)
    located = inputs_of(model, source)
    check_outputs(model, target, allocate=allocate)

    def run() -> Failure | None:
        try:
            state = process()
            results = model.run([place.read() for place in located], state.clock)
            store(model, target, results)
        except RefusedError as error:
            return Failure(error.code, error.why)
        except OperatorFailedError as error:
            return Failure(codes.RT_MODEL_EXECUTE, f"{error}{_exception_dump(model, error)}")
        except ModelError as error:
            return Failure(codes.GE_INTERNAL_ERROR, str(error))
        except OSError as error:
            return Failure(codes.INTERNAL_ERROR, f"the dump cannot be written: {error}")
        return None

    return run


def _exception_dump(model: Model, error: OperatorFailedError) -> str:
    """Write the exception dump if one was on when the model was loaded: that is when adump learns of it."""
    state = process()
    return dumped(state.dumping.exception, error.operator, state.clock) if model.registered else ""


def _dataset(handle: int) -> Dataset:
    found = process().handles.get(handle, Dataset)
    if found is None:
        raise RefusedError(codes.INVALID_PARAM, "a dataset is NULL or was destroyed")
    return found


def _model(model_id: int) -> Model:
    state = process()
    found = state.models.get(model_id)
    if found is None:
        raise RefusedError(codes.GE_EXEC_MODEL_ID_INVALID, f"no model has the id {model_id}")
    if found.context is not state.context:
        message = (
            f"the model was loaded in another context (device {found.device}) than this thread's (device "
            f"{state.device}); load and run a model in one context (acl.rt.set_context)"
        )
        raise RefusedError(codes.RT_MODEL_CONTEXT, message)
    return found
