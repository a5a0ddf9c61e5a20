"""Random features: the hidden state of a finite network, whose inner products approach the conjugate kernel."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from notsodeep.activations import Activation, HermiteSeries
from notsodeep.checks import InputError, choice, count, positive, seeded, warn_convergence
from notsodeep.data.preparation import Preparation
from notsodeep.deprecation import old_parameters
from notsodeep.descriptions import model_from_dict
from notsodeep.kernels.matrices import precision_of
from notsodeep.kernels.parabolas import evaluate
from notsodeep.learn import persistence
from notsodeep.learn.base import prepared_state, restore_preparation
from notsodeep.learn.persistence import numbers_of
from notsodeep.learn.preprocessing import FloatTransformer, rows_to_transform
from notsodeep.matching import Match, SphereMatch, match
from notsodeep.models import DEQ, Explicit

__all__ = ["DEQFeatures"]

Array: TypeAlias = NDArray[Any]

_TRIED = 16  # training rows whose equilibria are solved in fit to report `n_iter_`
_CACHED = 1 << 15  # entries that an activation treats at a time
_LARGEST_WEIGHT = 100.0  # of a file; normal numbers exceed 40 with probability 1e-350
_TILE_BYTES = 32 * 2**20  # hidden states of one tile of rows
_NEW_NAMES = {"max_iterations": "max_iter", "seed": "random_state"}
_takes_old_names = old_parameters(
    _NEW_NAMES,
    lambda old, _: {_NEW_NAMES[name]: value for name, value in old.items()},
    "the names are max_iter and random_state now",
)


class DEQFeatures(ClassNamePrefixFeaturesOutMixin, FloatTransformer):  # type: ignore[misc]
    """z(x) ∈ R^m with z(x)·z(y) → CK(x, y): random features of a DEQ, or of the explicit network that replaces it.

    A linear model on them approximates the kernel machine. The gap falls like m^−1/2; the cost is linear in the number
    of samples.

    ``features="deq"`` solves z = φ(σ_a A z + σ_b B x + σ_0 b)/√m for every sample: the CK of the DEQ itself, for
    several products with an m×m matrix. ``features="explicit"`` evaluates the one or two layers of the matched network:
    the CK of the DEQ up to the error of the high-dimensional equivalence. This error is small for rows with many
    features and nearly equal norms, and does not fall with m.

    The equivalence holds for the centred DEQ, φ − E[φ(τ*ξ)], without a bias. With ``centered=True`` both variants use
    that DEQ (`model_`), at the τ0 of the training rows. Centring removes nearly a constant feature: let the linear
    model fit an intercept. ``centered=False`` uses the DEQ unchanged and needs ``features="deq"``.

    Parameters
    ----------
    activation, recurrent, input, bias
        The DEQ; see :class:`notsodeep.DEQ`. A finite network needs 4σ_a²L² < 1.
    width : int
        m.
    features : {"explicit", "deq"}
    kind : {"ck", "nngp"}
        The kernel that inner products approach. ``"nngp"`` appends the scaled inputs:
        (σ_a z, σ_b x, σ_0). NTKs are refused: they have m² + mp gradient features per sample.
    centered : bool
    orthogonal : bool
        Draw the rows of a weight matrix orthogonal within blocks, each still standard normal: the same limit with
        less noise. False draws them independently.
    normalize : {"center", "unit", "none"}
        As in :class:`DEQKernelRegressor`.
    random_state : int, None, Generator or RandomState
        Of the weights.
    tol : float
        Largest ‖f(z) − z‖/‖f(z)‖ of a sample's equilibrium.
    max_iter : int
    dtype : {"float64", "float32"}, optional
        That of X by default.

    Attributes
    ----------
    model_ : DEQ
        The (centred) DEQ whose kernel is approximated.
    network_ : Explicit or None
        The network that is evaluated instead.
    match_ : Match, SphereMatch or None
        How well its numbers agree. Where all training rows have the same norm, as with ``normalize="unit"``, it is one
        layer with the DEQ's own kernel, without an m×m product.
    tau0_ : float
        √ of the mean of ‖x‖² over the prepared training rows.
    weights_ : list of arrays
    n_iter_ : int
        Steps that the equilibria of some training rows took; 1 for the explicit network.
    preparation_ : Preparation

    Examples
    --------
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from notsodeep import data
    >>> from notsodeep.learn import DEQFeatures
    >>> digits = data.load("digits")
    >>> clf = make_pipeline(DEQFeatures(width=1000), RidgeClassifier(alpha=1e-3))
    >>> clf.fit(digits.X[:900], digits.labels[:900]).score(digits.X[900:], digits.labels[900:]) > 0.94
    True
    >>> print(clf[0].network_)  # doctest: +ELLIPSIS
    Explicit(...leaky_relu... → ...leaky_relu...)
    """

    @_takes_old_names
    def __init__(
        self,
        activation: Any = "relu",
        recurrent: float = 0.2,
        input: float = 0.8,
        bias: float = 0.0,
        width: int = 1024,
        features: str = "explicit",
        kind: str = "ck",
        centered: bool = True,
        orthogonal: bool = True,
        normalize: str = "center",
        random_state: Any = 0,
        tol: float = 1e-6,
        max_iter: int = 200,
        dtype: Any = None,
    ) -> None:
        self.activation = activation
        self.recurrent = recurrent
        self.input = input
        self.bias = bias
        self.width = width
        self.features = features
        self.kind = kind
        self.centered = centered
        self.orthogonal = orthogonal
        self.normalize = normalize
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.dtype = dtype

    @_takes_old_names
    def set_params(self, **parameters: Any) -> DEQFeatures:
        """Set parameters as scikit-learn does; those of version 0.1 with a warning."""
        super().set_params(**parameters)
        return self

    def fit(self, X: Any, y: Any = None) -> DEQFeatures:
        """Learn the preparation and τ0 from the rows X (n, p), design the network, draw the weights."""
        deq = self._check()
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        self._precision = np.dtype(X.dtype if self.dtype is None else self.dtype)
        self.preparation_ = Preparation.of(X, self.normalize)
        rows = self.preparation_(X)
        self.tau0_ = math.sqrt(float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)) / len(rows)) or 1.0
        self.model_ = deq.centered(self.tau0_) if self.centered else deq
        self.match_: Match | SphereMatch | None = None
        if self.features == "explicit":
            on = "sphere" if self.normalize == "unit" or _equal_norms(rows) else "mixture"
            self.match_ = match(self.model_, tau0=self.tau0_, on=on)
        if isinstance(self.match_, Match) and not self.match_.exact:
            warn_convergence(
                f"the explicit network misses {', '.join(self.match_.missed)} of {self.model_} by "
                f"{self.match_.residual:.1e}; features='deq' has no such error"
            )
        # rows are already normalised
        self.network_: Explicit | None = Explicit(self.match_.network.activations) if self.match_ else None
        self.weights_ = self._draw(X.shape[1])
        some = rows[:_TRIED].astype(self._precision, copy=False)
        self.n_iter_ = self._hidden(some, np.empty((len(some), self.width), self._precision))[1]
        return self

    def transform(self, X: Any) -> Array:
        """Return the features (n, m), computed by tiles of rows."""
        check_is_fitted(self)
        X = rows_to_transform(self, X)
        width = len(self.weights_[-1])
        extra = self._n_features_out - width
        result = np.empty((len(X), self._n_features_out), self._precision)
        tile = max(1, _TILE_BYTES // (width * self._precision.itemsize))
        worst = 0.0
        for start in range(0, len(X), tile):
            part = slice(start, start + tile)
            rows = self.preparation_(X[part]).astype(self._precision, copy=False)
            hidden = result[part, :width]
            worst = max(worst, self._hidden(rows, hidden)[0])
            if extra:
                hidden *= math.sqrt(self.model_.recurrent)
                result[part, width : width + rows.shape[1]] = math.sqrt(self.model_.input) * rows
                result[part, width + rows.shape[1] :] = math.sqrt(self.model_.bias)
        if worst > self.tol:
            warn_convergence(
                f"an equilibrium stopped at relative residual {worst:.1e} > tol={self.tol:.1e} after "
                f"{self.max_iter} iterations; raise max_iter or tol"
            )
        return result

    def save(self, path: str | Path) -> Path:
        """Write the transformer with its weights to one ``.npz`` file; :func:`notsodeep.learn.load` reads it back."""
        check_is_fitted(self)
        return persistence.save(self, path)

    def _check(self) -> DEQ:
        """Check the parameters before any work."""
        choice(self.features, ("explicit", "deq"), "features")
        if isinstance(self.kind, str) and self.kind.startswith("ntk"):
            raise InputError(
                f"kind={self.kind!r} would need a feature for every weight (width² and more); use kind='ck' or 'nngp', "
                "or DEQKernelRegressor for the exact kernel"
            )
        choice(self.kind, ("ck", "nngp"), "kind")
        count(self.width, "width")
        if self.random_state is not None and not isinstance(self.random_state, np.random.RandomState):
            seeded(copy.copy(self.random_state), "random_state")
        count(self.max_iter, "max_iter")
        positive(self.tol, "tol")
        precision_of(self.dtype, np.empty(0))
        deq = DEQ(self.activation, self.recurrent, self.input, self.bias)
        if self.features == "explicit" and not self.centered and self.normalize != "unit":
            raise InputError("centered=False has no explicit match unless normalize='unit'; use that or features='deq'")
        if self.features == "deq" and not deq.well_posed:
            raise InputError(f"recurrent={self.recurrent!r}: {deq.well_posed.reason}; use a smaller recurrent")
        return deq

    def _draw(self, inputs: int) -> list[Array]:
        """Draw standard normal weights: B, A, b of the DEQ, or W_1, …, W_L."""
        state = self.random_state
        rng = np.random.default_rng(state.randint(2**32) if isinstance(state, np.random.RandomState) else state)

        def draw(shape: tuple[int, ...]) -> Array:
            return orthogonal_normal(rng, *shape) if self.orthogonal and len(shape) == 2 else rng.standard_normal(shape)

        return [draw(shape).astype(self._precision, copy=False) for shape in self._shapes(inputs)]

    def _shapes(self, inputs: int) -> list[tuple[int, ...]]:
        """Shapes of the weights."""
        m = self.width
        if self.network_ is None:
            return [(m, inputs), (m, m), (m,)]
        return [(m, inputs), *[(m, m)] * (self.network_.depth - 1)]

    def _hidden(self, rows: Array, out: Array) -> tuple[float, int]:
        """Write the hidden state of prepared rows to `out`; return the worst relative residual and the steps."""
        root = math.sqrt(len(self.weights_[0]))
        if self.network_ is not None:
            state = rows
            for k, (phi, W) in enumerate(zip(self.network_.activations, self.weights_, strict=True), start=1):
                state = np.matmul(state, W.T, out=out if k == self.network_.depth else None)
                _apply(phi, state, 1 / root)
            return 0.0, 1
        B, A, b = self.weights_
        drive = math.sqrt(self.model_.input) * (rows @ B.T)
        drive += math.sqrt(self.model_.bias) * b
        recurrent = (math.sqrt(self.model_.recurrent) * A).T
        return equilibrium(self.model_.activation, recurrent, drive, root, out, self.tol, self.max_iter)

    @property
    def _n_features_out(self) -> int:
        extra = int(self.n_features_in_) + (self.model_.bias > 0) if self.kind == "nngp" else 0
        return len(self.weights_[-1]) + extra

    def _state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, numbers = prepared_state(self)
        arrays |= {f"weight{k}": weight for k, weight in enumerate(self.weights_)}
        numbers |= {
            "tau0": self.tau0_,
            "precision": self._precision.name,
            "network": self.network_.to_dict() if self.network_ else None,
        }
        return arrays, numbers

    def _restore(self, arrays: dict[str, Array], numbers: dict[str, Any]) -> None:
        deq = self._check()
        self._precision = np.dtype(choice(numbers["precision"], ("float64", "float32"), "precision"))
        restore_preparation(self, arrays, numbers, 1)
        self.tau0_ = positive(numbers["tau0"], "tau0")
        self.model_ = deq.centered(self.tau0_) if self.centered else deq
        self.match_ = None
        network = None if numbers["network"] is None else model_from_dict(numbers["network"])
        if (self.features == "explicit") is not isinstance(network, Explicit):
            raise ValueError("its network does not fit its parameter features")
        self.network_ = network if isinstance(network, Explicit) else None
        shapes: list[tuple[int, ...]] = self._shapes(self.n_features_in_)
        weights = [numbers_of(arrays, f"weight{k}", len(shape), shape) for k, shape in enumerate(shapes)]
        if max(float(np.abs(weight).max()) for weight in weights) > _LARGEST_WEIGHT:
            raise ValueError("its weights are not standard normal")
        self.weights_ = [weight.astype(self._precision, copy=False) for weight in weights]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")


def _equal_norms(rows: Array) -> bool:
    norms = np.linalg.norm(rows, axis=1)
    return len(norms) > 1 and norms.max() > 0 and bool(np.ptp(norms) <= 1e-6 * norms.max())


def _apply(phi: Activation, x: Array, factor: float) -> None:
    """Replace x by factor·φ(x); a designed φ in float32 has a fast form, in one pass."""
    if not isinstance(phi.shape, HermiteSeries) or x.dtype != np.float32 or not x.flags.c_contiguous:
        step = max(1, _CACHED // x.shape[1])
        for start in range(0, len(x), step):  # what φ computes on the way stays in the cache
            part = x[start : start + step]
            np.multiply(phi(part), factor, out=part, casting="same_kind")
        return
    flat = x.reshape(-1)
    evaluate(flat, phi.shape, flat, scale=factor * phi.scale, stretch=phi.stretch, shift=factor * phi.shift)


def orthogonal_normal(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Return a matrix whose rows are standard normal and orthogonal within blocks of at most `columns`."""
    blocks = []
    for start in range(0, rows, columns):
        size = min(columns, rows - start)
        Q, R = np.linalg.qr(rng.standard_normal((columns, size)))
        blocks.append((Q * np.sign(np.diag(R))).T)  # Haar
    return np.concatenate(blocks) * np.sqrt(rng.chisquare(columns, (rows, 1)))


def equilibrium(
    phi: Activation, recurrent: Array, drive: Array, root: float, out: Array, tol: float, max_iter: int
) -> tuple[float, int]:
    """Solve z = φ(z·recurrent + drive)/root for every row by plain iteration, into `out`.

    Returns the worst relative residual and the number of steps.

    The Jacobian of a wide random network contracts by about √(σ_a² E[φ'²]) ≤ ½ per step, and its eigenvalues fill a
    disc, so acceleration would gain little. Converged rows are skipped.
    """
    out[...] = np.asarray(phi(drive)) / root
    active = np.arange(len(out))
    worst, steps = np.zeros(len(out)), 0
    while active.size and steps < max_iter:
        steps += 1
        state = out[active]
        new = np.asarray(phi(state @ recurrent + drive[active])) / root
        size = np.linalg.norm(new, axis=1)
        worst[active] = np.linalg.norm(new - state, axis=1) / np.where(size > 0, size, 1.0)
        out[active] = new
        active = active[worst[active] > tol]
    return float(worst.max()), steps
