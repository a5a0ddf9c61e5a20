"""A cheap network in place of any module: several are trained on its outputs, measured on held-out rows, and judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from notsodeep.checks import InputError, count, positive, real, seeded
from notsodeep.display import card
from notsodeep.nn.candidates import Candidate, Scale, candidates, fit_readout, unrolled_candidates
from notsodeep.nn.distillation import CHUNK, Loss, mixtures, train
from notsodeep.nn.measurement import Agreement, closeness, closest, milliseconds
from notsodeep.nn.networks import DEQNet
from notsodeep.nn.observation import evaluating, module_inputs, module_outputs, unwrapped
from notsodeep.nn.plain_cell import PlainCell, plain_cell
from notsodeep.nn.targets import checked_targets, labels_or_values, task_of
from notsodeep.nn.verdicts import chosen_against_plain, design_against_plain, limits_text, summary
from notsodeep.progress import Progress, reporter

if TYPE_CHECKING:
    from notsodeep.report.replacement import SavedReplacement

__all__ = ["Replacement", "replace"]

_FEWEST = 20  # samples
_ROUNDING = 4 * torch.finfo(torch.float32).eps  # by which outputs differ that are called equal
_BATCHES = (1, 1000)  # sizes at which time is measured
_TOKENS = (
    "X holds integers that the module looks up in a table: nothing was mixed, and only steps of its cell were tried."
)
_EQUATION = 0.02  # largest residual at which the cell counts as recognised


@dataclass(frozen=True, eq=False)
class Replacement:
    """What replaces a module, and how it compares with the other candidates on held-out rows.

    Attributes
    ----------
    network : nn.Sequential
        Plain torch layers that take samples as the module does.
    name : str
        Which candidate it is.
    table : list of dict
        One row for the module and one for each candidate: agreement, its standard error, Kullback–Leibler divergence,
        relative error, accuracy, calibration, parameters, milliseconds, and time relative to the module.
    verdict : tuple of str
        What the table says, in sentences.
    reached : bool
        Whether the network is within both limits.
    limits : dict
        `max_time_ratio` and `min_agreement`.
    sample_shape : tuple of int
    """

    network: nn.Sequential
    name: str
    table: list[dict[str, Any]]
    verdict: tuple[str, ...]
    reached: bool
    limits: dict[str, float]
    sample_shape: tuple[int, ...]
    task: str
    samples: dict[str, int] = field(repr=False)

    @property
    def chosen(self) -> dict[str, Any]:
        """The row of the network."""
        return next(row for row in self.table if row["network"] == self.name)

    @property
    def agreement(self) -> float:
        """With the module, on held-out rows."""
        return float(self.chosen["agreement"])

    @property
    def time_ratio(self) -> float:
        """Time relative to the module, the worse of both batch sizes."""
        return float(self.chosen["time ratio"])

    def save(self, directory: str | Path) -> SavedReplacement:
        """Write the network (``network.safetensors``, ``network.onnx``), the table and a page into a directory.

        :func:`load` rebuilds the network from the first. Of steps of a cell, which are generated code, it has the
        weights alone, and ``network.pt2`` is the program for ``torch.export.load``. Where ``network.onnx`` cannot be
        written, a warning says why.

        An earlier replacement there is replaced; a directory with any other file is refused. Needs the extra
        ``report``. Returns the paths; ``page`` is that of ``index.html``.
        """
        from notsodeep.report.replacement import write_replacement

        return write_replacement(self, directory)

    def __str__(self) -> str:
        columns, rows = table_text(self.table)
        widths = [max(len(line[k]) for line in [columns, *rows]) for k in range(len(columns))]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in [columns, *rows]
        ]
        return "\n".join([*lines, "", *self.verdict])

    def _repr_html_(self) -> str:
        columns, rows = table_text(self.table)
        verdict = (self.reached, "within both limits" if self.reached else "not within the limits")
        return card("Replacement", rows, header=columns, verdict=verdict, notes=self.verdict)


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "network": ("network", str),
    "agreement": ("agreement", lambda x: f"{100 * x:.2f} %"),
    "kl": ("KL", lambda x: f"{x:.2g}"),
    "relative error": ("error", lambda x: f"{x:.2g}"),
    "accuracy": ("accuracy", lambda x: f"{100 * x:.2f} %"),
    "calibration": ("calibration", lambda x: f"{100 * x:.2f} %"),
    "parameters": ("parameters", lambda x: f"{x}"),
    "ms, batch 1": ("ms, 1 row", lambda x: f"{x:.3g}"),
    "ms, large batch": ("ms, many", lambda x: f"{x:.3g}"),
    "time ratio": ("time", lambda x: f"{x:.3f}"),
    "time spread": ("spread", lambda x: f"+{100 * x:.0f} %"),
}


def table_text(table: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of those columns in which a number is known."""
    kept = [name for name in _COLUMNS if any(row[name] is not None for row in table)]
    rows = [["–" if row[name] is None else _COLUMNS[name][1](row[name]) for name in kept] for row in table]
    return [_COLUMNS[name][0] for name in kept], rows


def replace(
    module: Callable[[Tensor], Any],
    X: Any,
    y: Any = None,
    *,
    test: tuple[Any, Any] | Any = None,
    task: str | None = None,
    max_time_ratio: float = 0.125,
    min_agreement: float = 0.97,
    width: int | None = None,
    samples: int = 30_000,
    epochs: int = 8,
    weight: Tensor | None = None,
    input_weight: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Any = None,
    seed: int | np.random.Generator = 0,
    progress: Progress = None,
) -> Replacement:
    """Train cheap networks f̂ on the outputs f of a module, measure all on held-out rows, and return the best.

    Every candidate gets the same rows, the same number of epochs and the same loss, and begins with a readout fitted by
    ridge regression. For classes, the loss is KL(softmax f ‖ softmax f̂) plus the mean squared error in units of the
    standard deviation of f; for real outputs, the second term alone. Besides rows of X, the module is asked about
    mixtures λx + (1 − λ)x' of two of them, of which there are as many as one likes.

    The candidates: networks designed by the theory (where the cell is h = φ(Wh + Ux + b)), trained, or with random
    features and a fitted readout; plain networks of one and two layers of the same width with relu, leaky relu and the
    cell's own activation; and a few steps of the cell itself. Of cells of another form inside :class:`Equilibrium` or
    :class:`DEQNet`, steps are tried where ``torch.fx`` can trace the module. Of integers that an ``nn.Embedding`` looks
    up there are no mixtures, and steps of the cell are all that is tried.

    Parameters
    ----------
    module : nn.Module or callable
        Any network from samples to (batch, outputs), a DEQ or not.
    X : array, Tensor or sparse matrix, (n, …)
        Samples as the module takes them. 70 % are learned from, 15 % choose between candidates, 15 % are measured on.
        The choice is the largest agreement and, among networks that differ from it by no more than chance, the least
        KL. Rows that the module was trained on flatter it; `test` may hold others to measure on.
    y : array, (n,) or (n, k), optional
        Labels 0, 1, … or real targets of the shape of the outputs, only to measure accuracy (for real ones, the
        explained variance).
    test : X or (X, y), optional
        Rows to measure on instead of a part of X.
    task : {"classes", "values"}, optional
        Whether the largest output counts or all of them. By default classes where `y` holds whole numbers, or where it
        is missing and there are several outputs. A single output is the logit of class 1 if `y` holds only 0 and 1 and
        some outputs are negative.
    max_time_ratio : float
        Limit on the time relative to the module, the worse of batches of 1 and 1000.
    min_agreement : float
        Limit on the agreement with the module, between 0 and 1.
    width : int, optional
        Of the candidates; that of the cell when it is recognised, and 256 otherwise.
    samples : int
        Rows to learn from, mixtures included.
    epochs : int
        Passes over these rows, for each candidate.
    weight, input_weight, bias, activation
        W, U, b and φ of the cell, where :func:`match_module` would need them.
    seed : int or Generator
    progress : bool, callable or None

    Returns
    -------
    Replacement
        ``print(r)`` shows the table and the verdict.

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> deep = nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), in_features=20, width=32, out_features=3)
    >>> r = nn.replace(deep, torch.randn(300, 20) / 20**0.5, samples=2000, epochs=3)
    >>> r.network(torch.randn(5, 20)).shape, r.agreement > 0.8
    (torch.Size([5, 3]), True)
    """
    limits = {
        "max_time_ratio": positive(max_time_ratio, "max_time_ratio"),
        "min_agreement": real(min_agreement, "min_agreement"),
    }
    if not 0 <= limits["min_agreement"] <= 1:
        raise InputError(f"min_agreement={min_agreement:g} must be between 0 and 1, e.g. 0.97")
    if not callable(module):
        raise InputError(f"module={module!r} must be a network that can be called on X")
    count(samples, "samples"), count(epochs, "epochs")
    seed = seeded(seed)
    rows = module_inputs(unwrapped(module), X)
    if len(rows) < _FEWEST:
        raise InputError(f"X has {len(rows)} samples; pass at least {_FEWEST}, so that some can be held out")
    targets = labels_or_values(y, len(rows), "y")
    outputs = module_outputs(module, rows, CHUNK).float()
    if not bool(outputs.isfinite().all()):
        raise InputError("the module returns NaN or infinite values on X; it cannot be learned")
    if bool(((outputs - outputs[0]).abs() <= _ROUNDING * outputs.abs().max()).all()):
        raise InputError("the module returns the same outputs for all samples of X: nothing can be learned; check both")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator)
    parts = [0.7, 0.85] if test is None else [0.85, 1.0]
    learn, choose, rest = torch.tensor_split(order, [round(part * len(rows)) for part in parts])
    tests, answers = _held_out(module, rows, targets, rest, test)
    classes = task_of(task, outputs, answers if targets is None else targets) == "classes"
    checked_targets(targets, outputs, classes, "y")
    held = tests, checked_targets(answers, outputs, classes, "y" if test is None else "y of test")
    # fresh layers are drawn from the global generator
    with torch.random.fork_rng(devices=[]), reporter("replacing", progress=progress) as report:
        report.stage("asking the module")
        notes: list[str] = []
        scale = Scale.of(rows[learn])
        pool, goals = mixtures(module, rows[learn], outputs[learn], count(samples, "samples"), generator)
        pool, judged = scale(pool), (scale(rows[choose]), outputs[choose])
        loss = Loss(goals.std(), classes)
        cell, everything = None, list[Candidate]()
        if scale.tokens:
            notes.append(_TOKENS)
        else:
            cell = _recognised(unwrapped(module), rows[learn], (weight, input_weight, bias, activation), notes)
            tau0 = math.sqrt(float(rows[learn].flatten(1).float().square().sum(1).mean()))
            size = count(width, "width") if width is not None else cell.width if cell is not None else 256
            everything += candidates(cell, scale, tau0, size, outputs.shape[1], seed, notes)
        if cell is None:
            everything += unrolled_candidates(unwrapped(module), rows, scale, outputs.shape[1], notes)
        if not everything:
            raise InputError(" ".join(notes))
        found: list[Candidate] = []
        for done, one in enumerate(everything):
            report.stage(one.name)
            fit_readout(one.network, pool, goals, judged)
            if one.trained:
                train(one.network, pool, goals, judged, loss, epochs, seed)
            one.network.eval()
            report(done + 1, len(everything))
            found.append(one)
        chosen_on = {one.name: closeness(one.network(judged[0]).detach(), judged[1], None, classes) for one in found}
        plain = {one.name: _finished(one, scale, rows, module) for one in found}
        report.stage("measuring")
        table, measured = _measured(module, found, plain, held, classes)
    return _judged(found, plain, table, measured, chosen_on, limits, rows, notes, classes, len(held[0]), len(learn))


def _held_out(
    module: Any, rows: Tensor, targets: Tensor | None, rest: Tensor, test: Any
) -> tuple[Tensor, Tensor | None]:
    if test is None:
        return rows[rest], None if targets is None else targets[rest]
    X, y = test if isinstance(test, tuple | list) and len(test) == 2 else (test, None)
    held = module_inputs(unwrapped(module), X, "test")
    if held.shape[1:] != rows.shape[1:]:
        raise InputError(f"test has samples of shape {tuple(held.shape[1:])} but X {tuple(rows.shape[1:])}")
    return held, labels_or_values(y, len(held), "y of test")


def _recognised(module: Any, rows: Tensor, given: tuple[Any, ...], notes: list[str]) -> PlainCell | None:
    """The cell, if its equation holds at the module's own state."""
    try:
        with evaluating(module):  # spectral norms change their vectors otherwise
            cell = plain_cell(module, *given)
        if rows[0].numel() != cell.inputs:
            notes.append(
                f"W, U and φ were found, but U takes {cell.inputs} numbers and a sample has {rows[0].numel()}: other "
                "layers come before the cell. Nothing was designed for it."
            )
            return None
        residual = cell.observed(module, rows[:200])[1]
    except InputError as error:
        notes.append(f"The cell was not recognised, so nothing was designed for it ({str(error).split(';')[0]}).")
        return None
    if math.isinf(residual):
        notes.append(
            "W, U and φ were found, but no state was multiplied by W: it is changed before its use, as by weight or "
            "spectral norms, or the cell is another. Nothing was designed for it."
        )
        return None
    if residual > _EQUATION:
        why = (
            f"its solver does not converge (‖W‖·L = {module.contraction:.3g}), so its outputs depend on where it "
            "stops. nn.fit(…, contraction=0.95) keeps the equilibrium in training"
            if isinstance(module, DEQNet)
            else "its solver stops early, or it is another cell"
        )
        notes.append(
            f"W, U and φ were found, but the module's state misses h = φ(Wh + Ux + b) by {residual:.2g}: {why}. "
            "Nothing was designed for it."
        )
        return None
    return cell


def _finished(one: Candidate, scale: Scale, rows: Tensor, module: Any) -> nn.Sequential:
    """The network for samples as they are: scaling folded in, images flattened, outputs shaped as the module's."""
    layers = one.plain(scale, flat=rows.ndim == 2)
    with torch.no_grad(), evaluating(module):
        answer = module(rows[:2])
    answer = answer[0] if isinstance(answer, tuple | list) else answer
    after = [nn.Flatten(0)] if answer.ndim == 1 else []
    return nn.Sequential(*layers, *after).eval().to(_precision(rows))


@torch.no_grad()
def _measured(
    module: Any,
    found: Sequence[Candidate],
    plain: Mapping[str, nn.Sequential],
    held: tuple[Tensor, Tensor | None],
    classes: bool,
) -> tuple[list[dict[str, Any]], dict[str, Agreement]]:
    rows, labels = held
    goal = module_outputs(module, rows, CHUNK).float()
    single = rows.to(_precision(rows)) if rows.is_floating_point() else rows
    networks: dict[str, Any] = {"the module": module, **plain}
    few, many = (rows[: min(size, len(rows))] for size in _BATCHES)
    times = [
        milliseconds({name: (net, part if net is module else part.to(single.dtype)) for name, net in networks.items()})
        for part in (few, many)
    ]
    families = {one.name: one.family for one in found}
    table, measured = [], {}
    for name, net in networks.items():
        outputs = goal if net is module else net(single).reshape(len(single), -1)
        close = measured[name] = closeness(outputs, goal, labels, classes)
        parameters = sum(one.numel() for one in net.parameters()) if isinstance(net, nn.Module) else None
        table.append(
            {
                "network": name,
                "family": families.get(name, "module"),
                "agreement": close.agreement,
                "agreement error": None if math.isnan(close.error) else close.error,
                "kl": close.kl,
                "relative error": close.relative_error,
                "accuracy": close.accuracy,
                "calibration": close.calibration,
                "parameters": parameters,
                "ms, batch 1": times[0][name].best,
                "ms, large batch": times[1][name].best,
                "large batch": len(many),
                "time ratio": max(part[name].best / part["the module"].best for part in times),
                "time spread": max(part[name].spread for part in times),
            }
        )
    return table, measured


def _precision(rows: Tensor) -> torch.dtype:
    """Of the networks: that of the module, at least float32."""
    return torch.float64 if rows.dtype == torch.float64 else torch.float32


def _judged(
    found: Sequence[Candidate],
    plain: Mapping[str, nn.Sequential],
    table: list[dict[str, Any]],
    measured: Mapping[str, Agreement],
    chosen_on: Mapping[str, Agreement],
    limits: dict[str, float],
    rows: Tensor,
    notes: Sequence[str],
    classes: bool,
    tested: int,
    learned: int,
) -> Replacement:
    entry = {row["network"]: row for row in table}
    fast = [one for one in found if entry[one.name]["time ratio"] <= limits["max_time_ratio"]]

    def closest_of(family: str, members: Sequence[Candidate]) -> str | None:
        names = [one.name for one in members if one.family == family and one.trained]
        return closest(names, chosen_on) if names else None

    best = closest([one.name for one in fast], chosen_on) if fast else min(plain, key=lambda k: entry[k]["time ratio"])
    row = entry[best]
    reached = bool(fast) and row["agreement"] >= limits["min_agreement"]
    verdict = [summary(row, entry["the module"], tested, classes), limits_text(row, bool(fast), limits)]
    rival, designed, undesigned = closest_of("plain", fast), closest_of("designed", found), closest_of("plain", found)
    if rival is not None and row["family"] != "plain" and (best, rival) != (designed, undesigned):
        verdict.append(chosen_against_plain(best, rival, measured))
    if designed is not None and undesigned is not None:
        verdict.append(design_against_plain(designed, undesigned, measured))
    verdict += notes
    return Replacement(
        network=plain[best],
        name=best,
        table=table,
        verdict=tuple(verdict),
        reached=reached,
        limits=limits,
        sample_shape=tuple(rows.shape[1:]),
        task="classes" if classes else "values",
        samples={"learned from": learned, "measured on": tested},
    )
