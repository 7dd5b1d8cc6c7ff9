"""A table of what each command takes, and the help of that. Imports nothing that work needs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.cli.common.output import output_name
from pytest_npudump.errors import ConfigError
from pytest_npudump.report.media import MEDIA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.cli.common.spoken_parser import SpokenParser


class Argument(NamedTuple):
    """Names and options of an argument, as ``add_argument`` takes them."""

    names: tuple[str, ...]
    options: Mapping[str, Any]


class Verb(NamedTuple):
    """A command, or a verb of one.

    Attributes:
        description: what its help begins with; "" for its summary.
        arguments: what it takes.
        verbs: those below it.
        summary: its line in the help of the command it is a verb of.
        work: module and function; "" for ``run`` of the command's module.
        dest: what the verbs below it are called.
        renamed: names of an earlier release, by what they are called now; "" for nothing.
    """

    description: str
    arguments: tuple[Argument, ...] = ()
    verbs: Mapping[str, Verb] = {}
    summary: str = ""
    work: str = ""
    dest: str = "action"
    renamed: Mapping[str, str] = {}


def configure(parser: SpokenParser, verb: Verb) -> None:
    """Add a command's arguments and verbs."""
    if verb.description:
        parser.description = verb.description
    if verb.work:
        parser.set_defaults(work=verb.work)
    parser.renamed = verb.renamed
    for names, options in verb.arguments:
        parser.add_argument(*names, **options)
    if not verb.verbs:
        return
    below = parser.add_subparsers(dest=verb.dest, required=True, metavar=verb.dest.upper())
    for name, one in verb.verbs.items():
        configure(below.add_parser(name, help=one.summary), one)


def _of(names: str, words: str, **options: Any) -> Argument:
    return Argument(tuple(names.split()), {"help": words, **options})


def _flag(names: str, words: str) -> Argument:
    return _of(names, words, action="store_true")


def _text(names: str, metavar: str, words: str, **options: Any) -> Argument:
    return _of(names, words, metavar=metavar, default="", **options)


def _path(names: str, metavar: str, words: str, **options: Any) -> Argument:
    return _of(names, words, metavar=metavar, type=Path, **options)


def _list(names: str, metavar: str, words: str, **options: Any) -> Argument:
    return _of(names, words, metavar=metavar, action="append", default=[], **options)


def _version(text: str) -> str:
    from pytest_npudump.config.cann import profile_for  # noqa: PLC0415 - only for this command

    try:
        profile_for(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


LAYOUTS = ("ND", *("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "NCL", "CN", "NC"))
"""Host layouts, as :mod:`pytest_npudump.dump.arrays.layouts` knows them, which needs numpy."""
_DEVICES = ("Ascend", "CPU", "GPU")
_JSON = _of("--json", "write the result as JSON; - for standard output", metavar="FILE", type=output_name)
_EXECUTOR = _of(
    "--executor",
    "executor: threads[:N] (default; N: number of cores), processes[:N], serial, or dask:ADDRESS, a Dask "
    "scheduler whose workers see the same files",
    metavar="WHERE",
    default="threads",
)
_LATEST = _flag("--latest", "use the last of several runs in a directory")
_BIN = _text(
    "--bin",
    "DTYPE:SHAPE",
    "type and shape of the elements in .bin files without a header, such as float16:1x3x224x224",
)
_LAYOUT = _of(
    "--layout",
    "host layout to convert to: ND (default: host layouts stay, device layouts that split C become NCHW or "
    "NCDHW), NCHW, NHWC, HWCN, CHWN, NCDHW, NDHWC, DHWCN, DHWNC, NCL, CN, NC. The axes of the dump's "
    "original shape are taken to be in this order",
    choices=LAYOUTS,
    default="ND",
    metavar="LAYOUT",
)
_PLACES = (
    _path(
        "--root",
        "DIR",
        "rootdir of the repository; default: the nearest folder, upwards, with a test of the results",
    ),
    _path("--golden-dir", "DIR", "folder of other goldens, laid out like npudump_golden_dir"),
)
_PRESET = _of(
    "--preset",
    "tolerance preset: default, same, other, hf32, exact, torch, ...; default means same, for saved results "
    "the preset that fits their environments",
)
_FACTS = _list(
    "--producer",
    "FACT=VALUE",
    "fact of the environment, such as soc=Ascend910B3, for rules that name a producer; may be repeated",
)
_GONE = {"--numerics": "--preset", "--what-if": "--preset or --tolerances"}
_RESULTS = "default: the last session's, in pytest's cache or npudump_output, here or in a folder above"
_SESSION = _path("results", "RESULTS", f"output folder of a session, or its results; {_RESULTS}", nargs="?")
_NAMED_RESULTS = _path("--results", "DIR", f"output folder of a session, or its results; {_RESULTS}")
_GOLDENS = _path(
    "paths",
    "PATH",
    "golden files, or folders; default: npudump_golden_dir of pytest's configuration, else golden",
    nargs="*",
)
_VARIANTS = _list(
    "--variant",
    "NAME",
    "variant in use (as in npudump_golden_variant or in its file name); may be repeated; other variants are "
    "stale unless a common golden names them; default: no variant is stale",
)
_VARIANT_FILES = _path("variants", "VARIANT", "variant file: test@NAME.yaml", nargs="+")
_TESTS = (
    _of("tests", "node ids, files, or globs; default: all pending runs", metavar="TEST", nargs="*"),
    _NAMED_RESULTS,
    *_PLACES,
)
_LAYERS = _list(
    "--layers", "PATTERN", "layer, glob, or key of a tensor; may be repeated; default: all layers"
)
_APPROVAL = (
    _text("--reason", "TEXT", "reason, stored in the golden"),
    _flag("--allow-in-ci", "allow accepting in CI"),
)
_ALLOWED = {"--allow-update-in-ci": "--allow-in-ci"}
_GOLDEN_VERBS = {
    "review": Verb(
        "Review pending runs one by one, the largest change first: a accept, r reject, s skip; A, R, S all "
        "remaining; l accept some layers; w show the cause and all mismatches; q quit. Exit codes: 0 nothing "
        "is pending any more; 1 some runs are; 2 a run cannot be accepted, or results cannot be read.",
        (*_TESTS, *_APPROVAL),
        summary="review pending runs one by one",
        work="golden.pending:review",
        renamed=_ALLOWED,
    ),
    "accept": Verb(
        "Write pending runs into their golden files, without running the tests again. A run cannot be "
        "accepted if it was incomplete, if its golden or test file changed since, or if it ran on the "
        "emulator and the golden was recorded on a device. Exit codes: 0; 2 a run cannot be accepted, or "
        "results cannot be read.",
        (*_TESTS, _LAYERS, *_APPROVAL),
        summary="write pending runs into their goldens, without running again",
        work="golden.pending:accept_all",
        renamed=_ALLOWED,
    ),
    "reject": Verb(
        "Reject pending runs: their goldens stay as they are. Exit codes: 0; 2 results cannot be read.",
        (*_TESTS,),
        summary="reject pending runs; goldens stay as they are",
        work="golden.pending:reject_all",
    ),
    "diff": Verb(
        "List the runs pending review (mismatches, and tests without a golden), the largest change first, "
        "then the mismatches of each run by layer. Exit codes: 0 nothing is pending; 1 some runs are; 2 "
        "results cannot be read.",
        (*_TESTS, _LAYERS, _JSON),
        summary="list pending runs and their mismatches",
        work="golden.pending:diff",
    ),
    "show": Verb(
        "Show the number of tensors of a golden file, its recording environment, and whether its runs were "
        "deterministic. Exit codes: 0; 2 a file cannot be read, or a rule matches nothing.",
        (
            _path("golden", "GOLDEN", "golden file, or the test that it is of: test_a.py::test_b"),
            _text(
                "layer",
                "LAYER",
                "with --tolerances: layer name or glob; without it, one line per rule, "
                "for the tensor with the widest tolerance",
                nargs="?",
            ),
            _of(
                "--tolerances",
                "show the tolerance of each statistic, its rule, and its width in steps of the tensor's "
                "type and in percent of the tensor; FILE: YAML file of rules",
                metavar="FILE",
                nargs="?",
                const="",
            ),
            _PRESET,
            _FACTS,
            _path(
                "--results",
                "DIR",
                "with --tolerances: output folder of a session: for rules with op_type, and the "
                "environment of the test's last run; default: the recording environment",
            ),
            _JSON,
        ),
        summary="show a golden's environment and tolerances",
        work="golden.show:run",
        renamed={"--noise": "--tolerances"},
    ),
    "status": Verb(
        "Check the goldens of the tests that pytest collects here: invalid files, stale goldens (without a "
        "test), runs pending review, golden tensors missing from the store, tolerance rules that match "
        "nothing. Exit codes: 0 nothing to do; 1 something to do; 2 something cannot be read, collected or "
        "reached.",
        (
            _GOLDENS,
            _flag("--no-collect", "check golden files only, without tests, results and store"),
            _VARIANTS,
            _flag(
                "--prune",
                "list stale files; with --yes remove them",
            ),
            _flag("--yes", "with --prune: remove"),
            _flag("-v --verbose", "list every golden with its test"),
            _NAMED_RESULTS,
            _path("--root", "DIR", "rootdir of the repository of the results"),
            _JSON,
        ),
        summary="check goldens: stale, invalid, pending, not in the store; --prune --yes removes stale ones",
        work="golden.status:run",
    ),
    "log": Verb(
        "Show a golden's history from git, the latest commit first: date, author, reason and "
        "changes per tensor. Exit codes: 0; 2 the file is not in git.",
        (
            _path("golden", "GOLDEN", "golden file, or the test that it is of: test_a.py::test_b"),
            _of("layer", "layer name or glob; default: all", metavar="LAYER", nargs="?"),
            _of(
                "-n --limit", "maximum number of lines per commit (default 20; 0: all)", type=int, default=20
            ),
            _JSON,
        ),
        summary="show the history of a golden from git, by layer",
        work="golden.log:run",
    ),
    "merge": Verb(
        "Merge two versions of a golden by layer, as git's merge driver: OURS is replaced by the merged "
        "golden. Tensors changed in both versions get conflict markers. Exit codes: 0; 1 conflicts; 2 a "
        "file cannot be read or written.",
        (
            _path("base", "BASE", "common ancestor (git's %%O)"),
            _path("ours", "OURS", "our version, which is replaced (%%A)"),
            _path("theirs", "THEIRS", "their version (%%B)"),
            _path("name", "NAME", "path for messages (%%P)", nargs="?"),
        ),
        summary="merge two versions of a golden (git's merge driver)",
        work="golden.plumbing:merge_files",
    ),
    "split": Verb(
        "Store variants as differences from the common golden beside them, which lists each for runs of its "
        "SoC, CANN release or runtime. Exit codes: 0; 2 a variant cannot be split.",
        (
            _VARIANT_FILES,
            _of(
                "--by",
                "fact that selects the variant; may be repeated; default: the first that differs from the "
                "common golden",
                action="append",
                default=[],
                choices=("soc", "cann", "runtime"),
            ),
        ),
        summary="store a variant as differences from the common golden",
        work="golden.plumbing:split_all",
    ),
    "fold": Verb(
        "Remove variants: their runs are compared with the common golden from then on. Exit codes: 0; 1 a "
        "variant differs, and needs --yes; 2 a variant cannot be removed.",
        (
            _VARIANT_FILES,
            _flag("--whole", "keep the variant as a complete golden instead"),
            _flag("--yes", "also remove variants that differ from the common golden"),
        ),
        summary="remove a variant",
        work="golden.plumbing:fold_all",
    ),
    "remote": Verb(
        "Manage golden tensors in a store (npudump_tensor_store). push: upload cached tensors that are "
        "missing. pull: cache all tensors. Exit codes: 0; 1 a tensor could not be transferred; 2 a golden "
        "cannot be read, or no store is configured.",
        (
            _of(
                "action",
                "push or pull",
                metavar="ACTION",
                choices=("push", "pull"),
            ),
            _GOLDENS,
            _text("--store", "URL", "store; default: npudump_tensor_store"),
            _text("--cache", "DIR", "folder of the cache; default: npudump_tensor_cache"),
            _flag("--replace", "push: also tensors that are stored, such as damaged ones"),
        ),
        summary="manage golden tensors in a store",
        work="golden.plumbing:remote",
    ),
    "init": Verb(
        "Add lines to .gitattributes of this folder: goldens are merged by npudump golden merge, and with "
        "--lfs golden tensors are kept by Git LFS. Exit code: 0.",
        (
            _flag("--lfs", "keep golden tensors by Git LFS"),
            _path(
                "--golden-dir",
                "DIR",
                "folder of goldens; default: npudump_golden_dir of pytest's configuration, else golden",
            ),
        ),
        summary="add the lines for goldens to .gitattributes",
        work="golden.plumbing:init",
    ),
}

VERBS: Mapping[str, Verb] = {
    "ls": Verb(
        "List the tensors of a dump in execution order, and its overflow records with the layer of their "
        "stream and task. Exit codes: 0; 1 an overflow; 2 a file cannot be read (the others are listed).",
        (
            _path("dump", "TREE", "directory of a dump, or one file of a dump"),
            _flag(
                "--stats",
                "print the statistics of each tensor: those of the dump, else computed from the tensors",
            ),
            _flag(
                "--acl",
                "compute statistics as ACL does on the device: max and min are NaN where the first element "
                "is, and types without statistics there (bf16, fp8, int4, complex and others) have none",
            ),
            _flag(
                "--projections",
                "add projections: eight sums of the elements of each tensor with fixed random signs, which "
                "detect reordered and single elements",
            ),
            _LATEST,
            _BIN,
            _EXECUTOR,
            _JSON,
        ),
    ),
    "compare": Verb(
        "Compare two dumps, a golden file and a dump, an ONNX model and a dump, or two folders of saved "
        "results. Statistics are always compared; elements, too, where both sides have the tensor: none may "
        "be out of the tolerance of max and min, and the relative L2 error may not exceed rtol. Exit codes: "
        "0 within tolerance; 1 a mismatch; 2 an input is unreadable or empty, or nothing could be compared.",
        (
            _path(
                "golden",
                "GOLDEN",
                "golden file, dump, ONNX model (computed by onnxruntime), or saved results",
            ),
            _path("actual", "ACTUAL", "directory of a dump, one file of a dump, or saved results"),
            _PRESET,
            _path("--tolerances", "FILE", "YAML file of tolerance rules"),
            _FACTS,
            _of("--rtol", "relative tolerance of floating-point values", type=float),
            _of("--atol", "absolute tolerance of floating-point values", type=float),
            _flag("-v --verbose", "list every mismatching tensor"),
            _path(
                "--inputs",
                "FILE.npz",
                "inputs of the ONNX model, one array per input; once per execution in the dump",
                action="append",
            ),
            _path(
                "--map", "FILE", "YAML file of layer names that differ in GOLDEN, and of layouts across ranks"
            ),
            _path(
                "--suggest",
                "FILE",
                "write lines for --map: layers of one side that may be those of the other",
            ),
            _path(
                "--plots",
                "DIR",
                "write pictures into this folder: run.svg (every tensor by error and tolerance) and "
                "tensor-N.svg (the first mismatching tensors with elements on both sides)",
            ),
            _LATEST,
            _BIN,
            _LAYOUT,
            _EXECUTOR,
            _JSON,
        ),
        renamed=_GONE,
    ),
    "check": Verb(
        "Compare a session's saved results again, without running: with the goldens as they are now, or "
        "with other tolerances. Exit codes: 0 within tolerance; 1 a mismatch; 2 a test could not be "
        "compared, or results cannot be read (the rest is printed).",
        (
            _SESSION,
            *_PLACES,
            _of(
                "--preset",
                "tolerance preset for all tests; default means same, other or hf32, whichever fits the "
                "environments of golden and run",
                default="",
            ),
            _path(
                "--tolerances",
                "FILE",
                "YAML file of tolerance rules, instead of the session's; rules of markers stay",
            ),
            _of(
                "--expect",
                "number of tests, or a file with one test per line as printed by pytest --collect-only -q: "
                "exit 2 if fewer tests, or not all of these, were compared",
                metavar="TESTS",
            ),
            _flag("-v --verbose", "show every mismatching tensor of each test"),
            _JSON,
        ),
        renamed=_GONE,
    ),
    "report": Verb(
        "Write reports of a session's saved results. Tensors are compared with the goldens as they are now; "
        "findings of second runs are read from the dumps, if these still exist. Exit codes: 0 written, also "
        "with failed tests; 2 results cannot be read (the rest is written).",
        (_SESSION, *(_path(medium.flags, "DIR", medium.help) for medium in MEDIA), *_PLACES),
    ),
    "convert": Verb(
        "Write the tensors of a dump as npy (FILE.output.0.npy each) or safetensors (one per file of the "
        "dump), in the directories of the dump and the host's layout. In npy, types that numpy lacks become "
        "wider: bf16, fp8, hifloat8 and float4 become float32, int4 and int2 int8, complex32 complex64. "
        "Exit codes: 0; 2 something could not be converted (the rest is), or no tensor has data.",
        (
            _path("dump", "PATH", "directory of a dump, or one file of a dump"),
            _path("-o --output", "OUT", "directory to write to; created if missing", required=True),
            _of("--to", "kind of file; default npy", choices=("npy", "safetensors"), default="npy"),
            _flag(
                "--raw",
                "do not convert: keep the device's layout, and write types that numpy lacks as bits (bf16 "
                "as uint16, packed types as bytes)",
            ),
            _LAYOUT,
            _LATEST,
            _BIN,
            _EXECUTOR,
        ),
    ),
    "golden": Verb(
        "Review, accept and inspect golden files.",
        verbs=_GOLDEN_VERBS,
        dest="verb",
        renamed={
            "approve": "npudump golden accept",
            "pending": "npudump golden diff",
            "list": "npudump golden status -v",
            "stale": "npudump golden status",
            "prune": "npudump golden status --prune",
            "verify": "npudump golden status --no-collect",
        },
    ),
    "repro": Verb(
        "Write a folder with the failing operator, its inputs, and a test that reproduces the failure, and "
        "run the test. Exit codes: 0 the failure is reproduced (or --no-run); 1 the test passes here; 2 the "
        "folder cannot be written, or the test cannot run.",
        (
            _path(
                "report",
                "RESULT",
                "report.json of a failing test, its folder, or a session's output folder with one failure; "
                "default: the last session's",
                nargs="?",
            ),
            _path(
                "-o --output",
                "DIR",
                "folder to create; default: npudump-repro",
                default=Path("npudump-repro"),
            ),
            _text(
                "--layer",
                "LAYER",
                "layer, or key of a tensor; default: the first operator with a kernel error, else the first "
                "source",
            ),
            _path("--model", "ONNX", "ONNX model that ran; default: as in the report"),
            _flag(
                "--synthetic",
                "replace inputs and weights by random values of the same shapes and statistics; writes "
                "nothing if the failure disappears",
            ),
            _flag("--no-run", "do not run the test"),
            _of("--runtime", "runtime of the test, as in --npudump-runtime; default: auto", default=""),
            _JSON,
        ),
        renamed={"--reduce": "", "--inputs": ""},
    ),
    "config": Verb(
        "",
        verbs={
            "check": Verb(
                "Exit codes: 0 accepted; 1 refused; 2 wrong usage.",
                (
                    _path("file", "FILE", "acl.json, options for TorchAir, or data_dump.json"),
                    _of(
                        "--for",
                        "reader of the file (default: acl); for torchair FILE is an object of dump_config "
                        "options",
                        dest="target",
                        choices=("acl", "ge", "torchair", "mindspore"),
                        default="acl",
                    ),
                    _of(
                        "--cann",
                        "rules of this CANN release (default: the installed one, else 9.1.0)",
                        metavar="VERSION",
                        type=_version,
                    ),
                    _text("--soc", "NAME", "chip, such as Ascend910B3"),
                    _of(
                        "--device",
                        "device_target, for mindspore (default: Ascend)",
                        choices=_DEVICES,
                        default="Ascend",
                    ),
                    _flag("--json", "print one JSON object"),
                ),
                summary="check whether a configuration is accepted, and show what it does",
                work="config:check",
            ),
            "show": Verb(
                "Exit codes: 0 printed; 1 refused; 2 there is no such test.",
                (
                    _of(
                        "test",
                        "node id, such as test/file.py::test_name; default: the only marked test",
                        metavar="NODEID",
                        nargs="?",
                    ),
                    _of(
                        "--for",
                        "reader of the file: acl.json, data_dump.json for mindspore, or the dump_config "
                        "options of npu_dump.torchair_config() (default: mindspore if that is the project's "
                        "runtime, else acl)",
                        dest="target",
                        choices=("acl", "mindspore", "torchair"),
                    ),
                    _of(
                        "--device",
                        "device_target, for mindspore (default: Ascend)",
                        choices=_DEVICES,
                        default="Ascend",
                    ),
                ),
                summary="print the file that configures a test's dump",
                work="config:show",
            ),
        },
    ),
    "doctor": Verb(
        "Show what is installed (CANN, driver, SoC, torch_npu, TorchAir, MindSpore), which runtimes work, "
        "whether pytest requires this plugin, and whether a dump can be written here. Exit codes: 0 a "
        "runtime works and a dump can be written; 1 otherwise; 2 wrong usage, or pytest's configuration "
        "cannot be read.",
        (_path("--dump-dir", "DIR", "folder for the dump; default: where tests here would dump"), _JSON),
    ),
    "init": Verb(
        "",
        (
            _path(
                "place",
                "DIR|MODEL",
                "repository, or a model to test in this one; default: the current folder",
                nargs="?",
                default=Path(),
            ),
            _flag("--dry-run", "show what would be written, and write nothing"),
        ),
    ),
    "demo": Verb(
        "",
        (
            _path(
                "folder",
                "DIR",
                "folder for the project, new or empty; default: npudump-demo",
                nargs="?",
                default=Path("npudump-demo"),
            ),
        ),
    ),
}
"""By command."""
