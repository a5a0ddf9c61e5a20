"""What a kernel call did, and bounds of its error."""

from __future__ import annotations

from dataclasses import dataclass, fields

from notsodeep.display import card

__all__ = ["ConvInfo", "KernelInfo"]


class _Card:
    """The fields as a table in a notebook."""

    def _repr_html_(self) -> str:
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]
        rows = [(name, f"{value:.3g}" if isinstance(value, float) else value) for name, value in values if value != ""]
        return card(type(self).__name__, rows)


@dataclass(frozen=True)
class KernelInfo(_Card):
    """Returned beside the kernel by ``return_info=True``.

    Attributes
    ----------
    method : str
        ``"polynomial"``, ``"piecewise polynomial"``, ``"newton in the angle"``, ``"hermite newton"``,
        ``"hermite series"`` or ``"layer by layer"``.
    variable : str
        The polynomial's argument; empty for the other methods.
    degree : int
        Of the polynomial, or the number of Hermite terms, or 0.
    residual : float
        Largest fixed-point residual, relative to √(q_i q_j), at the points where the equation was solved.
    error : float
        Bound of the error of every entry relative to √(K_ii K_jj), the rounding of the inner products included.
    recomputed : int
        Nearly equal or opposite pairs whose distance was formed from differences or sums of the rows.
    iterations : int
        Largest number of Newton steps, 0 where there are none.
    compile_seconds : float
        Spent compiling or loading the compiled pass (0 after the first call in a process).
    seconds : float
        Wall time of the whole call, compilation included.
    """

    method: str
    variable: str
    degree: int
    residual: float
    error: float
    recomputed: int
    iterations: int
    compile_seconds: float
    seconds: float


@dataclass(frozen=True)
class ConvInfo(_Card):
    """Returned beside a convolutional kernel by ``return_info=True``.

    Attributes
    ----------
    method : str
        ``"newton and chebyshev"`` or ``"layer by layer"``.
    pairs : int
        Pairs of images solved; with a pooled readout each offset counts.
    evaluations : float
        Newton steps per pair, that is evaluations of the dual activation.
    iterations : float
        Linear steps per pair, for Newton and for the tangent kernel together.
    residual : float
        Largest residual of a fixed point: root mean square in the angle arccos ρ, or mean relative to Σ for Θ.
    error : float
        Bound of the error of every entry relative to √(K_ii K_jj), from residuals, rounding and the gain
        1/(1 − σ_a² E[φ'²]) with which the fixed point passes them on.
    compile_seconds : float
        Spent compiling or loading the compiled pass (0 after the first call in a process).
    seconds : float
        Wall time, compilation included.
    """

    method: str
    pairs: int
    evaluations: float
    iterations: float
    residual: float
    error: float
    compile_seconds: float
    seconds: float
