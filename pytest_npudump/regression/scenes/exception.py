"""Exceptions: a test fails if an operator failed on the device, also where its body passes over the error.

The runtime leaves a dump of the operator (``dump_scene: aic_err_...``). A healthy run leaves none, so a test
passes only where something shows that a model ran while the dump was on. There is no golden: a failed
operator cannot be accepted.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.files.container import ContainerTensor, read_container
from pytest_npudump.dump.files.core import core_damage
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.tree.find import Tree, find_files
from pytest_npudump.errors import DumpError, FormatError, said
from pytest_npudump.record.run_folder import dump_folders
from pytest_npudump.regression import result as status
from pytest_npudump.regression.diagnose import ran_under_dump, why_unshown
from pytest_npudump.regression.result import Result
from pytest_npudump.regression.scenes.findings import OperatorTensor, described, grouped, result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_npudump.dump.names import DumpFile
    from pytest_npudump.ranks.rank import Rank
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case


_RENUMBERED = "ASCEND_RT_VISIBLE_DEVICES"
"""Devices that it renumbers have other numbers in a dump than in the program, or not."""
_FALLBACK = (
    "no core was written although dump_scene='aic_err_detail_dump' asks for one: the detail dump did not "
    "start on this device, and CANN fell back to aic_err_brief_dump"
)


def judge(case: Case, attempt: Attempt) -> Result:
    """Fail the test if an operator failed, or if nothing shows that the dump was on while a model ran."""
    outcome = examine(case, attempt)
    activity = case.runtime.activity
    if outcome.good and activity.evidence.failed:
        problem = said(
            "{failed}, but no exception dump was left: look for [Dump][Exception] in the CANN log, "
            "and whether the disk is full",
            failed=" and ".join(activity.evidence.failed),
        )
        return replace(outcome, status=status.FAILED, problems=(problem,))
    if not outcome.good or ran_under_dump(activity):
        return outcome
    return Result(
        status.ERROR,
        None,
        problems=(said("no operator failed, and {why}", why=why_unshown(case, attempt)),),
    )


def examine(case: Case, attempt: Attempt | None) -> Result:
    """Return the operators that failed in the last run of a test, whatever became of its process.

    Nothing is raised: what cannot be read is a problem of the outcome. Without findings and problems the
    status is ``passed``, which says nothing of whether the dump was on.
    """
    failed: list[FailedOperator] = []
    problems: list[str] = []
    notes: list[str] = []
    known = case.exchange is not None and not os.environ.get(_RENUMBERED)
    rank = case.exchange.rank if case.exchange is not None and known else None
    try:
        for tree in find_dumps(attempt, os.environ) if attempt is not None else ():
            found, devices = _without_others(tree, rank)
            if devices:
                names = ", ".join(map(str, sorted(devices)))
                notes.append(
                    f"exception dumps of device {names} in {tree.root} are left to the ranks that use it"
                )
            mindspore = any(file.place.mindspore for file in found.tree.files)  # as in its other dumps
            read, unreadable = _read_mindspore(found) if mindspore else _read(found)
            failed += read
            problems += unreadable
            notes += () if found.outside else found.tree.notes
    except (DumpError, OSError) as error:
        problems.append(f"the exception dumps cannot be looked for: {error}")
    findings = grouped(failed, lambda one: one.identity)
    detail = case.request.dump_scene == "aic_err_detail_dump"
    if detail and findings and not any(one.kind == DETAIL for one in findings):
        notes.append(_FALLBACK)
    return result_of(findings, problems, notes, tensors=sum(len(one.tensors) for one in findings))


def _read(found: Found) -> tuple[list[FailedOperator], list[str]]:
    """Read the dumps of a tree; one that is truncated still has its name's facts."""
    failed = []
    problems = [f"unreadable file in the exception dump: {error}" for error in found.tree.problems]
    seen: set[object] = set()
    others = [found.root / name for name in found.tree.other]  # objects and descriptions of kernels
    for file in found.dumps:
        one = replace(from_name(file), capture=found.capture, outside=found.outside)
        first = one.identity not in seen
        seen.add(one.identity)
        try:
            one = with_content(one, tensors=first)
        except (DumpError, OSError) as error:
            reason = error if isinstance(error, FormatError) else f"{file.path}: {error}"
            problems.append(f"unreadable exception dump: {reason}")
        beside = tuple(path for path in others if path.parent == file.path.parent)
        failed.append(replace(one, attached=beside))
    return failed, problems


def _read_mindspore(found: Found) -> tuple[list[FailedOperator], list[str]]:
    """Read MindSpore's exception dump: tensors of operators that failed, and parameters."""
    dump = read_dump(found.root, stats=False, one_run=True)
    failed: dict[object, FailedOperator] = {}
    for record in dump.records:
        if record.op_type == "Parameter" or record.payload is None:
            continue
        key, place = record.key, replace(record.key, io="", slot=0)
        tensor = described(record, (key.io, key.slot), record.path)
        one = failed.get(place) or FailedOperator(
            key.layer, record.op_type, "", MINDSPORE, None, None, None, record.path, capture=found.capture
        )
        failed[place] = replace(one, tensors=(*one.tensors, tensor))
    return [*failed.values()], [f"unreadable exception dump: {problem}" for problem in dump.problems]


NORM, BRIEF, CALLBACK, CUSTOM, DETAIL = "norm", "brief", "callback", "custom", "detail"
MINDSPORE = "op_debug_mode 4"
_NAMELESS = re.compile(r"(?:display|exception_info)(?:\.\w+\.\w+)?")
_CORE_OF_CALLBACK = re.compile(r"\.\w+\.\w+\Z")
_IDS = re.compile(r"stream_id:(\d+), task_id:(\d+)")


@dataclass(frozen=True, slots=True)
class FailedOperator:
    """An operator that failed on the device, and the dump it left.

    Attributes:
        layer: its name, raw unless the file cannot be read; "" where the dump has none.
        op_type: its type; "" where the dump has none.
        kernel: the kernel that failed; "" where the dump has none.
        kind: ``norm``, ``brief``, ``callback``, ``custom``, ``detail`` or MindSpore's.
        task, stream, device: ids; None where neither the dump nor its name has them.
        dump: the file.
        tensors: its inputs and outputs in the first of its dumps.
        attached: files that belong to it: the kernel's object and description.
        message: what CANN logged, as the dump has it.
        capture: the capture it failed in.
        outside: the variable, or the dump, that had CANN write outside of the test's own; "" where none had.
        executions: how many dumps of it there are.
    """

    layer: str
    op_type: str
    kernel: str
    kind: str
    task: int | None
    stream: int | None
    device: int | None
    dump: Path
    tensors: tuple[OperatorTensor, ...] = ()
    attached: tuple[Path, ...] = ()
    message: str = ""
    capture: str = ""
    outside: str = ""
    executions: int = 1

    @property
    def identity(self) -> tuple[object, ...]:
        """Identity shared by dumps of one operator; those without a name are told apart by their task."""
        ids = () if self.layer else (self.kernel, self.task, self.stream)
        return (self.kind, self.layer, self.op_type, self.device, self.capture, *ids)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON data."""
        return {
            "kind": "exception",
            "operator": self.layer or None,
            "type": self.op_type or None,
            "kernel": self.kernel or None,
            "dump_kind": self.kind,
            "task": self.task,
            "stream": self.stream,
            "device": self.device,
            "capture": self.capture or None,
            "executions": self.executions,
            "file": str(self.dump),
            "attached": [str(path) for path in self.attached],
            "outside": self.outside or None,
            "message": self.message or None,
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def from_name(file: DumpFile) -> FailedOperator:
    """Parse the name and the directory of a dump, without a look inside."""
    name, place = file.name, file.place
    device = place.device if place.device >= 0 else None
    if name is None:
        return FailedOperator("", "", "", CUSTOM, None, None, device, file.path)
    layer, kernel, kind = "", name.op_name, DETAIL
    if name.kind != "core" and (name.op_type or name.task is None):
        layer, kernel, kind = name.op_name, "", NORM if name.op_type else CUSTOM
    elif name.kind != "core":
        kind = BRIEF if name.op_name in {"display", "exception_info"} else CALLBACK
        kernel = "" if _NAMELESS.fullmatch(name.op_name) else _CORE_OF_CALLBACK.sub("", name.op_name)
    return FailedOperator(layer, name.op_type, kernel, kind, name.task, name.stream, device, file.path)


def with_content(failed: FailedOperator, *, tensors: bool) -> FailedOperator:
    """Add the content of the dump to :func:`from_name`'s; ``tensors`` asks for those too.

    Raises:
        FormatError: the file is truncated or damaged.
    """
    if failed.kind == DETAIL:
        if damage := core_damage(failed.dump):
            raise damage
        return failed
    records = read_container(failed.dump)
    record = records[0]
    ids = _IDS.search(record.dfx_message)
    stream = int(ids[1]) if failed.stream is None and ids else failed.stream
    task = int(ids[2]) if failed.task is None and ids else failed.task
    return replace(
        failed,
        layer=record.op_name or failed.layer,
        stream=stream,
        task=task,
        tensors=tuple(_tensor(tensor, failed.dump) for tensor in record.tensors) if tensors else (),
        message=record.dfx_message,
        executions=len(records),
    )


def _tensor(tensor: ContainerTensor, path: Path) -> OperatorTensor:
    slot = (tensor.io, tensor.slot)
    if tensor.payload is not None and tensor.dtype == "undefined":
        shape = "" if tensor.shape is None else f" of shape {list(tensor.shape)}"
        note = f"{tensor.size} bytes{shape}, the dump tells no data type"
        return OperatorTensor(*slot, None, note, tensor.payload.path)
    return described(tensor, slot, path)


_PATHS = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE")
_SWITCH = "ASCEND_DUMP_SCENE"
ANOTHER = "another exception dump"
"""Source of a dump in the working directory that no variable sends there: torch_npu's own acl.json."""
_FOLDER = "data-dump"


@dataclass(frozen=True, slots=True)
class Found:
    """A tree that may hold exception dumps.

    Attributes:
        root: its directory.
        tree: its files.
        capture: name of the capture it belongs to; "" for the test itself.
        outside: what sent it there, a variable or a dump other than the run's; "" for the run's own.
    """

    root: Path
    tree: Tree
    capture: str = ""
    outside: str = ""

    @property
    def dumps(self) -> list[DumpFile]:
        """The exception dumps among the files, in the order of time."""
        found = [
            file
            for file in (*self.tree.files, *self.tree.cores)
            if (file.name is not None and file.name.kind in {"exception", "core"})
            or self.outside
            or _FOLDER in file.path.relative_to(self.root).parts
        ]
        return sorted(found, key=lambda file: (file.name.time if file.name else 0, file.path))


def find_dumps(attempt: Attempt, environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield the trees of a run, those outside of its directory without what is older than the run.

    Raises:
        DumpError: a directory cannot be listed.
    """
    if not attempt.directory.is_dir():
        return
    for capture, folder in dump_folders(attempt.directory):
        yield Found(folder, find_files(folder), capture)
    configs = (path.stat().st_mtime_ns for path in attempt.directory.glob("*.json"))
    since = min(configs, default=0)  # when the first was written
    for variable, base in _bases(environ):
        root = base / "extra-info" / _FOLDER
        if root.is_dir() and not root.is_relative_to(attempt.directory.resolve()):
            yield Found(root, _since(find_files(root), root, since), outside=variable)


def _bases(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the directories that variables name, once each, and the current one, CANN's last resort."""
    seen = set()
    named = [(variable, environ.get(variable, "")) for variable in _PATHS]
    switched = (_SWITCH, ".") if environ.get(_SWITCH) else (ANOTHER, ".")
    for variable, value in [*named, switched]:
        if value and (base := Path(value).resolve()) not in seen:
            seen.add(base)
            yield variable, base


def _since(tree: Tree, root: Path, began: int) -> Tree:
    def newer(path: Path) -> bool:
        try:
            return path.stat().st_mtime_ns >= began
        except FileNotFoundError:  # gone meanwhile: others may clean up what is theirs
            return False
        except OSError as error:
            raise DumpError(f"{path}: cannot be looked at: {error.strerror}") from error

    return _kept(tree, root, newer)


def _kept(tree: Tree, root: Path, wanted: Callable[[Path], bool]) -> Tree:
    return replace(
        tree,
        files=[file for file in tree.files if wanted(file.path)],
        cores=[file for file in tree.cores if wanted(file.path)],
        other=[name for name in tree.other if wanted(root / name)],
        problems=[problem for problem in tree.problems if wanted(Path(problem.path))],
    )


def _without_others(found: Found, rank: Rank | None) -> tuple[Found, set[int]]:
    """Return a tree outside of the run's own without what lies in folders of other ranks' devices, and these.

    No rank is known to use a device where ranks are not known.
    """
    devices: set[int] = set()
    if not found.outside or rank is None:
        return found, devices

    def is_own(path: Path) -> bool:
        parts = path.relative_to(found.root).parts if path.is_relative_to(found.root) else ()
        device = int(parts[0]) if len(parts) > 1 and parts[0].isdecimal() else rank.local
        foreign = device != rank.local and (device < rank.local_size or not rank.local_size)
        devices.update([device] * foreign)
        return not foreign

    return replace(found, tree=_kept(found.tree, found.root, is_own)), devices


def refused_environment(environ: Mapping[str, str], inherited: Mapping[str, str]) -> str:
    """Return why a program cannot be run for an exception dump with these variables; "" if it can.

    Args:
        environ: what the program gets in addition.
        inherited: the environment of this process.
    """
    named = [name for name in (*_PATHS, _SWITCH) if name in environ and environ[name] != inherited.get(name)]
    if named:
        return (
            f"{', '.join(named)}: the program's exception dump would go where this test does not look; leave "
            f"it out, or set it for pytest itself"
        )
    set_here = {name: inherited[name] for name in _PATHS if inherited.get(name)}
    relative = [name for name, value in set_here.items() if not Path(value).is_absolute()]
    if inherited.get(_SWITCH) and not set_here.keys() & set(_PATHS[:2]):
        relative.append(_SWITCH)
    if relative:
        return (
            f"{', '.join(relative)}: the program's exception dump would go below its own working directory; "
            f"set ASCEND_DUMP_PATH to an absolute path"
        )
    return ""
