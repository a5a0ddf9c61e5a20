"""[FK20] Tables 1 and 2: accuracy of kernel regression with the DEQ-NTK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.inputs import labelled, split
from notsodeep.papers.summary import Estimate, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]


class Published(NamedTuple):
    """One number of a table; `train` is None where all training images were used."""

    data: str
    variances: tuple[float, ...]  # σ_a², σ_b² and, without convolution, σ_0²
    accuracy: float
    train: int | None = None

    @property
    def convolutional(self) -> bool:
        return len(self.variances) == 2

    @property
    def label(self) -> str:
        kind = "convolutional DEQ-NTK" if self.convolutional else "DEQ-NTK"
        return f"{kind} {'/'.join(f'{variance:g}' for variance in self.variances)}"


TABLES: Mapping[int, Mapping[str, Published]] = {
    1: {"mnist": Published("mnist", (0.25, 0.25, 0.5), 98.6)},
    2: {
        "cifar10-a": Published("cifar10", (0.25, 0.25, 0.5), 59.08),
        "cifar10-b": Published("cifar10", (0.6, 0.4, 0.0), 59.77),
        "cifar10-c": Published("cifar10", (0.8, 0.2, 0.0), 59.43),
        "cifar10-conv": Published("cifar10", (0.65, 0.35), 37.49, 2000),
    },
}
ALL = {name: published for table in TABLES.values() for name, published in table.items()}
TOLERANCE = 1e-3  # of the residual; classes do not change below it
LEAST_RIDGE = 1e-4  # in units of K(x, x): grey photographs become identical once pixels are divided by their norms
TOLERATED = 0.5  # tolerance in points, for another order of the images and other arithmetic
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


def plan(
    table: int, dense: tuple[int | None, int | None, int], convolutional: tuple[int, int | None, int] = (0, 0, 0)
) -> Iterator[Settings]:
    """(training images, test images, repetitions) without and with convolution; None takes all images."""
    for name, published in TABLES[table].items():
        sizes = convolutional if published.convolutional else dense
        for seed in range(sizes[2]):
            yield {"row": name, "train": sizes[0], "test": sizes[1], "seed": seed}


def measure(row: str, train: int | None, test: int | None, seed: int) -> dict[str, Any]:
    """Test accuracy of the kernel machine with no ridge or a tiny one."""
    from notsodeep import learn, solvers

    published = ALL[row]
    part = split(published.data, train, test, seed).parts
    recurrent, drive, *_ = published.variances
    if published.convolutional:
        shape = labelled(published.data)[0].image_shape
        assert shape is not None
        own = shape[0] * shape[1] * (1 + 1 / (1 - recurrent))  # K(x, x) of unit pixels
        machine: Any = learn.ConvDEQKernelClassifier(image_shape=shape, ridge=LEAST_RIDGE * own)
    else:
        solver = solvers.Auto(tol=TOLERANCE)
        machine = learn.DEQKernelClassifier(bias=published.variances[2], normalize="unit", ridge=0.0, solver=solver)
    machine.set_params(activation="normalized_relu", recurrent=recurrent, input=drive, progress=False)
    machine.fit(part.X, part.labels)
    return {
        "accuracy": 100 * float(np.mean(machine.predict(part.X_test) == part.labels_test)),
        "images": len(part.X),
        "test_images": len(part.X_test),
        "method": machine.solution_.method,
        "residual": float(machine.residual_),
    }


def judge(rows: Sequence[Row], table: int) -> Judgement:
    """Within half a point of the printed accuracies."""
    checks, words = [], []
    for name, published in TABLES[table].items():
        found = select(rows, row=name)
        what = f"{published.label} on {NAMES[published.data]}"
        printed = f"{published.accuracy:g} %"
        accuracy = mean([row["accuracy"] for row in found])
        images = found[0]["images"]
        wanted = published.train or len(labelled(published.data)[0].X)
        close = abs(accuracy.value - published.accuracy) <= TOLERATED
        text = f"{_percent(accuracy)} with {images} training images"
        why = f"{images} of {wanted} training images" if images < wanted else ""
        checks.append(Check(what, printed, text, close and images >= wanted, why))
        words.append(f"{what} {text}")
    says = ", ".join(f"{one.label} {one.accuracy:g} %" for one in TABLES[table].values())
    return Judgement(f"test accuracy on {'/'.join(_data(table))}: {says}", ", ".join(words), checks)


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
        accuracy = mean([row["accuracy"] for row in part])
        color = COLORS["explicit" if ALL[name].convolutional else "implicit"]
        half = float(np.nan_to_num(accuracy.half))
        axis.barh(place, accuracy.value, color=color, alpha=0.75, height=0.55)
        axis.errorbar(accuracy.value, place, xerr=half, fmt="|", color=COLORS["ink"], capsize=3)
        notes.append(f"{ALL[name].label}\n{_percent(accuracy)}, n = {part[0]['images']}")
        axis.plot(
            ALL[name].accuracy, place, "D", ms=8, color=COLORS["ink"], ls="none", label="" if place else "published"
        )
    axis.set(xlim=(0, 104), ylim=(len(shown) - 0.4, -0.6), xlabel=f"test accuracy on {'/'.join(_data(table))}, %")
    axis.set_yticks(range(len(shown)), notes)
    axis.grid(visible=False, axis="y")
    figure.legend(loc="outside upper right")
    return figure


def _entry(table: int) -> Entry:
    dense = {"dense": (2000, 1000, 3)}
    return Entry(
        name=f"fk20-table{table}",
        paper=f"[FK20] Table {table}",
        title=f"Kernel regression with the DEQ-NTK on {'/'.join(_data(table))}",
        plan=partial(plan, table),
        measure=measure,
        judge=partial(judge, table=table),
        draw=partial(draw, table=table),
        quick=dense if table == 1 else {"dense": (1000, 1000, 3), "convolutional": (100, 100, 1)},
        full={"dense": (None, None, 1), **({"convolutional": (2000, None, 3)} if table == 2 else {})},
        assumptions=(
            f"Table {table} is taken to be the one on {'/'.join(_data(table))}",
            "raw pixels, each image divided by its norm; one-hot targets 0.9 and −0.1; no ridge"
            f"{' without convolution' if table == 2 else ''}; the kernel is the one called ntk_injected here",
            *(
                (
                    "which of the printed accuracies belongs to which variances is as listed here",
                    "convolutional: 3×3 filters, each pixel divided by its norm over channels, the normalisation that "
                    "makes the theorem true at the border, and 2000 random training images a repetition; a ridge of "
                    f"{LEAST_RIDGE:g}·K(x, x), because pixels of norm 1 make all grey photographs equal and the "
                    "matrix singular",
                )
                if table == 2
                else ()
            ),
            f"agreement means within {TOLERATED} points",
            "the quick run takes few training images and cannot reach the printed accuracies",
        ),
    )


ENTRIES = tuple(_entry(table) for table in TABLES)
