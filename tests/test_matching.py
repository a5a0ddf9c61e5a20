"""Explicit networks matched to DEQs: exactness, closed forms, honesty about what is missed.

Also covers: search.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import notsodeep as nsd

ACTIVATIONS = {
    name: nsd.activation(name) for name in nsd.activation_names() if name not in ("leaky_relu", "piecewise_linear")
} | {
    "leaky_relu 0.2": nsd.activation("leaky_relu", a=1, b=0.2),
    "leaky_relu 0.9": nsd.activation("leaky_relu", a=1, b=0.9),
    "leaky_relu -0.5": nsd.activation("leaky_relu", a=1, b=-0.5),
}
SETTINGS = [(0.2, 0.8, 1.0), (0.2, 0.8, 0.3), (0.2, 0.8, 3.0), (0.02, 0.5, 0.5), (0.5, 1.0, 1.0)]


@pytest.mark.parametrize(("recurrent", "drive", "tau0"), SETTINGS)
@pytest.mark.parametrize("name", ACTIVATIONS)
# covers: slides of [Ling24] Key idea
def test_ck_is_matched_exactly(name, recurrent, drive, tau0):
    m = nsd.match(nsd.DEQ(ACTIVATIONS[name], recurrent, drive), tau0=tau0, kind="ck")
    assert m.exact
    assert m.residual < 1e-10
    assert m.missed == ()
    assert m.depth <= 2
    # certified again from the network alone
    assert nsd.coefficients(m.network, tau0).weights("ck") == pytest.approx(m.target, rel=1e-9, abs=1e-12)
    assert max(layer.lipschitz for layer in m.network.activations) < 10


@pytest.mark.parametrize(("recurrent", "drive", "tau0"), SETTINGS)
@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n not in ("cos", "gaussian")])
# covers: slides of [Ling24] Remark on NTKs
def test_ntk_is_matched_exactly(name, recurrent, drive, tau0):
    m = nsd.match(nsd.DEQ(ACTIVATIONS[name], recurrent, drive), tau0=tau0, kind="ntk")
    assert m.exact
    assert m.residual < 1e-10
    assert m.depth <= 3
    assert nsd.coefficients(m.network, tau0).weights("ntk") == pytest.approx(m.target, rel=1e-9, abs=1e-12)
    assert max(layer.lipschitz for layer in m.network.activations) < 10


# covers: [Ling24] Ex. 3.10; [Ling24] Rem. 3.9; slides of [Ling24] Examples
# covers: slides of [Ling24] Implicit- versus Explicit-CK
def test_odd_activations_take_one_hard_tanh():
    for name in ("tanh", "erf", "sin", "hard_tanh", "sigmoid"):
        m = nsd.match(nsd.DEQ(name, 0.2, 0.8), tau0=1.0)
        assert (m.family, m.depth) == ("hard_tanh", 1)


def test_a_strongly_folding_odd_activation_leaves_the_range_of_hard_tanh():
    """E[σ²]/(τ²E[σ']²) of a hard tanh stays below π/2; sin at large τ goes far beyond."""
    m = nsd.match(nsd.DEQ("sin", 0.2, 0.8), tau0=3.0)
    assert m.target.d / (9 * m.target.c1) > math.pi / 2
    assert m.exact
    assert (m.family, m.depth) == ("piecewise_linear", 1)


# covers: [Ling24] Ex. 3.11; [Ling24] Rem. 3.9; [Ling24] App. D; slides of [Ling24] Examples
# covers: slides of [Ling24] Implicit- versus Explicit-CK
def test_relu_takes_the_two_leaky_layers_of_the_theory():
    m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0)
    assert (m.family, m.depth) == ("leaky_relu", 2)
    steepness = []
    for layer in m.network.activations:
        low, high = sorted(layer.derivative(np.array([-1.0, 1.0])))
        steepness.append((high - low) ** 2 / ((high + low) / 2) ** 2)
    assert steepness == pytest.approx([3.9372, 0.2618], abs=1e-4)
    # the gauge: the first layer keeps the scale of the data
    assert nsd.moments(m.network.activations[0], 1.0).power == pytest.approx(1.0)


@given(b=st.floats(-0.9, 0.95), recurrent=st.floats(0.0, 0.9), drive=st.floats(0.1, 2), tau0=st.floats(0.2, 5))
def test_homogeneous_identity(b, recurrent, drive, tau0):
    """8πκτ₀²α₂/α₁ = γ²/(τ₀²α₁) − 1: why three unknowns of two leaky layers meet four equations."""
    c = nsd.coefficients(nsd.DEQ(nsd.activation("leaky_relu", a=1, b=b), recurrent, drive), tau0)
    kappa = 0.25 - 1 / (2 * math.pi)
    left = 8 * math.pi * kappa * tau0**2 * c.alpha2 / c.alpha1
    assert left == pytest.approx(c.gamma2 / (tau0**2 * c.alpha1) - 1, rel=1e-6, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["relu", "leaky_relu", "tanh", "erf", "hard_tanh", "gelu"]),
    recurrent=st.floats(0.01, 0.6),
    drive=st.floats(0.2, 2.0),
    tau0=st.floats(0.3, 3.0),
)
def test_ck_is_matched_for_any_variances(name, recurrent, drive, tau0):
    assert nsd.match(nsd.DEQ(name, recurrent, drive), tau0=tau0).exact


def test_without_recurrence_one_layer_is_enough():
    for name in ("relu", "gelu", "swish", "hard_tanh"):
        for kind in ("ck", "ntk"):
            m = nsd.match(nsd.DEQ(name, recurrent=0.0, input=0.7), tau0=1.4, kind=kind)
            assert m.exact
            assert m.depth == 1


@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_deep_explicit_networks_are_compressed(kind):
    m = nsd.match(nsd.Explicit(["relu", "relu", "leaky_relu"]), tau0=1.0, kind=kind)
    assert m.exact
    assert m.depth == 2
    odd = nsd.match(nsd.Explicit(["tanh", "erf", "tanh"]), tau0=1.0, kind=kind)
    assert odd.exact
    assert odd.depth == 1


def test_injected_and_nngp_targets():
    for kind in ("nngp", "ntk_injected"):
        for name in ("relu", "tanh", "gelu"):
            assert nsd.match(nsd.DEQ(name, 0.2, 0.8), tau0=1.0, kind=kind).exact


def test_a_forced_family_that_cannot_match_says_what_it_misses():
    m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, family="hard_tanh", depth=1)
    assert not m.exact
    assert "c3" in m.missed
    assert "c1" not in m.missed
    assert "not exact, misses" in str(m)
    assert m.residual == max(m.errors)
    one_layer = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, family="leaky_relu", depth=1)
    assert not one_layer.exact
    assert one_layer.residual < 0.1
    assert nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, family="leaky_relu", depth=2).exact
    assert nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, family="leaky_relu").depth == 2
    assert nsd.match(nsd.DEQ("tanh", 0.2, 0.8), tau0=1.0, family="erf").exact


def test_depth_alone_may_be_forced():
    m = nsd.match(nsd.DEQ("tanh", 0.2, 0.8), tau0=1.0, depth=2)
    assert m.depth == 2
    assert m.exact


def test_the_result_prints_and_saves(tmp_path):
    deq = nsd.DEQ("swish", 0.2, 0.8)
    m = nsd.match(deq, tau0=1.0, kind="ntk")
    assert "exact" in str(m)
    assert all(name in str(m) for name in ("c1", "c2", "c3", "d", "target", "achieved"))
    assert nsd.load_model(m.network.save(tmp_path / "network.json")) == m.network
    assert m.to_dict()["exact"] is True


def test_statistics_give_the_scale():
    X = np.random.default_rng(0).standard_normal((60, 40)) / math.sqrt(40)
    stats = nsd.estimate_statistics(X)
    deq = nsd.DEQ("relu", 0.2, 0.8)
    assert nsd.match(deq, stats=stats).network == nsd.match(deq, tau0=stats.tau0).network


def usable(m):
    """Finite, alive, and with a verdict that the network confirms by itself."""
    layers = m.network.activations
    assert all(math.isfinite(v) for layer in layers for v in (layer.scale, layer.stretch, layer.shift))
    assert max(layer.lipschitz for layer in layers) < 1e4
    kind = "ck" if m.kind in ("ck", "nngp") else "ntk"
    again = nsd.coefficients(m.network, m.tau0).weights(kind)
    assert again.d > 0
    units = np.array([m.target.d / m.tau0**2, m.target.d / m.tau0**4, m.target.d / m.tau0**4, m.target.d])
    goal = np.array(m.target)
    error = np.abs(np.array(again) - goal) / np.where(np.abs(goal) > 1e-13 * units, np.abs(goal), units)
    assert m.exact == bool(error.max() <= 1e-8)
    assert m.exact or m.missed


@pytest.mark.parametrize("tau0", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nothing_escapes_from_a_trial_network(name, tau0):
    for kind in ("ck", "ntk"):
        m = nsd.match(nsd.DEQ(ACTIVATIONS[name], 0.24, 0.8), tau0=tau0, kind=kind)
        usable(m)
        assert m.exact or (kind == "ntk" and name in ("cos", "gaussian"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", nsd.DEQ.kinds)
@pytest.mark.parametrize("recurrent", [0.0, 0.6])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_kind_gives_a_usable_network(name, recurrent, kind):
    for tau0 in (0.01, 0.1, 5.0, 100.0):
        usable(nsd.match(nsd.DEQ(ACTIVATIONS[name], recurrent, 0.8), tau0=tau0, kind=kind))


@pytest.mark.parametrize("family", ["identity", "leaky_relu", "hard_tanh", "erf", "cos", "gaussian"])
def test_a_forced_family_is_usable_whatever_the_target(family):
    for name, tau0 in (("cos", 0.1), ("cos", 10.0), ("sin", 10.0), ("relu", 0.1)):
        usable(nsd.match(nsd.DEQ(name, 0.2, 0.8), tau0=tau0, family=family))


@pytest.mark.parametrize("tau0", [5.0, 5.8, 6.2, 7.0, 10.0])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_where_folding_leaves_the_diagonal_alone(name, tau0):
    """e^{−τ²} takes c₁, c₂ and c₃ through all small numbers down to nothing."""
    for kind in ("ck", "ntk"):
        m = nsd.match(nsd.DEQ(name, 0.2, 0.8), tau0=tau0, kind=kind)
        usable(m)
        assert m.exact or (name == "cos" and tau0 < 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of tau0, stats and X"),
        ({"tau0": -1.0}, "tau0=-1.0 must be positive"),
        ({"tau0": 1.0, "kind": "ntkk"}, "did you mean 'ntk'"),
        ({"tau0": 1.0, "family": "leaky"}, "did you mean 'leaky_relu'"),
        ({"tau0": 1.0, "depth": 0}, "depth=0"),
        ({"tau0": 1.0, "depth": 1.5}, "depth=1.5"),
        ({"stats": 3}, "stats=3"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(nsd.InputError, match=message):
        nsd.match(nsd.DEQ("relu", 0.2, 0.8), **options)


def test_a_bias_or_an_ill_posed_model_is_refused():
    with pytest.raises(nsd.InputError, match="bias"):
        nsd.match(nsd.DEQ("relu", 0.2, 0.8, bias=0.1), tau0=1.0)
    with pytest.raises(nsd.InputError, match="well-posed"):
        nsd.match(nsd.DEQ("relu", 3.0, 0.8), tau0=1.0)
    with pytest.raises(nsd.InputError, match="pass a DEQ"):
        nsd.match("relu", tau0=1.0)


@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_the_numbers_of_a_trial_are_the_coefficients(kind):
    """The search has its own short recursion for layers that keep the variance."""
    from notsodeep.highdim.four_numbers import FourNumbers
    from notsodeep.search import Problem

    layers = [nsd.activation("gelu"), nsd.activation("leaky_relu", a=1.0, b=0.3), nsd.activation("tanh") + 0.4]
    problem = Problem(FourNumbers(1.0, 1.0, 1.0, 1.0), 1.3, kind)
    for depth in (1, 2, 3):
        network = nsd.Explicit(problem._gauged(layers[:depth]))
        expected = nsd.coefficients(network, 1.3).weights(kind)
        np.testing.assert_allclose(problem._weights(layers[:depth]), expected, rtol=1e-14)
