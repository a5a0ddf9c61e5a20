"""The kernel of a DEQ as a module whose variances are learned, well-posed whatever the optimiser does."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from notsodeep.checks import InputError, choice
from notsodeep.models import DEQ
from notsodeep.nn.tensor_kernels import kernel
from notsodeep.recursion import ActivationLike
from notsodeep.well_posedness import largest_recurrent

__all__ = ["DEQKernel"]

_NAMES = ("recurrent", "input", "bias")
_REACH = 40.0  # |log input| and |log bias| beyond which nothing is learned


class DEQKernel(nn.Module):
    """K(x, y) of an infinitely wide DEQ with learnable variances.

        recurrent = limit · sigmoid(raw),   input = exp(raw),   bias = exp(raw)

    with limit just below 1/sup_τ E[φ'(τξ)²], so that every value of the parameters is well-posed.

    Parameters
    ----------
    activation : str, callable or Activation
        φ; see :func:`notsodeep.nn.kernel` for which are possible.
    recurrent, input, bias : float
        The variances to start from. One that is 0 stays 0.
    kind : str
        As in :func:`notsodeep.kernels.kernel`.
    learnable : bool or iterable of str
        Which of them become parameters.
    dtype : torch.dtype, optional
        Of the parameters.

    Examples
    --------
    >>> import torch
    >>> from notsodeep import nn
    >>> k = nn.DEQKernel("relu", recurrent=0.2, input=0.8, kind="ntk")
    >>> [name for name, _ in k.named_parameters()]
    ['raw_recurrent', 'raw_input']
    >>> k(torch.eye(3)).shape
    torch.Size([3, 3])
    >>> print(k.model)
    DEQ(relu(x), recurrent=0.2, input=0.8, bias=0)
    """

    def __init__(
        self,
        activation: ActivationLike,
        recurrent: float,
        input: float,
        bias: float = 0.0,
        kind: str = "ck",
        learnable: bool | Iterable[str] = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._start = DEQ(activation, recurrent, input, bias)
        self.kind = choice(kind, DEQ.kinds, "kind")
        self._limit = largest_recurrent(self._start.activation)
        if self._start.recurrent >= self._limit:
            raise InputError(f"recurrent={recurrent:.6g} leaves no room to learn; use recurrent < {self._limit:.6g}")
        names = _NAMES if learnable is True else () if learnable is False else tuple(learnable)
        for name in [choice(name, _NAMES, "learnable") for name in names]:
            value = getattr(self._start, name)
            if value:
                share = value / self._limit
                raw = math.log(share / (1 - share)) if name == "recurrent" else math.log(value)
                self.register_parameter(f"raw_{name}", nn.Parameter(torch.tensor(raw, dtype=dtype)))

    @property
    def variances(self) -> dict[str, Tensor]:
        """Those that are learned, as tensors with gradients."""
        found = {}
        for name in _NAMES:
            raw = self._parameters.get(f"raw_{name}")
            if raw is not None:
                found[name] = (
                    self._limit * torch.sigmoid(raw) if name == "recurrent" else raw.clamp(-_REACH, _REACH).exp()
                )
        return found

    @property
    def model(self) -> DEQ:
        """The DEQ with the present variances."""
        found = {name: getattr(self._start, name) for name in _NAMES}
        found |= {name: _rounded(value, self._start, name) for name, value in self.variances.items()}
        return DEQ(self._start.activation, **found)

    def forward(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        """K(X, Y) as :func:`notsodeep.nn.kernel` gives it, (…, n, m)."""
        variances = {name: value.to(X.dtype) for name, value in self.variances.items()}
        return kernel(self._start, X, Y, self.kind, variances=variances)

    def extra_repr(self) -> str:
        return f"{self.model}, kind={self.kind}"


def _rounded(value: Tensor, start: DEQ, name: str) -> float:
    """The number; the one it started from where they differ by rounding only."""
    number, first = float(value.detach()), float(getattr(start, name))
    return first if abs(number - first) <= 8 * torch.finfo(value.dtype).eps * first else number
