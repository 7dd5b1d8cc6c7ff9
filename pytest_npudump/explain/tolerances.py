"""What a device may differ by from the reference.

Where nobody chooses a preset, what rounding does to the reference decides, see
:mod:`pytest_npudump.explain.rounding`. Where that cannot be known the preset ``om-net`` does, the bound of
msit and msprobe for a model on the device against its ONNX model. By the triangle inequality a relative L2
distance of 5 % lets the norm differ by no more than 5 %, and the mean by no more than 5 % of the root mean
square, which is below the tensor's magnitude. It implies the cosine of 0.99 that the same tools ask for: a
vector that is 5 % off is at a cosine of 0.9987.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.tolerances.numerics import AUTO, HF32, OTHER, SAME
from pytest_npudump.compare.tolerances.presets import PRESETS
from pytest_npudump.compare.tolerances.rules import (
    MARKER_RULES,
    REFERENCE_PRESET,
    load_tolerances,
    parse_rules,
)
from pytest_npudump.compare.tolerances.tolerance import DEFAULT, REFERENCE, Rule, Tolerances
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_npudump.request import DumpRequest


@dataclass(frozen=True, slots=True)
class ReferenceTolerances:
    """The tolerances of one test's comparison with its reference.

    Attributes:
        preset: the marker's, else :data:`REFERENCE_PRESET`; one that is about numerics does not count.
        rules: rules against the reference of the tolerance file, the marker's ``rtol`` and ``atol``, the
            marker's rules against the reference: the last one that matches decides.
        three_way: whether no preset was chosen, so that what rounding does to the reference decides.
        hf32: whether the device may compute float32 in HF32.
    """

    preset: str = REFERENCE_PRESET
    rules: tuple[Rule, ...] = ()
    three_way: bool = False
    hf32: bool = False

    def for_run(self, facts: Mapping[str, str]) -> ReferenceTolerances:
        """Return the same with the rules for a run of such a producer only, as those against goldens."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.suits(facts)))

    def same(self) -> Tolerances:
        """Return what a device may be off where its number format explains nothing."""
        return Tolerances(HF32 if self.hf32 else SAME, self.rules)

    def among(self, dtypes: Iterable[str]) -> Tolerances:
        """Return the tolerances for a dump that holds tensors of these types.

        A float32 tensor behind float16 ones has the digits of float16: the coarsest floating-point type of
        the dump decides for all finer ones.
        """
        bounds = PRESETS[self.preset]
        floats = floats_among(dtypes)
        coarsest = max(floats, key=lambda dtype: bounds[dtype], default="")
        finer = [dtype for dtype in floats if bounds[dtype] < bounds[coarsest]]
        source = f"preset {self.preset} for {coarsest}, which the model computes in"
        own = tuple(Rule(*bounds[coarsest], dtype=dtype, source=source, against=REFERENCE) for dtype in finer)
        return Tolerances(self.preset, (*own, *self.rules))


def floats_among(dtypes: Iterable[str]) -> tuple[str, ...]:
    """Return the floating-point types among some, each once."""
    return tuple(d for d in dict.fromkeys(dtypes) if d in BY_NAME and BY_NAME[d].kind in {"float", "complex"})


def reference_tolerances(
    request: DumpRequest, tolerance_file: Path | None, numerics: str = AUTO
) -> ReferenceTolerances:
    """Combine what the tolerance file and the marker say of the reference; the marker has the last word.

    Args:
        request: what the marker asks for.
        tolerance_file: the run's; None without one.
        numerics: the run's, where the marker has no preset.

    Raises:
        RequestError: an unknown preset, a bad rule, a rule against a reference that the test does not have,
            or a tolerance file that cannot be read.
    """
    named = None if request.preset in {SAME, OTHER, HF32, DEFAULT} else request.preset
    preset = named or REFERENCE_PRESET
    rules = [*load_tolerances(tolerance_file, against=REFERENCE).rules] if tolerance_file else []
    if request.rtol is not None or request.atol is not None:
        rules.append(Rule(request.rtol or 0.0, request.atol or 0.0, source="marker", against=REFERENCE))
    known = Tolerances(preset).preset
    parsed = parse_rules(request.tolerances, preset=known, source=MARKER_RULES, against=REFERENCE)
    hf32 = (request.preset or numerics) == HF32
    return ReferenceTolerances(preset, (*rules, *parsed), three_way=named is None, hf32=hf32)


def check_reference(request: DumpRequest) -> None:
    """Check what the marker says of the reference, before anything runs.

    Raises:
        RequestError: a rule is bad, or there is no reference that it could be against.
    """
    reference_tolerances(request, None)
    if not request.reference and any(item.get("against") == REFERENCE for item in request.tolerances):
        raise RequestError("tolerances: a rule with against='reference' needs reference, an ONNX model")
