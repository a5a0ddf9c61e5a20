"""Exact infinite-width kernels as tensors: gradients in the samples and in the variances, on any device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, count
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.dense import Network, recursion_of, supported
from notsodeep.kernels.samples import Samples as Rows
from notsodeep.models import DEQ, Explicit, require_infinite_width
from notsodeep.nn.cosines import ends, unit_rows
from notsodeep.nn.duals import dual_of, root
from notsodeep.nn.pairs import Level, TensorPairs
from notsodeep.nn.tensor_tiles import Method, Sides, Tiled, tiles
from notsodeep.nn.zonal import Zonal, arc_function, recursion_function
from notsodeep.recursion import Layer, Recursion

__all__ = ["kernel", "kernel_slopes"]

_PROBES = 9


def kernel(
    model: Network,
    X: Tensor,
    Y: Tensor | None = None,
    kind: str = "ck",
    *,
    variances: Mapping[str, Tensor] | None = None,
    tile: int | None = None,
) -> Tensor:
    """Λ_ij = σ_a² E[φ(u)φ(v)] + σ_b² x_i·x_j + σ_0², (u, v) ~ N(0, Λ), as a tensor with gradients.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
    X : tensor (…, n, p)
        Samples in rows, float32 or float64, on any device.
    Y : tensor (…, m, p), optional
        Second set of samples; the kernel of X with itself when absent.
    kind : str
        As in :func:`notsodeep.kernels.kernel`.
    variances : mapping of str to tensor, optional
        In place of the model's: ``"recurrent"``, ``"input"``, ``"bias"`` of a DEQ, each a scalar or a tensor of the
        batch's shape. Of a DeepDEQ the last dimension holds the layers; an Explicit has ``"bias"`` alone, likewise.
    tile : int, optional
        Rows computed at a time, by PyTorch; by default about a million entries, and on a processor the compiled
        engine of ``model.kernel``. Beyond the result, memory is that of a tile.

    Returns
    -------
    tensor (…, n, n) or (…, n, m)

    Notes
    -----
    φ may be homogeneous (relu, leaky relu, abs), erf, sin, cos, gaussian or gelu, shifted or not. Any other φ needs
    rows of equal norm; its gradient is then the one along that sphere, and it has none in the variances.
    Derivatives at a fixed point come from the implicit function theorem. A tangent kernel of a kinked φ has a cone at
    identical (and opposite) rows: its gradient there is taken as 0.

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> X = torch.eye(2, dtype=torch.float64, requires_grad=True)
    >>> K = nn.kernel(nsd.DEQ("relu", recurrent=0.2, input=0.8), X, kind="ntk")
    >>> K.sum().backward()
    >>> X.grad.shape
    torch.Size([2, 2])
    >>> recurrent = torch.tensor(0.2, requires_grad=True)
    >>> K = nn.kernel(nsd.DEQ("erf", recurrent=0.2, input=0.8), X, variances={"recurrent": recurrent})
    >>> torch.autograd.grad(K.sum(), recurrent)[0] > 0
    tensor(True)
    """
    choice(kind, supported(model).kinds, "kind")
    _check(X, "X")
    if Y is not None:
        _check(Y, "Y")
        if Y.shape[-1] != X.shape[-1]:
            raise InputError(f"Y has {Y.shape[-1]} features but X has {X.shape[-1]}; both need the same")
        if (Y.dtype, Y.device) != (X.dtype, X.device):
            raise InputError(f"Y is {Y.dtype} on {Y.device} but X is {X.dtype} on {X.device}; convert one of them")
    given = _given(model, variances)
    rows = None if tile is None else count(tile, "tile")
    other = X if Y is None else Y
    layered = 0 if isinstance(model, DEQ) else 1
    batches = [value.shape[: value.ndim - layered] for value in given.values()]
    shape = (*torch.broadcast_shapes(X.shape[:-2], other.shape[:-2], *batches), X.shape[-2], other.shape[-2])
    compiled = None
    if len(shape) == 2 and rows is None and X.device.type == "cpu":
        (described,) = _described(model, given)

        def compiled() -> Tensor:
            second = None if Y is None else Y.detach().numpy()
            return torch.from_numpy(described.kernel(X.detach().numpy(), second, kind=kind, progress=False))

        if not any(x.requires_grad for x in (X, other, *given.values())):
            return compiled()
    method = _method(model, kind, given, X, other)
    if isinstance(model, Explicit) and model.normalize is not None:
        method = _radial(method, model.normalize)
    result: Tensor = Tiled.apply(method, compiled, shape, rows, X, Y, *given.values())
    return result


def kernel_slopes(model: DEQ, X: Tensor, kind: str, variances: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """∂K_ij/∂v, an (n, n) matrix for each of the scalar variances of a DEQ."""
    _check(X, "X")
    given = _given(model, variances)
    method = _method(model, kind, given, X, X)
    n = X.shape[-2]
    found = X.new_empty(len(given), n, n)
    for rows, columns in tiles(found[0], None, symmetric=True):
        with torch.enable_grad():
            values = [value.detach().requires_grad_() for value in given.values()]
            K = method(X[rows], X[columns], 1, *values)
            weight = torch.zeros_like(K, requires_grad=True)  # Σ weight·∂K/∂v is linear in it
            totals = torch.autograd.grad(K, values, weight, create_graph=True)
            parts = [torch.autograd.grad(total, weight, retain_graph=True)[0] for total in totals]
        for out, part in zip(found, parts, strict=True):
            out[rows, columns] = part
            out[columns, rows] = part.T
    yield from found


def _check(X: Any, parameter: str) -> None:
    if not isinstance(X, Tensor) or X.dtype not in (torch.float32, torch.float64):
        found = X.dtype if isinstance(X, Tensor) else type(X).__name__
        raise InputError(f"{parameter} is {found} but must be a float32 or float64 tensor; model.kernel takes arrays")
    if X.ndim < 2 or not X.shape[-1] or not X.shape[-2]:
        raise InputError(f"{parameter} has shape {tuple(X.shape)}; pass at least one sample and one feature, (…, n, p)")
    if not torch.isfinite(X.detach().sum()) and not torch.isfinite(X.detach()).all():
        raise InputError(f"{parameter} holds NaN or infinite values; remove or impute them")


# --- variances ------------------------------------------------------------------------------


def _layers(model: Network) -> int:
    return model.depth if isinstance(model, Explicit) else len(model.layers)


def _given(model: Network, variances: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """The variances that are tensors, checked; those of several layers have them in their last dimension."""
    names = ("bias",) if isinstance(model, Explicit) else ("recurrent", "input", "bias")
    for name, value in (variances or {}).items():
        choice(name, names, "variances")
        if not isinstance(value, Tensor):
            raise InputError(f"variances[{name!r}]={value!r} must be a tensor; pass torch.tensor({value!r})")
        if not isinstance(model, DEQ) and value.shape[-1:] != (_layers(model),):
            raise InputError(
                f"variances[{name!r}] has shape {tuple(value.shape)}; its last dimension must hold the "
                f"{_layers(model)} layers"
            )
    return dict(variances or {})


def _described(model: Network, given: dict[str, Tensor]) -> Iterator[Network]:
    """The model with the values of the variances: one description for each entry of a batch."""
    if not given:
        yield model
        return
    flat = {name: value.detach().double().cpu() for name, value in given.items()}
    if isinstance(model, DEQ):
        tensors = torch.broadcast_tensors(*flat.values())
        for numbers in torch.stack(tensors).reshape(len(tensors), -1).T.tolist():
            values = dict(zip(flat, numbers, strict=True))
            yield DEQ(model.activation, **{n: values.get(n, getattr(model, n)) for n in ("recurrent", "input", "bias")})
        return
    tensors = torch.broadcast_tensors(*flat.values())
    for entry in torch.stack(tensors).reshape(len(tensors), -1, _layers(model)).unbind(1):
        values = dict(zip(flat, entry.tolist(), strict=True))
        if isinstance(model, Explicit):
            yield Explicit(model.activations, values["bias"], model.normalize)
        else:
            yield DeepDEQ(
                [
                    replace(layer, **{name: numbers[k] for name, numbers in values.items()})
                    for k, layer in enumerate(model.layers)
                ]
            )


def _levels(model: Network, recursion: Recursion, given: dict[str, Tensor]) -> tuple[Level, ...]:
    """The levels with tensors in place of numbers where they were given."""
    found = []
    for k, layer in enumerate(recursion.layers):
        dual = dual_of(layer.activation)
        assert dual is not None
        numbers = {
            name: (given[name] if isinstance(model, DEQ) else given[name][..., k]) if name in given else value
            for name, value in (("recurrent", layer.recurrent), ("input", layer.input), ("bias", layer.bias))
        }
        found.append(Level(dual, **numbers, normalize=layer.normalize))
    return tuple(found)


# --- methods ---------------------------------------------------------------------------------


def _method(model: Network, kind: str, given: dict[str, Tensor], X: Tensor, Y: Tensor) -> Method:
    """The function that evaluates a tile: one polynomial where it suffices, all pairs otherwise."""
    norms = [torch.linalg.vector_norm(rows.detach(), dim=-1).double().cpu().numpy().ravel() for rows in (X, Y)]
    if isinstance(model, Explicit) and model.normalize is not None:
        norms = [np.full(1, model.normalize)]
    lengths = np.unique(np.quantile(np.concatenate(norms), np.linspace(0, 1, _PROBES)))
    probes = Rows.of(lengths[:, None], np.dtype(np.float64))
    for described in _described(model, given):
        if isinstance(described, DEQ):
            require_infinite_width(described)
        recursion = recursion_of(described, None, probes)
    if not all(isinstance(value, Tensor) and value.device == X.device for value in given.values()):
        raise InputError(f"variances must be on the device of X, {X.device}; move them with .to(X.device)")
    solved = all(dual_of(phi) is not None for phi in recursion.activations)
    pairs = _by_pairs(model, recursion, kind, tuple(given)) if solved else None
    batched = any(value.ndim > (0 if isinstance(model, DEQ) else 1) for value in given.values())
    single = recursion.layers[0] if isinstance(model, DEQ) and recursion.activations[0].homogeneous else None
    precision = str(X.dtype).removeprefix("torch.")
    if single is not None and not batched:
        zonal = arc_function(Arc.of(single.activation, single.recurrent), kind, precision)
        if zonal is not None:
            return _by_arc(single, zonal, tuple(given), pairs)
    learned = any(value.requires_grad for value in given.values())
    low, high = lengths[0], lengths[-1]
    equal = high > 0 and high - low <= 8 * torch.finfo(X.dtype).eps * high
    if not batched and not learned and (recursion.homogeneous or (not solved and equal)):
        length = 1.0 if recursion.homogeneous else float(np.mean(lengths))
        zonal = recursion_function(recursion, length, kind, precision)
        if zonal is not None:
            return _by_cosine(zonal, recursion.homogeneous, pairs)
    if pairs is not None:
        return pairs
    phi = next(phi for phi in recursion.activations if dual_of(phi) is None)
    if not equal:
        raise InputError(
            f"X has rows of norm {low:.6g} and {high:.6g}; with {phi} tensors need rows of equal norm: normalise them, "
            "or use relu, erf, sin, cos, gaussian or gelu"
        )
    raise InputError(
        f"variances with gradients need a closed form, which {phi} has not; use relu, erf, sin, cos, gaussian or gelu"
        if learned or batched
        else f"{model} is too steep for one polynomial; use model.kernel"
    )


def _by_arc(layer: Layer, zonal: Zonal, names: tuple[str, ...], again: Method | None) -> Method:
    """A DEQ with a homogeneous φ: K = √(q_i q_j) k(t), t the cosine of (√input·x, √bias)."""
    power = Arc.of(layer.activation, 0.0).power

    def numbers(X: Tensor, given: tuple[Tensor, ...]) -> list[Any]:
        values = {name: value.to(X.dtype) for name, value in zip(names, given, strict=True)}
        return [values.get(name, getattr(layer, name)) for name in ("recurrent", "input", "bias")]

    def prepare(X: Tensor, side: int, *given: Tensor) -> Sides:
        _, gain, bias = numbers(X, given)
        length = root(gain * X.square().sum(-1, keepdim=True) + bias)
        safe = torch.where(length > 0, length, 1.0)
        rows = X * (gain / safe) if side == 0 else X / safe
        if torch.is_tensor(bias) or bias:
            rows = torch.cat([rows, (bias if side == 0 else 1.0) / safe], -1)
        return rows, length, _unit(X, gain, bias) if zonal.tangent else None

    def pairs(left: Sides, right: Sides, order: int, *given: Tensor) -> Tensor:
        (rows, r, unit), (columns, s, other) = left, right
        recurrent, *_ = numbers(rows, given)
        t = ends(rows @ columns.transpose(-1, -2), 1.0, (lambda: (unit, other)) if zonal.tangent else None)
        result = zonal(t, recurrent if torch.is_tensor(recurrent) else None)
        return result * (r / (1 - recurrent * power)) * s.transpose(-1, -2)

    @torch.no_grad()
    def compiled(left: Sides, right: Sides, weight: Tensor, *given: Tensor) -> list[Any] | None:
        (rows, r, unit), (columns, s, other) = left, right
        recurrent, *_ = numbers(rows, given)
        scale = 1 / (1 - recurrent * power)
        turned = torch.is_tensor(recurrent) and recurrent.requires_grad
        t = rows @ columns.transpose(-1, -2)
        close = (unit, other) if zonal.tangent else None
        found = zonal.gradient(t, weight, (r * scale).squeeze(-1), s.squeeze(-1), close, turned)
        if found is None:
            return None
        to_r, to_s, by_recurrent = found
        total = by_recurrent + power * scale * (r.squeeze(-1) * scale).dot(to_r)  # scale grows too
        return [
            t @ columns if rows.requires_grad else None, (to_r * scale).unsqueeze(-1), None,
            t.transpose(-1, -2) @ rows if columns.requires_grad else None, to_s.unsqueeze(-1), None,
            *(total if name == "recurrent" else None for name in names),
        ]  # fmt: skip

    return Method(prepare, pairs, again, compiled)


@torch.no_grad()
def _unit(X: Tensor, gain: Any, bias: Any) -> Tensor:
    return unit_rows(torch.cat([X * gain**0.5, torch.zeros_like(X[..., :1]) + bias**0.5], -1))[0]


def _by_cosine(zonal: Zonal, homogeneous: bool, again: Method | None) -> Method:
    """K = k(t), or ‖x‖‖y‖ k(t), t the cosine of the rows."""

    def prepare(X: Tensor, side: int, *given: Tensor) -> Sides:
        unit, length = unit_rows(X)
        return unit, length.unsqueeze(-1) if homogeneous else None

    def pairs(left: Sides, right: Sides, order: int, *given: Tensor) -> Tensor:
        (rows, r), (columns, s) = left, right
        t = ends(rows @ columns.transpose(-1, -2), 1.0, (lambda: (rows, columns)) if zonal.tangent else None)
        return zonal(t) * r * s.transpose(-1, -2) if homogeneous else zonal(t)

    @torch.no_grad()
    def compiled(left: Sides, right: Sides, weight: Tensor, *given: Tensor) -> list[Any] | None:
        (rows, r), (columns, s) = left, right
        t = rows @ columns.transpose(-1, -2)
        mine, other = (x.squeeze(-1) if homogeneous else y.new_ones(y.shape[:-1]) for x, y in ((r, rows), (s, columns)))
        found = zonal.gradient(t, weight, mine, other, (rows, columns) if zonal.tangent else None, False)
        if found is None:
            return None
        to_r, to_s = (x.unsqueeze(-1) if homogeneous else None for x in found[:2])
        return [t @ columns, to_r, t.transpose(-1, -2) @ rows, to_s, *(None for _ in given)]

    return Method(prepare, pairs, again, compiled)


def _by_pairs(model: Network, recursion: Recursion, kind: str, names: tuple[str, ...]) -> Method:
    """Every pair by itself, in float64 where the device has it."""
    kinked = any(phi.kinks for phi in recursion.activations)

    def prepare(X: Tensor, side: int, *given: Tensor) -> Sides:
        return (X,)

    def pairs(rows: Sides, columns: Sides, order: int, *given: Tensor) -> Tensor:
        (X,), (Y,) = rows, columns
        wide = X.dtype if X.device.type == "mps" else torch.float64
        left, right = X.to(wide), Y.to(wide)
        values = {name: value.to(wide) for name, value in zip(names, given, strict=True)}
        pairs = TensorPairs(_levels(model, recursion, values), recursion.closed)
        (_, r), (_, s) = (unit, other) = unit_rows(left), unit_rows(right)
        top = r.detach().unsqueeze(-1) * s.detach().unsqueeze(-2)
        product = ends(left @ right.transpose(-1, -2), top, (lambda: (unit[0], other[0])) if kinked else None)
        return pairs.kernel(kind, product, pairs.samples(r, order), pairs.samples(s, order), order).to(X.dtype)

    method = Method(prepare, pairs)
    return method._replace(again=method)


def _radial(method: Method, length: float) -> Method:
    """Rows enter with the norm `length`, and the kernel is multiplied by ‖x‖‖y‖/length²."""

    def prepare(X: Tensor, side: int, *given: Tensor) -> Sides:
        unit, r = unit_rows(X)
        return *method.prepare(unit * length, side, *given), (r / length).unsqueeze(-1)

    def pairs(left: Sides, right: Sides, order: int, *given: Tensor) -> Tensor:
        return method.pairs(left[:-1], right[:-1], order, *given) * left[-1] * right[-1].transpose(-1, -2)

    return Method(prepare, pairs, None if method.again is None else _radial(method.again._replace(again=None), length))
