"""The two tasks of a kernel machine: regression and classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from notsodeep.checks import InputError, positive, require_finite
from notsodeep.errors import AbsentError
from notsodeep.kinds import Kind
from notsodeep.learn import persistence
from notsodeep.learn.base import KernelMachine, evidence
from notsodeep.learn.duplicates import Merged, totals
from notsodeep.solvers import posterior_variance, solve

__all__ = ["Calibration", "KernelClassifier", "KernelRegressor"]

Array: TypeAlias = NDArray[Any]

_CALIBRATION_ROWS = 512  # with more rows, a random sample is enough to fit one number
_TILE = 128  # right-hand sides solved at a time
_LARGEST_LABEL = 2.0**63  # a float is a class for scikit-learn if it is the same as an int64


class KernelRegressor(RegressorMixin, MultiOutputMixin, KernelMachine):  # type: ignore[misc]
    """Targets are numbers, one or several per sample."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to rows X (n, p) and targets y (n,) or (n, k)."""
        X, y = self._samples(X, y, multi_output=True, y_numeric=True)
        self._single = y.ndim == 1
        self._fit(X, y.reshape(len(X), -1).astype(np.float64), sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict (m,) or (m, k); with ``return_std=True`` also the posterior standard deviation.

        The standard deviation is that of the noise-free function of a Gaussian process whose prior covariance is the
        kernel and whose noise variance is the ridge, so it needs ``kind="ck"`` or ``"nngp"``.
        """
        if return_std:
            self._require_process()
        mean = self._scores(X)
        mean = mean[:, 0] if self._single else mean
        if not return_std:
            return mean
        blocks = self._blocks(self._prepared(X), self.X_fit_)
        std = np.sqrt(posterior_variance(self.solution_.required_factor, blocks, blocks.diagonal()))
        return mean, std if self._single else np.repeat(std[:, None], mean.shape[1], axis=1)

    @property
    def log_marginal_likelihood_(self) -> float:
        """Log N(y; 0, K + ridge·W⁻¹) of the Gaussian process, summed over outputs."""
        self._require_process()
        _ = self.solution_.required_factor
        return self._log_likelihood

    def _after_fit(self, merged: Merged, targets: Array, weight: Array | None) -> None:
        self._log_likelihood = evidence(self, merged, targets, weight)

    def _require_process(self) -> None:
        if not Kind.of(self.kind).is_process:
            raise AbsentError(
                f"kind={self.kind!r} is not the prior of a Gaussian process; use kind='ck' or kind='nngp' for a "
                "standard deviation or a likelihood"
            )

    def _state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, numbers = super()._state()
        return arrays, {**numbers, "single": self._single}

    def _restore(self, arrays: dict[str, Array], numbers: dict[str, Any]) -> None:
        super()._restore(arrays, numbers)
        self._single = numbers["single"] is True
        if self._single and self.dual_coef_.shape[1] != 1:
            raise ValueError("its arrays do not fit together")


@dataclass(frozen=True)
class Calibration:
    """P(class) = softmax(score/temperature), the temperature fitted to leave-one-out scores.

    Attributes
    ----------
    temperature : float
    accuracy : float
        Of the leave-one-out predictions that the temperature was fitted to: an honest estimate at no extra cost.
    rows : int
        Number of these rows.
    method : str
    """

    temperature: float
    accuracy: float
    rows: int
    method: str


class KernelClassifier(ClassifierMixin, KernelMachine):  # type: ignore[misc]
    """Least squares on one-hot targets, 0.9 for the class and −0.1 for the others [FK20].

    With two classes only the difference of the two columns matters: there is one column of targets ±1.
    """

    classes_: Array

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to rows X (n, p) and labels y (n,), of any type that can be sorted."""
        X, y = self._samples(X, y)
        if y.dtype.kind == "f" and (beyond := y[np.abs(y) >= _LARGEST_LABEL]).size:
            raise InputError(
                f"y holds labels as large as {beyond[0]:g}, no classes for scikit-learn; pass text or integers"
            )
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y holds one class only ({self.classes_[0]}); a classifier needs at least two")
        self._fit(X, one_hot(codes, len(self.classes_)), sample_weight)
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores (m, K), or (m,) for two classes: positive means the second one."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """Predict the label with the largest score."""
        scores = by_class(self._scores(X))  # an estimator that is not fitted says so here
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X: Any) -> Array:
        """softmax(score/temperature), shape (m, K).

        The temperature minimises the log-loss of the leave-one-out scores of the training rows, which come from the
        factorisation of the fit (of 512 random rows when there are more). A fit without a factorisation uses the
        leave-one-out scores of a second machine fitted to 512 rows; probabilities are then somewhat underconfident.
        `calibration_` says which.
        """
        return np.asarray(softmax(self._logits(X), axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of :meth:`predict_proba`."""
        return np.asarray(log_softmax(self._logits(X), axis=1))

    def _logits(self, X: Any) -> Array:
        with np.errstate(over="ignore"):
            logits = by_class(self._scores(X)) / self.calibration_.temperature
        if not np.isfinite(logits).all():
            raise InputError(f"probabilities overflow float64 (temperature={self.calibration_.temperature:.3g})")
        return logits

    def _after_fit(self, merged: Merged, targets: Array, weight: Array | None) -> None:
        scores, chosen, method = self._leave_one_out_scores(merged)
        hits = targets > 0 if targets.shape[1] > 1 else np.column_stack([targets < 0, targets > 0])
        # a row with copies of several classes counts for each of them
        share = totals(merged.groups, hits * (1.0 if weight is None else weight[:, None]))[chosen]
        self.calibration_ = calibrate(by_class(scores), share, method)

    def _leave_one_out_scores(self, merged: Merged) -> tuple[Array, Array, str]:
        """Held-out scores of some training rows, the indices of these rows, and the method."""
        n = len(merged.rows)
        chosen = np.arange(n)
        if n > _CALIBRATION_ROWS:
            chosen = np.sort(np.random.default_rng(0).choice(n, _CALIBRATION_ROWS, replace=False))
        targets, coefficients, factor = merged.targets[chosen], self.dual_coef_[chosen], self.solution_.factor
        method = f"leave-one-out scores of {len(chosen)} of {n} training rows"
        if factor is None:
            weights = None if merged.weight is None else merged.weight[chosen]
            alone = solve(
                self._blocks(self.X_fit_[chosen]), targets, ridge=self.ridge_, weights=weights, solver="cholesky"
            )
            assert alone.factor is not None
            coefficients, inverse = alone.coefficients, alone.factor.inverse_diagonal(progress=False)
            method = f"leave-one-out scores of a machine on {len(chosen)} of {n} training rows"
        elif len(chosen) == n:
            inverse = np.asarray(factor.inverse_diagonal(progress=False))
        else:
            inverse = np.empty(len(chosen))
            for start in range(0, len(chosen), _TILE):
                part = chosen[start : start + _TILE]
                unit = np.zeros((n, len(part)))
                unit[part, np.arange(len(part))] = 1.0
                half = factor.half_solve(unit)
                inverse[start : start + _TILE] = np.einsum("ij,ij->j", half, half)
        return targets - coefficients / inverse[:, None], chosen, method

    def _state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, numbers = super()._state()
        labels = self.classes_
        if labels.dtype == object and all(isinstance(label, str) for label in labels):
            labels = labels.astype(str)
            numbers["object_labels"] = True
        return {**arrays, "classes": labels}, {**numbers, "calibration": vars(self.calibration_)}

    def _restore(self, arrays: dict[str, Array], numbers: dict[str, Any]) -> None:
        super()._restore(arrays, numbers)
        labels, columns = arrays["classes"], self.dual_coef_.shape[1]
        if labels.shape != (2 if columns == 1 else columns,) or labels.dtype.kind not in "biufU":
            raise ValueError("its arrays do not fit together")
        if labels.dtype.kind == "f":
            require_finite(labels, "classes")
        self.classes_ = labels.astype(object) if numbers.get("object_labels") else labels
        self.calibration_ = persistence.from_plain_fields(Calibration, numbers["calibration"])
        positive(self.calibration_.temperature, "temperature")


def one_hot(codes: Array, classes: int) -> Array:
    """Targets 0.9 and −0.1; for two classes their difference, one column ±1."""
    if classes == 2:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    targets = np.full((len(codes), classes), -0.1)
    targets[np.arange(len(codes)), codes] = 0.9
    return targets


def by_class(scores: Array) -> Array:
    """One score per class: a single column d stands for (0, d)."""
    return scores if scores.shape[1] > 1 else np.column_stack([np.zeros(len(scores)), scores])


def calibrate(scores: Array, share: Array, method: str) -> Calibration:
    """The temperature with the smallest log-loss.

    `share` (n, K) says how often each row has each class. As in Platt's method, one extra observation per class keeps
    the temperature of perfectly separated scores away from 0. Weights count as repetitions, but every row counts at
    least once.
    """
    share = share * max(1.0, len(share) / share.sum())
    total = share.sum()
    classes = share.shape[1]
    smooth = (share + share.sum(axis=1, keepdims=True) / total) / (1 + classes / total)
    spread = float(np.sqrt(np.mean(np.var(scores, axis=1)))) or 1.0

    scores = scores - scores.mean(axis=1, keepdims=True)
    counts = smooth.sum(axis=1, keepdims=True)

    def slope(log_temperature: float) -> float:
        """Derivative of the log-loss, which is convex in 1/temperature."""
        probabilities = softmax(scores / np.exp(log_temperature), axis=1)
        return float(np.sum((counts * probabilities - smooth) * scores))

    # find the root of the derivative: a minimum is only accurate to the square root of rounding
    cold, hot = np.log(spread) - 7, np.log(spread) + 7
    if slope(hot) >= 0:
        best = hot
    elif slope(cold) <= 0:
        best = cold
    else:
        best = brentq(slope, cold, hot, xtol=1e-14)
    right = share[np.arange(len(scores)), np.argmax(scores, axis=1)].sum() / total
    return Calibration(float(np.exp(best)), float(right), len(scores), method)
