"""From a marked test to what its marker asks: run at collection, without a heavy import."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError, RequestError
from pytest_npudump.plugin._compat import may_be_skipped
from pytest_npudump.plugin.marker.arguments import parse_marker
from pytest_npudump.plugin.marker.combinations import check_combination
from pytest_npudump.plugin.marker.marks import marks_of
from pytest_npudump.plugin.repetitions import parameters_id, repetition_parameters
from pytest_npudump.ranks.rank import current_rank
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.settings import Settings


def request_of(item: pytest.Item) -> DumpRequest:
    """Merge the markers of module, class and function, the closest winning argument by argument.

    Raises:
        RequestError: an argument is unknown, not allowed, or excludes another.
    """
    request = DumpRequest()
    for mark in reversed(marks_of(item)):
        request = parse_marker(mark.args, mark.kwargs, request)
    check_combination(request)
    return request


def check_item(item: pytest.Item, settings: Settings) -> str:
    """Return what is wrong with a marked test, "" if nothing is."""
    try:
        request = request_of(item)
        if request.scene != "check_op" and _is_hypothesis_test(item):
            return (
                "npu_dump does not go with hypothesis' @given: every example would be compared with one "
                "golden; use pytest.mark.parametrize, which gives each case a golden of its own, or "
                "scene='check_op', which checks operators without one"
            )
        rank = current_rank()
        if rank is not None and hasattr(item.config, "workerinput"):
            return f"this is {rank}, and all ranks run one test at a time: leave out -n (pytest-xdist)"
        if settings.approves and hasattr(item.config, "workerinput") and repetition_parameters(item):
            return (
                "all repetitions of a test share one golden, and an update compares each with what the first "
                "has recorded, which takes one process: leave out -n (pytest-xdist)"
            )
        _check_config(request, settings.runtime)
        _check_files(request, item)
        if request.tolerances or request.preset or settings.tolerances or settings.preset:
            from pytest_npudump.compare.tolerances.rules import tolerances_for  # noqa: PLC0415 - the same
            from pytest_npudump.explain.tolerances import check_reference  # noqa: PLC0415 - it needs numpy

            tolerances_for(request, settings, item.config.rootpath)
            check_reference(request)
    except (RequestError, ConfigError) as error:
        return str(error)
    return ""


def _check_config(request: DumpRequest, runtime: str) -> None:
    """Have the rules of what will read the configuration judge it, as far as they are known at collection."""
    if runtime == "mindspore":
        from pytest_npudump.config import data_dump  # noqa: PLC0415 - only where chosen

        data_dump.check_request(request, version=data_dump.rules_version())
        return
    if request.data_dump:
        raise RequestError(
            "data_dump: keys of MindSpore's data_dump.json, only with --npudump-runtime=mindspore"
        )
    from pytest_npudump.config.acl_json import check_request  # noqa: PLC0415 - only for marked tests
    from pytest_npudump.config.cann import rules_version  # noqa: PLC0415 - the same

    somewhere_writable = Path(tempfile.gettempdir())  # the folder of the dump is made when the test runs
    check_request(request, version=rules_version(), cwd=somewhere_writable, runtime=runtime)


def _check_files(request: DumpRequest, item: pytest.Item) -> None:
    """Refuse files that are not there, before the device works for a comparison that cannot be made."""
    files = (
        ("reference", request.reference, "an ONNX model"),
        ("reference_map", request.reference_map, "a YAML file"),
        ("graph", request.graph, "a file of the model's graph"),
    )
    for argument, name, kind in files:
        path = item.path.parent / name if name else None
        # A test may be skipped for want of that very file.
        if path is not None and not path.is_file() and not may_be_skipped(item):
            raise RequestError(
                f"{argument}: there is no file {path}; name {kind}, relative to the test file's folder"
            )


def _is_hypothesis_test(item: pytest.Item) -> bool:
    function: Any = getattr(item, "obj", None)
    return bool(getattr(function, "is_hypothesis_test", False))


@dataclass(frozen=True, slots=True)
class Identity:
    """What a golden's name is made of; never pytest's nodeid, which plugins rewrite.

    Attributes:
        test_file: relative to rootdir.
        classes: names of the classes around the test, outermost first.
        name: of the function, without parameters.
        param_id: id of the parameters, without the number of a repetition; None for a test without.
    """

    test_file: PurePath
    classes: tuple[str, ...]
    name: str
    param_id: str | None

    @classmethod
    def of(cls, item: pytest.Item) -> Identity:
        """Return the identity of ``item``."""
        parents = [node for node in item.listchain() if getattr(node, "cls", None) is getattr(node, "obj", 0)]
        relative = os.path.relpath(item.path, item.config.rootpath)
        return cls(
            test_file=PurePath(Path(relative).as_posix()),
            classes=tuple(node.name for node in parents),
            name=getattr(item, "originalname", None) or item.name,
            param_id=parameters_id(item),
        )

    def __str__(self) -> str:
        """Return the test as a user types it on pytest's command line."""
        parameters = "" if self.param_id is None else f"[{self.param_id}]"
        return "::".join((self.test_file.as_posix(), *self.classes, self.name)) + parameters
