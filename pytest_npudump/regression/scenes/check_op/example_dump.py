"""What one example dumped, held against what its operator returned: another could have run, or none."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.ulps import same_bits
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.arrays.host import host_array, is_private
from pytest_npudump.dump.arrays.layouts import HOST_AXES, LayoutError
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import DumpError, EmptyDumpError
from pytest_npudump.language.excerpt import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_npudump.dump.records import Payload, TensorRecord

_KERNEL = ">"
"""Between an API of aclnn and the kernel that it ran, in the name of a layer."""


def problem_of_dump(directory: Path, operator: str, outputs: Sequence[NDArray[Any]]) -> str:
    """Say what is wrong with the dump of an example; "" where it holds the operator and what that returned.

    Args:
        directory: of the example.
        operator: CANN's type of the operator, with or without ``aclnn``.
        outputs: what was returned, on the host.
    """
    try:
        dump = read_dump(directory, stats=False)
    except EmptyDumpError:
        return (
            "it was not dumped: the dump of this example is empty, so that nothing shows that it ran on the "
            "device; is it one that the runtime's dump sees, and did it run in this call?"
        )
    except DumpError as error:
        return f"its dump cannot be read: {error}"
    if dump.problems:
        return f"its dump cannot be read: {dump.problems[0]}"
    if not any(_is_called(record, operator) for record in dump.records):
        ran = dict.fromkeys(f"{record.op_type} ({record.key.layer})" for record in dump.records)
        return f"it was not dumped: the dump of this example holds {first_of([*ran], 5)}, and no {operator}"
    dumped = [record for record in dump.records if record.key.io == "output"]
    for index, output in enumerate(outputs):
        if not any(_holds(record, output) for record in dumped):
            return (
                f"output {index} is not what was dumped: {output.dtype} {list(output.shape)} was returned, "
                f"and the dump has {_outputs(dumped) or 'no output'}, none with these values; return what "
                f"the operator gave, only moved to the host"
            )
    return ""


def _is_called(record: TensorRecord, operator: str) -> bool:
    plain = operator.removeprefix("aclnn")
    names = {record.op_type, *record.key.layer.split(_KERNEL)}
    return not names.isdisjoint({plain, f"aclnn{plain}"})


def _holds(record: TensorRecord, output: NDArray[Any]) -> bool:
    """Whether a dumped tensor is the output, bit for bit, in the host's layout if it can be brought there."""
    if record.dtype != output.dtype.name:
        return False
    if record.payload is None or not output.size:
        return not output.size and record.shape == output.shape
    found = [*_on_host(record, record.payload)]
    if is_private(record) and not record.original_shape:  # such a dump has the padding, too
        cut = tuple(map(slice, output.shape))
        found = [values[cut] for values in found if values.ndim == output.ndim]
    return any(same_bits(values, output) for values in found)


def _on_host(record: TensorRecord, payload: Payload) -> Iterator[NDArray[Any]]:
    """Yield a tensor in each layout that the host may have it in: the dump does not say which."""
    try:
        values = load(payload, record.dtype, record.shape)
    except DumpError:
        return
    for layout in ("ND", *HOST_AXES) if is_private(record) else ("ND",):
        with suppress(LayoutError):
            yield host_array(values, record, layout)


def _outputs(records: Sequence[TensorRecord]) -> str:
    found = [f"{one.op_type} {one.dtype} {list(one.shape or ())}" for one in records]
    return first_of(found, 5) if found else ""
