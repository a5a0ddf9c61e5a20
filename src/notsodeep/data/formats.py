"""Decoders of image files: IDX, CIFAR-10 records, PNG. None of them executes anything."""

from __future__ import annotations

import io
import math
import struct
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError
from notsodeep.extras import need
from notsodeep.reading import affordable

__all__ = ["ImageSet", "cifar_records", "idx", "pixels", "png"]

Bytes = NDArray[np.uint8]

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CIFAR_IMAGE = (3, 32, 32)
_CIFAR_RECORD = 1 + math.prod(_CIFAR_IMAGE)


class ImageSet(NamedTuple):
    """Images (n, P, Q, C) and labels (n,), to train and to test on, all in bytes."""

    images: Bytes
    labels: Bytes
    images_test: Bytes
    labels_test: Bytes


def pixels(images: Bytes) -> NDArray[np.float32]:
    """Bytes 0…255 as numbers in [0, 1]."""
    values = images.astype(np.float32)
    values /= 255
    return values


def idx(raw: bytes, name: str) -> NDArray[Any]:
    """Decode the IDX format of MNIST: two zero bytes, type, rank, sizes, then the numbers, all big-endian."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise InputError(f"{name} is not an IDX file (it begins with {raw[:4]!r})")
    dtype, rank = np.dtype(_IDX_TYPES[raw[2]]), raw[3]
    start = 4 + 4 * rank
    shape = struct.unpack(f">{rank}I", raw[4:start]) if len(raw) >= start else ()
    expected = start + math.prod(shape) * dtype.itemsize
    if rank == 0 or len(raw) != expected:
        raise InputError(f"{name} holds {len(raw)} bytes but its header {list(shape)} asks for {expected}")
    array: NDArray[Any] = np.frombuffer(raw, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))
    return array


def cifar_records(raw: bytes, name: str) -> tuple[Bytes, Bytes]:
    """Decode records of one label byte and 3 × 32 × 32 bytes (red, green, blue planes).

    Returns
    -------
    images : array (n, 32, 32, 3)
    labels : array (n,)
    """
    if not raw or len(raw) % _CIFAR_RECORD:
        raise InputError(f"{name} holds {len(raw)} bytes, not a multiple of the {_CIFAR_RECORD} of a CIFAR-10 record")
    records = np.frombuffer(raw, np.uint8).reshape(-1, _CIFAR_RECORD)
    labels = records[:, 0].copy()
    if labels.max() > 9:
        raise InputError(f"{name} holds labels up to {labels.max()}; CIFAR-10 has 0…9")
    planes = records[:, 1:].reshape(-1, *_CIFAR_IMAGE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def png(raw: bytes, name: str) -> Bytes:
    """Decode a PNG picture with 8 bits a channel, grey or RGB, through Pillow.

    Returns
    -------
    pixels : array (height, width, channels)
    """
    Image = need("PIL.Image")
    try:
        with warnings.catch_warnings(action="error"), Image.open(io.BytesIO(raw), formats=["PNG"]) as image:
            if image.mode not in ("L", "RGB"):
                raise ValueError("it is not an 8-bit grey or RGB picture")
            affordable(math.prod(image.size) * len(image.mode), len(raw))
            return np.array(image, np.uint8).reshape(*image.size[::-1], -1)
    except Exception as error:  # decoders raise many kinds of exceptions
        raise InputError(f"{name} is damaged or no PNG file: {error}") from None
