"""The models: ONNX files inside the wheel of rapidocr, and pictures of text to feed them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_npudump.demo.model import find_model


@dataclass(frozen=True)
class Source:
    """A model.

    Attributes:
        name: as tables show it.
        path: the file.
        shape: of its one input, (1, 3, height, width).
    """

    name: str
    path: Path
    shape: tuple[int, ...]

    def feed(self, seed: int = 7) -> np.ndarray:
        """A picture of strokes on a slightly uneven ground, from -1 to 1: the same in every run."""
        rng = np.random.default_rng(seed)
        height, width = self.shape[2:]
        strokes = np.kron(rng.random((1, 3, height // 4, width // 4)) > 0.6, np.ones((1, 1, 4, 4)))
        return (0.9 * (strokes * 2 - 1) + 0.1 * rng.standard_normal(self.shape)).astype(np.float32)


def sources() -> list[Source]:
    """Every model that is there: the classifier always, detection and recognition as the wheel has them."""
    classifier = find_model()
    found = [Source("PP-OCR cls v2", classifier, (1, 3, 48, 192))]
    for pattern, kind, shape in (("*_det_*", "det", (1, 3, 64, 96)), ("*_rec_*", "rec", (1, 3, 48, 96))):
        found += [
            Source(f"PP-OCR {kind} {path.stem.split('_')[0].removeprefix('PP-OCR')}", path, shape)
            for path in sorted(classifier.parent.glob(f"{pattern}.onnx"))
        ]
    return found
