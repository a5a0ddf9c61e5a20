"""``notsodeep train``: train the implicit network, or the explicit one that replaces it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.commands import options
from notsodeep.commands.console import emit, new_file, progress, say, say_lines, table
from notsodeep.commands.fit import labels_for
from notsodeep.errors import InputError, choice
from notsodeep.extras import need


def train(
    data: Annotated[str, options.of_data(help=f"With labels: {options.DATA}")] = "digits",
    model: Annotated[str, typer.Option(help="deq, or explicit: the network matched to it.")] = "deq",
    activation: options.ActivationName = "relu",
    param: options.Param = None,
    recurrent: options.Recurrent = 0.2,
    input: options.Input = 0.8,
    bias: options.Bias = 0.0,
    cell: options.Cell = None,
    label: options.Label = None,
    ignore: options.Ignore = None,
    limit: options.Limit = None,
    normalize: options.Normalize = "center",
    width: Annotated[int, typer.Option(help="Hidden units.")] = 512,
    epochs: Annotated[int, typer.Option(help="Passes over the training data.")] = 20,
    batch_size: Annotated[int, typer.Option(help="Samples a step.")] = 128,
    optimizer: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    lr: Annotated[float | None, typer.Option(help="Step size; a default for each optimizer.")] = None,
    loss: Annotated[str, typer.Option(help="cross_entropy or squared (on one-hot labels).")] = "cross_entropy",
    solver: Annotated[str, typer.Option(help="anderson, picard, broyden or newton.")] = "anderson",
    tol: Annotated[float, typer.Option(help="Relative residual of the equilibrium.")] = 1e-5,
    patience: Annotated[int | None, typer.Option(help="Stop after this many epochs without improvement.")] = None,
    test_share: Annotated[
        float | None, typer.Option(help="Share of the samples held out; when absent, the set's own test part, or 0.25.")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Resume from and write this file every epoch.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the trained network (.safetensors).")] = None,
    force: options.Force = False,
    certify: Annotated[bool, options.flag("--certify", help="Check Condition 1 of [Ling23] on two classes.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the split and the order of the samples.")] = 0,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch; small networks are fastest with one.")] = 1,
    json: options.Json = False,
) -> None:
    """Train a network and report loss, accuracy and solver iterations."""
    import numpy as np

    from notsodeep import nn
    from notsodeep.checks import count
    from notsodeep.matching import match

    need("torch").set_num_threads(count(threads, "threads"))
    choice(model, ("deq", "explicit"), "model")
    if certify and model != "deq":
        raise InputError("certify is for the implicit network; use --model deq")
    # held-out samples have no part in the preparation
    read_in = options.read(data, label, ignore, limit).labelled()
    labels_for("classify", read_in.labels, read_in.name)
    source, names = read_in.split(test_share, seed=seed).prepared(normalize or "center").numbered()
    X, labels, X_test, labels_test = source.parts
    plain = options.described(activation, param, recurrent, input, bias, cell)
    deq = plain.centered(1.0)  # the match approximates the centred model: both then have nearly the same kernel
    shape = (X.shape[1], width, len(names))
    network: Any
    if model == "deq":
        network = nn.DEQNet(deq, *shape, solver=solver, tol=tol, seed=seed)
    else:
        network = nn.ExplicitNet(match(deq, tau0=1.0).network, *shape, seed=seed)
    targets, targets_test = (np.eye(len(names))[part] if loss == "squared" else part for part in (labels, labels_test))
    if out is not None:
        new_file(out, force=force)
    # certificate of the initial weights, before training: a network that cannot be certified fails at once
    certificate = _certify(plain, X, labels, width, seed) if certify else None
    with progress(f"{model} on {source.name}", quiet=json) as report, _later():
        history = nn.fit(
            network,
            X,
            targets,
            epochs=epochs,
            batch_size=batch_size,
            optimizer=optimizer,
            lr=lr,
            loss=loss,
            validation=(X_test, targets_test),
            patience=patience,
            checkpoint=checkpoint,
            seed=seed,
            progress=report,
        )
    accuracy = _accuracy(network, X_test, labels_test)
    if out is not None:
        nn.save(network, out, new=not force)
    summary: dict[str, Any] = {
        "model": model,
        "description": (deq if model == "deq" else network.explicit).to_dict(),
        "data": source.name,
        "rows": source.rows,
        "width": width,
        "epochs": [asdict(epoch) for epoch in history.epochs],
        "best": history.best,
        "stopped_early": history.stopped_early,
        "test_accuracy": accuracy,
        "seconds": sum(epoch.seconds for epoch in history.epochs),
    }
    if certificate is not None:
        facts = ("holds", "lambda0", "max_step", "required_readout", "required_width", "obstacle")
        summary["certificate"] = {name: getattr(certificate, name) for name in facts}
        summary["certificate"]["margins"] = [line.margin for line in certificate.inequalities]
    if json:
        emit(summary)
        return
    shown = history.epochs if len(history.epochs) <= 10 else [*history.epochs[:3], *history.epochs[-7:]]
    columns = ("epoch", "loss", "accuracy", "test loss", "test accuracy", "solver iterations", "seconds")
    say(table(f"{network.deq if model == 'deq' else network.explicit}", columns, [_row(epoch) for epoch in shown]))
    say_lines([("data", f"{source.name}: {len(X)} samples to train on, {len(X_test)} held out")])
    say_lines(options.rows_line(source, source.rows))
    say(f"test accuracy {100 * accuracy:.2f} % after {len(history.epochs)} epochs" + (f"; saved {out}" if out else ""))
    if certificate is not None:
        say(str(certificate))


@contextmanager
def _later() -> Iterator[None]:
    """Show warnings after the block; if the block fails, show only its error."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        yield
    for one in told:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _row(epoch: Any) -> list[str]:
    def shown(value: float | None, text: str) -> str:
        return "–" if value is None else text.format(value)

    return [
        str(epoch.epoch),
        shown(epoch.loss, "{:.4g}"),
        shown(epoch.accuracy, "{:.2%}").replace("%", " %"),
        shown(epoch.validation_loss, "{:.4g}"),
        shown(epoch.validation_accuracy, "{:.2%}").replace("%", " %"),
        shown(epoch.iterations, "{:.1f}"),
        f"{epoch.seconds:.2f}",
    ]


def _accuracy(network: Any, X: Any, labels: Any) -> float:
    import torch

    with torch.no_grad():
        output = network(torch.as_tensor(X, dtype=network.readout.dtype))
    return float((output.argmax(1).numpy() == labels).mean())


def _certify(deq: Any, X: Any, labels: Any, width: int, seed: int, limit: int = 200) -> Any:
    """The certificate of a one-output network on the first two classes, labels ±1."""
    import numpy as np
    import torch

    from notsodeep import nn

    rows = np.flatnonzero(labels < 2)[:limit]
    inputs = X[rows] / np.linalg.norm(X[rows], axis=1, keepdims=True)
    net = nn.DEQNet(deq, X.shape[1], width, 1, seed=seed, tol=1e-10, dtype=torch.float64)
    return nn.certificate(net, torch.as_tensor(inputs), torch.as_tensor(2.0 * labels[rows] - 1))
