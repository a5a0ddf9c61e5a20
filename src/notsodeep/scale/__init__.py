"""Beyond one memory and one machine: kernels on disk, on clusters, and systems solved with them."""

from notsodeep.scale.store import DamagedTileError
from notsodeep.scale.stored import StoredBlocks
from notsodeep.scale.tiles import Verification, compute, verify

__all__ = ["DamagedTileError", "StoredBlocks", "Verification", "compute", "verify"]
