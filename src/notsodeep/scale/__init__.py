"""Beyond one memory and one machine: kernels on disk, on clusters, and systems solved with them."""

from notsodeep.scale.factor import Factor, factorize
from notsodeep.scale.products import product
from notsodeep.scale.store import DamagedTileError
from notsodeep.scale.stored import StoredBlocks
from notsodeep.scale.tiles import Verification, compute, verify

__all__ = [
    "DamagedTileError",
    "Factor",
    "StoredBlocks",
    "Verification",
    "compute",
    "factorize",
    "product",
    "verify",
]
