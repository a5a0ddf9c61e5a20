"""The bytes of image formats, and bytes that only look like them."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.image_files import GREY, to_idx, to_png

import notsodeep as nsd
from notsodeep.data.formats import cifar_records, idx, png


@given(
    st.sampled_from([1, 3]).flatmap(lambda c: arrays(np.uint8, (6, 5, c))),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
)
def test_png_undoes_every_filter(pixels: np.ndarray, filters: list[int]) -> None:
    np.testing.assert_array_equal(png(to_png(pixels, filters), "a.png"), pixels)


def test_png_agrees_with_pillow() -> None:
    image = pytest.importorskip("PIL.Image")
    ramp = np.add.outer(np.arange(40) * 3, np.arange(30) * 5)[..., None] + np.array([0, 50, 90])
    pixels = (ramp % 256).astype(np.uint8)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, format="png", optimize=True)
    np.testing.assert_array_equal(png(file.getvalue(), "a.png"), pixels)


def test_damaged_pictures_and_tables() -> None:
    good = to_png(np.zeros((2, 2, 3), np.uint8), [0, 1])
    flipped = bytearray(good)
    flipped[45] ^= 1
    cases: list[tuple[Any, bytes, str]] = [
        (png, b"GIF89a", "not a PNG file"),
        (png, good[:-30], "damaged"),
        (png, bytes(flipped), "checksum"),
        (png, to_png(np.zeros((2, 2, 3), np.uint8), [0, 1]).replace(b"IHDR", b"IHDX"), "checksum"),
        (idx, b"", "not an IDX file"),
        (idx, b"\x80\x04pickle", "not an IDX file"),
        (idx, to_idx(GREY.images)[:-1], "its header"),
        (idx, to_idx(GREY.images) + b"\0", "its header"),
        (idx, b"\0\0\x08\x03\0\0", "its header"),
        (cifar_records, b"", "not a multiple of the 3073"),
        (cifar_records, bytes(3072), "not a multiple of the 3073"),
        (cifar_records, b"\xff" * 3073, "labels up to 255"),
    ]
    for decode, raw, message in cases:
        with pytest.raises(nsd.InputError, match=message):
            decode(raw, "file")


@pytest.mark.parametrize("dtype", [">u1", ">i1", ">i2", ">i4", ">f4", ">f8"])
def test_idx_types(dtype: str) -> None:
    code = {">u1": 8, ">i1": 9, ">i2": 0xB, ">i4": 0xC, ">f4": 0xD, ">f8": 0xE}[dtype]
    values = np.arange(6).reshape(2, 3).astype(dtype)
    decoded = idx(bytes([0, 0, code, 2]) + struct.pack(">II", 2, 3) + values.tobytes(), "file")
    np.testing.assert_array_equal(decoded, values)
    assert decoded.dtype.isnative
