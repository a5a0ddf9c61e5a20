"""Coefficients of DEQs and explicit networks: golden values, identities, limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import notsodeep as nsd

# 30-digit quadrature at σ_a² = 0.2, σ_b² = 0.8, τ₀ = 1
GOLDEN = {
    "relu": {
        "tau": 0.9265661260274545,
        "gamma2": 0.2926239295076236,
        "alpha1": 0.2105263157894737,
        "alpha2": 0.0359574903797734,
        "alpha3": 0.0691904979570539,
        "alpha4": 0.8585247859015247,
        "kappa2": 0.3251376994529151,
        "beta1": 0.2216066481994460,
        "beta2": 0.0378499898734457,
        "beta3": 0.0801153134239571,
    },
    "tanh": {
        "tau": 0.9348716109247728,
        "gamma2": 0.3699246445653984,
        "alpha1": 0.3449876326597987,
        "alpha2": 0.0,
        "alpha3": 0.0,
        "alpha4": 0.8343486784533353,
        "kappa2": 0.4099945604411634,
        "beta1": 0.3747417493318518,
    },
}


@pytest.mark.parametrize("name", GOLDEN)
# covers: [Ling24] Thm 3.3; [Ling24] Thm 3.4; slides of [Ling24] Remark on Thm 1 and 2
def test_golden_values(name):
    c = nsd.coefficients(nsd.DEQ(name, recurrent=0.2, input=0.8), tau0=1.0)
    for field, value in GOLDEN[name].items():
        assert getattr(c, field) == pytest.approx(value, rel=1e-10, abs=1e-14), field


@given(
    name=st.sampled_from(["relu", "tanh", "swish", "gelu", "abs", "sigmoid"]),
    recurrent=st.floats(0.0, 0.5),
    drive=st.floats(0.1, 2.0),
    tau0=st.floats(0.3, 3.0),
)
def test_kinds_are_tied_together(name, recurrent, drive, tau0):
    """Λ = σ_a²G + σ_b²P and ntk_injected = σ_a²·ntk + σ_b²P, hence the same for the weights."""
    c = nsd.coefficients(nsd.DEQ(name, recurrent, drive), tau0)
    plain = np.array([drive, 0.0, 0.0, drive * tau0**2])  # of P
    np.testing.assert_allclose(c.weights("nngp"), recurrent * np.array(c.weights("ck")) + plain, rtol=1e-12)
    np.testing.assert_allclose(c.weights("ntk_injected"), recurrent * np.array(c.weights("ntk")) + plain, rtol=1e-12)
    assert c.lambda1 == pytest.approx(recurrent * c.alpha1 + drive, rel=1e-12)
    for kind in nsd.DEQ.kinds:
        weights = c.weights(kind)
        assert weights.d >= tau0**2 * weights.c1 * (1 - 1e-12)  # δ ≥ 0: the bulk is positive
        assert min(weights) >= 0


# covers: [Ling24] Rem. 3.5
def test_the_equivalent_speaks_of_the_centred_model():
    deq = nsd.DEQ("relu", 0.2, 0.8)
    shifted = nsd.DEQ(nsd.activation("relu") - 0.7, 0.2, 0.8)
    assert nsd.coefficients(deq, 1.3).weights("ntk") == pytest.approx(nsd.coefficients(shifted, 1.3).weights("ntk"))
    net, moved = nsd.Explicit(["swish", "tanh"]), nsd.Explicit([nsd.activation("swish") + 2, "tanh"])
    assert nsd.coefficients(net, 1.3).weights("ntk") == pytest.approx(nsd.coefficients(moved, 1.3).weights("ntk"))


def test_without_recurrence_a_deq_is_one_layer():
    deq, net = nsd.DEQ("gelu", recurrent=0.0, input=0.49), nsd.Explicit([nsd.activation("gelu").stretched(0.7)])
    for kind in ("ck", "ntk"):
        one, two = (nsd.coefficients(model, 1.2).weights(kind) for model in (deq, net))
        assert one == pytest.approx(two, rel=1e-12)


def test_linear_deq_is_a_geometric_series():
    c = nsd.coefficients(nsd.DEQ("identity", recurrent=0.3, input=0.5), tau0=2.0)
    assert c.weights("ck") == pytest.approx((0.5 / 0.7, 0, 0, 4 * 0.5 / 0.7))
    assert c.weights("ntk") == pytest.approx((0.5 / 0.7 + 0.5 / 0.49, 0, 0, 4 * (0.5 / 0.7 + 0.5 / 0.49)))


def test_gauge_leaves_the_coefficients_alone():
    relu, swish = nsd.activation("leaky_relu", a=1, b=0.3), nsd.activation("swish")
    one = nsd.coefficients(nsd.Explicit([relu, swish]), 1.0)
    two = nsd.coefficients(nsd.Explicit([3 * relu, swish.stretched(1 / 3)]), 1.0)
    for kind in ("ck", "ntk"):
        assert one.weights(kind) == pytest.approx(two.weights(kind), rel=1e-10)


def test_prints_as_a_table():
    text = str(nsd.coefficients(nsd.DEQ("relu", 0.2, 0.8), 1.0))
    assert "alpha1   0.210526315789" in text
    assert len(text.splitlines()) == 13


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nsd.coefficients(nsd.DEQ("relu", 0.2, 0.8, bias=0.1), 1.0), "bias=0.1"),
        (lambda: nsd.coefficients(nsd.DEQ("relu", 2.5, 0.8), 1.0), "recurrent=2.5 is not well-posed"),
        (lambda: nsd.coefficients(nsd.DEQ("relu", 0.2, 0.8), 0.0), "tau0=0.0 must be positive"),
        (lambda: nsd.coefficients(nsd.DEQ("relu", 0.2, 0.8), math.nan), "tau0=nan"),
        (lambda: nsd.coefficients("relu", 1.0), "model='relu'"),
        (lambda: nsd.coefficients(nsd.DEQ("relu", 0.2, 0.8), 1.0).weights("nkt"), "did you mean 'ntk'"),
        (lambda: nsd.coefficients(nsd.Explicit(["relu"]), 1.0).weights("nngp"), "choose from ck, ntk"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(nsd.InputError, match=message):
        call()
