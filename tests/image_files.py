"""Small image sets and the bytes of the files they come in, for the tests of data."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.data import sources
from notsodeep.data.formats import ImageSet

_RNG = np.random.default_rng(0)


def image_set(train: int = 20, test: int = 10, shape: tuple[int, int, int] = (4, 5, 1)) -> ImageSet:
    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        return _RNG.integers(0, 256, (n, *shape)).astype(np.uint8), (np.arange(n) % 10).astype(np.uint8)

    return ImageSet(*part(train), *part(test))


GREY = image_set()
COLOR = image_set(shape=(32, 32, 3))


def to_idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def to_cifar(images: np.ndarray, labels: np.ndarray) -> bytes:
    return b"".join(
        bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(images, labels, strict=True)
    )


def to_png(pixels: np.ndarray, filters: Any) -> bytes:
    """Encode (height, width, channels), each line by the filter named for it: the PNG standard, word by word."""
    height, width, channels = pixels.shape
    lines = pixels.reshape(height, -1).astype(int)
    packed = bytearray()
    for i in range(height):
        packed.append(filters[i])
        for j in range(width * channels):
            a = lines[i, j - channels] if j >= channels else 0
            b = lines[i - 1, j] if i else 0
            c = lines[i - 1, j - channels] if i and j >= channels else 0
            paeth = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            packed.append((lines[i, j] - (0, a, b, (a + b) // 2, paeth)[filters[i]]) % 256)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    stream = zlib.compress(bytes(packed))
    middle = len(stream) // 2
    parts = [
        (b"IHDR", header),
        (b"tEXt", b"a\0b"),
        (b"IDAT", stream[:middle]),
        (b"IDAT", stream[middle:]),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def idx_files(images: ImageSet) -> dict[str, bytes]:
    parts = (images.images[..., 0], images.labels, images.images_test[..., 0], images.labels_test)
    return {name: to_idx(part) for name, part in zip(sources.IDX_FILES, parts, strict=True)}


def cifar_files(images: ImageSet) -> dict[str, bytes]:
    batches = zip(np.split(images.images, 5), np.split(images.labels, 5), strict=True)
    files = {f"data_batch_{k}.bin": to_cifar(*batch) for k, batch in enumerate(batches, 1)}
    return {**files, "test_batch.bin": to_cifar(images.images_test, images.labels_test)}


def write(folder: Path, files: dict[str, bytes], *, compress: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (name + ".gz" * compress)).write_bytes(gzip.compress(content) if compress else content)
    return folder


def same(one: ImageSet, two: ImageSet) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
