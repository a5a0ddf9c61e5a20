"""One hidden layer with the kernel of a deep model: against exact kernels, double integrals, and bad input.

Also covers: hermite.py, one_layer/deviation.py, one_layer/few_kinks.py, one_layer/signs.py, one_layer/sphere_match.py.
"""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

import notsodeep as nsd
from notsodeep import data
from notsodeep.descriptions import model_from_dict
from notsodeep.gaussian import hermite_polynomials
from notsodeep.hermite import HermiteSeries
from notsodeep.one_layer.deviation import Ruler

DEQS = {
    "relu": nsd.DEQ("relu", 0.2, 0.8),
    "relu with bias": nsd.DEQ("relu", 0.2, 0.8, 0.5),
    "abs": nsd.DEQ("abs", 0.3, 0.8),
    "tanh near its limit": nsd.DEQ("tanh", 0.99, 0.8),
    "swish": nsd.DEQ("swish", 0.2, 0.8),
    "callable": nsd.DEQ(nsd.activation(np.arctan, derivative=lambda x: 1 / (1 + x * x)), 0.2, 0.8),
    "five layers": nsd.Explicit(["relu"] * 5),
}


def unit_rows(n: int, p: int) -> np.ndarray:
    X = np.random.default_rng(p).standard_normal((n, p))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    X = data.load("digits").X[:150].astype(np.float64)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["ck", "ntk"])
@pytest.mark.parametrize("name", DEQS)
def test_one_layer_has_the_kernel_of_the_model(name: str, kind: str, digits: np.ndarray) -> None:
    m = nsd.match(DEQS[name], tau0=1.0, kind=kind, on="sphere")
    assert m.exact
    assert m.depth == 1
    assert m.reference is DEQS[name]
    for X in (digits, unit_rows(80, 3), unit_rows(80, 300)):
        assert m.distance_on(X) <= (1e-9 if kind == "ck" else 1e-8)
    # σ itself, not its description: both ends of the kernel by quadrature
    found = nsd.moments(m.network.activations[0], 1.0)
    power = found.power + (found.slope_power if kind == "ntk" else 0.0)
    assert power == pytest.approx(DEQS[name].on_sphere(kind)(1.0), rel=2 * m.distance + 1e-14)
    assert found.mean**2 == pytest.approx(DEQS[name].on_sphere(kind)(0.0), abs=1e-11)


@pytest.mark.parametrize("kind", ["nngp", "ntk_frozen_input", "ntk_injected"])
def test_every_kind(kind: str, digits: np.ndarray) -> None:
    m = nsd.match(nsd.DEQ("swish", 0.4, 0.6, 0.3), tau0=1.0, kind=kind, on="sphere")
    assert m.exact
    assert m.distance_on(digits) <= 1e-9


def test_double_integrals_of_the_activation() -> None:
    """E[σ(u)σ(v)] of correlated Gaussians by Gauss–Hermite, without any Hermite coefficient of the design."""
    deq, norm = nsd.DEQ("tanh", 0.5, 0.8, 0.2), 1.4
    sigma = nsd.match(deq, tau0=norm, kind="ck", on="sphere").network.activations[0]
    nodes, weights = hermegauss(100)
    weights = weights / weights.sum()
    for t in (-0.8, -0.1, 0.4, 0.95):
        second = t * nodes[:, None] + math.sqrt(1 - t * t) * nodes
        value = weights @ (sigma(norm * nodes)[:, None] * sigma(norm * second)) @ weights
        assert value == pytest.approx(deq.on_sphere("ck", norm)(t), rel=1e-9)


def test_rows_of_any_norms_for_homogeneous_kernels() -> None:
    X = unit_rows(60, 7) * np.random.default_rng(1).uniform(0.1, 5.0, (60, 1))
    X[3] = 0
    for kind in ("ck", "ntk"):
        m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=2.0, kind=kind, on="sphere")
        assert m.network.normalize == 2.0
        assert m.distance_on(X) <= 1e-12
        diagonal = m.network.kernel_diag(X, kind="ck" if kind == "ck" else "ntk")
        assert diagonal == pytest.approx(m.reference.kernel_diag(X, kind=kind), rel=1e-11)
    m = nsd.match(nsd.DEQ("tanh", 0.2, 0.8), tau0=1.0, on="sphere")
    assert m.network.normalize is None
    near = unit_rows(30, 7) * np.random.default_rng(1).uniform(0.97, 1.03, (30, 1))
    assert 1e-6 < m.distance_on(near) < 1e-2


def test_the_design_is_a_value_of_the_algebra() -> None:
    m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, on="sphere")
    sigma = m.network.activations[0]
    assert isinstance(sigma.shape, HermiteSeries)
    again = model_from_dict(json.loads(json.dumps(m.network.to_dict())))
    assert again == m.network
    moved = 2 * sigma.stretched(0.5) - 1
    x = np.linspace(-30, 30, 601) + 0.01
    assert moved(x) == pytest.approx(2 * sigma(0.5 * x) - 1)
    assert moved.derivative(x) == pytest.approx((moved(x + 1e-5) - moved(x - 1e-5)) / 2e-5, abs=1e-6)
    # at most linear growth
    assert np.abs(np.diff(sigma(np.array([20.0, 40.0, 60.0])), 2)) < 1e-9
    assert nsd.moments(moved, 2.0).power == pytest.approx(
        4 * nsd.moments(sigma, 1.0).power - 4 * nsd.moments(sigma, 1.0).mean + 1, rel=1e-12
    )


def test_signs_are_chosen() -> None:
    """The fourth moment is far from that of the signs +, … of [theory]: 1.39/0.444² = 7.0."""
    m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, on="sphere")
    assert m.fourth < 1.6
    sigma = m.network.activations[0]
    xi, weights = hermegauss(150)
    values = sigma(xi)
    assert m.fourth == pytest.approx(weights @ values**4 * weights.sum() / (weights @ values**2) ** 2, rel=1e-3)


@pytest.mark.parametrize(("kinks", "largest"), [(1, 9.4e-4), (2, 2.3e-4), (3, 3e-5)])
def test_few_kinks(kinks: int, largest: float) -> None:
    m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, kind="ck", on="sphere", kinks=kinks)
    assert m.distance <= largest
    assert not m.exact
    assert len(m.network.activations[0].kinks) <= kinks
    assert m.lipschitz <= 3
    t = np.linspace(-1, 1, 301)
    k = m.reference.on_sphere("ck")
    assert np.abs(m.network.on_sphere("ck")(t) - k(t)).max() <= m.distance * k(1.0)


def test_the_distance_holds_between_the_nodes() -> None:
    """The bound, against a dense grid that knows nothing of its nodes; a kernel that is off by a ripple is found."""
    for kind in ("ck", "ntk"):
        m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, kind=kind, on="sphere", kinks=2)
        k, found = m.reference.on_sphere(kind), m.network.on_sphere(kind)
        gap = np.geomspace(1e-9, 1, 4001)
        both = np.concatenate([gap, 2 - gap]), np.concatenate([2 - gap, gap])  # 1 − t and 1 + t
        worst = np.abs(found.near(*both) - k.near(*both)).max() / k(1.0)
        assert 0.98 * m.distance <= worst <= m.distance
    ruler = Ruler(k)
    for order in (1, 7, 300, 40_000):
        ripple = lambda gap, sign, n=order: (  # noqa: E731
            (k.near(gap, 2 - gap) if sign > 0 else k.near(2 - gap, gap)) + 1e-3 * k(1.0) * (sign * (1 - gap)) ** n
        )
        assert 1e-3 * (1 - 1e-9) <= ruler(ripple) <= 1.01e-3


@pytest.mark.parametrize("kind", ["ck", "ntk"])
@pytest.mark.parametrize(("name", "recurrent"), [("relu", 1.98), ("abs", 0.99)])
def test_a_kink_near_the_limit(name: str, recurrent: float, kind: str, digits: np.ndarray) -> None:
    """0.99 of the limit, where the power law of b_k begins at k ≈ 10⁴."""
    m = nsd.match(nsd.DEQ(name, recurrent, 0.8), tau0=1.0, kind=kind, on="sphere")
    assert m.exact
    for X in (digits, unit_rows(150, 3), unit_rows(150, 300)):
        assert m.distance_on(X) <= (1e-9 if kind == "ck" else 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize(("kind", "largest"), [("ck", 1e-10), ("ntk", 5e-10)])
def test_kinks_away_from_zero(kind: str, largest: float, bias: float, digits: np.ndarray) -> None:
    """b_k oscillates, and σ has kinks beyond its straight ends, at the cost of up to 1e-6: bends make up for it."""
    m = nsd.match(nsd.DEQ("hard_tanh", 0.2, 0.8, bias), tau0=1.0, kind=kind, on="sphere")
    assert m.distance <= largest
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.ConvergenceWarning)
        for X in (digits, unit_rows(150, 3), unit_rows(150, 300)):
            assert m.distance_on(X) <= (1e-9 if kind == "ck" else 1e-8)
    # σ itself, with its straight ends: the kernel of coinciding rows
    found = nsd.moments(m.network.activations[0], 1.0)
    power = found.power + (found.slope_power if kind == "ntk" else 0.0)
    assert power == pytest.approx(m.reference.on_sphere(kind)(1.0), rel=m.distance)


@pytest.mark.parametrize("bends", [(), (0.3, -0.2)])
def test_orders_of_a_function_with_straight_ends(bends: tuple[float, ...]) -> None:
    """E[φ₀ h_k] of the function as it is, by Gauss–Legendre on short panels: h_60 is far from straight at 7.5."""
    coefficients = np.zeros(61)
    coefficients[[1, 2, 59, 60]] = 1.0, 0.5, 0.3, 0.2
    decays = (0.0, 0.01)[: len(bends)]
    shape = HermiteSeries(tuple(coefficients.tolist()), bends, bends[::-1], decays)
    edges = np.unique(
        np.concatenate([np.linspace(-13, 13, 261), [-7.5, 7.5], *np.outer([-0.1, 0.1], 0.5 ** np.arange(40))])
    )
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1, None] + half + half * nodes).ravel()
    mass = (half * weights).ravel() * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    found = hermite_polynomials(x, 120) @ (mass * shape.value(x))
    assert shape.order(121) == pytest.approx(found, abs=2e-14)
    assert abs(found[60] - shape.order(61)[60]) < 1e-13 < abs(found[60] - 0.2)


def test_auto_measures_both(digits: np.ndarray) -> None:
    m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), kind="ck", on="auto", X=digits)
    assert m.depth == 1
    assert "sphere" in m.why
    X = unit_rows(30, 40) * np.random.default_rng(1).uniform(0.97, 1.03, (30, 1))
    m = nsd.match(nsd.DEQ("tanh", 0.2, 0.8), kind="ck", on="auto", X=X)
    assert m.why
    other = nsd.match(nsd.DEQ("tanh", 0.2, 0.8), X=X)
    assert other.reference == nsd.DEQ("tanh", 0.2, 0.8).centered(other.tau0)
    assert m.distance_on(X) <= other.distance_on(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau0": 1.0, "on": "spher"}, "on='spher'"),
        ({"tau0": 1.0, "on": "sphere", "kinks": 0}, "kinks=0"),
        ({"tau0": 1.0, "kinks": 3}, "kinks=3 is for on='sphere'"),
        ({"tau0": 1.0, "on": "sphere", "depth": 2}, "depth=2 is for on='mixture'"),
        ({"tau0": 1.0, "on": "sphere", "family": "tanh"}, "family='tanh' is for on='mixture'"),
        ({"tau0": 1.0, "on": "sphere", "kind": "kc"}, "kind='kc'"),
        ({"tau0": 1.0, "on": "auto"}, "pass X"),
        ({"on": "sphere"}, "exactly one of tau0, stats and X"),
        ({"on": "sphere", "X": np.diag([1.0, 2.0])}, "norms 1 to 2"),
        ({"on": "sphere", "X": np.zeros((2, 2))}, "rows of zeros"),
    ],
)
def test_bad_input(options: dict, message: str) -> None:
    with pytest.raises(nsd.InputError) as raised:
        nsd.match(nsd.DEQ("tanh", 0.2, 0.8), **options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(nsd.InputError, match="no mixture coefficients"):
        nsd.coefficients(nsd.Explicit(["relu"], normalize=1.0), 1.0)


@pytest.mark.parametrize("coefficients", [[0.0, 1.0], [0.0, 0.0, 1.0], [0.1, 1.0, 0.3, 0.2]])
def test_tables_keep_the_digits_of_a_short_series(coefficients: list[float]) -> None:
    """8e-13 were lost for |x| < 0.6: powers of the middle interval were exchanged without those that cancel them."""
    x = np.linspace(-7, 7, 2801)
    phi = HermiteSeries(tuple(coefficients))
    h = hermite_polynomials(x, len(coefficients) - 1)
    size = np.abs(np.asarray(coefficients)) @ (1 + np.abs(h))
    assert np.all(np.abs(phi.value(x) - np.asarray(coefficients) @ h) <= 4e-15 * size)
    tiny = np.array([-1e-9, 1e-12])
    slope = float(phi.derivative(np.zeros(1))[0])
    assert phi.departure(tiny)[0] == pytest.approx(slope * tiny, rel=2e-9, abs=1e-17)
