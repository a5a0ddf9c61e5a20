"""Kernels larger than memory or one machine: on disk and on clusters."""

from notsodeep.deprecation import moved
from notsodeep.scale.store import DamagedTileError
from notsodeep.scale.stored import StoredBlocks
from notsodeep.scale.tiles import Verification, compute, verify

__all__ = ["DamagedTileError", "StoredBlocks", "Verification", "compute", "verify"]

__getattr__ = moved(
    __name__,
    {
        "Factor": "notsodeep.solvers:StoredFactor",
        "factorize": "notsodeep.solvers:StoredFactor.of",
        "product": "notsodeep.scale.distributed:product",
    },
)
