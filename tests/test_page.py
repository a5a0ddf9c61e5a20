"""The page builder: what is written is what was meant, and nothing can break out of its place."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from notsodeep import InputError
from notsodeep.report.page import Code, Facts, Picture, Plot, Prose, Row, Section, Table, color, render
from notsodeep.report.style import THEMES

FIGURE = {"data": [{"type": "scatter", "x": [1, 2], "y": np.array([3.0, 4.0]), "line": {"color": color("implicit")}}]}


def figures(page: str) -> list[dict[str, object]]:
    found = re.findall(r'<script type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    return [json.loads(text) for text in found]


def test_parts_become_html() -> None:
    sections = [
        Section("One", [Prose("First `x<y`.\n\nSecond **strong**, [a link](#two)."), Code("if a < b:\n    pass")]),
        Section("Two", [Facts([("5×", "faster")]), Table(("", "value"), [("a", "1 < 2")], caption="Numbers.")]),
    ]
    page = render("A < B", sections, lead=[Prose("Lead.")])
    assert "<title>A &lt; B</title>" in page
    assert "<p>First <code>x&lt;y</code>.</p><p>Second <strong>strong</strong>" in page
    assert '<a href="#two">a link</a>' in page
    assert "if a &lt; b:\n    pass" in page
    assert "<dt>faster</dt><dd>5×</dd>" in page
    assert '<th scope="row">a</th><td>1 &lt; 2</td>' in page
    assert page.index("Lead.") < page.index("<nav") < page.index('id="one"') < page.index('id="two"')
    assert 'lang="en"' in page
    assert 'name="viewport"' in page
    assert 'id="plotly"' not in page  # no plot, no library


def test_a_plot_carries_its_data_and_the_library_once() -> None:
    page = render("Plots", [Section("S", [Plot(FIGURE, "a line"), Row([Plot(FIGURE, 'an "alt"', title="T")])])])
    one, other = figures(page)
    assert one == other
    (trace,) = one["data"]  # type: ignore[misc]
    assert trace["line"]["color"] == "var(--implicit)"
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', page)
    assert b"plotly.js v" in gzip.decompress(base64.b64decode(packed))[:100]
    assert 'aria-label="an &quot;alt&quot;"' in page
    assert len(page) < 2_500_000


def test_text_in_a_plot_cannot_end_its_script() -> None:
    evil = "</script><script>alert(1)</script>"
    page = render("Plots", [Section("S", [Plot({"data": [{"type": "scatter", "name": evil}]}, "")])])
    assert evil not in page
    assert figures(page)[0]["data"][0]["name"] == evil  # type: ignore[index]


def test_a_misspelt_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        render("t", [Section("s", [Plot({"data": [{"type": "scatter", "line": {"colour": "red"}}]}, "")])])


def test_pictures_are_embedded(tmp_path: Path) -> None:
    path = tmp_path / "dot.png"
    path.write_bytes(b"\x89PNG")
    page = render("t", [Section("s", [Picture(path, "a dot", caption="Dot.")])])
    assert f'<img alt="a dot" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">' in page
    with pytest.raises(InputError, match="is no picture"):
        render("t", [Section("s", [Picture(tmp_path / "dot.tex", "")])])


def test_equal_titles_get_different_addresses() -> None:
    page = render("t", [Section("Same"), Section("Same"), Section("Ωmega"), Section("∞")])
    ids = re.findall(r'<h2 id="([^"]+)"', page)
    assert ids == ["same", "same-2", "mega", "section"]


def test_colors_are_names_of_the_style() -> None:
    with pytest.raises(InputError, match="choose from implicit"):
        color("mauve")
    assert THEMES["light"].keys() == THEMES["dark"].keys()


@pytest.mark.parametrize("theme", THEMES)
def test_contrast(theme: str) -> None:
    """WCAG: 4.5 for text, 3 for graphics."""

    def luminance(value: str) -> float:
        channels = [int(value[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot((0.2126, 0.7152, 0.0722), linear))

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(THEMES[theme][one]), luminance(THEMES[theme][other])))
        return (high + 0.05) / (low + 0.05)

    for text, ground in itertools.product(("ink", "muted", "link"), ("paper", "panel")):
        assert contrast(text, ground) >= 4.5, (text, ground)
    for tint in ("implicit", "explicit", "other", "other2", "theory"):
        assert contrast(tint, "paper") >= 3, tint
