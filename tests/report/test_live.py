"""Matplotlib figures as interactive plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from notsodeep import InputError
from notsodeep.report.live import from_matplotlib, tell
from notsodeep.report.page import Section, render
from notsodeep.report.style import COLORS, style

X = np.array([1.0, 2.0, 4.0])


@pytest.fixture
def plt() -> Iterator[Any]:
    with style() as module:
        yield module


def only(figure: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    (plot,) = from_matplotlib(figure)
    render("t", [Section("s", [plot])])  # Plotly finds every property valid
    return plot.figure["data"], plot.figure["layout"]


def test_lines_and_error_bars(plt: Any) -> None:
    figure, axis = plt.subplots()
    axis.errorbar(100 * X, X**2, yerr=[0.1, 0.2, 0.3], color=COLORS["implicit"], marker="s", capsize=3, label="ours")
    axis.plot(X, X, "--", color="#123456", label="_hidden")
    axis.set(xlabel="n", ylabel="error", title=r"Rate $\|\bar{G}\| n^{2}$", xlim=(0.5, 5), ylim=(0, 20))
    (bars, line), layout = only(figure)
    np.testing.assert_array_equal(bars["y"], X**2)
    np.testing.assert_allclose(bars["error_y"]["array"], [0.1, 0.2, 0.3])
    assert (bars["name"], bars["mode"], bars["marker"]["symbol"]) == ("ours", "lines+markers", "square")
    assert bars["line"]["color"] == "var(--implicit)"
    assert (line["line"]["dash"], line["line"]["color"], line["showlegend"]) == ("dash", "#123456", False)
    assert layout["xaxis"]["range"] == [0.5, 5]
    assert layout["yaxis"]["title"]["text"] == "error"
    assert from_matplotlib(figure)[0].title == "Rate ‖G\u0304‖ n^{2}"


def test_logarithmic_axes_and_fixed_ticks(plt: Any) -> None:
    figure, axis = plt.subplots()
    axis.plot(X, X)
    axis.set(xscale="log", xlim=(1, 100), xticks=[1, 10], xticklabels=["one", "ten"])
    _, layout = only(figure)
    assert layout["xaxis"]["range"] == [0, 2]
    assert layout["xaxis"]["tickvals"] == [1, 10]
    assert layout["xaxis"]["ticktext"] == ["one", "ten"]


def test_bars_steps_dots_areas_images_and_levels(plt: Any) -> None:
    figure, axes = plt.subplots(2, 3)
    axes[0, 0].bar(["a", "b"], [1.0, 3.0], label="b")
    axes[0, 1].stairs([1.0, 2.0], [0, 1, 2], fill=True, alpha=0.5)
    axes[0, 2].scatter(X, X, color=COLORS["theory"])
    axes[1, 0].fill_between(X, X, 2 * X, alpha=0.3)
    axes[1, 1].imshow(np.arange(6.0).reshape(2, 3))
    axes[1, 2].plot(X, X)
    axes[1, 2].axhline(2.5, color="black")
    axes[1, 2].set(xlim=(0, 5), ylim=(0, 5))
    plots = from_matplotlib(figure)
    render("t", [Section("s", plots)])
    bars, steps, dots, area, image, level = (plot.figure["data"][-1] for plot in plots)
    assert list(bars["y"]) == [1, 3]
    assert plots[0].figure["layout"]["xaxis"]["ticktext"] == ["a", "b"]
    assert list(steps["x"]) == [0, 1, 2]
    assert list(steps["y"]) == [1, 2, 2]
    assert dots["marker"]["color"] == "var(--theory)"
    assert area["fill"] == "toself"
    assert area["fillcolor"].endswith(",0.3)")
    assert image["z"].shape == (2, 3)
    np.testing.assert_allclose(level["y"], 2.5)
    np.testing.assert_allclose(level["x"], [0, 5], atol=1e-9)


def test_what_is_not_known_is_refused(plt: Any) -> None:
    figure, axis = plt.subplots()
    axis.pie([1, 2])
    with pytest.raises(InputError, match="Wedge is not known"):
        from_matplotlib(figure)
    figure, axis = plt.subplots()
    axis.plot(X, X)
    axis.set_xscale("symlog")
    with pytest.raises(InputError, match="symlog"):
        from_matplotlib(figure)


def test_mathtext_becomes_letters(plt: Any) -> None:
    figure, axis = plt.subplots()
    axis.plot(X, X)
    axis.set_title(r"$\|\Sigma-\bar{\Sigma}\|\,/\,\sigma_a^2$ \alpha")
    (plot,) = from_matplotlib(figure)
    assert plot.title == "‖Σ-Σ̄‖\u2009/\u2009σ_a^2 \\\\alpha"  # indices are left to the page
    axis.set_title(r"$k(t) = \sum_k b_k t^k$ with $b_k \geq 0$, of [a](b_c)")
    axis.set_xlabel(r"$\sum_k b_k \lambda_0$")
    (plot,) = from_matplotlib(figure)
    assert plot.title == r"k(t) = Σ_k b_k t^k with b_k ≥ 0, of \[a\](b\_c)"
    assert plot.figure["layout"]["xaxis"]["title"]["text"] == "Σ<sub>k</sub> b<sub>k</sub> λ<sub>0</sub>"


def test_hollow_marks_keep_the_colour_of_their_edges_and_error_bars(plt: Any) -> None:
    figure, axis = plt.subplots()
    axis.errorbar(X, X, yerr=0.1, fmt="o", color=COLORS["explicit"], mfc="white")
    (trace,), _ = only(figure)
    assert trace["mode"] == "markers"
    assert trace["marker"]["color"] == "var(--paper)"
    assert trace["marker"]["line"]["color"] == trace["error_y"]["color"] == "var(--explicit)"


def test_transparent_colours_of_the_style_follow_the_theme(plt: Any) -> None:
    figure, axis = plt.subplots()
    axis.stairs([1.0, 2.0], [0, 1, 2], fill=True, color=COLORS["implicit"], alpha=0.5, zorder=3)
    axis.fill_between(X, X, color=COLORS["shade"], zorder=0)
    (area, steps), _ = only(figure)  # the lowest first
    assert area["fillcolor"] == "var(--shade)"
    assert steps["fillcolor"] == "var(--implicit/80)"


def test_equal_aspect_grids_and_labels_of_bars(plt: Any) -> None:
    figure, (square, bars) = plt.subplots(1, 2)
    square.plot(X, X)
    square.set(aspect="equal")
    bars.bar_label(bars.bar(["a", "b"], [10.0, 1000.0]), ["ten", "thousand"])
    bars.set(yscale="log", ylim=(1, 1e4))
    bars.grid(visible=False, axis="x")
    plain, labelled = from_matplotlib(figure)
    render("t", [Section("s", [plain, labelled])])
    axes = plain.figure["layout"]
    assert axes["yaxis"]["scaleanchor"] == "x"
    assert axes["xaxis"]["constrain"] == axes["yaxis"]["constrain"] == "domain"
    layout = labelled.figure["layout"]
    assert [(one["x"], one["y"], one["text"]) for one in layout["annotations"]] == [(0, 1, "ten"), (1, 3, "thousand")]
    assert (layout["xaxis"]["showgrid"], layout["yaxis"]["showgrid"]) == (False, True)


def test_what_a_picture_does_not_show_is_told(plt: Any) -> None:
    figure, axis = plt.subplots()
    evil = ["<b>", "$x$\x1b"]
    tell(axis.scatter([1, 2], [3, 4], s=9), hover="%{hovertext}: %{y}", text=evil)
    tell(axis, alt="Two dots", caption="Of `two`.", height=200, ticks=dict(enumerate(evil)))
    (plot,) = from_matplotlib(figure)
    (dots,) = plot.figure["data"]
    assert (plot.alt, plot.caption, plot.height) == ("Two dots", "Of `two`.", 200)
    assert dots["hovertemplate"] == "%{hovertext}: %{y}<extra></extra>"
    assert dots["hovertext"] == plot.figure["layout"]["yaxis"]["ticktext"] == ["&lt;b&gt;", "$x$\\x1b"]
    assert dots["marker"]["size"] == 4.5
    page = render("t", [Section("s", [plot])])
    assert "<b>" not in page


@pytest.mark.parametrize(("high", "step"), [(1e4, 1), (50, "D2"), (5, None)])
def test_ticks_of_logarithmic_axes(plt: Any, high: float, step: Any) -> None:
    figure, axis = plt.subplots()
    axis.loglog([1, high], [1, high])
    axis.set(xlim=(1, high))
    _, layout = only(figure)
    assert layout["xaxis"].get("dtick") == step
