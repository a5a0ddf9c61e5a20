"""Duals of piecewise-linear activations: a Hermite series where ρ is small, else the bivariate normal distribution.

φ is anchored at 0, so that nothing large cancels for small signals:

    φ(x) = c₀ + s₀x + Σ bend (±(x − kink))₊,

with + for kinks ≥ 0 and − for the others. Constants: (c₀, s₀, number of kinks, |kinks|…, bends…, signs…), three that
bound rounding (:mod:`notsodeep.kernels.tables`), then kinks…, φ at the kinks…, and the slopes between them. The table
of a sample has three rows per kink: |kink|/√q, P(±u > |kink|) and E[(±u − |kink|)₊]; then its Hermite coefficients,
highest order first. They decay slowly because of the kinks, but for most pairs |ρ|ᵏ falls below rounding much earlier.
Three numbers of margin follow; products of those of two samples bound the terms of G relative to √(G_ii G_jj), the
terms of Ġ, and how fast Ġ changes with the angle.

Signals far beyond the kinks of a clipped φ leave a small difference of large terms. Then the definition is integrated
(`pieces_integrated`), over v in closed form piece by piece.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from notsodeep import compilation

__all__ = [
    "MARGINS",
    "ORDERS",
    "REACH",
    "add_kink",
    "pieces_drop",
    "pieces_dual",
    "pieces_integrated",
    "pieces_left_out",
    "pieces_summed",
    "pieces_value",
]

ORDERS = 96  # Hermite coefficients per sample
_REACH = 9.0  # standard deviations that panels cover, on both sides
MARGINS = 3  # rows after them
# largest |ρ| of the series: what is left out is at most |ρ|⁹⁶√(G_ii G_jj) of G and |ρ|⁹⁵√(Ġ_ii Ġ_jj) of Ġ, 1e-16
REACH = 0.68
_SHORTEST = 2.0**-6  # panel in s: what a kink changes below is of order s³
_TINY = 1e-140  # √(q_i q_j) below which products of coefficients lose digits
_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_INV_2PI = 1 / (2 * math.pi)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)


@_jit
def add_kink(falling: Any, position: Any, weight: Any, sign: float) -> None:
    """Add the coefficients from order 2 on of one kink to a table (orders, n), highest order first.

    E[(ξ − p)₊ h_k(ξ)] = h_{k−2}(p) e^{−p²/2}/√(2π k(k−1)); weight: the bend times √q e^{−p²/2}/√2π.
    """
    orders, count = falling.shape
    before, now = np.zeros(count), weight.copy()
    for k in range(2, orders):
        row, factor = falling[orders - 1 - k], 1.0 / math.sqrt(k * (k - 1.0))
        if sign < 0 and k % 2 == 1:
            factor = -factor
        step = 1.0 / math.sqrt(k - 1.0)
        back = step * math.sqrt(k - 2.0)
        for i in range(count):
            value = now[i]
            row[i] += factor * value
            now[i] = step * position[i] * value - back * before[i]
            before[i] = value


@_jit
def _tail(x: float) -> float:
    """P(ξ > x)."""
    return 0.5 * math.erfc(x * 0.7071067811865476)


@_jit
def _orthant(h: float, k: float, eta: float, zeta: float) -> float:
    """P(X > h, Y > k) for standard normals with 1 − ρ = η and 1 + ρ = ζ.

    From the ρ = 1 end: Φ(−max(h, k)) − (1/2π) ∫₀^θ exp(−(h−k)²/(2 sin²x) − hk/(2 cos²(x/2))) dx, θ = arccos ρ,
    on panels that shrink geometrically towards the layer at x ~ |h − k|.
    """
    if eta > 1.0:  # negative correlation: reflect
        return max(_tail(h) - _orthant_positive(h, -k, zeta), 0.0)
    return _orthant_positive(h, k, eta)


@_jit
def _orthant_positive(h: float, k: float, eta: float) -> float:
    theta = 2.0 * math.asin(math.sqrt(max(eta, 0.0) / 2.0))
    d = h - k
    distance = abs(d)
    low = 0.0
    if distance > 0:
        low = max(distance / 9.0, 1e-18)
    total = 0.0
    high = theta
    while high > low:
        left = low if low == 0.0 or high < 2.2 * low else high / 2.0
        half = (high - left) / 2.0
        middle = (high + left) / 2.0
        for n in range(_NODES.size):
            x = middle + half * _NODES[n]
            sine, cosine = math.sin(x), math.cos(x / 2.0)
            total += half * _WEIGHTS[n] * math.exp(-(d * d) / (2.0 * sine * sine) - h * k / (2.0 * cosine * cosine))
        high = left
    return max(_tail(max(h, k)) - _INV_2PI * total, 0.0)


@_jit
def _lifted(
    covariance: float, qi: float, qj: float, a: float, b: float, h: float, k: float, eta: float, zeta: float
) -> tuple[float, float]:
    """E[(u − a)₊(v − b)₊] and P for variances q_i, q_j, covariance Λ, 1 ∓ ρ = η, ζ; h = a/√q_i, k = b/√q_j.

    (Λ + ab)P − a√q_j φ(k)Φ(·) − b√q_i φ(h)Φ(·) + √(q_i q_j)(1 − ρ²)φ₂(h, k), with P = P(u > a, v > b).
    """
    spread = math.sqrt(eta * zeta)  # √(1 − ρ²)
    root_i, root_j = math.sqrt(qi), math.sqrt(qj)
    if spread > 0:
        both = _orthant(h, k, eta, zeta)
        density = math.exp(-((h - k) ** 2) / (2 * spread * spread) - h * k / zeta)
        if eta <= 1.0:  # h − ρk and k − ρh: nothing cancels where ρ ≈ ±1
            beyond_h, beyond_k = h - k + eta * k, k - h + eta * h
        else:
            beyond_h, beyond_k = h + k - zeta * k, h + k - zeta * h
        lifted = (
            (covariance + a * b) * both
            - a * root_j * _INV_SQRT_2PI * math.exp(-k * k / 2) * _tail(beyond_h / spread)
            - b * root_i * _INV_SQRT_2PI * math.exp(-h * h / 2) * _tail(beyond_k / spread)
            + root_i * root_j * spread * _INV_2PI * density
        )
        return lifted, both
    if zeta < eta:  # v = −u √(q_j/q_i), and a, b ≥ 0: never both above
        return 0.0, 0.0
    top = max(h, k)  # v = u √(q_j/q_i): one variable
    at, above = _INV_SQRT_2PI * math.exp(-top * top / 2), _tail(top)
    return root_i * root_j * (above + top * at) - (a * root_j + b * root_i) * at + a * b * above, above


@_jit
def pieces_summed(root: float, eta: float, zeta: float) -> bool:
    """Whether G and Ġ come from the series."""
    return min(eta, zeta) >= 1.0 - REACH and root > _TINY


@_jit
def pieces_dual(
    constants: Any, qi: float, qj: float, left: Any, i: int, right: Any, j: int, eta: float, zeta: float
) -> tuple[float, float]:
    """E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for variances q_i, q_j, 1 − ρ = η and 1 + ρ = ζ."""
    root = math.sqrt(qi) * math.sqrt(qj)
    if pieces_summed(root, eta, zeta):
        rho = 1.0 - eta if eta <= 1.0 else zeta - 1.0
        return _series(3 * int(constants[2]), root, left, i, right, j, rho)
    return _closed(constants, qi, qj, left, i, right, j, eta, zeta)


@_jit
def _series(first: int, root: float, left: Any, i: int, right: Any, j: int, rho: float) -> tuple[float, float]:
    """G = Σ a_k(i) a_k(j) ρᵏ and Ġ = G'(ρ)/√(q_i q_j), from as many orders as needed; tables from row `first` on."""
    orders = min(int(8.0 - 40.0 / math.log(max(abs(rho), 1e-9))), ORDERS)
    G, derivative = 0.0, 0.0
    for k in range(first + ORDERS - orders, first + ORDERS):
        derivative = derivative * rho + G
        G = G * rho + left[k, i] * right[k, j]
    return G, derivative / root


@_jit
def _closed(
    constants: Any, qi: float, qj: float, left: Any, i: int, right: Any, j: int, eta: float, zeta: float
) -> tuple[float, float]:
    """The same in closed form, for any correlation."""
    rho = 1.0 - eta if eta <= 1.0 else zeta - 1.0
    covariance = math.sqrt(qi) * math.sqrt(qj) * rho
    base, slope, kinks = constants[0], constants[1], int(constants[2])
    G, total = base * base + slope * slope * covariance, slope * slope
    for a in range(kinks):
        bend, sign = constants[3 + kinks + a], constants[3 + 2 * kinks + a]
        above, excess = left[3 * a + 1, i] + right[3 * a + 1, j], left[3 * a + 2, i] + right[3 * a + 2, j]
        G += bend * (base * excess + slope * sign * covariance * above)  # Stein: E[u f(v)] = Λ E[f'(v)]
        total += slope * bend * sign * above
        for b in range(kinks):
            same = sign * constants[3 + 2 * kinks + b]
            angle, other = (eta, zeta) if same > 0 else (zeta, eta)
            lifted, both = _lifted(
                same * covariance, qi, qj, constants[3 + a], constants[3 + b],
                left[3 * a, i], right[3 * b, j], angle, other,
            )  # fmt: skip
            G += bend * constants[3 + kinks + b] * lifted
            total += same * bend * constants[3 + kinks + b] * both
    return G, total


@_jit
def _slope(constants: Any, left: Any, i: int, right: Any, j: int, eta: float, zeta: float) -> float:
    """E[φ'(u)φ'(v)]."""
    slope, kinks = constants[1], int(constants[2])
    total = slope * slope
    for a in range(kinks):
        step = constants[3 + kinks + a] * constants[3 + 2 * kinks + a]
        total += slope * step * (left[3 * a + 1, i] + right[3 * a + 1, j])
        for b in range(kinks):
            other = constants[3 + kinks + b] * constants[3 + 2 * kinks + b]
            if constants[3 + 2 * kinks + a] * constants[3 + 2 * kinks + b] > 0:
                total += step * other * _orthant(left[3 * a, i], right[3 * b, j], eta, zeta)
            else:
                total += step * other * _orthant(left[3 * a, i], right[3 * b, j], zeta, eta)
    return total


@_jit
def pieces_value(constants: Any, x: float) -> float:
    """φ(x)."""
    kinks = int(constants[2])
    total = constants[0] + constants[1] * x
    for a in range(kinks):
        total += constants[3 + kinks + a] * max(constants[3 + 2 * kinks + a] * x - constants[3 + a], 0.0)
    return total


@_jit
def pieces_drop(constants: Any, root: float, left: Any, i: int, right: Any, j: int, eta: float, side: int) -> float:
    """G(end) − G from ρ = side to ρ = side(1 − η), for small η, to full relative accuracy.

    G changes by √(q_i q_j) ∫ Ġ, because ∂G/∂Λ = Ġ (Price). The substitution η' = ηs² removes the root at 0. Two kinks
    at a distance d (in standard deviations) change Ġ where the angle is d, so panels shrink towards it.
    """
    kinks, distance = int(constants[2]), math.inf
    for a in range(kinks):
        for b in range(kinks):
            h, k = left[3 * a, i], right[3 * b, j]
            for d in (abs(h - k), h + k):
                distance = min(distance, d) if d > 0 else distance
    low = max(distance / (9.0 * math.sqrt(2.0 * eta)), _SHORTEST) if eta > 0 else 1.0
    total, high = 0.0, 1.0
    while high > 0:
        start = high / 2 if high > low else 0.0
        half = (high - start) / 2
        for n in range(_NODES.size):
            s = start + half * (1 + _NODES[n])
            step = eta * s * s
            if side > 0:
                found = _slope(constants, left, i, right, j, step, 2.0 - step)
            else:
                found = _slope(constants, left, i, right, j, 2.0 - step, step)
            total += 2 * half * _WEIGHTS[n] * s * found
        high = start
    return side * root * eta * total


@_jit
def pieces_left_out(constants: Any, q: float, power: float) -> float:
    """Share of E[φ²] that bends may bring at signals outside the panels: little unless φ is nearly 0 inside."""
    kinks, total = int(constants[2]), 0.0
    for a in range(kinks):
        position = abs(constants[6 + 3 * kinks + a]) / math.sqrt(q)
        if position > 4.0:  # E[(x − h)²₊; x > 9] ≤ 2(1 + max(9 − h, 0)²) e^{−max(9, h)²/2}
            bend = constants[6 + 5 * kinks + a + 1] - constants[6 + 5 * kinks + a]
            beyond = math.exp(-(max(position, _REACH) ** 2) / 2)
            total += bend * bend * beyond * (1 + max(_REACH - position, 0.0) ** 2)
    return 2 * kinks * total * q / power


@_jit
def pieces_integrated(
    constants: Any, qi: float, qj: float, vi: float, vj: float, eta: float, zeta: float
) -> tuple[float, float, float, float]:
    """G, Ġ, √(v_i v_j) − G and √(v_i v_j) + G for 1 ∓ ρ = η, ζ, the smaller of which is not above 1.

    An integral over u, on panels that shrink towards the places where v passes a kink; given u, v is Gaussian.
    """
    kinks = int(constants[2])
    places = constants[6 + 3 * kinks : 6 + 4 * kinks]
    root_i, root_j, spread = math.sqrt(qi), math.sqrt(qj), math.sqrt(eta * zeta)
    # v = side (τ_i + moved) ξ + width ξ': the difference keeps its digits
    if eta <= zeta:
        side, moved = 1.0, (root_j - root_i) - root_j * eta
    else:
        side, moved = -1.0, (root_j - root_i) - root_j * zeta
    width, slant = root_j * spread, side * (root_i + moved)
    levels = min(max(math.ceil(-math.log2(max(spread, 1e-18))) + 2, 1), 52)
    edges = np.empty(19 + kinks * (2 + 2 * levels))
    for a in range(19):
        edges[a] = a - _REACH
    last = 19
    for a in range(kinks):
        center = places[a] / slant
        edges[last], edges[last + 1] = places[a] / root_i, center
        last += 2
        if abs(center) < _REACH + 1:
            for b in range(levels):
                edges[last], edges[last + 1] = center - 2.0**-b, center + 2.0**-b
                last += 2
    edges = np.sort(np.minimum(np.maximum(edges[:last], -_REACH), _REACH))
    first, second = 1 / math.sqrt(vi), 1 / math.sqrt(vj)
    G = slope = less = more = 0.0
    for a in range(edges.size - 1):
        half = (edges[a + 1] - edges[a]) / 2
        if not half > 0:
            continue
        for n in range(_NODES.size):
            x = edges[a] + half * (1 + _NODES[n])
            u = root_i * x
            value, steep = _line(constants, u)
            at, mean, square, rise = _beside(constants, side * (u + moved * x), width)
            weight = half * _WEIGHTS[n] * math.exp(-x * x / 2)
            G += weight * value * (at + mean)
            slope += weight * steep * rise
            apart, summed = first * value - second * at, first * value + second * at
            less += weight * (apart * apart - 2 * apart * second * mean + second * second * square)
            more += weight * (summed * summed + 2 * summed * second * mean + second * second * square)
    size = math.sqrt(vi) * math.sqrt(vj) / 2
    return _INV_SQRT_2PI * G, _INV_SQRT_2PI * slope, _INV_SQRT_2PI * size * less, _INV_SQRT_2PI * size * more


@_jit
def _line(constants: Any, x: float) -> tuple[float, float]:
    """φ(x) and φ'(x), from the nearest kink on the piece of x: nothing cancels where φ is flat."""
    kinks = int(constants[2])
    start, piece = 6 + 3 * kinks, 0
    while piece < kinks and x > constants[start + piece]:
        piece += 1
    near, slope = max(piece - 1, 0), constants[start + 2 * kinks + piece]
    return constants[start + kinks + near] + slope * (x - constants[start + near]), slope


@_jit
def _beside(constants: Any, center: float, width: float) -> tuple[float, float, float, float]:
    """φ(m), E[φ(v) − φ(m)], E[(φ(v) − φ(m))²] and E[φ'(v)] for v ~ N(m, width²)."""
    kinks = int(constants[2])
    start = 6 + 3 * kinks
    value, slope = _line(constants, center)
    if width == 0:
        return value, 0.0, 0.0, slope
    mean = square = rise = 0.0
    low, at_low = -math.inf, 0.0
    for piece in range(kinks + 1):
        high = (constants[start + piece] - center) / width if piece < kinks else math.inf
        at_high = _INV_SQRT_2PI * math.exp(-high * high / 2)
        near, slope = max(piece - 1, 0), constants[start + 2 * kinks + piece]
        base = constants[start + kinks + near] - value
        if high - low < 1.0:  # a short piece: the moments would cancel
            length = constants[start + piece] - constants[start + near]
            half = (high - low) / 2
            for n in range(_NODES.size):
                x = low + half * (1 + _NODES[n])
                weight = half * _WEIGHTS[n] * _INV_SQRT_2PI * math.exp(-x * x / 2)
                change = base + slope * length * (1 + _NODES[n]) / 2
                mean += weight * change
                square += weight * change * change
                rise += weight * slope
        else:
            mass = _tail(low) - _tail(high) if low >= 0 else _tail(-high) - _tail(-low)
            if low < 0 < high:
                mass = 1 - _tail(-low) - _tail(high)
            step, change = slope * width, base + slope * (center - constants[start + near])
            first = at_low - at_high
            second = mass + (low * at_low if at_low > 0 else 0.0) - (high * at_high if at_high > 0 else 0.0)
            mean += step * first + change * mass
            square += step * step * second + 2 * step * change * first + change * change * mass
            rise += slope * mass
        low, at_low = high, at_high
    return value, mean, square, rise
