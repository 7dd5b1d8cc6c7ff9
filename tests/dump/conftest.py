"""Small dumps, written by the formats' own definitions, and what is read of them."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.records import Dump

DATA = Path(__file__).parents[1] / "data" / "trees"
STAMP = 1795228705872229
TITLES = "Input/Output,Index,Data Size,Data Type,Format,Shape"
HEADER = f"{TITLES},Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count\n"
STEP = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value\n"


def stamped(text: str) -> str:
    """Put the time of the tests, and so many microseconds more, in the place of ``T7``."""
    return re.sub(r"\bT(\d+)\b", lambda found: str(STAMP + int(found[1])), text)


def row(io: str, slot: int, value: float) -> str:
    """A row of a statistics CSV."""
    return f"{io},{slot},4,DT_FLOAT,ND,1,{value:g},{value:g},{value:g},1,0,0,0\n"


def container(op_name: str, *, inputs: int = 0, outputs: int = 1, time: int = STAMP) -> bytes:
    """A protobuf container with one float32 a tensor, 1 and up."""
    message = dump_data_class()(version="2.0", dump_time=time, op_name=op_name)
    tensors = [message.input.add() for _ in range(inputs)] + [message.output.add() for _ in range(outputs)]
    for tensor in tensors:
        tensor.data_type, tensor.format, tensor.size, tensor.address = 1, 2, 4, 4096
        tensor.shape.dim.append(1)
    header = message.SerializeToString()
    values = struct.pack(f"<{len(tensors)}f", *range(1, len(tensors) + 1))
    return struct.pack("<Q", len(header)) + header + values


def write(root: Path, *files: str | tuple[str, Any]) -> Path:
    """Write files of a dump, and return its path.

    A file is a path, or a path and what is in it: bytes or text as they are; else, in a statistics CSV, the
    value of output 0, or rows; in an npy file its values; in a container its operator's name and the numbers
    of its inputs and outputs. What is written to one container again stands behind the rest.
    """
    for file in files:
        name, content = (file, None) if isinstance(file, str) else file
        path = root / stamped(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith("statistic.csv"):
            path.write_text(STEP + stamped(content))
        elif name.endswith(".csv"):
            rows = (
                content
                if isinstance(content, list)
                else []
                if isinstance(content, str)
                else [row("Output", 0, content or 0)]
            )
            path.write_text(content if isinstance(content, str) else HEADER + "".join(rows), "utf-8")
        elif name.endswith(".npy"):
            np.save(path, np.asarray([1] if content is None else content, np.float32))
        else:
            layer, inputs, outputs = (content, 0, 1) if isinstance(content, str) else content
            with path.open("ab") as stream:
                stream.write(
                    container(layer, inputs=inputs, outputs=outputs, time=STAMP + path.stat().st_size)
                )
    return root


def keys(dump: Dump) -> list[str]:
    """Texts of the keys."""
    return [str(record.key) for record in dump.records]


def told(dump: Dump) -> list[str]:
    """Texts of the keys, each with the largest value."""
    return [f"{one.key}={one.stats.max:g}" if one.stats else f"{one.key}" for one in dump.records]
