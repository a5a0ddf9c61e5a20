"""The four numbers that determine how a network acts on high-dimensional mixtures."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeAlias, overload

import numpy as np

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, positive
from notsodeep.display import card
from notsodeep.gaussian import Moments, moments
from notsodeep.models import DEQ, Explicit
from notsodeep.recursion import Recursion

__all__ = [
    "CellCoefficients",
    "DEQCoefficients",
    "ExplicitCoefficients",
    "FourNumbers",
    "coefficients",
]


class FourNumbers(NamedTuple):
    """(c₁, c₂, c₃, d) of M̄ = c₁ XXᵀ + V [[c₂ ttᵀ + c₃T, c₂t], [c₂tᵀ, c₂]] Vᵀ + (d − τ₀²c₁) I."""

    c1: float
    c2: float
    c3: float
    d: float

    def _repr_html_(self) -> str:
        meanings = ("class means", "variances of the classes", "covariances of the classes", "diagonal")
        names = ("c_1", "c_2", "c_3", "d")
        return card("FourNumbers", [(n, f"{v:.9g}", m) for n, v, m in zip(names, self, meanings, strict=True)])


class _Table:
    """Printing shared by the two records."""

    def _rows(self) -> list[tuple[str, str]]:
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]
        return [(name, f"{value:.12g}") for name, value in values if isinstance(value, float)]

    def __str__(self) -> str:
        return "\n".join(f"{name:<8} {value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        symbols = {"tau0": "τ_0", "gamma2": "γ²", "kappa2": "κ²", "lambda1": "λ_1", "recurrent": "σ_a²"}
        symbols |= {f"{name}{k}": f"{letter}_{k}" for name, letter in (("alpha", "α"), ("beta", "β")) for k in "1234"}
        symbols["tau"] = "τ*" if isinstance(self, DEQCoefficients) else "τ_L"
        return card(type(self).__name__, [(f"{name}, {symbols[name]}", value) for name, value in self._rows()])


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

    def weights(self, kind: str = "ck") -> FourNumbers:
        """Return (c₁, c₂, c₃, d) of the equivalent of one kernel."""
        kind = choice(kind, DEQ.kinds, "kind")
        m, recurrent = self.moments, self.recurrent
        gap = 1 - recurrent * m.slope**2  # D
        slope_gap = 1 - recurrent * m.slope_power
        bend = self.lambda1**2 * m.curvature**2 / gap**2
        if kind == "ck":
            return FourNumbers(self.alpha1, self.alpha2, self.alpha3, self.gamma2)
        if kind == "nngp":  # Λ = σ_a² G + σ_b² P
            return FourNumbers(self.lambda1, recurrent * self.alpha2, recurrent * self.alpha3, self.tau**2)
        if kind == "ntk_frozen_input":
            return FourNumbers(self.beta1, self.beta2, self.beta3, self.kappa2)
        if kind == "ntk":
            return FourNumbers(
                self.alpha1 + self.lambda1 * m.slope**2 / gap,
                self.alpha2 / gap,  # α₂(1 + σ_a² m₁²/D)
                self.alpha3 / gap + bend,
                self.gamma2 + self.tau**2 * m.slope_power / slope_gap,
            )
        return FourNumbers(  # ntk_injected
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

    def weights(self, kind: str = "ck") -> FourNumbers:
        """Return (c₁, c₂, c₃, d) of the equivalent of one kernel."""
        if choice(kind, Explicit.kinds, "kind") == "ck":
            return FourNumbers(self.alpha1, self.alpha2, self.alpha3, self.gamma2)
        return FourNumbers(self.beta1, self.beta2, self.beta3, self.kappa2)


@dataclass(frozen=True)
class CellCoefficients(ExplicitCoefficients):
    """Coefficients of a centred cell of several layers, as those of an explicit network.

    Attributes
    ----------
    tau : float
        Standard deviation of the input of the last layer's activation.
    lambda1, lambda2, lambda3 : float
        NNGP.
    """

    lambda1: float
    lambda2: float
    lambda3: float

    def weights(self, kind: str = "ck") -> FourNumbers:
        """Return (c₁, c₂, c₃, d) of the equivalent of one kernel."""
        if choice(kind, DeepDEQ.kinds, "kind") == "nngp":
            return FourNumbers(self.lambda1, self.lambda2, self.lambda3, self.tau**2)
        return super().weights(kind)


Coefficients: TypeAlias = DEQCoefficients | ExplicitCoefficients | CellCoefficients


@overload
def coefficients(model: DEQ | DeepDEQ | Explicit, tau0: float, kind: str) -> FourNumbers: ...


@overload
def coefficients(model: DEQ | DeepDEQ | Explicit, tau0: float, kind: None = None) -> Coefficients: ...


def coefficients(model: DEQ | DeepDEQ | Explicit, tau0: float, kind: str | None = None) -> Coefficients | FourNumbers:
    """Return the coefficients of ``model.centered(tau0)``.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
        Without biases.
    tau0 : float
        τ₀² = tr C°/p, the mean squared norm of the centred samples.
    kind : str, optional
        Return the four numbers (c₁, c₂, c₃, d) of this kernel alone.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> c = nsd.coefficients(nsd.DEQ("relu", recurrent=0.2, input=0.8), tau0=1.0)
    >>> round(c.gamma2, 12), round(c.alpha1, 12)
    (0.292623929508, 0.210526315789)
    >>> c.weights("nngp").d == c.tau**2
    True
    >>> nsd.coefficients(nsd.DEQ("relu", 0.2, 0.8), 1.0, kind="nngp") == c.weights("nngp")
    True
    """
    tau0 = positive(tau0, "tau0")
    found: Coefficients
    if isinstance(model, DEQ):
        found = _of_deq(model, tau0)
    elif isinstance(model, Explicit):
        if model.normalize is not None:
            raise InputError(
                f"normalize={model.normalize:.6g}: a network that normalises its rows does not see their norms and has "
                "no mixture coefficients; use its kernel"
            )
        found = _of_explicit(model, tau0)
    elif isinstance(model, DeepDEQ):
        found = _of_cell(model, tau0)
    else:
        raise InputError(f"model={model!r} has no high-dimensional coefficients; pass a DEQ, a DeepDEQ or an Explicit")
    return found if kind is None else found.weights(kind)


# covers: [Ling24] Thm 3.3; [Ling24] Thm 3.4; [Ling24] Rem. 3.5; slides of [Ling24] Thm 1
# covers: slides of [Ling24] Thm 2; slides of [Ling24] Remark on Thm 1 and 2
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


def _of_recursion(recursion: Recursion, tau0: float) -> dict[str, float]:
    """Coefficients of a recursion of centred layers, level by level.

    Λ = σ² K + β² P, K = E[φφ], T = E[φ'φ'] (Λ + σ² T): (α₁, α₂, α₃, α₄) of K, (t₁, t₂, t₃, t) of T. A closed
    recursion turns them into equations, each affine in one unknown once the earlier ones are known.
    """
    variances = recursion.passed(recursion.state(tau0**2, centered=True), tau0**2, centered=True)
    levels = [
        (layer, moments(layer.activation, math.sqrt(q)), q, layer.output(q, centered=True)[2] ** 2)
        for layer, q in zip(recursion.layers, variances, strict=True)
    ]
    first = last = np.zeros(8)  # α₁, α₄, α₂, α₃, t₁, t, t₂, t₃
    gains = np.ones(3)
    for layer, m, _, divisor in levels:
        diagonal = 0.0 if layer.normalize else m.power_curvature / 2
        gains *= layer.recurrent * np.array([m.slope**2 / divisor, diagonal, m.slope_power / divisor])
    gain = gains[[0, 1, 0, 0, 0, 2, 0, 0]]
    for _ in range(4 if recursion.closed else 1):
        values = last = first
        for layer, m, q, divisor in levels:
            slope2, bend2, sigma2 = m.slope**2, m.curvature**2, layer.recurrent
            lambda1, lambda4, lambda2, lambda3 = sigma2 * values[:4] + layer.input * np.array([1, 1, 0, 0])
            s1, s, s2, s3 = np.array([lambda1, q, lambda2, lambda3]) + sigma2 * values[4:]
            values = np.array([
                slope2 * lambda1,
                0.0 if layer.normalize else m.power_curvature / 2 * lambda4,
                slope2 * lambda2 + (0.0 if layer.normalize == "layer" else bend2 * lambda4**2 / 4),
                slope2 * lambda3 + bend2 * lambda1**2 / 2,
                slope2 * s1,
                m.slope_power * s,
                slope2 * s2,
                slope2 * s3 + bend2 * lambda1 * s1,
            ]) / divisor  # fmt: skip
            last = np.array([lambda1, lambda2, lambda3, q])
        first = first + (values - first) / (1 - gain) if recursion.closed else values
    alpha1, alpha4, alpha2, alpha3, t1, t, t2, t3 = (float(value) for value in first)
    layer, m, q, _ = levels[-1]
    gamma2 = 1.0 if layer.normalize else m.power
    return {
        "gamma2": gamma2,
        "alpha1": alpha1,
        "alpha2": alpha2,
        "alpha3": alpha3,
        "alpha4": alpha4,
        "kappa2": gamma2 + t,
        "beta1": alpha1 + t1,
        "beta2": alpha2 + t2,
        "beta3": alpha3 + t3,
        **dict(zip(("lambda1", "lambda2", "lambda3", "tau2"), (float(value) for value in last), strict=True)),
    }


# covers: [Ling24] Thm 3.8; slides of [Ling24] Thm 3
def _of_explicit(model: Explicit, tau0: float) -> ExplicitCoefficients:
    found = _of_recursion(model.centered(tau0).recursion(), tau0)
    names = {f.name for f in fields(ExplicitCoefficients)} & set(found)
    return ExplicitCoefficients(tau0=tau0, tau=math.sqrt(found["gamma2"]), **{name: found[name] for name in names})


def _of_cell(model: DeepDEQ, tau0: float) -> CellCoefficients:
    found = _of_recursion(model.centered(tau0).recursion(), tau0)
    return CellCoefficients(tau0=tau0, tau=math.sqrt(found.pop("tau2")), **found)
