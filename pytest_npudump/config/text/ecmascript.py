"""Which regular expressions ``std::regex`` compiles, with libstdc++'s reading of ECMAScript.

Only the syntax is looked at. ``re`` cannot stand in: it takes ``(?<=a)`` and ``a{,2}``, which ``std::regex``
refuses, and refuses ``[]`` and ``a**``, which ``std::regex`` takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CLASS = -1
_CLASS_NAME = re.compile(
    rb"alnum|alpha|blank|cntrl|d|digit|graph|lower|print|punct|s|space|upper|w|xdigit", re.IGNORECASE
)
_COLLATING_NAMES = (
    "NUL SOH STX ETX EOT ENQ ACK alert backspace tab newline vertical-tab form-feed carriage-return SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC IS4 IS3 IS2 IS1 space exclamation-mark quotation-mark "
    "number-sign dollar-sign percent-sign ampersand apostrophe left-parenthesis right-parenthesis asterisk "
    "plus-sign comma hyphen period slash zero one two three four five six seven eight nine colon semicolon "
    "less-than-sign equals-sign greater-than-sign question-mark commercial-at A B C D E F G H I J K L M N O "
    "P Q R S T U V W X Y Z left-square-bracket backslash right-square-bracket circumflex underscore "
    "grave-accent a b c d e f g h i j k l m n o p q r s t u v w x y z left-curly-bracket vertical-line "
    "right-curly-bracket tilde DEL"
)
_COLLATING_ELEMENTS = {name.encode(): code for code, name in enumerate(_COLLATING_NAMES.split())}
"""What may stand between ``[.`` and ``.]``: POSIX's names of the characters of ASCII, in their order."""
_HEX = {ord("x"): 2, ord("u"): 4}
_ESCAPED_CHARACTERS = {ord("0"): 0, ord("f"): 12, ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("v"): 11}
_BRACE = re.compile(rb"\{([0-9]+)(?:(,)([0-9]*))?\}")
_NAMED = re.compile(rb"\[([.:=])((?:(?!\1).)*)\1\]", re.DOTALL)
_MOST_STATES = 100_000


class _SyntaxProblemError(Exception):
    """What is wrong with an expression."""


def syntax_problem(expression: str) -> str:
    """Return why ``std::regex(expression)`` throws, or ``""`` if it does not."""
    try:
        _Expression(expression.encode()).check()
    except _SyntaxProblemError as problem:
        return str(problem)
    return ""


@dataclass(slots=True)
class _Expression:
    """A scan from left to right; the grammar needs no tree, only the groups that are open.

    Attributes:
        text: the expression.
        at: where the scan is.
        repeatable: whether a quantifier may follow here.
        groups: how many captures have begun.
        open: for each open parenthesis its capture's number, 0 for ``(?:`` and -1 for a lookahead.
    """

    text: bytes
    at: int = 0
    repeatable: bool = False
    groups: int = 0
    open: list[int] = field(default_factory=list)

    def check(self) -> None:
        while self.at < len(self.text):
            character = self._next()
            handler = _HANDLERS.get(character, _Expression.ordinary)
            handler(self, character)
        if self.open:
            raise _SyntaxProblemError("a ( is not closed")

    def _next(self) -> int:
        if self.at >= len(self.text):
            raise _SyntaxProblemError("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def ordinary(self, _: int) -> None:
        self.repeatable = True

    def anchor(self, _: int) -> None:
        self.repeatable = False

    def quantifier(self, character: int) -> None:
        if not self.repeatable:
            raise _SyntaxProblemError(f"nothing to repeat before {chr(character)}")

    def brace(self, character: int) -> None:
        self.quantifier(character)
        match = _BRACE.match(self.text, self.at - 1)
        if match is None:
            raise _SyntaxProblemError("a { that begins no count such as {2} or {2,5}")
        self.at = match.end()
        counts = [digits.lstrip(b"0") or b"0" for digits in (match[1], match[3]) if digits]
        if any(len(digits) > len(str(_MOST_STATES)) or int(digits) >= _MOST_STATES for digits in counts):
            raise _SyntaxProblemError("a count that is too large")
        if len(counts) > 1 and int(counts[0]) > int(counts[1]):
            raise _SyntaxProblemError("a count whose end is before its start")

    def group(self, _: int) -> None:
        self.repeatable = False
        if self.text[self.at : self.at + 1] != b"?":
            self.groups += 1
            self.open.append(self.groups)
            return
        self.at += 1
        kind = self._next()
        if kind not in b":=!":
            raise _SyntaxProblemError("only (?:, (?= and (?! may begin a special group")
        self.open.append(0 if kind == ord(":") else -1)

    def group_end(self, _: int) -> None:
        if not self.open:
            raise _SyntaxProblemError("a ) closes nothing")
        self.repeatable = self.open.pop() >= 0

    def escape(self, _: int) -> None:
        character = self._next()
        self.repeatable = character not in b"bB"
        if chr(character) in "123456789":
            self._back_reference(character)
        elif character not in b"bB":
            self._escaped(character)

    def _back_reference(self, character: int) -> None:
        digits = chr(character)
        while self.at < len(self.text) and chr(self.text[self.at]) in "0123456789":
            digits += chr(self._next())
        if len(digits) > len(str(self.groups)) or int(digits) > self.groups or int(digits) in self.open:
            raise _SyntaxProblemError(f"\\{digits[:10]} refers to no finished group")

    def _escaped(self, character: int) -> int | None:
        """Pass over what follows a backslash; return the one character it stands for, or None for a class."""
        if character in b"dDsSwW":
            return None
        if character == ord("c"):
            return self._next()
        if character in _HEX:
            digits = self.text[self.at : self.at + _HEX[character]]
            if not re.fullmatch(rb"[0-9a-fA-F]{%d}" % _HEX[character], digits):
                raise _SyntaxProblemError(f"\\{chr(character)} needs {_HEX[character]} hexadecimal digits")
            self.at += len(digits)
            return int(digits, 16) & 0xFF
        return _ESCAPED_CHARACTERS.get(character, character)

    def bracket(self, _: int) -> None:
        if self.text[self.at : self.at + 1] == b"^":
            self.at += 1
        # The character that may begin a range; _CLASS where a class stands, which may not.
        start: int | None = None
        kind, value = self._element()
        while kind != "end":
            if kind == "dash" and start is not None and self.text[self.at : self.at + 1] != b"]":
                self._range(start)
                start = None
            else:
                start = value
            kind, value = self._element()
        self.repeatable = True

    def _range(self, start: int) -> None:
        kind, end = self._element()
        if start == _CLASS or kind in ("class", "named"):
            raise _SyntaxProblemError("a range in [...] whose ends are not single characters")
        if start > end:
            raise _SyntaxProblemError("a range in [...] whose end is before its start")

    def _element(self) -> tuple[str, int]:
        """Pass over one element of ``[...]`` and return its kind and the character it stands for."""
        character = self._next()
        if character == ord("]"):
            return "end", character
        if character == ord("-"):
            return "dash", character
        if character == ord("["):
            return self._named_class()
        return self._bracket_escape() if character == ord("\\") else ("character", character)

    def _bracket_escape(self) -> tuple[str, int]:
        character = self._next()
        if chr(character) in "B123456789":
            raise _SyntaxProblemError(f"\\{chr(character)} inside [...]")
        stands_for = ord("\b") if character == ord("b") else self._escaped(character)
        return ("class", _CLASS) if stands_for is None else ("character", stands_for)

    def _named_class(self) -> tuple[str, int]:
        if self.text[self.at : self.at + 1] not in (b".", b":", b"="):
            return "character", ord("[")
        match = _NAMED.match(self.text, self.at - 1)
        if match is None:
            raise _SyntaxProblemError("a class name in [...] that does not end")
        self.at = match.end()
        if match[1] == b":":
            known = _CLASS_NAME.fullmatch(match[2]) is not None
        else:
            known = match[2] in _COLLATING_ELEMENTS
        if not known:
            raise _SyntaxProblemError("an unknown name in [...]")
        # A collating element begins a range, and cannot end one.
        return ("named", _COLLATING_ELEMENTS[match[2]]) if match[1] == b"." else ("class", _CLASS)


_HANDLERS = {
    **dict.fromkeys(b"^$|", _Expression.anchor),
    **dict.fromkeys(b"*+?", _Expression.quantifier),
    ord("{"): _Expression.brace,
    ord("("): _Expression.group,
    ord(")"): _Expression.group_end,
    ord("["): _Expression.bracket,
    ord("\\"): _Expression.escape,
}
