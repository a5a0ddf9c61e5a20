"""The options that commands share: the model, the data, the preparation of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.errors import InputError, choice, warn_deprecated
from notsodeep.kinds import Kind

if TYPE_CHECKING:
    from notsodeep.activations import Activation
    from notsodeep.data import Data

FETCHED = "mnist, fashion-mnist, cifar10"
DATA = f"digits, {FETCHED}, gaussian-mixture, or a file (.npy, .npz, .csv, .parquet, IDX, CIFAR .bin)."
MODEL_PANEL, DATA_PANEL = "The model", "The data"


def flag(*names: str, help: str, **options: Any) -> Any:
    """An option without a value; its help shows no type."""
    return typer.Option(*names, help=help, metavar="", **options)


def _model(*names: str, help: str, metavar: str = "NUMBER", **options: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=MODEL_PANEL, **options)


def of_data(*names: str, help: str, metavar: str = "DATA", **options: Any) -> Any:
    """An option about the data."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=DATA_PANEL, **options)


ActivationName = Annotated[str, _model(help="φ: relu, tanh, gelu, … (a misspelt name lists all).", metavar="NAME")]
Param = Annotated[list[str] | None, _model(help="A parameter of φ; repeat.", metavar="NAME=VALUE")]
Recurrent = Annotated[float, _model(help="Variance σ_a² of the recurrent weights.")]
Input = Annotated[float, _model(help="Variance σ_b² of the input weights.")]
Bias = Annotated[float, _model(help="Variance σ_0² of the bias.")]
Cell = Annotated[
    Path | None,
    _model(help="A model file (a cell of several layers, say) in place of the five options above.", metavar="FILE"),
]
OldModel = Annotated[Path | None, _model("--model", help="Now called --cell.", metavar="FILE", hidden=True)]
KindName = Annotated[
    str, _model(help="The kernel: ck, nngp, ntk, ntk_frozen_input or ntk_injected, in any case.", metavar="KIND")
]

Label = Annotated[
    str | None,
    of_data(
        help="The column of the labels: its name or, in a file without a header line, its number from 1. "
        "When absent: label, target, class or y.",
        metavar="COLUMN",
    ),
]
Ignore = Annotated[list[str] | None, of_data(help="A column to leave out, such as an id; repeat.", metavar="COLUMN")]
Limit = Annotated[
    int | None,
    of_data("--limit", "--samples", help="Use at most so many samples, drawn at random.", metavar="COUNT"),
]
Normalize = Annotated[
    str | None,
    of_data(
        help="Rows: each of norm 1 (unit), centred and scaled to mean ‖x‖² = 1 (center), as they are (none). "
        "The default is what the result assumes: center for mixtures (match, forecast, train), unit for rows of equal "
        "norm (fit, match --on sphere), none for a kernel.",
        metavar="unit|center|none",
    ),
]
Json = Annotated[bool, flag("--json", help="Print one JSON object and nothing else.")]
Force = Annotated[bool, flag("--force", help="Replace an existing file.")]


def described(
    activation: str,
    param: Sequence[str] | None,
    recurrent: float,
    input: float,
    bias: float,
    cell: Path | None,
    old: Path | None = None,
) -> Any:
    """The model that the options describe."""
    from notsodeep.descriptions import load_model
    from notsodeep.models import DEQ

    if old is not None:
        warn_deprecated("--model is now --cell; the old name goes with the next release")
    file = cell or old
    return load_model(file) if file else DEQ(parse_activation(activation, param), recurrent, input, bias)


def parse_activation(name: str, parameters: Sequence[str] | None) -> Activation:
    """``relu``, or ``leaky_relu`` with ``["a=1", "b=0.2"]``."""
    from notsodeep.activations import activation

    values: dict[str, Any] = {}
    for text in parameters or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"param={text!r} must look like name=value, for example --param b=0.2")
        try:
            numbers = [float(part) for part in value.split(",")]
        except ValueError:
            raise InputError(f"param={text!r}: {value!r} is not a number") from None
        values[key.strip()] = numbers if "," in value else numbers[0]
    return activation(name, **values)


def kind_called(name: str) -> str:
    """The kind of this name, in any case; the nearest one is suggested for a misspelt name.

    Examples
    --------
    >>> kind_called("NTK")
    'ntk'
    """
    return choice(name.lower(), [kind.label for kind in Kind], "kind")


def read(
    source: str, label: str | None = None, ignore: Sequence[str] | None = None, limit: int | None = None, seed: int = 0
) -> Data:
    """The data that the options name."""
    from notsodeep import data

    return data.subsample(data.load(source, label=label, ignore=ignore or ()), limit, seed)


def rows_line(data: Data, rows: str) -> list[tuple[str, str]]:
    """How a file was read and how its rows were prepared, as labelled lines to print."""
    return [*(("", note) for note in data.notes), ("rows", rows)]
