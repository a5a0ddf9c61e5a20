"""Networks on disk: safetensors for the weights, JSON for the description, ONNX for explicit networks. No pickle."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch

from notsodeep import files
from notsodeep.activations import Activation, HermiteSeries, PiecewiseLinear, Smooth
from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, count, warn_convergence
from notsodeep.extras import need
from notsodeep.hermite import RADIUS
from notsodeep.kernels.parabolas import INTERVALS, parabolas
from notsodeep.models import DEQ, Explicit, model_from_dict
from notsodeep.nn.activations import bends, require_registered
from notsodeep.nn.layers import CellLayer
from notsodeep.nn.networks import DEQNet, ExplicitNet
from notsodeep.reading import json_text, opened

__all__ = ["export_onnx", "load", "save"]

_FORMAT = "notsodeep-network"
_CHECKSUM = "sha256"
_LONGEST_HEADER = 16 << 20
_MOST = {"memory": 1000}  # limits, so that a file cannot ask for endless work:
_MOST |= dict.fromkeys(("max_iter", "backward_max_iter", "phantom_steps"), 1_000_000)
_SOLVER_OPTIONS = ("solver", "tol", "max_iter", "backward", "backward_solver", "backward_tol", "backward_max_iter",
                   "phantom_steps")  # fmt: skip
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def save(net: DEQNet | ExplicitNet, path: str | Path, *, new: bool = False) -> Path:
    """Write weights and description to one safetensors file; :func:`load` rebuilds the network.

    With `new`, an existing file is kept, and the network gets the next free name.

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
    return files.write(path, packed(net.state_dict(), _FORMAT, describe(net)), new=new)


def load(path: str | Path) -> DEQNet | ExplicitNet:
    """Read a network written by :func:`save`; nothing in the file is executed."""
    tensors, description = unpacked(path, _FORMAT)
    if description is None:
        raise InputError(f"path={str(path)!r} holds no network of notsodeep")
    try:
        net = _build(description, tensors)
        net.load_state_dict(tensors)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"path={str(path)!r} is damaged: {' '.join(str(error).split())}") from None
    if isinstance(net, DEQNet) and net.solve_options.on_failure != "ignore" and (doubt := net.doubt()):
        warn_convergence(doubt)
    return net


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
    for name, value in tensors.items():
        if value.dtype != dtype or not bool(value.isfinite().all()):
            raise InputError(f"{name} does not hold finite numbers in {description['dtype']}; save another network")
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


def _digest(tensors: Mapping[str, torch.Tensor], content: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def export_onnx(net: ExplicitNet, path: str | Path) -> Path:
    """Write an explicit network as an ONNX graph of matrix products and elementwise functions, float32.

    Input ``x`` (batch, in_features), output ``y`` (batch, out_features).
    """
    if not isinstance(net, ExplicitNet):
        raise InputError(f"net={type(net).__name__} must be an ExplicitNet; match a DEQ first (nn.match_module)")
    onnx = need("onnx")
    TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper
    graph = _Graph()
    value, radius = "x", None
    if net.initial.normalize is not None:
        norm = graph.add("ReduceL2", "x", axes=[1], keepdims=1)
        radius = graph.affine(norm, 1 / net.initial.normalize, 0.0)
        value = graph.add("Div", "x", graph.add("Max", radius, graph.constant(1e-37)))
    for k, (weight, phi) in enumerate(zip(net.weights, net.explicit.activations, strict=True)):
        require_registered(phi, "exported to ONNX")
        value = graph.add("MatMul", value, graph.constant(weight.detach().cpu().numpy().T))
        if (offset := net.offset(k)) is not None:
            value = graph.add("Add", value, graph.constant(offset.detach().cpu().numpy()))
        value = graph.activation(phi, value)
        value = graph.add("Mul", value, graph.constant(1 / math.sqrt(weight.shape[0])))
    if radius is not None:
        value = graph.add("Mul", value, radius)
    graph.add("MatMul", value, graph.constant(net.readout.detach().cpu().numpy().T), output="y")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", net.in_features])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", net.out_features])]
    nodes = [helper.make_node(kind, names, [out], **attributes) for kind, names, out, attributes in graph.nodes]
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "notsodeep", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name="notsodeep",
        ir_version=8,
    )
    onnx.checker.check_model(model)
    return files.write(path, model.SerializeToString())


class _Graph:
    """ONNX nodes and constants, named in the order they are added."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array, dtype=np.float32)
        return name

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"v{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), name, attributes))
        return name

    def affine(self, value: str, factor: float, offset: float) -> str:
        if factor != 1:
            value = self.add("Mul", value, self.constant(factor))
        return self.add("Add", value, self.constant(offset)) if offset else value

    def activation(self, phi: Activation, value: str) -> str:
        value = self.affine(value, phi.stretch, 0.0)
        if isinstance(phi.shape, PiecewiseLinear):
            value = self._piecewise(phi.shape, value)
        elif isinstance(phi.shape, Smooth):
            value = self._smooth(phi.shape.name, value)
        elif isinstance(phi.shape, HermiteSeries):
            value = self._series(phi.shape, value)
        return self.affine(value, phi.scale, -phi.shift)

    def _piecewise(self, shape: PiecewiseLinear, value: str) -> str:
        origin = int(np.searchsorted(shape.kinks, 0.0))
        total = self.add("Mul", value, self.constant(shape.slopes[origin]))
        for sign, kink, bend in bends(shape.kinks, shape.slopes, origin):
            outside = self.add("Relu", self.affine(value, sign, -sign * kink))
            total = self.add("Add", total, self.affine(outside, bend, 0.0))
        return total

    def _series(self, shape: HermiteSeries, value: str) -> str:
        """Parabolas on short intervals, looked up by index, and straight lines beyond."""
        table, up, down = parabolas(shape)
        per_unit = INTERVALS / (2 * RADIUS)
        where = self.affine(value, per_unit, INTERVALS / 2)
        near = self.add("Clip", where, self.constant(0.0), self.constant(float(INTERVALS)))
        piece = self.add("Clip", self.add("Floor", near), self.constant(0.0), self.constant(INTERVALS - 1.0))
        index, y = self.add("Cast", piece, to=7), self.add("Sub", near, piece)  # 7: int64
        c0, c1, c2 = (self.add("Gather", self.constant(column), index) for column in table.T)
        total = self.add("Add", self.add("Mul", self.add("Add", self.add("Mul", c2, y), c1), y), c0)
        for sign, slope in ((1.0, up), (-1.0, -down)):
            outside = self.add("Relu", self.affine(value, sign, -RADIUS))
            total = self.add("Add", total, self.affine(outside, slope, 0.0))
        return total

    def _smooth(self, name: str, value: str) -> str:
        direct = {"tanh": "Tanh", "erf": "Erf", "sin": "Sin", "cos": "Cos", "arctan": "Atan"}
        direct |= {"sigmoid": "Sigmoid", "softplus": "Softplus"}
        if name in direct:
            return self.add(direct[name], value)
        if name == "gaussian":
            return self.add("Exp", self.affine(self.add("Mul", value, value), -0.5, 0.0))
        if name == "swish":
            return self.add("Mul", value, self.add("Sigmoid", value))
        if name == "gelu":
            cdf = self.affine(self.add("Erf", self.affine(value, math.sqrt(0.5), 0.0)), 0.5, 0.5)
            return self.add("Mul", value, cdf)
        raise InputError(f"activation {name!r} has no ONNX form")
