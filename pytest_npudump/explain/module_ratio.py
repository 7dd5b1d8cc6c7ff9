"""Three-tensor ratio of modules, which separates errors of a device and a type without a tolerance.

Of each module there are a reference in float32, the same in the type of the device, on a CPU, and what the
device gives. The ratio is how far the device is off float32, in units of how far the type is: about 1 where
the device rounds as the CPU does. Bounds are those of :mod:`pytest_npudump.explain.rounding`: the device is
at fault beyond 3 as a vector, beyond 5 at one element, more for tensors of few elements. What the type rounds
to begin with is the least that is taken for its error. As vectors, few are :data:`FEW`: of 1,300 healthy
tensors of 129 to 500 elements none is beyond 1.9, of 677 with 65 to 128 one is at 4.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.dtypes import BY_NAME, is_exact
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.errors import RequestError, said
from pytest_npudump.explain.rounding import DEVICE, DTYPE, FURTHER, USELESS, Blame, Rounding
from pytest_npudump.golden.store import read_golden
from pytest_npudump.golden.stored_tensors import read_tensors
from pytest_npudump.language.text import first_of
from pytest_npudump.record.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.compare.correspondence import Correspondence
    from pytest_npudump.runtime.modules.capture import Capture

    Array = Any

FEW = 128
"""Elements up to which a tensor may be farther off as a vector, as its errors do not average out."""
_LEAST_BITS = 32
"""Of the floats of a reference."""


@dataclass(frozen=True, slots=True)
class ModuleRatio:
    """Error of a module's tensor against float32.

    Attributes:
        key: which tensor.
        op_type: class of the module.
        ratio: distance of the device in units of that of the type.
        device: relative L2 distance of the device.
        rounding: that of the type.
        whose: ``device`` where it is at fault, ``dtype`` where the type leaves nothing to judge, else "".
    """

    key: TensorKey
    op_type: str
    ratio: float
    device: float
    rounding: float
    whose: str = ""

    @property
    def blame(self) -> Blame:
        """Blame of a difference for reports."""
        return Blame(self.key, self.whose, "relative_l2", self.device, self.rounding, self.rounding)


def ratio_of(key: TensorKey, op_type: str, device: Array, rounded: Array, exact: Array) -> ModuleRatio:
    """Judge one tensor by the three that there are of it, all of one shape."""
    of_type, of_device = Rounding.of(exact, rounded), Rounding.of(exact, device)
    limits = ml_dtypes.finfo(rounded.dtype)  # type: ignore[no-untyped-call]
    step = float(limits.eps)
    norm = max(of_type.norm, step / 8 * of_type.reference)
    largest = max(of_type.largest, step / 2 * of_type.magnitude)
    ratio = of_device.norm / norm if norm else math.inf if of_device.norm else 1.0
    scale = of_type.reference or 1.0
    special = ~np.isfinite(exact)
    wanted, other, got = exact[special], rounded[special], device[special]
    agreed = (other == wanted) | np.isnan(other) & np.isnan(wanted)
    lost = agreed & (got != wanted) & ~(np.isnan(got) & np.isnan(wanted))
    beside = ~np.isfinite(device) & np.isfinite(rounded) & ~special
    near = np.isinf(device) & (np.abs(rounded.astype(np.float64)) > float(limits.max) / 2)
    beyond_type = of_device.special > 0 and not of_type.special
    if beyond_type or (beside & ~near).any() or lost.any():  # no distance tells of these
        return ModuleRatio(key, op_type, math.inf, math.inf, norm / scale, DEVICE)
    beyond = (
        of_device.norm > (of_type.factor("l2norm") if of_type.count <= FEW else FURTHER) * norm
        or of_device.largest > of_type.factor("max") * largest
    )
    spoilt = of_type.special > USELESS * (of_type.count + of_type.special)
    whose = DTYPE if spoilt or of_type.relative >= USELESS else DEVICE if beyond else ""
    return ModuleRatio(key, op_type, ratio, of_device.relative, norm / scale, whose)


def ratios(
    device: Capture | str | Path,
    rounded: Capture | str | Path,
    exact: Capture | str | Path,
    notes: list[str] | None = None,
    names: Correspondence | None = None,
) -> tuple[ModuleRatio, ...]:
    """Judge each tensor of floats that all three have, in the order of execution.

    Args:
        device: what the device gave: a capture with tensors, a folder of a dump or of a test's runs, or a
            golden with tensors.
        rounded: the same in the type of the device, on a CPU.
        exact: in float32.
        notes: gets what of the device is not judged, in words.
        names: which layers of the references are which of the device; None where all call them alike.

    Raises:
        RequestError: one has no tensors, or is given twice; ``exact`` has floats of 16 bits or fewer, or
            narrower ones than the others; no tensor is in all three, in one shape; or of captures the device
            lacks one that both references have, or has further executions.
        NpudumpError: a dump or golden cannot be read.
    """
    __tracebackhide__ = True
    told: list[str] = [] if notes is None else notes
    given = [Path(one) if isinstance(one, str) else one for one in (device, rounded, exact)]
    if any(one == other for one, other in combinations(given, 2)):
        raise RequestError(
            "npu_dump.ratio(): takes a device, a rounded model and a reference, no two the same"
        )
    sides, own = [_record(one) for one in (rounded, exact)], _record(device)
    if names is not None:
        matched = [names.matched(one, own) for one in sides]
        sides, own = [one for one, *_ in matched], matched[0][1]
        told += dict.fromkeys(words for *_, some in matched for words in some)
    found: list[ModuleRatio] = []
    others, of_device = [_arrays(one) for one in sides], _arrays(own)
    if not any(isinstance(one, str | Path) for one in (device, rounded, exact)):
        if lost := [key for key in others[0] if key in others[1] and key not in of_device]:
            first = others[0][lost[0]][0]
            raise RequestError(
                f"tensors of both references that the device lacks: {len(lost)}; first: {first}"
            )
        steps = [1 + max((one.step for one, *_ in some.values()), default=0) for some in (of_device, *others)]
        if steps[0] > min(steps):
            raise RequestError(f"the device has {steps[0]} executions, and a reference {min(steps)}")
    lacking, whole, shaped = list[str](), list[str](), list[str]()
    for key, (tensor, op_type, array) in of_device.items():
        if not all(key in other for other in others):
            lacking.append(str(tensor))
            continue
        three = (array(), *(other[key][2]() for other in others))
        if is_exact(three[0].dtype.name) or is_exact(three[1].dtype.name):
            whole.append(str(tensor))
            continue
        types = [one.dtype.name for one in three]
        bits = [  # of a float, or of each part of a complex number
            0 if is_exact(name) else BY_NAME[name].bits // (1 + (BY_NAME[name].kind == "complex"))
            for name in types
        ]
        if 0 < bits[2] < max(*bits, _LEAST_BITS):
            raise RequestError(
                f"npu_dump.ratio(): {tensor} is {types[2]} in the reference, {types[1]} in the rounded model "
                f"and {types[0]} on the device: the reference, which comes last, is computed in float32"
            )
        shapes = [one.shape for one in three]
        if len({*shapes}) > 1:
            shaped.append(str(tensor))
            continue
        found.append(ratio_of(tensor, op_type, *three))
    if shaped and not found:
        raise RequestError(f"{shaped[0]} has other shapes in the reference; tensors so: {len(shaped)}")
    if not found:
        raise RequestError("no tensor of floats is in all three: name the same modules, with tensors=True")
    useless = [str(one.key) for one in found if one.whose == DTYPE]
    for some, why in (
        (lacking, said("a reference lacks them")),
        (whole, said("they have no floating-point values")),
        (shaped, said("a reference has other shapes")),
        (useless, said("the rounded model is too far off the reference")),
    ):
        if some:
            words = said(
                "npu_dump.ratio(): tensors not checked, as {why}: {count}: {some}",
                why=why,
                count=len(some),
                some=first_of(some),
            )
            told.append(words)
    return tuple(found)


def records_of(capture: Capture) -> list[TensorRecord]:
    """Return the records of a stopped capture, under keys without model, load, device and rank.

    Raises:
        RequestError: it cannot be trusted.
    """
    capture.stop()
    if capture.problems:
        raise RequestError(f"{capture.name}: {capture.problems[0]}")
    folder = capture.path
    return [
        replace(record, key=replace(record.key, model="", load=0, device=-1, rank=-1))
        for record in read_dump(capture.folder).records
        if folder in record.path.parents
    ]


def _record(source: Capture | str | Path) -> Record:
    """Return the record of a side, with its tensors."""
    if not isinstance(source, (str, Path)):
        records: Sequence[TensorRecord] = records_of(source)
    elif (path := Path(source)).is_file():
        golden = read_golden(path)
        arrays = read_tensors(golden)
        return replace(golden, tensors=[arrays.get(sanitised_key(key)) for key in golden.table.keys])
    else:
        runs = sorted(path.glob("run*/dump"))
        records = read_dump(runs[-1] if runs else path, stats=False).records
    return replace(Record.of(StatsTable.from_records(records)), tensors=records)


def _arrays(record: Record) -> Mapping[str, tuple[TensorKey, str, Any]]:
    """Return key, type and what loads the array of each tensor, by its name in files."""
    found = {}
    for text, op_type, one in zip(record.table.keys, record.table.op_types, record.tensors, strict=True):
        if isinstance(one, TensorRecord) and one.payload is not None:
            array: Any = partial(load, one.payload, one.dtype, one.shape)
        elif one is None or isinstance(one, TensorRecord):
            continue
        else:
            array = partial(np.asarray, one)
        found[sanitised_key(text)] = TensorKey.parse(text), op_type, array
    return found
