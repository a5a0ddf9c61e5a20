"""``notsodeep fit``: a kernel machine with the exact kernel of a DEQ, on a data set or a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.commands import options
from notsodeep.commands.console import emit, new_file, number, progress, say, say_lines
from notsodeep.errors import InputError, choice

TASKS = ("classify", "regress")


def fit(
    source: Annotated[str, typer.Argument(metavar="DATA", help=options.DATA)],
    out: Annotated[Path, typer.Option(help="The .npz file to write the fitted machine to.")],
    task: Annotated[str, typer.Option(help="classify or regress.")] = "classify",
    activation: options.ActivationName = "normalized_relu",
    param: options.Param = None,
    recurrent: options.Recurrent = 0.25,
    input: options.Input = 0.25,
    bias: options.Bias = 0.5,
    cell: options.Cell = None,
    kind: options.KindName = "ntk_injected",
    label: options.Label = None,
    ignore: options.Ignore = None,
    limit: options.Limit = None,
    normalize: options.Normalize = "unit",
    ridge: Annotated[str, typer.Option(help="A number, numbers to choose from (0.001,0.1,1), loo or gcv.")] = "0.001",
    optimize: Annotated[
        str | None, typer.Option(help="Find variances and ridge by marginal_likelihood or leave_one_out.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32; that of the data by default.")] = None,
    solver: Annotated[str, typer.Option(help="auto (says why), cholesky, cg, nystrom or out_of_core.")] = "auto",
    directory: Annotated[
        Path | None, typer.Option(help="Where --solver out_of_core or cg keeps what a killed fit continues from.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Compute the tiles of the kernel on this Dask cluster, tcp://host:port.")
    ] = None,
    test_share: Annotated[float, typer.Option(help="Share of the samples held out, when there is no test part.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the random choice of samples and of those held out.")] = 0,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Fit a kernel machine and write it to a file."""
    from notsodeep.descriptions import load_model
    from notsodeep.learn import DEQKernelClassifier, DEQKernelRegressor
    from notsodeep.learn.persistence import save
    from notsodeep.models import DEQ
    from notsodeep.solvers.shorthand import solver_with

    choice(task, TASKS, "task")
    if out.suffix.lower() != ".npz":
        raise InputError(f"out={str(out)!r} must end in .npz")
    kind = options.kind_called(kind)
    model: Any = None if cell is None else load_model(cell)
    phi: Any = options.parse_activation(activation, param)
    if isinstance(model, DEQ):  # the estimators take a cell of several layers as such, and a DEQ as its parts
        phi, recurrent, input, bias, model = model.activation, model.recurrent, model.input, model.bias, None
    machine = (DEQKernelClassifier if task == "classify" else DEQKernelRegressor)(
        phi,
        recurrent,
        input,
        bias,
        kind,
        ridge=_ridge(ridge),
        normalize=normalize or "unit",
        dtype=dtype,
        solver=solver_with(solver, directory=directory, client=scheduler),
        progress=False,
        cell=model,
        optimize=optimize,
    )
    new_file(out, force=force)
    loaded = options.read(source, label, ignore, limit, seed)
    if not 0 <= test_share < 1:
        raise InputError(f"test_share={test_share!r} must lie between 0 and 1")
    if loaded.X_test is None and test_share:
        loaded = loaded.split(test_share, seed=seed)
    y = labels_for(task, loaded.labelled().labels, loaded.name)
    began = time.perf_counter()
    with progress(f"{kind} machine on {len(loaded.X)} samples", quiet=json) as report:
        machine.set_params(progress=report).fit(loaded.X, y)
    seconds = time.perf_counter() - began
    summary = {"out": str(out), "data": loaded.name, "task": task, **_facts(machine, task), "fit_seconds": seconds}
    if loaded.X_test is not None and loaded.labels_test is not None:
        with progress(f"testing on {len(loaded.X_test)} samples", quiet=json) as report:
            machine.progress = report
            score = machine.score(loaded.X_test, labels_for(task, loaded.labels_test, loaded.name))
        summary |= {"test_samples": len(loaded.X_test), _SCORE[task]: float(score)}
    save(machine, out, parameter="out", new=not force)
    if json:
        emit(summary)
    else:
        _print(machine, loaded, summary)


_SCORE = {"classify": "test_accuracy", "regress": "test_r2"}


def labels_for(task: str, labels: Any, name: str) -> Any:
    """Labels as numbers for regression, as classes otherwise; a table holds both as text."""
    import numpy as np

    from notsodeep.checks import require_finite

    try:
        values = np.asarray(labels, dtype=np.float64)
    except ValueError:
        if task == "regress":
            raise InputError(f"data={name!r} has labels that are not numbers; use --task classify") from None
        return labels
    require_finite(values, "y")
    if task == "regress":
        return values
    fractions = values[values != np.round(values)]
    if fractions.size:
        raise InputError(
            f"data={name!r} has labels that are not whole numbers (such as {fractions[0]:g}); use --task regress"
        )
    return labels


def _ridge(text: str) -> Any:
    if text in ("loo", "gcv"):
        return text
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"ridge={text!r} must be a number, numbers separated by commas, loo or gcv") from None
    return values if len(values) > 1 else values[0]


def _facts(machine: Any, task: str) -> dict[str, Any]:
    solution = machine.solution_
    facts = {
        "model": machine.model_.to_dict(),
        "kind": machine.kind,
        "preparation": str(machine.preparation_),
        "normalize": machine.preparation_.mode,
        "rows": str(machine.preparation_),
        "samples": len(machine.X_fit_),
        "features": int(machine.n_features_in_),
        "ridge": machine.ridge_,
        "solver": solution.method,
        "reason": solution.reason,
        "residual": float(machine.residual_),
        "condition": float(machine.condition_),
    }
    if machine.tuning_ is not None:
        facts["tuning"] = vars(machine.tuning_)
    if task == "classify":
        facts["classes"] = len(machine.classes_)
        facts["leave_one_out_accuracy"] = machine.calibration_.accuracy
        facts["calibration"] = machine.calibration_.method
    elif solution.factor is not None:
        facts["leave_one_out_error"] = machine.leave_one_out_error_
    return facts


def _print(machine: Any, loaded: Any, summary: dict[str, Any]) -> None:
    lines = [
        ("machine", f"{summary['kind']} of {machine.model_}, ridge {number(summary['ridge'])}"),
        ("data", f"{summary['data']}: {summary['samples']} distinct samples × {summary['features']} features"),
        *options.rows_line(loaded, summary["preparation"]),
        *([("tuned", str(machine.tuning_))] if machine.tuning_ else []),
        ("solver", f"{summary['solver']}: {summary['reason']}"),
        (
            "",
            f"residual {summary['residual']:.1e}, condition number {summary['condition']:.1e}, "
            f"{summary['fit_seconds']:.1f} s",
        ),
    ]
    if "leave_one_out_accuracy" in summary:
        lines.append(("accuracy", f"{summary['leave_one_out_accuracy']:.4f} by {summary['calibration']}"))
    if "leave_one_out_error" in summary:
        lines.append(("error", f"{number(summary['leave_one_out_error'])} mean square, leave-one-out"))
    for key, name in (("test_accuracy", "accuracy"), ("test_r2", "R²")):
        if key in summary:
            lines.append(("test", f"{name} {summary[key]:.4f} on {summary['test_samples']} samples"))
    say_lines(lines)
    say(f"written    {summary['out']}")
