"""``notsodeep show``: print a model file, or what a match found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.commands.console import emit, number, say, table, wrapped_reason
from notsodeep.commands.match import describe, describe_single
from notsodeep.commands.options import Json
from notsodeep.errors import InputError

if TYPE_CHECKING:
    from notsodeep.activations import Activation
    from notsodeep.one_layer import SphereMatch


def show(
    file: Annotated[Path, typer.Argument(help="A JSON file written by `match --report` or `model.save`.")],
    json: Json = False,
) -> None:
    """Print the model, or the match, that a JSON file describes."""
    from notsodeep.descriptions import model_from_dict
    from notsodeep.models import DEQ, ConvDEQ, Explicit

    content = _read(file)
    if {"match", "closeness"} <= content.keys() or content.get("on") == "sphere":
        try:
            parts = describe(content) if "match" in content else describe_single(_single(content), content["data"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"file={str(file)!r} is damaged: its match is incomplete ({error!r})") from None
    else:
        model = model_from_dict(content, str(file))
        layers = (model.activation,) if isinstance(model, DEQ | ConvDEQ) else model.activations
        content = {**model.to_dict(), "text": str(model), "formulas": [str(layer) for layer in layers]}
        columns = ("layer", "Lipschitz", "E[φ]", "E[φ']", "E[φ²]")
        parts = [str(model), table("activations at unit variance", columns, _rows(layers))]
        if not isinstance(model, Explicit):
            content |= {"well_posed": bool(model.well_posed), "reason": model.well_posed.reason}
            parts += wrapped_reason(None, model.well_posed.reason)
    if json:
        emit(content)
    else:
        say(*parts)


def _single(content: dict[str, Any]) -> SphereMatch:
    """The single layer that ``match.json`` describes."""
    from notsodeep.descriptions import model_from_dict
    from notsodeep.one_layer import SphereMatch

    names = ("family", "kind", "tau0", "distance", "fourth", "why")
    models = {"network": content["network"], "reference": content["model"]}
    built = {name: model_from_dict(described, name) for name, described in models.items()}
    return SphereMatch(**built, **{name: content[name] for name in names})


def _read(file: Path) -> dict[str, Any]:
    from notsodeep.reading import json_file

    if not file.exists():
        raise InputError(f"file={str(file)!r} does not exist")
    try:
        content = json_file(file)
        reason = None if isinstance(content, dict) else "it holds no object"
    except ValueError as error:
        reason = " ".join(str(error).split())
    if reason is not None:
        raise InputError(
            f"file={str(file)!r} is not a model file ({reason}); pass network.json or match.json of a report, or what "
            "model.save wrote (learn.load reads .npz, nn.load .safetensors)"
        )
    return dict(content)


def _rows(layers: tuple[Activation, ...]) -> list[tuple[str, ...]]:
    from notsodeep.gaussian import moments

    rows = []
    for k, layer in enumerate(layers, 1):
        m = moments(layer, 1.0)
        rows.append((f"{k}: {layer}", *(number(value) for value in (layer.lipschitz, m.mean, m.slope, m.power))))
    return rows
