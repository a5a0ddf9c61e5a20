"""``notsodeep match``: turn a DEQ into an equivalent shallow explicit network. The main job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from notsodeep import data as datasets
from notsodeep.checks import InputError, choice
from notsodeep.commands.console import (
    DATA,
    Json,
    Limit,
    emit,
    parse_activation,
    progress,
    say,
    table,
    wrapped,
    wrapped_reason,
)
from notsodeep.matching import match as design
from notsodeep.models import DEQ, load_model
from notsodeep.study import Study, closer_network

_REPORT_HELP = (
    "Write a page, pictures, numbers and the network into this directory. An earlier report there is replaced; "
    "a directory with any other file is refused."
)


def match(
    activation: Annotated[
        str, typer.Option(help="Activation φ: relu, tanh, gelu, … (a misspelt name lists all).")
    ] = "relu",
    param: Annotated[list[str] | None, typer.Option(help="A parameter of φ, as name=value; repeat.")] = None,
    recurrent: Annotated[float, typer.Option(help="Variance σ_a² of the recurrent weights.")] = 0.2,
    input: Annotated[float, typer.Option(help="Variance σ_b² of the input weights.")] = 0.8,
    cell: Annotated[
        Path | None, typer.Option(help="A model file (a cell of several layers, say) in place of the four above.")
    ] = None,
    data: Annotated[str | None, typer.Option(help=DATA)] = None,
    limit: Limit = 2000,
    tau0: Annotated[float, typer.Option(help="Root mean square of ‖x‖, when there is no data.")] = 1.0,
    kind: Annotated[
        str, typer.Option(help="The kernel to match: ck, ntk, nngp, ntk_frozen_input or ntk_injected.")
    ] = "ck",
    family: Annotated[
        str | None, typer.Option(help="Activations of the explicit network; automatic when absent.")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Its number of hidden layers; automatic when absent.")] = None,
    on: Annotated[
        str,
        typer.Option(help="mixture: equal numbers in high dimension; sphere: one layer, exact for rows of equal norm."),
    ] = "mixture",
    kinks: Annotated[
        int | None, typer.Option(help="On a sphere: a piecewise-linear activation with at most so many kinks.")
    ] = None,
    bias: Annotated[float, typer.Option(help="Variance σ_0² of the bias; on a sphere only.")] = 0.0,
    report: Annotated[Path | None, typer.Option(help=_REPORT_HELP)] = None,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="With a report on labelled data, also train both networks.")
    ] = True,
    json: Json = False,
) -> None:
    """Design the shallow explicit network that behaves like a deep equilibrium model."""
    deq: Any = load_model(cell) if cell else DEQ(parse_activation(activation, param or []), recurrent, input, bias)
    choice(on, ("mixture", "sphere"), "on")
    if on == "sphere":
        for name, given in (("family", family), ("depth", depth), ("report", report)):
            if given is not None:
                raise InputError(f"--{name} is for --on mixture; on a sphere there is one layer, printed or --json")
        _on_sphere(deq, data, limit, tau0, kind, kinks, json)
        return
    if kinks is not None:
        raise InputError(f"kinks={kinks} is for --on sphere; use --family piecewise_linear")
    loaded = None if data is None else datasets.subsample(datasets.load(data), limit)
    scale = tau0 if loaded is None else 1.0  # the data is scaled to this τ0
    with progress("designing the explicit network", quiet=json) as step:
        found = design(deq, tau0=scale, kind=kind, family=family, depth=depth)
        if report is None:
            content = {**Study.of(found, loaded, progress=step).to_dict(), "comparison": None}
        else:
            written = found.report(report, loaded, train=train, source=data, progress=step)
            content = written.content
    if json:
        emit({**content, "report": str(report) if report else None})
        return
    say(*describe(content))
    if report is not None:
        say(f"picture    {report / 'closeness.png'}")
        say(f"report     {written.page}" + (" (the earlier report was replaced)" if written.replaced else ""))
        say(f"network    {report / 'network.json'}")


def _on_sphere(
    deq: Any, data: str | None, limit: int | None, tau0: float, kind: str, kinks: int | None, json: bool
) -> None:
    """One layer for rows of norm τ0, measured on the rows of the data after they are normalised."""
    with progress("designing the explicit network", quiet=json):
        found = design(deq, tau0=tau0, kind=kind, on="sphere", kinks=kinks)
        content: dict[str, Any] = {"text": str(deq), **found.to_dict(), "data": None}
        if data is not None:
            loaded = datasets.subsample(datasets.load(data), limit)
            X = np.asarray(loaded.X, dtype=np.float64).reshape(len(loaded.X), -1)
            norms = np.linalg.norm(X, axis=1)
            X = tau0 * X[norms > 0] / norms[norms > 0, None]
            content["data"] = {"name": loaded.name, "samples": len(X), "distance": found.distance_on(X)}
    if json:
        emit(content)
        return
    say(*(line for text in str(found).splitlines() for line in wrapped(None, text)))
    if content["data"]:
        facts = content["data"]
        say(
            *wrapped(
                "data",
                f"{facts['name']}, {facts['samples']} rows of norm {tau0:g}: kernels differ by "
                f"{facts['distance']:.1e} in the spectral norm, relatively",
            )
        )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _forecast(content: Mapping[str, Any]) -> str:
    """The best of the forecast accuracies of both networks, or why there are none."""
    if content["obstacle"]:
        return f"none of the accuracy: {content['obstacle']}"
    best = {name: _percent(max(content[name]["accuracy"])) for name in ("implicit", "explicit")}
    n = content["implicit"]["n"][0]
    return f"{best['implicit']} accuracy with the implicit kernel, {best['explicit']} with the explicit one, n = {n}"


def describe(content: Mapping[str, Any]) -> list[Any]:
    """What `match` found, as text and tables to print, from the numbers it writes to ``match.json``."""
    facts, found = content["data"], content["match"]
    depth = found["depth"]
    rows = [
        (name, f"{goal:.10g}", f"{found['achieved'][name]:.10g}", f"{found['errors'][name]:.1e}")
        for name, goal in found["target"].items()
    ]
    verdict = "exact in all four numbers" if found["exact"] else f"not exact: misses {', '.join(found['missed'])}"
    limit = "kernels with equal numbers agree in the limit of large dimension"
    errors = [(row["network"], _percent(row["error"]), _percent(row["rescaled_error"])) for row in content["closeness"]]
    title = f"‖G_implicit − Σ_explicit‖ / ‖G_implicit‖ on {facts['name']}, spectral norm"
    parts = [
        f"implicit   {content['text']}",
        *wrapped_reason("", content["well_posed"]["reason"]),
        f"explicit   {depth} hidden layer{'s' if depth > 1 else ''}",
        *(f"           σ{k}(x) = {formula}" for k, formula in enumerate(content["formulas"], 1)),
        *wrapped("data", f"{facts['name']}: {facts['samples']} samples × {facts['features']} features"),
        *(
            [f"           centred, and scaled to mean ‖x‖² = τ0², τ0 = {found['tau0']:.6g}"]
            if facts["prepared"]
            else []
        ),
        "",
        table(f"{found['kind']} coefficients", ("", "implicit", "explicit", "relative error"), rows),
        *wrapped("match", f"{verdict}; {limit}, these differ by {_percent(content['closeness'][0]['error'])}"),
        *wrapped("", "c1: linear part, c2, c3: class variances and covariances, d: diagonal"),
        "",
        table("\n".join(wrapped(None, title)), ("explicit network", "as it is", "best rescaled"), errors),
    ]
    if closer := closer_network(content["closeness"]):
        parts += wrapped("but", f"{closer}: four numbers do not say all about a kernel at this dimension")
    if forecast := content.get("forecast"):
        parts += ["", *wrapped("forecast", _forecast(forecast))]
    if designs := content.get("designs"):
        parts += ["", *wrapped(None, f"{designs['setting']}.")]
        parts.append(table("explicit designs", designs["columns"], designs["rows"]))
    if comparison := content["comparison"]:
        parts += ["", *wrapped(None, f"{comparison['setting']}.")]
        parts.append(table("implicit vs explicit", comparison["columns"], comparison["rows"]))
    return parts
