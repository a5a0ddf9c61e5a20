"""Empirical kernels of a finite network at its present weights; their infinite-width limits are in `kernels`."""

from __future__ import annotations

import torch
from torch import Tensor

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice
from notsodeep.nn.implicit import Adjoint, LayerMap, solve_adjoint, solve_equilibrium
from notsodeep.nn.initialization import check_input
from notsodeep.nn.layers import layer_outputs
from notsodeep.nn.networks import DEQNet, ExplicitNet

__all__ = ["empirical_kernel"]


@torch.no_grad()
def empirical_kernel(net: DEQNet | ExplicitNet, X: Tensor, kind: str = "ck", Y: Tensor | None = None) -> Tensor:
    """⟨z(x), z(y)⟩ or ⟨∇f(x), ∇f(y)⟩ of a finite network.

    Parameters
    ----------
    net : DEQNet or ExplicitNet
    X, Y : Tensor, (n, p) and (k, p)
        `Y` is `X` when None.
    kind : {"ck", "ntk", "ntk_frozen_input"}
        ``ck``: gradient in the readout only; ``ntk``: in all weights;
        ``ntk_frozen_input`` (DEQ of one layer only): in readout and recurrent weights. With several
        outputs the mean over outputs.

    Returns
    -------
    Tensor, (n, k)

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), in_features=4, width=128)
    >>> nn.empirical_kernel(net, torch.eye(4), kind="ntk").shape
    torch.Size([4, 4])
    """
    rows = _layers(net, X, kind)
    columns = rows if Y is None else _layers(net, Y, kind)
    total = torch.zeros(1, dtype=net.readout.dtype, device=net.readout.device)
    for (row_errors, row_inputs), (column_errors, column_inputs) in zip(rows, columns, strict=True):
        products = sum(one @ other.t() for one, other in zip(row_inputs, column_inputs, strict=True))
        if row_errors is not None and column_errors is not None:
            outputs = row_errors.shape[0]
            products = products * torch.einsum("oim,ojm->ij", row_errors, column_errors) / outputs
        total = total + products
    return total


# A layer u = Σ_k M_k v_k has ∂f/∂M_k = e v_kᵀ with e = ∂f/∂u, hence the kernel Σ_layers ⟨e, e'⟩ Σ_k ⟨v_k, v_k'⟩.
# Each layer is (errors (out, n, m), [inputs (n, ·), …]); the readout has ⟨e, e'⟩ = 1 per output.
Layer = tuple[Tensor | None, list[Tensor]]


def _layers(net: object, X: Tensor, kind: str) -> list[Layer]:
    if isinstance(net, DEQNet) and isinstance(net.cell, DeepDEQ):
        return _cell_layers(net, X, choice(kind, ("ck", "ntk"), "kind"))
    if isinstance(net, DEQNet):
        return _deq_layers(net, X, choice(kind, ("ck", "ntk", "ntk_frozen_input"), "kind"))
    if isinstance(net, ExplicitNet):
        return _explicit_layers(net, X, choice(kind, ("ck", "ntk"), "kind"))
    raise InputError(f"net={type(net).__name__} must be a DEQNet or an ExplicitNet")


def _deq_layers(net: DEQNet, X: Tensor, kind: str) -> list[Layer]:
    check_input(X, net.in_features, net.recurrent)
    options = net.solve_options
    factor = (net.deq.recurrent / net.width) ** 0.5
    drive = net.drive(X)
    solution = solve_equilibrium(LayerMap(net.recurrent, drive, factor, net.phi), None, options)
    state = solution.state / net.width**0.5
    layers: list[Layer] = [(None, [state])]
    if kind == "ck":
        return layers
    slope = net.phi.derivative(solution.point)
    errors = []
    for row in net.readout / net.width**0.5:
        gradient = row.expand_as(drive).contiguous()
        errors.append(solve_adjoint(Adjoint(net.recurrent, gradient, factor, slope), options).state)
    inputs = [net.deq.recurrent**0.5 * state]
    if kind == "ntk":
        inputs.append(net.deq.input**0.5 * X)
        if net.bias is not None:
            inputs.append(torch.full_like(X[:, :1], net.deq.bias**0.5))
    return [*layers, (torch.stack(errors), inputs)]


def _cell_layers(net: DEQNet, X: Tensor, kind: str) -> list[Layer]:
    check_input(X, net.in_features, net.readout)
    root = net.width**0.5
    drives = net.drives(X)
    if kind == "ck":
        return [(None, [net.settled(drives)[0] / root])]
    with torch.enable_grad():
        free = tuple(drive.detach().requires_grad_() for drive in drives)  # ∂f/∂d_l is the error of layer l
        state = net.settled(free)[0]
        rows = net.readout.detach() / root
        errors = [torch.autograd.grad(state, free, row.expand_as(state), retain_graph=True) for row in rows]
    state = state.detach()
    layers: list[Layer] = [(None, [state / root])]
    befores = [state, *layer_outputs(net.cell_layers, state, drives)[:-1]]
    for k, (layer, before) in enumerate(zip(net.cell_layers, befores, strict=True)):
        inputs = [layer.factor * before, layer.layer.input**0.5 * X, torch.full_like(X[:, :1], layer.layer.bias**0.5)]
        layers.append((torch.stack([one[k] for one in errors]), inputs))
    return layers


def _explicit_layers(net: ExplicitNet, X: Tensor, kind: str) -> list[Layer]:
    check_input(X, net.in_features, net.readout)
    rows, radius = net.on_sphere(X)
    factor = 1.0 if radius is None else radius
    inputs, slopes = [rows], []
    for k, (weight, phi) in enumerate(zip(net.weights, net.activations, strict=True)):
        point = torch.nn.functional.linear(inputs[-1], weight, net.offset(k))
        root = weight.shape[0] ** 0.5
        inputs.append(phi(point) / root)
        slopes.append(phi.derivative(point) / root)  # type: ignore[operator]
    layers: list[Layer] = [(None, [inputs[-1] * factor])]
    if kind == "ck":
        return layers
    flow = net.readout[:, None, :].expand(-1, X.shape[0], -1) * factor  # ∂f/∂x⁽ˡ⁾, (out, n, m)
    for k in reversed(range(len(slopes))):
        error = flow * slopes[k]
        layers.append((error, [inputs[k], torch.full_like(X[:, :1], net.initial.bias[k] ** 0.5)]))
        flow = error @ net.weights[k]
    return layers
