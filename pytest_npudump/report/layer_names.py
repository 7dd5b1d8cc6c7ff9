"""Names of a test's layers as its report shows them: cut in one way, and never so that one may be another."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_npudump.dump.table import layer_of
from pytest_npudump.language.text import HANG, width, wrapped
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison


_PREFIX = 8
"""Characters of a common prefix that is worth a line of its own."""
_PLACE, _CELLS = 12, 50
"""Characters that a name leaves to its place, as ``:output.0``, in a line, and to other cells in a table."""
_ALIKE = 100
"""Layers with all parts of a name, among which its order of parts is looked for."""
_GAPS = {"/": "/.../", ".": "...", "_": "_..._"}
"""What separates parts of names, and what stands for parts that are left out."""
_WORD = re.compile(r"([('\"]*)([!-~]+?)(?=(?:#[^\s:]+)?:(?:input|output)\.|[,;:)'\"]*(?:[^!-~]|$))")


class LayerNames:
    """Names of a test's layers, the same in all lines and tables of a report.

    One that is too long loses parts, but for the last and those that tell it from all other layers of the
    test. It keeps its first part too, but in reports with tables: there ``.../`` at the start stands for the
    prefix that :meth:`legend` tells, and the part behind that is kept. What a table holds besides, in
    whichever language, does not count.

    Attributes:
        columns: of the terminal; None for a file, which has whole lines and names.
        room: characters that a name is to take; 0 for a file.
    """

    def __init__(self, keys: Iterable[str] = (), columns: int | None = None) -> None:
        """Take the keys of a test's tensors, as tables have them."""
        self._keys, self.columns = keys, columns
        self._most = columns - len(HANG) - _PLACE if columns is not None else 0
        self.room = max(0, columns - _CELLS) if columns is not None else 0
        self._dotted = self._used = self._told = False
        self._meant: dict[tuple[tuple[str, bool], ...], set[str]] = {}

    @classmethod
    def of(cls, comparison: Comparison | None, columns: int | None = None) -> LayerNames:
        """Return the names of both sides."""
        sides = () if comparison is None else (comparison.golden, comparison.actual)
        return cls([key for side in sides for key in side.keys], columns)

    @cached_property
    def layers(self) -> frozenset[str]:
        """All layers of the test."""
        return frozenset(map(layer_of, self._keys))

    @cached_property
    def _separator(self) -> str:
        names = [layer[1:] for layer in self.layers]
        return next((one for one in _GAPS if 2 * sum(one in name for name in names) > len(names)), "/")

    @cached_property
    def prefix(self) -> str:
        """Longest beginning that more than half of the names share; "" where it is short."""
        prefix, names = "", [self._parts(layer) for layer in self.layers]
        while counts := Counter(first for first, *others in names if others).most_common(1):
            ((part, count),) = counts
            if not 1 < len(self.layers) < 2 * count:
                break
            prefix += part + self._separator
            names = [others for first, *others in names if others and first == part]
        return prefix if len(prefix) >= _PREFIX else ""

    @cached_property
    def _having(self) -> dict[tuple[str, bool], set[str]]:
        """The layers that have a part, and those of which it is the last."""
        having: defaultdict[tuple[str, bool], set[str]] = defaultdict(set)
        for layer in self.layers:
            *parts, last = self._parts(layer)
            having[last, True].add(layer)
            for part in parts:
                having[part, False].add(layer)
        return having

    def _parts(self, name: str) -> list[str]:
        first, *others = name[1:].split(self._separator)
        return [name[:1] + first, *others]

    def fit(self, shown: Iterable[str], room: int) -> None:
        """Give names the room that a table of these layers has."""
        self.room = min(room, self._most)
        self._dotted = any(len(name) > room for name in shown)

    def short(self, name: str) -> str:
        """Return a layer's name, cut where it takes more than its room."""
        if not self.room or (len(name) <= self.room and not self._dotted) or name not in self.layers:
            return name
        begun = self._dotted and self.prefix not in {"", name} and name.startswith(self.prefix)
        start = self.prefix.count(self._separator, 1) if begun else 0
        found = self._cut(name, start)
        if start and (not found or width(found) > self.room):
            # What follows the prefix may be the end of a layer without it, or begin with a long part.
            other = self._cut(name, 0)
            if not found or (other and width(other) <= self.room):
                begun, found = False, other
        if not found or found in self.layers:
            return name
        self._used |= begun
        return found

    def _cut(self, name: str, start: int) -> str:
        """Return a name without parts that it does not need to be told from others; "" for the whole."""
        parts, last = self._parts(name), name.count(self._separator, 1)
        having = [self._having[part, at == last] for at, part in enumerate(parts)]
        kept = {start, last}  # a cut in the middle is never at the start, where .../ stands for the prefix
        if start == last > 0:
            return self._joined(parts, kept)
        ends = tuple((parts[at], at == last) for at in kept)
        if ends not in self._meant:  # as of thousands of rows
            self._meant[ends] = set.intersection(*(having[at] for at in kept))
        meant = self._meant[ends]
        for at in sorted(range(start, last), key=lambda at: (len(having[at]), -at)):
            if len(meant) > len(narrower := meant & having[at]):
                kept.add(at)
                meant = narrower
        text, behind = self._joined(parts, kept), last
        while len(meant) > 1:  # one that has all of these parts, and more between them
            behind -= 1
            if behind < start or len(meant) > _ALIKE:
                return ""
            kept, text = kept | {behind}, self._joined(parts, kept | {behind})
            full = self.prefix + text[4:] if start else text
            shape = re.compile(".*".join(map(re.escape, full.split("..."))), re.DOTALL)
            meant = {layer for layer in meant if shape.fullmatch(layer)}
        if width(text) >= width(name):
            return ""
        for at in range(last - 1, start - 1, -1):
            more = self._joined(parts, kept | {at})
            if width(more) > self.room:
                break
            kept, text = kept | {at}, more
        return text

    def _joined(self, parts: Sequence[str], kept: Collection[int]) -> str:
        runs: list[list[str]] = []
        for at in sorted(kept):
            if at - 1 not in kept:
                runs.append([])
            runs[-1].append(parts[at])
        begin = "" if 0 in kept else ".../"
        return begin + _GAPS[self._separator].join(map(self._separator.join, runs))

    def text(self, line: str) -> str:
        """Return a sentence with its names cut."""
        if not self.room or not (self._dotted or any(len(word) > self.room for word in line.split())):
            return line
        return _WORD.sub(lambda found: found[1] + self.short(found[2]), line)

    def lines(self, line: str, margin: int = 0) -> list[str]:
        """Return a line, which may begin with a label of up to 12 columns, broken at blanks, names cut."""
        text = self.text(line)
        if self.columns is None or width(text) <= self.columns - margin:
            return [text]
        columns = self.columns - margin
        found = re.match(r"[^:：]*[:：] *", text)
        label = found[0] if found and width(found[0]) <= len(HANG) else ""
        first, *rest = wrapped(text[len(label) :], columns - width(label), columns - len(HANG))
        return [f"{label}{first}", *(HANG + one for one in rest)]

    def legend(self, *, again: bool = False) -> list[str]:
        """Say once, where it has been used, what ``.../`` stands for; a prefix is never broken.

        Args:
            again: whether to say it once more, for another text.
        """
        if not self._used or (self._told and not again) or self.columns is None:
            return []
        self._told = True
        words = _("  names that start with .../ begin with {prefix}")
        line = words.format(prefix=self.prefix)
        if width(line) <= self.columns:
            return [line]
        return [words.format(prefix="").rstrip(), f"    {self.prefix}"]

    def globs(self, shown: str) -> list[str]:
        """Return patterns of which the first that means any layer means what a report shows of a name."""
        sign, rest = self._separator, shown.removeprefix(".../")
        rest = rest.replace("...", f"{sign}*{sign}" if sign == "." else "*")
        begun, more = [f"{self.prefix}{rest}"], [] if rest == shown else [rest]
        return [shown, *begun, *more] if shown.startswith(".../") else [shown, *more, *begun]
