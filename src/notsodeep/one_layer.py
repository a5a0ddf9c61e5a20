"""The one-hidden-layer network that has a given kernel on a sphere, exactly.

With k(t) = Σ b_k tᵏ, b_k ≥ 0, the activation

    σ(x) = Σ_k s_k √b_k h_k(x/τ0),    s_k = ±1,    h_k orthonormal Hermite polynomials,

of a single layer has the conjugate kernel k on rows of norm τ0, because E[h_j(u) h_k(v)] = δ_jk tᵏ. Its NTK, both
layers trained, is Σ (1 + k) b_k tᵏ, so b_k/(1 + k) in place of b_k gives the tangent kernel k
[Simon, Anand, DeWeese 2022].

Smooth activations make b_k fall faster than any power. Kinks leave a power law, b_k ~ k^{−1−s} with the exponent s of
the singularity (1 − t)^s, which begins late close to the limit of well-posedness. It is carried to all orders by |x|
and x log|x|, sharp and rounded off over several widths (:mod:`notsodeep.bends`), with factors fitted to k itself.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from notsodeep.activations import Activation, PiecewiseLinear
from notsodeep.bends import Bends, bend_coefficients, log_coefficients
from notsodeep.checks import InputError, count, matrix
from notsodeep.display import card
from notsodeep.gaussian import hermite_polynomials, moments
from notsodeep.hermite import RADIUS, HermiteSeries, hermite_sum
from notsodeep.kernels.dense import Network
from notsodeep.kernels.kinked import KinkedLayer
from notsodeep.kernels.power_series import PowerSeries
from notsodeep.kernels.sphere import SphereKernel, on_sphere
from notsodeep.kinds import Kind
from notsodeep.models import Explicit

if TYPE_CHECKING:
    from notsodeep.report.match import Report

__all__ = ["Design", "SphereMatch", "design", "match_on_sphere", "spectral_distance", "sphere_norm"]

Array: TypeAlias = NDArray[Any]

EXACT = 1e-10  # largest distance of a design that calls itself exact
_ENOUGH = 2e-12  # distance at which no more orders are tried
_LENGTHS = (512, 1024, 4096, 16384, 65536)
_STEEPER = 10.0  # how much steeper than necessary σ may be for a smaller fourth moment
_FREE = 8  # orders whose signs are chosen one by one
_ROUNDS = 3  # most corrections for the straight ends
_SOFT = 0.55  # spacing of log λ of the bends that are added for them


@dataclass(frozen=True)
class Design:
    """An activation whose single layer has the kernel, how far it is off, and what matters at finite width.

    Attributes
    ----------
    activation : Activation
    distance : float
        sup_t |k̂(t) − k(t)|/k(1), a bound up to rounding: see :class:`_Ruler`.
    fourth : float
        E[σ⁴]/E[σ²]² at the norm of the design: how much a finite layer fluctuates.
    """

    activation: Activation
    distance: float
    fourth: float

    @property
    def lipschitz(self) -> float:
        return self.activation.lipschitz


def design(kernel: SphereKernel, tangent: bool) -> Design:
    """Find σ whose single layer has this kernel as its CK, or as its NTK if `tangent`."""
    ruler = _Ruler(kernel)
    series = _series(ruler, tangent, _LENGTHS if kernel.singularity.smooth else _LENGTHS[:-1])
    found = [_signed(ruler, series, pattern, tangent) for pattern in _patterns(kernel, series.b.size)]
    return min(found, key=lambda one: (one.distance > EXACT, one.distance if one.distance > EXACT else one.fourth))


def _series(ruler: _Ruler, tangent: bool, lengths: tuple[int, ...]) -> PowerSeries:
    """c_k² of σ = Σ c_k h_k, with as many orders as are necessary."""
    kernel = ruler.kernel
    trials: list[tuple[float, PowerSeries]] = []
    for length in lengths:
        b = kernel.series(length)
        order = np.arange(length)
        squares = b / (1 + order) if tangent else b
        if kernel.singularity.smooth:
            # the noise of b_k grows by 100 up to the last order
            last = int(np.max(np.flatnonzero(b > 2e-16 * kernel(1.0) * 100.0 ** (order / length)), initial=0))
            ended, series = last < 0.75 * length, PowerSeries.finite(squares[: last + 1])
        else:
            ended, series = False, ruler.fitted(squares, tangent)
        trials.append((ruler.sampled(partial(series.values, tangent=tangent)), series))
        if ended or trials[-1][0] <= _ENOUGH:
            break
    return min(trials, key=lambda one: one[0])[1]


def _signed(ruler: _Ruler, series: PowerSeries, pattern: Array, tangent: bool) -> Design:
    """Choose signs, and let bends make up for what the straight ends of σ lose."""
    signs, fourth = _chosen(series, pattern)
    shape = _shape(series, signs)
    distance = _distance(ruler, shape, tangent)
    for _ in range(_ROUNDS if distance > EXACT and series.factors.any() else 0):
        mended = _mended(ruler, shape, tangent)
        nearer = _distance(ruler, mended, tangent)
        if nearer >= distance:
            break
        shape, distance = mended, nearer
    return Design(Activation(shape, stretch=1 / ruler.kernel.norm), distance, fourth)


def _distance(ruler: _Ruler, shape: HermiteSeries, tangent: bool) -> float:
    """sup |k̂ − k|/k(1) of the function itself."""
    series = PowerSeries.of(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a quadrature that stops early
        m = moments(Activation(shape), 1.0)
    # what the table and rounding change shows in the moments
    reached = m.power + (m.slope_power if tangent else 0.0)
    rounding = abs(reached - float(series.values(np.zeros(1), 1.0, tangent)[0]))
    # 2 √E[σ²] √E[δ²] for an error δ of one rounding of every bend
    rounding += 4.4e-16 * math.sqrt(series.b.sum()) * float(np.abs(series.factors).sum())
    return rounding / ruler.kernel(1.0) + ruler(partial(series.values, tangent=tangent))


def _mended(ruler: _Ruler, shape: HermiteSeries, tangent: bool) -> HermiteSeries:
    """Add soft bends, which lose nothing at the ends, so that k̂ comes closer to k: one step of Gauss–Newton.

    σ may have kinks beyond its straight ends, which have taken c_k d_k ~ k^{−5/2} from b_k: a smooth law, up to
    oscillations in √k that average out.
    """
    more = np.exp(-_SOFT * np.arange(1.0, 40.0))
    gap, missing = ruler.missing(PowerSeries.of(shape), tangent)
    changes = PowerSeries.changes(shape, more, gap, tangent)
    added = np.zeros((2, more.size))
    for parity, (change, unit) in enumerate(zip(changes, (1.0, 2 / math.pi), strict=True)):
        goal = (missing[0] + (-1) ** parity * missing[1]) / 2
        if np.abs(goal).max() > _ENOUGH * ruler.kernel(1.0):
            added[parity] = unit * np.linalg.lstsq(change, goal, rcond=1e-10)[0]
    total = {decay: np.zeros(2) for decay in (*shape.decays, *more.tolist())}
    old = zip(shape.decays, shape.bends, shape.logs, strict=True)
    new = zip(more.tolist(), *added.tolist(), strict=True)
    for decay, bend, log in (*old, *new):
        total[decay] += bend, log
    bends, logs = np.array(list(total.values())).T.tolist()
    return HermiteSeries(shape.coefficients, tuple(bends), tuple(logs), tuple(total))


@dataclass(frozen=True, eq=False)
class SphereMatch:
    """One hidden layer with the kernel of the model on a sphere.

    Attributes
    ----------
    network : Explicit
        Of one layer. It normalises its rows when the kernel of the model is homogeneous in their norms, and is then
        exact for rows of any norms.
    family : str
        ``"hermite"`` or ``"piecewise_linear"``.
    kind : str
        The kernel of the model that was matched.
    tau0 : float
        The norm of the rows.
    distance : float
        sup_t |k̂(t) − k(t)|/k(1) over all cosines: the largest on a fine grid, with a bound for what may happen between
        its points.
    fourth : float
        E[σ⁴]/E[σ²]²: how much a finite layer fluctuates.
    reference : DEQ or Explicit
        The model whose kernel is approximated: as it was given.
    why : str
        How it was chosen, with ``on="auto"``.
    """

    network: Explicit
    family: str
    kind: str
    tau0: float
    distance: float
    fourth: float
    reference: Network
    why: str = ""

    @property
    def model(self) -> Network:
        """What was matched."""
        return self.reference

    @property
    def depth(self) -> int:
        return self.network.depth

    @property
    def lipschitz(self) -> float:
        """sup |σ'|."""
        return self.network.activations[0].lipschitz

    @property
    def exact(self) -> bool:
        """Whether the distance is at most 1e-10."""
        return self.distance <= EXACT

    def distance_on(self, X: ArrayLike) -> float:
        """‖K̂ − K‖/‖K‖ in the spectral norm on the rows X (n, p)."""
        return spectral_distance(self.network, self.reference, self.kind, X)

    def report(self, directory: str | Path, X: Any = None, y: Any = None, **options: Any) -> Report:
        """Write the report of ``notsodeep match --on sphere --report``: a page, its picture, the numbers, the network.

        Parameters
        ----------
        directory : str or Path
            An earlier report there is replaced; a directory with any other file is refused.
        X : array (n, p), Data or str, optional
            Samples on which both kernels are compared: an array, or a data set or file as in
            :func:`notsodeep.data.load`.
        y : array (n,), optional
            Labels of an array.
        options
            `limit` (2000): use at most so many samples; `normalize`: rows are scaled to ‖x‖ = τ₀ ("unit", the default),
            centred and scaled to mean ‖x‖² = τ₀² ("center") or used as they are ("none"); `source`: how the code on the
            page loads the data.

        Returns
        -------
        Report
            Its ``page`` is the path of ``index.html``, its ``content`` that of ``match.json``.
        """
        from notsodeep.report.sphere import write_sphere_report

        return write_sphere_report(self, directory, X, y, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "on": "sphere",
            "model": self.reference.to_dict(),
            "network": self.network.to_dict(),
            "kind": self.kind,
            "tau0": self.tau0,
            "family": self.family,
            "depth": self.depth,
            "distance": self.distance,
            "exact": self.exact,
            "fourth": self.fourth,
            "lipschitz": self.lipschitz,
            "why": self.why,
        }

    def __str__(self) -> str:
        verdict = "exact on the sphere" if self.exact else "close on the sphere"
        rows = "rows of any norms" if self.network.normalize is not None else f"rows of norm {self.tau0:.6g}"
        lines = [
            f"{self.kind} of {self.reference}, {rows}",
            f"≈ {self.network}",
            f"{verdict}: sup |k̂ − k|/k(1) ≤ {self.distance:.1e}; E[σ⁴]/E[σ²]² = {self.fourth:.3g}, "
            f"sup |σ'| = {self.lipschitz:.3g}",
        ]
        return "\n".join([*lines, self.why] if self.why else lines)

    def _repr_html_(self) -> str:
        rows = [
            ("σ(x)", self.network.activations[0]),
            ("sup |k̂ − k|/k(1)", f"≤ {self.distance:.1e}"),
            ("E[σ⁴]/E[σ²]²", f"{self.fourth:.3g}"),
            ("sup |σ'|", f"{self.lipschitz:.3g}"),
        ]
        norms = "any norms" if self.network.normalize is not None else f"norm {self.tau0:.6g}"
        verdict = (self.exact, "exact on the sphere" if self.exact else "close on the sphere")
        notes = [f"{self.kind} of {self.reference}, rows of {norms}", *filter(None, [self.why])]
        return card("SphereMatch, one hidden layer", rows, verdict=verdict, notes=notes)


def match_on_sphere(model: Network, tau0: float, kind: str, kinks: int | None = None) -> SphereMatch:
    """Find the one-layer network whose CK (for ck, nngp) or NTK is this kernel of the model on rows of norm τ0."""
    kernel = on_sphere(model, kind, tau0)
    tangent = Kind.of(kind).is_tangent
    found = design(kernel, tangent) if kinks is None else bent(kernel, tangent, count(kinks, "kinks"))
    network = Explicit([found.activation], normalize=tau0 if radial(model) else None)
    family = "hermite" if kinks is None else "piecewise_linear"
    return SphereMatch(network, family, kind, tau0, found.distance, found.fourth, model)


def radial(model: Network) -> bool:
    """Whether K(cx, y) = c K(x, y) for c > 0."""
    if isinstance(model, Explicit) and model.normalize is not None:
        return True
    return not model.needs_one_norm and model.recursion().homogeneous


def sphere_norm(X: ArrayLike, model: Network) -> float:
    """The norm of the rows; refused if they differ and the kernel depends on it."""
    norms = np.linalg.norm(matrix(X, "X"), axis=1)
    low, high = float(norms.min()), float(norms.max())
    if high == 0:
        raise InputError("X has only rows of zeros; a sphere needs a radius")
    if high - low > 1e-6 * high and not radial(model):
        raise InputError(
            f"X has rows of norms {low:.6g} to {high:.6g}, which do not lie on one sphere; normalise them, or use "
            "on='mixture'"
        )
    return math.sqrt(float(np.mean(norms**2)))


def spectral_distance(network: Explicit, reference: Network, kind: str, X: ArrayLike) -> float:
    """‖K̂ − K‖/‖K‖ with K̂ the network's CK (for ck, nngp) or NTK."""
    goal = reference.kernel(X, kind=kind, dtype="float64")
    found = network.kernel(X, kind=Kind.of(kind).explicit, dtype="float64")
    return float(np.abs(np.linalg.eigvalsh(found - goal)).max() / np.abs(np.linalg.eigvalsh(goal)).max())


# --- few kinks ----------------------------------------------------------------------------------------------------


def bent(kernel: SphereKernel, tangent: bool, kinks: int) -> Design:
    """Fit a piecewise-linear σ with at most this many kinks to k, in the largest deviation over t."""
    ruler, top = _Ruler(kernel), kernel(1.0)
    rough = _series(ruler, tangent, _LENGTHS[:1])
    smooth = Activation(_shape(rough, _chosen(rough, _patterns(kernel, rough.b.size)[0])[0]))
    half = math.pi / 2 * np.sin(np.linspace(0, math.pi / 2, 33)) ** 2  # dense where kernels bend
    layer = KinkedLayer(np.concatenate([half, math.pi - half[-2::-1]]))
    goal = kernel.near(2 * np.sin(layer.angles / 2) ** 2, 2 * np.cos(layer.angles / 2) ** 2)

    def unpacked(theta: Array) -> tuple[Array, Array]:
        """Places of the kinks in order, and slopes."""
        kinks = theta.size // 2 - 1
        order = np.argsort(theta[:kinks])
        places = np.maximum.accumulate(theta[:kinks][order] + 1e-6 * np.arange(kinks))
        steps = np.diff(theta[kinks : 2 * kinks + 1])[order]
        return places, theta[kinks] + np.concatenate([[0.0], np.cumsum(steps)])

    def deviation(theta: Array) -> Array:
        return (layer(*unpacked(theta), float(theta[-1]), tangent) - goal) / top

    best, smallest = None, math.inf
    for many, spread in itertools.product(range(max(kinks - 1, 1), kinks + 1), (0.5, 0.8, 1.1, 1.5)):
        places = spread * (np.arange(many) - (many - 1) / 2) * 2 / max(many, 2)
        edges = np.concatenate([[places[0] - 1.5], places, [places[-1] + 1.5]])
        start = np.concatenate([places, np.diff(smooth(edges)) / np.diff(edges), [float(smooth(0.0))]])
        theta = least_squares(deviation, start, max_nfev=60).x
        for power in (2, 4, 8, 16):  # towards the largest deviation
            scale = float(np.abs(deviation(theta)).max()) + 1e-300

            def sharpened(x: Array, power: int = power, scale: float = scale) -> Array:
                ratio = deviation(x) / scale
                return np.sign(ratio) * np.abs(ratio) ** power

            theta = least_squares(sharpened, theta, max_nfev=30).x
        size = float(np.abs(deviation(theta)).max())
        if size < smallest:
            best, smallest = theta, size
    assert best is not None
    shape = PiecewiseLinear(*(tuple(each.tolist()) for each in unpacked(best)))
    sigma = Activation(shape, stretch=1 / kernel.norm, shift=-float(best[-1]))
    xi, weights = np.polynomial.hermite_e.hermegauss(120)
    values = sigma(kernel.norm * xi)
    fourth = float(weights @ values**4 * weights.sum() / (weights @ values**2) ** 2)
    found = SphereKernel(Explicit([sigma]), "ntk" if tangent else "ck", kernel.norm)
    return Design(sigma, ruler(partial(_engine, found)), fourth)


def _engine(kernel: SphereKernel, gap: Array, sign: float) -> Array:
    return kernel.near(gap, 2 - gap) if sign > 0 else kernel.near(2 - gap, gap)


# --- how far ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ruler:
    """sup |k̂ − k|/k(1) over −1 ≤ t ≤ 1, from the values of k at nodes that are computed once.

    Both are power series with non-negative coefficients, so they are at most k(1) in size on the unit disc. Divide
    [0, 1] into [1 − 2⁻ʲ, 1 − 2⁻ʲ⁻¹], j = 0, 1, … Around each of them the disc that touches 1 has room for the
    ellipse with semi-axes of 3 half-lengths, and there the interpolation in N Chebyshev nodes is off by at most
    4·2k(1)·ρ^{−N}/(ρ − 1) with ρ = 3 + √8: 1e-15 for N = 20. A polynomial of degree N − 1 is at most 1/cos(π/32) times
    its largest value at 16N nodes. Beyond the last interval both increase by no more than k(1) − k(1 − 2⁻ᴶ), on the
    negative side as well.
    """

    kernel: SphereKernel
    nodes: int = 20

    @cached_property
    def _gaps(self) -> Array:
        """1 − |t| at the nodes of all intervals, then at the last edge and at the end."""
        nodes = np.cos(np.pi * (np.arange(self.nodes) + 0.5) / self.nodes)
        halves = 0.5 ** np.arange(self._intervals)
        return np.append(np.multiply.outer(halves, 0.75 + nodes / 4), [0.5**self._intervals, 0.0])

    @property
    def _intervals(self) -> int:
        """So many that the rest is below 1e-15: k falls from 1 like √(1 − t) if a tangent kernel has a kink."""
        return 100 if self.kernel.singularity.plus < 1 else 52

    @cached_property
    def _values(self) -> tuple[Array, Array]:
        gap = self._gaps
        return self.kernel.near(gap, 2 - gap), self.kernel.near(2 - gap, gap)

    @cached_property
    def _refined(self) -> Array:
        """Values at N Chebyshev nodes → at 16N."""
        coarse, fine = (np.cos(np.pi * (np.arange(n) + 0.5) / n) for n in (self.nodes, 16 * self.nodes))
        vandermonde = np.polynomial.chebyshev.chebvander
        return np.asarray(vandermonde(fine, self.nodes - 1) @ np.linalg.inv(vandermonde(coarse, self.nodes - 1)))

    def fitted(self, squares: Array, tangent: bool) -> PowerSeries:
        """A series with these coefficients and a tail fitted at every third node."""
        return PowerSeries.fitted(squares, self._gaps[self._some], np.stack(self._values)[:, self._some], tangent)

    def missing(self, found: PowerSeries, tangent: bool) -> tuple[Array, Array]:
        """Every third gap 1 − |t|, and k − k̂ (2, gaps) there for t > 0 and for t < 0."""
        gap = self._gaps[self._some]
        values = [found.values(gap, sign, tangent) for sign in (1.0, -1.0)]
        return gap, np.stack(self._values)[:, self._some] - np.stack(values)

    @property
    def _some(self) -> Array:
        return np.unique(np.append(np.arange(0, self._gaps.size, 3), [self._gaps.size - 2, self._gaps.size - 1]))

    def sampled(self, found: Callable[[Array, float], Array]) -> float:
        """The largest at some nodes: enough for a choice."""
        some = slice(None, None, 7)
        both = zip((1.0, -1.0), self._values, strict=True)
        largest = max(float(np.abs(found(self._gaps[some], sign) - goal[some]).max()) for sign, goal in both)
        return largest / self.kernel(1.0)

    def __call__(self, found: Callable[[Array, float], Array]) -> float:
        """For k̂(sign·(1 − gap)) = found(gap, sign)."""
        top, worst, size = self.kernel(1.0), 0.0, 0.0
        for sign, goal in zip((1.0, -1.0), self._values, strict=True):
            values = found(self._gaps, sign)
            deviation = values - goal
            inner = deviation[:-2].reshape(self._intervals, self.nodes)
            worst = max(worst, float(np.abs(inner @ self._refined.T).max()) / math.cos(math.pi / 32))
            if sign > 0:  # Σ b_k (1 − |t|ᵏ) of both: what remains beyond the last edge
                rest = abs(float(goal[-1] - goal[-2])) + abs(float(values[-1] - values[-2]))
                size = float(abs(goal[-1]) + abs(values[-1]))
            worst = max(worst, abs(float(deviation[-2])), abs(float(deviation[-1]))) + rest
        rho = 3 + math.sqrt(8)
        return (worst + 4 * size * rho**-self.nodes / (rho - 1)) / top


# --- the activation -----------------------------------------------------------------------------------------------


def _laws(series: PowerSeries, count: int) -> tuple[Array, Array]:
    """What the bends add to the orders k < count: even ones, odd ones."""
    fading = np.exp(-np.multiply.outer(np.arange(count), series.decays))
    bends, logs = _factors(series)
    return bend_coefficients(count) * (fading @ bends), log_coefficients(count) * (fading @ logs)


def _factors(series: PowerSeries) -> tuple[Array, Array]:
    """Of |x| and of x log|x|, whose coefficients are π/2 times as large."""
    return series.factors[0], series.factors[1] * (2 / math.pi)


class _Signs(NamedTuple):
    orders: Array  # of √b_k
    even: float  # of the bends
    odd: float


def _shape(series: PowerSeries, signs: _Signs) -> HermiteSeries:
    """σ with these signs."""
    even, odd = _laws(series, series.b.size)
    bends, logs = _factors(series)
    coefficients = signs.orders * np.sqrt(series.b) - signs.even * even - signs.odd * odd
    numbers = (coefficients, signs.even * bends, signs.odd * logs, series.decays)
    return HermiteSeries(*(tuple(each.tolist()) for each in numbers))


def _chosen(series: PowerSeries, pattern: Array) -> tuple[_Signs, float]:
    """Signs of the least fourth moment, and of the least slope among those within two per cent of it."""
    order = np.arange(series.b.size)
    signed = pattern * np.sqrt(series.b)
    blocks = [
        np.where((order % 2 == parity) & (order >= _FREE), signed, 0.0) - law
        for parity, law in enumerate(_laws(series, order.size))
    ]
    x = np.linspace(-RADIUS, RADIUS, 1201)
    mass = np.exp(-(x**2) / 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    bends, logs = (tuple(factors.tolist()) for factors in _factors(series))
    none, decays = (0.0,) * len(bends), tuple(series.decays.tolist())
    even, odd = Bends(bends, none, decays, RADIUS), Bends(none, logs, decays, RADIUS)
    parts = [hermite_sum(blocks[0], x) + even(x) + even.origin, hermite_sum(blocks[1], x) + odd(x)]
    free = [k for k in range(min(_FREE, signed.size)) if signed[k]]
    for k in free:
        unit = np.zeros(k + 1)
        unit[k] = signed[k]
        parts.append(hermite_sum(unit, x))
    columns = np.stack(parts)
    present = [np.abs(column).max() > 0 for column in columns]
    choices = np.array(
        list(itertools.product(*[(1.0, -1.0) if here and row else (1.0,) for row, here in enumerate(present)]))
    )  # the first block keeps its sign: −σ is as good as σ
    values = choices @ columns
    fourth = values**4 @ mass
    steepness = np.abs(np.diff(values, axis=1))[:, np.abs(x[1:]) > 0.05].max(1)
    # low orders with the wrong sign grow like powers of x, where a Gaussian hardly comes: not at any price
    fourth = np.where(steepness <= _STEEPER * steepness.min(), fourth, np.inf)
    close = np.flatnonzero(fourth <= 1.02 * fourth.min())
    best = choices[close[np.argmin(steepness[close])]]
    power = float(values[close[0]] ** 2 @ mass)
    if free and 1 in free:  # σ rises at 0
        best = best * np.sign(pattern[1] * best[2 + free.index(1)])
    orders = pattern * np.where(order % 2, best[1], best[0])
    orders[free] = pattern[free] * best[2:]
    return _Signs(orders, float(best[0]), float(best[1])), float(fourth.min()) / power**2


def _patterns(kernel: SphereKernel, count: int) -> list[Array]:
    """Signs to start from: those of |x| for even and x log|x| for odd orders, and those of the model's last activation.

    The former make a function with one bend at 0 if b_k is smooth in k. Kinks away from 0 make b_k oscillate in √k, as
    the Hermite coefficients of the activation do.
    """
    patterns = [np.sign(bend_coefficients(count) + log_coefficients(count))]
    phi, variance = kernel.last
    if isinstance(phi.shape, PiecewiseLinear) and not phi.shape.homogeneous:
        places = np.asarray(phi.kinks) / math.sqrt(variance)
        bends = np.diff(phi.shape.slopes) * np.exp(-(places**2) / 4)
        # E[(ξ − p)₊ h_k] = h_{k−2}(p) e^{−p²/2}/√(2π k(k−1)), and the first two from the moments
        own = bends @ hermite_polynomials(places, max(count - 3, 0), np.exp(-(places**2) / 4)).T
        m = moments(phi, math.sqrt(variance))
        signs = np.sign(np.concatenate([[m.mean, m.slope], own]))[:count]
        patterns.append(np.where(signs == 0, patterns[0], signs))
    return patterns
