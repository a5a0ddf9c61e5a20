"""[FK20] Tables 1 and 2: accuracy of kernel regression with the DEQ-NTK."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from notsodeep.data import Parts
from notsodeep.models import Explicit
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.inputs import labelled, split
from notsodeep.papers.summary import Estimate, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]


class Published(NamedTuple):
    """One row of a table; `train` is None where all training images were used."""

    data: str
    method: str  # "deq", "conv", "zca", or "quoted" from other papers and not computed here
    label: str
    accuracy: float
    variances: tuple[float, ...] = ()  # σ_a², σ_b², σ_0² of a DEQ; σ_a², σ_b² with convolution; σ_W², σ_b² of the NTK
    train: int | None = None


def _row(data: str, method: str, accuracy: float, *variances: float, train: int | None = None) -> Published:
    label = {"deq": "DEQ-NTK", "conv": "convolutional DEQ-NTK", "zca": "NTK with ZCA"}[method]
    values = "/".join(f"{variance:g}" for variance in variances)
    return Published(data, method, f"{label} {values}", accuracy, variances, train)


TABLES: Mapping[int, Mapping[str, Published]] = {
    1: {
        "mnist": _row("mnist", "deq", 98.6, 0.25, 0.25, 0.5),
        "neural-ode": Published("mnist", "quoted", "Neural ODE, quoted", 98.2),
        "mon-deq": Published("mnist", "quoted", "MON DEQ, quoted", 98.2),
    },
    2: {
        "cifar10-a": _row("cifar10", "deq", 59.08, 0.25, 0.25, 0.5),
        "cifar10-b": _row("cifar10", "deq", 59.77, 0.6, 0.4, 0.0),
        "cifar10-c": _row("cifar10", "deq", 59.43, 0.8, 0.2, 0.0),
        "cifar10-zca": _row("cifar10", "zca", 59.7, 2.0, 0.01),
        "cifar10-conv": _row("cifar10", "conv", 37.49, 0.65, 0.35, train=2000),
    },
}
ALL = {name: published for table in TABLES.values() for name, published in table.items()}
TOLERANCE = 1e-3  # of the residual; classes do not change below it
LEAST_RIDGE = 1e-4  # in units of K(x, x): grey photographs become identical once pixels are divided by their norms
ZCA_LAYERS = 3
ZCA_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # in units of K(x, x); the best on a part of the training images
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


def plan(
    table: int, dense: tuple[int | None, int | None, int], convolutional: tuple[int, int | None, int] = (0, 0, 0)
) -> Iterator[Settings]:
    """(training images, test images, repetitions) without and with convolution; None takes all images."""
    for name, published in TABLES[table].items():
        sizes = convolutional if published.method == "conv" else dense
        for seed in range(0 if published.method == "quoted" else sizes[2]):
            yield {"row": name, "train": sizes[0], "test": sizes[1], "seed": seed}


# covers: [FK20] Table 1 @ fk20-table1; [FK20] Thm 2 @ fk20-table1
# covers: [FK20] Table 2 @ fk20-table2; [FK20] Thm 2 @ fk20-table2; [FK20] Thm 3 @ fk20-table2
def measure(row: str, train: int | None, test: int | None, seed: int) -> dict[str, Any]:
    """Test accuracy of the kernel machine, with no ridge or a tiny one; with ZCA, the best of four ridges."""
    published = ALL[row]
    part = split(published.data, train, test, seed).parts
    if published.method == "zca":
        ridge, machine, part = _whitened(part, published.variances)
    else:
        ridge, machine = 0.0, _machine(published)
    machine.fit(part.X, part.labels)
    return {
        "accuracy": 100 * float(np.mean(machine.predict(part.X_test) == part.labels_test)),
        "images": len(part.X),
        "test_images": len(part.X_test),
        "ridge": ridge,
        "method": machine.solution_.method,
        "residual": float(machine.residual_),
    }


def _machine(published: Published) -> Any:
    from notsodeep import learn, solvers

    recurrent, drive, *_ = published.variances
    if published.method == "conv":
        shape = labelled(published.data)[0].image_shape
        assert shape is not None
        own = shape[0] * shape[1] * (1 + 1 / (1 - recurrent))  # K(x, x) of unit pixels
        machine: Any = learn.ConvDEQKernelClassifier(image_shape=shape, ridge=LEAST_RIDGE * own)
    else:
        solver = solvers.Auto(tol=TOLERANCE)
        machine = learn.DEQKernelClassifier(bias=published.variances[2], normalize="unit", ridge=0.0, solver=solver)
    return machine.set_params(activation="normalized_relu", recurrent=recurrent, input=drive, progress=False)


def _whitened(part: Parts, variances: Sequence[float]) -> tuple[float, Any, Parts]:
    """The ridge, in units of K(x, x), the machine and the images, whitened by what the training part says."""
    from notsodeep import learn, solvers

    white = learn.ZCA().fit(part.X)
    part = part._replace(X=white.transform(part.X), X_test=white.transform(part.X_test))
    weights, bias = variances
    net = Explicit(["relu"] * ZCA_LAYERS, bias=bias, weights=weights)
    own = float(np.mean(net.kernel_diag(part.X[:1000], kind="ntk")))

    def machine(ridge: float) -> Any:
        solver = solvers.Auto(tol=TOLERANCE)
        return learn.ExplicitKernelClassifier(
            net, kind="ntk", ridge=ridge * own, normalize="none", solver=solver, progress=False
        )

    tenth = min(len(part.X) // 10, 1000)
    held, kept = slice(0, tenth), slice(tenth, 6 * tenth)
    scores = []
    for ridge in ZCA_RIDGES:
        fitted = machine(ridge).fit(part.X[kept], part.labels[kept])
        scores.append(float(np.mean(fitted.predict(part.X[held]) == part.labels[held])))
    best = ZCA_RIDGES[int(np.argmax(scores))]
    return best, machine(best), part


def judge(rows: Sequence[Row], table: int) -> Judgement:
    """The DEQ-NTK is as good as what it is compared with; the printed accuracies lie within our intervals."""
    checks, words, found = [], [], {}
    for name, published in TABLES[table].items():
        part = select(rows, row=name)
        if not part:
            continue
        wanted = published.train or len(labelled(published.data)[0].X)
        images = part[0]["images"]
        found[name] = interval(part)
        text = f"{_percent(found[name])} with {images} training images"
        words.append(f"{published.label} {text}")
        if images >= wanted:
            low, high = found[name].low, found[name].high
            checks.append(Check.number(published.label, published.accuracy, low, high, unit=" %"))
        else:
            why = f"{images} of {wanted} training images"
            checks.append(Check(published.label, f"{published.accuracy:g} %", text, None, why, "number"))
    enough = all(check.agrees is not None for check in checks)
    best = max(found[name].value for name in found if TABLES[table][name].method == "deq")
    for name, published in TABLES[table].items():
        if published.method not in ("quoted", "zca"):
            continue
        other = published.accuracy if published.method == "quoted" or name not in found else found[name].value
        checks.append(
            Check(
                f"the best DEQ-NTK against {published.label}",
                "as good or better",
                f"{best:.2f} % against {other:.2f} %",
                best >= other - (found[name].half if name in found else 0.0) if enough else None,
                "" if enough else "too few training images",
            )
        )
    says = ", ".join(f"{one.label} {one.accuracy:g} %" for one in TABLES[table].values())
    finding = ", ".join(f"{TABLES[table][name].label} {_percent(one)}" for name, one in found.items())
    return Judgement(f"test accuracy on {'/'.join(_data(table))}: {says}", ", ".join(words), checks, finding)


def interval(rows: Sequence[Row]) -> Estimate:
    """95 % interval of the accuracy in percent: over repetitions, or of a proportion if there is one."""
    if len(rows) > 1:
        return mean([row["accuracy"] for row in rows])
    value, tests = rows[0]["accuracy"], rows[0]["test_images"]
    return Estimate(value, 1.96 * math.sqrt(max(value * (100 - value), 0.0) / tests))


def _data(table: int) -> list[str]:
    return list(dict.fromkeys(NAMES[one.data] for one in TABLES[table].values()))


def _percent(estimate: Estimate) -> str:
    interval = "" if np.isnan(estimate.half) else f" ± {estimate.half:.2g}"
    return f"{estimate.value:.2f}{interval} %"


def draw(plt: Any, rows: Sequence[Row], table: int) -> Any:
    """Measured accuracies as bars, the printed ones as marks."""
    shown = [(name, select(rows, row=name)) for name in TABLES[table]]
    figure, axis = plt.subplots(figsize=(7.6, 1.3 + 0.85 * len(shown)), layout="constrained")
    notes = []
    for place, (name, part) in enumerate(shown):
        published = ALL[name]
        axis.plot(
            published.accuracy, place, "D", ms=8, color=COLORS["ink"], ls="none", label="" if place else "printed"
        )
        if not part:
            notes.append(f"{published.label}\nnot computed")
            continue
        accuracy = interval(part)
        color = COLORS[{"deq": "implicit", "conv": "theory", "zca": "explicit"}[published.method]]
        axis.barh(place, accuracy.value, color=color, alpha=0.75, height=0.55)
        axis.errorbar(accuracy.value, place, xerr=accuracy.half, fmt="|", color=COLORS["ink"], capsize=3)
        notes.append(f"{published.label}\n{_percent(accuracy)}, n = {part[0]['images']}")
    axis.set(xlim=(0, 104), ylim=(len(shown) - 0.4, -0.6), xlabel=f"test accuracy on {'/'.join(_data(table))}, %")
    axis.set_yticks(range(len(shown)), notes)
    axis.grid(visible=False, axis="y")
    figure.legend(loc="outside upper right")
    return figure


def _entry(table: int) -> Entry:
    dense = {"dense": (2000, 1000, 3)}
    of_images = (
        f"NTK with ZCA: {ZCA_LAYERS} hidden relu layers, and the ridge that is best on 1000 held out of 6000 training "
        "images; the paper quotes the number and gives neither",
        f"convolutional: 2000 random training images a repetition and a ridge of {LEAST_RIDGE:g}·K(x, x), because "
        "pixels of norm 1 make all grey photographs equal and the matrix singular; 1/(S S') at the output position",
    )
    return Entry(
        name=f"fk20-table{table}",
        paper=f"[FK20] Table {table}",
        title=f"Kernel regression with the DEQ-NTK on {'/'.join(_data(table))}",
        revision=2,  # all rows of the table
        plan=partial(plan, table),
        measure=measure,
        judge=partial(judge, table=table),
        draw=partial(draw, table=table),
        quick=dense if table == 1 else {"dense": (600, 600, 2), "convolutional": (100, 100, 1)},
        full={"dense": (None, None, 1), **({"convolutional": (2000, None, 3)} if table == 2 else {})},
        assumptions=(
            "a single run on all images has the interval of a proportion of its test images",
            f"the linear system is solved to a relative residual of {TOLERANCE:g}",
            *(of_images if table == 2 else ()),
            "the quick run takes few training images and cannot reach the printed accuracies",
        ),
    )


ENTRIES = tuple(_entry(table) for table in TABLES)
