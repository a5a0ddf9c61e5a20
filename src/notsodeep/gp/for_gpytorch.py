"""The kernel of a DEQ in GPyTorch, and so in BoTorch."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from notsodeep.checks import InputError, choice
from notsodeep.models import DEQ
from notsodeep.nn.tensor_kernels import kernel
from notsodeep.recursion import ActivationLike
from notsodeep.well_posedness import largest_recurrent

__all__ = ["GPyTorchDEQKernel"]

_NAMES = ("recurrent", "input", "bias")


class GPyTorchDEQKernel(Kernel):  # type: ignore[misc]
    """K(x, y) of an infinitely wide DEQ, its variances constrained to where it is well-posed.

    Parameters
    ----------
    activation : str, callable or Activation
        φ; see :func:`notsodeep.nn.kernel` for which are possible.
    recurrent, input, bias : float
        σ_a², σ_b², σ_0² to start from. One that is 0 stays 0.
    kind : str
        As in :func:`notsodeep.kernels.kernel`; ``"ck"`` and ``"nngp"`` are priors of the network itself.
    recurrent_prior, input_prior, bias_prior : gpytorch.priors.Prior, optional
    **options
        Of ``gpytorch.kernels.Kernel``: `batch_shape`, `active_dims`, and `ard_num_dims`, with which every feature is
        divided by its own length scale.

    Examples
    --------
    >>> import torch
    >>> from notsodeep.gp import GPyTorchDEQKernel
    >>> k = GPyTorchDEQKernel("erf", recurrent=0.3, input=1.0, bias=0.2)
    >>> k(torch.eye(3)).to_dense().shape
    torch.Size([3, 3])
    >>> sorted(name for name, _ in k.named_parameters())
    ['raw_bias', 'raw_input', 'raw_recurrent']
    """

    is_stationary = False

    def __init__(
        self,
        activation: ActivationLike = "normalized_relu",
        recurrent: float = 0.25,
        input: float = 1.0,
        bias: float = 0.5,
        kind: str = "nngp",
        *,
        recurrent_prior: Any = None,
        input_prior: Any = None,
        bias_prior: Any = None,
        **options: Any,
    ) -> None:
        self.has_lengthscale = options.get("ard_num_dims") is not None
        super().__init__(**options)
        self._start = DEQ(activation, recurrent, input, bias)
        self.kind = choice(kind, DEQ.kinds, "kind")
        limit = largest_recurrent(self._start.activation)
        if self._start.recurrent >= limit:
            raise InputError(f"recurrent={recurrent:.6g} leaves no room to learn; use recurrent < {limit:.6g}")
        priors = {"recurrent": recurrent_prior, "input": input_prior, "bias": bias_prior}
        for name in _NAMES:
            value = getattr(self._start, name)
            if not value:
                continue
            self.register_parameter(f"raw_{name}", nn.Parameter(torch.zeros(*self.batch_shape, 1, 1)))
            self.register_constraint(f"raw_{name}", Interval(0.0, limit) if name == "recurrent" else Positive())
            self.initialize(**{f"raw_{name}": self._constraint(name).inverse_transform(torch.tensor(value))})
            if priors[name] is not None:
                self.register_prior(
                    f"{name}_prior",
                    priors[name],
                    lambda module, name=name: module.variance(name),
                    lambda module, value, name=name: module.set_variance(name, value),
                )

    def _constraint(self, name: str) -> Any:
        return getattr(self, f"raw_{name}_constraint")

    def variance(self, name: str) -> Tensor:
        """The variance of this name, (…, 1, 1)."""
        raw = getattr(self, f"raw_{name}")
        result: Tensor = self._constraint(name).transform(raw)
        return result

    def set_variance(self, name: str, value: float | Tensor) -> None:
        """Give a variance another value."""
        raw = getattr(self, f"raw_{choice(name, self._learned, 'name')}")
        self.initialize(
            **{f"raw_{name}": self._constraint(name).inverse_transform(torch.as_tensor(value, dtype=raw.dtype))}
        )

    @property
    def _learned(self) -> list[str]:
        return [name for name in _NAMES if hasattr(self, f"raw_{name}")]

    @property
    def model(self) -> DEQ:
        """The DEQ with the present variances; of a batch the first."""
        found = {name: getattr(self._start, name) for name in _NAMES}
        found |= {name: float(self.variance(name).detach().flatten()[0]) for name in self._learned}
        return DEQ(self._start.activation, **found)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        """K(x1, x2) (…, n, m), or its diagonal (…, n)."""
        if self.has_lengthscale:
            x1, x2 = x1.div(self.lengthscale), x2.div(self.lengthscale)
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        variances = {name: self.variance(name)[..., 0, 0].to(x1.dtype) for name in self._learned}
        if not diag:
            return kernel(self._start, x1, None if same else x2, self.kind, variances=variances)
        variances = {name: value.unsqueeze(-1) if value.ndim else value for name, value in variances.items()}
        pairs = kernel(self._start, x1.unsqueeze(-2), x2.unsqueeze(-2), self.kind, variances=variances)
        return pairs[..., 0, 0]
