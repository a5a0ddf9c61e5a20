"""Kernel machines with the exact infinite-width kernels of DEQs and of explicit networks, for scikit-learn."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError
from notsodeep.kernels import KernelBlocks, KernelMatrix
from notsodeep.learn.base import KernelMachine, takes_old_options
from notsodeep.learn.tasks import KernelClassifier, KernelRegressor
from notsodeep.models import DEQ, Explicit
from notsodeep.solvers import Solver

__all__ = ["DEQKernelClassifier", "DEQKernelRegressor", "ExplicitKernelClassifier", "ExplicitKernelRegressor"]

Array: TypeAlias = NDArray[Any]


class _DEQMachine(KernelMachine):
    """The kernel of a fully-connected DEQ."""

    @takes_old_options
    def __init__(
        self,
        activation: Any = "normalized_relu",
        recurrent: float = 0.25,
        input: float = 0.25,
        bias: float = 0.5,
        kind: str = "ntk_injected",
        depth: int | None = None,
        ridge: Any = 1e-3,
        normalize: str = "center",
        dtype: Any = None,
        solver: str | Solver = "auto",
        progress: Any = None,
        cell: DeepDEQ | None = None,
        optimize: str | None = None,
    ) -> None:
        self.activation = activation
        self.recurrent = recurrent
        self.input = input
        self.bias = bias
        self.kind = kind
        self.depth = depth
        self.ridge = ridge
        self.normalize = normalize
        self.dtype = dtype
        self.solver = solver
        self.progress = progress
        self.cell = cell
        self.optimize = optimize

    def _model(self) -> DEQ | DeepDEQ:
        if self.cell is None:
            return DEQ(self.activation, self.recurrent, self.input, self.bias)
        if not isinstance(self.cell, DeepDEQ):
            raise InputError(f"cell={self.cell!r} must be a notsodeep.DeepDEQ")
        return self.cell

    def _blocks(self, X: Array, Y: Array | None = None) -> KernelMatrix:
        return KernelBlocks(self.model_, X, Y, kind=self.kind, dtype=self.dtype, depth=self.depth)


class _ExplicitMachine(KernelMachine):
    """The kernel of an explicit network."""

    @takes_old_options
    def __init__(
        self,
        activations: Any = ("relu", "relu"),
        kind: str = "ntk",
        ridge: Any = 1e-3,
        normalize: str = "center",
        dtype: Any = None,
        solver: str | Solver = "auto",
        progress: Any = None,
    ) -> None:
        self.activations = activations
        self.kind = kind
        self.ridge = ridge
        self.normalize = normalize
        self.dtype = dtype
        self.solver = solver
        self.progress = progress

    def _model(self) -> Explicit:
        return self.activations if isinstance(self.activations, Explicit) else Explicit(self.activations)

    def _blocks(self, X: Array, Y: Array | None = None) -> KernelMatrix:
        return KernelBlocks(self.model_, X, Y, kind=self.kind, dtype=self.dtype)


class DEQKernelRegressor(KernelRegressor, _DEQMachine):
    """f(x) = Σ_i K(x, x_i) c_i with (K + ridge·W⁻¹) c = y, and K a kernel of an infinitely wide DEQ.

    Identical rows are merged into one row with the sum of their weights and the mean of their targets. This changes
    only the condition number; with ``ridge=0`` their targets must agree.

    Parameters
    ----------
    activation : str, callable or Activation
    recurrent, input, bias : float
        The variances σ_a², σ_b², σ_0² of the DEQ.
    kind : {"ck", "nngp", "ntk", "ntk_frozen_input", "ntk_injected"}
        Which of its kernels; ``"ck"`` and ``"nngp"`` make a Gaussian process.
    depth : int, optional
        Number of unrolled layers; None is the equilibrium.
    ridge : float, "loo", "gcv" or sequence of floats
        Added to the diagonal, divided by the sample's weight. A sequence: the value with the smallest leave-one-out
        error is chosen; one factorisation serves all. ``"loo"``, ``"gcv"``: one of 19 values between 1e-8 and 10 times
        the mean diagonal is chosen by that criterion. 0 interpolates.
    normalize : {"center", "unit", "none"}
        Preparation of the rows: ``"center"`` subtracts the mean and scales by one number so that the mean of ‖x‖² is 1,
        ``"unit"`` divides each row by its norm, as in [FK20]. `preparation_` holds the result.
    dtype : {"float64", "float32"}, optional
        Precision of the kernel; that of X by default.
    solver : "auto", "cholesky", "cg", "nystrom" or Solver
        See :func:`notsodeep.solvers.solve`; pass an object such as ``CG(tol=1e-9)`` to set options.
        ``OutOfCore(directory)`` keeps the Cholesky factor on disk and a few tiles in memory; a killed fit continues
        when called again. If the solver has a client, its workers also compute the predictions.
    progress : bool, callable or None
        See :func:`notsodeep.progress.reporter`.
    cell : DeepDEQ, optional
        A cell of several layers, instead of the first four parameters; its kinds are ck, nngp and ntk.
    optimize : {None, "marginal_likelihood", "leave_one_out"}
        Find the variances and the ridge by at most 30 evaluations of this criterion and its gradient, starting from
        those given, on 2000 random rows where there are more; one that is 0 stays 0. Needs PyTorch.

    Attributes
    ----------
    solution_ : Solution
        Method and why it was chosen, residual, condition number, time.
    dual_coef_ : array (n, k)
    X_fit_ : array (n, p)
        Prepared, distinct training rows.
    ridge_, residual_, condition_ : float
    ridge_path_ : RidgePath
        Errors of all candidates, when there were several.
    leave_one_out_error_, gcv_ : float
        Computed from the factorisation on first access.
    log_marginal_likelihood_ : float
        Of the Gaussian process.
    preparation_ : Preparation
    model_ : DEQ or DeepDEQ
    tuning_ : Tuning or None
        What `optimize` found, and how.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.learn import DEQKernelRegressor
    >>> X = np.linspace(-2, 2, 50)[:, None]
    >>> gp = DEQKernelRegressor(kind="nngp", ridge=1e-4).fit(X, np.sin(2 * X[:, 0]))
    >>> mean, std = gp.predict([[0.5], [9.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.01), bool(std[0] < 0.1 < std[1])
    (True, True)
    >>> gp.solution_.method, gp.residual_ < 1e-9
    ('cholesky', True)
    """


class DEQKernelClassifier(KernelClassifier, _DEQMachine):
    """Least squares on one-hot targets (0.9 and −0.1 [FK20]) with a kernel of an infinitely wide DEQ.

    Parameters are those of :class:`DEQKernelRegressor`; of its attributes all but the likelihood.

    Attributes
    ----------
    classes_ : array (K,)
    calibration_ : Calibration
        Temperature of :meth:`predict_proba`, and the leave-one-out accuracy it comes from.

    Examples
    --------
    [FK20] on MNIST: ``recurrent=0.25, input=0.25, bias=0.5, ridge=0`` on rows of norm 1.

    >>> from notsodeep import data
    >>> from notsodeep.learn import DEQKernelClassifier
    >>> digits = data.load("digits")
    >>> clf = DEQKernelClassifier(kind="ntk_injected", ridge=0.0, normalize="unit")
    >>> clf.fit(digits.X[:900], digits.labels[:900]).score(digits.X[900:], digits.labels[900:]) > 0.96
    True
    >>> clf.predict_proba(digits.X[900:]).shape
    (897, 10)
    """


class ExplicitKernelRegressor(KernelRegressor, _ExplicitMachine):
    """f(x) = Σ_i K(x, x_i) c_i with K the CK or NTK of an infinitely wide explicit network.

    Parameters
    ----------
    activations : sequence of activations, or Explicit
        One per layer; ``nsd.match(deq, tau0=1.0).network`` is the network that replaces a DEQ.
    kind : {"ck", "ntk"}
    ridge, normalize, dtype, solver, progress
        As in :class:`DEQKernelRegressor`, and so are the attributes.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.learn import ExplicitKernelRegressor
    >>> X = np.linspace(-2, 2, 50)[:, None]
    >>> machine = ExplicitKernelRegressor(["erf"], kind="ck", ridge="loo").fit(X, np.tanh(X))
    >>> machine.predict(X).shape, machine.score(X, np.tanh(X)) > 0.999
    ((50, 1), True)
    """


class ExplicitKernelClassifier(KernelClassifier, _ExplicitMachine):
    """Least squares on one-hot targets with the CK or NTK of an infinitely wide explicit network.

    Parameters are those of :class:`ExplicitKernelRegressor`, attributes those of :class:`DEQKernelClassifier`.

    Examples
    --------
    >>> from notsodeep import data
    >>> from notsodeep.learn import ExplicitKernelClassifier
    >>> digits = data.load("digits")
    >>> clf = ExplicitKernelClassifier(["relu"] * 3).fit(digits.X[:900], digits.labels[:900])
    >>> clf.score(digits.X[900:], digits.labels[900:]) > 0.95
    True
    """
