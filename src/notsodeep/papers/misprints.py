"""Misprinted formulas of the papers, measured beside the correct ones.

An equivalent must approach the exact kernel like n^−1/2 in relative spectral norm; with a misprinted
coefficient it stops somewhere above zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from notsodeep.activations import Activation, activation
from notsodeep.gaussian import expectation, moments
from notsodeep.highdim import DEQCoefficients, Equivalent, FourNumbers, Mixture, Statistics, coefficients
from notsodeep.matching import match
from notsodeep.models import DEQ, Explicit
from notsodeep.norms import spectral_norm

__all__ = [
    "ERRATA",
    "FURTHER",
    "IMPLICIT",
    "INPUT",
    "RECURRENT",
    "SLIDES",
    "SLOPES",
    "Corner",
    "Erratum",
    "Sample",
    "border_variances",
    "guaranteed_corner",
    "hard_tanh_slopes",
    "population_cosines",
    "second_layer_mean",
]

RECURRENT, INPUT = 0.5, 1.0
IMPLICIT = DEQ("relu", recurrent=RECURRENT, input=INPUT)
SLOPES = ((1.0, 0.0), (1.4, 0.2))  # max(ax, bx) of the two explicit layers


def mixture(n: int) -> Mixture:
    """Two classes with different means and covariances, p/n = 0.8."""
    p = 4 * n // 5
    means = np.zeros((2, p))
    means[0, 0] = means[1, 1] = 2.0
    ramp = np.linspace(0.7, 1.3, p)
    return Mixture(means, [ramp, (1 + 6 / math.sqrt(p)) * ramp[::-1]], [0.4, 0.6])


@dataclass(frozen=True, eq=False)
class Sample:
    """Data, its statistics, and three networks with their exact kernels.

    Attributes
    ----------
    X : array (n, p)
    stats : Statistics
    models : dict
        ``deq``, ``explicit`` (two leaky-relu layers) and ``hard_tanh`` (one layer), centred.
    """

    X: Any = field(repr=False)
    stats: Statistics
    models: dict[str, DEQ | Explicit]
    _kernels: dict[str, dict[str, Any]] = field(repr=False, default_factory=dict)
    _norms: dict[tuple[str, str], float] = field(repr=False, default_factory=dict)

    @staticmethod
    def draw(n: int, seed: int = 0) -> Sample:
        mix = mixture(n)
        X, labels = mix.sample(n, seed)
        stats = mix.statistics(X, labels)
        layers = [activation("leaky_relu", a=a, b=b) for a, b in SLOPES]
        described: dict[str, DEQ | Explicit] = {
            "deq": IMPLICIT,
            "explicit": Explicit(layers),
            "hard_tanh": Explicit(["hard_tanh"]),
        }
        models: dict[str, DEQ | Explicit] = {name: model.centered(stats.tau0) for name, model in described.items()}
        return Sample(X, stats, models)

    def kernel(self, model: str, kind: str) -> Any:
        """The exact kernel of one of the models; all kinds are computed in one pass and kept."""
        if model not in self._kernels:
            described = self.models[model]
            self._kernels[model] = described.kernel(self.X, kind=described.kinds)._asdict()
        return self._kernels[model][kind]

    def weights(self, model: str, kind: str) -> FourNumbers:
        """(c₁, c₂, c₃, d) by the right formulas."""
        return coefficients(self.models[model], self.stats.tau0).weights(kind)

    def error(self, model: str, kind: str, weights: FourNumbers) -> float:
        """Relative spectral error of the equivalent with these weights."""
        V, A = self.stats.low_rank, self.stats.low_rank_weight(weights.c2, weights.c3)
        shift = weights.d - self.stats.tau0**2 * weights.c1
        return self.distance(model, kind, Equivalent(weights, self.X, V, A, shift).dense())

    def distance(self, model: str, kind: str, other: Any) -> float:
        """‖M − other‖/‖M‖ in spectral norm, with M a kernel of one of the models."""
        exact = self.kernel(model, kind)
        if (model, kind) not in self._norms:
            self._norms[model, kind] = spectral_norm(exact)
        return spectral_norm(exact - other) / self._norms[model, kind]


def mean_of_slope_of_square(phi: Activation, tau: float) -> float:
    """E[(φ²)'] = E[2φφ'], which the misprints put in place of E[(φ²)'']."""
    kinks = np.asarray(phi.kinks) / tau
    return float(expectation(lambda x: 2 * phi(tau * x) * phi.derivative(tau * x), kinks=kinks))


# --- the misprints of equivalents: what the printed formula gives ---------------------------


def explicit_weights(network: Any, tau0: float, misprint: str) -> FourNumbers:
    """CK of two layers with one formula as printed."""
    first, second = network.activations
    m = moments(first, tau0)
    tau = math.sqrt(m.power)
    k = moments(second, tau)
    alpha4 = m.power_curvature / 2
    if misprint == "alpha4":
        alpha4 = mean_of_slope_of_square(first, tau0)
    elif misprint == "half":
        alpha4 = m.power_curvature
    alpha1 = m.slope**2
    quadratic4 = alpha4 if misprint == "alpha2" else alpha4**2
    quadratic1 = alpha1 if misprint == "alpha3" else alpha1**2
    return FourNumbers(
        k.slope**2 * alpha1,
        k.slope**2 * m.curvature**2 / 4 + k.curvature**2 * quadratic4 / 4,
        k.slope**2 * m.curvature**2 / 2 + k.curvature**2 * quadratic1 / 2,
        k.power,
    )


def deq_weights(tau0: float, kind: str, misprint: str) -> FourNumbers:
    """CK or NTK with frozen input weights, with one formula as printed."""
    c = coefficients(IMPLICIT, tau0)
    assert isinstance(c, DEQCoefficients)
    weights, m = c.weights(kind), c.moments
    gap = 1 - RECURRENT * m.slope**2
    phi = IMPLICIT.centered(tau0).activation
    if misprint == "alpha4":
        alpha4 = INPUT / (1 - RECURRENT * mean_of_slope_of_square(phi, c.tau) / 2)
        return weights._replace(c2=m.curvature**2 * alpha4**2 / (4 * gap))
    if misprint == "alpha2":
        return weights._replace(c2=m.curvature**2 * c.alpha4 / (4 * gap))
    if misprint == "kappa":
        return weights._replace(d=c.tau**2 / gap)
    if misprint == "kappa power":
        return weights._replace(d=c.tau**2 / (1 - RECURRENT * m.slope_power))
    return weights._replace(c3=(c.alpha3 + c.beta1 * (RECURRENT * m.curvature**2 + INPUT) * c.alpha1) / gap)  # β₃


def sine_weights(tau0: float) -> FourNumbers:
    """CK of one hard-tanh layer with the moments printed for it, which belong to the sine."""
    m = moments(activation("sin"), tau0)
    return FourNumbers(m.slope**2, 0.0, 0.0, m.power)


@dataclass(frozen=True)
class Erratum:
    """One misprint of a formula of an equivalent."""

    name: str
    where: str
    printed: str
    correct: str
    model: str
    kind: str
    weights: Callable[[Sample], FourNumbers]


ERRATA = (
    Erratum(
        "explicit alpha2",
        "[Ling24] Thm 3.8; slides, Thm 3",
        "α̃_{l,2} contains α̃_{l−1,4}",
        "α̃_{l−1,4}²",
        "explicit",
        "ck",
        lambda s: explicit_weights(s.models["explicit"], s.stats.tau0, "alpha2"),
    ),
    Erratum(
        "explicit alpha3",
        "[Ling24] Thm 3.8; slides, Thm 3",
        "α̃_{l,3} contains α̃_{l−1,1}",
        "α̃_{l−1,1}²",
        "explicit",
        "ck",
        lambda s: explicit_weights(s.models["explicit"], s.stats.tau0, "alpha3"),
    ),
    Erratum(
        "explicit alpha4",
        "[Ling24] Thm 3.8",
        "α̃_{l,4} = E[(σ²)'] α̃_{l−1,4}",
        "½ E[(σ²)''] α̃_{l−1,4}",
        "explicit",
        "ck",
        lambda s: explicit_weights(s.models["explicit"], s.stats.tau0, "alpha4"),
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
        "[Ling24] Thm 3.4; slides, Thm 2",
        "β_{*,3} contains (σ_a² E[φ'']² + σ_b²) α_{*,1}",
        "σ_a² E[φ'']² (σ_a² α_{*,1} + σ_b²)",
        "deq",
        "ntk_frozen_input",
        lambda s: deq_weights(s.stats.tau0, "ntk_frozen_input", "beta3"),
    ),
)

# the same coefficients in the slides, printed otherwise: on the page of errata and in the tests, without a curve
SLIDES = (
    Erratum(
        "explicit half",
        "slides of [Ling24], Thm 3",
        "α̃_{l,4} = E[(σ²)''] α̃_{l−1,4}",
        "½ E[(σ²)''] α̃_{l−1,4}",
        "explicit",
        "ck",
        lambda s: explicit_weights(s.models["explicit"], s.stats.tau0, "half"),
    ),
    Erratum(
        "kappa power",
        "slides of [Ling24], Thm 2",
        "κ_* = τ_*/√(1 − σ_a² E[φ'²])",
        "κ_*² = E[φ²]/(1 − σ_a² E[φ'²])",
        "deq",
        "ntk_frozen_input",
        lambda s: deq_weights(s.stats.tau0, "ntk_frozen_input", "kappa power"),
    ),
)

# names that the papers give to other things, measured in the same way
FURTHER = (
    Erratum(
        "hard tanh",
        "[Ling24] App. D",
        "E[σ'], E[σ²] of the hard tanh",
        "those of a·clip (printed are those of a·sin + c·cos)",
        "hard_tanh",
        "ck",
        lambda s: sine_weights(s.stats.tau0),
    ),
    Erratum(
        "eq7",
        "[Ling24] Eq. (7)",
        "called the NTK",
        "G + ΛĠ/(1 − σ_a²Ġ) when all weights are trained",
        "deq",
        "ntk",
        lambda s: s.weights("deq", "ntk_frozen_input"),
    ),
)


# --- the others -------------------------------------------------------------------------------


def hard_tanh_slopes() -> tuple[float, float]:
    """E[σ'] at τ = 1 of clip(x, −1, 1), and of sin + cos whose moments are printed for it."""
    return moments(activation("hard_tanh"), 1.0).slope, moments(activation("sin"), 1.0).slope


def second_layer_mean() -> float:
    """E[σ₂(τ̃₁ξ)] when [Ling24] Eq. (20) centres it by (a − b)τ̃₂/√(2π), in the network designed for relu, 0.2/0.8."""
    first, second = match(DEQ("relu", recurrent=0.2, input=0.8), 1.0).network.activations
    tau1 = math.sqrt(moments(first, 1.0).power)
    tau2 = math.sqrt(moments(second, tau1).power)
    return float(second.shift * (1 - tau2 / tau1))  # the shift is (a − b)τ̃₁/√(2π)


def population_cosines(depth: int, printed: str = "", cosine: float = 0.1, recurrent: float = 0.08) -> list[float]:
    """cos θ^(l), l = 1…depth, of [Ling23] Def. 1 at a given x·y/d; printed: "Lemma 3" or "Eq. (13)", as they stand."""
    found, power = [cosine], 1.0  # ρ^(1) = K_ii^(1)
    for _ in range(depth - 1):
        dual = (math.sqrt(1 - found[-1] ** 2) + (math.pi - math.acos(found[-1])) * found[-1]) / math.pi  # Q
        if printed == "Eq. (13)":
            found.append((1 - 1 / power) * dual + cosine / power)
        else:
            inner = power * dual  # K_ij^(l−1)
            found.append((recurrent * inner + cosine) / (recurrent * (inner if printed == "Lemma 3" else power) + 1))
        power = recurrent * power + 1
    return found


def border_variances(size: int = 8) -> Any:
    """Variance of each pixel (size, size) when 1/(S S') stands inside a 3×3 window sum."""
    window = np.minimum(np.arange(size), 1) + 1 + np.minimum(np.arange(size)[::-1], 1)
    inside = 1.0 / np.outer(window, window)  # 1/S² at each position
    padded = np.pad(inside, 1)
    return sum(padded[1 + i : 1 + i + size, 1 + j : 1 + j + size] for i in (-1, 0, 1) for j in (-1, 0, 1))


@dataclass(frozen=True)
class Corner:
    """A network at the edge of Condition 1 as [Ling23] prints it.

    Attributes
    ----------
    margin : float
        left/right of the closest of its three inequalities.
    readout : float
        ‖a‖.
    claimed, proved : float
        ηλ0/2 and η(λ0 − ηC₁² − 2C₂), the relative decrease of the loss in a step of the largest admissible size: as
        stated, and as proved.
    """

    margin: float
    readout: float
    claimed: float
    proved: float


def guaranteed_corner(margin: float = 1.12, width: int = 300, features: int = 8, recurrent: float = 1e-3) -> Corner:
    """The readout at which the printed condition holds with this margin, for two orthogonal inputs of norm √d.

    Norms and λ0 are the limits of wide networks: ‖W‖ = 2√2 σ_w, ‖U‖ = √2(√(m/d) + 1), λ0 = m λ_min(K)/2.
    """
    W, U = 2 * math.sqrt(2 * recurrent), math.sqrt(2) * (math.sqrt(width / features) + 1)
    X = math.sqrt(features) * np.eye(2, features)
    K = DEQ("normalized_relu", recurrent=recurrent, input=1 / features).kernel(X, kind="ck")
    lambda0, size, error = width / 2 * float(np.linalg.eigvalsh(K)[0]), float(np.linalg.norm(X)), 1e-3
    delta = (1 - W) * np.geomspace(1e-6, 0.999, 4000)

    def at(readout: float) -> tuple[float, float, float]:
        """The worst margin at the best δ, and C₁, C₂ there."""
        state, gain = U + delta, 1 / (1 - W - delta)  # ρ_u, 1/(1 − ρ_w)
        c_w, c_u, c_a = state * (readout + delta) * gain**2, (readout + delta) * gain, state * gain
        C1, C2 = (c_w**2 + c_u**2 + c_a**2) * size**2, (c_w**2 + c_u**2) * size**2
        first = 4 / delta * np.maximum(np.maximum(c_w, c_u), c_a) * size * error
        second = 4 * (2 + math.sqrt(2)) / (readout + delta) * C2 * error
        worst = np.minimum(np.minimum(lambda0 / first, lambda0**1.5 / second), lambda0 / (4 * C2))  # Eq. (9) as printed
        best = int(np.argmax(worst))
        return float(worst[best]), float(C1[best]), float(C2[best])

    low, high = 1e-6, 1.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle)[0] >= margin else (low, middle)
    reached, C1, C2 = at(low)
    step = min(2 / lambda0, 2 * C2 / C1**2)
    return Corner(reached, low, step * lambda0 / 2, step * (lambda0 - step * C1**2 - 2 * C2))
