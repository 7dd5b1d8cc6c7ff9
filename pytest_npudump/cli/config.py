"""``npudump config``: a runtime's verdict on a configuration, and the configuration of a test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.cli.common.project import collect
from pytest_npudump.cli.common.pytest_config import default_place
from pytest_npudump.errors import RequestError
from pytest_npudump.language.text import first_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from pytest_npudump.config.rule_table import CheckerVerdict


_TARGETS = {"acl": "aclmdlSetDump", "ge": "GE", "torchair": "TorchAir", "mindspore": "MindSpore"}


def check(args: argparse.Namespace) -> int:
    """Judge a file as its reader would; return 0 if the configuration is accepted, else 1."""
    from pytest_npudump.config.cann import rules_version  # noqa: PLC0415 - the same
    from pytest_npudump.config.check import check_file  # noqa: PLC0415 - only for this command

    version = args.cann or rules_version()
    verdict = check_file(args.file, args.target, version=version, device=args.device, soc=args.soc)
    if args.json:
        emit([json.dumps(verdict.to_json(), indent=2)], whole=True)
        return 0 if verdict.accepted else 1
    reader = _TARGETS[args.target]
    if args.target == "acl":
        reader += f" of CANN {version}"
    elif args.target == "ge" and getattr(verdict, "code", 0) != 0:
        reader = "aclmdlSetDump, so that GE never sees it"
    if verdict.accepted is None:
        lines = [f"neither accepted nor refused: {reader} alone can say"]
    else:
        word = "accepted" if verdict.accepted else "refused"
        lines = [f"{word} by {reader}: {_effect(verdict)}"]
    lines += [f"error: {reason}" for reason in verdict.reasons]
    lines += [f"warning: {warning}" for warning in verdict.warnings]
    emit(line for text in lines for line in text.splitlines())
    return 0 if verdict.accepted else 1


def _effect(verdict: CheckerVerdict) -> str:
    code = getattr(verdict, "code", 0)
    if not verdict.accepted or code:
        return f"it returns {code}" if code else "see below"
    if not verdict.need_dump:
        return "nothing is switched on"
    place = getattr(verdict, "dump_path", "")
    what = f"switches on {verdict.dump_type}" if verdict.dump_type else "switches the dump on"
    return f"{what}, into {place}" if place else what


_NAMED = 5
_NUMBER = "/pytest-N/"
_NOT_ISOLATED = (
    "warning: TorchAir reads its dump setting with the first graph of a process: give the "
    "test isolation='process'"
)


def show(arguments: argparse.Namespace) -> int:
    """Print the file to standard output, warnings to standard error; 0 unless CANN or the test refuses it.

    Raises:
        RequestError: the test is unknown, unmarked or not the only one, or cannot be collected.
    """
    runtime = ["--npudump-runtime=mindspore"] if arguments.target == "mindspore" else []
    temporary = f"--npudump-describe-temporary={default_place()}"
    found = collect("--npudump-describe-to", [temporary, *runtime], arguments.test)
    test = _only_test(found, arguments.test)
    if "data_dump" in test and arguments.target not in {None, "mindspore"}:
        raise RequestError("this project's runtime is mindspore, which reads no acl.json: leave --for out")
    if arguments.target == "torchair" and found["runtime"] == "mindspore":
        refusal = "this project's runtime is mindspore, which has no acl.json to hand on"
        to_stderr(f"error: npu_dump.torchair_config() refuses: {refusal}")
        return 1
    shown = test["data_dump"] if "data_dump" in test else {"dump": test["dump"]}
    if arguments.target == "torchair":
        acl_json = Path(_path(test)).with_name("acl.json")
        shown = {"enable_dump": False, "dump_config_path": str(acl_json)}
    emit([json.dumps(shown, indent=2)], whole=True)
    if "data_dump" in test:
        from pytest_npudump.config.data_dump import rules_version  # noqa: PLC0415 - only for this runtime
        from pytest_npudump.config.mindspore import validate  # noqa: PLC0415 - the same

        text = json.dumps(test["data_dump"]).encode()
        verdict = validate(text, device=arguments.device, environ={}, version=rules_version())
        errors = [f"error: MindSpore refuses it on {arguments.device}: {one}" for one in verdict.reasons]
        warnings = [f"warning: {one}" for one in verdict.warnings]
    else:
        from pytest_npudump.config.ge import validate_dump  # noqa: PLC0415 - only for this command

        refused = validate_dump(test["dump"]).reasons
        errors = [f"error: no model is dumped, for GE refuses silently: {reason}" for reason in refused]
        warnings = list(_warnings(test, Path(found["rootdir"])))
    if arguments.target == "torchair" and not test["isolated"]:
        warnings.append(_NOT_ISOLATED)
    note = "note: N in the path is the number of pytest's run; the folder is made when the test runs"
    for line in (*errors, *warnings, *([note] if _NUMBER in _path(test) else [])):
        to_stderr(line)
    return 1 if errors else 0


def _path(test: Mapping[str, Any]) -> str:
    section = test["data_dump"]["common_dump_settings"] if "data_dump" in test else test["dump"]
    path: str = section["path" if "data_dump" in test else "dump_path"]
    return path


def _only_test(found: Mapping[str, Any], test: str | None) -> dict[str, Any]:
    tests: list[dict[str, Any]] = found["tests"]
    if len(tests) == 1:
        return tests[0]
    if tests:
        names = first_of((entry["nodeid"] for entry in tests), _NAMED)
        raise RequestError(f"{len(tests)} tests with the marker npu_dump: name one of {names}")
    if found["unmarked"]:
        names = found["unmarked"]
        which = f"{names[0]} is" if len(names) == 1 else f"all {len(names)} tests are"
        raise RequestError(f"{which} without the marker npu_dump: add @pytest.mark.npu_dump")
    if found["deselected"]:
        raise RequestError(f"{found['deselected'][0]} is deselected, by -k, -m or a plugin (see addopts)")
    raise RequestError(f"pytest collects no test {f'in {test}' if test else 'here'}; name one as FILE::TEST")


def _warnings(test: Mapping[str, Any], rootdir: Path) -> Iterator[str]:
    from pytest_npudump.config.adump import validate  # noqa: PLC0415 - only for this command
    from pytest_npudump.config.cann import collecting_words, rules_version, soc_warnings  # noqa: PLC0415 - the same

    # The folder of the dump is made when the test runs; any that exists stands in for it.
    text = json.dumps({"dump": test["dump"] | {"dump_path": "."}}).encode()
    for warning in validate(text, version=rules_version(), cwd=rootdir).warnings:
        yield f"warning: {warning}"
    yield from (f"warning: {warning}" for warning in soc_warnings(test["dump"], ""))
    if refused := collecting_words(os.environ):
        yield f"warning: {refused}"
    if test["globs"]:
        globs = ", ".join(map(repr, test["globs"]))
        yield f"warning: CANN takes no globs: every layer is dumped, and {globs} selects afterwards"
