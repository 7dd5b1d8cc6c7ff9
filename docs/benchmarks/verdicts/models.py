"""The models: the demonstration's, those inside the wheel of rapidocr, and a picture of text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pytest_npudump.demo import MODEL

_GLYPHS = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "C": "01110 10001 10000 10000 10000 10001 01110",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "N": "10001 11001 10101 10101 10011 10001 10001",
    "D": "11110 10001 10001 10001 10001 10001 11110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "0": "01110 10001 10011 10101 11001 10001 01110",
    " ": "00000 00000 00000 00000 00000 00000 00000",
}
_TEXT = ("ASCEND 910", "910 DANCES")
_INK, _PAPER = -0.7, 0.6


@dataclass(frozen=True)
class Source:
    """A model.

    Attributes:
        name: as tables show it.
        path: the file.
        shape: of its one input, (1, 3, height, width).
        lines: of text in its picture.
    """

    name: str
    path: Path
    shape: tuple[int, ...]
    lines: int

    def feed(self) -> np.ndarray:
        """A picture of text on uneven paper, from -1 to 1: the same in every run."""
        height, width = self.shape[2:]
        ink = np.zeros((height, width))
        rows = height // self.lines
        for line, text in enumerate(_TEXT[: self.lines]):
            drawn = _drawn(text, rows // 12)
            top, left = line * rows + (rows - len(drawn)) // 2, 6
            across = min(drawn.shape[1], width - left)
            ink[top : top + len(drawn), left : left + across] = drawn[:, :across]
        paper = _PAPER + 0.15 * np.sin(np.arange(width) / 31) + 0.1 * np.cos(np.arange(height) / 17)[:, None]
        grain = np.random.default_rng(7).normal(0, 0.03, self.shape)
        return (paper + ink * (_INK - paper) + grain).astype(np.float32)


def _drawn(text: str, size: int) -> np.ndarray:
    """Letters with dots of ``size`` pixels and soft edges: ink from 0 to 1."""
    letters = [np.array([list(map(int, row)) for row in _GLYPHS[c].split()]) for c in text]
    dots = np.kron(np.hstack([np.pad(letter, 1) for letter in letters]), np.ones((size, size)))
    return (sum(np.roll(dots, move, axis) for axis in (0, 1) for move in (-1, 1)) + 2 * dots) / 6


def sources(folder: Path | None = None) -> list[Source]:
    """Every model that is there: the classifier always, the others where rapidocr is installed.

    Args:
        folder: files of detection and recognition instead of the wheel's, and no classifier.
    """
    found = [Source("PP-OCR cls v2", MODEL, (1, 3, 48, 192), 1)] if folder is None else []
    wheel = find_spec("rapidocr")
    if folder is None and wheel is not None:
        folder = Path(str(wheel.origin)).with_name("models")
    for kind, shape, lines in (("det", (1, 3, 96, 192), 2), ("rec", (1, 3, 48, 192), 1)):
        found += [
            Source(f"PP-OCR {kind} {_version(path)}", path, shape, lines)
            for path in sorted(folder.glob(f"*_{kind}_*.onnx") if folder else ())
        ]
    return found


def _version(path: Path) -> str:
    """The version in the name of a file: ``v6`` of ``PP-OCRv6_det_small.onnx``."""
    found = re.search(r"v\d+", path.stem)
    return path.stem if found is None else found.group()
