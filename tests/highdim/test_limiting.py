"""The predicted spectrum against eigenvalues of equivalents and of exact kernels.

Also covers: highdim/resolvent.py.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.datasets import load_digits
from tests import oracles

import notsodeep as nsd
from notsodeep.highdim.resolvent import Resolvent
from notsodeep.papers.inputs import two_classes
from notsodeep.papers.misprints import mixture as mixture_of_the_errata

DEQ = nsd.DEQ("relu", recurrent=0.2, input=0.8)


def mixture(name, p):
    means = np.zeros((2, p))
    means[0, 0], means[1, 1] = 4.0, -4.0
    two_levels = np.where(np.arange(p) < p // 2, 1.0, 3.0)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((p, p)))[0]
    turned = (rotation * two_levels) @ rotation.T
    covariances, proportions = {
        "isotropic": ([1.0, 1 + 5 / math.sqrt(p)], [0.5, 0.5]),
        "two levels": ([two_levels, two_levels * (1 + 3 / math.sqrt(p))], [0.3, 0.7]),
        "different shapes": ([two_levels, two_levels[::-1]], [0.3, 0.7]),
        "rotated": ([turned, turned + np.eye(p) * 3 / math.sqrt(p)], [0.6, 0.4]),
    }[name]
    return nsd.Mixture(means, covariances, proportions)


def exact_kernel(X, tau0, kind="ck"):
    return oracles.deq_kernels(X @ X.T, oracles.relu_dual(DEQ.centered(tau0).activation.shift), 0.2, 0.8)[kind]


def kolmogorov(s, eigenvalues, above=None):
    """Distance of the two distribution functions, compared right of every atom."""
    eigenvalues = np.sort(eigenvalues)
    grid = np.linspace(eigenvalues[0], eigenvalues[-1], 4000)
    grid = grid[grid > (s.atoms[0][0] * 1.001 if above is None and s.atoms else above or -np.inf)]
    empirical = np.searchsorted(eigenvalues, grid, side="right") / eigenvalues.size
    return float(np.abs(s.cdf(grid) - empirical).max())


NAMES = ["isotropic", "two levels", "different shapes", "rotated"]


@pytest.mark.parametrize(("n", "p"), [(600, 480), (300, 600), (600, 150)])
@pytest.mark.parametrize("name", NAMES)
def test_the_equivalent_has_the_predicted_spectrum(name, n, p):
    mix = mixture(name, p)
    X, labels = mix.sample(n, seed=1)
    s = nsd.spectrum(DEQ, mix.statistics(), "ntk", n=n)  # nothing of the sample is used
    values = nsd.equivalent(DEQ, X, mix.statistics(X, labels), "ntk").eigenvalues()
    assert s.mass == pytest.approx(1, abs=1e-4)
    assert s.residual < 1e-8
    assert kolmogorov(s, values) < 0.02
    assert [mass for _, mass in s.atoms] == ([pytest.approx(1 - p / n)] if p < n else [])
    # detached eigenvalues, above the bulk and below
    top = s.outliers[s.outliers > s.support[-1, 1] * 1.02]
    assert top.size
    np.testing.assert_allclose(values[-top.size :], top, rtol=0.06)
    assert values[-top.size - 1] < s.support[-1, 1] * 1.05


def test_distance_to_the_exact_kernel_falls_with_n():
    distances = []
    for n in (100, 200, 400, 800):
        mix = mixture("two levels", 2 * n)
        X, labels = mix.sample(n, seed=0)
        stats = mix.statistics(X, labels)
        values = np.linalg.eigvalsh(exact_kernel(X, stats.tau0))
        distances.append(kolmogorov(nsd.spectrum(DEQ, stats), values))
    print(distances)
    assert np.polyfit(np.log([100, 200, 400, 800]), np.log(distances), 1)[0] < -0.4
    assert distances[-1] < 0.01


def test_outliers_of_the_exact_kernel():
    mix = mixture("different shapes", 1000)
    X, labels = mix.sample(500, seed=0)
    stats = mix.statistics(X, labels)
    for kind in ("ck", "ntk"):
        s = nsd.spectrum(DEQ, stats, kind)
        values = np.linalg.eigvalsh(exact_kernel(X, stats.tau0, kind))
        top = s.outliers[s.outliers > s.support[-1, 1] * 1.02]
        np.testing.assert_allclose(values[-top.size :], top, rtol=0.04)


def test_weak_means_stay_inside_the_bulk():
    """Below the phase transition no eigenvalue leaves: one class, C = I, mean of length 0.3."""
    means = np.zeros((1, 400))
    quiet = nsd.DEQ("tanh", 0.2, 0.8)  # odd: no low-rank part besides the mean
    outliers = []
    for length in (0.3, 3.0):
        means[0, 0] = length
        s = nsd.spectrum(quiet, nsd.Mixture(means, [1.0], [1.0]).statistics(), n=400)
        outliers.append(int((s.outliers > s.support[-1, 1]).sum()))
    assert outliers == [0, 1]


def test_one_class_of_identity_is_marchenko_pastur():
    n, p = 300, 600
    stats = nsd.Mixture(np.zeros((1, p)), [1.0], [1.0]).statistics()
    s = nsd.spectrum(nsd.DEQ("tanh", 0.2, 0.8), stats, n=n)
    c1, ratio = s.weights.c1, n / p
    edges = np.array([(1 - math.sqrt(ratio)) ** 2, (1 + math.sqrt(ratio)) ** 2])
    np.testing.assert_allclose(s.support[0], s.shift + c1 * edges, rtol=1e-6)
    x = np.linspace(edges[0], edges[1], 50)[1:-1]
    law = np.sqrt((edges[1] - x) * (x - edges[0])) / (2 * math.pi * ratio * x)
    np.testing.assert_allclose(s.density(s.shift + c1 * x) * c1, law, rtol=1e-5)
    assert s.density(np.array([s.support[0, 0] - 0.1]))[0] == 0
    area, _ = quad(lambda v: float(s.density(np.array([v]))[0]), *s.support[0], limit=60, epsabs=1e-4)
    assert area == pytest.approx(1, abs=1e-3)


def test_square_noise_has_a_hard_edge():
    stats = nsd.Mixture(np.zeros((1, 200)), [1.0], [1.0]).statistics()
    s = nsd.spectrum(nsd.DEQ("tanh", 0.2, 0.8), stats, n=200)
    assert s.mass == pytest.approx(1, abs=1e-2)
    assert s.support[0, 0] == pytest.approx(s.shift, abs=1e-4)


def test_even_activations_leave_an_atom_and_outliers():
    mix = mixture("isotropic", 300)
    X, labels = mix.sample(400, seed=0)
    deq = nsd.DEQ("abs", 0.2, 0.8)
    with pytest.warns(nsd.AssumptionWarning, match="in the classes"):
        s = nsd.spectrum(deq, mix, n=400)
    values = nsd.equivalent(deq, X, mix.statistics(X, labels)).eigenvalues()
    assert s.atoms == ((s.shift, 1.0),)
    np.testing.assert_allclose(values[-3:], s.outliers[-3:], rtol=0.15)


def test_digits_with_estimated_statistics():
    X, labels = load_digits(return_X_y=True)
    X = X[:1000] - X[:1000].mean(axis=0)
    X = X / math.sqrt((X**2).sum(axis=1).mean())
    stats = nsd.estimate_statistics(X, labels[:1000])
    s = nsd.spectrum(DEQ, stats)
    values = nsd.equivalent(DEQ, X, stats).eigenvalues()
    assert s.mass == pytest.approx(1, abs=5e-3)
    np.testing.assert_allclose(s.outliers[-3:], values[-3:], rtol=0.05)
    assert kolmogorov(s, values) < 0.02


# --- outside the assumptions ----------------------------------------------------------------

TANH = nsd.DEQ("tanh", recurrent=0.2, input=0.8)


def one_class(spread, p):
    """A spike of this variance, or a power law with this exponent."""
    name, value = spread
    variances = np.ones(p)
    if name == "spike":
        variances[0] = value
    else:
        variances = np.arange(1, p + 1.0) ** -value
        variances /= variances.mean()
    return nsd.Mixture(np.zeros((1, p)), [variances], [1.0])


def top_of_kernel(deq, mix, n, kind="ck", seeds=3):
    """The largest eigenvalue of the exact kernel, and of the equivalent, on the same samples."""
    tau0 = mix.statistics().tau0
    pairs = []
    for seed in range(seeds):
        X, labels = mix.sample(n, seed)
        exact = np.linalg.eigvalsh(deq.centered(tau0).kernel(X, kind=kind))[-1]
        pairs.append((exact, nsd.equivalent(deq, X, mix.statistics(X, labels), kind).eigenvalues()[-1]))
    return np.mean(pairs, axis=0)


def expected_errors(s):
    return [float(re.search(r"expected to be (\d+)% off", caveat).group(1)) / 100 for caveat in s.caveats]


STRONG = [("spike", 25, 100), ("spike", 60, 400), ("power", 1.0, 300), ("power", 1.5, 200)]


@pytest.mark.parametrize("kind", ["ck", "ntk"])
@pytest.mark.parametrize(("name", "value", "p"), STRONG)
def test_a_strong_direction_is_warned_of(name, value, p, kind):
    mix = one_class((name, value), p)
    with pytest.warns(nsd.AssumptionWarning, match=r"strongest direction of C° has variance \d.*of tr C° = \d") as seen:
        s = nsd.spectrum(TANH, mix.statistics(), kind, n=2 * p)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert s.caveats[0] in str(seen[0].message)
    assert "caveat" in str(s)
    (expected,) = expected_errors(s)
    exact, linear = top_of_kernel(TANH, mix, 2 * p, kind)
    off = linear / exact - 1
    assert off > 0.1  # the warning is deserved …
    assert off / 2 < expected < 1.5 * off  # … and says how much
    assert s.support[-1, 1] > 1.1 * exact


@pytest.mark.parametrize(("name", "value", "p"), STRONG)
def test_relu_does_not_mind_a_strong_direction(name, value, p):
    mix = one_class((name, value), p)
    s = nsd.spectrum(DEQ, mix.statistics(), n=2 * p)
    assert s.caveats == ()
    exact, linear = top_of_kernel(DEQ, mix, 2 * p)
    assert linear == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(
    ("deq", "covariances", "length", "p", "off"),
    [
        (TANH, [1.0, 3.0], 0.0, 300, 0.15),
        (TANH, [1.0, 1.0], 16.0, 400, 0.12),
        (DEQ, [1.0, 1.0], 16.0, 400, 0.15),
        (DEQ, [1.0, 6.0], 0.0, 400, 0.12),
        (nsd.DEQ("abs", 0.2, 0.8), [1.0, 6.0], 0.0, 400, 0.1),
    ],
)
def test_classes_of_other_norms_are_warned_of(deq, covariances, length, p, off):
    means = np.zeros((2, p))
    means[0, 0] = means[1, 1] = length
    mix = nsd.Mixture(means, covariances, [0.5, 0.5])
    with pytest.warns(nsd.AssumptionWarning, match="in the classes beside τ0² = "):
        s = nsd.spectrum(deq, mix.statistics(), n=p)
    (expected,) = expected_errors(s)
    exact, linear = top_of_kernel(deq, mix, p)
    assert abs(linear / exact - 1) > off
    assert 0.1 < expected < 2 * abs(linear / exact - 1)


@pytest.mark.parametrize("deq", [DEQ, TANH])
def test_ordinary_mixtures_are_met_with_silence(deq):
    """Warnings are errors here. The mixtures of the papers at their sizes, and those of the documentation."""
    means = np.zeros((2, 400))
    means[0, 0] = means[1, 1] = 4
    mixtures = [two_classes(640), two_classes(1000), mixture_of_the_errata(800)]
    mixtures += [nsd.Mixture(means, [1.0, 1.2], [0.5, 0.5])]
    mixtures += [mixture(name, 480) for name in NAMES]
    for mix in mixtures:
        for kind in ("ck", "ntk"):
            assert nsd.spectrum(deq, mix.statistics(), kind, n=500).caveats == ()


def test_resolvent_agrees_with_a_large_random_matrix():
    loads, variances = np.array([0.3, 0.6]), np.array([[1.0, 3.0], [2.0, 1.0]])
    resolvent = Resolvent(loads, np.array([0.5, 0.5]), variances)
    p = 1000
    rng = np.random.default_rng(0)
    spread = np.sqrt(np.repeat(variances, p // 2, axis=1))
    W = np.concatenate([rng.standard_normal((int(r * p), p)) * s for r, s in zip(loads, spread, strict=True)])
    z = -0.7
    Q = np.diag(np.linalg.inv(W @ W.T / p - z * np.eye(W.shape[0])))
    m = resolvent.outside(np.array([z]))[0]
    assert m == pytest.approx([Q[: int(loads[0] * p)].mean(), Q[int(loads[0] * p) :].mean()], rel=5e-3)


def test_it_prints_and_plots():
    s = nsd.spectrum(DEQ, mixture("isotropic", 200).statistics(), n=300)
    assert "bulk" in str(s)
    assert "atom" in str(s)
    assert s.x.shape == s.y.shape
    assert (np.diff(s.x) >= 0).all()
    assert (s.y >= 0).all()
    assert s.cdf(s.x[-1] + 1) == pytest.approx(s.mass)
    assert s.cdf(s.shift - 0.01) == 0


def test_bad_input():
    stats = mixture("isotropic", 100).statistics()
    table = [
        (lambda: nsd.spectrum(DEQ, stats), "pass n"),
        (lambda: nsd.spectrum(DEQ, stats, n=0), "n=0"),
        (lambda: nsd.spectrum(DEQ, stats, n=10, p=2.5), "p=2.5"),
        (lambda: nsd.spectrum(DEQ, 3, n=10), "stats=3"),
        (lambda: nsd.spectrum(DEQ, stats, "nkt", n=10), "did you mean"),
    ]
    for call, message in table:
        with pytest.raises(nsd.InputError, match=message):
            call()
