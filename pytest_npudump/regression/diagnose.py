"""Diagnosis of a run besides its dump: empty dumps, and requests that CANN ignores."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_npudump.config.acl_json import dump_section, request_warnings
from pytest_npudump.config.cann import collecting_words, rules_version, soc_notes
from pytest_npudump.dump.selection import layers_meant, suggest
from pytest_npudump.errors import NpudumpError, joined, said
from pytest_npudump.language.text import first_of
from pytest_npudump.regression.result import not_dumped_inside
from pytest_npudump.request import DumpRequest, RunRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.runtime.base import Activity


_NAMED = 3
"""Layers that no model has, of which is said what they may be."""
LITTLE = 1 << 20
"""Free bytes below which a dump of any model fails, or is about to."""


def full_words(directory: Path) -> str:
    """Report that the file system of a dump is all but full; "" where it is not, or cannot be asked."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return ""
    if free >= LITTLE:
        return ""
    return said(
        "the file system of {directory} is full ({free} bytes are free), so that a dump "
        "there may be incomplete: free space, or choose another folder with "
        "--npudump-output",
        directory=directory,
        free=free,
    )


def what_ran(activity: Activity) -> str:
    """Describe the models and programs that ran while the dump was on, as far as known; "" for none."""
    names = ", ".join(dict.fromkeys(path.name for path in activity.models))
    loaded = ""
    if names:
        times = {0: said("no execution succeeded"), 1: said("ran once")}
        run = times.get(activity.executions, said("ran {count} times", count=activity.executions))
        loaded = said("loaded under the dump: {names}, {run}", names=names, run=run)
    programs = f"{' and '.join(activity.programs)} ran" if activity.programs else ""
    evidence = activity.evidence
    return joined("; ", filter(None, (loaded, programs, *evidence.shown, *evidence.failed)))


def explain_empty(
    request: DumpRequest,
    activity: Activity,
    dump_path: Path,
    seen: str,
    *,
    silent: str = "",
    modules: bool = False,
) -> str:
    """Explain an empty dump by its likely cause, or why a full one cannot be read.

    Args:
        request: what the test asked for.
        activity: what the test did while the dump was on.
        dump_path: the directory that should have been filled.
        seen: what reading that directory said.
        silent: which operators ran and have nothing to dump, in words; "" for none.
        modules: whether its layers are watched modules.
    """
    if seen and any(path.is_file() for path in dump_path.rglob("*")):
        return seen
    detail = f" ({seen})" if seen and "holds no" not in seen else ""
    cause = _likely_cause(request, activity, dump_path, silent)
    if (beside := activity.evidence.beside) and not (activity.executions or activity.released):
        cause = said("{others}; {cause}", others=beside_words(beside, modules=modules), cause=cause)
    return said("the dump is empty{detail}: {cause}", detail=detail, cause=cause)


def _likely_cause(request: DumpRequest, activity: Activity, dump_path: Path, silent: str) -> str:
    """Return the first cause of an empty dump that applies, the likeliest first."""
    layers = request.layers if request.exact_layers else ()  # else CANN dumps all
    evidence, (unknown, named) = activity.evidence, _nearest(layers, activity.models)
    filters = _filters(request, named)
    or_filtered = said("; or a filter matched nothing: {filters}", filters=filters) if filters else ""
    lost = not dump_path.is_dir() or not os.access(dump_path, os.W_OK)
    unseen = evidence.missing and not (activity.executions or evidence.shown)
    causes = (
        (
            lost,
            said(
                "its directory {path} is gone or cannot be written; the test must not change it",
                path=dump_path,
            ),
        ),
        (refused := collecting_words(os.environ), refused),
        (activity.programs, _by_program(activity, dump_path, or_filtered)),
        (activity.likely_cause, activity.likely_cause),
        (
            activity.released,
            said(
                "the test took npu_dump.config_path, so it has to switch the dump on itself before its "
                "model is loaded: acl.init(path), or acl.mdl.init_dump() and acl.mdl.set_dump(path); "
                "check their return codes"
            ),
        ),
        (
            unseen,
            said(
                "{missing}: load it inside the test, or the capture that runs it, or in a "
                "function-scoped fixture",
                missing=joined("; ", evidence.missing),
            ),
        ),
        (
            not activity.initialised,
            said(
                "ACL was never initialised while the dump was on; load the model inside the test or "
                "in a function-scoped fixture, with npu_dump.load_model() or after acl.init()"
            ),
        ),
        (
            request.scene == "op",
            said(
                "no single operator ran through acl.op while the dump was on, or CANN wrote none{filters}",
                filters=or_filtered,
            ),
        ),
        (
            not activity.models,
            said(
                "no model was loaded through npu_dump.load_model() while the dump was on; a model "
                "loaded earlier (in a module or session fixture, or at import) is not dumped by "
                "CANN: load it inside the test or in a function-scoped fixture{filters}",
                filters=or_filtered,
            ),
        ),
        (
            not activity.executions,
            said(
                "no loaded model was run to its end ({names})",
                names=", ".join(path.name for path in activity.models),
            ),
        ),
        (
            unknown and unknown == len(request.layers),
            said("layers= names no operator of the model: {names}", names=joined("; ", named)),
        ),
        (silent, silent),
        (filters, said("most likely a filter matched nothing: {filters}", filters=filters)),
        (
            True,
            said(
                "the runtime reported no error; on a device look into the CANN log "
                "(ASCEND_GLOBAL_LOG_LEVEL=1) for a dump configuration that GE refused"
            ),
        ),
    )
    return full_words(dump_path) or next(words for applies, words in causes if applies)


def beside_words(others: Sequence[str], *, modules: bool) -> str:
    """Report processes beside the test's own, whose models need not be in the dump."""
    if modules:
        return said(
            "other processes ran during the test ({others}): a model that runs there is recorded only "
            "inside watch(model) of pytest_npudump.runtime.modules.worker",
            others=first_of(others),
        )
    return said(
        "other processes ran during the test ({others}): a model that runs there is dumped "
        "only if the dump is on there, as with npu_dump.run()",
        others=first_of(others),
    )


def _by_program(activity: Activity, dump_path: Path, or_filtered: str) -> str:
    if activity.evidence.unfinished:
        return said(
            "{gaps}; what {programs} printed is in {parent}",
            gaps=joined("; ", activity.evidence.gaps),
            programs=" and ".join(activity.programs),
            parent=dump_path.parent,
        )
    known = joined("; ", [*activity.evidence.missing, *activity.evidence.shown])
    return said(
        "{programs} ran and dumped nothing: {known}it has to hand that acl.json to aclInit, "
        "or to aclmdlSetDump behind aclmdlInitDump, before it loads its model, and to run "
        "the model; its output is in {parent}{filters}",
        programs=" and ".join(activity.programs),
        known=said("{known}; ", known=known) if known else "",
        parent=dump_path.parent,
        filters=or_filtered,
    )


def _filters(request: DumpRequest, named: Sequence[str]) -> str:
    step, kernel = request.dump_step, request.dump_level == "kernel"
    filters = (
        (
            request.exact_layers,
            said(
                "layers={layers} (CANN takes exact operator names of the model, and dumps nothing for "
                "others)",
                layers=list(request.layers),
            ),
        ),
        *((True, words) for words in named),
        (step, said("dump_step={dump_step!r} (steps count from 0)", dump_step=step)),
        (request.model_name, f"model_name={request.model_name!r}"),
        (
            request.optype_blacklist or request.opname_blacklist or request.opname_range,
            said("the blacklists or opname_range"),
        ),
        (kernel, said("dump_level='kernel' (it switches the dump of models and of acl.op off)")),
    )
    return joined("; ", (words for there, words in filters if there))


def _nearest(layers: Sequence[str], models: Iterable[Path]) -> tuple[int, list[str]]:
    """Count the layers that no model has, by ONNX files, and suggest operators for the first ones."""
    files = dict.fromkeys(file for path in models for file in (path, path.with_suffix(".onnx")))
    known: dict[str, None] = {}
    for file in files:
        if layers and file.suffix == ".onnx" and file.is_file():
            from pytest_npudump.onnxmodels.sessions import prepare  # noqa: PLC0415 - for an empty dump

            with suppress(NpudumpError):
                known |= dict.fromkeys(operator.name for operator in prepare(file).operators)
    unknown = [layer for layer in layers if known and layer not in known]
    named: dict[str, list[str]] = {}
    for layer in unknown[:_NAMED]:
        named.setdefault(suggest(layer, known, said("the model")), []).append(layer)
    hints = [said("{layer} ({hint})", layer=", ".join(names), hint=hint) for hint, names in named.items()]
    return len(unknown), hints


def notes_of(case: Case) -> tuple[str, ...]:
    """Return the notes on a run that has ended: on its acl.json, by CANN's release and chip, and itself."""
    runtime = case.runtime
    activity = runtime.activity
    notes = list(activity.evidence.notes)
    for model, held in activity.evidence.inside.items():  # operators that the emulator does not see
        wanted = layers_meant(case.request.layers, (name for name, _ in held))
        if outside := [layer for name, layer in held if not case.request.layers or name in wanted]:
            notes.append(not_dumped_inside(len(outside), model, first_of(dict.fromkeys(outside), 3)))
    dumped = activity.executions or activity.evidence.shown
    notes += activity.evidence.unseen.values() if dumped else ()
    if activity.evidence.missing and dumped and not activity.programs:  # of programs their dump says enough
        notes.append(not_dumped(activity))
    if (beside := activity.evidence.beside) and (activity.programs or not activity.released):
        notes.append(beside_words(beside, modules=runtime.name == "modules"))
    if runtime.config_name == "acl.json":
        section = dump_section(RunRequest(case.request, case.directory))
        notes += request_warnings(case.request, version=rules_version(), cwd=case.directory)
        notes += soc_notes(section, runtime.producer().get("soc", ""))
    return tuple(dict.fromkeys(notes))


def ran_under_dump(activity: Activity) -> bool:
    """Return whether there is evidence that a model ran under a dump that is empty in a healthy run."""
    here = activity.initialised and activity.executions and not activity.released
    return bool(here or activity.evidence.shown) and not activity.evidence.gaps


def not_dumped(activity: Activity) -> str:
    """Describe executions of the test without the dump; "" where none is known."""
    gaps = activity.evidence.gaps
    return (
        said("not everything in the test ran under the dump: {gaps}", gaps=joined("; ", gaps)) if gaps else ""
    )


def why_unshown(case: Case, attempt: Attempt) -> str:
    """Explain why :func:`ran_under_dump` does not hold for a run."""
    activity = case.runtime.activity
    if activity.evidence.gaps and (activity.executions or activity.evidence.shown):
        return not_dumped(activity)
    why = explain_empty(case.request, activity, attempt.dump_path, "", modules=case.runtime.name == "modules")
    return said("nothing shows that a model ran under the dump: {why}", why=why)
