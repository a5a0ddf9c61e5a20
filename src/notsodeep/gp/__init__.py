"""Kernels of DEQs for the libraries of Gaussian processes: GPyTorch (and BoTorch), scikit-learn."""

from typing import TYPE_CHECKING, Any

from notsodeep.extras import need

if TYPE_CHECKING:
    from notsodeep.gp.for_gpytorch import GPyTorchDEQKernel
    from notsodeep.gp.for_sklearn import SklearnDEQKernel

__all__ = ["GPyTorchDEQKernel", "SklearnDEQKernel"]

_HOMES = {"GPyTorchDEQKernel": "notsodeep.gp.for_gpytorch", "SklearnDEQKernel": "notsodeep.gp.for_sklearn"}


def __getattr__(name: str) -> Any:
    """Import a kernel when it is first used: each needs its own library only."""
    if name in _HOMES:
        return getattr(need(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
