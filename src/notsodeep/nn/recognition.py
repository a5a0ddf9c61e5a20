"""Match the explicit network to a user's own DEQ module."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.activations import Activation, activation
from notsodeep.checks import InputError, UnknownOptionError, count, nearest
from notsodeep.display import card
from notsodeep.gaussian import moments
from notsodeep.matching import Match, match
from notsodeep.models import DEQ
from notsodeep.nn.initialization import spectral_norm
from notsodeep.nn.networks import DEQNet, ExplicitNet
from notsodeep.nn.training import History, evaluating, fit

__all__ = ["Assumption", "ModuleMatch", "match_module"]


_SET_HERE = ("net", "X", "y", "epochs", "loss", "seed")  # set by match_module itself when it calls fit


@dataclass(frozen=True)
class Assumption:
    """One assumption of the theory on the weights or the data: ``value ≤ limit``."""

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
        φ unchanged and the measured σ_a², σ_b², without bias; ``deq.centered(tau0)`` is matched.
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

    def _repr_html_(self) -> str:
        rows = [
            (one.name, f"{one.value:.4g}", f"{one.limit:.4g}", "yes" if one.holds else f"no: {one.meaning}")
            for one in self.assumptions
        ]
        verdict = (self.trustworthy, "all assumptions hold" if self.trustworthy else "an assumption fails")
        notes = [f"{self.deq} at τ0 = {self.tau0:.4g}, ‖W‖ = {self.norm:.4g}", f"→ {self.match.network}"]
        return card("ModuleMatch", rows, header=("assumption", "value", "limit", "holds"), verdict=verdict, notes=notes)


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
        Inputs as the network receives them.
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
    known = [name for name in inspect.signature(fit).parameters if name not in _SET_HERE]
    for name in options:
        if name not in known:
            raise UnknownOptionError(
                f"match_module has no option {name!r}{nearest(name, known)} (fit takes {', '.join(known)})"
            )
    if count(distill, "distill", minimum=0) == 0 and options:
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
    design = match(deq, tau0=tau0, kind=kind)
    assumptions = _assumptions(W, U, b, deq, tau0, norm, squared)
    outputs = _outputs(module, X) if out_features is None or distill else None
    network = ExplicitNet(
        design.network,
        p,
        m if width is None else width,
        out_features if out_features is not None else 1 if outputs is None else outputs.shape[1],
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
    W: Tensor, U: Tensor, b: Tensor | None, deq: DEQ, tau0: float, norm: float, squared: Tensor
) -> tuple[Assumption, ...]:
    m, p = U.shape
    sigma = math.sqrt(deq.recurrent)
    root = math.sqrt(m)
    at_rest = moments(deq.activation, math.sqrt(deq.fixed_variance(deq.input * tau0**2, centered=True)))
    found = [
        Assumption(
            "|E φ(τ*ξ)|/√Var φ(τ*ξ)",
            abs(at_rest.mean) / math.sqrt(at_rest.power - at_rest.mean**2),
            0.05,
            "φ is centred, as the match is; train deq.centered(tau0) instead, or distil",
        ),
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
        if any(one is not None for one in (weight, input_weight, bias, phi)):
            raise InputError(
                "weight=, input_weight=, bias= and activation= are for other modules; a DEQNet has its own"
            )
        effective = module.effective_weights()
        return effective.W, effective.U, effective.b, module.deq.activation
    recurrent = _find(module, ("W", "weight", "recurrent")) if weight is None else weight
    drive = _find(module, ("U", "input_weight", "input")) if input_weight is None else input_weight
    W, U = _matrix(recurrent, "W", "weight"), _matrix(drive, "U", "input_weight")
    if W.shape[0] != W.shape[1] or U.shape[0] != W.shape[0]:
        raise InputError(f"W has shape {tuple(W.shape)} and U {tuple(U.shape)}; expected (m, m) and (m, p)")
    for name, matrix in (("W", W), ("U", U)):
        if not bool(matrix.isfinite().all()):
            raise InputError(f"{name} holds NaN or infinite values")
    own = _find(module, ("b", "bias")) if bias is None else bias
    offsets = [own, *(getattr(one, "bias", None) for one in (recurrent, drive))]  # nn.Linear brings its own
    given = phi if phi is not None else _find(module, ("phi", "activation", "act"))
    if given is None:
        raise InputError("the activation was not found; pass activation=, e.g. activation='relu'")
    total = sum(torch.as_tensor(one).detach() for one in offsets if isinstance(one, Tensor | list | np.ndarray))
    return W, U, total if isinstance(total, Tensor) else None, as_activation(given)


def _find(module: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = module.get(name) if isinstance(module, Mapping) else getattr(module, name, None)
        if value is not None:
            return value
    return None


def _matrix(value: Any, symbol: str, parameter: str) -> Tensor:
    value = getattr(value, "weight", value)  # an nn.Linear
    if value is None:
        raise InputError(f"no attribute {symbol} was found; pass {parameter}=")
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
    """Return an Activation from a name, an Activation, ``torch.relu``, ``nn.ReLU()`` or any tensor function.

    A function counts as a registered one if it has the same name and, on a grid, the same values.
    """
    if isinstance(given, str | Activation):
        return activation(given)
    function = copy.deepcopy(given).double().eval() if isinstance(given, torch.nn.Module) else given

    def through_torch(x: Any) -> Any:
        with torch.no_grad():
            return function(torch.as_tensor(np.asarray(x, dtype=np.float64))).numpy()

    candidate = _candidate(function)
    grid = np.linspace(-9.0, 9.0, 721)
    try:
        if candidate is not None and np.allclose(through_torch(grid), candidate(grid), rtol=1e-6, atol=1e-6):
            return candidate
        return activation(through_torch)
    except (TypeError, AttributeError):  # not a function of tensors
        return activation(given)
    except RuntimeError as error:
        raise InputError(
            f"activation={given!r} cannot be evaluated elementwise in float64 ({error}); pass a name or an nn.Module"
        ) from None


def _candidate(function: Any) -> Activation | None:
    if isinstance(function, torch.nn.LeakyReLU):
        return activation("leaky_relu", a=1.0, b=function.negative_slope)
    if isinstance(function, torch.nn.PReLU) and function.num_parameters == 1:
        return activation("leaky_relu", a=1.0, b=float(function.weight.detach()))
    name = type(function).__name__ if isinstance(function, torch.nn.Module) else getattr(function, "__name__", "")
    known = _TORCH_NAMES.get(name.lower())
    return None if known is None else activation(known)


def _outputs(module: Any, X: Tensor) -> Tensor | None:
    """Outputs of the module at X, (n, outputs), in evaluation mode; None for bare weights."""
    if not callable(module):
        return None
    with torch.no_grad(), evaluating(module) if isinstance(module, torch.nn.Module) else nullcontext():
        outputs = module(X)
    if isinstance(outputs, tuple | list) and outputs:
        outputs = outputs[0]
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != len(X):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(
            f"the module returns {shape} for {len(X)} samples; wrap it so that it returns (batch, outputs)"
        )
    return outputs.detach().reshape(len(X), -1)
