"""Figures as live plots, and the page about all reproductions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser import in_a_browser, open_browser, wait

from notsodeep.papers.entry import Check, Entry, Judgement
from notsodeep.papers.live import panels, plots
from notsodeep.papers.run import reproduce_all
from notsodeep.report.style import COLORS, style

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")


def figure(plt: Any) -> Any:
    drawn, (left, right) = plt.subplots(1, 2, sharey=True)
    left.errorbar([1, 10], [2.0, 3.0], yerr=[0.5, 0.25], color=COLORS["implicit"], marker="o", capsize=3, label="means")
    left.axhline(2.5, color="#123456", label="_hidden")
    left.axhspan(1.0, 1.5, color=COLORS["shade"], label="band")
    left.set(xscale="log", title="two\nlines", xlabel="n", ylabel=r"$\|G - \bar{G}\|$", xlim=(1, 10))
    right.stairs([1.0, 2.0], [0, 1, 2], color=COLORS["theory"], label="steps")
    right.plot([0, 1], [1, math.nan], ls="--", color=COLORS["ink"])
    return drawn


def test_panels_hold_what_is_drawn() -> None:
    with style() as plt:
        left, right = panels(figure(plt))
        plt.close("all")
    assert left["title"] == "two\nlines"
    assert left["x"]["log"]
    assert left["x"]["range"] == [1, 10]
    assert left["y"]["label"] == right["y"]["label"] == "‖G − G\u0304‖"
    means, line = left["curves"]
    assert (means["label"], means["x"], means["y"]) == ("means", [1, 10], [2, 3])
    assert means["error"] == pytest.approx([0.5, 0.25])
    assert (means["color"], means["marker"]) == ("implicit", "circle")
    assert (line["label"], line["x"], line["y"], line["color"]) == ("", [1, 10], [2.5, 2.5], "#123456")
    assert left["bands"][0] | {"opacity": 1.0} == {
        "low": 1.0, "high": 1.5, "color": "shade", "opacity": 1.0, "label": "band"
    }  # fmt: skip
    dashed, steps = right["curves"]
    assert dashed["y"] == [1, None]
    assert (steps["x"], steps["y"], steps["step"]) == ([0, 1, 2], [1, 2, 2], True)


def test_bars_stay_a_picture() -> None:
    with style() as plt:
        drawn, axis = plt.subplots()
        axis.bar([0, 1], [2, 3])
        axis.plot([0, 1], [2, 3])
        assert panels(drawn) == []
        plt.close("all")


def test_plots_keep_numbers_limits_and_themes() -> None:
    with style() as plt:
        left, _ = plots(panels(figure(plt)), "example")
        plt.close("all")
    assert left.title == "two — lines"
    assert left.figure["data"][0]["line"]["color"] == "var(--implicit)"
    assert left.figure["layout"]["xaxis"]["range"] == [0, 1]  # powers of ten
    assert left.figure["layout"]["shapes"][0]["y1"] == 1.5


# --- the page ---------------------------------------------------------------------------------


def entry(name: str, measure: Any, draw: Any) -> Entry:
    return Entry(
        name=name,
        paper="[Test] Figure 1",
        title="Squares <of> numbers",
        plan=lambda: [{"x": x} for x in (1, 2, 3)],
        measure=measure,
        judge=lambda rows: Judgement(
            "squares", "cubes", [Check("powers", "2", "3", False, "a misprint"), Check("signs", "+", "+", True)]
        ),
        draw=draw,
        quick={},
        full={},
        assumptions=("numbers are whole",),
    )


def bars(plt: Any, rows: Any) -> Any:
    drawn, axis = plt.subplots()
    axis.bar([row["x"] for row in rows], [row["y"] for row in rows])
    return drawn


def absent(x: int) -> dict[str, Any]:
    raise FileNotFoundError("mnist is not here")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("papers")
    square = lambda x: {"y": x**3, "curve": np.arange(3.0).tolist()}  # noqa: E731
    entries = [
        entry("alive", square, lambda plt, rows: figure(plt)),
        entry("bars", square, bars),
        entry("absent", absent, bars),
    ]
    reproduce_all(entries, out, quick=True, progress=False)
    return out / "index.html"


def test_what_the_page_tells(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in ("agrees in part", "a misprint", "numbers are whole", "1 of 2 checks agree", "prove nothing"):
        assert words in text
    assert "Could not run: mnist is not here" in text
    assert "Squares &lt;of&gt; numbers" in text
    assert 'href="alive/data.csv"' in text
    assert (page.parent / "alive" / "data.csv").is_file()
    assert text.count('class="plot"') == 2
    assert text.count("data:image/png") == 1


@in_a_browser
def test_the_page_in_a_browser(page: Path, tmp_path: Path) -> None:
    with open_browser(tmp_path) as browser:
        browser.get(page.as_uri())
        wait(lambda: browser.execute_script("return document.documentElement.dataset.drawn") == "2")
        assert browser.get_log("browser") == []
        marks = browser.execute_script(
            "return [...document.querySelectorAll('.plot')].map(one => one.querySelectorAll('.trace path').length)"
        )
        assert all(count >= 2 for count in marks)
        browser.find_element("css selector", 'td a, th a[href="#bars"]').click()
        assert browser.execute_script("return location.hash") == "#bars"
        ground = "return getComputedStyle(document.body).backgroundColor"
        before = browser.execute_script(ground)
        browser.execute_script("window.scrollTo(0, 0)")
        browser.find_element("id", "theme").click()
        assert browser.execute_script(ground) != before
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.get_log("browser") == []
