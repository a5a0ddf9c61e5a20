"""The page about all reproductions: what it tells, and how it looks in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser import in_a_browser, open_browser, wait

from notsodeep.papers.entry import Check, Entry, Judgement
from notsodeep.papers.run import reproduce_all
from notsodeep.report.style import COLORS

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")


def curves(plt: Any, rows: Any) -> Any:
    drawn, axes = plt.subplots(1, 2)
    for axis in axes:
        axis.errorbar([row["x"] for row in rows], [row["y"] for row in rows], yerr=0.5, color=COLORS["implicit"])
    return drawn


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
        differences=("cubes in place of squares",),
    )


def band(plt: Any, rows: Any) -> Any:
    drawn, axis = plt.subplots()
    axis.axhspan(0, rows[0]["y"])  # not known to a live plot
    return drawn


def absent(x: int) -> dict[str, Any]:
    raise FileNotFoundError("mnist is not here")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("papers")
    square = lambda x: {"y": x**3, "curve": np.arange(3.0).tolist()}  # noqa: E731
    entries = [
        entry("alive", square, curves),
        entry("band", square, band),
        entry("absent", absent, band),
    ]
    reproduce_all(entries, out, quick=True, progress=False)
    return out / "index.html"


def test_what_the_page_tells(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in (
        "holds in part",
        "a misprint",
        "numbers are whole",
        "cubes in place of squares",
        "none to compare",
        "prove nothing",
    ):
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
        browser.find_element("css selector", 'td a, th a[href="#band"]').click()
        assert browser.execute_script("return location.hash") == "#band"
        ground = "return getComputedStyle(document.body).backgroundColor"
        before = browser.execute_script(ground)
        wait(lambda: browser.execute_script("return window.scrollY") > 0)  # the link scrolls when it is ready
        wait(lambda: browser.execute_script("window.scrollTo({top: 0, behavior: 'instant'}); return scrollY") == 0)
        browser.execute_script("document.getElementById('theme').click()")  # wherever the page has scrolled to
        assert browser.execute_script(ground) != before
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.get_log("browser") == []
