"""The fixture ``npu_dump``: the dump around a test, as the test sees it."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.config.cann import collecting_words
from pytest_npudump.dump.selection import select_layers
from pytest_npudump.errors import EmptyDumpError, NpudumpError, OperatorMismatchError, RequestError, said
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, DTypeLike

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.explain.module_ratio import ModuleRatio
    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.runtime.base import ModelSession
    from pytest_npudump.runtime.modules.capture import Capture
    from pytest_npudump.runtime.modules.engine import EngineCapture
    from pytest_npudump.runtime.programs import ExternalRun, Placed

__tracebackhide__ = True  # in each of its functions: a failure is shown where the test calls


@dataclass(frozen=True, slots=True)
class NpuDump:
    """The dump around the current test.

    Attributes:
        directory: folder of the paths a test may give to :meth:`load_model` (the test file's own).
        devices: ids of the devices it has, as many as the marker's ``devices``; models go to the first.
    """

    _test: CaseSession = field(repr=False)
    directory: Path
    devices: tuple[int, ...] = (0,)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - the protocol of IPython
        """Show the fixture by its name in an example of hypothesis."""
        printer.text("npu_dump")

    def load_model(self, path: str | os.PathLike[str]) -> ModelSession:
        """Load a model under the dump.

        Args:
            path: an ``.om`` file, or on the emulator an ``.onnx`` file (``model.om`` there stands for the
                ``model.onnx`` beside it); relative to the test file's folder.

        Returns:
            A session with ``run(*arrays) -> list of arrays``; a context manager that frees the device.

        Raises:
            RuntimeUnavailableError: the runtime cannot load it; the message has its code and reason.
        """
        test, file = self._test, self.directory / Path(path)
        files = test.case.runtime.activity.evidence.files
        looked = files.look(file)
        session = test.case.runtime.load_model(file)
        files.add(looked)
        test.attempt.watch(session, file)
        if test.case.reference is None:
            return session
        return test.case.reference.inputs.watch(session, file, test.attempt.part)

    def modules(
        self,
        model: Any,
        layers: Sequence[str] | None = None,
        *,
        inputs: bool = False,
        tensors: bool = False,
        golden: bool = True,
        name: str = "",
        operators: bool = False,
    ) -> Capture:
        """Watch the modules of a model as layers, on any device: calls, and replays of graphs.

        With ``scene='modules'`` in the marker nothing else is dumped, and no NPU is needed; models that
        fixtures give the test are watched by themselves. Call it before a graph is captured, and behind its
        warm-up or not: executions before the capture do not count.

        Args:
            model: a ``torch.nn.Module``, what ``torch.compile`` made of one, or a ``mindspore.nn.Cell``.
            layers: paths of modules, or globs; None for those of the marker, else all.
            inputs: record what modules are given, too.
            tensors: record elements, for :meth:`ratio`; else statistics.
            golden: False for a reference, which is no part of the golden.
            name: what the model is called where there are several; its class.
            operators: record the operators between cells, too (MindSpore 2.9, PyNative mode).

        Returns:
            What watches, to the end of the test or of a ``with`` block; for :meth:`same` and :meth:`ratio`.

        Raises:
            RequestError: it is no such model, has no module of a name, or it takes ``scene='modules'``.
        """
        asked = {"golden": golden, "tensors": tensors, "name": name}
        asked |= {"operators": True} if operators else {}
        found: Capture = self._watch(model, layers, inputs=inputs, **asked)
        return found

    def workers(
        self,
        llm: Any,
        layers: Sequence[str] | None = None,
        *,
        inputs: bool = False,
        force: Mapping[Sequence[int], Sequence[int]] | None = None,
        timeout: float = 300,
    ) -> EngineCapture:
        """Watch modules of a vLLM engine's workers, by request and token, in a test with ``scene='modules'``.

        Another batching, order, padding or chunk of a prompt changes nothing. Start the engine in the test or
        its fixtures, with ``enable_prefix_caching=False`` where prompts share a prefix; elsewhere give it
        ``worker_extension_cls``, as the error says.

        Args:
            llm: a ``vllm.LLM``.
            layers: paths of modules, or globs; None for those of the marker, else all.
            inputs: record what modules are given, too.
            force: tokens to go on with by the tokens of the prompt, in place of those that are sampled, so
                that later tokens stay comparable where one differs.
            timeout: seconds that workers may take to begin, and to write what they have seen.

        Returns:
            What watches, to the end of the test or of a ``with`` block.

        Raises:
            RuntimeUnavailableError: workers cannot be called, or refuse.
            RequestError: the test's layers are no modules.
        """
        more = {"force": force or {}, "timeout": timeout}
        found: EngineCapture = self._watch(llm, layers, inputs=inputs, golden=True, **more)
        return found

    def _watch(self, model: Any, layers: Sequence[str] | None, *, inputs: bool, **asked: Any) -> Any:
        from pytest_npudump.plugin.modules import watch  # noqa: PLC0415 - where there is torch

        asked |= {"inputs": True} if inputs else {}
        if layers is not None:
            asked["layers"] = (layers,) if isinstance(layers, str) else tuple(layers)
        try:
            return watch(self._test, model, **asked)
        except NpudumpError as error:
            raise error.with_traceback(None) from None  # the failure ends at the test's line

    def same(
        self,
        one: Capture,
        other: Capture,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        preset: str | None = None,
        map: str | None = None,  # noqa: A002 - as the marker calls it
    ) -> None:
        """Hold two captures of :meth:`modules` against each other, as eager calls and replays of a graph.

        Args:
            one: ended here if it has not.
            other: the same.
            rtol: relative tolerance; None for that of the test.
            atol: the absolute one.
            preset: of tolerances.
            map: file of names, of ``one`` those of a golden, as the marker's.

        Raises:
            ModuleMismatchError: a tensor differs, is missing, or nothing can be compared.
        """
        from pytest_npudump.plugin.modules import same  # noqa: PLC0415 - as above
        from pytest_npudump.regression.case import names_of  # noqa: PLC0415 - as above

        same(self._test, one, other, names_of(map, self.directory), rtol=rtol, atol=atol, preset=preset)

    def ratio(
        self,
        device: Capture | str | Path,
        rounded: Capture | str | Path,
        reference: Capture | str | Path,
        *,
        map: str | None = None,  # noqa: A002 - as the marker calls it
    ) -> tuple[ModuleRatio, ...]:
        """Separate errors of a device from those of its type: the three-tensor ratio, module by module.

        Each is a capture with ``tensors=True``, or the path of a dump, a kept run, or a golden with tensors,
        relative to the test file's folder.

        Args:
            device: what is judged.
            rounded: the model in the device's type, on a CPU.
            reference: the model in float32.
            map: file of names, those of the references in place of a golden's, as the marker's.

        Returns:
            A ratio a tensor, 1 where the device rounds as the CPU does.

        Raises:
            ModuleMismatchError: the device is at fault; it names the first module.
            RequestError: no tensor is in all three, in one shape, or they are in no such order.
        """
        from pytest_npudump.plugin.modules import judged_ratios  # noqa: PLC0415 - as above
        from pytest_npudump.regression.case import names_of  # noqa: PLC0415 - as above

        three = [
            self.directory / one if isinstance(one, str) else one for one in (device, rounded, reference)
        ]
        return judged_ratios(self._test, three[0], three[1], three[2], names_of(map, self.directory))

    def reference_inputs(self, inputs: Mapping[str, ArrayLike]) -> None:
        """Record the inputs of an execution of the model, for the ONNX model of the marker's ``reference``.

        Needed only where the model does not run through :meth:`load_model`; once for each execution, in
        order, inside the ``capture`` that the execution belongs to.

        Args:
            inputs: an array for each input of the ONNX model, by its name; copied.

        Raises:
            RequestError: the marker names no reference, or ``inputs`` is no such mapping.
        """
        test = self._test
        if test.case.reference is None:
            raise RequestError(
                "npu_dump.reference_inputs(): the marker names no reference: add reference='model.onnx'"
            )
        test.case.reference.inputs.give(inputs, test.attempt.part)

    @property
    def runtime(self) -> str:
        """Name of the runtime: ``acl``, ``torch_npu``, ``mindspore``, ``emulator`` or ``modules``."""
        return self._test.case.runtime.name

    @property
    def config_path(self) -> Path:
        """The acl.json of this run, for code that hands it to ACL itself; with MindSpore the data_dump.json.

        From the first use on the dump is left to the test: it calls ``acl.init(str(path))``, or
        ``acl.mdl.init_dump()`` and ``acl.mdl.set_dump(str(path))``, before it loads its model. MindSpore
        reads the file by itself, here and in processes that the test starts.
        """
        self._test.case.runtime.release()
        return self._test.attempt.config

    def check_op(
        self,
        operator: str,
        *inputs: ArrayLike,
        reference: Callable[..., Any],
        call: Callable[..., Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        ulps: int | None = None,
        atol: float = 0.0,
        dtypes: Sequence[DTypeLike] | None = None,
        widen: bool = True,
    ) -> None:
        """Run one operator under a dump of its own, and hold its outputs against a reference; no golden.

        Needs ``scene="check_op"``. Without ``call`` the operator runs through ``acl.op``: on the emulator at
        once, on a device where ``acl.op.set_model_dir`` has loaded it, compiled by ``atc --singleop``.

        Args:
            operator: its type, as CANN calls it and as the dump has it: ``Add``.
            inputs: arrays.
            reference: called with copies of the inputs; returns an array, or one for each output.
            call: runs the operator in another way, as through torch_npu: called with copies of the inputs,
                it returns what the operator gave, as arrays or tensors.
            attributes: of the operator, for ``acl.op``.
            ulps: how many units in the last place an output may be off; None for the default of its type.
            atol: an absolute difference that suffices, however many units that is.
            dtypes: of the outputs; None for those of the reference, where floats have the type of the first
                input of floats.
            widen: whether the reference gets floats in float64, which no rounding of its own disturbs.

        Raises:
            OperatorMismatchError: the outputs are wrong, or the operator was not dumped.
            RequestError: the arguments do not fit each other, or the scene is another.
            RuntimeUnavailableError: the device refuses the operator, or that fails there.
        """
        case = self._test.case
        if case.request.scene != "check_op":
            raise RequestError(
                f"check_op({operator!r}) needs @pytest.mark.npu_dump(scene='check_op'), and this test "
                f"has scene={case.request.scene!r}"
            )
        if call is not None and attributes:
            raise RequestError(
                f"check_op({operator!r}): attributes are for acl.op, and call runs it in another way"
            )
        if not inputs:
            raise RequestError(f"check_op({operator!r}): expected the operator's inputs as arrays")
        from pytest_npudump.regression.scenes.check_op import Question, arrays_of, check_operator  # noqa: PLC0415 - for this scene

        arrays = tuple(
            np.ascontiguousarray(array).reshape(np.shape(array)) for array in arrays_of(inputs, "test")
        )
        question = Question(
            operator,
            arrays,
            reference,
            call,
            attributes=attributes or {},
            ulps=ulps,
            atol=atol,
            dtypes=dtypes,
            widen=widen,
        )
        if (wrong := check_operator(case, self._test.attempt, question)) is not None:
            from pytest_npudump.report.scenes import wrong_details, wrong_sentence  # noqa: PLC0415 - a failure

            raise OperatorMismatchError("\n".join([wrong_sentence(wrong), *wrong_details(wrong)]))

    def torchair_config(self, config: Any | None = None, *, scope: bool = False) -> Any:
        """Have TorchAir dump the graphs that are compiled with the configuration returned.

        From here on the dump is left to TorchAir, which reads the setting with the first graph of a process:
        tests that use it, and their second runs, need ``isolation="process"``.

        Args:
            config: the ``torchair.CompilerConfig`` to fill, in mode ``max-autotune``; None for a new one.
            scope: whether the model marks what is dumped with ``torchair.scope.data_dump``.

        Raises:
            ConfigError: TorchAir would refuse the dump, or lose part of it without a word.
            RuntimeUnavailableError: TorchAir cannot be imported, or is a version that is not known.
        """
        self._refuse_without_acl_json("torchair_config()")
        from pytest_npudump.config.torchair import fill  # noqa: PLC0415 - only where TorchAir is used

        return fill(config, self.config_path, scope=scope)

    @property
    def config(self) -> dict[str, Any]:
        """Content of :attr:`config_path`."""
        content: dict[str, Any] = json.loads(self.config_path.read_text(encoding="utf-8"))
        return content

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        acl_json: str | os.PathLike[str],
        timeout: float = 600.0,
        check: bool = True,
        cwd: str | os.PathLike[str] = ".",
        env: Mapping[str, str] | None = None,
        models: Sequence[str | os.PathLike[str]] = (),
    ) -> ExternalRun:
        """Run a program that reads an acl.json, in C++ or any other language, under the dump.

        For the time of the run the file ``acl_json`` has the dump of this test as its key ``dump``; all else
        in it stays, and afterwards it is what it was before, byte for byte. The test's own process gives up
        its dump. Paths are relative to the test file's folder.

        Args:
            command: the program and its arguments; no shell takes part.
            acl_json: where the program expects its acl.json, be there a file or not.
            timeout: seconds it may run, which may compile a model; then it is ended, and all that it started.
            check: whether an exit code other than 0 fails the test.
            cwd: the program's working directory.
            env: variables set in addition to those of the test.
            models: files of the models it loads; they tell the raw names of layers, as ``a/b`` for ``a_b``.

        Returns:
            What it ended with, and the files that hold its output.

        Raises:
            ExternalProgramError: it cannot be started, does not end in time, or (with ``check``) fails.
            ConfigError: ``acl_json`` is in use by another run, is no acl.json, or cannot be replaced.
            RequestError: an argument is none that is allowed, or the dump holds another run already.
        """
        from pytest_npudump.runtime.programs import command_of, placed, run_program  # noqa: PLC0415 - only here

        self._refuse_without_acl_json("run()")
        words, target = command_of(command), self.directory / Path(acl_json)
        files = tuple(self.directory / Path(model) for model in models)
        test, runtime = self._test, self._test.case.runtime
        evidence = runtime.activity.evidence
        try:
            if _has_dumped(test):  # nothing would tell whose a layer is
                raise RequestError(  # noqa: TRY301 - the handler below notes it
                    f"run({words[0]!r}, ...): the dump holds another run already; give each a dump of its "
                    "own: with npu_dump.capture(name): npu_dump.run(...)"
                )
            if why := _refused_environment(test, env or {}):
                raise RequestError(f"run({words[0]!r}, ...): {why}")  # noqa: TRY301 - the same
            runtime.hand_over(f"{words[0]} (with {target})", files)
            looked = [*map(evidence.files.look, files)]  # before the program can write one again
            with placed(target, test.attempt.config) as place:
                done = run_program(
                    words,
                    cwd=self.directory / Path(cwd),
                    output=test.attempt.directory,
                    timeout=timeout,
                    check=check,
                    env=env,
                )
                for model, before in zip(files, looked, strict=True):
                    evidence.files.add_if_untouched(before, evidence.files.look(model))
                _note_evidence(test, done, place)
                return done
        except NpudumpError as error:
            evidence.unfinished.append(str(error).partition("\n")[0])  # the test may pass over the error
            raise error.with_traceback(None) from None  # the failure ends at the test's line
        except BaseException as error:
            evidence.unfinished.append(f"{words[0]} was interrupted by {type(error).__name__}")
            raise

    def _refuse_without_acl_json(self, call: str) -> None:
        runtime = self._test.case.runtime
        if runtime.config_name != "acl.json":
            raise RequestError(
                f"npu_dump.{call}: hands an acl.json on, and the runtime {runtime.name} has none; choose "
                "another with --npudump-runtime (a MindSpore program that the test starts itself "
                "inherits MINDSPORE_DUMP_CONFIG and dumps)"
            )

    @contextmanager
    def capture(self, name: str) -> Iterator[Path]:
        """Dump models loaded and run inside the block apart, under the name ``name`` in the golden.

        A model has to be loaded inside the block to be dumped in it.

        Raises:
            RequestError: ``name`` is not a plain name, or was used before in this test.
        """
        with self._test.attempt.capture(self._test.case.runtime, name) as directory:
            yield directory

    @property
    def records(self) -> tuple[TensorRecord, ...]:
        """Tensors dumped so far, in execution order; on a device complete only once it is idle.

        Raises:
            DumpError: nothing has been dumped yet where a healthy run dumps something, or it cannot be read.
        """
        try:
            dump = self._test.attempt.read(projections=False)
        except EmptyDumpError:
            if self._test.case.request.scene in {"overflow", "exception"}:
                return ()
            raise
        return tuple(select_layers(dump, self._test.case.request).records)


def _has_dumped(test: CaseSession) -> bool:
    """Return whether the dump of the part under way holds a file."""
    test.case.runtime.release()
    config = json.loads(test.attempt.config.read_text(encoding="utf-8"))
    return any(path.is_file() for path in Path(config["dump"]["dump_path"]).rglob("*"))


def _refused_environment(test: CaseSession, env: Mapping[str, str]) -> str:
    """Return why variables are refused: with them a program dumps nothing, or elsewhere."""
    if not SCENES[test.case.request.scene].in_environment:
        return collecting_words({**os.environ, **env})
    from pytest_npudump.regression.scenes.exception import refused_environment  # noqa: PLC0415 - only there

    return refused_environment(env, os.environ)


def _note_evidence(test: CaseSession, done: ExternalRun, place: Placed) -> None:
    """Keep the evidence that a program ran under the dump, where a healthy run leaves no file."""
    program, name = Path(done.command[0]).name, place.target.name
    evidence = test.case.runtime.activity.evidence
    if (read := _has_dumped(test) or place.was_read()) is None:
        why = place.unknown or f"{place.target} was replaced or changed while the program ran"
        evidence.missing.append(f"whether {program} read {name} cannot be known: {why}")
    elif not read:
        evidence.missing.append(f"{program} never read {name}")
    elif done.returncode:
        evidence.unfinished.append(f"{program} read {name} and ended with {done.returncode}")
    else:
        evidence.shown.append(f"{program} read {name}")


def without_marker(nodeid: str) -> RequestError:
    """Return the error for a test that asks for the fixture and has no marker."""
    return RequestError(
        said(
            "{nodeid} uses the fixture npu_dump without the marker: add @pytest.mark.npu_dump (its "
            "arguments select what is dumped; default: every layer)",
            nodeid=nodeid,
        )
    )
