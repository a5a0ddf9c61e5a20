"""The bytes of image files: IDX, the records of CIFAR-10, PNG. Nothing here can execute anything."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from notsodeep import compilation
from notsodeep.checks import InputError
from notsodeep.reading import inflate

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
    """Decode a PNG picture with 8 bits a channel, grey or RGB, not interlaced.

    Returns
    -------
    pixels : array (height, width, channels)
    """
    if raw[:8] != b"\x89PNG\r\n\x1a\n":
        raise InputError(f"{name} is not a PNG file")
    header, packed, position = b"", [], 8
    try:
        while position < len(raw):
            length, kind = struct.unpack_from(">I4s", raw, position)
            chunk = raw[position + 8 : position + 8 + length]
            (checksum,) = struct.unpack_from(">I", raw, position + 8 + length)
            if zlib.crc32(chunk, zlib.crc32(kind)) != checksum:
                raise InputError(f"{name} is damaged: the checksum of its {kind.decode('latin-1')} part is wrong")
            if kind == b"IHDR":
                header = chunk
            elif kind == b"IDAT":
                packed.append(chunk)
            position += 12 + length
        width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", header)
        if depth != 8 or color not in (0, 2) or interlaced:
            raise InputError(f"{name} is not an 8-bit grey or RGB picture without interlacing")
        channels = 3 if color == 2 else 1
        size = height * (1 + width * channels)
        lines = np.frombuffer(inflate(b"".join(packed), size), np.uint8).reshape(height, 1 + width * channels)
    except (struct.error, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} is damaged: {error}") from None
    if lines[:, 0].max(initial=0) > 4:
        raise InputError(f"{name} is damaged: it names a filter that PNG does not have")
    return _unfilter(lines, channels).reshape(height, width, channels)


@compilation.jit(nogil=True)
def _unfilter(lines: Bytes, channels: int) -> Bytes:
    """Undo the five filters of PNG: each byte was stored as its difference from a guess by its neighbours."""
    height, width = lines.shape[0], lines.shape[1] - 1
    pixels = np.zeros((height, width), np.uint8)
    for i in range(height):
        kind = lines[i, 0]
        for j in range(width):
            left = int(pixels[i, j - channels]) if j >= channels else 0
            above = int(pixels[i - 1, j]) if i > 0 else 0
            guess = 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = above
            elif kind == 3:
                guess = (left + above) // 2
            elif kind == 4:
                corner = int(pixels[i - 1, j - channels]) if i > 0 and j >= channels else 0
                by_left, by_above, by_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
                if by_left <= by_above and by_left <= by_corner:
                    guess = left
                elif by_above <= by_corner:
                    guess = above
                else:
                    guess = corner
            pixels[i, j] = np.uint8((int(lines[i, j + 1]) + guess) & 255)
    return pixels
