from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.arrays.layouts import JoinedTensor, LayoutError, in_host_layout
from pytest_npudump.dump.filebytes import c_order_chunks, slabs
from pytest_npudump.dump.files.container import read_container

DATA = Path(__file__).parents[2] / "data" / "dump" / "formats"


def to_host(array: np.ndarray, **layout: Any) -> np.ndarray:
    """The whole of a tensor in a host layout."""
    found = in_host_layout(array, **layout)
    return found.whole() if isinstance(found, JoinedTensor) else found


_small = st.integers(1, 5)
_channels = st.integers(1, 40)
_c0 = st.sampled_from([8, 16, 32])


@pytest.mark.each("path", sorted(p for p in DATA.iterdir() if not p.suffix), ids=lambda p: p.name)
def test_files_of_the_device_writer_come_back_as_they_were(path: Path) -> None:
    (tensor,) = read_container(path)[0].tensors
    host = np.load(f"{path}.npy")
    found = to_host(
        load(tensor.payload, tensor.dtype, tensor.shape),
        device_format=tensor.format,
        host_format=path.name.rsplit("_", 1)[1],
        original_shape=tensor.original_shape or None,
        sub_format=tensor.sub_format,
    )
    if not tensor.original_shape:
        assert not found[:, host.shape[1] :].any()
        found = found[:, : host.shape[1]]
    np.testing.assert_array_equal(found, host)


def _host(shape: Any) -> Any:
    return np.arange(1, math.prod(shape) + 1).reshape(shape)


def _pack_nc1hwc0(nchw: np.ndarray, c0: int) -> Any:
    n, c, h, w = nchw.shape
    device = np.zeros((n, -(-c // c0), h, w, c0), nchw.dtype)
    for channel in range(c):
        device[:, channel // c0, :, :, channel % c0] = nchw[:, channel]
    return device


@settings(deadline=None)
@given(
    n=_small,
    c=_channels,
    h=_small,
    w=_small,
    c0=_c0,
    name=st.sampled_from(["NCHW", "NHWC", "HWCN", "CHWN", "ND"]),
)
def test_nc1hwc0(*, n: int, c: int, h: int, w: int, c0: int, name: str) -> None:
    nchw = _host((n, c, h, w))
    expected = nchw.transpose(["NCHW".index(axis) for axis in ("NCHW" if name == "ND" else name)])
    found = to_host(
        _pack_nc1hwc0(nchw, c0), device_format="NC1HWC0", host_format=name, original_shape=expected.shape
    )
    np.testing.assert_array_equal(found, expected)


@settings(deadline=None)
@given(n=_small, d=_small, c=_channels, h=_small, w=_small, name=st.sampled_from(["NCDHW", "NDHWC", "DHWCN"]))
def test_ndc1hwc0(*, n: int, d: int, c: int, h: int, w: int, name: str) -> None:
    host = _host((n, c, d, h, w))
    planes = [_pack_nc1hwc0(host[:, :, depth], 16) for depth in range(d)]
    expected = host.transpose(["NCDHW".index(axis) for axis in name])
    found = to_host(
        np.stack(planes, axis=1), device_format="NDC1HWC0", host_format=name, original_shape=expected.shape
    )
    np.testing.assert_array_equal(found, expected)


@settings(deadline=None)
@given(shape=st.lists(st.integers(1, 40), min_size=1, max_size=2), batch=st.lists(_small, max_size=3), c0=_c0)
def test_fractal_nz_of_any_rank(shape: Any, batch: list[int], c0: int) -> None:
    batch = batch if len(shape) == 2 else []
    host = _host((*batch, *shape))
    rows, columns = ([1, *shape])[-2:]
    matrices = host.reshape(-1, rows, columns)
    device = np.zeros((len(matrices), -(-columns // c0), -(-rows // 16), 16, c0), host.dtype)
    for b, r, c in np.ndindex(matrices.shape):
        device[b, c // c0, r // 16, r % 16, c % c0] = matrices[b, r, c]
    device = device.reshape(*batch, *device.shape[1:])
    found = to_host(device, device_format="FRACTAL_NZ", host_format="ND", original_shape=host.shape)
    np.testing.assert_array_equal(found, host)


def _lcm(a: int, b: int) -> Any:
    return a * b // math.gcd(a, b)


def _pack_fractal_z(weights: np.ndarray, groups: int, c0: int) -> Any:
    """Weights (N, C, D, H, W) by the index formula of GE's transfer, one element at a time."""
    n, c, depth, h, w = weights.shape
    per_group = n // groups
    shared = min(_lcm(_lcm(c, c0) // c, _lcm(per_group, 16) // per_group), groups)
    c1 = -(-shared * c // c0)
    rows = -(-shared * per_group // 16) * 16
    device = np.zeros((-(-groups // shared), depth, c1, h, w, rows, c0), weights.dtype)
    for out, channel, z, y, x in np.ndindex(weights.shape):
        group, inner = divmod(out, per_group)
        block = group % shared
        i, o = block * c + channel, block * per_group + inner
        device[group // shared, z, i // c0, y, x, o, i % c0] = weights[out, channel, z, y, x]
    return device.reshape(-1, rows // 16, 16, c0)


@settings(deadline=None, max_examples=60)
@given(
    groups=st.integers(1, 9),
    per_group=st.integers(1, 20),
    c=st.integers(1, 20),
    h=st.integers(1, 3),
    w=st.integers(1, 3),
    name=st.sampled_from(["NCHW", "HWCN", "NHWC"]),
)
def test_fractal_z_with_and_without_groups(
    *, groups: int, per_group: int, c: int, h: int, w: int, name: str
) -> None:
    weights = _host((groups * per_group, c, 1, h, w))
    expected = weights[:, :, 0].transpose(["NCHW".index(axis) for axis in name])
    found = to_host(
        _pack_fractal_z(weights, groups, 16),
        device_format="FRACTAL_Z",
        host_format=name,
        original_shape=expected.shape,
        sub_format=groups,
    )
    np.testing.assert_array_equal(found, expected)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 33),
    c=st.integers(1, 20),
    d=st.integers(1, 3),
    h=st.integers(1, 3),
    transposed=st.booleans(),
)
def test_fractal_z_3d(*, n: int, c: int, d: int, h: int, transposed: bool) -> None:
    weights = _host((n, c, d, h, 2))
    packed = _pack_fractal_z(weights.swapaxes(0, 1) if transposed else weights, 1, 16)
    expected = weights.transpose(2, 3, 4, 1, 0)
    found = to_host(
        packed,
        device_format="FRACTAL_Z_3D_TRANSPOSE" if transposed else "FRACTAL_Z_3D",
        host_format="DHWCN",
        original_shape=expected.shape,
    )
    np.testing.assert_array_equal(found, expected)


@settings(deadline=None)
@given(c=_channels, h=_small, w=_small, n=_small)
def test_c1hwncoc0_is_diagonal(c: int, h: int, w: int, n: int) -> None:
    host = _host((h, w, c, n))
    device = np.zeros((-(-c // 16), h, w, n, 16, 16), host.dtype)
    for y, x, channel, out in np.ndindex(host.shape):
        device[channel // 16, y, x, out, channel % 16, channel % 16] = host[y, x, channel, out]
    found = to_host(device, device_format="C1HWNCoC0", host_format="HWCN", original_shape=host.shape)
    np.testing.assert_array_equal(found, host)


def test_plain_layouts_are_transposed_and_equal_ones_left_alone() -> None:
    host = _host((2, 3, 4, 5))
    found = to_host(host, device_format="NCHW", host_format="NHWC", original_shape=(2, 4, 5, 3))
    np.testing.assert_array_equal(found, host.transpose(0, 2, 3, 1))
    assert to_host(host, device_format="ND", host_format="NHWC", original_shape=host.shape) is host


def test_one_block_of_channels_needs_no_copy() -> None:
    device = _pack_nc1hwc0(_host((2, 7, 4, 5)), 16)
    found = to_host(device, device_format="NC1HWC0", host_format="NCHW", original_shape=(2, 7, 4, 5))
    assert np.shares_memory(found, device)


def test_a_view_of_transposed_axes_needs_no_copy() -> None:
    device = _host((2, 3, 4, 5))
    found = to_host(device, device_format="NHWC", host_format="NCHW", original_shape=(2, 5, 3, 4))
    assert np.shares_memory(found, device)


@pytest.mark.each(
    ("shape", "device", "host", "original", "message"),
    [
        ((2, 2, 4, 5, 16), "NC1HWC0", "NHWC", (2, 30, 4, 5), "does not fit"),
        ((2, 2, 4, 5), "NC1HWC0", "NCHW", (2, 30, 4, 5), "cannot have the axes"),
        ((2, 2, 4, 5, 16), "NC1HWC0", "NCHW", (2, 30, 20), "has 3 axes"),
        ((2, 2, 4, 5, 16), "NC1HWC0", "NCDHW", (2, 30, 1, 4, 5), "cannot become N, C, D, H, W"),
        ((2, 2, 4, 5, 16), "NC1HWC0", "FRACTAL_NZ", (2, 30, 4, 5), "expected one of NCHW"),
        ((3, 2, 16, 16), "FRACTAL_NZ", "ND", (50, 33), "does not fit"),
        ((2, 3, 2, 16, 16), "FRACTAL_NZ", "ND", (3, 20, 33), "cannot be of host shape"),
        ((3, 16), "FRACTAL_NZ", "ND", (3, 16), "at least 4 axes"),
        ((18, 2, 16, 16), "FRACTAL_Z", "NCHW", None, "the original shape is needed"),
        ((18, 2, 16, 16), "FRACTAL_Z", "HWCN", (20, 30, 3, 3), "axis order"),
        ((18, 2, 16, 16), "FRACTAL_Z", "NCHW", (30, 3), "host shape"),
        ((4, 5), "FRACTAL_ZN_LSTM", "ND", (4, 5), "does not document"),
        ((4, 5), "format:77", "ND", (4, 5), "does not document"),
        ((4, 5), "ND", "ND", (4, 6), "cannot be of host shape"),
        ((1, 2, 3, 4, 16, 8), "C1HWNCoC0", "HWCN", (2, 3, 16, 4), "the last two are equal"),
    ],
)
def test_what_does_not_fit_is_refused(
    shape: Any, device: str, host: str, original: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        to_host(np.zeros(shape), device_format=device, host_format=host, original_shape=original)


def test_groups_that_do_not_divide_are_refused() -> None:
    with pytest.raises(LayoutError, match="not a multiple"):
        to_host(
            np.zeros((9, 1, 16, 16)),
            device_format="FRACTAL_Z",
            host_format="NCHW",
            original_shape=(7, 4, 3, 3),
            sub_format=2,
        )


@pytest.mark.each(("shape", "order"), [((3, 3, 9, 1), "HWCN"), ((3, 3, 1, 9), "HWCN")])
def test_a_fractal_z_that_fits_a_wrong_order_of_axes_is_refused_for_the_values_in_its_padding(
    shape: tuple[int, ...], order: str
) -> None:
    host = np.random.default_rng(0).random(shape).astype(np.float16)
    height, width, channels, count = shape
    device = np.zeros((height * width, 1, 16, 16), np.float16)
    device[:, 0, :count, :channels] = host.transpose(0, 1, 3, 2).reshape(-1, count, channels)
    found = to_host(device, device_format="FRACTAL_Z", host_format=order, original_shape=shape)
    assert np.array_equal(found, host)
    with pytest.raises(LayoutError, match=r"holds values where NCHW of shape .* has padding, which is zero"):
        to_host(device, device_format="FRACTAL_Z", host_format="NCHW", original_shape=shape)


def test_bytes_of_zero_are_padding_of_a_type_that_has_no_zero() -> None:
    host = np.arange(1, 46, dtype=np.uint8).reshape(3, 3, 5, 1)
    device = np.zeros((9, 1, 16, 32), np.uint8)
    device[:, 0, :1, :5] = host.transpose(0, 1, 3, 2).reshape(9, 1, 5)
    typed = device.view(ml_dtypes.float8_e8m0fnu)
    found = to_host(typed, device_format="FRACTAL_Z", host_format="HWCN", original_shape=(3, 3, 5, 1))
    assert np.array_equal(found.view(np.uint8), host)


def test_values_in_the_padding_matter_only_where_another_order_of_axes_fits_too() -> None:
    device = np.ones((4, 1, 16, 16), np.float32)
    found = to_host(device, device_format="FRACTAL_Z", host_format="NCHW", original_shape=(3, 5, 2, 2))
    assert found.shape == (3, 5, 2, 2)


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
