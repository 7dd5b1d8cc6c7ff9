"""Device against float32, float32 rounded as on the device against float32, and the ratio of the two."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.reference.blame import USELESS, by_rounding
from pytest_npudump.reference.feeds import Execution
from pytest_npudump.reference.rounded_model import ROUNDED, rounded_feeds, rounded_model
from pytest_npudump.reference.rounding import Rounding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.reference.blame import Blame
    from pytest_npudump.reference.comparison import Compared
    from pytest_npudump.reference.reference_model import ReferenceModel

_JUDGED = frozenset({*ROUNDED, "float32", "float64"})


def coarsest(dtypes: Iterable[str]) -> str:
    """Return the type that tensors are rounded to of which the dump tells no type; "" where there is none.

    A dump with floats that are narrower than 16 bits is not judged by rounding, and has none either.
    """
    floats = {dtype for dtype in dtypes if dtype in BY_NAME and BY_NAME[dtype].kind in {"float", "complex"}}
    if not floats <= _JUDGED:
        return ""
    return next((dtype for dtype in ("bfloat16", "float16") if dtype in floats), "")


def only_wide(dtypes: Iterable[str]) -> bool:
    """Whether a dump has floats, none narrower than float32: the reference's digits are the device's."""
    floats = {dtype for dtype in dtypes if dtype in BY_NAME and BY_NAME[dtype].kind in {"float", "complex"}}
    return bool(floats) and floats <= {"float32", "float64"}


@dataclass(slots=True)
class Twin:
    """The rounded reference of one test: made for the types of its dump, and kept while they stay."""

    _types: tuple[object, ...] = ()
    _made: list[ReferenceModel] = field(default_factory=list)

    def of(self, model: ReferenceModel, dtypes: Mapping[str, str], default: str) -> ReferenceModel:
        """Return the rounded model.

        Raises:
            ModelError: it cannot be made.
        """
        types = (default, *sorted(dtypes.items()))
        if not self._made or types != self._types:
            self._made, self._types = [rounded_model(model, dtypes, default)], types
        return self._made[0]


def three_ways(
    compared: Compared, model: ReferenceModel, twin: Twin, default: str, tolerances: Tolerances
) -> tuple[Compared, tuple[Blame, ...], tuple[str, ...]]:
    """Return the comparison without what rounding explains, whose error the rest is, and notes.

    The reference runs once more, and its rounded twin with it, for the tensors that fail.

    Args:
        compared: by the bounds for the same numerics.
        model: the reference.
        twin: keeps what is made.
        default: what :func:`coarsest` returned.
        tolerances: those bounds, and rules.

    Raises:
        ModelError: onnxruntime cannot run the reference rounded, or computes other shapes.
    """
    failing = {verdict.key for verdict in compared.comparison.failing if verdict.status == FAIL}
    if not failing:
        return compared, (), ()
    dtypes: dict[str, str] = {}
    wanted: defaultdict[Execution, dict[str, list[tuple[TensorKey, TensorRecord]]]] = defaultdict(dict)
    for expected, found in zip(compared.expected, compared.matching.matches, strict=True):
        record, tensor = found.record, found.counterpart.tensor
        if record.key.io == "output" and record.op_type != GRAPH_INPUT:
            dtypes[tensor] = record.dtype
        if expected.golden.key in failing:
            wanted[Execution.of(record)].setdefault(tensor, []).append((expected.golden.key, record))
    rounded = twin.of(model, dtypes, default)
    roundings: dict[TensorKey, Rounding] = {}
    for execution, tensors in wanted.items():
        feeds = compared.feeds.of(execution)
        sizes = {name: max((record.size or 0) * 2 for _, record in held) for name, held in tensors.items()}
        pairs = zip(model.run(feeds, sizes), rounded.run(rounded_feeds(feeds, default), sizes), strict=True)
        for (name, exact), (_, narrow) in pairs:
            if exact is None or narrow is None or exact.dtype.kind != "f":
                continue
            if exact.shape != narrow.shape:
                raise ModelError(f"rounded, {name} has the shape {narrow.shape} in place of {exact.shape}")
            rounding = Rounding.of(exact, narrow)
            roundings.update(dict.fromkeys((key for key, _ in tensors[name]), rounding))
    comparison, blames = by_rounding(compared.comparison, roundings, tolerances)
    return replace(compared, comparison=comparison), blames, _useless(roundings, model, default)


def _useless(roundings: Mapping[TensorKey, Rounding], model: ReferenceModel, dtype: str) -> tuple[str, ...]:
    """Say where the number format leaves nothing that a device could be held to, in execution order."""
    lost = [key for key, rounding in roundings.items() if rounding.relative >= USELESS]
    if not lost:
        return ()
    share = 100 * roundings[lost[0]].relative
    words = (
        f"reference {model.path.name}: rounding to {dtype} after every operator, on the CPU, puts "
        f"{len(lost)} of its tensors {100 * USELESS:.0f} % or more off float32, first {lost[0]} "
        f"({share:.3g} %): the model is ill-conditioned in {dtype} there, whatever the device does"
    )
    return (words,)
