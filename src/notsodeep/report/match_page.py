"""The page of `notsodeep match --report`: the model, the designed network, how close they are, how to use it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.models import DEQ, Explicit
from notsodeep.one_layer import SphereMatch
from notsodeep.report import views
from notsodeep.report.page import Code, Equations, Facts, Part, Plot, Prose, Row, Section, Table, plain, render
from notsodeep.study import Comparison, Designs, Outlook, Study, closer_network
from notsodeep.study.kernels import explicit_kind
from notsodeep.text import printable

__all__ = ["equations", "match_page", "one_layer_section", "quoted", "snippet", "use_code", "use_section"]

_MEANING = {
    "c1": "linear part of the kernel",
    "c2": "differences of the class variances",
    "c3": "differences of the class covariances",
    "d": "diagonal",
}


def match_page(
    study: Study,
    comparison: Comparison | None,
    both: Designs,
    plots: Mapping[str, Sequence[Plot]],
    folder: Path,
    source: str | None = None,
) -> str:
    """Return the page of a study.

    Parameters
    ----------
    study : Study
    comparison : Comparison or None
        The trained networks; without them the page has no section about training.
    both : Designs
        The matched network and the single layer.
    plots : mapping
        From :func:`notsodeep.report.pictures.draw`.
    folder : Path
        Where ``network.json`` will be, as the reader would type it.
    source : str, optional
        What :func:`notsodeep.data.load` was given, for the code at the end.
    """
    content = study.to_dict()
    sections = [
        _implicit(study),
        _explicit(study, plots["activations"]),
        _closeness(study, content, plots["closeness"]),
        one_layer_section(both.single, Table(both.columns, both.rows, f"{both.setting}."), plots["one_layer"]),
        _spectra(study, plots["spectra"]),
        *([_training(comparison, plots["training"])] if comparison else []),
        use_section(snippet(study, folder, source)),
    ]
    lead: list[Part] = [
        Prose(f"`{content['text']}` and the network of {_layers(study)} that replaces it, on {_data(content)}."),
        Facts(_facts(study, comparison)),
    ]
    return render("An implicit network and its explicit equivalent", sections, lead)


def _layers(study: Study) -> str:
    depth = study.network.depth
    return f"{depth} hidden layer{'s' if depth > 1 else ''}"


def _data(content: Mapping[str, Any]) -> str:
    facts = content["data"]
    return f"{plain(facts['name'])} ({facts['samples']} samples, {facts['features']} features)"


def _facts(study: Study, comparison: Comparison | None) -> list[tuple[str, str]]:
    best = min(entry.rescaled_error for entry in study.baselines)
    facts = [
        (f"{100 * study.matched.error:.2g} %", "relative distance of the two kernels"),
        (f"{100 * best:.2g} %", "the same for the best plain network, rescaled"),
    ]
    if comparison:
        a, b = comparison.implicit, comparison.explicit
        accuracies = f"{100 * a.test_accuracy:.1f} → {100 * b.test_accuracy:.1f} %"
        facts.append((accuracies, "test accuracy, implicit → explicit"))
        if comparison.steady:  # times measured on a busy machine are not headlines
            facts.append((f"{a.inference_ms / b.inference_ms:.1f}×", "faster predictions"))
            facts.append((f"{a.epoch_seconds / b.epoch_seconds:.1f}×", "faster training"))
    return facts


def _implicit(study: Study) -> Section:
    deq, verdict = study.deq, study.deq.well_posed
    conditions = [
        (f"{one.name} < 1", f"{one.value:.6g}", f"{one.margin:+.6g}", "holds" if one.holds else "fails")
        for one in (verdict.finite_width, verdict.infinite_width)
    ]
    centred = deq.centered(study.tau0)
    if isinstance(centred, DEQ):
        layers, what = "one hidden layer that is applied to its own output", "an activation φ that is"
        written: Part = Equations(f"z* = φ(σ_a A z* + σ_b B x) / √m\nf(x) = aᵀ z*\n\nφ(x) = {centred.activation}")
        rows = [("recurrent, σ_a²", f"{centred.recurrent:.6g}"), ("input, σ_b²", f"{centred.input:.6g}")]
    else:
        layers, what = "layers through which its output passes again and again", "activations that are"
        written = Code("\n".join(f"layer {k}: {layer}" for k, layer in enumerate(centred.layers, 1)))
        rows = [("layers", str(len(centred.layers)))]
    return Section(
        "The implicit network",
        [
            Prose(
                f"A deep equilibrium model has {layers} until nothing changes. With random weights A, B and readout a "
                f"of m hidden units, and {what} centred for these data:"
            ),
            written,
            Table(("parameter", "value"), [*rows, ("root mean square of ‖x‖, τ0", f"{study.tau0:.6g}")]),
            Prose(f"**Well-posedness:** {verdict.reason.split(':')[0]}."),
            Table(
                ("condition", "value", "margin", ""),
                conditions,
                "The first guarantees a unique equilibrium at large finite width (L is the Lipschitz constant of φ), "
                "the second that the infinite-width kernels exist.",
            ),
        ],
    )


def equations(network: Explicit) -> str:
    """The layers of an explicit network, then their activations."""
    numbers = [views.subscript(k) for k in range(1, network.depth + 1)]
    raised = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    states = ["x", *(f"x⁽{k.translate(raised)}⁾" for k in numbers)]
    layers = [f"{y} = σ{k}(W{k} {x}) / √m" for k, (x, y) in zip(numbers, pairwise(states), strict=True)]
    formulas = [f"σ{k}(x) = {phi}" for k, phi in zip(numbers, network.activations, strict=True)]
    return "\n".join([*layers, f"f(x) = aᵀ {states[-1]}", "", *formulas])


def _explicit(study: Study, plots: Sequence[Plot]) -> Section:
    found = study.match
    verdict = (
        "The match is **exact in these numbers**: all four agree"
        if found.exact
        else f"The match is **not exact**: it misses {', '.join(found.missed)}"
    )
    compared = zip(_MEANING.items(), found.target, found.achieved, found.errors, strict=True)
    rows = [
        (f"{name}: {meaning}", f"{goal:.6g}", f"{value:.6g}", f"{error:.1e}")
        for (name, meaning), goal, value, error in compared
    ]
    return Section(
        "The explicit network designed for it",
        [
            Equations(equations(study.network)),
            Row(plots),
            Prose(
                "In grey, the Gaussian density of the numbers each activation sees.\n\n"
                f"On high-dimensional mixtures the `{found.kind}` kernel of a network depends on four numbers only. "
                f"{verdict} (largest relative error {found.residual:.1e}). Equal numbers make equal kernels as the "
                "dimension grows."
            ),
            Table((f"{found.kind} coefficient", "implicit", "explicit", "relative error"), rows),
        ],
    )


def _closeness(study: Study, content: Mapping[str, Any], plots: Sequence[Plot]) -> Section:
    prepared = f"Rows of the data: {study.rows}. " if study.normalize else ""
    rows = [
        (entry.name, f"{100 * entry.error:.3g} %", f"{100 * entry.rescaled_error:.3g} %") for entry in study.closeness
    ]
    closer = closer_network(content["closeness"])
    but = f"**But** {closer}: at this dimension four numbers do not determine a kernel."
    return Section(
        "How close the kernels are",
        [
            Prose(
                f"{prepared}Relative distance ‖G − Σ‖/‖G‖ in spectral norm between the exact infinite-width kernel G "
                f"of the implicit network and Σ of an explicit one on {_data(content)}. Plain networks have the same "
                "depth."
            ),
            Table(("explicit network", "as it is", "best rescaled"), rows),
            *([Prose(but)] if closer else []),
            Row(plots[:3]),
            Prose("Every dot below is a pair of samples. A perfect replacement puts all dots on the line."),
            Row(plots[3:]),
        ],
    )


def one_layer_section(single: SphereMatch, table: Table, plots: Sequence[Plot]) -> Section:
    """The theorem, how far the design is off, a table and the picture."""
    rows = "of any norms" if single.network.normalize is not None else f"of norm {single.tau0:.6g}"
    return Section(
        "One hidden layer, exactly" if single.exact else "One hidden layer",
        [
            Prose(
                "On rows of equal norm every kernel of an infinitely wide network is a power series in the cosine t, "
                "with coefficients b_k ≥ 0. One hidden layer with σ(x) = Σ ±√b_k h_k(x/τ0), h_k Hermite polynomials, "
                f"has the same kernel; for the NTK, b_k is divided by 1 + k. For rows {rows} the kernel of this layer "
                f"differs by at most {single.distance:.1e} of k(1), for all cosines. It needs no m × m matrix."
            ),
            table,
            Row(plots),
        ],
    )


def _spectra(study: Study, plots: Sequence[Plot]) -> Section:
    n, p = study.data.X.shape
    note = views.few_features(study)
    text = (
        "Eigenvalues of both exact kernels, of their high-dimensional equivalent, and of its limiting law with the "
        f"outliers it predicts. The theory supposes about as many features as samples; here p/n = {p}/{n}"
    )
    text += " is small, so only the large eigenvalues follow it." if note else f" = {p / n:.2g}."
    text += "".join(f" It also supposes rows of nearly equal norm, but {found}." for found in study.spectrum.caveats)
    return Section("Spectra and forecast", [Prose(text), Row(plots[:2]), *_forecast(study.outlook, plots[2:])])


def _forecast(outlook: Outlook, plots: Sequence[Plot]) -> list[Part]:
    if outlook.implicit is None or outlook.explicit is None:
        return [Prose(f"No forecast of the accuracy: {plain(outlook.obstacle)}.")]
    text = (
        "The four numbers also forecast the accuracy of kernel ridge classification, before anything is trained. The "
        "plot shows forecasts from a part of the samples, and what the exact kernels reach on the others."
    )
    rows = []
    for name, one in (("implicit", outlook.implicit), ("explicit", outlook.explicit)):
        best = int(np.argmax(one.accuracy))
        rows.append((name, f"{100 * one.accuracy[best]:.2f} %", f"{one.ridge[best]:.3g}"))
    caption = f"Forecasts for {outlook.implicit.n[0]} training samples, each at the best of the ridges."
    return [Prose(text), Row([*plots, Table(("kernel", "accuracy", "ridge"), rows, caption)])]


def _training(comparison: Comparison, plots: Sequence[Plot]) -> Section:
    content = comparison.to_dict()
    table = Table(content["columns"], content["rows"])
    return Section("Accuracy and cost", [Prose(f"{plain(content['setting'])}."), table, Row(plots)])


def snippet(study: Study, folder: Path, source: str | None = None) -> str:
    """Runnable code that loads and uses the designed network."""
    load = f"data.load({quoted(source)}).X" if source else "np.random.default_rng(0).normal(size=(400, 500))"
    if study.tau0 == 1.0:
        prepare = f"X = data.prepare({load})  # centred, mean ‖x‖² = 1"
    else:
        prepare = f"X = {study.tau0!r} * data.prepare({load})  # centred, mean ‖x‖² = τ0²"
    classes = 1 if study.data.labels is None else len(set(study.data.labels.tolist()))
    return use_code(folder, prepare, explicit_kind(study.match), classes, numpy=source is None)


def use_code(folder: Path, prepare: str, kind: str, classes: int = 1, *, numpy: bool = True) -> str:
    """Code that loads ``network.json`` of a folder and uses it on rows X, which the line `prepare` makes."""
    lines = [
        *(["import numpy as np"] if numpy else []),
        "import torch",
        "import notsodeep as nsd",
        "from notsodeep import data, nn",
        "",
        f"network = nsd.load_model({quoted(str(folder / 'network.json'))})",
        prepare,
        f'K = network.kernel(X, kind="{kind}")  # its exact infinite-width kernel',
        "",
        "# a PyTorch module of any width, to train like any other",
        f"net = nn.ExplicitNet(network, in_features=X.shape[1], width=1024, out_features={classes})",
        "outputs = net(torch.as_tensor(X, dtype=torch.float32))",
        "",
    ]
    return "\n".join(lines)


def quoted(text: str) -> str:
    return printable(json.dumps(text, ensure_ascii=False))  # a literal without invisible characters


def use_section(code: str) -> Section:
    text = (
        "`network.json` beside this page describes the designed network. Paths below are as seen from where the report "
        "was made."
    )
    return Section("Use it", [Prose(text), Code(code)])
