"""What MindSpore's parser has read so far, and the checks that all its keys share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.checker_verdict import Refusal, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UINT32 = 0xFFFFFFFF


@dataclass(slots=True)
class ParserState:
    """The parser's own settings, which later checks depend on."""

    device: str
    diagnostic_path: str
    version: tuple[int, int]
    e2e: bool = False
    synchronous: bool = False
    sample_mode: int = 0
    stat_calc_mode: str = "host"
    dump_mode: int = 0
    iteration: str = ""
    input_output: int = 0
    op_debug_mode: int = 0
    file_format: str = "bin"
    saved_data: str = "tensor"
    has_devices: bool = True
    warnings: dict[str, None] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        """Keep a warning, unless it is there already."""
        self.warnings[text] = None


def unsigned_reasons(holder: Mapping[str, Any], key: str, allowed: range, path: str) -> Iterator[Refusal]:
    """Yield what keeps ``holder[key]`` from being an unsigned integer within ``allowed``.

    The parser narrows it to 32 bits before it looks at the range, so that 4294967296 passes as 0.
    """
    value = holder[key]
    examples = ", ".join(map(str, allowed)) if len(allowed) <= len("01234") else f"{allowed[0]} or more"
    remedy = f"write an integer: {examples}"
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        yield Refusal(f"{path}.{key}", f"{shown(value)} is not an unsigned integer", remedy)
    elif narrowed(value) not in allowed:
        yield Refusal(f"{path}.{key}", f"{value} is out of range", remedy)


def narrowed(value: int) -> int:
    """Return what is left of an integer in 32 bits."""
    return value & _UINT32


def string_reasons(holder: Mapping[str, Any], key: str, path: str) -> Iterator[Refusal]:
    """Yield what keeps ``holder[key]``, if it is there, from being a string."""
    if key in holder and not isinstance(holder[key], str):
        yield Refusal(f"{path}.{key}", f"{shown(holder[key])} is not a string", "write a string")


def bool_reasons(holder: Mapping[str, Any], key: str, path: str) -> Iterator[Refusal]:
    """Yield what keeps ``holder[key]``, if it is there, from being true or false."""
    if key in holder and not isinstance(holder[key], bool):
        yield Refusal(f"{path}.{key}", f"{shown(holder[key])} is not a boolean", "write true or false")


def choice_reasons(
    holder: Mapping[str, Any], key: str, options: tuple[str, ...], path: str
) -> Iterator[Refusal]:
    """Yield what keeps ``holder[key]``, if it is there, from being one of ``options``."""
    yield from string_reasons(holder, key, path)
    if key in holder and holder[key] not in options:
        remedy = "write " + " or ".join(f'"{option}"' for option in options)
        yield Refusal(f"{path}.{key}", f"{shown(holder[key])} is unknown", remedy)
