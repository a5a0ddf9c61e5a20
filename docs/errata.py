"""Measure what the misprinted formulas of the papers do, and write ``docs/errata.md``.

Run ``python -m docs.errata`` from the root of the repository (about a minute). The tests use
the same formulas: each one that belongs to an equivalent must fail the n^−1/2 decay which
the correct one shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests import oracles

import notsodeep as nsd
from notsodeep.gaussian import expectation
from notsodeep.highdim import Equivalent, Statistics, Weights

RECURRENT, INPUT = 0.5, 1.0
DEQ = nsd.DEQ("relu", recurrent=RECURRENT, input=INPUT)
SLOPES = ((1.0, 0.0), (1.4, 0.2))  # max(ax, bx) of the two explicit layers


def mixture(n: int) -> nsd.Mixture:
    """Two classes with different means and covariances, p/n = 0.8."""
    p = 4 * n // 5
    means = np.zeros((2, p))
    means[0, 0] = means[1, 1] = 2.0
    ramp = np.linspace(0.7, 1.3, p)
    return nsd.Mixture(means, [ramp, (1 + 6 / math.sqrt(p)) * ramp[::-1]], [0.4, 0.6])


@dataclass(frozen=True)
class Sample:
    """Data, its statistics and the exact kernels of the DEQ and of the explicit network."""

    X: Any
    stats: Statistics
    deq: dict[str, Any]
    explicit: dict[str, Any]
    network: nsd.Explicit

    @staticmethod
    def draw(n: int, seed: int = 0) -> Sample:
        mix = mixture(n)
        X, labels = mix.sample(n, seed)
        stats = mix.statistics(X, labels)
        P = X @ X.T
        shift = DEQ.centered(stats.tau0).activation.shift
        deq = oracles.deq_kernels(P, oracles.relu_dual(shift), RECURRENT, INPUT)
        layers = [nsd.activation("leaky_relu", a=a, b=b) for a, b in SLOPES]
        network = nsd.Explicit(layers).centered(stats.tau0)
        shifts = [layer.shift for layer in network.activations]
        duals = [oracles.leaky_dual(a, b, c) for (a, b), c in zip(SLOPES, shifts, strict=True)]
        return Sample(X, stats, deq, oracles.explicit_kernels(P, duals), network)

    def exact(self, model: str, kind: str) -> Any:
        return (self.deq if model == "deq" else self.explicit)[kind]

    def weights(self, model: str, kind: str) -> Weights:
        return nsd.coefficients(DEQ if model == "deq" else self.network, self.stats.tau0).weights(kind)

    def error(self, model: str, kind: str, weights: Weights) -> float:
        """Relative spectral error of the equivalent with these weights."""
        V, A = self.stats.low_rank, self.stats.low_rank_weight(weights.c2, weights.c3)
        shift = weights.d - self.stats.tau0**2 * weights.c1
        return oracles.relative_spectral_error(
            self.exact(model, kind), Equivalent(weights, self.X, V, A, shift).dense()
        )


def mean_of_slope_of_square(phi: nsd.Activation, tau: float) -> float:
    """E[(φ²)'] = E[2φφ'], which the misprints put in place of E[(φ²)'']."""
    kinks = np.asarray(phi.kinks) / tau
    return float(expectation(lambda x: 2 * phi(tau * x) * phi.derivative(tau * x), kinks=kinks))


# --- the misprints of equivalents: what the printed formula gives ---------------------------


def explicit_weights(network: nsd.Explicit, tau0: float, misprint: str) -> Weights:
    """CK of two layers with one formula as printed."""
    first, second = network.activations
    m = nsd.moments(first, tau0)
    tau = math.sqrt(m.power)
    k = nsd.moments(second, tau)
    alpha4 = m.power_curvature / 2
    if misprint == "alpha4":
        alpha4 = mean_of_slope_of_square(first, tau0)
    alpha1 = m.slope**2
    quadratic4 = alpha4 if misprint == "alpha2" else alpha4**2
    quadratic1 = alpha1 if misprint == "alpha3" else alpha1**2
    return Weights(
        k.slope**2 * alpha1,
        k.slope**2 * m.curvature**2 / 4 + k.curvature**2 * quadratic4 / 4,
        k.slope**2 * m.curvature**2 / 2 + k.curvature**2 * quadratic1 / 2,
        k.power,
    )


def deq_weights(tau0: float, kind: str, misprint: str) -> Weights:
    """CK or NTK with frozen input weights, with one formula as printed."""
    c = nsd.coefficients(DEQ, tau0)
    weights, m = c.weights(kind), c.moments
    gap = 1 - RECURRENT * m.slope**2
    phi = DEQ.centered(tau0).activation
    if misprint == "alpha4":
        alpha4 = INPUT / (1 - RECURRENT * mean_of_slope_of_square(phi, c.tau) / 2)
        return weights._replace(c2=m.curvature**2 * alpha4**2 / (4 * gap))
    if misprint == "alpha2":
        return weights._replace(c2=m.curvature**2 * c.alpha4 / (4 * gap))
    if misprint == "kappa":
        return weights._replace(d=c.tau**2 / gap)
    return weights._replace(c3=(c.alpha3 + c.beta1 * (RECURRENT * m.curvature**2 + INPUT) * c.alpha1) / gap)  # β₃


@dataclass(frozen=True)
class Erratum:
    """One misprint of a formula of an equivalent."""

    name: str
    where: str
    printed: str
    correct: str
    model: str
    kind: str
    weights: Callable[[Sample], Weights]


ERRATA = (
    Erratum(
        "explicit alpha2",
        "[Ling24] Thm 3.8",
        "α̃_{l,2} contains α̃_{l−1,4}",
        "α̃_{l−1,4}²",
        "explicit",
        "ck",
        lambda s: explicit_weights(s.network, s.stats.tau0, "alpha2"),
    ),
    Erratum(
        "explicit alpha3",
        "[Ling24] Thm 3.8",
        "α̃_{l,3} contains α̃_{l−1,1}",
        "α̃_{l−1,1}²",
        "explicit",
        "ck",
        lambda s: explicit_weights(s.network, s.stats.tau0, "alpha3"),
    ),
    Erratum(
        "explicit alpha4",
        "[Ling24] Thm 3.8",
        "α̃_{l,4} = E[(σ²)'] α̃_{l−1,4}",
        "½ E[(σ²)''] α̃_{l−1,4}",
        "explicit",
        "ck",
        lambda s: explicit_weights(s.network, s.stats.tau0, "alpha4"),
    ),
    Erratum(
        "alpha4",
        "[Ling24] Eq. (12)",
        "α_{*,4} contains E[(φ²)']",
        "E[(φ²)'']",
        "deq",
        "ck",
        lambda s: deq_weights(s.stats.tau0, "ck", "alpha4"),
    ),
    Erratum(
        "alpha2",
        "slides of [Ling24], Thm 1",
        "α_{*,2} contains α_{*,4}",
        "α_{*,4}²",
        "deq",
        "ck",
        lambda s: deq_weights(s.stats.tau0, "ck", "alpha2"),
    ),
    Erratum(
        "kappa",
        "[Ling24] Thm 3.4",
        "κ_* = τ_*/√(1 − σ_a² E[φ']²)",
        "κ_*² = E[φ²]/(1 − σ_a² E[φ'²])",
        "deq",
        "ntk_frozen_input",
        lambda s: deq_weights(s.stats.tau0, "ntk_frozen_input", "kappa"),
    ),
    Erratum(
        "beta3",
        "[Ling24] Thm 3.4",
        "β_{*,3} contains (σ_a² E[φ'']² + σ_b²) α_{*,1}",
        "σ_a² E[φ'']² (σ_a² α_{*,1} + σ_b²)",
        "deq",
        "ntk_frozen_input",
        lambda s: deq_weights(s.stats.tau0, "ntk_frozen_input", "beta3"),
    ),
)


# --- the others -------------------------------------------------------------------------------


def hard_tanh_slopes() -> tuple[float, float]:
    """E[σ'] at τ = 1 of clip(x, −1, 1), and of sin + cos whose moments are printed for it."""
    return nsd.moments(nsd.activation("hard_tanh"), 1.0).slope, nsd.moments(nsd.activation("sin"), 1.0).slope


def border_variances(size: int = 8) -> tuple[float, float]:
    """Smallest and largest pixel variance when 1/(S S') stands inside a 3×3 window sum."""
    window = np.minimum(np.arange(size), 1) + 1 + np.minimum(np.arange(size)[::-1], 1)
    inside = 1.0 / np.outer(window, window)  # 1/S² at each position
    padded = np.pad(inside, 1)
    total = sum(padded[1 + i : 1 + i + size, 1 + j : 1 + j + size] for i in (-1, 0, 1) for j in (-1, 0, 1))
    return float(total.min()), float(total.max())


TEMPLATE = """# Errata of the papers

The formulas of this library differ from some printed ones. Every difference was settled by measurement: an
equivalent must approach the exact kernel like n^−1/2 in relative spectral norm, and each printed formula below
stops doing so. This page is written by `python -m docs.errata`; the tests `test_misprints_*` check the same.

## Formulas of equivalents

Two classes with different means and covariances, p/n = 0.8; relu DEQ with σ_a² = {recurrent}, σ_b² = {drive}; two
leaky-relu layers with slopes {slopes} for the explicit network. Relative spectral error ‖M − M̄‖/‖M‖:

| where | printed | correct | kernel | printed, n = {small} | n = {large} | correct, n = {small} | n = {large} |
|---|---|---|---|---|---|---|---|
{rows}

The correct columns fall by about √({large}/{small}) = {ratio:.2f}; the printed ones level off.

## Others

| where | printed | correct | consequence |
|---|---|---|---|
| [Ling24] Asm. 3.1 | the condition is on (φ²)' | on (φ²)'', which the coefficients use | none for the coefficients |
| [Ling24] App. D | four moments given for the hard tanh | those belong to a·sin + c·cos; for a·clip(x, −c, c) \
and k = c/(τ√2): E[σ'] = a·erf k, E[σ²] = a²[τ²(erf k − (2/√π) k e^(−k²)) + c² erfc k] | E[σ'] at a = c = τ = 1 \
would be {sine:.4f} instead of {clip:.4f}, and no hard tanh can be matched |
| [Ling24] Eq. (7) | called the NTK | the NTK when the input weights B are frozen; training all weights gives \
G + ΛĠ/(1 − σ_a²Ġ) | ‖difference‖/‖NTK‖ = {frozen:.2f} on the data above |
| [FK20] Eq. (18), (25) | 1/(S S') inside the window sum | outside, at the output position | pixel variances of a \
{size}×{size} image lie in [{low:.3f}, {high:.3f}] instead of being 1, and the proof of Thm 3 fails |

[Ling24] Ling, Li, Feng, Zhang, Zhou, Qiu, Liao. *Deep Equilibrium Models are Almost Equivalent to Not-so-deep
Explicit Models for High-dimensional Gaussian Mixtures.* ICML 2024.
[FK20] Feng, Kolter. *On the Neural Tangent Kernel of Equilibrium Models.* 2020.
"""


def write(path: Path, small: int = 200, large: int = 800) -> None:
    """Measure and write the page."""
    samples = [Sample.draw(small), Sample.draw(large)]
    rows = []
    for e in ERRATA:
        printed = [s.error(e.model, e.kind, e.weights(s)) for s in samples]
        correct = [s.error(e.model, e.kind, s.weights(e.model, e.kind)) for s in samples]
        kernel = f"{'DEQ' if e.model == 'deq' else 'explicit'} `{e.kind}`"
        numbers = " | ".join(f"{value:.3f}" for value in printed + correct)
        rows.append(f"| {e.where} | {e.printed} | {e.correct} | {kernel} | {numbers} |")
    ntk, frozen = samples[0].deq["ntk"], samples[0].deq["ntk_frozen_input"]
    clip, sine = hard_tanh_slopes()
    low, high = border_variances(8)
    text = TEMPLATE.format(
        recurrent=RECURRENT,
        drive=INPUT,
        slopes=" and ".join(str(pair) for pair in SLOPES),
        small=small,
        large=large,
        ratio=math.sqrt(large / small),
        rows="\n".join(rows),
        sine=sine,
        clip=clip,
        frozen=oracles.relative_spectral_error(ntk, frozen),
        size=8,
        low=low,
        high=high,
    )
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    write(Path(__file__).with_name("errata.md"))
