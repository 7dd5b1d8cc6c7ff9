"""``npudump convert``: the tensors of a dump as npy or safetensors, in the host's layout.

``targets`` says which files there will be, ``tasks`` writes one of them, ``command`` has all written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.options import add_executor_option, add_latest_option, add_layout_option

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Write the tensors of a dump as npy (FILE.output.0.npy for each) or safetensors (one for each file of "
    "the dump), in the dump's directories and the host's layout. In npy, types that numpy lacks become the "
    "next wider one: bf16, fp8, hifloat8 and float4 float32, int4 and int2 int8, complex32 complex64. "
    "Exit 0; 2 where something could not be converted, after converting the rest, or where no tensor of the "
    "dump holds data."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
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
