"""``notsodeep predict``: apply a machine written by ``notsodeep fit``."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep import files
from notsodeep.commands.console import emit, new_file, progress, say, say_lines, wrapped
from notsodeep.commands.fit import labels_for
from notsodeep.commands.options import DATA, Force, Ignore, Json, Label, Limit, flag, read, rows_line
from notsodeep.errors import InputError
from notsodeep.text import cell, listed, printable


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The .npz file that `notsodeep fit` wrote.")],
    source: Annotated[str, typer.Argument(metavar="DATA", help=DATA)],
    out: Annotated[Path | None, typer.Option(help="Write predictions to this .csv file.")] = None,
    proba: Annotated[bool, flag("--proba", help="Also the probability of each class.")] = False,
    label: Label = None,
    ignore: Ignore = None,
    limit: Limit = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict the test part of a data set, or all samples where it has none."""
    import numpy as np

    from notsodeep.data import subsample
    from notsodeep.learn import DEQFeatures, load
    from notsodeep.learn.tasks import KernelClassifier

    machine = load(model)
    if isinstance(machine, DEQFeatures):
        raise InputError(f"model={str(model)!r} holds features, not a machine that predicts")
    classifies = isinstance(machine, KernelClassifier)
    if proba and not classifies:
        raise InputError("proba: a regression has no probabilities of classes; leave --proba out")
    if out is not None:
        if out.suffix.lower() != ".csv":
            raise InputError(f"out={str(out)!r} must end in .csv")
        new_file(out, force=force)
    loaded = read(source, label, ignore)
    part = "all samples" if loaded.X_test is None else "test part"
    chosen = subsample(loaded.test or loaded, limit)
    if chosen.X.shape[1] != machine.n_features_in_:
        raise InputError(
            f"data={source!r} has {chosen.X.shape[1]} features a sample, but {str(model)!r} was fitted to "
            f"{machine.n_features_in_}; name the columns that are not features (--label, --ignore)"
        )
    began = time.perf_counter()
    with progress(f"predicting {len(chosen.X)} samples", quiet=json) as report:
        machine.progress = report
        answers = machine.predict(chosen.X)
        columns = machine.predict_proba(chosen.X) if proba else None
    summary: dict[str, Any] = {
        "model": str(model),
        "data": loaded.name,
        "part": part,
        "samples": len(chosen.X),
        "rows": str(machine.preparation_),
        "seconds": time.perf_counter() - began,
        **_scores(machine, answers, chosen, classifies),
        "out": None if out is None else str(out),
    }
    if out is not None:
        files.write(out, _csv(machine, answers, columns), parameter="out", new=not force)
    if json:
        shown = {} if out is not None else {"predictions": np.asarray(answers).tolist()}
        if columns is not None and out is None:
            shown |= {"classes": machine.classes_.tolist(), "probabilities": columns.tolist()}
        emit({**summary, **shown})
        return
    say(f"{loaded.name}, {part}: {summary['samples']} samples in {summary['seconds']:.1f} s")
    say_lines(rows_line(loaded, f"{summary['rows']}, as in the fit"))
    for name in ("accuracy", "r2"):
        if name in summary:
            say(*wrapped(None, _described(name, summary)))
    if out is not None:
        say(f"predictions in {out}")
    else:
        say(*wrapped(None, f"predictions: {listed(answers)} (--out FILE.csv for all)"))


def _scores(machine: Any, answers: Any, chosen: Any, classifies: bool) -> dict[str, Any]:
    """Accuracy or R² if the samples have labels, also for the samples that were not in the fit."""
    if chosen.labels is None:
        return {}
    import numpy as np

    score: Callable[[Any, Any], Any]
    if classifies:
        name, score, labels = "accuracy", lambda *pair: np.mean(same_labels(*pair)), chosen.labels
    else:
        from sklearn.metrics import r2_score

        name, score, labels = "r2", r2_score, labels_for("regress", chosen.labels, chosen.name)
    unseen = ~machine.fitted_to(chosen.X)
    found = {name: float(score(labels, answers)), "fitted_samples": int(np.count_nonzero(~unseen))}
    if not unseen.all() and np.count_nonzero(unseen) > 1:  # R² of one sample is undefined
        found[f"{name}_of_others"] = float(score(labels[unseen], answers[unseen]))
    return found


def _described(name: str, summary: Mapping[str, Any]) -> str:
    """A score, with a warning if it includes training samples.

    >>> _described("accuracy", {"accuracy": 1.0, "samples": 9, "fitted_samples": 9})
    'accuracy 1.0000 on the rows it was fitted to: no estimate for new ones'
    >>> _described("r2", {"r2": 0.9, "samples": 9, "fitted_samples": 4, "r2_of_others": 0.8})
    'r2 0.9000; 4 of the 9 rows are among those it was fitted to, 0.8000 on the others'
    """
    text, seen, samples = f"{name} {summary[name]:.4f}", summary["fitted_samples"], summary["samples"]
    if not seen:
        return text
    if seen == samples:
        return f"{text} on the rows it was fitted to: no estimate for new ones"
    others = f", {summary[f'{name}_of_others']:.4f} on the others" if f"{name}_of_others" in summary else ""
    return f"{text}; {seen} of the {samples} rows are among those it was fitted to{others}"


def same_labels(first: Any, second: Any) -> Any:
    """Which labels agree: as numbers where all of them are numbers ("1", 1 and 1.0 are one class), else as text."""
    import numpy as np

    try:
        return np.asarray(first, dtype=np.float64) == np.asarray(second, dtype=np.float64)
    except ValueError:
        return np.asarray(first).astype(str) == np.asarray(second).astype(str)


def _csv(machine: Any, answers: Any, columns: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    names = [] if columns is None else [f"probability of {printable(label)}" for label in machine.classes_]
    writer.writerow(["prediction", *names])
    for row, answer in enumerate(answers):
        writer.writerow([cell(answer), *([] if columns is None else columns[row])])
    return text.getvalue()
