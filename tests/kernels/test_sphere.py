"""Kernels as functions of the cosine: against the engine, differences, closed series, sums, and bad input.

Also covers: kernels/kinked.py, kernels/power_series.py, kernels/univariate.py.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.activations import Activation, PiecewiseLinear
from notsodeep.kernels.kinked import KinkedLayer
from notsodeep.kernels.sphere import SphereKernel

MODELS = {
    "relu": nsd.DEQ("relu", 0.2, 0.8),
    "relu near its limit": nsd.DEQ("relu", 1.98, 0.8),
    "relu with bias": nsd.DEQ("relu", 0.2, 0.8, 0.5),
    "centred relu": nsd.DEQ("relu", 0.2, 0.8).centered(1.0),
    "hard tanh": nsd.DEQ("hard_tanh", 0.2, 0.8),
    "hard tanh near its limit": nsd.DEQ("hard_tanh", 0.97, 0.8, 0.5),
    "tanh near its limit": nsd.DEQ("tanh", 0.99, 0.8),
    "gelu": nsd.DEQ("gelu", 0.2, 0.8, 0.5),
    "abs": nsd.DEQ("abs", 0.9, 0.8),
    "callable": nsd.DEQ(nsd.activation(np.arctan, derivative=lambda x: 1 / (1 + x * x)), 0.2, 0.8),
    "five layers": nsd.Explicit(["relu"] * 5),
    "mixed layers": nsd.Explicit(["relu", "tanh", "hard_tanh"]),
}
PAIRS = [(name, kind) for name, model in MODELS.items() for kind in model.kinds]
COSINES = np.array([-0.97, -0.4, 0.0, 0.3, 0.9])


def rows(cosines: np.ndarray, norm: float) -> np.ndarray:
    """The first row has these cosines with the others."""
    return norm * np.stack([np.append(1.0, cosines), np.append(0.0, np.sqrt(1 - cosines**2))], axis=1)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_values_slopes_and_series(name: str, kind: str) -> None:
    model, norm = MODELS[name], 1.3
    k = model.on_sphere(kind, norm)
    top = k(1.0)
    values = k(COSINES)
    assert values == pytest.approx(model.kernel(rows(COSINES, norm), kind=kind)[0, 1:], abs=2e-12 * top)
    step = 1e-5
    differences = (8 * (k(COSINES + step) - k(COSINES - step)) - k(COSINES + 2 * step) + k(COSINES - 2 * step)) / 12
    assert k.derivative(COSINES) * step == pytest.approx(differences, abs=1e-14 * top, rel=1e-9)
    b = k.series(1000)
    assert (b >= 0).all()
    assert np.polynomial.polynomial.polyval(COSINES, b) == pytest.approx(values, abs=2e-14 * top)
    assert b.sum() <= top * (1 + 1e-12)
    if k.singularity.smooth:
        assert b.sum() == pytest.approx(top, rel=1e-12)


@pytest.mark.parametrize("kind", nsd.DEQ.kinds)
@pytest.mark.parametrize("activation", ["relu", "swish", "hard_tanh"])
def test_finite_depth(activation: str, kind: str) -> None:
    model = nsd.DEQ(activation, 0.5, 0.5, 0.2)
    k = model.on_sphere(kind, norm=0.8, depth=3)
    K, info = model.kernel(rows(COSINES, 0.8), kind=kind, depth=3, return_info=True)
    assert info.error < 2e-11
    assert k(COSINES) == pytest.approx(K[0, 1:], abs=(info.error + 1e-14) * k(1.0))
    assert np.polynomial.polynomial.polyval(COSINES, k.series(1000)) == pytest.approx(k(COSINES), abs=1e-13)
    step = 1e-5
    differences = (k(COSINES + step) - k(COSINES - step)) / (2 * step)
    assert k.derivative(COSINES) == pytest.approx(differences, rel=1e-6)


def test_series_of_relu_in_closed_form() -> None:
    """Taylor coefficients of the arc-cosine kernel, by mpmath."""
    with mp.workdps(40):
        kernel = lambda t: (mp.sqrt(1 - t * t) + (mp.pi - mp.acos(t)) * t) / (2 * mp.pi)  # noqa: E731
        want = [float(c) for c in mp.taylor(kernel, 0, 40)]
    got = nsd.Explicit(["relu"]).on_sphere("ck").series(41)
    assert got == pytest.approx(want, abs=1e-15)


def test_tail_of_a_kink_follows_its_exponent() -> None:
    k = nsd.DEQ("relu", 0.2, 0.8).on_sphere("ntk")
    b = k.series(4096)
    assert k.singularity.plus == 0.5
    assert math.log(b[2000] / b[4000]) / math.log(2) == pytest.approx(1 + k.singularity.plus, abs=2e-3)


@pytest.mark.parametrize(
    ("model", "kind", "text"),
    [
        (nsd.DEQ("relu", 0.2, 0.8), "ntk", "(1 − t)^0.5 at t = 1"),
        (nsd.DEQ("hard_tanh", 0.2, 0.8), "ck", "(1 − t)^1.5 at t = 1 and (1 + t)^1.5 at t = −1"),
        (nsd.DEQ("hard_tanh", 0.2, 0.8, 0.1), "ck", "(1 − t)^1.5 at t = 1"),
        (nsd.DEQ("relu", 0.0, 0.8), "nngp", "smooth at t = ±1"),
        (nsd.DEQ("tanh", 0.2, 0.8), "ntk", "smooth at t = ±1"),
        (nsd.Explicit(["swish", "relu"]), "ntk", "(1 − t)^0.5 at t = 1"),
        (nsd.Explicit(["tanh", "relu"]), "ck", "(1 − t)^1.5 at t = 1 and (1 + t)^1.5 at t = −1"),
    ],
)
def test_singularities(model: nsd.DEQ | nsd.Explicit, kind: str, text: str) -> None:
    assert str(model.on_sphere(kind).singularity) == text


def test_the_polynomial_is_the_engine_s() -> None:
    k = nsd.DEQ("relu", 0.2, 0.8).on_sphere("ntk", norm=2.0)
    polynomial = k.polynomial()
    assert polynomial is not None
    assert polynomial.error.max() < 2e-13
    u = np.sqrt(1 - COSINES)
    # for a homogeneous φ it holds unit variances; the engine multiplies by √(q_i q_j)
    ratio = polynomial(u, math.sqrt(2) - u)[0] / k(COSINES)
    assert np.ptp(ratio) < 1e-12
    assert nsd.DEQ("relu", 1.98, 0.8).on_sphere("ntk").polynomial() is None


def test_shapes_and_ends() -> None:
    k = nsd.DEQ("relu", 0.2, 0.8).on_sphere("ntk")
    assert isinstance(k, SphereKernel)
    assert isinstance(k(0.5), float)
    assert isinstance(k.derivative(0.5), float)
    assert k(np.zeros((2, 3))).shape == (2, 3)
    assert k.derivative(1.0) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nsd.DEQ("relu", 0.2, 0.8).on_sphere("kc"), "kind='kc'"),
        (lambda: nsd.DEQ("relu", 0.2, 0.8).on_sphere("ck", norm=0), "norm=0"),
        (lambda: nsd.DEQ("relu", 2.0, 0.8).on_sphere("ck"), "not well-posed"),
        (lambda: nsd.Explicit(["relu"]).on_sphere("nngp"), "kind='nngp'"),
        (lambda: nsd.Explicit(["relu"]).on_sphere("ck", depth=2), "depth=2 is for a DEQ"),
        (lambda: nsd.DEQ("relu", 0.2, 0.8).on_sphere("ck")(1.5), "t=1.5 is not a cosine"),
        (lambda: nsd.DEQ("relu", 0.2, 0.8).on_sphere("ck")(math.nan), "t=nan is not a cosine"),
        (lambda: nsd.DEQ("relu", 0.2, 0.8).on_sphere("ck").series(0), "k=0"),
        (lambda: nsd.DEQ("relu", 0.2, 0.8).on_sphere("ck").series(10**6), "k=1000000"),
    ],
)
def test_bad_input(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(nsd.InputError, match=message.replace(".", r"\.")) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_a_series_with_a_tail_at_orthogonal_rows_and_at_the_ends(kind: str) -> None:
    """log|t| is infinite at t = 0."""
    deq = nsd.DEQ("relu", 0.2, 0.8)
    network = nsd.match(deq, tau0=1.0, kind=kind, on="sphere").network
    t = np.array([-1.0, -1e-300, 0.0, 1e-9, 1.0])
    assert network.on_sphere(kind)(t) == pytest.approx(deq.on_sphere(kind)(t), rel=1e-10)


@pytest.mark.parametrize("kind", ["ck", "ntk"])
@pytest.mark.parametrize("places", [[0.0], [-1.2, -0.3, 0.05, 0.9]])
def test_a_kinked_layer_by_its_second_derivative(places: list[float], kind: str) -> None:
    """Price's theorem and one integral, against the engine's closed forms."""
    half = math.pi / 2 * np.sin(np.linspace(0, math.pi / 2, 33)) ** 2
    angles = np.concatenate([half, math.pi - half[-2::-1]])
    slopes = np.array([0.1, -0.5, 0.7, 1.0, 0.4])[: len(places) + 1]
    sigma = Activation(PiecewiseLinear(tuple(places), tuple(slopes.tolist())), shift=-0.3)
    exact = nsd.Explicit([sigma]).on_sphere(kind).near(2 * np.sin(angles / 2) ** 2, 2 * np.cos(angles / 2) ** 2)
    assert KinkedLayer(angles)(np.array(places), slopes, 0.3, kind == "ntk") == pytest.approx(exact, abs=2e-14)
