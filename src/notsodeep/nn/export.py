"""Networks on disk: safetensors for the weights, JSON for the description. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from notsodeep import files
from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, count, warn_convergence
from notsodeep.descriptions import model_from_dict
from notsodeep.models import DEQ, Explicit
from notsodeep.nn.layers import CellLayer
from notsodeep.nn.networks import DEQNet, ExplicitNet
from notsodeep.nn.observation import unwrapped
from notsodeep.nn.sequential import altered, described_layers, layers_from
from notsodeep.reading import affordable, json_text, opened

__all__ = ["load", "save"]

_FORMAT = "notsodeep-network"
_CHECKSUM = "sha256"
_LONGEST_HEADER = 16 << 20
_PIECE = 1 << 22  # numbers checked at a time
_MOST = {"memory": 1000}  # limits, so that a file cannot ask for endless work:
_MOST |= dict.fromkeys(("max_iter", "backward_max_iter", "phantom_steps"), 1_000_000)
_SOLVER_OPTIONS = ("solver", "tol", "max_iter", "backward", "backward_solver", "backward_tol", "backward_max_iter",
                   "phantom_steps")  # fmt: skip
_SEQUENTIAL = "notsodeep-sequential"
WEIGHTS = "notsodeep-weights"  # of a network that is written as a program
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def save(net: DEQNet | ExplicitNet | torch.nn.Sequential, path: str | Path, *, new: bool = False) -> Path:
    """Write weights and description to one safetensors file; :func:`load` rebuilds the network.

    A ``torch.nn.Sequential`` of linear layers and common activations is written too. With `new`, an existing file is
    kept, and the network gets the next free name.

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), in_features=3, width=16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = nn.load(nn.save(net, pathlib.Path(folder) / "net.safetensors"))
    >>> torch.equal(net(torch.ones(1, 3)), again(torch.ones(1, 3)))
    True
    """
    net = unwrapped(net)
    _require_readable(net)
    if isinstance(net, torch.nn.Sequential):
        layers = described_layers(net)
        if layers is None:
            raise InputError(
                f"net={type(net).__name__} holds layers that load cannot rebuild; write net.state_dict() by safetensors"
            )
        dtype = str(next(net.parameters()).dtype).removeprefix("torch.")
        return files.write(path, packed(net.state_dict(), _SEQUENTIAL, {"layers": layers, "dtype": dtype}), new=new)
    return files.write(path, packed(net.state_dict(), _FORMAT, describe(net)), new=new)


def _require_readable(net: Any) -> None:
    """Refuse weights that :func:`load` could not read."""
    if not isinstance(net, DEQNet | ExplicitNet | torch.nn.Sequential):
        raise InputError(f"net={type(net).__name__} must be a DEQNet, an ExplicitNet or an nn.Sequential")
    weights = net.state_dict()
    for name, value in weights.items():
        if not isinstance(value, torch.Tensor):
            raise InputError(f"{name} is a {type(value).__name__}; save the network as it was before quantisation")
        if ".parametrizations." in f".{name}":
            raise InputError(
                f"{name} is parametrised; call torch.nn.utils.parametrize.remove_parametrizations before saving"
            )
        if value.is_floating_point() and value.dtype not in _DTYPES.values():
            raise InputError(f"{name} is {value.dtype}, which load does not read; save net.float()")
        if not finite(value):
            raise InputError(f"{name} holds NaN or infinite values, which load refuses")
    kinds = sorted({str(value.dtype) for value in weights.values() if value.is_floating_point()})
    if len(kinds) != 1:
        found = f"weights in {' and '.join(kinds)}" if kinds else "no weights"
        raise InputError(f"net has {found}; load reads networks of one precision")
    own = next((kind for kind in (DEQNet, ExplicitNet) if isinstance(net, kind)), torch.nn.Sequential)
    if type(net).forward is not own.forward or any(altered(one) for one in net.modules()):
        raise InputError(
            f"net={type(net).__name__} has hooks or a forward of its own, which load would lose; remove them first "
            "(torch.nn.utils.remove_weight_norm, prune.remove)"
        )


def load(path: str | Path) -> DEQNet | ExplicitNet | torch.nn.Sequential:
    """Read a network written by :func:`save`; nothing in the file is executed."""
    tensors, description = unpacked(path, _FORMAT)
    build: Callable[..., Any] = _build
    if description is None:
        description, build = unpacked(path, _SEQUENTIAL)[1], _build_layers
    if description is None and unpacked(path, WEIGHTS)[1] is not None:
        program = str(Path(path).with_name("network.pt2"))
        raise InputError(
            f"path={str(path)!r} holds the weights of generated code alone; the network is the program beside it: "
            f"torch.export.load({program!r}).module()"
        )
    if description is None:
        raise InputError(f"path={str(path)!r} holds no network of notsodeep")
    try:
        net: DEQNet | ExplicitNet | torch.nn.Sequential = build(description, tensors)
        net.load_state_dict(tensors)
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"path={str(path)!r} is damaged: {' '.join(str(error).split())}") from None
    if isinstance(net, DEQNet) and net.solve_options.on_failure != "ignore" and (doubt := net.doubt()):
        warn_convergence(doubt)
    return net


def _build_layers(description: Any, tensors: dict[str, torch.Tensor]) -> torch.nn.Sequential:
    """Plain layers whose weights have the shapes of these tensors."""
    dtype = _DTYPES[choice(description["dtype"], _DTYPES, "dtype")]
    for k, entry in enumerate(description["layers"]):
        if entry["layer"] == "Linear":  # before any memory is taken
            shape = tuple(tensors[f"{k}.weight"].shape)
            if shape != (entry["out_features"], entry["in_features"]):
                raise InputError(f"{k}.weight has shape {shape}, which is not the one described")
    _require_numbers(tensors, dtype)
    with torch.device("meta"):  # without memory: layers that do not fit together raise here
        shapes = layers_from(description["layers"], dtype)
        linear = [layer for layer in shapes if isinstance(layer, torch.nn.Linear)]
        if not linear:
            raise InputError("it describes layers without weights")
        shapes(torch.empty(2, linear[0].in_features, dtype=dtype))
    return layers_from(description["layers"], dtype)


def _require_numbers(tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
    for name, value in tensors.items():
        if value.dtype != dtype or not finite(value):
            raise InputError(
                f"{name} does not hold finite numbers in {str(dtype).removeprefix('torch.')}; save another network"
            )


def _build(description: Any, tensors: dict[str, torch.Tensor]) -> DEQNet | ExplicitNet:
    """Build the network that :func:`describe` described, with the shapes of these weights but without their values."""
    model = model_from_dict(description["model"])
    inputs, width, outputs = (description[name] for name in ("in_features", "width", "out_features"))
    shapes: dict[str, tuple[int, ...]]
    dtype, options = _DTYPES[choice(description["dtype"], _DTYPES, "dtype")], dict(description["options"])
    if isinstance(model, Explicit):
        shapes = {f"weights.{k}": pair for k, pair in enumerate(zip(width, [inputs, *width[:-1]], strict=True))}
        shapes |= {f"biases.{k}": (width[k],) for k, variance in enumerate(model.bias) if variance}
        shapes["readout"] = (outputs, width[-1])
    elif isinstance(model, DEQ):
        shapes = {"recurrent": (width, width), "input": (width, inputs), "readout": (outputs, width)}
    elif isinstance(model, DeepDEQ):
        shapes = {"readout": (outputs, width)}
        for k, layer in enumerate(model.layers):
            expected = CellLayer.shapes(layer, inputs, width).items()
            shapes |= {f"layers.{k}.{name}": shape for name, shape in expected if shape is not None}
    else:
        raise InputError(f"it describes a {type(model).__name__}, which has no network")
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise InputError(f"{name} has shape {tuple(tensors[name].shape)}, but {shape} is described")
    _require_numbers(tensors, dtype)
    if isinstance(model, Explicit):
        _only(options, ("learnable",))
        return ExplicitNet(model, inputs, width, outputs, dtype=dtype, **options)
    _only(options, (*_SOLVER_OPTIONS, "on_failure", "memory"))
    # suppress warnings about placeholder weights
    net = DEQNet(model, inputs, width, outputs, dtype=dtype, **{**options, "on_failure": "ignore"})
    failure = choice(options["on_failure"], ("warn", "raise", "ignore"), "on_failure")
    net.solve_options = replace(net.solve_options, on_failure=failure)
    return net


def _only(options: dict[str, Any], known: Sequence[str]) -> None:
    """Refuse any option that no file may set, and numbers that ask for endless work."""
    for name, value in options.items():
        if name not in known or (name in _MOST and count(value, name) > _MOST[name]):
            raise InputError(f"its option {name}={value!r} is not one that a file may set")


def describe(net: DEQNet | ExplicitNet) -> dict[str, Any]:
    """Everything but the weights, as plain JSON."""
    options: dict[str, Any]
    if isinstance(net, DEQNet):
        chosen = net.solve_options
        options = {name: getattr(chosen, name) for name in (*_SOLVER_OPTIONS, "on_failure")} | chosen.options
        model: DEQ | DeepDEQ | Explicit = net.cell
        width: int | list[int] = net.width
    elif isinstance(net, ExplicitNet):
        learned = [[name for name, _ in phi.named_parameters()] for phi in net.activations]
        options = {"learnable": learned} if any(learned) else {}
        model, width = net.initial, net.widths
    else:
        raise InputError(f"net={type(net).__name__} must be a DEQNet or an ExplicitNet")
    return {
        "model": model.to_dict(),
        "in_features": net.in_features,
        "width": width,
        "out_features": net.out_features,
        "dtype": str(net.readout.dtype).removeprefix("torch."),
        "options": options,
    }


def packed(tensors: Mapping[str, torch.Tensor], kind: str, content: Mapping[str, Any]) -> bytes:
    """The bytes of a safetensors file: tensors, a JSON object under the name `kind`, a checksum over both."""
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    # a single entry: safetensors writes several in arbitrary order, but equal networks must give equal files
    return safetensors.torch.save(copies, {kind: json.dumps({**content, _CHECKSUM: _digest(copies, content)})})


def unpacked(path: str | Path, kind: str) -> tuple[dict[str, torch.Tensor], dict[str, Any] | None]:
    """The tensors and the JSON object of a file written by :func:`packed`; None where it has none of this kind."""
    try:
        with opened(path) as start:  # limit the header, which is parsed at once whatever length it declares
            if int.from_bytes(start.read(8), "little") > _LONGEST_HEADER:
                raise ValueError("its header is too long")
            length = os.fstat(start.fileno()).st_size
            affordable(length, length)
        with safetensors.safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            text = (file.metadata() or {}).get(kind)
    except FileNotFoundError:
        raise InputError(f"path={str(path)!r} does not exist") from None
    except (OSError, ValueError, TypeError, RuntimeError, LookupError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"path={str(path)!r} is not a readable safetensors file: {reason}") from None
    if text is None:
        return tensors, None
    try:
        content = dict(json_text(text))
        written = content.pop(_CHECKSUM, None)  # files of version 0.1.0 have none
        sound = written is None or written == _digest(tensors, content)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"path={str(path)!r} is damaged: {' '.join(str(error).split())}") from None
    if not sound:
        raise InputError(f"path={str(path)!r} was changed after it was written (checksum differs); save it again")
    return tensors, content


def finite(value: torch.Tensor) -> bool:
    """Whether all numbers are finite, without memory for all of them: a sparse file is longer than what it takes."""
    return all(bool(part.isfinite().all()) for part in value.reshape(-1).split(_PIECE))


def _digest(tensors: Mapping[str, torch.Tensor], content: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
