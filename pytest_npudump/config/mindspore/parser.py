"""MindSpore's ``data_dump.json``: what its parser takes, and what it takes without effect.

Source: ``dump_json_parser.cc`` of MindSpore 2.10 (verdicts unchanged since 2.6), which raises RuntimeError
at the first graph compilation. The parser changes its own settings as it goes, so its order is kept here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from pytest_npudump.config.checker_verdict import CheckerVerdict, Refusal, few, shown
from pytest_npudump.config.mindspore.common import common_reasons
from pytest_npudump.config.mindspore.e2e import e2e_reasons
from pytest_npudump.config.mindspore.parser_state import ParserState
from pytest_npudump.config.mindspore.warnings import mindspore_warnings
from pytest_npudump.config.text.strict_json import StrictJsonError, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEVICES: Final = ("Ascend", "CPU", "GPU")


def validate(
    text: bytes,
    *,
    device: str = "Ascend",
    environ: Mapping[str, str] | None = None,
    version: tuple[int, int] = (2, 10),
) -> CheckerVerdict:
    """Return what MindSpore makes of the content of a ``data_dump.json``.

    ``need_dump`` is whether anything is written on that device, ``dump_type`` ``sync`` or ``async``.

    Args:
        text: the bytes of the file.
        device: ``device_target``: ``Ascend``, ``CPU`` or ``GPU``.
        environ: where ``MS_DIAGNOSTIC_DATA_PATH`` is looked up; the process's own by default.
        version: of MindSpore, 2.6 or later; the hash categories came with 2.10.
    """
    try:
        root = parse(text, whole=False)
    except StrictJsonError as error:
        return _refused(Refusal("", f"not JSON: {error}", "write plain JSON"))
    environment = os.environ if environ is None else environ
    diagnostic = environment.get("MS_DIAGNOSTIC_DATA_PATH", "")
    state = ParserState(device=device, diagnostic_path=diagnostic, version=version)
    reason = next(_reasons(root, state), None)
    if reason is not None:
        return _refused(reason)
    synchronous = state.synchronous or device != "Ascend"
    written = state.e2e and state.has_devices
    return CheckerVerdict(
        accepted=True,
        warnings=(*few(state.warnings, "common_dump_settings"), *mindspore_warnings(root)),
        need_dump=written,
        dump_type=("sync" if synchronous else "async") if written else "",
    )


def _refused(reason: Refusal) -> CheckerVerdict:
    return CheckerVerdict(accepted=False, reasons=(reason,))


def _reasons(root: object, state: ParserState) -> Iterator[Refusal]:
    """Yield the reasons in order; the parser stops at the first, and so must the caller."""
    settings: dict[str, Any] = root if isinstance(root, dict) else {}
    yield from e2e_reasons(settings, state)
    if "common_dump_settings" not in settings:
        problem = f"not found in {shown(root)}"
        yield Refusal("common_dump_settings", problem, 'write {"common_dump_settings": {...}}')
        return
    common = settings["common_dump_settings"]
    yield from common_reasons(common if isinstance(common, dict) else {}, state)
