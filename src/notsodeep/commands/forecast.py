"""``notsodeep forecast``: the accuracy of a kernel machine before it is trained."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.commands import options
from notsodeep.commands.console import emit, number, progress, say, say_lines, table, wrapped
from notsodeep.commands.fit import labels_for
from notsodeep.errors import AssumptionWarning, InputError

if TYPE_CHECKING:
    from notsodeep.highdim import Forecast

_MIXTURE = "A JSON file with means, covariances (each a number, a diagonal or a matrix) and proportions."


def forecast(
    mixture: Annotated[Path | None, typer.Option(help=_MIXTURE)] = None,
    data: Annotated[
        str | None,
        options.of_data(help=f"In its place, labelled data to estimate it from: {options.DATA}"),
    ] = None,
    n: Annotated[
        list[int] | None, typer.Option("--n", metavar="COUNT", help="Number of training samples; repeat for a curve.")
    ] = None,
    ridge: Annotated[
        list[str] | None, typer.Option(help="Ridge, or best; repeat for a curve.", metavar="NUMBER")
    ] = None,
    activation: options.ActivationName = "relu",
    param: options.Param = None,
    recurrent: options.Recurrent = 0.2,
    input: options.Input = 0.8,
    bias: options.Bias = 0.0,
    cell: options.Cell = None,
    model: options.OldModel = None,
    kind: options.KindName = "ck",
    label: options.Label = None,
    ignore: options.Ignore = None,
    limit: options.Limit = None,
    normalize: options.Normalize = None,
    width: Annotated[
        list[int] | None,
        typer.Option(help="Readout of a random network of this width; repeat for each hidden layer.", metavar="COUNT"),
    ] = None,
    covariance: Annotated[
        str, typer.Option(help="How data gives covariances: ledoit-wolf, oas or spectrum.")
    ] = "ledoit-wolf",
    json: options.Json = False,
) -> None:
    """Predict the accuracy of kernel ridge classification, without training and without the kernel matrix.

    The data is a Gaussian mixture in a file, or labelled samples from which one is estimated; samples are centred and
    scaled to mean ‖x‖² = 1 first, and a part of them is held out to check the forecast.
    """
    import numpy as np

    from notsodeep.data import Preparation
    from notsodeep.highdim import forecast as predict
    from notsodeep.highdim import load_mixture

    if (mixture is None) == (data is None):
        raise InputError("pass either --mixture file.json or --data")
    network = options.described(activation, param, recurrent, input, bias, cell, model)
    kind = options.kind_called(kind)
    lines: list[tuple[str, str]] = [("data", str(mixture or data))]
    wanted: dict[str, Any] = {"ridge": _ridges(ridge or ["best"]), "kind": kind}
    if width:
        wanted["width"] = width[0] if len(width) == 1 else width
    if mixture is not None:
        if not n:
            raise InputError("n is missing; pass --n, the number of training samples")
        wanted["mixture"] = load_mixture(mixture)
        if normalize is not None:
            raise InputError(f"normalize={normalize!r} is for rows of data; a mixture is used as it is")
        lines.append(("", f"{wanted['mixture'].classes} classes × {wanted['mixture'].p} features"))
        rows = None
    else:
        loaded = options.read(str(data), label, ignore, limit).labelled()
        labels_for("classify", loaded.labels, loaded.name)
        X = loaded.X.astype(np.float64)
        preparation = Preparation.of(X, normalize or "center")
        rows = str(preparation)
        wanted |= {"X": preparation(X), "y": loaded.labels, "covariance": covariance}
        lines += [("", f"{len(X)} samples × {X.shape[1]} features"), *options.rows_line(loaded, rows)]
    sizes: Any = None if not n else n[0] if len(n) == 1 else np.array(n)
    if np.ndim(wanted["ridge"]) and np.ndim(sizes):
        sizes = sizes[:, None]
    with warnings.catch_warnings(), progress("forecast", quiet=json):
        warnings.simplefilter("ignore", AssumptionWarning)  # the reasons are printed below
        found = predict(network, n=sizes, **wanted)
    if json:
        emit(
            {
                "model": network.to_dict(),
                "source": str(mixture or data),
                "rows": rows,
                "width": width,
                **found.to_dict(),
            }
        )
        return
    of_width = f"readout at width {' × '.join(map(str, width))}" if width else kind
    say_lines([("network", f"{network}, {of_width}"), *lines])
    c = found.weights
    say(f"numbers    c1 = {number(c.c1)}, c2 = {number(c.c2)}, c3 = {number(c.c3)}, d = {number(c.d)}", "")
    _points(found) if np.ndim(found.accuracy) else _one(found)
    if found.check is not None:
        say("", *wrapped("check", str(found.check)))
    for k, reason in enumerate(found.outside):
        say(*wrapped("" if k else "outside", f"{'and: ' if k else 'the theory: '}{reason}"))


def _ridges(texts: list[str]) -> Any:
    import numpy as np

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
    import numpy as np

    say(f"training   n = {found.n}, ridge = {number(found.ridge)}")
    say(f"accuracy   {_percent(found.accuracy)} of new samples, {_percent(found.train_accuracy)} of those trained on")
    rows = []
    for a, name in enumerate(found.classes):
        others = np.where(np.arange(len(found.classes)) == a, -1.0, found.confusion[a])
        mean, deviation = found.means[a, a], float(np.sqrt(found.covariances[a, a, a]))
        mistaken = f"{found.classes[np.argmax(others)]} ({_percent(others.max())})"
        row = (str(name), _percent(found.proportions[a]), _percent(found.per_class[a]), f"{mean:.3f} ± {deviation:.3f}")
        rows.append((*row, mistaken))
    say(table("", ("class", "share", "accuracy", "its own score", "mistaken most often for"), rows, limit=30))


def _points(found: Forecast) -> None:
    import numpy as np

    rows = [
        (f"{n}", number(ridge), _percent(accuracy), _percent(train))
        for n, ridge, accuracy, train in zip(
            *(np.ravel(one) for one in (found.n, found.ridge, found.accuracy, found.train_accuracy)), strict=True
        )
    ]
    say(table("", ("n", "ridge", "accuracy", "of training samples"), rows))
