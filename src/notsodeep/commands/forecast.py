"""``notsodeep forecast``: the accuracy of a kernel machine before it is trained."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from notsodeep import data as datasets
from notsodeep.checks import AssumptionWarning, InputError
from notsodeep.commands.console import DATA, Json, Limit, emit, number, parse_activation, progress, say, table, wrapped
from notsodeep.highdim import Forecast, load_mixture
from notsodeep.highdim import forecast as predict
from notsodeep.models import DEQ, load_model

_MIXTURE = "A JSON file with means, covariances (each a number, a diagonal or a matrix) and proportions."


def forecast(
    mixture: Annotated[Path | None, typer.Option(help=_MIXTURE)] = None,
    data: Annotated[str | None, typer.Option(help=f"In its place, labelled data to estimate it from: {DATA}")] = None,
    n: Annotated[list[int] | None, typer.Option("--n", help="Number of training samples; repeat for a curve.")] = None,
    ridge: Annotated[list[str] | None, typer.Option(help="Ridge, or best; repeat for a curve.")] = None,
    activation: Annotated[str, typer.Option(help="φ by name.")] = "relu",
    param: Annotated[list[str] | None, typer.Option(help="A parameter of φ, as name=value; repeat.")] = None,
    recurrent: Annotated[float, typer.Option(help="Variance σ_a² of the recurrent weights.")] = 0.2,
    input: Annotated[float, typer.Option(help="Variance σ_b² of the input weights.")] = 0.8,
    model: Annotated[
        Path | None, typer.Option("--model", "--cell", help="A model file in place of the four options above.")
    ] = None,
    kind: Annotated[str, typer.Option(help="ck, nngp, ntk, ntk_frozen_input or ntk_injected.")] = "ck",
    width: Annotated[
        list[int] | None, typer.Option(help="Readout of a random network of this width; repeat for each hidden layer.")
    ] = None,
    covariance: Annotated[
        str, typer.Option(help="How data gives covariances: ledoit-wolf, oas or spectrum.")
    ] = "ledoit-wolf",
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Predict the accuracy of kernel ridge classification, without training and without the kernel matrix.

    The data is a Gaussian mixture in a file, or labelled samples from which one is estimated; samples are centred and
    scaled to mean ‖x‖² = 1 first, and a part of them is held out to check the forecast.
    """
    if (mixture is None) == (data is None):
        raise InputError("pass either --mixture file.json or --data")
    network: Any = load_model(model) if model else DEQ(parse_activation(activation, param or []), recurrent, input)
    options: dict[str, Any] = {"ridge": _ridges(ridge or ["best"]), "kind": kind}
    if width:
        options["width"] = width[0] if len(width) == 1 else width
    if mixture is not None:
        if not n:
            raise InputError("n is missing; pass --n, the number of training samples")
        options["mixture"] = load_mixture(mixture)
        text = f"{options['mixture'].classes} classes × {options['mixture'].p} features"
    else:
        loaded = datasets.subsample(datasets.load(str(data)), limit)
        if loaded.labels is None:
            raise InputError(f"data={data!r} has no labels; pass a file with X and y")
        options |= {"X": datasets.prepare(loaded.X), "y": loaded.labels, "covariance": covariance}
        text = f"{len(loaded.X)} samples × {options['X'].shape[1]} features, centred and scaled to mean ‖x‖² = 1"
    sizes: Any = None if not n else n[0] if len(n) == 1 else np.array(n)
    if np.ndim(options["ridge"]) and np.ndim(sizes):
        sizes = sizes[:, None]
    with warnings.catch_warnings(), progress("forecast", quiet=json):
        warnings.simplefilter("ignore", AssumptionWarning)  # the reasons are printed below
        found = predict(network, n=sizes, **options)
    if json:
        emit({"model": network.to_dict(), "source": str(mixture or data), "width": width, **found.to_dict()})
        return
    of_width = f"readout at width {' × '.join(map(str, width))}" if width else kind
    say(*wrapped("network", f"{network}, {of_width}"), *wrapped("data", str(mixture or data)), *wrapped("", text))
    c = found.weights
    say(f"numbers    c1 = {number(c.c1)}, c2 = {number(c.c2)}, c3 = {number(c.c3)}, d = {number(c.d)}", "")
    _points(found) if np.ndim(found.accuracy) else _one(found)
    if found.check is not None:
        say("", *wrapped("check", str(found.check)))
    for k, reason in enumerate(found.outside):
        say(*wrapped("" if k else "outside", f"the theory: {reason}"))


def _ridges(texts: list[str]) -> Any:
    if texts == ["best"]:
        return "best"
    try:
        values = [float(text) for text in texts]
    except ValueError:
        raise InputError(f"ridge={' '.join(texts)!r} must be numbers, or best alone") from None
    return values[0] if len(values) == 1 else np.array(values)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _one(found: Forecast) -> None:
    say(f"training   n = {found.n}, ridge = {number(found.ridge)}")
    say(f"accuracy   {_percent(found.accuracy)} of new samples, {_percent(found.train_accuracy)} of those trained on")
    rows = []
    for a, name in enumerate(found.classes):
        others = np.where(np.arange(len(found.classes)) == a, -1.0, found.confusion[a])
        mean, deviation = found.means[a, a], float(np.sqrt(found.covariances[a, a, a]))
        mistaken = f"{found.classes[np.argmax(others)]} ({_percent(others.max())})"
        row = (str(name), number(found.proportions[a]), _percent(found.per_class[a]), f"{mean:.3f} ± {deviation:.3f}")
        rows.append((*row, mistaken))
    say(table("", ("class", "share", "accuracy", "its own score", "mistaken most often for"), rows))


def _points(found: Forecast) -> None:
    rows = [
        (f"{n}", number(ridge), _percent(accuracy), _percent(train))
        for n, ridge, accuracy, train in zip(
            *(np.ravel(one) for one in (found.n, found.ridge, found.accuracy, found.train_accuracy)), strict=True
        )
    ]
    say(table("", ("n", "ridge", "accuracy", "of training samples"), rows))
