"""Named tolerances by data type, with the source of each number.

A tolerance is ``(rtol, atol)``: ``|actual - golden| <= atol + rtol * scale``. The scale is the golden
tensor's own: its magnitude for max and min, its root mean square for avg, its l2norm for l2norm and
projections. ``atol`` is that of each element: projections, which are of all of them, may be off by the root
of their number times as much. Every preset covers every float type: what its source does not list comes from
``same``.

``same`` is for a run whose producer is the golden's, ``other`` for one with another driver, CANN, SoC or
framework, ``hf32`` for one in which HF32 may have been switched. ``default`` stands for whichever of them
fits, see :func:`numerics_of`: a run of the same runtime, SoC, CANN, driver, frameworks and switches repeats
the golden, but for operators that are not deterministic. Any other one may sum in another order, fuse, or use
another kernel, and all its layers differ a little. One bound cannot serve both: what passes the second hides
faults from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pytest_npudump.dump.dtypes import ALL
from pytest_npudump.dump.table import PROJECTIONS, is_count
from pytest_npudump.language import mark
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.record.record import COMPILED, UNTOLD

Bound = tuple[float, float]

_COARSE = 2.0**-7
"""Formats with a coarser step than bfloat16's have tighter bounds for mean and norm than for extremes."""

_STEPS: dict[str, Bound] = {
    "float8_e4m3fn": (2.0**-3, 0.0),
    "float8_e5m2": (2.0**-2, 0.0),
    "float6_e2m3fn": (2.0**-3, 0.0),
    "float6_e3m2fn": (2.0**-2, 0.0),
    "float4_e2m1fn": (2.0**-1, 0.0),
    "float4_e1m2fn": (2.0**-2, 0.0),
    # HiFloat8 has 3 to 1 bits of mantissa, fewer the further from 1; extremes of 16 to 128 have 2.
    "hifloat8": (2.0**-2, 0.0),
    "hifloat4": (2.0**-2, 0.0),
    # A shared exponent: one step doubles the whole block, so there is no small difference to forgive.
    "float8_e8m0fnu": (0.0, 0.0),
}

_SAME: dict[str, Bound] = {
    # torch's and numpy's rtol for float64; nothing on an NPU computes in it, AI CPU does.
    "float64": (1e-7, 2.0**-60),
    "complex128": (1e-7, 2.0**-60),
    # Twice what reordered sums, fusion and other graph optimisations change in real models (8e-6); atol as in
    # msprobe.
    "float32": (2e-5, 2.0**-30),
    "complex64": (2e-5, 2.0**-30),
    # One step of the format. msprobe's atol of 2**-16 would be 15 % of a tensor of magnitude 1e-4.
    "float16": (1e-3, 2.0**-20),
    "complex32": (1e-3, 2.0**-20),
    "bfloat16": (8e-3, 2.0**-20),
    **_STEPS,
}

# Reordered sums, fusion and folded BatchNormalization change the extremes of layers by 1.2e-2 (float16) and
# 0.12 (bfloat16) of their magnitude in eight real models: the errors of all layers add up. A float32 sigmoid
# by way of tanh errs by a step or two of 2**-24 however small its result, as in the heads of detectors.
_SIGMOID = 2.0**-22
_OTHER: dict[str, Bound] = {
    "float32": (2e-5, _SIGMOID),
    "complex64": (2e-5, _SIGMOID),
    "float16": (1.2e-2, 2.0**-20),
    "complex32": (1.2e-2, 2.0**-20),
    "bfloat16": (0.14, 2.0**-20),
}

# Operands with 11 bits of mantissa change extremes and averages by 7e-3 of their scale. TF32, which NPUs do
# not have, changes them by 1.3e-2.
_HF32: dict[str, Bound] = {**_OTHER, "float32": (1.2e-2, _SIGMOID), "complex64": (1.2e-2, _SIGMOID)}

_FLOAT32 = {"avg": 5e-6, "l2norm": 1e-5, PROJECTIONS: 1.5e-5}
# Fusion and folded BatchNormalization change a mean by 4.4e-3 and 5.2e-2 of the root mean square, and a norm
# by 1.2e-2 and 8.9e-2 of itself; projections by 1.2e-2 and 0.135 of the norm.
_16_BITS = {
    "float16": {"avg": 6e-3, "l2norm": 1.5e-2, PROJECTIONS: 1.5e-2},
    "bfloat16": {"avg": 6e-2, "l2norm": 0.1, PROJECTIONS: 0.15},
}
_FINER: dict[str, dict[str, dict[str, float]]] = {
    "same": {"float32": _FLOAT32},
    "default": {"float32": _FLOAT32},
    "other": {"float32": _FLOAT32, **_16_BITS},
    "hf32": {"float32": {"avg": 1e-2, "l2norm": 1e-2, PROJECTIONS: 1.5e-2}, **_16_BITS},
}
"""rtol of statistics in which rounding averages out, and of projections, from the same measurements."""

ROUNDED_ALONE: Mapping[str, float] = MappingProxyType(
    {"float32": 2.0**-21, "complex64": 2.0**-21, "float16": 2.0**-14, "bfloat16": 2.0**-11}
)
"""rtol of the projections of a tensor whose operator read the golden's values, bit for bit, in its numerics.

Of one operator nothing adds up: with all sums in another order, or in other numbers of threads, it differs
by at most 3.5e-7 (float32) and 3.4e-5 (float16) in twelve models.
"""

_SOURCES: dict[str, tuple[str, dict[str, Bound]]] = {
    "default": ("same or other, by what produced the golden and this run", _SAME),
    "same": ("a run of the same numerics: one step of 16-bit formats, float32 2e-5", _SAME),
    "other": ("other numerics: sums in another order, fusion, folded BatchNormalization", _OTHER),
    "hf32": ("other numerics, of which one may compute in HF32", _HF32),
    "exact": ("no difference at all", {d.name: (0.0, 0.0) for d in ALL if not d.exact}),
    "torch": (
        "torch.testing.assert_close",
        {
            "float64": (1e-7, 1e-7),
            "complex128": (1e-7, 1e-7),
            "float32": (1.3e-6, 1e-5),
            "complex64": (1.3e-6, 1e-5),
            "float16": (1e-3, 1e-5),
            "complex32": (1e-3, 1e-5),
            "bfloat16": (1.6e-2, 1e-5),
        },
    ),
    "ascend-abs": (
        "msprobe, absolute standard for elementwise operators",
        {
            "float32": (2.0**-20, 2.0**-30),
            "float16": (2.0**-10, 2.0**-16),
            "bfloat16": (2.0**-8, 2.0**-16),
        },
    ),
    "ascend-accum": (
        "msprobe, bound for long reductions",
        {"float32": (2.0**-11, 0.0), "float16": (2.0**-8, 0.0), "bfloat16": (2.0**-7, 0.0)},
    ),
    "atb-opcheck": (
        "msit opcheck, error tolerance by type",
        {"float32": (2.0**-20, 0.0), "float16": (2.0**-10, 0.0), "bfloat16": (2.0**-8, 0.0)},
    ),
    "torch-npu": (
        "torch_npu, assertRtolEqual",
        {"float32": (1e-4, 1e-4), "float16": (1e-3, 1e-3), "bfloat16": (1e-3, 1e-3)},
    ),
    # One bound of network comparison for both 16-bit types: the errors of all layers before add up. Tensors
    # of float32 take msprobe's bound of one part in a thousand, which HF32, at 7e-3, does not keep.
    "om-net": (
        "msit and msprobe, a model on the device against its ONNX model",
        {
            "float32": (1e-3, 2.0**-30),
            "complex64": (1e-3, 2.0**-30),
            "float16": (0.05, 2.0**-20),
            "complex32": (0.05, 2.0**-20),
            "bfloat16": (0.05, 2.0**-20),
        },
    ),
    "polygraphy": (
        "polygraphy's defaults",
        {"float32": (1e-5, 1e-5), "float16": (1e-5, 1e-5), "bfloat16": (1e-5, 1e-5)},
    ),
}

PRESETS: Mapping[str, Mapping[str, Bound]] = MappingProxyType(
    {name: MappingProxyType({**_SAME, **bounds}) for name, (_, bounds) in _SOURCES.items()}
)
"""Bounds of extremes and elements by preset and data type.

Integers, bools and types without a meaning are exact in all of them.
"""

DESCRIPTIONS: Mapping[str, str] = MappingProxyType({name: text for name, (text, _) in _SOURCES.items()})


def bound(preset: str, dtype: str, statistic: str) -> Bound:
    """``(rtol, atol)`` of one statistic; ``(0, 0)`` for types that are exact and for counts.

    Rounding averages out in a mean and a norm: where a format's step is coarser than bfloat16's, a
    quarter of it is allowed there.
    """
    if is_count(statistic):
        return (0.0, 0.0)
    rtol, atol = PRESETS[preset].get(dtype, (0.0, 0.0))
    finer = _FINER.get(preset, {}).get(dtype, {})
    if statistic in finer:
        return (finer[statistic], atol)
    if dtype in _STEPS and statistic in {"avg", "l2norm"} and rtol > _COARSE:
        return (rtol / 4, atol)
    return (rtol, atol)


SAME = "same"
OTHER = "other"
HF32 = "hf32"
AUTO = "auto"
"""Numerics asked for: one of these, or those that fit."""

_ASKED = ("scene", "dump_mode", "dump_data")
"""Facts of a golden that are about what is dumped, not about how it is computed."""
_SWITCHES = ("hf32",)


@dataclass(frozen=True, slots=True)
class Numerics:
    """Numerics of golden and run, which decide the tolerances where the preset is ``default``.

    Attributes:
        bounds: ``same``, ``other`` or ``hf32``, each a preset.
        differs: facts that both sides tell and in which they differ, as ``name: (golden, this run)``.
        untold: facts that one side only tells.
        fixed: who chose the bounds, ``option``; "" where the facts or a preset decided.
        preset: the one that was named, and that applies whatever the numerics; "" for ``default``.
        compiled: the side that alone ran compiled code, ``golden`` or ``run``; "" for none.
    """

    bounds: str = SAME
    differs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    untold: tuple[str, ...] = ()
    fixed: str = ""
    preset: str = ""
    compiled: str = ""

    @property
    def same(self) -> bool:
        """Whether a run is to round as the golden's did: what compilers fuse does not, in any bounds."""
        return self.bounds == SAME and not self.compiled

    def describe(self) -> str:
        """The decision and its reason in one line."""
        differs = ", ".join(f"{name} {golden} -> {now}" for name, (golden, now) in self.differs.items())
        names = ", ".join(name for name in self.untold if name != COMPILED)
        untold = _("; unknown on one side: {names}").format(names=names) if names else ""
        if self.compiled == "run":
            untold += _(
                '; golden recorded eagerly, this run compiled; set preset="other" if only rounding differs'
            )
        elif self.compiled:
            untold += _(
                '; golden recorded compiled, this run eager; set preset="other" if only rounding differs'
            )
        if self.preset or self.fixed:
            words = _("{words}, from {who}").format(words=self.bounds, who=_(self.fixed))
            words = _("{preset}, as set").format(preset=self.preset) if self.preset else words
            return words + (f" ({differs})" if differs else "")
        reason = differs or _("same environment")
        return _("{words}: {reason}{untold}").format(words=self.bounds, reason=reason, untold=untold)

    def to_json(self) -> dict[str, object]:
        """Plain JSON data."""
        return {
            "bounds": self.bounds,
            "differs": {name: list(pair) for name, pair in self.differs.items()},
            "untold": list(self.untold),
            "fixed_by": self.fixed or None,
        }


def numerics_of(
    differences: Mapping[str, tuple[str, str]],
    switches: Mapping[str, str],
    *,
    option: str = AUTO,
    preset: str = "default",
) -> Numerics:
    """Decide by the facts of origin in which a golden and a run differ.

    A fact that one side does not tell decides nothing: bounds are the tight ones unless something is known to
    differ.

    Args:
        differences: those facts, as ``name: (golden, this run)``, :data:`UNTOLD` for one not told.
        switches: facts of this run, of which ``hf32`` is looked at.
        option: the run's choice.
        preset: of the tolerances; one that is called as bounds are chooses them.
    """
    named = "" if preset == "default" else preset
    alone = differences.get(COMPILED)
    compiled = "" if alone is None else "run" if alone[0] == UNTOLD else "golden"
    told = {name: pair for name, pair in differences.items() if name not in _ASKED}
    differs = {name: pair for name, pair in told.items() if UNTOLD not in pair}
    untold = tuple(name for name in told if name not in differs)
    if named in {SAME, OTHER, HF32}:
        return Numerics(named, differs, untold, preset=named, compiled=compiled)
    if option and option != AUTO:
        return Numerics(option, differs, untold, mark("option npudump_preset"), named, compiled)
    values = [*(value for name in _SWITCHES for value in told.get(name, ()))]
    values += [switches[name] for name in _SWITCHES if name in switches]
    on = any(value not in {"off", UNTOLD} for value in values)
    bounds = SAME if not differs else HF32 if on else OTHER
    return Numerics(bounds, differs, untold, preset=named, compiled=compiled)
