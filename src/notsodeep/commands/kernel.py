"""``notsodeep kernel``: the exact kernel matrix of a data file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from notsodeep import data
from notsodeep.checks import InputError
from notsodeep.commands.console import DATA, Json, Limit, emit, new_file, parse_activation, progress, say
from notsodeep.models import DEQ, load_model


def kernel(
    source: Annotated[str, typer.Argument(metavar="DATA", help=DATA)],
    out: Annotated[Path, typer.Option(help="The .npy file to write.")],
    activation: Annotated[str, typer.Option(help="φ by name.")] = "relu",
    param: Annotated[list[str] | None, typer.Option(help="A parameter of φ, as name=value; repeat.")] = None,
    recurrent: Annotated[float, typer.Option(help="Variance σ_a² of the recurrent weights.")] = 0.2,
    input: Annotated[float, typer.Option(help="Variance σ_b² of the input weights.")] = 0.8,
    bias: Annotated[float, typer.Option(help="σ_0²")] = 0.0,
    model: Annotated[Path | None, typer.Option(help="A model file, in place of the five options above.")] = None,
    kind: Annotated[str, typer.Option(help="ck, nngp, ntk, ntk_frozen_input or ntk_injected.")] = "ck",
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    limit: Limit = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Write the exact infinite-width kernel matrix of a data set."""
    if out.suffix != ".npy":
        raise InputError(f"out={str(out)!r} must end in .npy")
    network: Any = (
        load_model(model) if model else DEQ(parse_activation(activation, param or []), recurrent, input, bias)
    )
    with new_file(out, force=force) as partial:
        X = data.subsample(data.load(source), limit).X
        text = f"{kind} of {len(X)} samples"
        with progress(text, quiet=json) as step:
            matrix = network.kernel(X, kind=kind, dtype=dtype, progress=lambda done, total: step(text, done / total))
        with partial.open("wb") as file:
            np.save(file, matrix)
    summary = {
        "out": str(out),
        "model": network.to_dict(),
        "kind": kind,
        "shape": list(matrix.shape),
        "dtype": str(matrix.dtype),
        "trace": float(np.trace(matrix)),
    }
    if json:
        emit(summary)
    else:
        say(f"{kind} of {network}", f"{out}: {matrix.shape[0]} × {matrix.shape[1]} {matrix.dtype}")
