"""The page builder: what is written is what was meant, and nothing can break out of its place.

Also covers: report/style.py.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
import re
from html import escape
from pathlib import Path

import numpy as np
import pytest

from notsodeep import InputError
from notsodeep.report.page import (
    Code,
    Equations,
    Facts,
    Picture,
    Plot,
    Prose,
    Row,
    Section,
    Table,
    color,
    plain,
    render,
)
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
    assert '<th scope="row">a</th><td data-label="value">1 &lt; 2</td>' in page
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


@pytest.mark.parametrize("evil", ["</script><script>alert(1)</script>", "<!--<script>", "a && b\u2028\u2029", "-->"])
def test_text_in_a_plot_cannot_act_on_the_page(evil: str) -> None:
    page = render("Plots", [Section("S", [Plot({"data": [{"type": "scatter", "name": evil}]}, "")])])
    assert evil not in page
    (written,) = re.findall(r'<script type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    assert not re.search("[<>&\u2028\u2029]", written)
    assert figures(page)[0]["data"][0]["name"] == evil  # type: ignore[index]


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1",
        "JavaScript:alert`1`",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//elsewhere.org/x",
        "\\\\elsewhere\\x",
        "/\\elsewhere",
        "\x01javascript:x",
        "a:b",
        "/etc/passwd",
        "..",
        "../secret",
        "a/../../secret",
        "a/%2e%2E/x",
        "a/..?x",
    ],
)
def test_only_addresses_of_the_web_and_relative_ones_become_links(address: str) -> None:
    parts = [Prose(f"[x]({address})"), Table(("[x](" + address + ")",), [(f"[x]({address})",)])]
    assert "href" not in render("t", [Section("s", parts)]).split("<main>")[1]


@pytest.mark.parametrize(
    "address", ["https://a.org/b?c=d&e", "http://a.org", "#two", "a/b.csv", "a%20b.html?x#y", "a..b/c...d", "a?b=../c"]
)
def test_other_addresses_do(address: str) -> None:
    assert f'<a href="{escape(address)}">x</a>' in render("t", [Section("s", [Prose(f"[x]({address})")])])


def test_marks_inside_marks() -> None:
    page = render("t", [Section("s", [Prose("**a `[b](c)` d**, [`e`](f), `**g**` and \\[h](i)")])])
    assert '<strong>a <code>[b](c)</code> d</strong>, <a href="f"><code>e</code></a>, <code>**g**</code>' in page
    assert "and [h](i)</p>" in page


def test_formulas_are_typeset() -> None:
    text = "Of **b_k ≥ 0**, t^k, K_{ij}, λ0^{3/2}, `a_b` and my_file.csv."
    page = render("t", [Section("s", [Equations("z* = φ(σ_a A z*) / √m\n\nf(x) < 1"), Prose(text)])])
    assert "<div><i>z</i>* = <i>φ</i>(<i>σ</i><sub>a</sub> <i>A</i> <i>z</i>*) / √<i>m</i></div>" in page
    assert "<div><i>f</i>(<i>x</i>) &lt; 1</div>" in page
    assert (
        "<p>Of <strong><i>b</i><sub>k</sub> ≥ 0</strong>, t<sup>k</sup>, <i>K</i><sub>ij</sub>, "
        "<i>λ</i><sub>0</sub><sup>3/2</sup>, <code>a_b</code> and my_file.csv.</p>"
    ) in page


@pytest.mark.parametrize(
    "name", ["[x](https://a.org)", "`code`", "**loud**", "\\[x](y)", "back\\", "<b>&amp;</b>", "a_b x^2 c1"]
)
def test_text_from_elsewhere_stays_text(name: str) -> None:
    assert f"<p>on {escape(name)}.</p>" in render("t", [Section("s", [Prose(f"on {plain(name)}.")])])


def test_text_from_elsewhere_hides_nothing() -> None:
    page = render("t", [Section("s", [Prose("on " + plain("\x1b[31m\u202eb") + ".")])])
    assert "<p>on \\x1b[31m\\u202eb.</p>" in page


def test_the_policy_names_the_scripts_of_the_page_and_no_others() -> None:
    page = render("Plots", [Section("S", [Plot(FIGURE, "a line")])])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.search(r"script-src ([^;]*)", policy)
    (own,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', page)
    hashes = [hashlib.sha256(text).digest() for text in (own.encode(), gzip.decompress(base64.b64decode(packed)))]
    assert scripts is not None
    assert scripts[1].split() == [f"'sha256-{base64.b64encode(one).decode()}'" for one in hashes]
    assert "default-src 'none'" in policy
    assert not re.search(r"\son\w+=", page.partition('<script type="text/plain"')[0])  # no handler in the markup


def test_a_misspelt_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        render("t", [Section("s", [Plot({"data": [{"type": "scatter", "line": {"colour": "red"}}]}, "")])])


def test_pictures_are_embedded(tmp_path: Path) -> None:
    path = tmp_path / "dot.png"
    path.write_bytes(b"\x89PNG")
    page = render("t", [Section("s", [Picture(path, "a dot", caption="Dot.")])])
    assert f'<img alt="a dot" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">' in page
    with pytest.raises(InputError, match="is not a picture"):
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


def test_plots_of_a_row_have_one_height() -> None:
    parts = [Plot(FIGURE, "low", height=300), Plot(FIGURE, "tall", height=420), Prose("words")]
    page = render("Row", [Section("One", [Row(parts)])])
    assert re.findall(r"style=\"height:(\d+)px\"", page) == ["420", "420"]
