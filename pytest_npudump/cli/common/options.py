"""Options that several commands have, and the tolerances that they choose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import output_name, to_stderr
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances

LAYOUTS = (
    "ND",
    *("NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "NCL", "CN", "NC"),
)
"""Host layouts, as :mod:`pytest_npudump.dump.arrays.layouts` knows them, which needs numpy."""


NUMERICS = ("same", "other", "hf32")
"""Bounds, as :mod:`pytest_npudump.compare.tolerances.numerics` knows them."""


def add_executor_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--executor``."""
    parser.add_argument(
        "--executor",
        default="threads",
        metavar="WHERE",
        help="where the work is done: threads[:N] (default; N: number of cores), processes[:N], serial, or "
        "dask:ADDRESS, a Dask scheduler whose workers see the same files",
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json FILE``, where ``-`` is standard output."""
    parser.add_argument(
        "--json", metavar="FILE", type=output_name, help="write the result as JSON; - for standard output"
    )


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--root`` and ``--golden-dir``, of commands that read kept results."""
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="the repository's root, as pytest's rootdir; default: the nearest folder, upwards, in which a "
        "test of the results lies",
    )
    parser.add_argument(
        "--golden-dir",
        type=Path,
        metavar="DIR",
        help="other goldens: a folder laid out like that of the runs",
    )


def add_layout_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--layout``."""
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default="ND",
        help="host layout to convert to; ND, the default, leaves host layouts as they are and makes NCHW (or "
        "NCDHW) of device layouts that split C. The header of a dump does not tell the order of the "
        "original shape's axes: it is taken to be that of the layout given here",
    )


def add_latest_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--latest``."""
    parser.add_argument("--latest", action="store_true", help="of several runs in a directory take the last")


def add_tolerance_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--preset``, ``--numerics`` and ``--tolerances``."""
    parser.add_argument("--preset", help="tolerance preset (default, exact, torch, ...)")
    parser.add_argument(
        "--numerics",
        choices=NUMERICS,
        help="which bounds the preset 'default' stands for: those for two runs of the same numerics (the "
        "default, but for kept results, whose producers decide), of other ones, or of other ones of which "
        "one may compute in HF32",
    )
    parser.add_argument("--tolerances", type=Path, metavar="FILE", help="YAML file of tolerance rules")
    parser.add_argument(
        "--producer",
        action="append",
        default=[],
        metavar="FACT=VALUE",
        help="what is known of the run, such as soc=Ascend910B3, for rules that name a producer; repeatable",
    )


def add_what_if_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--what-if``."""
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="PRESET",
        help="say what other tolerances, a preset or a YAML file of rules, would have missed or caught; may "
        "be given several times, and decides nothing",
    )


def told_facts(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the facts of the run's producer that the command line tells.

    Raises:
        RequestError: one of them is no fact.
    """
    from pytest_npudump.compare.tolerances.rules import parse_fact  # noqa: PLC0415 - the parser needs none

    return dict(map(parse_fact, arguments.producer))


def chosen_tolerances(arguments: argparse.Namespace, facts: Mapping[str, str] | None = None) -> Tolerances:
    """Return what the options say; the preset of the command line goes before the file's.

    Rules for other producers are left out. So is a rule of which nothing tells whether it is for this run,
    and stderr says so.

    Args:
        arguments: with what :func:`add_tolerance_options` added.
        facts: what is known of the run's producer, where the command line tells nothing else.

    Raises:
        RequestError: an unknown preset, or a file that cannot be read or holds a rule that is refused.
    """
    from pytest_npudump.compare.tolerances.tolerance import Tolerances  # noqa: PLC0415 - the parser needs no numpy

    base = Tolerances()
    if arguments.tolerances:
        from pytest_npudump.compare.tolerances.rules import load_tolerances  # noqa: PLC0415 - yaml only where asked for

        base = load_tolerances(arguments.tolerances)
    chosen = Tolerances(arguments.preset or base.preset, base.rules).under(arguments.numerics or NUMERICS[0])
    return for_told_run(chosen, {**(facts or {}), **told_facts(arguments)})


def for_told_run(tolerances: Tolerances, facts: Mapping[str, str], given: str = "") -> Tolerances:
    """Return the tolerances for a run of these facts; stderr names rules that they do not decide.

    Args:
        tolerances: as they were read.
        facts: what is known of the run's producer.
        given: the option that gave the tolerances, with its value, as it is put before what stderr says.
    """
    from pytest_npudump.compare.tolerances.rules import undecided  # noqa: PLC0415 - the same

    words = _("the rule {rule} is left out: nothing tells {facts} of this run; --producer FACT=VALUE does")
    for rule, untold in undecided(tolerances.rules, facts):
        told = words.format(rule=rule.describe(), facts=", ".join(untold))
        to_stderr(f"npudump: {given}: {told}" if given else f"npudump: {told}")
    return tolerances.for_run(facts)
