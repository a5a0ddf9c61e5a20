"""``notsodeep show``: print a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.activations import Activation
from notsodeep.commands.console import Json, emit, number, say, table
from notsodeep.gaussian import moments
from notsodeep.models import Explicit, load_model


def show(
    file: Annotated[Path, typer.Argument(help="A JSON file written by `match --report` or `model.save`.")],
    json: Json = False,
) -> None:
    """Print the model that a JSON file describes."""
    model = load_model(file)
    layers = model.activations if isinstance(model, Explicit) else (model.activation,)
    content: dict[str, Any] = {**model.to_dict(), "text": str(model), "formulas": [str(layer) for layer in layers]}
    if not isinstance(model, Explicit):
        content["well_posed"] = bool(model.well_posed)
        content["reason"] = model.well_posed.reason
    if json:
        emit(content)
        return
    say(str(model))
    say(table("activations at unit variance", ("layer", "Lipschitz", "E[φ]", "E[φ']", "E[φ²]"), _rows(layers)))
    if not isinstance(model, Explicit):
        say(str(model.well_posed))


def _rows(layers: tuple[Activation, ...]) -> list[tuple[str, ...]]:
    rows = []
    for k, layer in enumerate(layers, 1):
        m = moments(layer, 1.0)
        rows.append((f"{k}: {layer}", *(number(value) for value in (layer.lipschitz, m.mean, m.slope, m.power))))
    return rows
