"""The report of a single layer: a directory with the page, its picture, the numbers and the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep import files
from notsodeep.data import Data
from notsodeep.extras import need
from notsodeep.kinds import Kind
from notsodeep.one_layer import SphereMatch
from notsodeep.report.folder import new_report
from notsodeep.report.match import Report, data_of
from notsodeep.report.match_page import one_layer_section, quoted, use_code, use_section
from notsodeep.report.page import Facts, Part, Prose, Table, plain, render
from notsodeep.report.pictures import draw_one_layer
from notsodeep.study import measured_on

__all__ = ["write_sphere_report"]

_FILES = ("match.json", "network.json", "index.html", "one_layer.png", "one_layer.svg")


def write_sphere_report(
    found: SphereMatch,
    directory: str | Path,
    X: ArrayLike | Data | str | Path | None = None,
    y: ArrayLike | None = None,
    *,
    limit: int | None = 2000,
    normalize: str = "unit",
    source: str | None = None,
) -> Report:
    """Measure a single layer on data and write its report; see :meth:`notsodeep.one_layer.SphereMatch.report`."""
    need("matplotlib"), need("plotly")  # a missing extra is reported before the work, not after
    folder, data = Path(directory), data_of(X, y, limit)
    replaced = (folder / "match.json").is_file()
    with new_report(folder, "match.json", _FILES) as fresh:
        content = {"text": str(found.reference), **found.to_dict(), "data": measured_on(found, data, normalize)}
        plots = draw_one_layer(found, fresh)
        found.network.save(fresh / "network.json")
        files.write(fresh / "match.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        name = source or (str(X) if isinstance(X, str | Path) else None)
        classes = 1 if data is None or data.labels is None else len(np.unique(data.labels))
        code = use_code(
            folder, _prepare(found, name, normalize), Kind.of(found.kind).explicit, classes, numpy=name is None
        )
        sections = [
            one_layer_section(found, _numbers(found), plots),
            use_section(code),
        ]
        page = render("A deep model and its single layer", sections, _lead(found, content))
        files.write(fresh / "index.html", page)
    return Report(folder / "index.html", content, replaced)


def _lead(found: SphereMatch, content: dict[str, Any]) -> list[Part]:
    facts = [(f"≤ {found.distance:.1e}", "distance of the kernels, relative to k(1), over all cosines")]
    where = "."
    if rows := content["data"]:
        facts.append((f"{rows['distance']:.1e}", "relative distance on these rows, spectral norm"))
        where = f", on {plain(rows['name'])} ({rows['samples']} samples, {rows['features']} features: {rows['rows']})."
    text = f"The {found.kind} of `{content['text']}` and the network of one hidden layer that replaces it{where}"
    return [Prose(text), Facts(facts)]


def _numbers(found: SphereMatch) -> Table:
    rows = [
        ("the activation σ(x)", f"`{found.network.activations[0]}`"),
        ("sup |k̂ − k|/k(1)", f"≤ {found.distance:.1e}"),
        ("E[σ⁴]/E[σ²]², how much a finite layer fluctuates", f"{found.fourth:.3g}"),
        ("sup |σ'|", f"{found.lipschitz:.3g}"),
    ]
    return Table(("", "single layer"), rows, "The layer, its error, and two numbers that matter at finite width.")


def _prepare(found: SphereMatch, source: str | None, normalize: str) -> str:
    cloud = 'data.Data("a cloud", np.random.default_rng(0).normal(size=(400, 500)))'
    load = cloud if source is None else f"data.load({quoted(source)})"
    scale = "" if found.tau0 == 1 or normalize == "none" else f"{found.tau0!r} * "
    return f'X = {scale}{load}.prepared("{normalize}").X'
