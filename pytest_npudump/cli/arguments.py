"""The words of the commands: what each takes, and the help of that. Imports nothing that work needs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import (
    NUMERICS,
    add_executor_option,
    add_json_option,
    add_latest_option,
    add_layout_option,
    add_place_options,
    add_tolerance_options,
    add_what_if_option,
)
from pytest_npudump.cli.golden import configure as _golden
from pytest_npudump.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LS = (
    "List the tensors of a dump in execution order, without reading their values. Exit 0; 2 where a file "
    "cannot be read, after listing the others."
)


def _ls(parser: argparse.ArgumentParser) -> None:
    parser.description = _LS
    parser.add_argument("dump", type=Path, metavar="TREE", help="a dump's directory, or one file of a dump")
    add_latest_option(parser)
    add_executor_option(parser)
    add_json_option(parser)


_STATS = (
    "Print the statistics of every tensor of a dump, in execution order: those its files tell, computed from "
    "the tensors where they tell none. Exit 0; 2 where a file cannot be read, after printing the others."
)


def _stats(parser: argparse.ArgumentParser) -> None:
    parser.description = _STATS
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one file of a dump")
    parser.add_argument(
        "--acl",
        action="store_true",
        help="compute the statistics of tensors as ACL does on the device: NaN for max and min where the "
        "first element is NaN, and none for types that it leaves out (bf16, fp8, int4, complex and others)",
    )
    parser.add_argument(
        "--projections",
        action="store_true",
        help="add eight sums of the elements of each tensor under fixed random signs, in which permuted "
        "rows, swapped channels, shifts and single elements show that the other statistics do not see",
    )
    add_latest_option(parser)
    add_executor_option(parser)
    add_json_option(parser)


_COMPARE = (
    "Compare two dumps, or a golden file and a dump. Statistics are always compared; where both sides hold a "
    "tensor, its elements are too, in the host's layout, and a tensor passes only if both agree: no element "
    "is farther off than the extremes may be, and the tensor as a vector (relative_l2) no farther than rtol. "
    "Of two folders of kept results each test's statistics are compared, and what produced them comes first. "
    "With an ONNX model in place of GOLDEN the layers are compared with onnxruntime's. "
    "Exit 0: within tolerance; 1: a difference; 2: an unreadable or empty input, after printing the rest, or "
    "no value that could be compared."
)


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.description = _COMPARE
    parser.set_defaults(work="compare.command:run")
    parser.add_argument(
        "golden", type=Path, metavar="GOLDEN", help="a golden file, a dump, an ONNX model, or kept results"
    )
    parser.add_argument(
        "actual", type=Path, metavar="ACTUAL", help="a dump's directory, one file of a dump, or kept results"
    )
    add_tolerance_options(parser)
    add_what_if_option(parser)
    parser.add_argument("--rtol", type=float, help="relative tolerance of floating-point values")
    parser.add_argument("--atol", type=float, help="absolute tolerance of floating-point values")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every failing tensor")
    parser.add_argument(
        "--inputs",
        type=Path,
        action="append",
        metavar="FILE.npz",
        help="what the ONNX model is given, an array an input; once for each execution in the dump",
    )
    parser.add_argument(
        "--map", type=Path, metavar="FILE", help="YAML file of layers that the ONNX model names otherwise"
    )
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="DIR",
        help="write pictures into this folder: run.svg, every tensor by error against tolerance, and for "
        "each of the first failing tensors whose elements both sides hold tensor-N.svg",
    )
    add_latest_option(parser)
    add_layout_option(parser)
    add_executor_option(parser)
    add_json_option(parser)


_CHECK = (
    "Judge what a session kept of its tests once more: by the goldens as they are here, or by other "
    "tolerances. Without options every test has the verdict of its run. Exit 0: within tolerance; 1: a "
    "difference; 2: a test that could not be judged, or results that cannot be read, after printing the rest."
)


def _check(parser: argparse.ArgumentParser) -> None:
    parser.description = _CHECK
    parser.set_defaults(work="check.command:run")
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the folder of a session's results")
    add_place_options(parser)
    parser.add_argument("--preset", default="", help="a tolerance preset in place of each test's")
    parser.add_argument(
        "--numerics",
        choices=NUMERICS,
        default="",
        help="which bounds the preset 'default' stands for, in place of what decided in each run",
    )
    parser.add_argument(
        "--tolerances",
        type=Path,
        metavar="FILE",
        help="YAML file of tolerance rules, in place of that of the runs; rules of a marker stay",
    )
    add_what_if_option(parser)
    parser.add_argument(
        "--expect",
        metavar="TESTS",
        help="a number, or a file with a test a line, as pytest --collect-only -q prints them: exit 2 where "
        "fewer tests were compared, or not all of these",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show every failing tensor of each test")
    add_json_option(parser)


_REPORT = (
    "Write what a session kept of its tests as a page: index.html in the folder DIR, one file that needs no "
    "network. Tensors are judged by the goldens as they are here; what the second run of a failing test "
    "showed is read from the dumps, where they still are. Exit 0: written, whatever the tests came to; 2: "
    "results that cannot be read, after writing the rest."
)


def _report(parser: argparse.ArgumentParser) -> None:
    parser.description = _REPORT
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the folder of a session's results")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write the page into this folder")
    parser.add_argument(
        "--node-data",
        type=Path,
        metavar="DIR",
        help="write a file a test with which Model Explorer colours the ONNX model by error",
    )
    add_place_options(parser)


_CONVERT = (
    "Write the tensors of a dump as npy (FILE.output.0.npy for each) or safetensors (one for each file of "
    "the dump), in the dump's directories and the host's layout. In npy, types that numpy lacks become the "
    "next wider one: bf16, fp8, hifloat8 and float4 float32, int4 and int2 int8, complex32 complex64. "
    "Exit 0; 2 where something could not be converted, after converting the rest, or where no tensor of the "
    "dump holds data."
)


def _convert(parser: argparse.ArgumentParser) -> None:
    parser.description = _CONVERT
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one file of a dump")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="directory to write to; made if missing",
    )
    parser.add_argument(
        "--to", choices=("npy", "safetensors"), default="npy", help="kind of file; default npy"
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="no conversion: the device's layout, and types that numpy lacks as their bits (bf16 as uint16, "
        "packed and opaque ones as bytes)",
    )
    add_layout_option(parser)
    add_latest_option(parser)
    add_executor_option(parser)


_TOLERANCE = (
    "Say which tolerance each statistic of a golden file has, where it comes from, and how wide it is: in "
    "steps of the tensor's type, and in percent of its magnitude. Without LAYER one line for each rule, with "
    "the tensor it is widest for. Exit 0; 2 where a file cannot be read or a rule matches nothing."
)


def _tolerance(parser: argparse.ArgumentParser) -> None:
    parser.description = _TOLERANCE
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    summary = "which bound each statistic has, and why"
    explain = actions.add_parser("explain", help=summary, description=_TOLERANCE)
    explain.add_argument("golden", type=Path, metavar="GOLDEN", help="a golden file")
    explain.add_argument("layer", nargs="?", default="", metavar="LAYER", help="a layer's name or glob")
    add_tolerance_options(explain)
    explain.add_argument(
        "--results",
        type=Path,
        metavar="RESULTS",
        help="the folder of a session's results: the last run of the golden's test says which operators it "
        "has, for rules that name op_type, and what produced it; without it that is what produced the golden",
    )
    add_json_option(explain)


_REPRO = (
    "Write a folder with the operator that fails, its inputs, and a test that fails for it alone, and run "
    "that test. Exit 0: it fails as it is to, or was not to be run; 1: it passes here; 2: it cannot be made, "
    "or cannot run."
)


def _repro(parser: argparse.ArgumentParser) -> None:
    parser.description = _REPRO
    parser.add_argument(
        "report", type=Path, metavar="RESULT", help="report.json beside a failing test's dumps, or its folder"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="the folder to write: a new one"
    )
    parser.add_argument(
        "--layer",
        default="",
        metavar="LAYER",
        help="the layer, or a tensor's key; default: the first operator that was convicted, else the first "
        "source",
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="ONNX",
        help="the ONNX model that ran, where the report does not know it",
    )
    parser.add_argument(
        "--reduce",
        action="store_true",
        help="look for the smallest piece of the model that still fails, fed with what onnxruntime computes",
    )
    parser.add_argument(
        "--inputs",
        type=Path,
        metavar="NPZ",
        help="with --reduce: the inputs of the whole model, where the second run has not dumped them",
    )
    parser.add_argument(
        "--synthetic",
        action="store_true",
        help="draw inputs and weights, of the same shapes and statistics; nothing is written where the "
        "failure does not survive it",
    )
    parser.add_argument(
        "--no-run", action="store_true", help="do not run the test: another machine has the device"
    )
    parser.add_argument(
        "--runtime", default="", help="what runs it, as --npudump-runtime has it; default: what is found"
    )
    add_json_option(parser)


_OVERFLOW = (
    "Say what the overflow records of a dump (Opdebug.Node_OpDebug..., from dump_debug) report. The layer is "
    "found by the record's stream and task among the dump's files of the same device and model. Exit 0: no "
    "overflow; 1: an overflow; 2: an unreadable or empty input."
)


def _overflow(parser: argparse.ArgumentParser) -> None:
    parser.description = _OVERFLOW
    parser.add_argument("dump", type=Path, metavar="PATH", help="a dump's directory, or one overflow record")
    add_executor_option(parser)
    add_json_option(parser)


_READERS = ("acl", "ge", "torchair", "mindspore")
_SHOWN = ("acl", "mindspore", "torchair")
_DEVICES = ("Ascend", "CPU", "GPU")


def _config(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="say whether a configuration is accepted, and what it does",
        description="Exit status: 0 accepted, 1 refused, 2 wrong usage.",
    )
    check.set_defaults(work="config:check")
    _configure_check(check)
    show = actions.add_parser(
        "show",
        help="print the file that configures a test's dump",
        description="Exit status: 0 printed, 1 refused, 2 there is no such test.",
    )
    show.set_defaults(work="config:show")
    _configure_show(show)


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="acl.json, options for TorchAir, or data_dump.json"
    )
    parser.add_argument(
        "--for",
        dest="target",
        choices=_READERS,
        default="acl",
        help="who will read it (default: acl); for torchair FILE is an object of dump_config options",
    )
    parser.add_argument(
        "--cann",
        type=_version,
        metavar="VERSION",
        help="rules of this CANN release (default: the installed one, else 9.1.0)",
    )
    parser.add_argument("--soc", default="", metavar="NAME", help="chip the file is for, such as Ascend910B3")
    parser.add_argument(
        "--device",
        choices=_DEVICES,
        default="Ascend",
        help="device_target, for mindspore (default: Ascend)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "test",
        nargs="?",
        metavar="NODEID",
        help="test/file.py::test_name, as pytest takes it; without one, the only marked test there is",
    )
    parser.add_argument(
        "--for",
        dest="target",
        choices=_SHOWN,
        help="who will read it: an acl.json, a data_dump.json for mindspore, or the dump_config options that "
        "npu_dump.torchair_config() sets (default: mindspore where the project's runtime is that, else acl)",
    )
    parser.add_argument(
        "--device",
        choices=_DEVICES,
        default="Ascend",
        help="device_target whose rules count, for mindspore (default: Ascend)",
    )


def _version(text: str) -> str:
    from pytest_npudump.config.cann import profile_for  # noqa: PLC0415 - only for this command

    try:
        profile_for(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


_DOCTOR = (
    "Say what is installed (CANN, driver, SoC, torch_npu, TorchAir, MindSpore), which runtimes work, whether "
    "pytest insists on this plugin, and whether a dump can be written here. Exit status: 0 at least one "
    "runtime works and a dump can be written, 1 otherwise, 2 wrong usage, or a pytest configuration that "
    "cannot be read."
)


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = _DOCTOR
    parser.add_argument(
        "--dump-dir",
        type=Path,
        metavar="DIR",
        help="folder that dumps go to, as for --npudump-dump-dir; default where tests run here would dump",
    )
    add_json_option(parser)


def _init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(), metavar="DIR", help="the repository; default: here"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("npudump-demo"),
        metavar="DIR",
        help="folder for the project, new or empty; default npudump-demo",
    )


CONFIGURE: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "ls": _ls,
    "stats": _stats,
    "compare": _compare,
    "check": _check,
    "report": _report,
    "convert": _convert,
    "tolerance": _tolerance,
    "golden": _golden,
    "repro": _repro,
    "overflow": _overflow,
    "config": _config,
    "doctor": _doctor,
    "init": _init,
    "demo": _demo,
}
"""By command: what adds its arguments, and names the function that works where that is not ``run``."""
