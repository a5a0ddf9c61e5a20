"""The two networks: the implicit one, which solves for its equilibrium, and the explicit one that replaces it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, count, seeded, warn_convergence
from notsodeep.models import DEQ, Explicit
from notsodeep.nn.activations import TensorActivation
from notsodeep.nn.cell_map import Division
from notsodeep.nn.fixed_point import SolveReport, require_resolvable
from notsodeep.nn.implicit import equilibrium, full_precision, refuse_recording
from notsodeep.nn.initialization import check_dtype, check_input, spectral_norm, standard_entries, symbolic
from notsodeep.nn.layers import CellLayer, layer_outputs
from notsodeep.nn.options import solve_options
from notsodeep.nn.sequential import plain_sequential
from notsodeep.nn.settling import settle

__all__ = ["DEQNet", "EffectiveWeights", "ExplicitNet"]


Learnable: TypeAlias = bool | str | Iterable[str] | Sequence[Iterable[str]]


@dataclass(frozen=True)
class EffectiveWeights:
    """The matrices of h = φ(W h + U x + b), f = a h, with all variances and factors 1/√m multiplied in."""

    W: Tensor  # (m, m)
    U: Tensor  # (m, p)
    b: Tensor | None  # (m,)
    a: Tensor  # (out, m)


class DEQNet(nn.Module):
    """z* = φ(σ_a A z* + σ_b B x + σ_0 b)/√m,  f(x) = a z*, with standard weights A, B, b, a.

    Parameters
    ----------
    deq : DEQ or DeepDEQ
        φ and the variances σ_a², σ_b², σ_0²; or a cell of several layers, normalised layers or skips, where every
        layer has its own weights (``layers[0].recurrent``, …).
    in_features, width, out_features : int
        p, m and the number of outputs.
    solver : {"anderson", "picard", "broyden", "newton"}
        How the equilibrium is found.
    tol : float
        On ‖f(z) − z‖/‖f(z)‖ of every sample.
    max_iter : int
        Evaluations of f.
    seed : int or Generator
    initialization : {"gaussian", "uniform", "rademacher"}
    backward : {"implicit", "unrolled", "phantom"}
        ``implicit``: the implicit function theorem, memory independent of the number of
        iterations; ``unrolled``: the graph of a plain iteration; ``phantom``: the graph of
        the last `phantom_steps` steps (1: the Jacobian-free gradient), an approximation.
    backward_solver, backward_tol, backward_max_iter
        The same for the adjoint equation; the forward values when None.
    phantom_steps : int
    on_failure : {"warn", "raise", "ignore"}
        What to do if a solve does not converge.
    dtype : torch.float32 or torch.float64
    **solver_options
        Options of the solver (``memory``).

    Attributes
    ----------
    last_solve : SolveReport or None
        Iterations, residuals and convergence of the last forward pass; its ``backward``
        is the adjoint solve of that pass.

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> net = nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), in_features=5, width=64, out_features=3)
    >>> net(torch.ones(2, 5)).shape
    torch.Size([2, 3])
    >>> net.last_solve.converged
    True
    >>> cell = nsd.DeepDEQ([nsd.Layer("relu", 0.1, 0.7), nsd.Layer("tanh", 0.2, 0.4, normalize="rms")])
    >>> nn.DEQNet(cell, in_features=5, width=64, out_features=3)(torch.ones(2, 5)).shape
    torch.Size([2, 3])
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        deq: DEQ | DeepDEQ,
        in_features: int,
        width: int,
        out_features: int = 1,
        *,
        solver: str = "anderson",
        tol: float = 1e-6,
        max_iter: int = 200,
        seed: int | np.random.Generator = 0,
        initialization: str = "gaussian",
        backward: str = "implicit",
        backward_solver: str | None = None,
        backward_tol: float | None = None,
        backward_max_iter: int | None = None,
        phantom_steps: int = 1,
        on_failure: str = "warn",
        dtype: torch.dtype | None = None,
        **solver_options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(deq, DEQ | DeepDEQ):
            raise InputError(
                f'deq={deq!r} must be a notsodeep.DEQ or DeepDEQ, e.g. DEQ("relu", recurrent=0.2, input=0.8)'
            )
        self.cell = _one_layer(deq) or deq
        self.in_features = count(in_features, "in_features")
        self.width = count(width, "width")
        self.out_features = count(out_features, "out_features")
        self.solve_options = solve_options(
            type(self),
            solver_options,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            backward=backward,
            backward_solver=backward_solver,
            backward_tol=backward_tol,
            backward_max_iter=backward_max_iter,
            phantom_steps=phantom_steps,
            on_failure=on_failure,
        )
        self.last_solve: SolveReport | None = None
        kind = check_dtype(dtype)
        require_resolvable(self.solve_options.tol, kind)
        require_resolvable(self.solve_options.backward_tol, kind, "backward_tol")
        generator = torch.Generator().manual_seed(seeded(seed))
        draw = partial(standard_entries, initialization=initialization, generator=generator, dtype=kind)
        if isinstance(self.cell, DEQ):
            self.phi = TensorActivation(self.cell.activation)
            self.recurrent, self.input = draw((self.width, self.width)), draw((self.width, self.in_features))
            self.readout = draw((self.out_features, self.width))
            self.register_parameter("bias", draw((self.width,)) if self.cell.bias else None)
        else:
            layers = [CellLayer(layer, self.in_features, self.width, draw) for layer in self.cell.layers]
            self.layers = nn.ModuleList(layers)
            self.readout = draw((self.out_features, self.width))
        self._check_contraction()

    @property
    def deq(self) -> DEQ:
        """The description of a network of one plain layer; `cell` describes every network."""
        if isinstance(self.cell, DEQ):
            return self.cell
        raise InputError(f"this is for a DEQ of one plain layer; the network has the cell {self.cell}")

    def _check_contraction(self) -> None:
        """Refuse settings without an equilibrium, and warn if uniqueness is not guaranteed."""
        if self.solve_options.on_failure == "ignore" or (verdict := self.cell.well_posed):
            return
        if not verdict.infinite_width.holds and not self._normalized:
            raise InputError(f"{self._blamed} too large: {verdict.reason}")
        doubt = self.doubt()
        if doubt and self.solve_options.on_failure == "raise":
            raise InputError(doubt)
        if doubt:
            warn_convergence(doubt)

    def doubt(self) -> str:
        """Why the present weights do not guarantee an equilibrium; empty when they do.

        With normalised layers no weights do; then the infinite-width condition at ‖x‖ = 1 is checked.
        """
        if self._normalized:
            found = self.cell.well_posed.infinite_width
            return "" if found.holds else f"{found}: the equilibrium may not exist or not be unique; lower recurrent"
        gain = self.contraction
        if gain < 1:
            return ""
        bound = "‖σ_a A/√m‖·L" if isinstance(self.cell, DEQ) else "the product of all ‖σ W/√m‖·L, with skips,"
        return (
            f"{self._blamed} too large for these weights: {bound} = {gain:.4g} ≥ 1 at width {self.width}: "
            "the equilibrium may not exist or not be unique; lower recurrent"
        )

    @property
    def _blamed(self) -> str:
        return f"recurrent={self.cell.recurrent:.6g} is" if isinstance(self.cell, DEQ) else "recurrent variances are"

    @property
    def _normalized(self) -> bool:
        return any(layer.normalize for layer in self.cell.layers)

    @property
    def contraction(self) -> float:
        """‖σ_a A/√m‖ · L: below 1 the equilibrium exists and is unique, whatever the input.

        Of several layers the product, with skips and residuals; inf where a layer is normalised.
        """
        if isinstance(self.cell, DEQ):
            return self._factor * spectral_norm(self.recurrent) * self.cell.activation.lipschitz
        slope = 1.0
        for layer in self.cell_layers:
            slope = layer.slope(slope)
        return slope

    @property
    def _factor(self) -> float:
        return math.sqrt(self.deq.recurrent / self.width)

    def effective_weights(self) -> EffectiveWeights:
        """W = σ_a A/√m, U = σ_b B, b = σ_0 b, a/√m, for the state h = √m z; detached."""
        deq = self.deq
        bias = None if self.bias is None else math.sqrt(deq.bias) * self.bias.detach()
        return EffectiveWeights(
            self._factor * self.recurrent.detach(),
            math.sqrt(deq.input) * self.input.detach(),
            bias,
            self.readout.detach() / math.sqrt(self.width),
        )

    def drive(self, x: Tensor) -> Tensor:
        """σ_b B x + σ_0 b, (batch, width)."""
        drive = nn.functional.linear(math.sqrt(self.deq.input) * x, self.input)
        return drive if self.bias is None else drive + math.sqrt(self.deq.bias) * self.bias

    def drives(self, x: Tensor) -> tuple[Tensor, ...]:
        """The same for every layer of a cell."""
        return tuple(layer.drive(x) for layer in self.cell_layers)

    @property
    def cell_layers(self) -> tuple[CellLayer, ...]:
        """The layers of a cell, in the order the state passes them."""
        return cast("tuple[CellLayer, ...]", tuple(self.layers))

    def equilibrium(self, x: Tensor, start: Tensor | None = None) -> Tensor:
        """z*, (…, width); `start` is a state to begin from, e.g. that of a nearby input (not when unrolling)."""
        refuse_recording()
        x = check_input(x, self.in_features, self.readout, rows_only=False)
        if x.ndim != 2:  # as nn.Linear: any leading dimensions
            rows = None if start is None else start.reshape(-1, self.width)
            return self.equilibrium(x.reshape(-1, self.in_features), rows).reshape(*x.shape[:-1], self.width)
        if x.is_meta or len(x) == 0:
            self.last_solve = None
            drive = self.drive(x) if isinstance(self.cell, DEQ) else self.drives(x)[0]
            return 0.0 * drive
        root = math.sqrt(self.width)
        if start is not None:
            if start.shape != (x.shape[0], self.width):
                raise InputError(f"start has shape {tuple(start.shape)} but must be ({x.shape[0]}, {self.width})")
            if self.solve_options.backward == "unrolled" and torch.is_grad_enabled():
                raise InputError(
                    'start= would cut the graph of backward="unrolled": leave it out, '
                    'use torch.no_grad(), or build the network with backward="implicit"'
                )
            start = start.detach() * root
        with full_precision(x):
            if isinstance(self.cell, DEQ):
                state, self.last_solve = equilibrium(
                    self.recurrent, self.drive(x), self._factor, self.phi, self.solve_options, start
                )
            else:
                state, self.last_solve = self.settled(self.drives(x), start)
            return state / root

    def settled(self, drives: tuple[Tensor, ...], start: Tensor | None = None) -> tuple[Tensor, SolveReport]:
        """h* = √m z* of a cell of several layers, (batch, width), and the report of its solve."""

        def cell(state: Tensor, *drives: Tensor) -> Tensor:
            return layer_outputs(self.cell_layers, state, drives)[-1]

        first = torch.zeros_like(drives[0]) if start is None else start
        state, report = settle(cell, first, drives, self.solve_options, Division())
        assert isinstance(state, Tensor)
        return state, report

    def forward(self, x: Tensor, start: Tensor | None = None) -> Tensor:
        """f(x) = a z*, (…, out_features)."""
        return nn.functional.linear(self.equilibrium(x, start), self.readout)

    def extra_repr(self) -> str:
        shape = f"in_features={self.in_features}, width={self.width}, out_features={self.out_features}"
        return f"{self.cell}, {shape}, solver={self.solve_options.solver!r}, tol={self.solve_options.tol:g}"


class ExplicitNet(nn.Module):
    """x⁽ˡ⁾ = σ_l(W_l x⁽ˡ⁻¹⁾ + √bias_l b_l)/√m_l,  f(x) = a x⁽ᴸ⁾, with standard weights W_l, b_l and a.

    Parameters
    ----------
    explicit : Explicit
        The activations and variances of biases, e.g. those of ``notsodeep.match(deq, tau0=1.0).network``.
    in_features : int
    width : int or sequence of int
        m, or one width per layer.
    out_features : int
    seed : int or Generator
    initialization : {"gaussian", "uniform", "rademacher"}
    learnable : bool, str, iterable of str, or one such iterable per layer
        Numbers of the activations that are trained; see :class:`TensorActivation`.
    dtype : torch.float32 or torch.float64

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> net = nn.ExplicitNet(nsd.Explicit(["leaky_relu", "tanh"]), in_features=5, width=64, out_features=3)
    >>> net(torch.ones(2, 5)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        explicit: Explicit,
        in_features: int,
        width: int | Sequence[int],
        out_features: int = 1,
        *,
        seed: int | np.random.Generator = 0,
        initialization: str = "gaussian",
        learnable: Learnable = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(explicit, Explicit):
            raise InputError(f'explicit={explicit!r} must be a notsodeep.Explicit, e.g. Explicit(["relu"])')
        self.initial = explicit
        self.in_features = count(in_features, "in_features")
        self.out_features = count(out_features, "out_features")
        widths = list(width) if isinstance(width, Sequence) else [width] * explicit.depth
        if len(widths) != explicit.depth:
            raise InputError(f"width={width!r} has {len(widths)} entries for {explicit.depth} layers")
        self.widths = [count(one, "width") for one in widths]
        learned = _per_layer(learnable, explicit.depth)
        kind = check_dtype(dtype)
        generator = torch.Generator().manual_seed(seeded(seed))
        phis = zip(explicit.activations, learned, strict=True)
        self.activations = nn.ModuleList(TensorActivation(phi, names, kind) for phi, names in phis)
        shapes = zip(self.widths, [self.in_features, *self.widths[:-1]], strict=True)
        self.weights = nn.ParameterList(standard_entries(shape, initialization, generator, kind) for shape in shapes)
        self.readout = standard_entries((self.out_features, self.widths[-1]), initialization, generator, kind)
        sizes = {str(k): (self.widths[k],) for k, variance in enumerate(explicit.bias) if variance}
        drawn = {k: standard_entries(size, initialization, generator, kind) for k, size in sizes.items()}
        self.biases = nn.ParameterDict(drawn)

    def offset(self, layer: int) -> Tensor | None:
        """√bias_l b_l, (m_l,); None where the layer has no bias."""
        variance = self.initial.bias[layer]
        return math.sqrt(variance) * self.biases[str(layer)] if variance else None

    @property
    def explicit(self) -> Explicit:
        """The description, with the present values of learnable activations."""
        return Explicit(
            [phi.description for phi in self.activations],  # type: ignore[misc]
            self.initial.bias,
            self.initial.normalize,
        )

    @property
    def width(self) -> int:
        """The width of the last layer."""
        return self.widths[-1]

    def on_sphere(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the rows as they enter the first layer, and the factor of each in the last one (None: 1)."""
        if self.initial.normalize is None:
            return x, None
        radius = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / self.initial.normalize
        return x / radius.clamp_min(torch.finfo(x.dtype).tiny), radius

    def features(self, x: Tensor) -> Tensor:
        """x⁽ᴸ⁾, (…, width)."""
        hidden, factor = self._hidden(x)
        return hidden * factor

    def forward(self, x: Tensor) -> Tensor:
        """f(x) = a x⁽ᴸ⁾, (…, out_features)."""
        hidden, factor = self._hidden(x)
        return nn.functional.linear(hidden, self.readout) * factor

    def _hidden(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """φ of the last layer, and the factor of each row: one pass less over a wide layer."""
        x = check_input(x, self.in_features, self.readout, rows_only=False)
        x, radius = self.on_sphere(x)
        size = 1.0
        for k, (weight, phi) in enumerate(zip(self.weights, self.activations, strict=True)):
            x = x if k == 0 else x * size
            x = nn.functional.linear(x, weight, self.offset(k))
            x = phi(x, out=None if torch.is_grad_enabled() or symbolic(x) else x)
            size = 1 / math.sqrt(weight.shape[0])
        return x, size if radius is None else radius * size

    def to_sequential(self) -> nn.Sequential:
        """The same function as plain torch layers, with scales, shifts and biases folded into the weights.

        Nothing of notsodeep is inside, so that ``torch.export``, ONNX and any server take it. An activation that
        ``torch.nn`` lacks, and the normalisation of rows, become code generated by ``torch.fx``.
        """
        return plain_sequential(self)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, widths={self.widths}, out_features={self.out_features}"


def _one_layer(cell: DEQ | DeepDEQ) -> DEQ | None:
    """The DEQ that a cell of one plain layer is."""
    if isinstance(cell, DEQ) or len(cell.layers) > 1 or not cell.layers[0].plain:
        return None
    layer = cell.layers[0]
    return DEQ(layer.activation, layer.recurrent, layer.input, layer.bias)


def _per_layer(learnable: Learnable, depth: int) -> list[bool | list[str]]:
    if isinstance(learnable, bool):
        return [learnable] * depth
    names = [learnable] if isinstance(learnable, str) else list(learnable)
    if all(isinstance(name, str) for name in names):
        return [names] * depth  # type: ignore[list-item]
    if len(names) != depth:
        raise InputError(f"learnable={learnable!r} has {len(names)} entries for {depth} layers")
    return [list(layer) for layer in names]
