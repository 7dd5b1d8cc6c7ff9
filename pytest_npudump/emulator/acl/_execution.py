"""Execution of models.

Sources: ``model.cpp`` of hicann/ge's ``acl_model`` and the documents of ``acl.mdl.execute``: a model is
loaded, executed and unloaded in one context. ``ModelExecute`` of hicann/runtime's ``api_impl.cc`` has the
code for another one: 107004. What goes wrong in a call that only puts the execution on a stream is told by
what waits for that stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.acl._calls import MDL, known
from pytest_npudump.emulator.acl._datasets import Dataset
from pytest_npudump.emulator.acl._load import check_ready, loaded
from pytest_npudump.emulator.acl._model_data import check_outputs, inputs_of, store
from pytest_npudump.emulator.acl._streams import own_stream, wait_for
from pytest_npudump.emulator.dumps.exceptions import dumped
from pytest_npudump.emulator.execution.failed_operator import OperatorFailedError
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.streams import Stream, Work
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.sessions import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable


@MDL("Ikk")
def execute(model_id: int, inputs: int, outputs: int) -> None:
    """``(model id, inputs, outputs) -> ret``."""
    _prepare(model_id, inputs, outputs, allocate=True)()


@MDL("Ikkk")
def execute_async(model_id: int, inputs: int, outputs: int, handle: int) -> None:
    """``(model id, inputs, outputs, stream) -> ret``: what fails on the device is told by the stream."""
    _put(model_id, inputs, outputs, handle)


@MDL("Ikkkk")
def execute_v2(model_id: int, inputs: int, outputs: int, handle: int, _: int) -> None:
    """``(model id, inputs, outputs, stream, handle) -> ret``, when done; the configuration is unused."""
    wait_for(_put(model_id, inputs, outputs, handle))


def _put(model_id: int, inputs: int, outputs: int, handle: int) -> Stream:
    """Put an execution on a stream, and return the stream."""
    stream = own_stream(handle)
    process().streams.put(stream, Work(stream, _prepare(model_id, inputs, outputs, allocate=False)))
    return stream


def _prepare(model_id: int, inputs: int, outputs: int, *, allocate: bool) -> Callable[[], None]:
    """Check everything that is known before a model runs, and return the run.

    ``allocate`` tells whether empty output buffers get memory: on a stream CANN does not hand it out.
    """
    source, target = known(Dataset, inputs), known(Dataset, outputs)
    check_ready()
    model, state = loaded(model_id), process()
    if model.context is not state.context:
        why = f"the model was loaded in another context (device {model.device}) than this thread's (device "
        message = f"{why}{state.device}); load and run a model in one context (acl.rt.set_context)"
        raise RefusedError(codes.RT_MODEL_CONTEXT, message)
    located = inputs_of(model, source)
    check_outputs(model, target, allocate=allocate)

    def run() -> None:
        try:
            results = model.run([place.read() for place in located], state.clock)
        except OperatorFailedError as error:
            # adump learns of a model as it is loaded: of one that was loaded before it dumps nothing.
            dump = dumped(state.dumping.exception, error.operator, state.clock) if model.registered else ""
            raise RefusedError(codes.RT_MODEL_EXECUTE, f"{error}{dump}") from error
        except ModelError as error:
            raise RefusedError(codes.GE_INTERNAL_ERROR, str(error)) from error
        except OSError as error:
            raise RefusedError(codes.INTERNAL_ERROR, f"the dump cannot be written: {error}") from error
        store(model, target, results)

    return run
