"""The map of a tensor as a PNG, read by Pillow."""

from __future__ import annotations

import base64
import io
from itertools import pairwise

import numpy as np
from PIL import Image

from pytest_npudump.compare.tensors.picture import draw, draw_alone
from pytest_npudump.report.charts import NOT_A_NUMBER, SAME, axes_words, cell_colour, map_uri


def test_a_pixel_is_a_cell_in_the_colour_of_its_error() -> None:
    golden = np.ones((3, 4))
    actual = golden.copy()
    actual[0, 1], actual[2, 3] = 1.5, np.nan
    picture = draw(golden, actual, rtol=0.0, atol=1e-3)
    assert picture is not None
    head, _, data = map_uri(picture).partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (3, 4, 3)
    assert tuple(pixels[2, 3]) == NOT_A_NUMBER
    assert tuple(pixels[1, 1]) == SAME
    assert tuple(pixels[0, 1]) == cell_colour(picture.cells[1]) not in {SAME, NOT_A_NUMBER}


def test_larger_errors_are_lighter() -> None:
    light = [
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), cell_colour(n), strict=True))
        for n in range(1, 255)
    ]
    assert all(after > before - 1 for before, after in pairwise(light))  # channels are whole numbers
    assert light[-1] - light[0] > 150


def test_a_tensor_alone_has_no_map() -> None:
    picture = draw_alone(np.ones(3))
    assert picture is not None
    assert map_uri(picture) == ""


def test_axes_are_named_by_how_they_run() -> None:
    picture = draw(np.ones((2, 3, 4, 5)), np.ones((2, 3, 4, 5)), rtol=0, atol=0)
    assert picture is not None
    assert axes_words(picture, 4) == ("axes 0-1", "axes 2-3")
