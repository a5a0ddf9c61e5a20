"""Training as a kernel: what gradient descent on an infinitely wide network predicts after a given time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, matrix, nonnegative, positive
from notsodeep.kinds import Kind
from notsodeep.models import DEQ, ConvDEQ, Explicit

__all__ = ["Ensemble", "TrainingDynamics"]

Array: TypeAlias = NDArray[Any]
Network: TypeAlias = DEQ | DeepDEQ | Explicit | ConvDEQ


class Ensemble(NamedTuple):
    """Networks that were trained from different random weights.

    Attributes
    ----------
    mean : array (T, m) or (T, m, k)
        Their mean output; without the first dimension where `t` was one number.
    covariance : array (T, m, m) or None
        Of each output between the samples; the outputs are independent of each other.
    """

    mean: Array
    covariance: Array | None


class TrainingDynamics:
    """df/dt = −(2/nk) Θ(·, X) (f(X) − y): gradient descent on the mean squared error, at infinite width.

    The weights of an infinitely wide network hardly move, so its tangent kernel Θ stays what it is and

        f_t(x) = f_0(x) + Θ(x, X) Θ⁻¹ (1 − e^{−2Θt/nk}) (y − f_0(X)).

    f_0 is a Gaussian process of mean 0, whose covariance is the kernel ``"ck"`` of the model (``"nngp"`` where the
    hidden signal is the output), so f_t is a Gaussian process too.

    Parameters
    ----------
    model : DEQ, DeepDEQ, Explicit or ConvDEQ
    X : array (n, p), or (n, P, Q, C) of a ConvDEQ
        Training samples. Time costs one eigendecomposition of an n×n matrix, memory three such matrices.
    y : array (n,) or (n, k)
        Real targets; one-hot vectors for classes.
    kind : str
        Which weights are trained: ``"ntk"`` all, ``"ck"`` the readout, and so on; see :class:`notsodeep.kinds.Kind`.
    lr : float, optional
        Steps of gradient descent with this learning rate on all samples, as ``nn.fit(..., optimizer="sgd",
        loss="squared", batch_size=n)`` takes them. None is the gradient flow, the limit of small steps.
    momentum : float
        Of ``torch.optim.SGD``; needs `lr`.

    Attributes
    ----------
    eigenvalues : array (n,)
        Of Θ, ascending: the error along an eigenvector falls like e^{−2λt/nk}.
    largest_lr : float
        Steps of this size or more diverge.

    References
    ----------
    Lee et al., "Wide Neural Networks of Any Depth Evolve as Linear Models Under Gradient Descent", NeurIPS 2019,
    Eq. (13) to (16).

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.learn import TrainingDynamics
    >>> X = np.random.default_rng(0).standard_normal((30, 4)) / 2
    >>> training = TrainingDynamics(nsd.DEQ("relu", recurrent=0.2, input=0.8), X, np.sin(3 * X[:, 0]))
    >>> mean, covariance = training.predict(X[:5] + 0.1, t=[1, 10, 100])
    >>> mean.shape, covariance.shape
    ((3, 5), (3, 5, 5))
    >>> before, later, last = training.loss([0, 100, np.inf])
    >>> bool(before > later > last), abs(round(float(last), 9))
    (True, 0.0)
    """

    def __init__(
        self,
        model: Network,
        X: ArrayLike,
        y: ArrayLike,
        kind: str = "ntk",
        *,
        lr: float | None = None,
        momentum: float = 0.0,
    ) -> None:
        if not isinstance(model, DEQ | DeepDEQ | Explicit | ConvDEQ):
            raise InputError(f'model={model!r} must be a model, e.g. notsodeep.DEQ("relu", recurrent=0.2, input=0.8)')
        self.model, self.kind = model, choice(kind, model.kinds, "kind")
        self.X = np.asarray(X, dtype=np.float64)
        self.prior = "nngp" if Kind.of(kind) in (Kind.NNGP, Kind.NTK_INJECTED) else "ck"
        self._y = _targets(y, len(self.X), "y")
        self._flat = np.ndim(y) == 1
        self.momentum = nonnegative(momentum, "momentum")
        if self.momentum >= 1 or (self.momentum and lr is None):
            fix = "pass 0 ≤ momentum < 1" if lr is not None else "steps with momentum need lr"
            raise InputError(f"momentum={momentum!r} cannot be used; {fix}")
        self.lr = None if lr is None else positive(lr, "lr")
        self._rate = 2 / self._y.size  # of the mean squared error
        if self.kind == self.prior:
            tangent = prior = model.kernel(self.X, kind=kind, progress=False)
        else:
            both = model.kernel(self.X, kind=(kind, self.prior), progress=False)
            tangent, prior = getattr(both, kind), getattr(both, self.prior)
        self.eigenvalues, self._vectors = np.linalg.eigh(tangent)
        self.eigenvalues = np.maximum(self.eigenvalues, 0.0)
        self._prior = prior
        self.largest_lr = (
            2 * (1 + self.momentum) / (self._rate * max(float(self.eigenvalues[-1]), np.finfo(float).tiny))
        )
        if self.lr is not None and self.lr >= self.largest_lr:
            raise InputError(f"lr={lr!r} diverges on these samples; use lr < {self.largest_lr:.6g}")

    def predict(self, X: ArrayLike, t: ArrayLike, *, covariance: bool = True) -> Ensemble:
        """Mean and covariance of trained networks at new samples.

        Parameters
        ----------
        X : array (m, p)
        t : float or array (T,)
            Times of the gradient flow, or numbers of steps where `lr` is given; ``np.inf`` is the end of training.
        covariance : bool
            False leaves it out; it takes n²m operations a time.

        Returns
        -------
        Ensemble
        """
        rows, cross = self._cross(X)
        learned = self._vectors.T @ self._y
        priors = self._priors(rows) if covariance else None
        means, covariances = [], []
        for gain, _ in self._filters(t):
            weights = cross * gain
            means.append(self._shaped(weights @ learned))
            if priors is not None:
                covariances.append(self._covariance(weights, *priors))
        if np.ndim(t) == 0:
            return Ensemble(means[0], covariances[0] if covariance else None)
        return Ensemble(np.stack(means), np.stack(covariances) if covariance else None)

    def follow(self, X: ArrayLike, t: ArrayLike, initial: tuple[ArrayLike, ArrayLike]) -> Array:
        """Outputs of one network, whose outputs before training are known.

        Parameters
        ----------
        X : array (m, p)
        t : float or array (T,)
        initial : (f_0 of the training samples, f_0 of X)
            Each in the shape of its targets.

        Returns
        -------
        array (T, m) or (T, m, k)
            Without the first dimension where `t` is one number.
        """
        rows, cross = self._cross(X)
        before, there = (_targets(f, n, "initial") for f, n in zip(initial, (len(self.X), len(rows)), strict=True))
        if before.shape != self._y.shape or there.shape[1] != self._y.shape[1]:
            raise InputError(f"initial has {before.shape[1]} and {there.shape[1]} outputs but y has {self._y.shape[1]}")
        missing = self._vectors.T @ (self._y - before)
        found = [self._shaped(there + (cross * gain) @ missing) for gain, _ in self._filters(t)]
        return found[0] if np.ndim(t) == 0 else np.stack(found)

    def loss(self, t: ArrayLike, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Array:
        """Mean squared error of a network, in the mean over the ensemble; of the training samples when X is absent.

        The error of the ensemble's mean, plus the mean variance.

        Parameters
        ----------
        t : float or array (T,)
        X, y : arrays (m, p) and (m,) or (m, k), optional

        Returns
        -------
        array (T,), or a number
        """
        if (X is None) != (y is None):
            raise InputError("X and y belong together; pass both or neither")
        if X is None:
            learned, spread = self._vectors.T @ self._y, self._rotated_prior.diagonal()
            found = [
                float(np.sum((left[:, None] * learned) ** 2) / learned.size + np.sum(left**2 * spread) / len(learned))
                for _, left in self._filters(t)
            ]
        else:
            rows, cross = self._cross(X)
            targets = _targets(y, len(rows), "y")
            if targets.shape[1] != self._y.shape[1]:
                raise InputError(f"y has {targets.shape[1]} outputs but the training targets have {self._y.shape[1]}")
            alone = self.model.kernel_diag(rows, kind=self.prior)
            shared = self._vectors.T @ self.model.kernel(self.X, rows, kind=self.prior, progress=False)
            learned = self._vectors.T @ self._y
            found = []
            for gain, _ in self._filters(t):
                weights = cross * gain
                variance = alone + np.sum(weights * (weights @ self._rotated_prior - 2 * shared.T), axis=1)
                found.append(float(np.mean((weights @ learned - targets) ** 2) + np.mean(variance)))
        return np.array(found[0] if np.ndim(t) == 0 else found)

    # --- inside --------------------------------------------------------------------------

    def _cross(self, X: ArrayLike) -> tuple[Array, Array]:
        """The samples, and Θ(x, X) in the basis of eigenvectors."""
        rows = np.asarray(X, dtype=np.float64)
        return rows, self.model.kernel(rows, self.X, kind=self.kind, progress=False) @ self._vectors

    def _priors(self, rows: Array) -> tuple[Array, Array]:
        """Covariances of f_0 between new samples, and between training samples (in the basis) and them."""
        alone = self.model.kernel(rows, kind=self.prior, progress=False)
        return alone, self._vectors.T @ self.model.kernel(self.X, rows, kind=self.prior, progress=False)

    @cached_property
    def _rotated_prior(self) -> Array:
        return self._vectors.T @ self._prior @ self._vectors

    def _covariance(self, weights: Array, alone: Array, shared: Array) -> Array:
        """Covariance of f_0(x) − W f_0(X)."""
        mixed = weights @ shared
        found = alone + weights @ self._rotated_prior @ weights.T - mixed - mixed.T
        return (found + found.T) / 2

    def _shaped(self, outputs: Array) -> Array:
        return outputs[:, 0] if self._flat else outputs

    def _filters(self, t: ArrayLike) -> Iterator[tuple[Array, Array]]:
        """(1 − r)/λ and r for each time, r(λ) being what is left of the error."""
        times = np.atleast_1d(np.asarray(t, dtype=np.float64))
        if times.ndim > 1 or not times.size or np.isnan(times).any() or (times < 0).any():
            raise InputError(f"t={t!r} must be a number ≥ 0, or a list of them")
        for time in times:
            if math.isinf(time):
                yield self._finished()
            elif self.lr is None:
                yield self._flow(float(time))
            elif time == int(time):
                yield self._stepped(int(time))
            else:
                raise InputError(f"t={time:g} must be a number of steps; leave out lr for the gradient flow")

    def _finished(self) -> tuple[Array, Array]:
        values = self.eigenvalues
        learned = values > len(values) * np.finfo(float).eps * values[-1]
        return np.divide(1.0, values, out=np.zeros_like(values), where=learned), np.where(learned, 0.0, 1.0)

    def _flow(self, time: float) -> tuple[Array, Array]:
        values, rate = self.eigenvalues, self._rate * time
        gain = np.divide(-np.expm1(-rate * values), values, out=np.full_like(values, rate), where=values > 0)
        return gain, np.exp(-rate * values)

    def _stepped(self, steps: int) -> tuple[Array, Array]:
        """Powers of the step (a, w, r) ↦ (a + g w', w', r − gλw'), w' = momentum·w + r, from (0, 0, 1)."""
        values, momentum = self.eigenvalues, self.momentum
        g = self._rate * (self.lr or 0.0)
        step = np.zeros((len(values), 3, 3))
        step[:, 0] = [1.0, g * momentum, g]
        step[:, 1] = [0.0, momentum, 1.0]
        step[:, 2, 1], step[:, 2, 2] = -g * values * momentum, 1 - g * values
        power = np.linalg.matrix_power(step, steps)
        return power[:, 0, 2], power[:, 2, 2]


def _targets(y: Any, n: int, parameter: str) -> Array:
    """Targets as an (n, k) array."""
    rank = np.ndim(y)
    values = matrix(y, parameter, rank=2 if rank != 1 else 1).astype(np.float64)
    if len(values) != n:
        raise InputError(f"{parameter} has {len(values)} rows for {n} samples")
    return values.reshape(n, -1)
