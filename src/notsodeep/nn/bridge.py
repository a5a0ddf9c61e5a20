"""From somebody's DEQ to the explicit network that replaces it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.activations import Activation, activation
from notsodeep.checks import InputError
from notsodeep.matching import Match, match
from notsodeep.models import DEQ
from notsodeep.nn.initialization import spectral_norm
from notsodeep.nn.networks import DEQNet, ExplicitNet
from notsodeep.nn.training import History, fit

__all__ = ["Assumption", "ModuleMatch", "match_module"]


@dataclass(frozen=True)
class Assumption:
    """One thing the theory asks of the weights or the data: ``value ≤ limit``."""

    name: str
    value: float
    limit: float
    meaning: str

    @property
    def holds(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.holds else "FAIL"
        return f"{mark} {self.name} = {self.value:.4g} (limit {self.limit:.4g}): {self.meaning}"


@dataclass(frozen=True)
class ModuleMatch:
    """The explicit equivalent of a module, and how far the theory applies to it.

    Attributes
    ----------
    network : ExplicitNet
        Fresh weights, or distilled ones.
    match : Match
        The design: activations, target and residual.
    deq : DEQ
        What was measured: φ, σ_a², σ_b², σ_0².
    tau0 : float
        Root mean squared norm of the inputs.
    norm : float
        ‖W‖.
    assumptions : tuple of Assumption
    distillation : History or None
    """

    network: ExplicitNet
    match: Match
    deq: DEQ
    tau0: float
    norm: float
    assumptions: tuple[Assumption, ...]
    distillation: History | None = None

    @property
    def trustworthy(self) -> bool:
        """Every assumption holds."""
        return all(one.holds for one in self.assumptions)

    def __str__(self) -> str:
        lines = [f"{self.deq} at tau0 = {self.tau0:.4g}, ‖W‖ = {self.norm:.4g}", f"→ {self.match.network}"]
        return "\n".join([*lines, *(f"  {one}" for one in self.assumptions)])


def match_module(
    module: torch.nn.Module | Mapping[str, Any],
    X: Tensor,
    *,
    weight: Tensor | None = None,
    input_weight: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str | Activation | Callable[[Any], Any] | None = None,
    kind: str = "ck",
    width: int | None = None,
    out_features: int | None = None,
    seed: int = 0,
    distill: int = 0,
    **options: Any,
) -> ModuleMatch:
    """Measure σ_a² = ‖W‖_F²/m, σ_b² = ‖U‖_F²/(m p) of h = φ(W h + U x + b) and match the DEQ they describe.

    Parameters
    ----------
    module : DEQNet, nn.Module or mapping
        Anything with matrices ``W`` (m×m), ``U`` (m×p) and an activation ``phi`` (optionally
        a vector ``b``); attributes may themselves be ``nn.Linear``.
    X : Tensor, (n, p)
        Inputs as the network sees them.
    weight, input_weight, bias, activation
        The same given explicitly, for modules that use other names.
    kind : str
        The kernel to match: ``"ck"`` or ``"ntk"``.
    width, out_features, seed
        Of the explicit network; by default m, and the number of outputs of the module.
    distill : int
        Epochs of training the explicit network on the module's outputs at `X`.
    **options
        Passed to :func:`fit` when distilling (``lr``, ``batch_size``, …).

    Returns
    -------
    ModuleMatch

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> deep = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), in_features=100, width=400)
    >>> found = nn.match_module(deep, torch.randn(50, 100) / 10)
    >>> found.trustworthy, found.match.exact, found.network.explicit.depth
    (True, True, 1)
    """
    if distill == 0 and options:
        raise InputError(f"{sorted(options)} belong to distillation; pass distill=<epochs> as well")
    W, U, b, phi = _parts(module, weight, input_weight, bias, activation)
    if not isinstance(X, Tensor) or X.ndim != 2 or X.shape[1] != U.shape[1] or X.shape[0] == 0:
        shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
        raise InputError(f"X has shape {shape} but the module takes (batch, {U.shape[1]})")
    if not bool(X.isfinite().all()):
        raise InputError("X holds NaN or infinite values; remove or impute them")
    m, p = U.shape
    squared = (X.detach().double() ** 2).sum(1)
    tau0 = math.sqrt(float(squared.mean()))
    deq = DEQ(
        phi,
        recurrent=float((W.double() ** 2).sum()) / m,
        input=float((U.double() ** 2).sum()) / (m * p),
    )
    norm = spectral_norm(W)
    assumptions = _assumptions(W, U, b, deq, norm, squared)
    design = match(deq, tau0=tau0, kind=kind)
    outputs = _outputs(module, X) if out_features is None or distill else None
    network = ExplicitNet(
        design.network,
        p,
        width or m,
        out_features or (1 if outputs is None else outputs.shape[1]),
        seed=seed,
        dtype=X.dtype,
    )
    history = None
    if distill:
        if outputs is None:
            raise InputError("distill needs a module that can be called on X; these are only weights")
        history = fit(network, X, outputs, loss="squared", epochs=distill, seed=seed, **options)
    return ModuleMatch(network, design, deq, tau0, norm, assumptions, history)


def _assumptions(
    W: Tensor, U: Tensor, b: Tensor | None, deq: DEQ, norm: float, squared: Tensor
) -> tuple[Assumption, ...]:
    m, p = U.shape
    sigma = math.sqrt(deq.recurrent)
    root = math.sqrt(m)
    found = [
        Assumption("‖W‖·L", norm * deq.activation.lipschitz, 1.0, "the equilibrium exists and is unique"),
        # the edge of a random matrix is 2σ_a with fluctuations m^{-2/3}; training adds outliers
        Assumption("‖W‖/(2σ_a)", norm / (2 * sigma) if sigma else 0.0, 1 + 2 * m ** (-2 / 3) + 0.05, "W looks random"),
        # the mean of m² (or mp) independent entries, in standard deviations
        Assumption("mean of W, in σ", abs(float(W.double().mean())) * m / (sigma / root or 1.0), 4.0, "W is centred"),
        Assumption(
            "mean of U, in σ",
            abs(float(U.double().mean())) * math.sqrt(m * p / deq.input) if deq.input else 0.0,
            4.0,
            "U is centred",
        ),
        Assumption(
            "spread of ‖x‖²",
            float(squared.std(correction=0) / squared.mean()),
            0.5,
            "inputs have nearly equal norms; rescale them otherwise",
        ),
    ]
    if b is not None:
        size = float(b.double().norm()) / root
        found.append(Assumption("bias, root mean square", size, 0.0, "the theory is for no bias; it is ignored"))
    return tuple(found)


def _parts(
    module: Any,
    weight: Tensor | None,
    input_weight: Tensor | None,
    bias: Tensor | None,
    phi: str | Activation | Callable[[Any], Any] | None,
) -> tuple[Tensor, Tensor, Tensor | None, Activation]:
    if isinstance(module, DEQNet):
        effective = module.effective_weights()
        return effective.W, effective.U, effective.b, module.deq.activation
    W = _matrix(module, ("W", "weight", "recurrent"), weight, "weight")
    U = _matrix(module, ("U", "input_weight", "input"), input_weight, "input_weight")
    if W.shape[0] != W.shape[1] or U.shape[0] != W.shape[0]:
        raise InputError(f"W has shape {tuple(W.shape)} and U {tuple(U.shape)}; expected (m, m) and (m, p)")
    for name, matrix in (("W", W), ("U", U)):
        if not bool(matrix.isfinite().all()):
            raise InputError(f"{name} holds NaN or infinite values")
    offset = bias if bias is not None else _find(module, ("b", "bias"))
    given = phi if phi is not None else _find(module, ("phi", "activation", "act"))
    if given is None:
        raise InputError("the activation was not found; pass activation=, e.g. activation='relu'")
    return W, U, None if offset is None else torch.as_tensor(offset).detach(), as_activation(given)


def _find(module: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = module.get(name) if isinstance(module, Mapping) else getattr(module, name, None)
        if value is not None:
            return value
    return None


def _matrix(module: Any, names: tuple[str, ...], given: Tensor | None, parameter: str) -> Tensor:
    value = given if given is not None else _find(module, names)
    value = getattr(value, "weight", value)  # an nn.Linear
    if value is None:
        raise InputError(f"no attribute {' or '.join(names)} was found; pass {parameter}=")
    matrix = torch.as_tensor(value).detach()
    if matrix.ndim != 2:
        raise InputError(f"{parameter} has shape {tuple(matrix.shape)} but must be a matrix")
    return matrix


_TORCH_NAMES = {"relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "silu": "swish", "gelu": "gelu", "erf": "erf"}
_TORCH_NAMES |= {
    "softplus": "softplus",
    "sin": "sin",
    "hardtanh": "hard_tanh",
    "identity": "identity",
    "atan": "arctan",
}


def as_activation(given: Any) -> Activation:
    """Return an Activation from a name, an Activation, ``torch.relu``, ``nn.ReLU()`` or any tensor function."""
    if isinstance(given, str | Activation):
        return activation(given)
    if isinstance(given, torch.nn.LeakyReLU):
        return activation("leaky_relu", a=1.0, b=given.negative_slope)
    name = type(given).__name__ if isinstance(given, torch.nn.Module) else getattr(given, "__name__", "")
    known = _TORCH_NAMES.get(name.lower())
    if known is not None and not (known == "gelu" and getattr(given, "approximate", "none") != "none"):
        return activation(known)

    def through_torch(x: Any) -> Any:
        with torch.no_grad():
            return given(torch.as_tensor(np.asarray(x, dtype=np.float64))).numpy()

    try:
        return activation(through_torch)
    except TypeError:
        return activation(given)


def _outputs(module: Any, X: Tensor) -> Tensor | None:
    if not callable(module):
        return None
    with torch.no_grad():
        outputs = module(X)
    return outputs.detach() if isinstance(outputs, Tensor) and outputs.ndim == 2 else None
