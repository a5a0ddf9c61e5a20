"""Predict the accuracy of kernel ridge classification on a mixture before training, from four numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice
from notsodeep.display import card
from notsodeep.highdim.curves import Curve, confusion, curve, sample_sizes, target_table
from notsodeep.highdim.features import FeatureRidge
from notsodeep.highdim.fitted import Described, HeldOut, LabelledRows, fit, held_out
from notsodeep.highdim.four_numbers import FourNumbers, coefficients
from notsodeep.highdim.mixture import Mixture
from notsodeep.highdim.ridge import KernelRidge, RidgeSystem
from notsodeep.highdim.validity import outside_theory, warn_outside
from notsodeep.models import DEQ, Explicit

__all__ = ["Forecast", "forecast"]

Array: TypeAlias = NDArray[Any]

_STEP = 1e-3  # of a relative change
_NUMBERS = (
    *("n", "ridge", "accuracy", "per_class", "confusion", "means", "covariances"),
    *("test_error", "train_error", "train_accuracy", "classes", "proportions", "targets"),
)


@dataclass(frozen=True, eq=False)
class Forecast:
    """The predicted distribution of the scores, and its consequences. The axes of a curve come first in all arrays.

    Attributes
    ----------
    kind : str
    weights : FourNumbers
        (c₁, c₂, c₃, d): the forecast depends on the network only through these.
    n, ridge : number or array
        Of each point.
    classes : array (K,)
        Their labels.
    proportions : array (K,)
    targets : array (K, outputs)
        η; a sample is assigned to the class of the nearest target.
    means : array (K, outputs)
        Of the scores of a new sample, class by class.
    covariances : array (K, outputs, outputs)
    gains : array (K,)
        q_a: the residual of a training sample is ridge·q_a times the residual it would have as a new sample.
    confusion : array (K, K)
        Probability that a sample of class a (row) is assigned to class b.
    outside : tuple of str
        Reasons why the theory may be far off; empty where it applies.
    check : HeldOut or None
        With data: predicted and measured accuracy on a held-out part.
    """

    kind: str
    weights: FourNumbers
    n: Any
    ridge: Any
    classes: Array
    proportions: Array
    targets: Array
    means: Array = field(repr=False)
    covariances: Array = field(repr=False)
    gains: Array = field(repr=False)
    confusion: Array = field(repr=False)
    outside: tuple[str, ...] = ()
    check: HeldOut | None = None
    _weighed: Callable[[FourNumbers], Curve] | None = field(default=None, repr=False)

    @property
    def per_class(self) -> Array:
        """Accuracy of each class, shape (K,)."""
        return np.diagonal(self.confusion, axis1=-2, axis2=-1).copy()

    @property
    def accuracy(self) -> Any:
        """Of a new sample: Σ_a proportions_a per_class_a."""
        return _plain(self.per_class @ self.proportions)

    @property
    def test_error(self) -> Any:
        """E‖η_a − score‖² of a new sample."""
        return _plain(self._squares @ self.proportions)

    @property
    def train_error(self) -> Any:
        """Mean of ‖y_i − score‖² over the training samples."""
        return _plain((self._kept**2 * self._squares) @ self.proportions)

    @cached_property
    def train_accuracy(self) -> Any:
        """Fraction of the training samples that are classified correctly."""
        kept = self._kept[..., None]
        means = self.targets - kept * (self.targets - self.means)
        table = confusion(means, kept[..., None] ** 2 * self.covariances, self.targets)
        return _plain(np.diagonal(table, axis1=-2, axis2=-1) @ self.proportions)

    @cached_property
    def sensitivity(self) -> FourNumbers:
        """∂ accuracy/∂ log c for each of c₁, c₂, c₃ and d: the loss of a network that misses one of them.

        Missing c₃ by 1 % changes the accuracy by a hundredth of ``sensitivity.c3``.
        """
        if self._weighed is None:
            raise InputError(
                "a readout of finite width depends on more than four numbers; make a forecast without width"
            )
        changes = []
        for name, value in self.weights._asdict().items():
            ends = (self._weighed(self.weights._replace(**{name: value * (1 + step)})) for step in (_STEP, -_STEP))
            up, down = (np.diagonal(one.confusion, axis1=-2, axis2=-1) @ self.proportions for one in ends)
            changes.append(_plain((up - down) / (2 * _STEP)))
        return FourNumbers(*changes)

    @property
    def _squares(self) -> Array:
        misses = np.sum((self.targets - self.means) ** 2, axis=-1)
        return np.asarray(misses + np.trace(self.covariances, axis1=-2, axis2=-1))

    @property
    def _kept(self) -> Array:
        return np.asarray(np.asarray(self.ridge)[..., None] * self.gains)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, JSON-ready."""
        return {
            "kind": self.kind,
            "weights": self.weights._asdict(),
            **{name: np.asarray(getattr(self, name)).tolist() for name in _NUMBERS},
            "outside": list(self.outside),
            "check": None if self.check is None else self.check.to_dict(),
        }

    def __str__(self) -> str:
        if not np.ndim(self.accuracy):
            return f"Forecast(accuracy={self.accuracy:.4f}, n={self.n}, ridge={self.ridge:.3g}, kind={self.kind})"
        best = np.unravel_index(int(np.argmax(self.accuracy)), np.shape(self.accuracy))
        n, ridge, accuracy = (np.asarray(one)[best] for one in (self.n, self.ridge, self.accuracy))
        size = " × ".join(map(str, np.shape(self.accuracy)))
        return f"Forecast({size} points, best accuracy={accuracy:.4f} at n={n}, ridge={ridge:.3g}, kind={self.kind})"

    def _repr_html_(self) -> str:
        points = np.broadcast_arrays(self.n, self.ridge, self.accuracy)
        columns = zip(*(one.ravel().tolist() for one in points), strict=True)
        rows = [(f"{n:g}", f"{ridge:.3g}", f"{accuracy:.2%}") for n, ridge, accuracy in columns]
        notes = [*self.outside, *([f"check: {self.check}"] if self.check is not None else [])]
        return card(f"Forecast, {self.kind}", rows, header=("n", "ridge", "accuracy"), notes=notes)


def forecast(
    model: DEQ | DeepDEQ | Explicit,
    mixture: Mixture | None = None,
    n: ArrayLike | None = None,
    ridge: ArrayLike | str = "best",
    kind: str = "ck",
    *,
    targets: ArrayLike | str = "one-hot",
    width: int | Sequence[int] | None = None,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    covariance: str = "ledoit-wolf",
    holdout: float = 0.25,
    seed: int | np.random.Generator = 0,
) -> Forecast:
    """Predict kernel ridge classification: α = (M + ridge·I)⁻¹ y, score f(x) = Σ_i α_i k(x, x_i).

    On a mixture the scores of new samples are Gaussian in the limit of large n and p. Their means and covariances
    follow from a fixed point in K numbers that depends on the network only through (c₁, c₂, c₃, d): no network is
    trained, no sample drawn and no n×n matrix formed. M is the kernel of ``model.centered(tau0)``.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
        Anything that :func:`coefficients` describes.
    mixture : Mixture
        Absent when `X` and `y` are given.
    n : int or array of int
        Number of training samples. With `X`, all of them when absent.
    ridge : float, array of float, or ``"best"``
        Added to the diagonal; ``"best"`` maximises the predicted accuracy. Arrays of n and ridge are
        broadcast against each other, and every result gets their axes.
    kind : str
        As in :func:`equivalent`.
    targets : ``"one-hot"``, ``"sign"``, or array (K,) or (K, outputs)
        η_a. ``"sign"`` gives −1 and +1 to two classes.
    width : int, or one for each hidden layer
        Train the readout of a network of this width with random weights, instead of its infinitely wide kernel:
        α = (FFᵀ + ridge·I)⁻¹ y for features F (n, width). The error peaks at width = n. Only for ``kind="ck"``.
    X, y : array (n, p) and (n,)
        Data from which the mixture is estimated, as the kernel would get it; centre it first.
    covariance : {"ledoit-wolf", "oas", "spectrum"}
        How: shrunk covariances of every class, or the population spectrum of C° with classes proportional to it.
    holdout : float
        Fraction of the data on which a forecast from the rest is checked, see ``Forecast.check``; 0 for no check. There
        is no check with a width.
    seed : int or Generator
        Of that split.

    Examples
    --------
    >>> import numpy as np, notsodeep as nsd
    >>> means = np.zeros((2, 400)); means[:, 0] = 2, -2
    >>> mix = nsd.Mixture(means, covariances=[1.0, 1.0], proportions=[0.5, 0.5])
    >>> deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    >>> print(nsd.forecast(deq, mix, n=600, ridge=0.05))  # exact kernels: 0.950
    Forecast(accuracy=0.9475, n=600, ridge=0.05, kind=ck)
    >>> nsd.forecast(deq, mix, n=[300, 600, 1200], ridge=0.05).accuracy.round(3)
    array([0.941, 0.948, 0.957])
    """
    if width is not None and kind != "ck":
        raise InputError(f"kind={kind!r} has no readout of finite width; pass kind='ck', or no width")
    samples = _samples(mixture, X, y)
    levels = _levels(ridge)
    if samples is not None:
        known, n = fit(samples, covariance), len(samples.X) if n is None else n
    else:
        assert mixture is not None
        known = Described(mixture.statistics(), mixture.population)
    if n is None:
        raise InputError("n is missing; pass the number of training samples")
    shares = known.stats.proportions
    goals, sizes = target_table(targets, shares.size), sample_sizes(n, shares)

    def along(part: Described, size: Array) -> Curve:
        system: RidgeSystem
        if width is not None:
            system = FeatureRidge.of(model, width, part.stats, part.population)
        else:
            own = coefficients(model, part.stats.tau0).weights(kind)
            system = KernelRidge.of(own, part.stats, part.population)
        return curve(system, size, levels, goals)

    def weighed(weights: FourNumbers) -> Curve:
        return curve(KernelRidge.of(weights, known.stats, known.population), found.n, found.ridge, goals)

    found = along(known, sizes)
    reasons = outside_theory(known.stats, known.population.mean_products(), float(sizes.min()))
    check = None
    if samples is not None and holdout and width is None:
        check = held_out(
            model, samples, lambda part, size: along(fit(part, covariance), size), goals, kind, holdout, seed
        )
    warn_outside("the mixture" if samples is None else "this data", reasons)
    return Forecast(
        kind=kind,
        weights=coefficients(model, known.stats.tau0).weights(kind),
        n=_plain(found.n),
        ridge=_plain(found.ridge),
        classes=known.stats.classes if samples is None else samples.classes,
        proportions=shares,
        targets=goals,
        means=found.means,
        covariances=found.covariances,
        gains=found.gains,
        confusion=found.confusion,
        outside=reasons,
        check=check,
        _weighed=weighed if width is None else None,
    )


def _samples(mixture: Mixture | None, X: ArrayLike | None, y: ArrayLike | None) -> LabelledRows | None:
    if (X is None) != (y is None):
        raise InputError("X and y belong together; pass both or neither")
    if X is not None and y is not None:
        if mixture is not None:
            raise InputError("mixture and X exclude each other; pass a known mixture, or data to estimate it from")
        return LabelledRows.of(X, y)
    if not isinstance(mixture, Mixture):
        raise InputError(f"mixture={mixture!r} must be a Mixture; or pass X and y")
    return None


def _levels(ridge: ArrayLike | str) -> Array | str:
    if isinstance(ridge, str):
        return choice(ridge, ("best",), "ridge")
    levels = np.asarray(ridge)
    if levels.dtype.kind not in "fiu" or not levels.size or not np.isfinite(levels).all():
        raise InputError(f"ridge={ridge!r} must be a finite number, an array of them, or 'best'")
    return levels.astype(np.float64)


def _plain(values: Array) -> Any:
    """A number if there are no axes."""
    return values.item() if np.ndim(values) == 0 else values
