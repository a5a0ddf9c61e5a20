"""The kernel of a DEQ in scikit-learn's Gaussian processes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from notsodeep.checks import InputError
from notsodeep.extras import need
from notsodeep.models import DEQ
from notsodeep.recursion import ActivationLike
from notsodeep.well_posedness import largest_recurrent

__all__ = ["SklearnDEQKernel"]

Array: TypeAlias = NDArray[Any]
Bounds: TypeAlias = tuple[float, float] | str


class SklearnDEQKernel(Kernel):  # type: ignore[misc]
    """K(x, y) of an infinitely wide DEQ, with the logarithms of its variances as `theta`.

    Parameters
    ----------
    activation : str, callable or Activation
        φ. Gradients need one that :func:`notsodeep.nn.kernel` can differentiate.
    recurrent, input, bias : float
        σ_a², σ_b², σ_0². One that is 0 stays 0.
    kind : str
        As in :func:`notsodeep.kernels.kernel`; ``"ck"`` and ``"nngp"`` are priors of the network itself.
    recurrent_bounds, input_bounds, bias_bounds : pair of floats or "fixed"
        The upper bound of `recurrent` is cut just below 1/sup E[φ'²], where kernels cease to exist.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from notsodeep.gp import SklearnDEQKernel
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> gp = GaussianProcessRegressor(SklearnDEQKernel("erf", bias=0.0, recurrent_bounds="fixed"), alpha=1e-2)
    >>> gp.fit(X, np.tanh(X[:, 0])).score(X, np.tanh(X[:, 0])) > 0.99
    True
    """

    def __init__(
        self,
        activation: ActivationLike = "normalized_relu",
        recurrent: float = 0.25,
        input: float = 1.0,
        bias: float = 0.5,
        kind: str = "nngp",
        recurrent_bounds: Bounds = (1e-4, 1e5),
        input_bounds: Bounds = (1e-5, 1e5),
        bias_bounds: Bounds = (1e-5, 1e5),
    ) -> None:
        self.activation = activation
        self.recurrent = recurrent
        self.input = input
        self.bias = bias
        self.kind = kind
        self.recurrent_bounds = recurrent_bounds
        self.input_bounds = input_bounds
        self.bias_bounds = bias_bounds

    @property
    def model(self) -> DEQ:
        """The DEQ with the present variances."""
        return DEQ(self.activation, self.recurrent, self.input, self.bias)

    def _hyperparameter(self, name: str, most: float) -> Hyperparameter:
        bounds = getattr(self, f"{name}_bounds")
        if not getattr(self, name):
            bounds = "fixed"
        if not isinstance(bounds, str):
            low, high = bounds
            if not 0 < low < min(high, most):
                raise InputError(f"{name}_bounds={bounds!r} must be 0 < low < high, with low < {most:.6g}")
            bounds = (low, min(high, most))
        return Hyperparameter(name, "numeric", bounds)

    @property
    def hyperparameter_recurrent(self) -> Hyperparameter:
        return self._hyperparameter("recurrent", largest_recurrent(self.model.activation))

    @property
    def hyperparameter_input(self) -> Hyperparameter:
        return self._hyperparameter("input", np.inf)

    @property
    def hyperparameter_bias(self) -> Hyperparameter:
        return self._hyperparameter("bias", np.inf)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """K(X, Y), and with ``eval_gradient=True`` its derivatives in `theta`, (n, n, len(theta))."""
        X, model = np.atleast_2d(np.asarray(X, dtype=np.float64)), self.model
        if not eval_gradient:
            return model.kernel(X, None if Y is None else np.atleast_2d(Y), kind=self.kind, progress=False)
        if Y is not None:
            raise ValueError("Gradient can only be evaluated when Y is None.")
        torch, tensors = need("torch"), need("notsodeep.nn.tensor_kernels")
        names = [h.name for h in self.hyperparameters if not h.fixed]
        K = model.kernel(X, kind=self.kind, progress=False)
        if not names:
            return K, np.empty((*K.shape, 0))
        given = {name: torch.tensor(getattr(self, name), dtype=torch.float64, requires_grad=True) for name in names}
        found = tensors.kernel_slopes(model, torch.from_numpy(X), self.kind, given)
        # θ = log v
        return K, np.stack([slope.numpy() * getattr(self, n) for n, slope in zip(names, found, strict=True)], axis=-1)

    def diag(self, X: Any) -> Array:
        """K(x, x) of every row."""
        return np.asarray(self.model.kernel_diag(np.atleast_2d(np.asarray(X, dtype=np.float64)), kind=self.kind))

    def is_stationary(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"SklearnDEQKernel({self.model}, kind={self.kind})"
