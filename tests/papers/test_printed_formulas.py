"""Formulas of the papers as printed and as they must be; those of equivalents are in highdim/test_equivalents.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.papers.misprints import population_cosines, second_layer_mean


def test_the_printed_centre_belongs_to_another_layer() -> None:
    """[Ling24] Eq. (20): E[max(aξ, bξ)] = (a − b)τ/√(2π) at the standard deviation τ of the layer's input."""
    network = nsd.match(nsd.DEQ("relu", 0.2, 0.8), 1.0).network
    first, second = network.activations
    tau1 = math.sqrt(nsd.moments(first, 1.0).power)
    xi = np.random.default_rng(0).standard_normal(400_000)
    inside = second(tau1 * xi)
    assert inside.mean() == pytest.approx(0, abs=2e-3)
    printed = inside + second.shift - second.shift / tau1 * inside.std()
    assert printed.mean() == pytest.approx(second_layer_mean(), abs=4e-3)
    assert second_layer_mean() == pytest.approx(0.0501, abs=1e-4)


def test_the_last_factor_of_the_sum_is_one() -> None:
    """[Ling24] Eq. (6), summed to 60 layers, with Ġ^(l+1) and with 1 in its place."""
    deq = nsd.DEQ("relu", 0.2, 0.8)
    k = deq.kernel(np.eye(2, 3) + 0.3, kind=("ck", "nngp", "ntk_frozen_input"))
    cosine = k.nngp / np.sqrt(np.outer(np.diag(k.nngp), np.diag(k.nngp)))
    slope = 0.2 * (np.pi - np.arccos(np.clip(cosine, -1, 1))) / (2 * np.pi)  # σ_a² included, as in the paper
    powers = slope[None] ** np.arange(60)[:, None, None]
    np.testing.assert_allclose(k.ck * powers.sum(axis=0), k.ntk_frozen_input, rtol=1e-7)
    np.testing.assert_allclose(k.ck * (slope * powers).sum(axis=0), k.ck * slope / (1 - slope), rtol=1e-10)
    np.testing.assert_allclose(np.diag(slope), 0.1, rtol=1e-6)


@pytest.mark.parametrize("centred", [True, False])
# covers: [Ling24] Lemma B.1
def test_expansion_of_an_expectation(centred: bool) -> None:
    """[Ling24] Lemma B.1 at variances τ² + λ4 χ: what is left out is of the third order."""
    phi = nsd.activation("softplus")
    phi = phi - nsd.moments(phi, 1.0).mean if centred else phi
    m = nsd.moments(phi, 1.0)
    left = []
    for size in (0.2, 0.1, 0.05):
        u, v, overlap = size, -size / 2, 0.7 * size  # λ4 χ_i, λ4 χ_j, Λ_ij
        X = np.linalg.cholesky([[1 + u, overlap], [overlap, 1 + v]])
        exact = nsd.Explicit([phi]).kernel(X)[0, 1]
        expansion = m.mean**2 + m.slope**2 * overlap + m.mean * m.curvature / 2 * (u + v)
        if centred:
            expansion += m.curvature**2 * (overlap**2 / 2 + u * v / 4)
            expansion += m.slope * _third(phi) * overlap * (u + v) / 2  # S_ij
        left.append(abs(exact - expansion))
    order = math.log2(left[1] / left[2])
    assert order > (2.7 if centred else 1.8)
    if not centred:  # as printed, with φ' for φ, the first term is off
        assert abs(exact - (m.slope**2 + m.curvature**2 * overlap)) > 0.3


def _third(phi: nsd.Activation) -> float:
    """E[φ'''(ξ)] = E[(ξ³ − 3ξ)φ(ξ)]."""
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    return float(weights @ ((x**3 - 3 * x) * phi(x)) / math.sqrt(2 * math.pi))


def test_cosines_of_the_population() -> None:
    """[Ling23] Lemma 3 divides by too little, its Eq. (13) is one layer behind."""
    right, lemma, shifted = (population_cosines(30, printed) for printed in ("", "Lemma 3", "Eq. (13)"))
    assert right[-1] == pytest.approx(0.122558610, abs=1e-7)  # of Eq. (14), cos = σ_w² Q(cos) + (1 − σ_w²)/10
    assert lemma[4] == pytest.approx(0.1292, abs=1e-4)
    assert shifted[1] == 0.1
    assert shifted[1:] == pytest.approx(right[:-1])


def test_the_largest_singular_value_exceeds_its_limit_at_every_width() -> None:
    """[Ling23] Lemma 1: ‖W‖ > 2√2 σ_w with a probability that does not fall with the width, but never by much."""
    rng = np.random.default_rng(0)
    for width, draws in ((20, 400), (80, 200)):
        norms = [np.linalg.norm(rng.standard_normal((width, width)), 2) for _ in range(draws)]
        ratio = np.array(norms) / (2 * math.sqrt(width))
        assert 0.03 < np.mean(ratio > 1) < 0.3
        assert ratio.max() < 1 + 3 * width ** (-2 / 3)


def test_injection_does_not_vanish_with_the_width() -> None:
    """[FK20] §3.1: with σ_U²/N and σ_b²/N the variance tends to 1/N, without 1/N it stays 1."""
    rng, width, features = np.random.default_rng(0), 300, 8
    x = np.eye(features)[0]
    for scale, expected in ((1 / width, 1 / width), (1.0, 1.0)):
        found = []
        for _ in range(6):
            hidden = np.zeros(width)
            for _ in range(8):
                point = math.sqrt(0.25 / width) * rng.standard_normal((width, width)) @ hidden
                point += math.sqrt(0.25 * scale) * rng.standard_normal((width, features)) @ x
                point += math.sqrt(0.5 * scale) * rng.standard_normal(width)
                hidden = math.sqrt(2) * np.maximum(point, 0)
            found.append(np.mean(point**2))
        assert np.mean(found) == pytest.approx(expected, rel=0.15)


def test_the_square_of_s_is_the_number_of_pixels() -> None:
    """[FK20] App. B: a sum of k independent pixels over S has variance 1 with S² = k, and 1/k with S = k."""
    pixels = np.random.default_rng(0).standard_normal((20_000, 9))
    for count in (4, 6, 9):
        total = pixels[:, :count].sum(axis=1)
        assert np.var(total / math.sqrt(count)) == pytest.approx(1, rel=0.05)
        assert np.var(total / count) == pytest.approx(1 / count, rel=0.05)
