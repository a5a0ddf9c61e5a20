"""Kernel machines on images with the kernel of the convolutional DEQ."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError, count
from notsodeep.kernels import KernelMatrix
from notsodeep.kernels.conv import ConvBlocks
from notsodeep.learn.base import KernelMachine, takes_old_options
from notsodeep.learn.tasks import KernelClassifier, KernelRegressor
from notsodeep.models import ConvDEQ
from notsodeep.solvers import Solver

__all__ = ["ConvDEQKernelClassifier", "ConvDEQKernelRegressor"]

Array: TypeAlias = NDArray[Any]


class _ConvMachine(KernelMachine):
    """The kernel of a convolutional DEQ, between images or flattened images."""

    image_shape_: tuple[int, int, int]

    @takes_old_options
    def __init__(
        self,
        activation: Any = "normalized_relu",
        recurrent: float = 0.65,
        input: float = 0.35,
        filter_size: int = 3,
        padding: str = "zero",
        kind: str = "ntk",
        readout: str = "flatten",
        depth: int | None = None,
        image_shape: Any = None,
        ridge: Any = 1e-3,
        normalize: str = "pixel",
        dtype: Any = None,
        solver: str | Solver = "auto",
        progress: Any = None,
        pool: int | None = None,
    ) -> None:
        self.activation = activation
        self.recurrent = recurrent
        self.input = input
        self.filter_size = filter_size
        self.padding = padding
        self.kind = kind
        self.readout = readout
        self.depth = depth
        self.image_shape = image_shape
        self.ridge = ridge
        self.normalize = normalize
        self.dtype = dtype
        self.solver = solver
        self.progress = progress
        self.pool = pool

    def _model(self) -> ConvDEQ:
        return ConvDEQ(self.activation, self.recurrent, self.input, self.filter_size, self.padding)

    def _blocks(self, X: Array, Y: Array | None = None) -> KernelMatrix:
        images = X.reshape(-1, *self.image_shape_)
        others = None if Y is None else Y.reshape(-1, *self.image_shape_)
        options: dict[str, Any] = {"depth": self.depth, "readout": self.readout, "pool": self.pool}
        return ConvBlocks(self.model_, images, others, kind=self.kind, dtype=self.dtype, **options)

    @property
    def _channels(self) -> int | None:
        return self.image_shape_[2]

    def _samples(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        found = tuple(np.shape(X)[1:]) if np.ndim(X) == 4 else None
        if options.get("reset", True):
            self.image_shape_ = self._shape(found)
        if found is not None:
            if found != self.image_shape_:
                raise InputError(f"X holds images of shape {found}, but {self.image_shape_} were expected")
            X = np.asarray(X).reshape(len(X), -1)
        samples = super()._samples(X, y, **options)
        if self.n_features_in_ != math.prod(self.image_shape_):
            raise InputError(f"image_shape={self.image_shape_} does not hold the {self.n_features_in_} values of a row")
        return samples

    def _shape(self, found: Any) -> tuple[int, int, int]:
        """(P, Q, C), from the parameter or from the data."""
        if self.image_shape is None and found is None:
            raise InputError("X holds rows; pass image_shape=(rows, columns, channels), or images (n, P, Q, C)")
        shape = tuple(found if self.image_shape is None else self.image_shape)
        if len(shape) != 3:
            raise InputError(f"image_shape={self.image_shape!r} must be (rows, columns, channels)")
        return count(shape[0], "image_shape"), count(shape[1], "image_shape"), count(shape[2], "image_shape")

    def _state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, numbers = super()._state()
        return arrays, {**numbers, "image_shape": list(self.image_shape_)}

    def _restore(self, arrays: dict[str, Array], numbers: dict[str, Any]) -> None:
        self.image_shape_ = self._shape(numbers["image_shape"])
        super()._restore(arrays, numbers)
        if self.n_features_in_ != math.prod(self.image_shape_):
            raise ValueError("its image shape does not fit its number of features")


class ConvDEQKernelRegressor(KernelRegressor, _ConvMachine):
    """f(x) = Σ_i K(x, x_i) c_i with a kernel of an infinitely wide convolutional DEQ [FK20, §4].

    Parameters
    ----------
    activation : str or Activation
        A positively homogeneous φ.
    recurrent, input : float
        σ_a², σ_b².
    filter_size, padding
        As in :class:`notsodeep.ConvDEQ`.
    kind, readout, depth, pool
        Which kernel: as in :func:`notsodeep.kernels.conv.kernel`.
    image_shape : (P, Q, C), optional
        Needed for images flattened to rows (n, P·Q·C), as scikit-learn's tools expect; not for images (n, P, Q, C).
    normalize : {"pixel", "unit", "center", "none"}
        ``"pixel"``: each pixel, a vector over the channels, is divided by its norm; a black one becomes grey.
    ridge, dtype, solver, progress
        As in :class:`DEQKernelRegressor`, and so are the attributes.
    """


class ConvDEQKernelClassifier(KernelClassifier, _ConvMachine):
    """Least squares on one-hot targets with a kernel of an infinitely wide convolutional DEQ.

    Parameters are those of :class:`ConvDEQKernelRegressor`, attributes those of :class:`DEQKernelClassifier`.
    """
