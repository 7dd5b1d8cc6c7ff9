"""Bounds that a calibration measures, against members that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx

from pytest_npudump.compare.stats.allowances import deviations
from pytest_npudump.compare.stats.tables import blind_keys, compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.sessions import exposed_session
from pytest_npudump.onnxmodels.tensor_types import from_array
from pytest_npudump.onnxmodels.variation import INPUTS, OPTIMISATION, THREADS, Variation, Varying
from pytest_npudump.record.noise import Calibrated, Calibration
from pytest_npudump.regression.calibration import hold_out, repeated
from pytest_npudump.regression.run_plan import variation_of
from verdicts.numerics import Numerics
from verdicts.observed import observe
from verdicts.rules import Product, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_npudump.dump.table import StatsTable
    from verdicts.network import Network


_VARIES = frozenset({INPUTS, THREADS, OPTIMISATION})


@dataclass(frozen=True)
class Trial:
    """What a calibration came to.

    Attributes:
        tensors: how many the golden has.
        factor: of the calibration; None where it failed.
        failing: tensors that fail, in each run that was not a member.
        beyond: how many of these runs have a tensor that fails by the preset alone.
        widened: tensors with a bound wider than the preset's.
        blind: tensors of which the bounds see nothing.
    """

    tensors: int
    factor: float | None
    failing: tuple[int, ...] = ()
    beyond: int = 0
    widened: int = 0
    blind: int = 0


def trial(network: Network, preset: str, members: int, others: int) -> Trial:
    """Calibrate with some members, and judge others with further seeds by the bounds."""
    floor = Tolerances(preset)
    golden, bounds = _calibrated(network, floor, members)
    if bounds is None:
        return Trial(len(golden), None)
    unseen = [variation_of(members + 1 + number, _VARIES) for number in range(others)]
    tables = [*_tables(network, unseen)]
    failing = [len(compare_tables(golden, t, floor.with_measured(bounds)).failing) for t in tables]
    alone = [len(compare_tables(golden, t, floor).failing) for t in tables]
    wider = [key for key, noise in bounds.noise.items() if bounds.factor * max(noise.largest) > 2e-5]
    blind = blind_keys(golden, floor.with_measured(bounds))
    return Trial(len(golden), bounds.factor, tuple(failing), sum(map(bool, alone)), len(wider), len(blind))


def calibrated_rule(network: Network, preset: str, members: int) -> Rule:
    """A rule that judges default dumps of a network by what its calibration allows.

    Raises:
        ValueError: no factor makes the bounds hold for members that are left out.
    """
    floor = Tolerances(preset)
    _, bounds = _calibrated(network, floor, members)
    if bounds is None:
        raise ValueError(f"{members} members calibrate nothing on the preset {preset}")
    return Rule(f"{preset}, 3 statistics, calibrated", Product(floor.with_measured(bounds)))


def _calibrated(network: Network, floor: Tolerances, members: int) -> tuple[StatsTable, Calibrated | None]:
    """The golden, and the bounds that its members give; None for these where they hold under no factor."""
    (golden,) = _tables(network, [Variation()])
    seen = [variation_of(number, _VARIES) for number in range(1, members + 1)]
    measured = [deviations(compare_tables(golden, table, floor), floor) for table in _tables(network, seen)]
    factor, _ = hold_out(measured)
    if factor is None:
        return golden, None
    calibration = Calibration(len(measured), factor)
    cells = repeated(measured[:1], members=measured, calibration=calibration).cells
    return golden, Calibrated.of(golden.keys, cells, factor=factor)


def _tables(network: Network, variations: Iterable[Variation]) -> Iterator[StatsTable]:
    """The statistics of a run under each variation, as a default ACL dump prints them."""
    names = [name for node in network.nodes for name in node.outputs]
    opened: dict[tuple[int, bool], object] = {}
    for one in variations:
        how = (one.threads, one.optimised)
        if how not in opened:
            model = onnx.ModelProto()
            model.CopyFrom(network.model)
            opened[how] = exposed_session(b"", model, names, threads=one.threads, optimised=one.optimised)
        feeds = {name: from_array(BY_NAME[array.dtype.name], array) for name, array in network.feed.items()}
        found = sessions.run(opened[how], Varying(one).feeds(feeds, 0), names)
        tensors = {name: np.reshape(tensor.data, tensor.shape) for name, tensor in found.items()}
        yield observe(network, tensors, Numerics()).printed


def lines(trials: Iterable[tuple[str, str, Trial]]) -> Iterator[str]:
    """A table of trials: model, preset and what the calibration came to."""
    yield "| model | preset | tensors | factor | wider than 2e-5 | blind | unseen runs fail | by the preset |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, preset, one in trials:
        runs = len(one.failing)
        failed = sum(map(bool, one.failing))
        factor = "none" if one.factor is None else f"{one.factor:g}"
        yield (
            f"| {name} | {preset} | {one.tensors} | {factor} | {one.widened} | {one.blind} | "
            f"{failed} of {runs} | {one.beyond} of {runs} |"
        )
