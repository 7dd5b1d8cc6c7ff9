"""``npudump repro``: a failing operator as a folder that stands by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_json_option

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Write a folder with the operator that fails, its inputs, and a test that fails for it alone, and run "
    "that test. Exit 0: it fails as it is to, or was not to be run; 1: it passes here; 2: it cannot be made, "
    "or cannot run."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
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
