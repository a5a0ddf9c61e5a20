"""The few numbers through which a network acts on high-dimensional mixtures."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from notsodeep.checks import InputError, choice, positive
from notsodeep.gaussian import Moments, moments
from notsodeep.models import DEQ, Explicit

__all__ = [
    "DEQCoefficients",
    "ExplicitCoefficients",
    "Weights",
    "coefficients",
]


class Weights(NamedTuple):
    """(c₁, c₂, c₃, d) of M̄ = c₁ XXᵀ + V [[c₂ ttᵀ + c₃T, c₂t], [c₂tᵀ, c₂]] Vᵀ + (d − τ₀²c₁) I."""

    c1: float
    c2: float
    c3: float
    d: float


class _Table:
    """Printing shared by the two records."""

    def __str__(self) -> str:
        rows = [(f.name, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]
        return "\n".join(f"{name:<8} {value:.12g}" for name, value in rows if isinstance(value, float))


@dataclass(frozen=True)
class DEQCoefficients(_Table):
    """Coefficients of a centred DEQ [Ling24, Thms 3.3–3.4].

    Attributes
    ----------
    tau0, tau : float
        τ₀ of the data and τ* of the pre-activation.
    gamma2, kappa2 : float
        γ² and κ², the diagonals of the CK and of the NTK with frozen input weights.
    alpha1, alpha2, alpha3, alpha4, lambda1 : float
        CK; λ₁ = σ_a²α₁ + σ_b².
    beta1, beta2, beta3 : float
        NTK with frozen input weights.
    moments : Moments
        Of the centred activation at τ*.
    """

    tau0: float
    tau: float
    gamma2: float
    alpha1: float
    alpha2: float
    alpha3: float
    alpha4: float
    lambda1: float
    kappa2: float
    beta1: float
    beta2: float
    beta3: float
    recurrent: float
    moments: Moments

    def weights(self, kind: str = "ck") -> Weights:
        """Return (c₁, c₂, c₃, d) of the equivalent of one kernel."""
        kind = choice(kind, DEQ.kinds, "kind")
        m, recurrent = self.moments, self.recurrent
        gap = 1 - recurrent * m.slope**2  # D
        slope_gap = 1 - recurrent * m.slope_power
        bend = self.lambda1**2 * m.curvature**2 / gap**2
        if kind == "ck":
            return Weights(self.alpha1, self.alpha2, self.alpha3, self.gamma2)
        if kind == "nngp":  # Λ = σ_a² G + σ_b² P
            return Weights(self.lambda1, recurrent * self.alpha2, recurrent * self.alpha3, self.tau**2)
        if kind == "ntk_frozen_input":
            return Weights(self.beta1, self.beta2, self.beta3, self.kappa2)
        if kind == "ntk":
            return Weights(
                self.alpha1 + self.lambda1 * m.slope**2 / gap,
                self.alpha2 / gap,  # α₂(1 + σ_a² m₁²/D)
                self.alpha3 / gap + bend,
                self.gamma2 + self.tau**2 * m.slope_power / slope_gap,
            )
        return Weights(  # ntk_injected
            self.lambda1 / gap,
            recurrent * self.alpha2 / gap,
            recurrent * (self.alpha3 / gap + bend),
            self.tau**2 / slope_gap,
        )


@dataclass(frozen=True)
class ExplicitCoefficients(_Table):
    """Coefficients of a centred explicit network [Ling24, Thm 3.8; Gu22].

    Attributes
    ----------
    tau0, tau : float
        τ₀ of the data and τ_L of the last layer.
    gamma2, kappa2 : float
        γ² = τ_L² and κ², the diagonals of the CK and of the NTK.
    alpha1, alpha2, alpha3, alpha4 : float
        CK.
    beta1, beta2, beta3 : float
        NTK.
    """

    tau0: float
    tau: float
    gamma2: float
    alpha1: float
    alpha2: float
    alpha3: float
    alpha4: float
    kappa2: float
    beta1: float
    beta2: float
    beta3: float

    def weights(self, kind: str = "ck") -> Weights:
        """Return (c₁, c₂, c₃, d) of the equivalent of one kernel."""
        if choice(kind, Explicit.kinds, "kind") == "ck":
            return Weights(self.alpha1, self.alpha2, self.alpha3, self.gamma2)
        return Weights(self.beta1, self.beta2, self.beta3, self.kappa2)


def coefficients(model: DEQ | Explicit, tau0: float) -> DEQCoefficients | ExplicitCoefficients:
    """Return the coefficients of ``model.centered(tau0)``.

    Parameters
    ----------
    model : DEQ or Explicit
        A DEQ must have bias 0.
    tau0 : float
        τ₀² = tr C°/p, the mean squared norm of the centred samples.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> c = nsd.coefficients(nsd.DEQ("relu", recurrent=0.2, input=0.8), tau0=1.0)
    >>> round(c.gamma2, 12), round(c.alpha1, 12)
    (0.292623929508, 0.210526315789)
    >>> c.weights("nngp").d == c.tau**2
    True
    """
    tau0 = positive(tau0, "tau0")
    if isinstance(model, DEQ):
        return _of_deq(model, tau0)
    if isinstance(model, Explicit):
        if model.normalize is not None:
            raise InputError(
                f"normalize={model.normalize:.6g}: a network that normalises its rows does not see their norms and has "
                "no mixture coefficients; use its kernel"
            )
        return _of_explicit(model, tau0)
    raise InputError(f"model={model!r} has no high-dimensional coefficients; pass a DEQ or an Explicit")


def _of_deq(model: DEQ, tau0: float) -> DEQCoefficients:
    centered = model.centered(tau0)
    recurrent, drive = model.recurrent, model.input
    tau2 = model.fixed_variance(drive * tau0**2, centered=True)
    m = moments(centered.activation, math.sqrt(tau2))
    gap = 1 - recurrent * m.slope**2
    alpha1 = drive * m.slope**2 / gap
    alpha4 = drive / (1 - recurrent * m.power_curvature / 2)
    lambda1 = drive / gap
    alpha2 = m.curvature**2 * alpha4**2 / (4 * gap)
    alpha3 = m.curvature**2 * lambda1**2 / (2 * gap)
    beta1 = alpha1 / gap
    return DEQCoefficients(
        tau0=tau0,
        tau=math.sqrt(tau2),
        gamma2=m.power,
        alpha1=alpha1,
        alpha2=alpha2,
        alpha3=alpha3,
        alpha4=alpha4,
        lambda1=lambda1,
        kappa2=m.power / (1 - recurrent * m.slope_power),
        beta1=beta1,
        beta2=alpha2 / gap,
        beta3=(alpha3 + beta1 * recurrent * m.curvature**2 * lambda1) / gap,
        recurrent=recurrent,
        moments=m,
    )


def _of_explicit(model: Explicit, tau0: float) -> ExplicitCoefficients:
    alpha1, alpha2, alpha3, alpha4 = 1.0, 0.0, 0.0, 1.0
    beta1, beta2, beta3, kappa2 = 1.0, 0.0, 0.0, tau0**2
    tau = tau0
    for layer in model.centered(tau0).activations:
        m = moments(layer, tau)
        slope2, bend2 = m.slope**2, m.curvature**2
        old = alpha1
        alpha1 = slope2 * alpha1
        alpha2 = slope2 * alpha2 + bend2 * alpha4**2 / 4
        alpha3 = slope2 * alpha3 + bend2 * old**2 / 2
        alpha4 = m.power_curvature / 2 * alpha4
        beta3 = alpha3 + slope2 * beta3 + beta1 * bend2 * old
        beta1, beta2 = alpha1 + slope2 * beta1, alpha2 + slope2 * beta2
        kappa2 = m.power + m.slope_power * kappa2
        tau = math.sqrt(m.power)
    return ExplicitCoefficients(
        tau0=tau0,
        tau=tau,
        gamma2=tau**2,
        alpha1=alpha1,
        alpha2=alpha2,
        alpha3=alpha3,
        alpha4=alpha4,
        kappa2=kappa2,
        beta1=beta1,
        beta2=beta2,
        beta3=beta3,
    )
