"""``notsodeep match``: turn a DEQ into an equivalent shallow explicit network. The main job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.commands import options
from notsodeep.commands.console import emit, progress, say, table, wrapped, wrapped_reason
from notsodeep.errors import InputError, choice

_REPORT_HELP = (
    "Write a page, pictures, numbers and the network into this directory. An earlier report there is replaced; "
    "a directory with any other file is refused."
)


def match(
    activation: options.ActivationName = "relu",
    param: options.Param = None,
    recurrent: options.Recurrent = 0.2,
    input: options.Input = 0.8,
    bias: options.Bias = 0.0,
    cell: options.Cell = None,
    kind: options.KindName = "ck",
    data: Annotated[str | None, options.of_data(help=options.DATA)] = None,
    label: options.Label = None,
    ignore: options.Ignore = None,
    limit: options.Limit = 2000,
    normalize: options.Normalize = None,
    tau0: Annotated[float, typer.Option(help="Root mean square of ‖x‖, when there is no data.")] = 1.0,
    on: Annotated[
        str,
        typer.Option(help="mixture: equal numbers in high dimension; sphere: one layer, exact for rows of equal norm."),
    ] = "mixture",
    kinks: Annotated[
        int | None, typer.Option(help="On a sphere: a piecewise-linear activation with at most so many kinks.")
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="On a mixture: activations of the explicit network; automatic when absent.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(help="On a mixture: number of hidden layers; automatic when absent.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help=_REPORT_HELP)] = None,
    train: Annotated[
        bool, options.flag("--train/--no-train", help="With a report on labelled data, also train both networks.")
    ] = True,
    json: options.Json = False,
) -> None:
    """Design the shallow explicit network that behaves like a deep equilibrium model."""
    import numpy as np

    from notsodeep.data.preparation import NORMALIZATIONS
    from notsodeep.matching import match as design
    from notsodeep.study import Study, measured_on

    deq = options.described(activation, param, recurrent, input, bias, cell)
    kind = options.kind_called(kind)
    sphere = choice(on, ("mixture", "sphere"), "on") == "sphere"
    if normalize is not None:
        choice(normalize, NORMALIZATIONS, "normalize")
        if data is None:
            raise InputError(f"normalize={normalize!r} is for rows of data; pass --data too")
    for name, given in (("family", family), ("depth", depth)):
        if sphere and given is not None:
            raise InputError(f"--{name} is for --on mixture; on a sphere there is one layer")
    if kinks is not None and not sphere:
        raise InputError(f"kinks={kinks} is for --on sphere; use --family piecewise_linear")
    loaded = None if data is None else options.read(data, label, ignore, limit)
    with progress("designing the explicit network", quiet=json) as step:
        found: Any
        if sphere:
            found = design(deq, tau0=tau0, kind=kind, on="sphere", kinks=kinks)
            how: dict[str, Any] = {"normalize": normalize or "unit"}
        else:
            scale = tau0 if loaded is None else 1.0  # the rows are scaled to this τ0
            if loaded is not None and normalize == "none":
                scale = float(np.sqrt(np.mean(np.sum(loaded.X.astype(np.float64) ** 2, axis=1))))
            found = design(deq, tau0=scale, kind=kind, family=family, depth=depth)
            how = {"normalize": normalize or "center", "progress": step}
        if report is not None:
            written = found.report(report, loaded, source=data, **how, **({} if sphere else {"train": train}))
            content = written.content
        elif sphere:
            content = {"text": str(deq), **found.to_dict(), "data": measured_on(found, loaded, **how)}
        else:
            content = {**Study.of(found, loaded, **how).to_dict(), "comparison": None}
    if json:
        emit({**content, "report": str(report) if report else None})
        return
    notes = loaded.notes if loaded else ()
    say(*(describe_single(found, content["data"], notes) if sphere else describe(content, notes)))
    if report is not None:
        _say_report(written, "one_layer" if sphere else "closeness")


def _say_report(written: Any, picture: str) -> None:
    folder = written.page.parent
    say(f"picture    {folder / f'{picture}.png'}")
    say(f"report     {written.page}" + (" (the earlier report was replaced)" if written.replaced else ""))
    say(f"network    {folder / 'network.json'}")


def describe_single(found: Any, facts: Mapping[str, Any] | None, notes: Sequence[str] = ()) -> list[str]:
    """The single layer, and how far it is off on the rows of the data, as lines to print."""
    lines = [line for text in str(found).splitlines() for line in wrapped(None, text)]
    if facts:
        distance = f"relative distance {facts['distance']:.1e} of the kernels, in spectral norm"
        lines += wrapped("data", f"{facts['name']}, {facts['samples']} rows: {distance}")
        lines += [line for note in notes for line in wrapped("", note)]
        lines += wrapped("rows", facts["rows"])
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _forecast(content: Mapping[str, Any]) -> str:
    """The best of the forecast accuracies of both networks, or why there are none."""
    if content["obstacle"]:
        return f"no accuracy can be forecast: {content['obstacle']}"
    best = {name: _percent(max(content[name]["accuracy"])) for name in ("implicit", "explicit")}
    n = content["implicit"]["n"][0]
    return f"{best['implicit']} accuracy with the implicit kernel, {best['explicit']} with the explicit one, n = {n}"


def describe(content: Mapping[str, Any], notes: Sequence[str] = ()) -> list[Any]:
    """What `match` found, as text and tables to print, from the numbers it writes to ``match.json``."""
    from notsodeep.study import closer_network

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
        *(line for note in notes for line in wrapped("", note)),
        *(wrapped("rows", facts.get("rows", "centred and scaled")) if facts["prepared"] else []),
        "",
        table(f"{found['kind']} coefficients", ("", "implicit", "explicit", "relative error"), rows),
        *wrapped("match", f"{verdict}; {limit}, these differ by {_percent(content['closeness'][0]['error'])}"),
        *wrapped("", "c1: linear part, c2, c3: class variances and covariances, d: diagonal"),
        "",
        table("\n".join(wrapped(None, title)), ("explicit network", "as it is", "best rescaled"), errors),
    ]
    if closer := closer_network(content["closeness"]):
        parts += wrapped("but", f"{closer}: at this dimension four numbers do not determine a kernel")
    if forecast := content.get("forecast"):
        parts += ["", *wrapped("forecast", _forecast(forecast))]
    if designs := content.get("designs"):
        parts += ["", *wrapped(None, f"{designs['setting']}.")]
        parts.append(table("explicit designs", designs["columns"], designs["rows"]))
    if comparison := content["comparison"]:
        parts += ["", *wrapped(None, f"{comparison['setting']}.")]
        parts.append(table("implicit vs explicit", comparison["columns"], comparison["rows"]))
    return parts
