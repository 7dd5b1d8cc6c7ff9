"""Tolerance rules as people write them: mappings in a marker or in a YAML file.

A rule that allows more than the preset must say why: the reason is what a reviewer reads, and what a
report quotes where the rule decided. A rule may be for the runs of some producers only: ``{soc:
"Ascend910B*", cann: "9.1*"}``. A fact is what a golden's head records of its origin. A run must tell all that
a rule names, and match it; a rule for other producers says nothing of a run, and is no misspelling there.

Against a reference, where nobody chooses a preset, what rounding does to the reference decides, see
:mod:`pytest_npudump.explain.rounding`. Where that cannot be known the preset ``om-net`` does, the bound of
msit and msprobe for a model on the device against its ONNX model. By the triangle inequality a relative L2
distance of 5 % lets the norm differ by no more than 5 %, and the mean by no more than 5 % of the root mean
square, which is below the tensor's magnitude. It implies the cosine of 0.99 that the same tools ask for: a
vector that is 5 % off is at a cosine of 0.9987.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tolerances.presets import AUTO, HF32, OTHER, PRESETS, SAME, bound
from pytest_npudump.compare.tolerances.tolerance import (
    AGAINST,
    ANY,
    DEFAULT,
    GOLDEN,
    REFERENCE,
    SIDES,
    Rule,
    Tolerances,
)
from pytest_npudump.dump.dtypes import ALL, BY_NAME, UNKNOWN
from pytest_npudump.dump.table import JUDGED, PROJECTIONS, is_count
from pytest_npudump.errors import RequestError
from pytest_npudump.settings import BOUNDS, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_npudump.request import DumpRequest


FACTS = (
    *("runtime", "soc", "cann", "driver", "torch", "torch_npu", "mindspore", "device_target", "onnxruntime"),
    *("machine", "vector", "deterministic", "hf32", "inf_nan_mode", "hccl_deterministic"),
)
"""Facts of a producer for rules; requests such as the scene are no facts of it."""


def parse_producer(value: object, where: str) -> tuple[tuple[str, str], ...]:
    """Return the names of facts and their globs, in the order of :data:`FACTS`.

    Args:
        value: a mapping of at least one fact to text.
        where: the rule, for errors.

    Raises:
        RequestError: it is none, names what no producer tells, or holds another value than text.
    """
    expected = 'a mapping of facts to globs, such as {soc: "Ascend910B*"}'
    if not isinstance(value, dict) or not value:
        raise RequestError(f"{where}: producer is {excerpt(value)}, expected {expected}")
    for name, glob in value.items():
        if name not in FACTS:
            known = ", ".join(FACTS)
            raise RequestError(f"{where}: no producer tells {excerpt(name)}, expected one of {known}")
        if not isinstance(glob, str) or not glob.strip():
            quoted = "text, in quotes where YAML reads a number or a switch"
            raise RequestError(f"{where}: {name} of the producer is {excerpt(glob)}, expected {quoted}")
    return tuple((name, value[name]) for name in FACTS if name in value)


def parse_fact(text: str) -> tuple[str, str]:
    """Return name and value of ``soc=Ascend910B3``.

    Raises:
        RequestError: it is not of that form, or no producer tells such a fact.
    """
    name, _, value = text.partition("=")
    if name not in FACTS or not value:
        raise RequestError(f"--producer {text}: expected FACT=VALUE with one of {', '.join(FACTS)}")
    return name, value


def undecided(rules: Iterable[Rule], facts: Mapping[str, str]) -> Iterator[tuple[Rule, list[str]]]:
    """Yield rules left out as the run's facts do not decide about them, and the facts that would.

    Args:
        rules: before :meth:`Tolerances.for_run` has chosen among them.
        facts: what is known of the run.
    """
    for rule in rules:
        untold = [name for name, _ in rule.producer if name not in facts]
        told = tuple(fact for fact in rule.producer if fact[0] in facts)
        if untold and replace(rule, producer=told).suits(facts):
            yield rule, untold


def excerpt(value: object) -> str:
    """Return the excerpt of a person's value for a message."""
    try:
        return repr(value)[:80]
    except ValueError:  # Python prints no integer of so many digits
        return "an integer of thousands of digits"


_KEYS = (
    *("layer", "dtype", "statistic", "rtol", "atol", "one_sided", "reason", "against"),
    *("op_type", "producer"),
)
_FILE_KEYS = ("preset", "rules")

REFERENCE_PRESET = "om-net"
"""The preset of comparisons with an ONNX reference, unless a marker names another."""

MARKER_RULES = "marker tolerances"
"""Source of the rules in a marker's ``tolerances``, which must all match something in their test."""


def parse_rules(
    items: Iterable[Mapping[str, Any]], *, preset: str, source: str, against: str = GOLDEN
) -> tuple[Rule, ...]:
    """Rules from mappings with the keys that the documentation of tolerances lists, such as layer and rtol.

    Args:
        items: one mapping a rule; ``rtol`` and ``atol`` are required, the others have defaults.
        preset: the preset the rules stand on: one that allows more needs a reason.
        source: where they were given, quoted in errors and verdicts.
        against: rules of the other comparison are left out.

    Raises:
        RequestError: an unknown key, a value out of range, or a missing reason.
    """
    other = [side for side in AGAINST if side != against]
    return tuple(
        _rule(item, preset, source, number)
        for number, item in enumerate(items, start=1)
        if item.get("against", GOLDEN) not in other
    )


def tolerances_for(request: DumpRequest, settings: Settings, rootdir: Path) -> Tolerances:
    """Combine the tolerances of the options and the marker; the marker has the last word.

    ``rtol`` and ``atol`` of the marker hold for every floating-point statistic of the test; one given
    without the other means 0 for the other, as in ``pytest.approx``.

    Raises:
        RequestError: an unknown preset, a bad rule, or a tolerance file that cannot be read.
    """
    base = load_tolerances(rootdir / settings.tolerances) if settings.tolerances else Tolerances()
    preset = request.preset or chosen_preset(settings.preset, base.preset)
    combined = Tolerances(preset, base.rules)
    if request.rtol is not None or request.atol is not None:
        combined = combined.extended([Rule(request.rtol or 0.0, request.atol or 0.0, source="marker")])
    return combined.extended(parse_rules(request.tolerances, preset=preset, source=MARKER_RULES))


def chosen_preset(option: str, of_file: str = DEFAULT) -> str:
    """Return the preset by a run's option and its tolerance file.

    ``same``, ``other`` and ``hf32`` say what ``default`` stands for: another preset of the file stays.
    """
    return of_file if option in BOUNDS else option or of_file


def load_tolerances(path: Path, *, against: str = GOLDEN) -> Tolerances:
    """Read a YAML file with the keys ``preset`` (a name) and ``rules`` (a list of mappings).

    Args:
        path: the file.
        against: rules of the other comparison are checked and left out; the preset is that of goldens.

    Raises:
        RequestError: the file cannot be read, is not YAML, or holds a rule that is refused.
    """
    from pytest_npudump.storage import safeyaml  # noqa: PLC0415 - only for a file of rules

    data = safeyaml.read_mapping(path, f"{path}: the tolerance file").data
    if unknown := [key for key in data if key not in _FILE_KEYS]:
        raise RequestError(f"{path}: unknown key {unknown[0]!r}, expected {' or '.join(_FILE_KEYS)}")
    preset = data.get("preset", "default")
    rules = data.get("rules", [])
    if not isinstance(preset, str):
        raise RequestError(f"{path}: preset is {preset!r}, expected a name such as default")
    if not isinstance(rules, list) or not all(isinstance(item, dict) for item in rules):
        raise RequestError(f"{path}: rules must be a list of mappings with the keys {', '.join(_KEYS)}")
    base = Tolerances(preset)
    parsed = {
        side: parse_rules(
            rules, preset=preset if side == GOLDEN else REFERENCE_PRESET, source=path.name, against=side
        )
        for side in AGAINST
    }
    return base.extended(parsed[against])


def _rule(item: Mapping[str, Any], preset: str, source: str, number: int) -> Rule:
    where = f"{source}, rule {number}"
    if unknown := [key for key in item if key not in _KEYS]:
        raise RequestError(f"{where}: unknown key {unknown[0]!r}, expected {', '.join(_KEYS)}")
    rule = Rule(
        rtol=_bound(item, "rtol", where),
        atol=_bound(item, "atol", where),
        layer=_text(item, "layer", where, ANY),
        dtype=_text(item, "dtype", where, ANY),
        statistic=_choice(item, "statistic", where, (ANY, *JUDGED)),
        one_sided=_choice(item, "one_sided", where, SIDES),
        reason=_text(item, "reason", where, ""),
        source=source,
        against=_choice(item, "against", where, AGAINST),
        op_type=_text(item, "op_type", where, ANY),
        producer=parse_producer(item["producer"], where) if "producer" in item else (),
    )
    if rule.statistic == PROJECTIONS and rule.one_sided != "both":
        raise RequestError(
            f"{where}: one_sided is {rule.one_sided!r}, and projections have no side: remove it"
        )
    if not rule.reason and (loosened := _loosened(rule, preset)):
        raise RequestError(
            f"{where} allows more than the preset {preset!r} ({loosened}): say why with "
            f"reason='...', or tighten it"
        )
    return rule


def _bound(item: Mapping[str, Any], key: str, where: str) -> float:
    if key not in item:
        raise RequestError(f"{where}: {key} is missing, expected both rtol and atol (0 for none)")
    value = item[key]
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not 0 <= value <= sys.float_info.max:
        raise RequestError(f"{where}: {key} is {excerpt(value)}, expected a finite number, 0 or greater")
    return float(value)


def _text(item: Mapping[str, Any], key: str, where: str, default: str) -> str:
    value = item.get(key, default)
    if not isinstance(value, str) or (not value.strip() and default):
        raise RequestError(f"{where}: {key} is {excerpt(value)}, expected text")
    return value.strip() if key == "reason" else value


def _choice(item: Mapping[str, Any], key: str, where: str, allowed: tuple[str, ...]) -> str:
    value = item.get(key, allowed[0])
    if value not in allowed:
        raise RequestError(f"{where}: {key} is {excerpt(value)}, expected one of {', '.join(allowed)}")
    return str(value)


def _loosened(rule: Rule, preset: str) -> str:
    """Describe where ``rule`` allows more than the preset does; "" where it nowhere does.

    Types that no preset forgives anything, such as float8_e8m0fnu, count only where the rule names them: any
    rule at all allows more than nothing.
    """
    for dtype in (*(d.name for d in ALL), UNKNOWN):
        for statistic in JUDGED:
            if not rule.covers(dtype, statistic):
                continue
            if (
                not is_count(statistic)
                and not rule.names_dtype
                and bound("default", dtype, statistic) == (0.0, 0.0)
            ):
                continue
            rtol, atol = bound(preset, dtype, statistic)
            if rule.one_sided != "both":
                return f"{rule.one_sided} only"
            if rule.rtol > rtol or rule.atol > atol:
                return f"rtol={rtol:g} atol={atol:g} for {statistic} of {dtype}"
    return ""


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
        """Return the tolerances where a device's number format explains nothing."""
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
    """Combine the reference's tolerances of the file and the marker; the marker has the last word.

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
    """Check the marker's arguments on the reference, before anything runs.

    Raises:
        RequestError: a rule is bad, or there is no reference that it could be against.
    """
    reference_tolerances(request, None)
    if not request.reference and any(item.get("against") == REFERENCE for item in request.tolerances):
        raise RequestError("tolerances: a rule with against='reference' needs reference, an ONNX model")
