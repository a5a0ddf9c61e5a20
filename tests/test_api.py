"""The public surface: names, parameters and attributes that scripts outside this repository rely on."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer

import notsodeep as nsd
from notsodeep.checks import MissingExtraError
from notsodeep.cli import app

# dotted name after ``notsodeep.`` → parameters that can be passed by name
CALLS = {
    "DEQ": "activation recurrent input bias",
    "Explicit": "activations",
    "ConvDEQ": "activation recurrent input filter_size",
    "DeepDEQ": "layers",
    "Layer": "activation recurrent input bias normalize",
    "DEQ.centered": "tau0",
    "DEQ.on_sphere": "kind norm",
    "Explicit.on_sphere": "kind norm",
    "DeepDEQ.on_sphere": "kind norm",
    "activation": "spec",
    "kernels.kernel": "model X Y kind dtype depth",
    "kernels.kernel_diag": "model X kind",
    "kernels.conv.kernel": "model images kind",
    "Mixture": "means covariances proportions",
    "Mixture.sample": "n seed",
    "Mixture.statistics": "X labels",
    "estimate_statistics": "X labels",
    "coefficients": "model tau0 kind",
    "equivalent": "model X stats kind",
    "spectrum": "model stats kind n p",
    "match": "model tau0 stats X kind family depth on kinks",
    "Match.distance_on": "X",
    "Match.report": "directory",
    "SphereMatch.distance_on": "X",
    "forecast": "model mixture n ridge kind",
    "learn.DEQKernelClassifier": "activation recurrent input bias kind ridge",
    "learn.DEQKernelRegressor": "activation recurrent input bias kind ridge",
    "learn.ConvDEQKernelClassifier": "activation recurrent input kind ridge",
    "learn.DEQFeatures": "activation recurrent input random_state",
    "nn.DEQNet": "deq in_features width out_features solver tol seed",
    "nn.ExplicitNet": "in_features width out_features seed",
    "nn.match_module": "module X",
    "nn.certificate": "net X y",
    "nn.Equilibrium": "f solver tol",
    "nn.replace": "module X y seed",
    "nn.kernel": "model X Y kind",
    "nn.DEQKernel": "activation recurrent input kind",
    "gp.GPyTorchDEQKernel": "activation recurrent input kind",
    "gp.SklearnDEQKernel": "activation recurrent input kind",
}

# what the objects have
MEMBERS = {
    "DEQ": "kernel kernel_diag on_sphere centered well_posed save",
    "Explicit": "activations kernel kernel_diag on_sphere save",
    "ConvDEQ": "kernel kernel_diag well_posed save",
    "DeepDEQ": "kernel kernel_diag on_sphere well_posed save",
    "Activation": "__call__ derivative",
    "Verdict": "reason __bool__",
    "kernels.SphereKernel": "__call__ derivative series",
    "DEQCoefficients": "tau gamma2 alpha1 alpha2 alpha3 alpha4 kappa2 beta1 beta2 beta3 weights",
    "ExplicitCoefficients": "weights",
    "CellCoefficients": "weights",
    "FourNumbers": "c1 c2 c3 d",
    "Statistics": "tau0",
    "Equivalent": "__matmul__ dense eigenvalues",
    "Match": "network residual exact reference distance_on report",
    "SphereMatch": "network distance exact reference distance_on",
    "Forecast": "accuracy per_class means covariances",
    "nn.DEQNet": "forward",
    "nn.ExplicitNet": "forward to_sequential",
    "nn.Replacement": "network table save __str__",
    "nn.SolveReport": "iterations residual converged",
    "nn.Equilibrium": "forward",
}

COMMANDS = {
    "match": "activation recurrent input bias data report on kinks json",
    "kernel": "activation kind out json",
    "fit": "json",
    "predict": "json",
    "train": "model data certify json",
    "data list": "json",
    "data fetch": "json",
    "data info": "json",
    "reproduce": "quick out json",
    "bench": "json",
    "forecast": "activation json",
}


def find(name: str) -> Any:
    """The object, by importing the longest part of the name that is a module."""
    if name.split(".")[0] in ("nn", "gp"):
        pytest.importorskip("torch")
    words = name.split(".")
    for k in range(len(words), -1, -1):
        try:
            found: Any = importlib.import_module(".".join(["notsodeep", *words[:k]]))
        except ModuleNotFoundError:
            continue
        try:
            for word in words[k:]:
                found = getattr(found, word)
        except MissingExtraError as error:
            pytest.skip(str(error))
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("name", CALLS)
def test_parameters_can_be_passed_by_name(name: str) -> None:
    called: Callable[..., Any] = find(name)
    taken = {
        parameter.name
        for parameter in inspect.signature(called).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    assert set(CALLS[name].split()) <= taken


@pytest.mark.parametrize("name", MEMBERS)
def test_objects_have_their_members(name: str) -> None:
    found = find(name)
    annotated = {entry for base in found.__mro__ for entry in inspect.get_annotations(base)}
    assert set(MEMBERS[name].split()) <= {*dir(found), *annotated}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_take_their_options(name: str) -> None:
    command: Any = typer.main.get_command(app)
    for word in name.split():
        command = command.commands[word]
    options = {word.removeprefix("--") for parameter in command.params for word in parameter.opts}
    assert set(COMMANDS[name].split()) <= options


def test_everything_public_is_there_and_documented() -> None:
    for module in (nsd, importlib.import_module("notsodeep.learn"), importlib.import_module("notsodeep.solvers")):
        for name in module.__all__:
            found = getattr(module, name)
            assert isinstance(found, str) or inspect.getdoc(found), f"{module.__name__}.{name}"


def test_the_last_solve_is_kept() -> None:
    torch = pytest.importorskip("torch")
    nn = importlib.import_module("notsodeep.nn")
    deep = nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), in_features=3, width=8, out_features=2, seed=0)
    cell = nn.Equilibrium(lambda z, x: torch.tanh(z / 2 + x), tol=1e-5)
    deep(torch.ones(4, 3)), cell(torch.ones(4, 3))
    assert deep.last_solve.converged
    assert cell.last_solve.converged


def test_kinds_of_each_model() -> None:
    assert nsd.DEQ.kinds == ("ck", "nngp", "ntk", "ntk_frozen_input", "ntk_injected")
    assert nsd.ConvDEQ.kinds == nsd.DEQ.kinds
    assert nsd.Explicit.kinds == ("ck", "ntk")
    assert nsd.DeepDEQ.kinds == ("ck", "nngp", "ntk")


def test_names_of_activations() -> None:
    promised = "relu normalized_relu leaky_relu tanh hard_tanh erf sin swish gelu abs identity"
    assert set(promised.split()) <= set(nsd.activation_names())
