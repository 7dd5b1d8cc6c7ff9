"""A review on a full screen: the runs above, what differs in the chosen one below, keys for decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.styles import Style

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.cli.golden import diff
from pytest_npudump.cli.golden.decisions import ACCEPTED, OPEN, REFUSED, REJECTED, SKIPPED
from pytest_npudump.cli.golden.pending import size
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

    from pytest_npudump.cli.golden.accept import Done
    from pytest_npudump.cli.golden.decisions import Decisions

    Fragments = StyleAndTextTuples

_MOST_RUNS = 10
"""Rows of the list; more runs scroll. It has a third of the terminal: what differs needs the rest."""
_PAGE = 10
_COLUMNS = 20
_KEYS = mark("a accept  r reject  s skip  q leave  A/R/S all open  l layers  ↑↓ ←→ PgUp PgDn")
_MARKS = {OPEN: " ", ACCEPTED: "a", REJECTED: "r", SKIPPED: "s", REFUSED: "!"}
_STYLE = Style.from_dict(
    {
        "chosen": "reverse",
        "decided": "ansibrightblack",
        "refused": "ansired",
        "head": "bold",
        "keys": "reverse",
        "told": "italic",
    }
)


def review_on_screen(
    decisions: Decisions, *, keyboard: Input | None = None, screen: Output | None = None
) -> None:
    """Let a person decide; then say on the terminal itself what was done.

    What is not decided when they leave waits on.

    Args:
        decisions: what waits.
        keyboard: where keys come from; None for the terminal.
        screen: where it is drawn; None for the terminal.
    """
    review = _Review(decisions)
    application: Application[None] = Application(
        layout=review.layout,
        key_bindings=review.keys,
        style=_STYLE,
        full_screen=True,
        input=keyboard,
        output=screen,
    )
    application.run()
    for told in review.told:
        emit(told.lines)
        if told.problem:
            to_stderr(told.problem)


class _Review:
    """What is on the screen, and what the keys do."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._chosen = 0
        self._top = self._left = 0
        self._details: dict[int, list[str]] = {}
        self._asks = False
        self.told: list[Done] = []
        self._pattern = Buffer(multiline=False, accept_handler=self._accept_layers)
        self.keys = self._bindings()
        self.layout = self._laid_out()

    def _laid_out(self) -> Layout:
        asks = Condition(lambda: self._asks)
        question = VSplit(
            [
                Window(
                    FormattedTextControl(_("layers to accept (names or globs): ")), dont_extend_width=True
                ),
                Window(BufferControl(self._pattern)),
            ],
            height=1,
        )
        self._list = Window(
            FormattedTextControl(self._runs, focusable=True, show_cursor=False), height=self._rows
        )
        return Layout(
            HSplit(
                [
                    Window(FormattedTextControl(self._head), height=1),
                    self._list,
                    Window(char="─", height=1),
                    Window(FormattedTextControl(self._detail)),
                    Window(FormattedTextControl(self._last), height=1),
                    ConditionalContainer(question, asks),
                    ConditionalContainer(
                        Window(FormattedTextControl(_(_KEYS)), height=1, style="class:keys"), ~asks
                    ),
                ]
            ),
            focused_element=self._list,
        )

    def _rows(self) -> Dimension:
        room = get_app().output.get_size().rows // 3
        return Dimension.exact(max(1, min(len(self._decisions.runs), _MOST_RUNS, room)))

    def _head(self) -> Fragments:
        counts = self._decisions.counts
        told = _("{accepted} accepted, {rejected} rejected").format(
            accepted=counts.accepted, rejected=counts.rejected
        )
        if counts.refused:
            told += _(", {refused} refused").format(refused=counts.refused)
        return [
            (
                "class:head",
                _("npudump golden review: {left} of {count} wait; {told}").format(
                    left=counts.left, count=len(self._decisions.runs), told=told
                ),
            )
        ]

    def _runs(self) -> Fragments:
        found: Fragments = []
        width = max(len(plain(one.entry.test)) for one in self._decisions.runs)
        for number, pending in enumerate(self._decisions.runs):
            made = self._decisions.made(number)
            style = "class:refused" if made == REFUSED else "class:decided" if made else ""
            if number == self._chosen:
                style += " class:chosen"
                found.append(("[SetCursorPosition]", ""))
            comparison = pending.comparison
            differ = (
                _("no golden")
                if comparison is None
                else _("{count} of {expected} differ").format(
                    count=len(comparison.failing), expected=comparison.expected
                )
            )
            first = comparison.first.key if comparison is not None and comparison.first is not None else ""
            told = (differ, size(pending), plain(str(first)))
            text = f"{_MARKS[made]} {plain(pending.entry.test):<{width}}  {'  '.join(told)}"
            found.append((style, f"{text}\n"))
        return found

    def _detail(self) -> Fragments:
        lines = self._lines()
        return [("", "".join(f"{line[self._left :]}\n" for line in lines[self._top :]))]

    def _lines(self) -> list[str]:
        """Return what differs in the chosen run; reading it takes long where there is much, so once."""
        if self._chosen not in self._details:
            found = diff.lines(self._decisions.runs[self._chosen])
            self._details[self._chosen] = [plain(line) for line in found]
        return self._details[self._chosen]

    def _last(self) -> Fragments:
        told = self.told[-1] if self.told else None
        text = "" if told is None else told.problem or next(iter(told.lines), "")
        return [("class:told", plain(text))]

    def _bindings(self) -> KeyBindings:
        keys, reading = KeyBindings(), Condition(lambda: not self._asks)

        def on(names: tuple[str, ...], work: Callable[[KeyPressEvent], None]) -> None:
            for name in names:
                keys.add(name, filter=reading)(work)

        decisions = self._decisions
        on(("a",), lambda event: self._decide(event, decisions.accept))
        on(("r",), lambda event: self._decide(event, decisions.reject))
        on(("s",), lambda event: self._decide(event, decisions.skip))
        on(("A",), lambda event: self._decide_all(event, decisions.accept))
        on(("R",), lambda event: self._decide_all(event, decisions.reject))
        on(("S",), lambda event: self._decide_all(event, decisions.skip))
        on(("up", "k"), lambda _: self._choose(self._chosen - 1))
        on(("down", "j"), lambda _: self._choose(self._chosen + 1))
        on(("pageup",), lambda _: self._scroll(-_PAGE))
        on(("pagedown", "space"), lambda _: self._scroll(_PAGE))
        on(("left",), lambda _: self._shift(-_COLUMNS))
        on(("right",), lambda _: self._shift(_COLUMNS))
        on(("l",), self._ask)
        on(("q", "c-d"), lambda event: event.app.exit())
        keys.add("escape", filter=~reading, eager=True)(self._stop_asking)
        keys.add("c-c")(lambda event: event.app.exit())
        return keys

    def _choose(self, number: int) -> None:
        self._chosen = max(0, min(number, len(self._decisions.runs) - 1))
        self._top = 0

    def _shift(self, columns: int) -> None:
        self._left = max(0, min(self._left + columns, max(map(len, self._lines())) - 1))

    def _scroll(self, rows: int) -> None:
        self._top = max(0, min(self._top + rows, len(self._lines()) - 1))

    def _decide(self, event: KeyPressEvent, how: Callable[[int], Done]) -> None:
        """Decide about the chosen run, unless that was done before, and go to the next that is open."""
        if self._decisions.made(self._chosen) in (OPEN, SKIPPED):
            self.told.append(how(self._chosen))
        self._go_on(event)

    def _decide_all(self, event: KeyPressEvent, how: Callable[[int], Done]) -> None:
        number: int | None = self._chosen
        while (number := self._decisions.next_open(number or 0)) is not None:
            self.told.append(how(number))
        self._go_on(event)

    def _go_on(self, event: KeyPressEvent) -> None:
        number = self._decisions.next_open(self._chosen)
        if number is None:
            event.app.exit()
        else:
            self._choose(number)

    def _ask(self, event: KeyPressEvent) -> None:
        if self._decisions.made(self._chosen) in (OPEN, SKIPPED):
            self._asks = True
            event.app.layout.focus(self._pattern)

    def _stop_asking(self, event: KeyPressEvent) -> None:
        self._asks = False
        self._pattern.reset()
        event.app.layout.focus(self._list)

    def _accept_layers(self, buffer: Buffer) -> bool:
        from prompt_toolkit.application import get_app  # noqa: PLC0415 - the one that runs now

        patterns = buffer.text.split()
        if patterns:
            self.told.append(self._decisions.accept(self._chosen, patterns))
            if not self.told[-1].good:
                return True  # what was typed stays, to be corrected
        self._asks = False
        get_app().layout.focus(self._list)
        if patterns:
            number = self._decisions.next_open(self._chosen)
            if number is None:
                get_app().exit()
            else:
                self._choose(number)
        return False
