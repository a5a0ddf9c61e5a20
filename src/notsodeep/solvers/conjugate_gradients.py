"""Conjugate gradients for several right-hand sides at once, as a small object that can be stopped and resumed.

Block iteration after Ji and Li (2017), "A breakdown-free block conjugate gradient method": the search directions of
all columns are shared and kept orthonormal, and their number shrinks when columns become dependent. New
directions are made conjugate to the last ones explicitly, so the iteration tolerates a preconditioner that is rounded
or varies a little.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from notsodeep import files
from notsodeep.checks import InputError, NotConvergedError
from notsodeep.kernels.matrices import fingerprint
from notsodeep.reading import Npz
from notsodeep.threads import single_threaded_blas

__all__ = ["CHECKPOINT", "ConjugateGradients", "Operator", "largest_eigenvalue", "relative"]

Array: TypeAlias = NDArray[Any]
Operator: TypeAlias = Callable[[Array], Array]

CHECKPOINT = "cg.npz"  # file name of :meth:`ConjugateGradients.save` in a directory
_DEPENDENT = 1e-8  # a direction that adds less than this to the others is dropped


class ConjugateGradients:
    """Solve A X = B for a symmetric positive definite A, given as a function that multiplies by A.

    Parameters
    ----------
    operator : callable
        V ↦ A V, for V of shape (n, k).
    targets : array (n, k)
        B.
    preconditioner : callable, optional
        R ↦ M⁻¹ R; changes the number of iterations, not the answer.
    start : array (n, k), optional
        First X; zero when absent.

    Attributes
    ----------
    X, R : array (n, k)
        The iterate, and its residual B − A X updated by the recurrence.
    iteration : int
    residual : float
        Largest ‖R‖/‖B‖ over the columns.
    best : float
        The smallest residual so far.
    extremes : (float, float)
        Smallest and largest Rayleigh quotient so far: the spectrum of A reaches at least from one to the other.

    Examples
    --------
    >>> import numpy as np
    >>> A, B = np.diag([1.0, 2.0, 3.0]), np.ones((3, 1))
    >>> cg = ConjugateGradients(lambda V: A @ V, B)
    >>> while cg.residual > 1e-12:
    ...     cg.step()
    >>> cg.iteration, cg.X.ravel().round(6)
    (3, array([1.      , 0.5     , 0.333333]))
    """

    def __init__(
        self,
        operator: Operator,
        targets: Array,
        preconditioner: Operator | None = None,
        start: Array | None = None,
    ) -> None:
        self.operator = operator
        self._preconditioner = preconditioner or (lambda R: R)
        self._scale = np.linalg.norm(targets, axis=0)
        self.targets = targets
        self.iteration = 0
        self.extremes = (np.inf, 0.0)
        self.X = np.zeros(targets.shape) if start is None else start
        self.restart(targets.copy() if start is None else targets - operator(start))
        self.best = self.residual

    def restart(self, R: Array) -> None:
        """Restart from X with this residual instead of the recurrence's, and with new directions."""
        self.R = R
        self.residual = relative(R, self._scale)
        self._directions = _basis(self._preconditioner(R)) if self.residual > 0 else np.zeros((len(R), 0))

    def step(self) -> None:
        """One iteration, one product with A. State changes only at the end, so an interruption leaves it unchanged."""
        if self.residual == 0:
            return
        P = self._directions
        if not P.shape[1]:
            raise NotConvergedError(
                f"conjugate gradients ran out of directions at a relative residual of {self.residual:.1e}: the "
                "preconditioner is not positive definite; choose another"
            )
        Q = self.operator(P)
        C = P.T @ Q
        curvature = np.linalg.eigvalsh((C + C.T) / 2)
        if not curvature[0] > 0:
            more = -2 * curvature[0] + 1e-14 * (curvature[-1] or 1.0)
            raise InputError(
                f"the kernel matrix plus ridge is not positive definite: conjugate gradients met a direction of "
                f"curvature {curvature[0]:.1e}; raise ridge by {more:.1e} or more"
            )
        inverse = scipy.linalg.cho_factor((C + C.T) / 2)
        weights = scipy.linalg.cho_solve(inverse, P.T @ self.R)
        X, R = self.X + P @ weights, self.R - Q @ weights
        Z = self._preconditioner(R)
        directions = _basis(Z - P @ scipy.linalg.cho_solve(inverse, Q.T @ Z))
        self.X, self.R, self._directions = X, R, directions
        self.residual = relative(R, self._scale)
        self.best = min(self.best, self.residual)
        self.extremes = (min(self.extremes[0], curvature[0]), max(self.extremes[1], curvature[-1]))
        self.iteration += 1

    def state(self) -> dict[str, Array]:
        """Everything that :meth:`resume` needs."""
        numbers = np.array([self.iteration, self.best, *self.extremes])
        return {"X": self.X, "R": self.R, "directions": self._directions, "numbers": numbers}

    def resume(self, state: dict[str, Array]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        if not self._fits(state):
            raise InputError(f"the state is not one of {self.X.shape[0]} × {self.X.shape[1]} unknowns")
        self.X, self.R, self._directions = state["X"], state["R"], state["directions"]
        self.residual = relative(self.R, self._scale)
        self.iteration, self.best = int(state["numbers"][0]), float(state["numbers"][1])
        self.extremes = (float(state["numbers"][2]), float(state["numbers"][3]))

    def _fits(self, state: dict[str, Array]) -> bool:
        """Whether these arrays can be a state of this problem."""
        expected = {"X": self.X.shape, "R": self.X.shape, "numbers": (4,)}
        shapes = {name: array.shape for name, array in state.items()}
        directions = shapes.pop("directions", ())
        numbers = all(array.dtype == np.float64 and not np.isnan(array).any() for array in state.values())
        if not numbers or shapes != expected or len(directions) != 2 or directions[0] != len(self.X):
            return False
        finite = all(np.isfinite(state[name]).all() for name in ("X", "R", "directions"))
        return finite and directions[1] <= self.X.shape[1] and 0 <= state["numbers"][0] < 1e15

    def save(self, path: str | os.PathLike[str], identity: str) -> None:
        """Write the state to an .npz file, which appears complete or not at all."""
        with files.writing(path, parameter="checkpoint") as file:
            state: dict[str, Any] = self.state()
            np.savez(file, identity=np.array(identity), digest=np.array(_digest(identity, state)), **state)

    def load(self, path: str | os.PathLike[str], identity: str) -> None:
        """Resume from a file written by :meth:`save` for the same problem."""
        try:
            with Npz(path) as archive:
                if str(archive.get("identity")) != identity:
                    raise InputError(
                        f"checkpoint={str(path)!r} belongs to another problem; delete it or pass another path"
                    )
                digest = str(archive.get("digest"))
                content = {name: archive[name] for name in archive.names if name not in ("identity", "digest")}
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise InputError(f"checkpoint={str(path)!r} cannot be read ({error}); delete it to start anew") from None
        if not self._fits(content) or digest != _digest(identity, content):
            raise InputError(f"checkpoint={str(path)!r} was changed after it was written; delete it to start anew")
        self.resume(content)


def largest_eigenvalue(operator: Operator, n: int, *, steps: int = 4, width: int = 8, seed: int = 0) -> float:
    """Lower bound, close to it, of the largest eigenvalue of a symmetric positive operator, by `steps` block products.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.linspace(1, 2, 1000) ** 8
    >>> bool(200 < largest_eigenvalue(lambda V: values[:, None] * V, 1000) <= 256)
    True
    """
    rng = np.random.default_rng(seed)
    block = rng.standard_normal((n, min(width, n)))
    block[:, 0] = 1.0  # close to the dominant direction of most kernels
    basis, images = np.zeros((n, 0)), np.zeros((n, 0))
    for _ in range(steps):
        for _ in range(2):  # repeat for orthogonality to rounding
            block = block - basis @ (basis.T @ block)
            block = np.linalg.qr(block)[0]
        block = block[:, : n - basis.shape[1]]
        if not block.shape[1]:
            break
        image = operator(block)
        basis, images = np.hstack([basis, block]), np.hstack([images, image])
        block = image
    projected = basis.T @ images
    return float(np.linalg.eigvalsh((projected + projected.T) / 2)[-1])


def _digest(identity: str, state: dict[str, Array]) -> str:
    """SHA-256 over the problem and every array with its name, type and shape."""
    parts = ((name, fingerprint(array) if array.size else array.shape) for name, array in sorted(state.items()))
    lines = [identity, *(f"{name} {part}" for name, part in parts)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def relative(R: Array, scale: Array) -> float:
    """The largest ‖r‖/‖b‖ over the columns; a zero column of B is measured absolutely."""
    if not R.size:
        return 0.0
    return float((np.linalg.norm(R, axis=0) / np.where(scale > 0, scale, 1.0)).max())


def _basis(Z: Array) -> Array:
    """An orthonormal basis of the normalised columns; linearly dependent ones are dropped."""
    size = np.linalg.norm(Z, axis=0)
    Z = Z[:, size > 0] / size[size > 0]
    if not Z.shape[1]:
        return Z
    with single_threaded_blas():
        Q, R, _ = scipy.linalg.qr(Z, mode="economic", pivoting=True, check_finite=False)
    return np.ascontiguousarray(Q[:, np.abs(R.diagonal()) > _DEPENDENT])
