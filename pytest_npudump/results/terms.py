"""What kept results are judged by: as their runs were, or with something else in place of that."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.golden.objects.tensor_store import store_of
from pytest_npudump.golden.variants import Goldens
from pytest_npudump.regression.case import STARTED, Case, arguments_of
from pytest_npudump.request import DumpRequest
from pytest_npudump.results.entry import ResultsError
from pytest_npudump.runtime.remote import RemoteRuntime
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

    def case(self, entry: Entry) -> Case:
        """Return the case of a test, as it was but for these terms.

        Raises:
            RequestError: a tolerance of the entry is none.
            ResultsError: what the entry says of the test makes no sense.
            GoldenError: the golden does not tell rightly which of its variants applies.
        """
        data = entry.data
        try:
            settings = default_settings()
            settings = settings._replace(**_known(data["options"], settings._fields))
            names = [field.name for field in fields(DumpRequest)]
            request = DumpRequest(**_known(_as_tuples(data["request"]), names))
            if self.numerics:
                request, settings = replace(request, numerics=None), settings._replace(numerics=self.numerics)
            facts = {name: str(value) for name, value in data["producer"].items()}
            tolerances = self._tolerances(data["tolerances"]).for_run(facts)
            started = {name: str(path) for name, path in _known(data["options"], STARTED).items()}
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ResultsError(
                f"{entry.test}: its kept result makes no sense: {error}; run it again"
            ) from error
        root = self.golden_root(entry)
        path = root / entry.golden_file
        named = data["golden"].get("variant")
        variant = named or data["golden"].get("chosen")
        common = path.with_name(f"{path.name.rpartition('@')[0]}.yaml") if variant else path
        store = store_of(settings, self.root)
        goldens = Goldens(entry.test, request, common, path if named else None, store=store)
        file, here = str(data["test_file"]["path"]), Path.cwd()
        return Case(
            nodeid=entry.test,
            arguments=arguments_of(entry.test, file, self.root, here, started),
            here=here,
            started=started,
            request=request,
            settings=settings,
            runtime=RemoteRuntime(str(data["runtime"]), data["producer"]),
            goldens=goldens.for_run(data["producer"]),
            tolerances=tolerances,
            directory=self.root,
            isolated=data["isolated"],
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


def _as_tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
