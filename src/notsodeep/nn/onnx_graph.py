"""Networks as ONNX graphs of matrix products and elementwise functions."""

from __future__ import annotations

import copy
import logging
import math
import operator
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from notsodeep import files
from notsodeep.activations import Activation, HermiteSeries, PiecewiseLinear, Smooth
from notsodeep.checks import InputError, choice, count
from notsodeep.errors import MissingExtraError
from notsodeep.extras import need
from notsodeep.kernels.parabolas import LAST, MIDDLE, PER_UNIT, parabolas
from notsodeep.nn.activations import bends, require_registered
from notsodeep.nn.networks import ExplicitNet
from notsodeep.nn.observation import looks_up, unwrapped, zeros_for

__all__ = ["export_onnx"]

_OPSETS = (13, 22)
_ELEMENTS = {"float32": 1, "float64": 11}  # numbers of ONNX for the element types
_INT64 = 7
_OPSET_OF_TORCH = 18  # the least that torch.onnx.export writes


def export_onnx(
    net: ExplicitNet | nn.Sequential,
    path: str | Path,
    *,
    opset: int = 17,
    dtype: str | torch.dtype = "float32",
    shape: Sequence[int] | None = None,
) -> Path:
    """Write a network as an ONNX graph of matrix products and elementwise functions.

    Input ``x`` (batch, in_features), output ``y`` (batch, out_features). A Sequential with other layers, such as
    convolutions and normalisations, is written by ``torch.onnx.export``, which needs onnxscript (extra ``nn``).

    Parameters
    ----------
    net : ExplicitNet or nn.Sequential
        Plain layers, such as those of `to_sequential` or :func:`replace`.
    path : path
    opset : int
        13 to 22; at least 18 where ``torch.onnx.export`` writes.
    dtype : {"float32", "float64"} or a torch.dtype
        Of weights, input and output.
    shape : tuple of int, optional
        Of one sample, for a Sequential that begins with ``nn.Flatten`` or looks up integers.
    """
    number = count(opset, "opset")
    if not _OPSETS[0] <= number <= _OPSETS[1]:
        raise InputError(f"opset={opset} is not supported; use {_OPSETS[0]} to {_OPSETS[1]}")
    element = choice(str(dtype).removeprefix("torch."), _ELEMENTS, "dtype")
    graph = Graph(element)
    net = unwrapped(net)
    if not isinstance(net, ExplicitNet | nn.Sequential):
        raise InputError(
            f"net={type(net).__name__} must be an ExplicitNet or an nn.Sequential; nn.replace and nn.match_module make "
            "one from a DEQ"
        )
    for name, weight in net.named_parameters():
        if weight.dtype in (torch.float16, torch.bfloat16):
            raise InputError(f"{name} is {weight.dtype}, in which no graph is written; export net.float()")
    if isinstance(net, ExplicitNet):
        sample, rank = [net.in_features], 2
        graph.explicit(net)
    else:
        first = next((one for one in net.modules() if isinstance(one, nn.Linear)), None)
        if shape is None and (first is None or isinstance(net[0], nn.Flatten) or looks_up(net)):
            raise InputError("shape is missing: pass the shape of one sample, e.g. shape=(1, 28, 28)")
        sample = list(shape) if shape is not None else [first.in_features]  # type: ignore[union-attr]
        try:
            rank = graph.sequential(net, sample)
        except _NoFormError as error:
            return files.write(path, _by_torch(net, sample, element, number, str(error)))
    onnx = need("onnx")
    helper, kind = onnx.helper, _ELEMENTS[element]
    inputs = [helper.make_tensor_value_info("x", kind, ["batch", *sample])]
    outputs = [helper.make_tensor_value_info("y", kind, ["batch", *(["outputs"] * (rank - 1))])]
    nodes = [helper.make_node(kind, names, [out], **attributes) for kind, names, out, attributes in graph.nodes]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "notsodeep", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", number)],
        producer_name="notsodeep",
        ir_version=8 if number <= 17 else 10,
    )
    onnx.checker.check_model(model)
    return files.write(path, model.SerializeToString())


class _NoFormError(InputError):
    """A part of the network has no form among our nodes."""


def _by_torch(net: nn.Sequential, sample: Sequence[int], element: str, opset: int, part: str) -> bytes:
    """The graph that torch makes of a network, of whose parts this one has no form here."""
    try:
        need("onnxscript")
    except MissingExtraError as error:
        raise InputError(f"{part} is left to torch.onnx.export, for which {error}") from None
    own = copy.deepcopy(net).to(getattr(torch, element)).eval()
    log = logging.getLogger("torch.onnx")  # names every package that is not installed
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about its own code
            program = torch.onnx.export(
                own,
                (zeros_for(own, sample),),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                input_names=["x"],
                output_names=["y"],
                opset_version=max(opset, _OPSET_OF_TORCH),
                verbose=False,
            )
        assert program is not None
        return bytes(program.model_proto.SerializeToString())
    except Exception as error:  # torch and onnxscript raise what they like
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{part} has no ONNX form here, and torch.onnx.export fails: {reason}") from None
    finally:
        log.setLevel(level)


class Graph:
    """ONNX nodes and constants, named in the order they are added."""

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}

    def constant(self, array: Any, kind: str = "real") -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array, dtype=np.int64 if kind == "int" else self.dtype)
        return name

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"v{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), name, attributes))
        return name

    def explicit(self, net: ExplicitNet) -> None:
        """All nodes from ``x`` to ``y``."""
        value, radius = "x", None
        if net.initial.normalize is not None:
            norm = self.norm("x")
            radius = self.affine(norm, 1 / net.initial.normalize, 0.0)
            value = self.add("Div", "x", self.add("Max", radius, self.constant(1e-37)))
        for k, (weight, phi) in enumerate(zip(net.weights, net.explicit.activations, strict=True)):
            require_registered(phi, "exported to ONNX")
            value = self.add("MatMul", value, self.constant(weight.detach().cpu().numpy().T))
            if (offset := net.offset(k)) is not None:
                value = self.add("Add", value, self.constant(offset.detach().cpu().numpy()))
            value = self.activation(phi, value)
            value = self.add("Mul", value, self.constant(1 / math.sqrt(weight.shape[0])))
        if radius is not None:
            value = self.add("Mul", value, radius)
        self.add("MatMul", value, self.constant(net.readout.detach().cpu().numpy().T), output="y")

    def norm(self, value: str) -> str:
        """‖·‖ of every row."""
        squares = self.add("ReduceSum", self.add("Mul", value, value), self.constant([-1], "int"), keepdims=1)
        return self.add("Sqrt", squares)

    def sequential(self, net: nn.Sequential, sample: Sequence[int]) -> int:
        """All nodes of plain layers, and the rank of the output."""
        from torch.fx.passes.shape_prop import ShapeProp  # slow to import

        traced = torch.fx.symbolic_trace(net)
        values: dict[Any, str] = {}
        with torch.no_grad():
            example = ShapeProp(traced).propagate(zeros_for(net, sample))  # every node learns its shape
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                values[node] = "x"
            elif node.op == "call_module":
                values[node] = self._module(traced.get_submodule(node.target), node, values)
            elif node.op == "call_function":
                try:
                    values[node] = self._function(node.target, node.args, node.kwargs, values)
                except (IndexError, KeyError, TypeError, ValueError):  # other arguments than those of our own layers
                    raise _NoFormError(f"{node.target}") from None
            elif node.op == "get_attr":
                values[node] = self.constant(operator.attrgetter(node.target)(traced).detach().cpu().numpy())
            elif node.op == "call_method" and node.target == "long":
                values[node] = self.add("Cast", values[node.args[0]], to=_INT64)
            elif node.op == "output":
                self.add("Identity", values[node.args[0]], output="y")
            else:
                raise _NoFormError(f"{node.target}")
        return int(example.ndim)

    def _module(self, layer: nn.Module, node: torch.fx.Node, values: dict[Any, str]) -> str:
        if len(node.args) != 1 or node.kwargs:
            raise _NoFormError(f"the layer {layer}")
        value = values[node.args[0]]
        if isinstance(layer, nn.Linear):
            value = self.add("MatMul", value, self.constant(layer.weight.detach().cpu().numpy().T))
            return value if layer.bias is None else self.add("Add", value, self.constant(layer.bias.detach().cpu()))
        if isinstance(layer, nn.Identity | nn.Dropout):
            return value
        if isinstance(layer, nn.LeakyReLU):
            if self.dtype == np.float32:
                return self.add("LeakyRelu", value, alpha=layer.negative_slope)
            bent = self.affine(self.add("Relu", value), 1 - layer.negative_slope, 0.0)  # runtimes lack it in float64
            return self.add("Add", self.affine(value, layer.negative_slope, 0.0), bent)
        if isinstance(layer, nn.Hardtanh):
            return self.add("Clip", value, self.constant(layer.min_val), self.constant(layer.max_val))
        if isinstance(layer, nn.Unflatten | nn.Flatten):
            after = node.meta["tensor_meta"].shape
            whole = layer.start_dim == 0 if isinstance(layer, nn.Flatten) else layer.dim == 0
            if whole and len(after) > 1:
                raise _NoFormError(f"the layer {layer}")
            return self.add("Reshape", value, self.constant([-1] if whole else [0, *after[1:]], "int"))
        named = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "swish", "GELU": "gelu"}
        named["Softplus"] = "softplus"
        name = type(layer).__name__
        usual = getattr(layer, "approximate", "none") == "none" and getattr(layer, "beta", 1) == 1
        if name not in named or not usual:
            raise _NoFormError(f"the layer {layer}")
        return self.add("Relu", value) if name == "ReLU" else self._smooth(named[name], value)

    def _function(self, function: Any, args: Any, kwargs: Any, values: dict[Any, str]) -> str:
        known = {operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.truediv: "Div"}
        known |= {torch.clamp_min: "Max"}
        smooth = {torch.erf: "erf", torch.sin: "sin", torch.cos: "cos", torch.atan: "arctan", torch.relu: "relu"}
        if function is torch.linalg.vector_norm:
            return self.norm(values[args[0]])
        if function in (torch.exp, torch.floor):
            return self.add({torch.exp: "Exp", torch.floor: "Floor"}[function], values[args[0]])
        if function is torch.nan_to_num:
            return self._without_nan(values[args[0]])
        if function is torch.clamp and None not in args:
            return self.add("Clip", values[args[0]], self.constant(args[1]), self.constant(args[2]))
        if function is torch.nn.functional.embedding:
            return self.add("Gather", values[args[1]], values[args[0]])
        if function is operator.getitem and len(args[1]) == 2 and args[1][0] is Ellipsis:  # one column
            column = self.constant([args[1][1]], "int")
            return self.add("Squeeze", self.add("Gather", values[args[0]], column, axis=-1), self.constant([-1], "int"))
        if function in smooth:
            value = values[args[0]]
            return self.add("Relu", value) if function is torch.relu else self._smooth(smooth[function], value)
        if function not in known:
            raise _NoFormError(f"{function}")
        return self.add(known[function], *(values[one] if one in values else self.constant(one) for one in args))

    def _without_nan(self, value: str) -> str:
        """0 where the value is not a number."""
        return self.add("Where", self.add("IsNaN", value), self.constant(0.0), value)

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
        """Parabolas on short intervals, looked up by index, of which the outermost are lines without end."""
        where = self.affine(value, PER_UNIT, MIDDLE)
        number = self._without_nan(where)  # of an interval; y keeps what is not a number
        piece = self.add("Floor", self.add("Clip", number, self.constant(0.0), self.constant(float(LAST))))
        index, y = self.add("Cast", piece, to=_INT64), self.add("Sub", where, piece)
        c0, c1, c2 = (self.add("Gather", self.constant(column), index) for column in parabolas(shape).T)
        bounded = self.add("Clip", y, self.constant(-1.0), self.constant(2.0))
        return self.add("Add", self.add("Mul", self.add("Add", self.add("Mul", c2, bounded), c1), y), c0)

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
