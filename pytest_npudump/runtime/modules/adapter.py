"""The runtime of tests whose layers are modules: nothing is dumped but what captures leave."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_npudump.dump.records import key_name
from pytest_npudump.errors import RuntimeUnavailableError, said
from pytest_npudump.golden.origin import processor
from pytest_npudump.graph.model_digests import parameter_block
from pytest_npudump.record.model_lines import fed_line
from pytest_npudump.runtime.base import RunActivity, Runtime
from pytest_npudump.runtime.modules import worker
from pytest_npudump.runtime.modules.statistics import bytes_of, versions_of
from pytest_npudump.runtime.modules.worker import WORKERS
from pytest_npudump.runtime.modules.wrappers import plain_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.request import RunRequest
    from pytest_npudump.runtime.modules.capture import Capture


_IDLE = said(
    "no module was called while it was watched for the golden: have a fixture of the test "
    "return the model, call npu_dump.modules(model) before the model, or compare captures "
    "(golden=False) by npu_dump.same() or ratio()"
)


@dataclass(slots=True)
class ModulesRuntime:
    """Leaves the dump to captures of modules.

    Attributes:
        name: ``modules``.
        config_name: name of the file that says where they go.
        facts: of what ran the models of the last run.
    """

    name: str = "modules"
    config_name: str = "modules.json"
    facts: dict[str, str] = field(default_factory=dict)
    activity: RunActivity = field(default_factory=lambda: RunActivity(likely_cause=_IDLE))
    _config: Path | None = None

    def producer(self) -> Mapping[str, str]:
        """Return the producer of modules: framework, device, and the processor where that is the device."""
        host = processor() if self.facts.get("device") == "cpu" else {}
        return {"runtime": self.name, **self.facts, **host}

    def write_config(self, path: Path, request: RunRequest) -> None:
        """Write the place of the dump and the requested modules."""
        test = request.test
        asked = {
            "layers": list(test.layers),
            "inputs": test.dump_mode != "output",
            "tensors": (request.dump_data or test.dump_data) == "tensor",
            "only": list(request.layers) if request.layers else None,
        }
        content = {"dump_path": str(request.dump_path), "asked": asked}
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")

    def start(self, config: Path, *, resumed: bool = False) -> None:
        """Begin a run; processes that it starts find the requested models."""
        self._config = config
        os.environ[WORKERS] = worker.handed_on()[WORKERS] = str(config)
        if not resumed:
            self.activity = RunActivity(likely_cause=_IDLE)

    def stop(self) -> None:
        """Collect the captures of processes that the run started; those of this process end by themselves."""
        config, self._config = self._config, None
        if config is not None:
            os.environ.pop(WORKERS, None)
            worker.handed_on().pop(WORKERS, None)
            answers = [*worker.answers(config)]
            for told in answers:
                tell(told, self)
            others = self.activity.evidence.others
            known = {one.number for one in others}
            found = {
                one.processes[0] for one in answers if known.isdisjoint((one.processes[0], one.launcher))
            }
            nameless = [one for one in others if one.number is None]  # of os.fork() and os.system()
            if len(nameless) <= len(found):  # else it is not known which of them answered
                for one, number in zip(nameless, found, strict=False):
                    one.number = number
            if (
                len(ranks := {one.processes[0] for one in answers}) > 1
            ):  # what they add up is rounded otherwise
                self.facts = {**self.facts, "ranks": str(len(ranks))}

    def release(self) -> None:
        """Do nothing: there is no dump that a test could switch on."""

    def hand_over(self, program: str, models: tuple[Path, ...] = ()) -> NoReturn:
        """Refuse: hooks are in this process.

        Raises:
            RuntimeUnavailableError: always.
        """
        del models
        raise RuntimeUnavailableError(f"scene='modules' watches this process, not {program}")

    def load_model(self, path: Path) -> NoReturn:
        """Refuse: the test makes its models.

        Raises:
            RuntimeUnavailableError: always.
        """
        raise RuntimeUnavailableError(f"scene='modules' loads no model file: {path.name}")

    def close(self) -> None:
        """Do nothing."""


def tell(capture: Capture | worker.Answer, runtime: Runtime) -> None:
    """Note an ended capture, for whatever runtime it was beside."""
    evidence = runtime.activity.evidence
    evidence.answered.update(capture.processes)
    for rank, layers in getattr(capture, "shards", {}).items():
        held = evidence.shards.setdefault(rank, {})
        for layer, texts in layers.items():
            # A name that models have in common, or whose weights change between captures, says nothing.
            same = held.get(layer, texts) == texts
            held[layer] = texts if same else dict.fromkeys(texts, "")
    model, fed = getattr(capture, "model", None), getattr(capture, "fed", None)
    if model is not None and capture.steps:
        path: Path | None = getattr(capture, "path", None)  # an engine's are many
        key = capture.name if path is None else path.parent.name
        before = evidence.parameters.get(key)
        given, versions = [fed], getattr(capture, "versions", {})
        if isinstance(before, partial):
            given = [*before.args[2], fed]
            versions = before.args[3] if before.args[1] is model else versions
        evidence.parameters[key] = partial(parameter_lines, capture.name, model, given, versions)
    if isinstance(runtime, ModulesRuntime):
        runtime.facts = capture.facts
        runtime.activity.initialised = True
    evidence.undumped += capture.problems
    for words in capture.notes:
        if isinstance(runtime, ModulesRuntime) and not capture.steps:
            runtime.activity.likely_cause = words
        if f"modules of {capture.name} not recorded: " in words:
            evidence.unseen.setdefault(capture.name, words)
        elif words not in evidence.notes:
            evidence.notes.append(words)
    if capture.steps:
        words = said("executions of {name}: {count}", name=capture.name, count=len(capture.steps))
        evidence.shown.append(words)


_MOST = 1 << 28
"""Bytes of parameters beyond which their digests would take seconds."""


def parameter_lines(
    name: str,
    model: Any,
    fed: Sequence[bytes | None] = (),
    versions: Mapping[str, int] | None = None,
    key: str = "",
) -> str:
    """Return a golden's lines for the parameters that a model has now, where they are not too large.

    What was written since the first execution is a result and no cause: nothing is told of parameters if one
    is trained, nor of the buffers of a layer of which one was written, such as statistics of a BatchNorm, nor
    where not all bytes of the model's weights can be had.

    Args:
        name: what the model is called.
        model: a ``torch.nn.Module`` or a ``mindspore.nn.Cell``; nothing is known of an engine.
        fed: digests of what it was given in each capture, with a line, too, unless one is not known.
        versions: those of its parameters in the first execution, see
            :func:`~pytest_npudump.runtime.modules.statistics.versions_of`.
        key: what keys of tensors call it, where there are several models.
    """
    known = [one for one in fed if one]
    given = fed_line(key_name(name), known) if fed and len(known) == len(fed) else ""
    if hasattr(model, "parameters_and_names"):
        named = [*model.parameters_and_names()]
    elif hasattr(model, "named_parameters"):
        now = versions_of(model)
        written = {path for path, version in (versions or {}).items() if now.get(path) != version}
        if not written.isdisjoint(path for path, _ in model.named_parameters()):
            return given
        layers = {path.rpartition(".")[0] for path in written}
        buffers = (one for one in model.named_buffers() if one[0].rpartition(".")[0] not in layers)
        held = chain(model.named_parameters(), buffers)
        # But of lazy modules that were not called.
        named = [one for one in held if not hasattr(one[1], "materialize")]
        # A rank has a part of what torch shards, and quantised modules have weights that are no parameters.
        if any(hasattr(one, "to_local") or hasattr(one, "_fsdp_flattened") for _, one in named) or any(
            hasattr(one, "_packed_params") for one in model.modules()
        ):
            return given
    else:
        return ""
    whole = sum(int(one.nbytes) for _, one in named)
    return (parameter_block(name, _arrays(named), key) if 0 < whole <= _MOST else "") + given


def _arrays(named: list[tuple[str, Any]]) -> Iterator[tuple[str, str, tuple[int, ...], bytes]]:
    """Yield of each parameter the path of its module, its name and type, its shape, and its bytes."""
    for path, one in named:
        module, _, leaf = plain_path(path).rpartition(".")
        yield module, f"{leaf} {one.dtype}", tuple(one.shape), bytes_of(one)
