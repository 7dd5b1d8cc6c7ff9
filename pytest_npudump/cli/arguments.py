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
        plumbing: whether git and scripts call it, so that a help lists it apart.
        renamed: names of an earlier release, by what they are called now.
    """

    description: str
    arguments: tuple[Argument, ...] = ()
    verbs: Mapping[str, Verb] = {}
    summary: str = ""
    work: str = ""
    dest: str = "action"
    plumbing: bool = False
    renamed: Mapping[str, str] = {}


def configure(parser: SpokenParser, verb: Verb) -> None:
    """Add what a command takes, and its verbs."""
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
    apart = []
    for name, one in verb.verbs.items():
        if one.plumbing:
            configure(below.add_parser(name), one)
            apart.append(argparse.Action([], name, metavar=name, help=one.summary))
        else:
            configure(below.add_parser(name, help=one.summary), one)
    if apart:
        group = parser.add_argument_group("plumbing, which git and scripts call")
        group._group_actions += apart  # noqa: SLF001 - argparse itself lists verbs in one group only


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


LAYOUTS = (
    "ND",
    *("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "NCL", "CN", "NC"),
)
"""Host layouts, as :mod:`pytest_npudump.dump.arrays.layouts` knows them, which needs numpy."""
_DEVICES = ("Ascend", "CPU", "GPU")
_JSON = _of("--json", "write the result as JSON; - for standard output", metavar="FILE", type=output_name)
_EXECUTOR = _of(
    "--executor",
    "where the work is done: threads[:N] (default; N: number of cores), processes[:N], "
    "serial, or dask:ADDRESS, a Dask scheduler whose workers see the same files",
    metavar="WHERE",
    default="threads",
)
_LATEST = _flag("--latest", "of several runs in a directory take the last")
_LAYOUT = _of(
    "--layout",
    "host layout to convert to; ND, the default, leaves host layouts as they are and "
    "makes NCHW (or NCDHW) of device layouts that split C. The header of a dump does not "
    "tell the order of the original shape's axes: it is taken to be that of the layout "
    "given here",
    choices=LAYOUTS,
    default="ND",
)
_PLACES = (
    _path(
        "--root",
        "DIR",
        "the repository's root, as pytest's rootdir; default: the nearest folder, upwards, in "
        "which a test of the results lies",
    ),
    _path("--golden-dir", "DIR", "other goldens: a folder laid out like that of the runs"),
)
_PRESET = _of(
    "--preset",
    "tolerance preset: default, same, other, hf32, exact, torch, ...; default is same, but for saved "
    "results, where it is the one that fits what produced the two",
)
_FACTS = _list(
    "--producer",
    "FACT=VALUE",
    "what is known of the run, such as soc=Ascend910B3, for rules that name a producer; repeatable",
)
_NUMERICS = {"--numerics": "--preset"}
_WHAT_IF = _list(
    "--what-if",
    "PRESET",
    "say what other tolerances, a preset or a YAML file of rules, would have missed or "
    "caught; may be given several times, and decides nothing",
)
_RESULTS = "default: the last session's, in pytest's cache or npudump_output, here or in a folder above"
_SESSION = _path("results", "RESULTS", f"a session's output folder, or its results; {_RESULTS}", nargs="?")
_NAMED_RESULTS = _path("--results", "DIR", f"a session's output folder, or its results; {_RESULTS}")
_GOLDENS = _path(
    "paths",
    "PATH",
    "golden files, and folders of them; default: as pytest's configuration says, else golden",
    nargs="*",
)
_VARIANTS = _list(
    "--variant",
    "NAME",
    "a variant that runs select, as npudump_golden_variant takes it or its file spells "
    "it; may be repeated: files of all others are stale, but those that a common golden "
    "names; without it no variant is",
)
_VARIANT_FILES = _path("variants", "VARIANT", "files of variants: test@NAME.yaml", nargs="+")
_TESTS = (
    _of("tests", "node ids, files or globs of them; default: all that wait", metavar="TEST", nargs="*"),
    _NAMED_RESULTS,
    *_PLACES,
)
_LAYERS = _list("--layers", "PATTERN", "only these layers; may be repeated")
_APPROVAL = (_text("--reason", "TEXT", "why, kept in the golden"), _flag("--allow-in-ci", "accept in CI"))
_GOLDEN_VERBS = {
    "review": Verb(
        "Go through the waiting runs one by one, the largest change first, and decide about each: a "
        "accept, r reject, s skip; A, R and S for it and all that follow; l accept some layers; w why: "
        "show all that differs; q quit. A key decides on a terminal, a line elsewhere. Exit 0: no run "
        "waits any more; 1: some do; 2: one was refused, or results cannot be read.",
        (*_TESTS, *_APPROVAL),
        summary="decide about these runs one by one",
        work="golden.waiting:review",
    ),
    "accept": Verb(
        "Write the golden of each waiting run from what was kept of it, without running again. "
        "Refused where the run was not complete, where its golden or its test's file has changed "
        "since, and where the run is the emulator's and the golden a device's. Exit 0; 2 where one "
        "was refused, or results cannot be read.",
        (*_TESTS, _LAYERS, *_APPROVAL),
        summary="make these runs the goldens, without running again",
        work="golden.waiting:accept_all",
    ),
    "reject": Verb(
        "Take waiting runs off the list; their goldens stay, and the next runs are judged by them.",
        (*_TESTS,),
        summary="keep the goldens, and take these runs off the list",
        work="golden.waiting:reject_all",
    ),
    "diff": Verb(
        "List the runs that differ from their goldens, or have none, and wait for a decision, the "
        "largest change first; then show of each what differs, layer by layer, and by how much. Exit 0: "
        "there are none; 1: there are; 2: results that cannot be read.",
        (*_TESTS, _LAYERS, _JSON),
        summary="the runs that wait for a decision, and what differs in them",
        work="golden.waiting:diff",
    ),
    "show": Verb(
        "Say how many tensors a golden file has, which run recorded it, and whether it repeats. With "
        "--noise: the tensors whose measured noise makes their bounds widest, and those that these "
        "bounds let pass whatever they hold. With --tolerances: which tolerance each statistic has, where "
        "it comes from, and how wide it is, in steps of the tensor's type and in percent of its "
        "magnitude; without LAYER one line for each rule, with the tensor it is widest for. Exit 0; 2 "
        "where a file cannot be read or a rule matches nothing.",
        (
            _path("golden", "GOLDEN", "a golden file"),
            _text("layer", "LAYER", "with --tolerances: a layer's name or glob", nargs="?"),
            _flag("--noise", "the widest bounds that were measured"),
            _of("-n --limit", "most tensors shown (default 20; 0: all)", type=int, default=20),
            _of(
                "--tolerances",
                "the tolerance of each statistic, by the rules of this YAML file where one is named",
                metavar="FILE",
                nargs="?",
                const="",
            ),
            _PRESET,
            _FACTS,
            _path(
                "--results",
                "RESULTS",
                "with --tolerances: a session's results, whose last run of the golden's test says which "
                "operators it has, for rules that name op_type, and what produced it; without it that is "
                "what produced the golden",
            ),
            _JSON,
        ),
        summary="what a golden says of its origin, its noise and its tolerances",
        work="golden.show:run",
    ),
    "status": Verb(
        "Say how the goldens stand: which cannot be read or do not belong to the tensors beside them, "
        "which no test has, which runs wait for a decision, which tensors the store lacks, and which "
        "rules of tolerances match nothing. The tests of this folder are collected for it, as pytest "
        "does. Exit 0: all is well; 1: there is something to do; 2: something cannot be read, collected "
        "or asked, so that it is not known.",
        (
            _GOLDENS,
            _flag(
                "--no-collect",
                "look at the files of goldens alone: collect no test, read no results, ask no store",
            ),
            _VARIANTS,
            _flag("--prune", "remove the files that no test has, goldens before their tensors"),
            _flag("--yes", "with --prune: remove them; without it they are listed"),
            _flag("-v --verbose", "list every golden, with the test that has it"),
            _NAMED_RESULTS,
            _path("--root", "DIR", "the repository's root, for results of another one"),
            _JSON,
        ),
        summary="what is there, stale, broken, waiting, or not in the store; --prune removes what is stale",
        work="golden.status:run",
    ),
    "log": Verb(
        "Tell a golden's history from git, the latest first: commit, date, author, reason, and what "
        "changed, tensor by tensor. Exit 0; 2 where git does not know the file.",
        (
            _path("golden", "GOLDEN", "a golden file"),
            _of("layer", "a layer's name or glob; default: all", metavar="LAYER", nargs="?"),
            _of("-n --limit", "most lines of a revision (default 20; 0: all)", type=int, default=20),
            _JSON,
        ),
        summary="a golden's history from git, layer by layer",
        work="golden.log:run",
    ),
    "merge": Verb(
        "Join two approvals of a golden that touch different layers, as git's merge driver: OURS "
        "becomes the joined golden. What both have changed has conflict markers around it. Exit 0; 1 "
        "where there are conflicts; 2 where a file cannot be read or written.",
        (
            _path("base", "BASE", "the golden that both were made of (git's %%O)"),
            _path("ours", "OURS", "our golden, which is replaced (%%A)"),
            _path("theirs", "THEIRS", "their golden (%%B)"),
            _path("name", "NAME", "its name in messages (%%P)", nargs="?"),
        ),
        summary="join two approvals of a golden, as git's merge driver",
        plumbing=True,
        work="golden.plumbing:merge_files",
    ),
    "split": Verb(
        "Write variants as what differs from the common golden beside them, which names each for the "
        "runs that it counts for: those of its SoC, CANN release or runtime. Exit 0; 2 where one "
        "cannot be split.",
        (
            _VARIANT_FILES,
            _of(
                "--by",
                "the fact by which it is chosen; may be repeated; default: the first in which it and "
                "the common golden were produced differently",
                action="append",
                default=[],
                choices=("soc", "cann", "runtime"),
            ),
        ),
        summary="write a variant as what differs from the common golden",
        plumbing=True,
        work="golden.plumbing:split_all",
    ),
    "fold": Verb(
        "Take variants back: their files are removed, and their runs are compared with the common "
        "golden. Where tensors differ, only with --yes. With --whole a variant stays, written as a "
        "golden of its own. Exit 0; 1 where one waits for --yes; 2 where one cannot be taken back.",
        (
            _VARIANT_FILES,
            _flag("--whole", "write it whole, and keep it"),
            _flag("--yes", "remove it although its tensors differ"),
        ),
        summary="take a variant back",
        plumbing=True,
        work="golden.plumbing:fold_all",
    ),
    "remote": Verb(
        "Golden tensors in a store (npudump_tensor_store of pytest's ini file). status: which of "
        "those that goldens name are there, and cached here. push: put cached ones there that are "
        "lacking. pull: cache all, for work without the store. move: put tensors that lie beside "
        "goldens there, and name them in these. Exit 0; 1 where something is not where it is to be; 2 "
        "where a golden cannot be read, or there is no store.",
        (
            _of(
                "action",
                "what to do: status, push, pull, move, clear",
                metavar="ACTION",
                choices=("status", "push", "pull", "move", "clear"),
            ),
            _GOLDENS,
            _text("--store", "URL", "the store, whatever pytest's ini file says"),
            _text("--cache", "DIR", "the folder of the cache, the same"),
            _flag("--verify", "status: read all of each tensor, here and there, for its hash"),
            _flag("--replace", "push: also what is there, as damaged"),
            _JSON,
        ),
        summary="golden tensors in a store: status, push, pull, move, clear",
        plumbing=True,
        work="golden.plumbing:remote",
    ),
    "init": Verb(
        "Tell git, in .gitattributes of this folder, that goldens are merged by npudump golden merge, "
        "and with --lfs that their tensors are kept by Git LFS. Lines that are there stay as they "
        "are. Exit 0.",
        (
            _flag("--lfs", "keep golden tensors by Git LFS"),
            _path(
                "--golden-dir",
                "DIR",
                "the folder of the goldens; default: as pytest's configuration says, else golden",
            ),
        ),
        summary="tell git how goldens are merged and kept",
        plumbing=True,
        work="golden.plumbing:init",
    ),
}

VERBS: Mapping[str, Verb] = {
    "ls": Verb(
        "List the tensors of a dump in execution order, and its overflow records, each with the layer "
        "whose stream and task it names. Values are read with --stats only, which prints what the files "
        "tell of them and computes it from the tensors where they tell nothing. Exit 0; 1: an overflow; 2 "
        "where a file cannot be read, after listing the others.",
        (
            _path("dump", "TREE", "a dump's directory, or one file of a dump"),
            _flag("--stats", "print the statistics of each tensor"),
            _flag(
                "--acl",
                "compute them as ACL does on the device: NaN for max and min where the first element is "
                "NaN, and none for types that it leaves out (bf16, fp8, int4, complex and others)",
            ),
            _flag(
                "--projections",
                "add eight sums of the elements of each tensor under fixed random signs, in which "
                "permuted rows, swapped channels, shifts and single elements show that the other "
                "statistics do not see",
            ),
            _LATEST,
            _EXECUTOR,
            _JSON,
        ),
    ),
    "compare": Verb(
        "Compare two dumps, or a golden file and a dump. Statistics are always compared; where both "
        "sides hold a tensor, its elements are too, in the host's layout, and a tensor passes only if "
        "both agree: no element is farther off than the extremes may be, and the tensor as a vector "
        "(relative_l2) no farther than rtol. Of two folders of kept results each test's statistics "
        "are compared, and what produced them comes first. With an ONNX model in place of GOLDEN the "
        "layers are compared with onnxruntime's. Exit 0: within tolerance; 1: a difference; 2: an "
        "unreadable or empty input, after printing the rest, or no value that could be compared.",
        (
            _path("golden", "GOLDEN", "a golden file, a dump, an ONNX model, or kept results"),
            _path("actual", "ACTUAL", "a dump's directory, one file of a dump, or kept results"),
            _PRESET,
            _path("--tolerances", "FILE", "YAML file of tolerance rules"),
            _FACTS,
            _WHAT_IF,
            _of("--rtol", "relative tolerance of floating-point values", type=float),
            _of("--atol", "absolute tolerance of floating-point values", type=float),
            _flag("-v --verbose", "list every failing tensor"),
            _path(
                "--inputs",
                "FILE.npz",
                "what the ONNX model is given, an array an input; once for each execution in the dump",
                action="append",
            ),
            _path("--map", "FILE", "YAML file of layers that the ONNX model names otherwise"),
            _path(
                "--plots",
                "DIR",
                "write pictures into this folder: run.svg, every tensor by error against tolerance, "
                "and for each of the first failing tensors whose elements both sides hold "
                "tensor-N.svg",
            ),
            _LATEST,
            _LAYOUT,
            _EXECUTOR,
            _JSON,
        ),
        renamed=_NUMERICS,
    ),
    "check": Verb(
        "Judge what a session kept of its tests once more: by the goldens as they are here, or by "
        "other tolerances. Without options every test has the verdict of its run. Exit 0: within "
        "tolerance; 1: a difference; 2: a test that could not be judged, or results that cannot be "
        "read, after printing the rest.",
        (
            _SESSION,
            *_PLACES,
            _of(
                "--preset",
                "a tolerance preset in place of each test's; default is the one of same, other and hf32 that "
                "fits what produced golden and run",
                default="",
            ),
            _path(
                "--tolerances",
                "FILE",
                "YAML file of tolerance rules, in place of that of the runs; rules of a marker stay",
            ),
            _WHAT_IF,
            _of(
                "--expect",
                "a number, or a file with a test a line, as pytest --collect-only -q prints them: "
                "exit 2 where fewer tests were compared, or not all of these",
                metavar="TESTS",
            ),
            _flag("-v --verbose", "show every failing tensor of each test"),
            _JSON,
        ),
        renamed=_NUMERICS,
    ),
    "report": Verb(
        "Write what a session kept of its tests as a page: index.html in the folder DIR, one file "
        "that needs no network. Tensors are judged by the goldens as they are here; what the second "
        "run of a failing test showed is read from the dumps, where they still are. Exit 0: written, "
        "whatever the tests came to; 2: results that cannot be read, after writing the rest.",
        (
            _SESSION,
            *(_path(medium.flags, "DIR", medium.help) for medium in MEDIA),
            *_PLACES,
        ),
    ),
    "convert": Verb(
        "Write the tensors of a dump as npy (FILE.output.0.npy for each) or safetensors (one for each "
        "file of the dump), in the dump's directories and the host's layout. In npy, types that numpy "
        "lacks become the next wider one: bf16, fp8, hifloat8 and float4 float32, int4 and int2 int8, "
        "complex32 complex64. Exit 0; 2 where something could not be converted, after converting the "
        "rest, or where no tensor of the dump holds data.",
        (
            _path("dump", "PATH", "a dump's directory, or one file of a dump"),
            _path("-o --output", "OUT", "directory to write to; made if missing", required=True),
            _of("--to", "kind of file; default npy", choices=("npy", "safetensors"), default="npy"),
            _flag(
                "--raw",
                "no conversion: the device's layout, and types that numpy lacks as their bits (bf16 "
                "as uint16, packed and opaque ones as bytes)",
            ),
            _LAYOUT,
            _LATEST,
            _EXECUTOR,
        ),
    ),
    "golden": Verb(
        "Look at golden files and at what may take their place. Exit 0; 2 where a file cannot be read.",
        verbs=_GOLDEN_VERBS,
        dest="verb",
        renamed={
            "pending": "npudump golden diff",
            "list": "npudump golden status -v",
            "stale": "npudump golden status",
            "prune": "npudump golden status --prune",
            "verify": "npudump golden status --no-collect",
        },
    ),
    "repro": Verb(
        "Write a folder with the operator that fails, its inputs, and a test that fails for it alone, "
        "and run that test. Exit 0: it fails as it is to, or was not to be run; 1: it passes here; 2: "
        "it cannot be made, or cannot run.",
        (
            _path("report", "RESULT", "report.json beside a failing test's dumps, or its folder"),
            _path("-o --output", "DIR", "the folder to write: a new one", required=True),
            _text(
                "--layer",
                "LAYER",
                "the layer, or a tensor's key; default: the first operator that was convicted, else "
                "the first source",
            ),
            _path("--model", "ONNX", "the ONNX model that ran, where the report does not know it"),
            _flag(
                "--reduce",
                "look for the smallest piece of the model that still fails, fed with what onnxruntime "
                "computes",
            ),
            _path(
                "--inputs",
                "NPZ",
                "with --reduce: the inputs of the whole model, where the second run has not dumped them",
            ),
            _flag(
                "--synthetic",
                "draw inputs and weights, of the same shapes and statistics; nothing is written where "
                "the failure does not survive it",
            ),
            _flag("--no-run", "do not run the test: another machine has the device"),
            _of("--runtime", "what runs it, as --npudump-runtime has it; default: what is found", default=""),
            _JSON,
        ),
    ),
    "config": Verb(
        "",
        verbs={
            "check": Verb(
                "Exit status: 0 accepted, 1 refused, 2 wrong usage.",
                (
                    _path("file", "FILE", "acl.json, options for TorchAir, or data_dump.json"),
                    _of(
                        "--for",
                        "who will read it (default: acl); for torchair FILE is an object of dump_config "
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
                    _text("--soc", "NAME", "chip the file is for, such as Ascend910B3"),
                    _of(
                        "--device",
                        "device_target, for mindspore (default: Ascend)",
                        choices=_DEVICES,
                        default="Ascend",
                    ),
                    _flag("--json", "print one JSON object"),
                ),
                summary="say whether a configuration is accepted, and what it does",
                work="config:check",
            ),
            "show": Verb(
                "Exit status: 0 printed, 1 refused, 2 there is no such test.",
                (
                    _of(
                        "test",
                        "test/file.py::test_name, as pytest takes it; without one, the only marked test "
                        "there is",
                        metavar="NODEID",
                        nargs="?",
                    ),
                    _of(
                        "--for",
                        "who will read it: an acl.json, a data_dump.json for mindspore, or the dump_config "
                        "options that npu_dump.torchair_config() sets (default: mindspore where the "
                        "project's runtime is that, else acl)",
                        dest="target",
                        choices=("acl", "mindspore", "torchair"),
                    ),
                    _of(
                        "--device",
                        "device_target whose rules count, for mindspore (default: Ascend)",
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
        "Say what is installed (CANN, driver, SoC, torch_npu, TorchAir, MindSpore), which runtimes "
        "work, whether pytest insists on this plugin, and whether a dump can be written here. Exit "
        "status: 0 at least one runtime works and a dump can be written, 1 otherwise, 2 wrong usage, "
        "or a pytest configuration that cannot be read.",
        (
            _path(
                "--dump-dir",
                "DIR",
                "folder that dumps go to; default: where tests that run here would dump",
            ),
            _JSON,
        ),
    ),
    "init": Verb(
        "",
        (
            _path("folder", "DIR", "the repository; default: here", nargs="?", default=Path()),
            _flag("--dry-run", "say what would be written, and write nothing"),
        ),
    ),
    "demo": Verb(
        "",
        (
            _path(
                "folder",
                "DIR",
                "folder for the project, new or empty; default npudump-demo",
                nargs="?",
                default=Path("npudump-demo"),
            ),
        ),
    ),
}
"""By command."""
