from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings, strategies as st

from pytest_npudump.dump.arrays.layouts import JoinedTensor, in_host_layout
from pytest_npudump.dump.filebytes import c_order_chunks, slabs


@st.composite
def _joined(draw: st.DrawFn) -> JoinedTensor:
    """A tensor of up to four host axes, each of one part or of two of which the last block is cut."""
    extents: list[int] = []
    counts, cut = [], []
    for _ in range(draw(st.integers(1, 4))):
        blocks, block = draw(st.integers(1, 4)), draw(st.integers(1, 5))
        split = draw(st.booleans())
        extents += [blocks, block] if split else [block]
        counts.append(2 if split else 1)
        cut.append(draw(st.integers((blocks - 1) * block + 1, blocks * block)) if split else block)
    order = draw(st.permutations(range(len(extents))))
    device = np.arange(math.prod(extents)).reshape([extents[axis] for axis in order])
    return JoinedTensor(device.transpose(np.argsort(order)), tuple(counts), tuple(cut), tuple(cut))


def _element(tensor: JoinedTensor, index: tuple[int, ...]) -> int:
    """One element, looked up where the definition of a split axis says it lies."""
    place: list[int] = []
    for count, coordinate in zip(tensor.counts, index, strict=True):
        block = tensor.split.shape[len(place) + 1] if count == 2 else 0
        place += [coordinate // block, coordinate % block] if count == 2 else [coordinate]
    return int(tensor.split[tuple(place)])


@settings(deadline=None, max_examples=100)
@given(tensor=_joined(), limit=st.integers(1, 200))
def test_pieces_and_the_whole_hold_each_element_where_its_coordinates_say(
    tensor: JoinedTensor, limit: int
) -> None:
    expected = [_element(tensor, index) for index in itertools.product(*map(range, tensor.cut))]
    assert tensor.whole().ravel().tolist() == expected
    pieces = list(tensor.pieces(limit))
    assert np.concatenate(pieces).tolist() == expected
    assert max(map(len, pieces)) <= limit
    same = c_order_chunks(tensor.whole(), limit, flat=False)
    assert [len(piece) for piece in pieces] == [len(piece) for piece in same]


@given(shape=st.lists(st.integers(0, 6), max_size=4), limit=st.integers(1, 50))
def test_slabs_cover_each_element_once_and_in_order(shape: list[int], limit: int) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    parts = [np.asarray(array[index]).ravel() for index in slabs(tuple(shape), limit)]
    assert np.concatenate(parts).tolist() == array.ravel().tolist()
    assert all(part.size <= limit for part in parts)


def test_a_layout_with_one_block_is_a_view_and_one_with_more_is_not_held_whole() -> None:
    def in_nchw(channel_blocks: int) -> np.ndarray | JoinedTensor:
        device = np.zeros((2, channel_blocks, 3, 3, 16), np.float16)
        shape = (2, 16 * channel_blocks - 3, 3, 3)
        return in_host_layout(device, device_format="NC1HWC0", host_format="NCHW", original_shape=shape)

    one, two = in_nchw(1), in_nchw(2)
    assert isinstance(one, np.ndarray)
    assert one.shape == (2, 13, 3, 3)
    assert isinstance(two, JoinedTensor)
    assert (two.shape, two.size, two.dtype) == ((2, 29, 3, 3), 2 * 29 * 9, np.float16)


def test_fractal_nz_is_cut_like_a_host_tensor_of_the_same_shape_whatever_its_batch_axes() -> None:
    host = np.arange(2 * 3 * 20 * 33).reshape(2, 3, 20, 33)
    padded = np.zeros((6, 32, 48), host.dtype)
    padded[:, :20, :33] = host.reshape(6, 20, 33)
    device = padded.reshape(6, 2, 16, 3, 16).transpose(0, 3, 1, 2, 4).copy()
    found = in_host_layout(device, device_format="FRACTAL_NZ", host_format="ND", original_shape=host.shape)
    assert isinstance(found, JoinedTensor)
    ours, theirs = list(found.pieces(1000)), list(c_order_chunks(host, 1000, flat=False))
    assert [len(piece) for piece in ours] == [len(piece) for piece in theirs]
    assert np.array_equal(np.concatenate(ours), host.ravel())
    assert np.array_equal(found.whole(), host)
