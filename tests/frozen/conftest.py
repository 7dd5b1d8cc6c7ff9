"""Scenarios: all that their commands print and leave, but for what differs from run to run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from safetensors import safe_open

from pytest_npudump.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Step = str | Callable[[Path], object]

TESTS = Path(__file__).parents[1]
EXPECTED = Path(__file__).parent / "expected"
CI_VARIABLES = ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITLAB_CI", "JENKINS_URL", "TF_BUILD")
# What a session leaves that people, CI or later commands read; dumps are looked at through these.
LEFT = re.compile(
    r"^(?!\.pytest_cache/README)(.*/)?(golden/.*|report\.(txt|json)|.*\.md|junit\.xml|index\.html|.*\.jsonl|out\.json|acl\.json|made/.*)$"
)


@pytest.fixture
def frozen(warm: Any, collects: None) -> Iterator[Callable[[str, Sequence[Step]], None]]:
    """Return what holds a scenario to what it printed and left when it was written down.

    Its steps, in an empty folder: a command, ``export NAME=VALUE``, or a change of the folder as a function.
    With the first step ``inexact`` numbers become ``#``: those that depend on the machine's instructions.
    ``NPUDUMP_FROZEN=write`` writes down what it does now.
    """
    del collects  # by commands of this process
    # Where lines break and are cut off depends on the length of paths: 71 characters, as below pytest-xdist.
    place = Path(tempfile.mkdtemp(prefix="frozen-", dir="/tmp"))
    folder = place / "as-long-as-the-folders-that-pytest-makes-for-tests" / "project"
    folder.mkdir(parents=True)

    def hold(name: str, steps: Sequence[Step]) -> None:
        told = _transcript(steps, folder, warm)
        path = EXPECTED / f"{name}.txt"
        expected = _SHORT.sub("~<digest>", path.read_text(encoding="utf-8")) if path.exists() else ""
        if told != expected and os.environ.get("NPUDUMP_FROZEN") == "write":
            path.write_text(told, encoding="utf-8")
            return
        assert told == expected

    yield hold
    shutil.rmtree(place, ignore_errors=True)


def _transcript(steps: Sequence[Step], folder: Path, warm: Any) -> str:
    told: list[str] = []
    before: dict[str, bytes] = {}
    environment = {key: value for key, value in os.environ.items() if key not in CI_VARIABLES}
    environment |= {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p npudump",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
        "TMPDIR": str(folder.parent),
    }
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ, environment, clear=True):
        patch.chdir(folder)
        for step in steps:
            if not isinstance(step, str):
                step(folder)
                before = _left(folder)
                continue
            words = shlex.split(step.replace("{tests}", str(TESTS)))
            if words[0] == "export":
                os.environ.update(word.split("=", 1) for word in words[1:])
                continue
            if words == ["inexact"]:
                continue
            code, printed = _run(words, warm)
            told += [f"$ {step}", printed.rstrip(), f"exit {code}"]
            after = _left(folder)
            told += [f"removed: {name}" for name in before if name not in after]
            for name, content in after.items():
                if before.get(name) != content:
                    told += [f"==== {name}", _shown(folder / name, content)]
            told.append("")
            before = after
    return _normalised("\n".join(told), folder, inexact=steps[0] == "inexact")


def _run(words: list[str], warm: Any) -> tuple[int, str]:
    if words[0] == "npudump":
        printed, errors = io.StringIO(), io.StringIO()
        streams = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors)
        with mock.patch.dict(os.environ), streams[0], streams[1]:
            if "--help" not in words:
                os.environ.pop("COLUMNS", None)  # whole names, as in a pipe
            try:
                code = main(words[1:])
            except SystemExit as exit_:
                code = int(exit_.code or 0)
        return code, printed.getvalue() + errors.getvalue()
    if words[0] == "pytest":
        code, out, err = warm.run("-mpytest", "-q", *words[1:])
        return code, out + err
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout + done.stderr


def _left(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in names.items() if LEFT.search(name)}


def _shown(path: Path, content: bytes) -> str:
    if path.suffix == ".safetensors":
        with safe_open(path, "np") as tensors:
            arrays = {name: tensors.get_tensor(name) for name in sorted(tensors.keys())}
        lines = (
            f"{name}: {array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
            for name, array in arrays.items()
        )
        return "\n".join(lines)
    if path.suffix in {".png", ".onnx", ".npy", ".npz", ".bin"}:
        return f"{path.suffix[1:]} file"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "no text"  # a dump has the time in microseconds
    if path.name == "index.html":
        payloads = re.findall(r"<script[^>]*application/json[^>]*>(.*?)</script>", text, re.DOTALL)
        return "\n".join(_data(payload) for payload in payloads)
    if path.suffix in {".json", ".jsonl"}:
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        return "\n".join(_data(line) for line in lines)
    return text.rstrip()


def _data(text: str) -> str:
    try:
        data = json.loads(text)
    except ValueError:
        return text
    if isinstance(data, dict):  # templates of the texts beside them, which tests/language holds
        data.pop("messages", None)
    return "\n".join(_pretty(data, ""))


def _pretty(value: Any, indent: str) -> Iterator[str]:
    """Yield JSON with a line for each thing that has room in one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + len(indent) <= 140 or not isinstance(value, dict | list) or not value:
        yield indent + flat
        return
    yield indent + ("{" if isinstance(value, dict) else "[")
    for key, item in value.items() if isinstance(value, dict) else ((None, item) for item in value):
        head = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
        first, *rest = _pretty(item, indent + " ")
        yield f"{indent} {head}{first.lstrip()}"
        yield from rest
    yield indent + ("}" if isinstance(value, dict) else "]")


_VERSION = r"\d+(?:\.\d+)+(?:[-+.a-z0-9]*)"
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?", "<time>"),
        (r"\b20\d\d-\d\d-\d\d\b", "<day>"),
        (r"\b20\d{12}\b", "<time>"),
        (r"\b1[67]\d{14}\b", "<microseconds>"),
        (r"\bin \d+(\.\d+)?s\b( \(\d:\d\d:\d\d\))?", "in <seconds>"),
        (r"time=\"[\d.]+\"", 'time="<seconds>"'),
        (r"timestamp=\"[^\"]+\"", 'timestamp="<time>"'),
        (r"hostname=\"[^\"]+\"", 'hostname="<host>"'),
        (r"\"(seconds|duration|start|stop|began|ended)\": [\d.]+(e-?\d+)?", r'"\1": "<seconds>"'),
        (r"pytest-of-[^/\s\"]+/pytest-\d+", "<pytest>"),
        (r"[^\s\"]*/pytest-of-[^/]+/pytest-N", "/tmp/pytest-of-root/pytest-N"),  # noqa: S108 - whoever tests
        (
            rf"(onnxruntime|numpy|onnx|torch|torch_npu|mindspore|python|pytest|pytest_npudump|npudump)([\": =]+|[- ]){_VERSION}",  # noqa: E501
            r"\1\2<version>",
        ),
        (
            r"(\| `(?:onnxruntime|numpy|onnx|pytest|pytest-npudump|Python|machine|vector)` \| `)[^`]+",
            r"\1<version>",
        ),
        (r"(-- Python )[\d.]+(, pytest-\S+, pluggy-)[\d.]+", r"\1<version>\2<version>"),
        (r"(machine[\": ]+)[\w+]+", r"\1<machine>"),
        (r"(vector[\": ]+)[\w+]+", r"\1<vector>"),
        (r"\bpid \d+\b", "pid <pid>"),
        (r"(?<=[-_])\d{7,}(?=[-_/.])", "<number>"),
        (r"0x[0-9a-f]{8,}", "<address>"),
        (r"\b[0-9a-f]{7}(?= <day> )|(?<= <day> )[0-9a-f]{12}\b", "<commit>"),
        (r"(/session-\d+: )[\d.]+ KiB", r"\1<size>"),
        (r"(?m)(#\S+\.onnx) [\w-]{16} [\w-]{6,12}(=?)$", r"\1 <file> <graph>\2"),  # of what onnx writes
        (r"/tmp/frozen-\w{0,8}(/[a-z-]*)?(?=\.\.\.)", "<tmp>"),  # noqa: S108 - where a line is cut off
    )
)
_SHORT = re.compile(r"~[0-9a-f]{6}(?=\.)")  # of records, some of which hold times and folders
_DIGEST = re.compile(r"\b[0-9a-f]{16,64}\b")
_NUMBER = re.compile(r"-?\d+\.\d+(e[-+]?\d+)?|\b\d+e[-+]?\d+\b")


def _normalised(text: str, folder: Path, *, inexact: bool) -> str:
    text = text.replace(str(folder), "<folder>").replace(str(folder.parent), "<tmp>")
    text = text.replace(str(TESTS), "<tests>").replace(str(TESTS.parent), "<checkout>")
    text = text.replace(sys.executable, "<python>")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _SHORT.sub("~<digest>", text)
    seen: dict[str, str] = {}
    text = _DIGEST.sub(lambda found: seen.setdefault(found[0], f"<digest {len(seen) + 1}>"), text)
    if inexact:
        text = re.sub(r" +", " ", _NUMBER.sub("#", text))
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
