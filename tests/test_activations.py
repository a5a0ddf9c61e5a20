"""Activations: values and slopes, the algebra of compositions, callables, descriptions, bad input.

Also covers: formulas.py.
"""

from __future__ import annotations

import json
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import thirty_digits

import notsodeep as nsd
from notsodeep.activations import Activation, Custom, PiecewiseLinear

GRID = np.array([-30.0, -7.3, -2.4, -1.5, -1.0, -0.51, -1e-3, -1e-9, 1e-9, 1e-3, 0.3, 0.99, 1.2, 3.7, 11.0, 30.0])
NAMES = sorted(thirty_digits.REFERENCE)

names = st.sampled_from(NAMES)
numbers = st.floats(-5, 5)
points = st.floats(-20, 20)


@pytest.mark.parametrize("name", NAMES)
# covers: [Ling24] Asm. 2.3
def test_values_and_slopes_agree_with_thirty_digits(name: str) -> None:
    phi, slope, _ = thirty_digits.REFERENCE[name]
    act = nsd.activation(name)
    with mp.workdps(thirty_digits.DIGITS):
        values = np.array([float(phi(mp.mpf(float(x)))) for x in GRID])
        slopes = np.array([float(slope(mp.mpf(float(x)))) for x in GRID])
    np.testing.assert_allclose(act(GRID), values, rtol=2e-14, atol=1e-15)
    if name == "hard_tanh":  # at a kink the slope on its left, where the reference takes 0
        slopes[GRID == -1.0] = 0.0
    np.testing.assert_allclose(act.derivative(GRID), slopes, rtol=2e-14, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_lipschitz_constant_is_the_largest_slope(name: str) -> None:
    act = nsd.activation(name)
    x = np.linspace(-8, 8, 400_001)
    slopes = np.abs(act.derivative(x))
    assert slopes.max() <= act.lipschitz * (1 + 1e-15)
    assert slopes.max() == pytest.approx(act.lipschitz, rel=1e-3 if name == "softplus" else 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_declared_symmetries_hold(name: str) -> None:
    act = nsd.activation(name)
    assert act.odd == np.allclose(act(GRID) - act(0.0), act(0.0) - act(-GRID), rtol=1e-12, atol=1e-15)
    assert act.shape.origin * act.scale == act(0.0)
    assert act.homogeneous == np.allclose(act(3 * GRID), 3 * act(GRID), rtol=1e-14)


@given(name=names, scale=numbers, stretch=st.floats(0.05, 5), shift=numbers, x=points)
def test_composition_is_what_it_says(name: str, scale: float, stretch: float, shift: float, x: float) -> None:
    base = nsd.activation(name)
    act = scale * base.stretched(stretch) - shift
    assert act(x) == pytest.approx(scale * base(stretch * x) - shift, abs=1e-12, rel=1e-12)
    assert act.derivative(x) == pytest.approx(scale * stretch * base.derivative(stretch * x), abs=1e-12, rel=1e-12)
    assert act.lipschitz == pytest.approx(abs(scale) * stretch * base.lipschitz)


@given(name=names, a=numbers, b=numbers, c=st.floats(0.1, 4), d=st.floats(0.1, 4), x=points)
def test_algebra_of_compositions(name: str, a: float, b: float, c: float, d: float, x: float) -> None:
    act = nsd.activation(name)

    def same(left: Activation, right: Activation) -> None:
        assert left(x) == pytest.approx(right(x), abs=1e-10, rel=1e-12)

    same((act + a) - a, act)
    same(a * (b * act), (a * b) * act)
    same(a * (act - b), a * act - a * b)
    same(act.stretched(c).stretched(d), act.stretched(c * d))
    assert a * act == act * a
    assert 1 * act == act
    assert act.stretched(1.0) == act
    if act.homogeneous:
        same(act.stretched(c), c * act)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: nsd.activation("leaky_relu", a=1, b=0), lambda: nsd.activation("relu")),
        (lambda: nsd.activation("leaky_relu", a=1, b=-1), lambda: nsd.activation("abs")),
        (lambda: nsd.activation("leaky_relu", a=1, b=1), lambda: nsd.activation("identity")),
        (lambda: math.sqrt(2) * nsd.activation("relu"), lambda: nsd.activation("normalized_relu")),
        (lambda: nsd.activation("leaky_relu", a=0.2, b=1), lambda: nsd.activation("leaky_relu", a=1, b=0.2)),
        (
            lambda: nsd.activation("piecewise_linear", kinks=[-2, 2], slopes=[0, 1, 0]),
            lambda: nsd.activation("hard_tanh", c=2),
        ),
    ],
)
def test_one_activation_expressed_through_another(one: Any, other: Any) -> None:
    assert one() == other()
    assert hash(one()) == hash(other())


@given(
    kinks=st.lists(st.integers(-6, 6), max_size=5, unique=True).map(sorted),
    slopes=st.lists(st.floats(-3, 3), min_size=6, max_size=6),
)
def test_piecewise_linear_is_the_integral_of_its_slopes(kinks: list[int], slopes: list[float]) -> None:
    act = nsd.activation("piecewise_linear", kinks=kinks, slopes=slopes[: len(kinks) + 1])
    assert act(0.0) == 0.0
    # midpoints of a grid that contains the kinks: the midpoint rule is exact on each cell
    edges = np.linspace(-8, 8, 65)
    middles = (edges[1:] + edges[:-1]) / 2
    steps = act.derivative(middles) * np.diff(edges)
    np.testing.assert_allclose(np.diff(act(edges)), steps, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_dtype_and_shape_are_kept(name: str, dtype: type) -> None:
    x = np.linspace(-2, 2, 12, dtype=dtype).reshape(3, 4)
    act = nsd.activation(name)
    for result in (act(x), act.derivative(x)):
        assert result.dtype == dtype
        assert result.shape == x.shape
    assert isinstance(act(1), float)
    assert act(np.array([1, 2])).dtype == np.float64


@pytest.mark.parametrize(
    ("function", "kinks"),
    [
        (np.tanh, ()),
        (lambda x: np.maximum(x, 0), (0.0,)),
        (lambda x: np.clip(x, -1.3, 0.7), (-1.3, 0.7)),
        (lambda x: np.where(x > 2.5, x - 2.5, np.where(x < -4, x + 4, 0)), (-4.0, 2.5)),
        (lambda x: np.abs(x - 1 / 3), (1 / 3,)),
        (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), (0.0,)),  # elu: only φ'' jumps
    ],
)
def test_kinks_of_a_callable_are_found(function: Any, kinks: tuple[float, ...]) -> None:
    np.testing.assert_allclose(nsd.activation(function).kinks, kinks, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "name"),
    [(np.tanh, "tanh"), (lambda x: np.maximum(x, 0), "relu"), (lambda x: np.clip(x, -1, 1), "hard_tanh")],
)
def test_callable_behaves_like_its_named_twin(function: Any, name: str) -> None:
    twin, act = nsd.activation(name), nsd.activation(function)
    x = np.linspace(-5, 5.1, 997)  # no point on a kink
    np.testing.assert_array_equal(act(x), twin(x))
    np.testing.assert_allclose(act.derivative(x), twin.derivative(x), atol=1e-11)
    assert act.lipschitz == pytest.approx(twin.lipschitz, rel=1e-6)
    assert act.odd == twin.odd


def test_a_callable_may_bring_its_own_slope_and_constants() -> None:
    act = nsd.activation(np.tanh, derivative=lambda x: 1 - np.tanh(x) ** 2, kinks=(), lipschitz=1.0)
    assert act.derivative(0.5) == 1 - math.tanh(0.5) ** 2
    assert act.lipschitz == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_description_round_trip(name: str) -> None:
    act = -1.7 * nsd.activation(name).stretched(0.3) - 0.11
    assert Activation.from_dict(json.loads(json.dumps(act.to_dict()))) == act


@given(scale=st.floats(-1e3, 1e3), stretch=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3))
def test_description_keeps_every_bit(scale: float, stretch: float, shift: float) -> None:
    act = Activation(PiecewiseLinear((-1 / 3, 0.1), (0.1, 1 / 7, -2.0)), scale, stretch, shift)
    assert Activation.from_dict(json.loads(json.dumps(act.to_dict()))) == act


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (nsd.activation("relu"), "relu(x)"),
        (nsd.activation("leaky_relu", b=0.2), "leaky_relu(x; a=1, b=0.2)"),
        (nsd.activation("abs"), "abs(x)"),
        (nsd.activation("identity"), "x"),
        (nsd.activation("hard_tanh", a=2, c=0.5), "2·clip(x, -0.5, 0.5)"),
        (nsd.activation("tanh").stretched(2) + 1, "tanh(2·x) + 1"),
        (nsd.activation("piecewise_linear", kinks=[1], slopes=[0, 1]), "piecewise_linear(x; kinks=(1), slopes=(0, 1))"),
        (nsd.activation(np.tanh), "tanh(x)"),
    ],
)
def test_text(act: Activation, text: str) -> None:
    assert str(act) == text
    assert repr(act) == f"Activation({text})"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nsd.activation("relus"), "did you mean 'relu'?"),
        (lambda: nsd.activation("TANH"), "activation='TANH' is not known"),
        (lambda: nsd.activation("relu", a=2), "has no parameter 'a' (it takes no parameters)"),
        (lambda: nsd.activation("leaky_relu", aa=2), "did you mean 'a'?"),
        (lambda: nsd.activation("leaky_relu", a="steep"), "a='steep' must be a real number"),
        (lambda: nsd.activation("leaky_relu", b=math.nan), "b=nan must be a finite real number"),
        (lambda: nsd.activation("hard_tanh", c=0), "c=0 must be positive"),
        (lambda: nsd.activation("piecewise_linear", kinks=[0]), "needs slopes"),
        (lambda: nsd.activation("piecewise_linear", kinks=[1, 0], slopes=[1, 2, 3]), "strictly increasing"),
        (lambda: nsd.activation("piecewise_linear", kinks=[0], slopes=[1]), "one more entry"),
        (lambda: nsd.activation("piecewise_linear", kinks=[0], slopes=[1, math.inf]), "slopes[1]=inf must be a finite"),
        (lambda: nsd.activation("piecewise_linear", kinks=["a"], slopes=[1, 2]), "kinks[0]='a' must be a real"),
        (lambda: nsd.activation(nsd.activation("relu"), a=1), "ready Activation"),
        (lambda: nsd.activation(3), "must be a name, a callable or an Activation"),  # type: ignore[arg-type]
        (lambda: nsd.activation(np.tanh, slope=np.cos), "has no parameter 'slope'"),
        (lambda: nsd.activation(lambda x: x[:2]), "same shape"),
        (lambda: nsd.activation(np.log1p), "finite array"),
        (lambda: nsd.activation(np.tanh, kinks=["left"]), "kinks[0]='left' must be a real"),
        (lambda: nsd.activation("relu").stretched(0), "factor=0 must be positive"),
        (lambda: "two" * nsd.activation("relu"), "factor='two' must be a real number"),  # type: ignore[operator]
        (lambda: nsd.activation("relu") + math.inf, "constant=inf must be a finite real number"),
        (lambda: Activation.from_dict({"name": "relu"}), "lacks 'scale'"),
        (lambda: Activation.from_dict({"scale": 1, "stretch": 1, "shift": 0}), "lacks 'name'"),
        (lambda: nsd.activation(np.tanh).to_dict(), "cannot be written to a file"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_bad_input_is_one_clear_error(call: Any, message: str) -> None:
    with pytest.raises(nsd.InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_activations_are_immutable() -> None:
    with pytest.raises(AttributeError):
        nsd.activation("relu").scale = 2.0  # type: ignore[misc]


def test_rough_functions_do_not_hang() -> None:
    act = Activation(Custom(lambda x: np.floor(50 * x) / 50))
    assert act(0.03) == pytest.approx(0.02)
    assert nsd.activation(lambda x: np.sin(5000 * x), lipschitz=5000.0).kinks == ()


@pytest.mark.parametrize(
    ("function", "place"),
    [
        (np.sign, "x = 0;"),
        (lambda x: x + np.sign(x), "x = 0;"),
        (lambda x: 1.0 if x > 0 else 0.0, "x = 0;"),  # takes numbers only
        (lambda x: np.where(x > 1 / 3, x, 0), "x = 0.333333;"),
        (lambda x: x + 1e-3 * np.sign(x - 17.123), "x = 17.123;"),
        (np.floor, "x = "),
        (lambda x: np.floor(50 * x) / 50, "x = "),  # too many jumps to list
    ],
)
def test_a_function_that_jumps_is_refused(function: Any, place: str) -> None:
    """E[φ'²] is infinite: no NTK, no condition of existence."""
    with pytest.raises(nsd.InputError, match="jumps at " + place):
        nsd.activation(function)


def test_a_jump_at_a_given_kink_is_refused() -> None:
    with pytest.raises(nsd.InputError, match=r"jumps at x = 0\.333333; the theory needs a continuous function"):
        nsd.activation(lambda x: np.where(x > 1 / 3, x, 0), derivative=lambda x: 1.0 * (x > 1 / 3), kinks=[1 / 3])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.maximum(x, 0) + 1e3,  # rounding of a large offset is no jump
        lambda x: 1e-5 * np.abs(x - 30),
        lambda x: np.tanh(1e6 * x),  # steep, but continuous
        lambda x: np.where(np.abs(x) > 0.5, x - 0.5 * np.sign(x), 0),  # soft shrinkage
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),  # hard swish
    ],
)
def test_continuous_functions_pass_however_steep_or_kinked(function: Any) -> None:
    assert nsd.activation(function).kinks


def shifted(function, by):
    return lambda x: function(x - by)


@pytest.mark.parametrize("by", [0.0, 0.0037, -1.23456])
@pytest.mark.parametrize(
    ("function", "steepest"),
    [
        (lambda x: x / (1 + np.abs(x)), 1.0),
        (np.arctan, 1.0),
        (lambda x: np.tanh(3 * x), 3.0),
        (lambda x: np.tanh(40 * x), 40.0),
        (lambda x: np.maximum(x, 0.3 * x), 1.0),
        (lambda x: 2 * np.exp(-(x**2)), 2 * np.sqrt(2 / np.e)),
    ],
)
def test_the_lipschitz_constant_of_a_callable_is_not_missed_between_points(function, steepest, by):
    """Too small a constant makes a verdict of well-posedness too hopeful."""
    assert nsd.activation(shifted(function, by)).lipschitz == pytest.approx(steepest, rel=1e-6)
