"""Base class of the kernel machines: validation, ridge, solve, leave-one-out, prediction by tiles, files."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from notsodeep.checks import InputError, UnknownOptionError, choice, count, nearest, nonnegative, positive
from notsodeep.data.preparation import Preparation
from notsodeep.deprecation import old_parameters
from notsodeep.kernels import KernelMatrix
from notsodeep.learn import persistence
from notsodeep.learn.duplicates import Merged, among, merge
from notsodeep.learn.tuning import CRITERIA, Tuning, tune
from notsodeep.models import DEQ
from notsodeep.progress import compilation
from notsodeep.scale.distributed import placed
from notsodeep.solvers import (
    Solution,
    Solver,
    generalized_cross_validation,
    leave_one_out,
    log_marginal_likelihood,
    ridge_path,
)
from notsodeep.solvers.shorthand import ADVICE, OLD, solver_of, solver_with, with_old_options

__all__ = ["KernelMachine", "evidence", "prepared_state", "restore_preparation", "takes_old_options"]

Array: TypeAlias = NDArray[Any]

takes_old_options = old_parameters(OLD, with_old_options, ADVICE)  # of an __init__
_GRID = np.logspace(-8, 1, 19)  # ridges tried by ridge="loo" and "gcv", in units of the mean diagonal


class KernelMachine(BaseEstimator):  # type: ignore[misc]
    """f(x) = Σ_i K(x, x_i) c_i with (K + ridge·W⁻¹) c = y.

    A subclass defines the kernel: `_model` describes the network, `_blocks` is its kernel between prepared rows. Its
    ``__init__`` stores its own parameters and ridge, normalize, dtype, solver and progress, described in
    :class:`DEQKernelRegressor`.
    """

    ridge: Any
    normalize: str
    dtype: Any
    solver: str | Solver
    progress: Any
    optimize: str | None = None
    kind: str

    solution_: Solution
    tuning_: Tuning | None
    dual_coef_: Array
    X_fit_: Array
    ridge_: float
    preparation_: Preparation

    def __new__(cls, *_: Any, **parameters: Any) -> Any:
        """Refuse a misspelt parameter; the message names the class that was called."""
        known = cls._get_param_names()
        kinds = [parameter.kind for parameter in inspect.signature(cls.__init__).parameters.values()]
        for name in parameters:
            if name not in (*known, *OLD) and inspect.Parameter.VAR_KEYWORD not in kinds:  # of a subclass
                raise UnknownOptionError(f"{cls.__name__} has no parameter {name!r}{nearest(name, known)}")
        return super().__new__(cls)

    def set_params(self, **parameters: Any) -> Any:
        """Set parameters as scikit-learn does; options of version 0.1 become those of the solver, with a warning."""

        def translate(old: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
            return {"solver": solver_with(others.get("solver", self.solver), **old)}

        return old_parameters(OLD, translate, ADVICE)(super().set_params)(**parameters)

    def _model(self) -> Any:
        """The network whose kernel is used; bad parameters raise here."""
        raise NotImplementedError

    def _blocks(self, X: Array, Y: Array | None = None) -> KernelMatrix:
        """The kernel between prepared rows."""
        raise NotImplementedError

    def _samples(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        """Validated samples, one per row, and targets if any."""
        return validate_data(self, X, y, dtype=[np.float64, np.float32], **options)

    @property
    def _channels(self) -> int | None:
        """Number of values per pixel if rows are images."""
        return None

    def _fit(self, X: Array, targets: Array, sample_weight: Any) -> None:
        """Solve for validated rows and targets (n, k); rows of weight 0 are left out."""
        ridges, solver = self._ridges(), solver_of(self.solver)
        self.model_, self.tuning_ = self._model(), None
        if self.optimize is not None:
            self._check_optimize(ridges)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            kept = np.flatnonzero(weight)
            X, targets, weight = X[kept], targets[kept], weight[kept]
        self.preparation_ = Preparation.of(X, self.normalize, weight, self._channels)
        rows = self.preparation_(X)
        merged = merge(rows, targets, weight, interpolate=isinstance(ridges, np.ndarray) and ridges.min() == 0)
        self.X_fit_ = rows if len(merged.rows) == len(rows) else rows[merged.rows]
        self._weight = merged.weight
        with compilation(self.progress):
            if self.optimize is not None:
                start = float(ridges[0])
                found = tune(self.model_, self.X_fit_, merged.targets, start, self.kind, self.optimize, merged.weight)
                self._set_tuning(found)
                ridges = np.array([found.ridge])
            blocks = self._blocks(self.X_fit_)
            self.ridge_ = self._choose_ridge(ridges, blocks, merged)
            self.solution_ = solver.solve(
                blocks, merged.targets, ridge=self.ridge_, weights=merged.weight, progress=self.progress
            )
        self.dual_coef_ = self.solution_.coefficients
        self._after_fit(merged, targets, weight)

    def _check_optimize(self, ridges: Array | str) -> None:
        choice(self.optimize, tuple(CRITERIA), "optimize")
        if not isinstance(self.model_, DEQ) or getattr(self, "depth", None) is not None:
            raise InputError(
                f"optimize={self.optimize!r} needs a DEQ of one layer at its equilibrium; leave out cell and depth"
            )
        if isinstance(ridges, str) or ridges.size > 1:
            raise InputError(
                f"optimize={self.optimize!r} finds the ridge itself; pass one number to start from as ridge"
            )

    def _set_tuning(self, tuning: Tuning) -> None:
        self.tuning_ = tuning
        self.model_ = DEQ(self.model_.activation, tuning.recurrent, tuning.input, tuning.bias)

    def _after_fit(self, merged: Merged, targets: Array, weight: Array | None) -> None:
        """Hook: set attributes of a subclass that depend on the solution."""

    def _ridges(self) -> Array | str:
        """The candidate ridges, or the criterion that chooses one."""
        if isinstance(self.ridge, str):
            return choice(self.ridge, ("loo", "gcv"), "ridge")
        several = isinstance(self.ridge, Sequence | np.ndarray) and np.ndim(self.ridge) == 1
        values = np.array([nonnegative(value, "ridge") for value in (self.ridge if several else [self.ridge])])
        if not values.size:
            raise InputError("ridge is empty; pass a number, or numbers to choose from")
        return values

    def _choose_ridge(self, ridges: Array | str, blocks: KernelMatrix, merged: Merged) -> float:
        if isinstance(ridges, np.ndarray) and ridges.size == 1:
            return float(ridges[0])
        criterion = ridges if isinstance(ridges, str) else "loo"
        if isinstance(ridges, str):
            ridges = _GRID * float(np.average(blocks.diagonal(), weights=merged.weight))
        self.ridge_path_ = ridge_path(blocks, merged.targets, ridges, weights=merged.weight)
        errors = self.ridge_path_.leave_one_out if criterion == "loo" else self.ridge_path_.gcv
        return float(ridges[int(np.argmin(errors))])

    @property
    def residual_(self) -> float:
        """True relative residual of the solve."""
        return self.solution_.residual

    @property
    def condition_(self) -> float:
        """Estimated condition number of K + ridge·W⁻¹."""
        return self.solution_.condition

    @property
    def leave_one_out_error_(self) -> float:
        """Mean squared error at each training row of the machine fitted to all others.

        The residual at row i is c_i/(K + ridge·W⁻¹)⁻¹_ii, so nothing is fitted again. Identical rows count as one.
        """
        residual = leave_one_out(self.solution_)
        return float(np.average(np.mean(residual**2, axis=1), weights=self._weight))

    @property
    def gcv_(self) -> float:
        """Generalised cross-validation: as leave-one-out, with the mean of the inverse's diagonal."""
        return float(np.mean(generalized_cross_validation(self.solution_)))

    def _prepared(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.preparation_(self._samples(X, reset=False))

    def fitted_to(self, X: Any) -> NDArray[np.bool_]:
        """Whether each row of X is a training row; a score on training rows is too optimistic."""
        check_is_fitted(self)
        rows = self.preparation_(self._samples(X, reset=False).astype(self.X_fit_.dtype, copy=False))
        return among(rows, self.X_fit_)

    def _scores(self, X: Any) -> Array:
        """K(X, X_fit) c by tiles, shape (m, k)."""
        prepared = self._prepared(X)
        with compilation(self.progress):
            blocks = self._blocks(prepared, self.X_fit_)
        with placed(blocks, solver_of(self.solver).client) as K, np.errstate(over="ignore", invalid="ignore"):
            scores = K.product(self.dual_coef_, progress=self.progress)
        if not np.isfinite(scores).all():
            raise InputError(
                f"predictions overflow float64 (coefficients of the machine are up to "
                f"{np.abs(self.dual_coef_).max():.3g}); scale X, or the targets of the fit"
            )
        return scores

    def save(self, path: str | Path) -> Path:
        """Write the fitted machine to one ``.npz`` file; :func:`notsodeep.learn.load` reads it back.

        No pickle: arrays, a JSON header and a checksum over both. The factorisation is not kept.
        """
        check_is_fitted(self)
        return persistence.save(self, path)

    def _state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and numbers that prediction needs."""
        arrays, numbers = prepared_state(self)
        arrays |= {"X_fit": self.X_fit_, "dual_coef": self.dual_coef_}
        if self._weight is not None:
            arrays["weight"] = self._weight
        solution = persistence.plain_fields(self.solution_, without=("coefficients", "factor", "shift", "weight"))
        numbers |= {"ridge": self.ridge_, "solution": solution}
        if self.tuning_ is not None:
            numbers["tuning"] = vars(self.tuning_)
        return arrays, numbers

    def _restore(self, arrays: dict[str, Array], numbers: dict[str, Any]) -> None:
        """Restore what :meth:`_state` returned; anything that does not fit raises `ValueError`."""
        self.model_, self.tuning_ = self._model(), None
        if self.optimize is not None:
            found = persistence.from_plain_fields(Tuning, numbers["tuning"])
            for name in ("recurrent", "input", "bias", "ridge"):
                persistence.variance(getattr(found, name), name)
            if (found.criterion, found.ridge) != (self.optimize, numbers["ridge"]):
                raise ValueError("its tuning is not the one of its parameters")
            self._set_tuning(found)
        restore_preparation(self, arrays, numbers, self._channels or 1)
        self.X_fit_ = persistence.numbers_of(arrays, "X_fit", 2, (None, self.n_features_in_))
        self.dual_coef_ = persistence.numbers_of(arrays, "dual_coef", 2, (len(self.X_fit_), None))
        self._weight = persistence.numbers_of(arrays, "weight", 1, (len(self.X_fit_),)) if "weight" in arrays else None
        self.ridge_ = nonnegative(numbers["ridge"], "ridge")
        self.solution_ = persistence.from_plain_fields(
            Solution, numbers["solution"], coefficients=self.dual_coef_, factor=None
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "dual_coef_")


def prepared_state(estimator: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """The preparation of an estimator and the names of its columns, for a file."""
    arrays = {} if estimator.preparation_.mean is None else {"mean": estimator.preparation_.mean}
    if hasattr(estimator, "feature_names_in_"):
        arrays["feature_names"] = np.array([str(name) for name in estimator.feature_names_in_])
    return arrays, {"n_features_in": int(estimator.n_features_in_), "scale": estimator.preparation_.scale}


def restore_preparation(estimator: Any, arrays: dict[str, Array], numbers: dict[str, Any], channels: int) -> None:
    """Restore what :func:`prepared_state` returned."""
    estimator.n_features_in_ = features = count(numbers["n_features_in"], "n_features_in")
    if (names := arrays.get("feature_names")) is not None:
        if names.dtype.kind != "U" or names.shape != (features,):
            raise ValueError("its names of columns do not fit its numbers")
        estimator.feature_names_in_ = names.astype(object)
    centered = estimator.normalize == "center"
    mean = persistence.numbers_of(arrays, "mean", 1, (features,)) if centered else None
    scale = positive(numbers["scale"], "scale")
    estimator.preparation_ = Preparation(estimator.normalize, mean, scale, channels)


def evidence(machine: KernelMachine, merged: Merged, targets: Array, weight: Array | None) -> float:
    """Log N(y; 0, K + ridge·W⁻¹), summed over outputs; every copy of a row counts."""
    if machine.solution_.factor is None:
        return math.nan
    value = float(np.sum(log_marginal_likelihood(machine.solution_, merged.targets)))
    if len(merged.rows) < len(targets) and machine.ridge_ > 0:
        # N(y_i; f, d_i) over copies i is N(mean; f, d) times a constant, 1/d = Σ 1/d_i
        noise = machine.ridge_ / (np.ones(len(targets)) if weight is None else weight)
        together = machine.ridge_ / np.asarray(merged.weight)
        spread = float(np.sum((targets - merged.targets[merged.groups]) ** 2 / noise[:, None]))
        scale = np.log(2 * np.pi * noise).sum() - np.log(2 * np.pi * together).sum()
        value -= 0.5 * (spread + targets.shape[1] * float(scale))
    return value
