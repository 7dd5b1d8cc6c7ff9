"""What kept results are judged by: as their runs were, or with something else in place of that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.judge import BY_DEFAULT, EVERY
from pytest_npudump.compare.judge import Terms as JudgedBy
from pytest_npudump.compare.tolerances.numerics import AUTO
from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.golden.objects.tensor_store import store_of
from pytest_npudump.golden.variants import ASKED, Goldens
from pytest_npudump.regression.case import STARTED, arguments_of
from pytest_npudump.regression.origin import Origin
from pytest_npudump.request import AUTO_LAYERS, DumpRequest
from pytest_npudump.results.entry import ResultsError
from pytest_npudump.settings import default_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_npudump.results.entry import Entry

_MARKER = ("marker", MARKER_RULES)
"""Sources of rules that a test's marker gives, which has the last word."""


@dataclass(frozen=True, slots=True)
class Terms:
    """By what kept results are judged.

    Attributes:
        root: the folder that paths in results are relative to: pytest's rootdir, here.
        golden_dir: the folder of the golden files; None for that of each run.
        preset: a tolerance preset in place of each test's; "" for that.
        tolerances: in place of those of the runs' tolerance files; None for these.
        numerics: ``same``, ``other`` or ``hf32``; "" for what decided in each run.
    """

    root: Path
    golden_dir: Path | None = None
    preset: str = ""
    tolerances: Tolerances | None = None
    numerics: str = ""

    @property
    def changed(self) -> bool:
        """Whether the bounds may be others than those of the runs."""
        return bool(self.preset or self.numerics or self.tolerances is not None)

    def golden_root(self, entry: Entry) -> Path:
        """Return the folder of a test's golden file."""
        return self.golden_dir or self.root / str(entry.data["golden"]["folder"])

    def judging(self, entry: Entry) -> JudgedBy:
        """Return what a run was judged by, but for these terms.

        Raises:
            RequestError: a tolerance of the entry is none.
            ResultsError: what the entry says of the test makes no sense.
            GoldenError: the golden does not tell rightly which of its variants applies.
        """
        data = entry.data
        try:
            request, options = data["request"], data["options"]
            kept = tuple(request.get("golden_tensors", ()))
            facts = {name: str(value) for name, value in data["producer"].items()}
            terms = JudgedBy(
                self._tolerances(data["tolerances"]).for_run(facts),
                None if self.numerics else request.get("numerics"),
                self.numerics or options.get("numerics") or AUTO,
                tensors=EVERY if AUTO_LAYERS in kept else kept,
                layers=tuple(request.get("layers", ())),
                kept=kept,
                fail_on=str(options.get("fail_on", "")),
                unasked=() if request.get("dump_stats") else BY_DEFAULT,
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise _senseless(entry, error) from error
        return replace(terms, why=self.goldens(entry).why)

    def goldens(self, entry: Entry) -> Goldens:
        """Return the golden files of a test, with the variant that applies to its run.

        Raises:
            ResultsError: what the entry says of the test makes no sense.
            GoldenError: the golden does not tell rightly which of its variants applies.
        """
        data = entry.data
        path = self.golden_root(entry) / entry.golden_file
        named = data["golden"].get("variant")
        variant = named or data["golden"].get("chosen")
        common = path.with_name(f"{path.name.rpartition('@')[0]}.yaml") if variant else path
        try:
            request = DumpRequest(**_known(data["request"], ASKED))
            settings = default_settings()
            settings = settings._replace(**_known(data["options"], settings._fields))
        except (TypeError, ValueError, AttributeError) as error:
            raise _senseless(entry, error) from error
        store = store_of(settings, self.root)
        goldens = Goldens(entry.test, request, common, path if named else None, store=store)
        return goldens.for_run(data["producer"])

    def origin(self, entry: Entry) -> Origin:
        """Return what reports say of a kept run besides what came of it."""
        data, here = entry.data, Path.cwd()
        started = {name: str(path) for name, path in _known(data["options"], STARTED).items()}
        file = str(data["test_file"]["path"])
        return Origin(
            test=entry.test,
            runtime=str(data["runtime"]),
            directory=self.root,
            here=here,
            arguments=arguments_of(entry.test, file, self.root, here, started),
            isolated=data["isolated"],
            producer={name: str(value) for name, value in data["producer"].items()},
        )

    def _tolerances(self, given: Mapping[str, Any]) -> Tolerances:
        rules = [_rule(rule) for rule in given["rules"]]
        preset = str(given["preset"])
        if self.tolerances is not None:
            rules = [*self.tolerances.rules, *(rule for rule in rules if rule.source in _MARKER)]
            preset = self.tolerances.preset
        return Tolerances(self.preset or preset, tuple(rules))


def terms_at(entries: Iterable[Entry], root: Path | None, golden_dir: Path | None) -> Terms:
    """Return the terms of the runs themselves, wherever their repository and goldens lie.

    Args:
        entries: the results.
        root: of the repository; None for where it is found from the working directory.
        golden_dir: the folder of the golden files; None for that of each run.

    Raises:
        ResultsError: there is no root.
    """
    found = root or _find_root(entries, Path.cwd())
    return Terms(found.absolute(), golden_dir.absolute() if golden_dir else None)


def _find_root(entries: Iterable[Entry], start: Path) -> Path:
    """Return the folder that results' paths are relative to: the nearest, upwards, with a test's file."""
    files = [str(entry.data["test_file"].get("path")) for entry in entries]
    for folder in (start, *start.parents):
        if any((folder / file).is_file() for file in files):
            return folder
    raise ResultsError(
        f"{start}: neither here nor in a folder above is {files[0] if files else 'any test'}: go to the "
        f"repository of the tests, or name its folder with --root"
    )


def _known(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what this version knows; a field of another version is left out."""
    return {name: value for name, value in given.items() if name in names}


def _rule(given: Mapping[str, Any]) -> Rule:
    producer = tuple((str(name), str(glob)) for name, glob in given.get("producer", ()))
    return Rule(**{**given, "producer": producer})


def _senseless(entry: Entry, error: Exception) -> ResultsError:
    return ResultsError(f"{entry.test}: its kept result makes no sense: {error}; run it again")
