"""Independent references for the kernels: brute-force quadrature, high precision, long iteration."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np

import notsodeep as nsd

RECURRENT = 0.2
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def _panels(edges):
    edges = np.asarray(edges)
    half = np.diff(edges) / 2
    x = (edges[:-1] + half)[:, None] + half[:, None] * _NODES
    return x.ravel(), (half[:, None] * _WEIGHTS).ravel()


def _normal_grid(center, spread, kinks):
    """Nodes and weights of N(center, spread²) with panel edges at the kinks."""
    low, high = center - 9 * spread, center + 9 * spread
    inner = [k for k in kinks if low < k < high]
    x, w = _panels(sorted({*np.linspace(low, high, 19), *inner}))
    return x, w * np.exp(-(((x - center) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))


def dual_by_quadrature(phi, qi, qj, rho):
    """E[φ(u)φ(v)] and E[φ'(u)φ'(v)] by nested quadrature, v given u, split at every kink."""
    u, wu = _normal_grid(0.0, math.sqrt(qi), phi.kinks)
    spread = math.sqrt(qj * (1 - rho**2))
    G = slope = 0.0
    for point, weight in zip(u, wu, strict=True):
        v, wv = _normal_grid(rho * math.sqrt(qj / qi) * point, spread, phi.kinks)
        G += weight * phi(point) * (wv @ phi(v))
        slope += weight * phi.derivative(point) * (wv @ phi.derivative(v))
    return G, slope


def trapezoidal_dual(phi, step=0.12):
    """A dual by the tensor trapezoidal rule, which converges exponentially for φ analytic in a strip."""
    x = np.arange(-9, 9 + step / 2, step)
    w = np.exp(-(x**2) / 2)
    w = w / w.sum()

    def dual(qi, qj, covariance):
        rho = np.clip(covariance / math.sqrt(qi * qj), -1, 1)
        u = math.sqrt(qi) * x[:, None]
        v = math.sqrt(qj) * (rho * x[:, None] + math.sqrt(max(1 - rho**2, 0)) * x[None, :])
        weight = w[:, None] * w[None, :]
        return (weight * phi(u) * phi(v)).sum(), (weight * phi.derivative(u) * phi.derivative(v)).sum()

    return dual


def arc_dual(phi):
    """The textbook arc-cosine dual of max(ax, bx) − c."""
    a, b = float(phi.derivative(1.0)), float(phi.derivative(-1.0))
    c, mean = phi.shift, (a - b) / math.sqrt(2 * math.pi)

    def relu(rho):
        theta = math.acos(max(-1.0, min(1.0, rho)))
        return (math.sin(theta) + (math.pi - theta) * math.cos(theta)) / (2 * math.pi), (math.pi - theta) / (
            2 * math.pi
        )

    def dual(qi, qj, covariance):
        root = math.sqrt(qi * qj)
        plus, minus = relu(covariance / root), relu(-covariance / root)
        G = root * ((a * a + b * b) * plus[0] - 2 * a * b * minus[0])
        G += -c * mean * (math.sqrt(qi) + math.sqrt(qj)) + c * c
        return G, (a * a + b * b) * plus[1] + 2 * a * b * minus[1]

    return dual


def iterate(deq, dual, X, steps=400):
    """Λ, G, Ġ of every pair by plain iteration of the definition."""
    n = len(X)
    drive = deq.input * X @ X.T + deq.bias
    L = drive.copy()
    for _ in range(steps):
        G, slope = np.empty((n, n)), np.empty((n, n))
        for i in range(n):
            for j in range(n):
                G[i, j], slope[i, j] = dual(L[i, i], L[j, j], L[i, j])
        new = deq.recurrent * G + drive
        if np.abs(new - L).max() < 1e-16:
            break
        L = new
    return L, G, slope


def relu_pair_mp(deq, x, y, kind, digits=50):
    """One entry of a DEQ kernel with φ = scale·relu, no shift, in high precision."""
    with mp.workdps(digits):
        s2 = mp.mpf(deq.activation.scale) ** 2
        ra, rb, r0 = mp.mpf(deq.recurrent), mp.mpf(deq.input), mp.mpf(deq.bias)
        x, y = [mp.mpf(float(v)) for v in x], [mp.mpf(float(v)) for v in y]
        dot = lambda a, b: mp.fsum(u * v for u, v in zip(a, b, strict=True))  # noqa: E731
        qi = (rb * dot(x, x) + r0) / (1 - ra * s2 / 2)
        qj = (rb * dot(y, y) + r0) / (1 - ra * s2 / 2)
        root = mp.sqrt(qi * qj)
        s = (rb * dot(x, y) + r0) / root
        kappa = lambda t: s2 * (mp.sin(t) + (mp.pi - t) * mp.cos(t)) / (2 * mp.pi)  # noqa: E731
        f = lambda t: mp.cos(t) - ra * kappa(t) - s  # noqa: E731
        low, high = mp.mpf(0), mp.pi
        for _ in range(int(3.5 * digits)):
            middle = (low + high) / 2
            low, high = (middle, high) if f(middle) > 0 else (low, middle)
        t = (low + high) / 2
        G, slope, L = root * kappa(t), s2 * (mp.pi - t) / (2 * mp.pi), root * mp.cos(t)
        gain = 1 / (1 - ra * slope)
        values = {
            "ck": G,
            "nngp": L,
            "ntk": G + L * slope * gain,
            "ntk_frozen_input": G * gain,
            "ntk_injected": L * gain,
        }
        return float(values[kind])


KINDS = ("ck", "nngp", "ntk", "ntk_frozen_input", "ntk_injected")

ACTIVATIONS = {
    "relu": nsd.activation("relu"),
    "normalized_relu": nsd.activation("normalized_relu"),
    "leaky": nsd.activation("leaky_relu", a=1.0, b=0.2),
    "leaky_negative": nsd.activation("leaky_relu", a=0.9, b=-0.4),
    "abs": nsd.activation("abs"),
    "identity": nsd.activation("identity"),
    "relu_shifted": nsd.activation("relu") - 0.3,
    "hard_tanh": nsd.activation("hard_tanh", a=0.8, c=0.7),
    "three_kinks": 0.5 * nsd.activation("piecewise_linear", kinks=[-1, 0.2, 1.5], slopes=[0.1, 1, 0.3, -0.6]) - 0.2,
    "tanh": nsd.activation("tanh"),
    "tanh_shifted": nsd.activation("tanh").stretched(1.3) - 0.4,
    "erf": 0.8 * nsd.activation("erf"),
    "sin": nsd.activation("sin"),
    "swish": nsd.activation("swish"),
    "gelu": nsd.activation("gelu"),
    "softplus": nsd.activation("softplus"),
    "sigmoid": 2 * nsd.activation("sigmoid"),  # odd only around its value at 0
}


def points(n=7, p=4, seed=0):
    """Rows of standard normal entries."""
    return np.random.default_rng(seed).standard_normal((n, p))
