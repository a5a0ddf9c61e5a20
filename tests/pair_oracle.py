"""Kernels of one pair of rows in extended precision, from nothing but the definitions.

Every Gaussian expectation is a two-dimensional integral over graded panels in 64-bit-mantissa floats
(``numpy.longdouble``); inner products of rows are formed in 80 digits. To keep 1 − ρ of rows that nearly coincide,
what is integrated is the squared difference of the two features, not their product: with r = √(G_ii G_jj)

    near = r − G = r/2 · E(φ(u)/√G_ii − φ(v)/√G_jj)²,    far = r + G = r/2 · E(φ(u)/√G_ii + φ(v)/√G_jj)².

No closed form of a dual and no code of the library is used.

An integral takes seconds, so answers are kept in ``.pytest_cache/oracle``, by this file's content and the arguments:
the same draws under another processor's rounding cost little.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, wraps
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

Long = np.longdouble
EXTENDED = np.finfo(Long).eps < 2e-19  # 80-bit floats; elsewhere the oracle is no better than the library
_REACH = 10.5  # Gaussian tails beyond are below 1e-24
_ORDER = 20


_KEPT = Path(__file__).resolve().parents[1] / ".pytest_cache" / "oracle"
_SOURCE = hashlib.sha256(Path(__file__).read_bytes()).digest()


def _kept(oracle: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Keep the answers of an oracle in files; rows are arrays, other arguments say all in their repr."""

    @wraps(oracle)
    def found(*arguments: Any) -> dict[str, Any]:
        words = [a.tobytes() if isinstance(a, np.ndarray) else repr(a).encode() for a in arguments]
        key = hashlib.sha256(b"|".join([_SOURCE, oracle.__name__.encode(), *words])).hexdigest()
        path = _KEPT / f"{key}.npz"
        if path.exists():
            with np.load(path) as stored:
                return {kind: stored[kind][()] for kind in stored.files}
        answer = oracle(*arguments)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(partial, **answer)
        partial.replace(path)
        return answer

    return found


def _long(value: Any) -> Any:
    return Long(mp.nstr(value, 25)) if abs(value) > mp.mpf(10) ** -4000 else Long(0)


def _exact(value: Any) -> Any:
    high = float(value)
    return mp.mpf(high) + mp.mpf(float(value - Long(high)))


@cache
def _legendre() -> tuple[Any, Any]:
    """Gauss–Legendre nodes and weights on [−1, 1] with all digits of a long double."""
    with mp.workdps(40):
        nodes, weights = [], []
        for guess in np.polynomial.legendre.leggauss(_ORDER)[0]:
            x = mp.findroot(lambda t: mp.legendre(_ORDER, t), mp.mpf(float(guess)))
            slope = _ORDER * (mp.legendre(_ORDER - 1, x) - x * mp.legendre(_ORDER, x)) / (1 - x * x)
            nodes.append(_long(x))
            weights.append(_long(2 / ((1 - x * x) * slope**2)))
        return np.array(nodes), np.array(weights)


@cache
def _erf_table() -> Any:
    """Taylor coefficients of erf around 0, which keeps the digits of small x, then around 3/8, 5/8, … up to 8."""
    with mp.workdps(40):
        rows = [mp.taylor(mp.erf, mp.mpf(2 * k + 1) / 8 if k else 0, 22) for k in range(32)]
        return np.array([[_long(c) for c in row] for row in rows])


def _erf(x: Any) -> Any:
    size = np.abs(x)
    panel = np.minimum((4 * size).astype(int), 31)
    t = np.minimum(size, Long(8)) - np.where(panel > 0, (panel + Long(0.5)) / 4, 0)
    total = np.zeros_like(x)
    for column in _erf_table().T[::-1]:
        total = total * t + column[panel]
    return np.sign(x) * np.where(size >= 7, Long(1), total)


def _logistic(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


_ROOT2 = np.sqrt(Long(2))
_PI = _long(mp.pi)


def _cdf(x: Any) -> Any:
    return (1 + _erf(x / _ROOT2)) / 2


def _pdf(x: Any) -> Any:
    return np.exp(-x * x / 2) / np.sqrt(2 * _PI)


def _cubic(*numbers: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Σ c_k h_k of order 3 plus bend |x|, and its derivative; numbers: c_0 … c_3 and the bend."""
    c0, c1, c2, c3, bend = (*map(Long, numbers), Long(0))[:5]
    c2, c3 = c2 / _ROOT2, c3 / np.sqrt(Long(6))
    return (
        lambda x: c0 + c1 * x + c2 * (x * x - 1) + c3 * (x * x - 3) * x + bend * np.abs(x),
        lambda x: c1 + 2 * c2 * x + 3 * c3 * (x * x - 1) + bend * np.sign(x),
    )


def _straightened(value: Callable[[Any], Any], slope: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], ...]:
    """The same continued by straight lines beyond ±7.5."""

    def straight(x: Any) -> Any:
        near = np.clip(x, Long(-7.5), Long(7.5))
        return value(near) + (x - near) * slope(near)

    return straight, lambda x: slope(np.clip(x, Long(-7.5), Long(7.5)))


# name → φ₀, φ₀', points where φ₀' jumps
SHAPES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[float, ...]]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, Long(1), Long(0)), (0.0,)),
    "leaky": (lambda x: np.where(x > 0, x, x / 4), lambda x: np.where(x > 0, Long(1), Long(0.25)), (0.0,)),
    "abs": (np.abs, np.sign, (0.0,)),
    "identity": (lambda x: x, np.ones_like, ()),
    "hard_tanh": (lambda x: np.clip(x, -1, 1), lambda x: np.where(np.abs(x) < 1, Long(1), Long(0)), (-1.0, 1.0)),
    "pieces": (
        lambda x: x / 2 + np.maximum(x - Long(0.5), 0) / 4 - np.minimum(x + 1, 0) / 4,
        lambda x: Long(0.5) + np.where(x > 0.5, Long(0.25), 0) - np.where(x < -1, Long(0.25), 0),
        (-1.0, 0.5),
    ),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(np.minimum(np.abs(x), Long(5000))) ** 2, ()),
    "erf": (_erf, lambda x: 2 / np.sqrt(_PI) * np.exp(-x * x), ()),
    "sin": (np.sin, np.cos, ()),
    "cos": (np.cos, lambda x: -np.sin(x), ()),
    "arctan": (np.arctan, lambda x: 1 / (1 + x * x), ()),
    "gaussian": (lambda x: np.exp(-x * x / 2), lambda x: -x * np.exp(-x * x / 2), ()),
    "sigmoid": (_logistic, lambda x: _logistic(x) * _logistic(-x), ()),
    "softplus": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), _logistic, ()),
    "swish": (lambda x: x * _logistic(x), lambda x: _logistic(x) * (1 + x * _logistic(-x)), ()),
    "gelu": (lambda x: x * _cdf(x), lambda x: _cdf(x) + x * _pdf(x), ()),
    "hermite": (*_straightened(*_cubic(0.1, 1.0, 0.3, 0.2)), (-7.5, 7.5)),
    "bent": (*_straightened(*_cubic(0.1, 0.5, 0.05, 0.0, 0.1)), (-7.5, 0.0, 7.5)),
    "callable": (lambda x: x / np.sqrt(1 + x * x), lambda x: (1 + x * x) ** Long(-1.5), ()),
}


@dataclass(frozen=True)
class Form:
    """φ(x) = scale·φ₀(stretch·x) − shift."""

    name: str
    scale: float = 1.0
    stretch: float = 1.0
    shift: float = 0.0

    def __call__(self, x: Any) -> Any:
        return Long(self.scale) * SHAPES[self.name][0](Long(self.stretch) * x) - Long(self.shift)

    def derivative(self, x: Any) -> Any:
        return Long(self.scale) * Long(self.stretch) * SHAPES[self.name][1](Long(self.stretch) * x)

    @property
    def kinks(self) -> tuple[Any, ...]:
        return tuple(Long(kink) / Long(self.stretch) for kink in SHAPES[self.name][2])

    @property
    def features(self) -> tuple[Any, ...]:
        """Points around which φ is not a straight line."""
        return self.kinks or (Long(0),)


@dataclass(frozen=True)
class Dual:
    """G, Ġ, √(G_ii G_jj) − G, √(G_ii G_jj) + G."""

    power: Any
    slope: Any
    near: Any
    far: Any


def _graded(centers: Any, finest: float) -> Any:
    """Panel edges that halve towards each centre down to `finest`."""
    steps = 2.0 ** -np.arange(0, max(2, math.ceil(-math.log2(max(finest, 1e-22))) + 1), dtype=Long)
    parts = [np.linspace(Long(-_REACH), Long(_REACH), 16)]
    parts += [np.concatenate([c - steps, [c], c + steps]) for c in centers if abs(c) < _REACH + 1]
    edges = np.concatenate(parts)
    return np.unique(np.clip(edges, Long(-_REACH), Long(_REACH)))


def _nodes(edges: Any) -> tuple[Any, Any]:
    """Nodes and Gaussian weights on panels along the last axis of `edges`."""
    x, w = _legendre()
    half = np.diff(edges) / 2
    middle = (edges[..., 1:] + edges[..., :-1]) / 2
    nodes = middle[..., None] + half[..., None] * x
    return nodes, half[..., None] * w * np.exp(-nodes * nodes / 2) / np.sqrt(2 * _PI)


@lru_cache(maxsize=4096)
def powers(phi: Form, q: Any) -> tuple[Any, Any]:
    """E[φ²] and E[φ'²] at variance q."""
    if q == 0:
        ends = phi.derivative(np.array([-1e-4000, 1e-4000], dtype=Long))
        return phi(np.zeros(1, Long))[0] ** 2, (ends**2).mean()
    if phi.name in ("sin", "cos"):
        found = _waves(phi, q, q, Long(0), Long(2))
        return found.power, found.slope
    tau = np.sqrt(q)
    xi, w = _nodes(_graded([f / tau for f in phi.features], float(min(1.0, 0.25 / (tau * phi.stretch)))))
    return (w * phi(tau * xi) ** 2).sum(), (w * phi.derivative(tau * xi) ** 2).sum()


def _waves(phi: Form, qi: Any, qj: Any, eta: Any, zeta: Any) -> Dual:
    """The duals of sin and cos in eighty digits: too many oscillations for panels."""
    with mp.workdps(80):
        a, b, c = mp.mpf(phi.scale), mp.mpf(phi.stretch) ** 2, mp.mpf(phi.shift)
        p, r = (b * _exact(q) for q in (qi, qj))
        rho = 1 - _exact(eta) if eta <= 1 else _exact(zeta) - 1
        sign = -1 if phi.name == "sin" else 1

        def pair(x: Any, y: Any, correlation: Any) -> Any:
            product, middle = correlation * mp.sqrt(x * y), (x + y) / 2
            mean = 0 if sign < 0 else mp.exp(-x / 2) + mp.exp(-y / 2)
            waves = a * a * (mp.exp(product - middle) + sign * mp.exp(-product - middle)) / 2
            return waves - a * c * mean + c * c

        G, root = pair(p, r, rho), mp.sqrt(pair(p, p, 1) * pair(r, r, 1))
        product, middle = rho * mp.sqrt(p * r), (p + r) / 2
        slope = a * a * b * (mp.exp(product - middle) - sign * mp.exp(-product - middle)) / 2
        return Dual(*(_long(t) for t in (G, slope, root - G, root + G)))


def dual(phi: Form, qi: Any, qj: Any, eta: Any, zeta: Any) -> Dual:
    """E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for variances q_i, q_j > 0, 1 − ρ = eta and 1 + ρ = zeta."""
    if phi.name in ("sin", "cos"):
        return _waves(phi, qi, qj, eta, zeta)
    (vi, _), (vj, _) = powers(phi, qi), powers(phi, qj)
    ti, tj = np.sqrt(qi), np.sqrt(qj)
    rho = 1 - eta if eta <= 1 else zeta - 1
    r = np.sqrt(eta * zeta)
    finest = 0.25 / float(max(ti, tj) * phi.stretch)
    centers = [f / ti for f in phi.features]
    if abs(rho) > 1e-3:
        centers += [f / (tj * rho) for f in phi.features]
        if phi.kinks:
            finest = min(finest, float(r) / 2) if r > 0 else finest
    xi, w = _nodes(_graded(centers, min(1.0, finest)))
    xi, w = xi.ravel(), w.ravel()
    keep = w > 0
    xi, w = xi[keep], w[keep]
    root, sums = np.sqrt(vi) * np.sqrt(vj), np.zeros(4, Long)
    spread = tj * r
    for part in np.array_split(np.arange(xi.size), max(1, xi.size // 400)):
        u, mean = ti * xi[part], tj * rho * xi[part]
        if spread > 0:
            edges = [np.broadcast_to(np.linspace(Long(-_REACH), Long(_REACH), 15), (part.size, 15))]
            depth = max(0, math.ceil(math.log2(max(float(spread * phi.stretch), 1e-300))) + 2)
            steps = 2.0 ** -np.arange(0, depth, dtype=Long) if depth else np.zeros(0, Long)
            for feature in phi.features:
                place = (feature - mean) / spread
                edges += [place[:, None], place[:, None] + steps, place[:, None] - steps]
            zeta_, weight = _nodes(np.sort(np.clip(np.concatenate(edges, 1), Long(-_REACH), Long(_REACH)), axis=1))
            zeta_, weight = zeta_.reshape(part.size, -1), weight.reshape(part.size, -1)
            v = mean[:, None] + spread * zeta_
        else:
            v, weight = mean[:, None], np.ones((part.size, 1), Long)
        left, right = phi(u)[:, None], phi(v)
        first, second = left / np.sqrt(vi), right / np.sqrt(vj)
        outer = w[part, None] * weight
        sums += [
            (outer * left * right).sum(),
            (outer * phi.derivative(u)[:, None] * phi.derivative(v)).sum(),
            root / 2 * (outer * (first - second) ** 2).sum(),
            root / 2 * (outer * (first + second) ** 2).sum(),
        ]
    return Dual(*sums)


@dataclass(frozen=True)
class Pair:
    """Two rows: norms, ‖x‖‖y‖ − x·y and ‖x‖‖y‖ + x·y."""

    left: Any
    right: Any
    near: Any
    far: Any

    @staticmethod
    def of(x: Any, y: Any) -> Pair:
        with mp.workdps(80):
            a, b = [mp.mpf(float(t)) for t in x], [mp.mpf(float(t)) for t in y]
            product = mp.fsum(s * t for s, t in zip(a, b, strict=True))
            left, right = (mp.sqrt(mp.fsum(t * t for t in v)) for v in (a, b))
            ends = (max(left * right + sign * product, mp.mpf(0)) for sign in (-1, 1))
            return Pair(*(_long(t) if t > mp.mpf(10) ** -70 * left * right else Long(0) for t in (left, right, *ends)))

    @property
    def product(self) -> Any:
        return self.left * self.right - self.near if self.near < self.far else self.far - self.left * self.right


def _ends(near: Any, far: Any, root: Any) -> tuple[Any, Any]:
    """1 − ρ and 1 + ρ, the larger from the smaller."""
    if root == 0:
        return Long(1), Long(1)
    return (near / root, 2 - near / root) if near <= far else (2 - far / root, far / root)


def _same(phi: Form, q: Any) -> Dual:
    """A sample with itself."""
    power, slope = powers(phi, q)
    return Dual(power, slope, Long(0), 2 * power)


@_kept
def explicit(forms: tuple[Form, ...], x: Any, y: Any) -> dict[str, Any]:
    """CK and NTK of a fully-connected network."""
    pair = Pair.of(x, y)
    same = np.array_equal(x, y)
    qi, qj, near, far = pair.left**2, pair.right**2, pair.near, pair.far
    tangent, found = pair.product, None
    for phi in forms:
        found = _same(phi, qi) if same else dual(phi, qi, qj, *_ends(near, far, np.sqrt(qi * qj)))
        tangent = found.power + found.slope * tangent
        qi, qj, near, far = powers(phi, qi)[0], powers(phi, qj)[0], found.near, found.far
    assert found is not None
    return {"ck": found.power, "ntk": tangent}


@lru_cache(maxsize=4096)
def fixed_variance(phi: Form, recurrent: Any, drive: Any) -> Any:
    """q = σ_a² E[φ(√q ξ)²] + drive, by a bracketed secant."""

    def excess(q: Any) -> Any:
        return recurrent * powers(phi, q)[0] + drive - q

    low, high = drive, max(2 * drive, Long(1))
    if excess(low) <= 0:
        return low
    while excess(high) > 0:
        high *= 2
    f_low, f_high = excess(low), excess(high)
    for _ in range(200):
        middle = high - f_high * (high - low) / (f_high - f_low)
        if not low < middle < high:
            middle = (low + high) / 2
        value = excess(middle)
        if value == 0 or high - low <= 4 * np.finfo(Long).eps * high:
            return middle
        if value > 0:
            low, f_low, f_high = middle, value, f_high / 2  # Illinois
        else:
            high, f_high, f_low = middle, value, f_low / 2
    return middle


def _radial(a: Any, b: Any, c: Any, qi: Any, qj: Any, vi: Any, vj: Any, pair: Pair) -> Any:
    """√(q_i q_j) − a√(v_i v_j) − b‖x‖‖y‖ − c where q = av + b‖x‖² + c, as |A||B| − A·B by Lagrange's identity."""
    si, sj, x, y = np.sqrt(vi), np.sqrt(vj), pair.left, pair.right
    total = a * b * (si * y - sj * x) ** 2 + a * c * (si - sj) ** 2 + b * c * (x - y) ** 2
    return total / (np.sqrt(qi * qj) + a * si * sj + b * x * y + c)


def _combine(power: Any, slope: Any, covariance: Any, recurrent: Any) -> dict[str, Any]:
    gain = 1 / (1 - recurrent * slope)
    return {
        "ck": power,
        "nngp": covariance,
        "ntk": power + covariance * slope * gain,
        "ntk_frozen_input": power * gain,
        "ntk_injected": covariance * gain,
    }


@_kept
def deq(phi: Form, recurrent: float, gain: float, bias: float, x: Any, y: Any) -> dict[str, Any]:
    """All kinds of a DEQ: Λ = σ_a² G(Λ) + σ_b² x·y + σ_0² by Newton on the smaller of √(q_i q_j) ∓ Λ."""
    pair = Pair.of(x, y)
    a, b, c = Long(recurrent), Long(gain), Long(bias)
    qi, qj = (fixed_variance(phi, a, b * norm**2 + c) for norm in (pair.left, pair.right))
    vi, vj = powers(phi, qi)[0], powers(phi, qj)[0]
    if np.array_equal(x, y):
        return _combine(*powers(phi, qi), qi, a)
    root = np.sqrt(qi * qj)
    if root == 0:
        mean = phi(np.zeros(1, Long))[0] ** 2
        return _combine(mean, powers(phi, Long(0))[1], Long(0), a)
    radial = _radial(a, b, c, qi, qj, vi, vj, pair)
    drives = np.maximum(np.array([radial + b * pair.near, radial + 2 * c + b * pair.far]), 0)
    part, side = min(drives[0], 2 * root), 0
    found = None
    for _ in range(80):
        ends = (part / root, 2 - part / root)
        found = dual(phi, qi, qj, *(ends if side == 0 else ends[::-1]))
        out = found.near if side == 0 else found.far
        step = (part - drives[side] - a * out) / (1 - a * found.slope)
        new = min(max(part - step, Long(0)), 2 * root)
        if abs(new - part) <= 1e-16 * new:
            break
        part = new
        if part > root:  # measured from the other end, which is closer
            part, side = 2 * root - part, 1 - side
    assert found is not None
    covariance = root - part if side == 0 else part - root
    return _combine(found.power, found.slope, covariance, a)


@_kept
def finite(phi: Form, recurrent: float, gain: float, bias: float, depth: int, x: Any, y: Any) -> dict[str, Any]:
    """The iterate after `depth` layers from Λ⁰ = x·y [FK20, Thm 1]."""
    pair = Pair.of(x, y)
    a, b, c = Long(recurrent), Long(gain), Long(bias)
    qi, qj, near, far = pair.left**2, pair.right**2, pair.near, pair.far
    covariance = tangent = pair.product
    frozen, same = None, np.array_equal(x, y)
    for level in range(depth + 1):
        found = _same(phi, qi) if same else dual(phi, qi, qj, *_ends(near, far, np.sqrt(qi * qj)))
        vi, vj = powers(phi, qi)[0], powers(phi, qj)[0]
        frozen = found.power if frozen is None else found.power + a * found.slope * frozen
        if level == depth:
            return {
                "ck": found.power,
                "nngp": covariance,
                "ntk": found.power + found.slope * tangent,
                "ntk_frozen_input": frozen,
                "ntk_injected": tangent,
            }
        new_i, new_j = (a * v + b * norm**2 + c for v, norm in ((vi, pair.left), (vj, pair.right)))
        radial = _radial(a, b, c, new_i, new_j, vi, vj, pair)
        near = radial + b * pair.near + a * found.near
        far = radial + 2 * c + b * pair.far + a * found.far
        covariance = a * found.power + b * pair.product + c
        tangent = covariance + a * found.slope * tangent
        qi, qj = new_i, new_j
    raise AssertionError
