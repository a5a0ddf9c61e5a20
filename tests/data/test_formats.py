"""The bytes of image formats, and bytes that only look like them."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.image_files import GREY, to_idx, to_png

import notsodeep as nsd
from notsodeep.data.formats import cifar_records, idx, png

image = pytest.importorskip("PIL.Image")


@given(
    st.sampled_from([1, 3]).flatmap(lambda c: arrays(np.uint8, (6, 5, c))),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
)
def test_png_undoes_every_filter(pixels: np.ndarray, filters: list[int]) -> None:
    np.testing.assert_array_equal(png(to_png(pixels, filters), "a.png"), pixels)


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "LA", "I;16"])
def test_other_pictures_are_refused(mode: str) -> None:
    file = io.BytesIO()
    image.new(mode, (3, 2)).save(file, format="png")
    with pytest.raises(
        nsd.InputError, match=r"a\.png is damaged or no PNG file: it is not an 8-bit grey or RGB picture"
    ):
        png(file.getvalue(), "a.png")


def test_a_picture_that_unpacks_to_gigabytes_is_refused() -> None:
    """A header that promises 9 or 3 gigabytes, and next to nothing behind it."""
    for size in ((10**5, 3 * 10**4), (3 * 10**4, 3 * 10**3)):
        header = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
        part = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
        with pytest.raises(nsd.InputError, match="damaged or no PNG file"):
            png(b"\x89PNG\r\n\x1a\n" + part + to_png(np.zeros((2, 2, 3), np.uint8), [0, 1])[33:], "a.png")


def test_damaged_pictures_and_tables() -> None:
    good = to_png(np.zeros((2, 2, 3), np.uint8), [0, 1])
    flipped = bytearray(good)
    flipped[45] ^= 1
    cases: list[tuple[Any, bytes, str]] = [
        (png, b"GIF89a", "no PNG file"),
        (png, good[:-30], "damaged"),
        (png, bytes(flipped), "damaged"),
        (png, good.replace(b"IHDR", b"IHDX"), "damaged"),
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
