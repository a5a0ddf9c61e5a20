"""The report of a match, read in a real browser: drawn, alive, quiet, and at home on a phone."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import examples
from tests.browser import in_a_browser, open_browser, wait

import notsodeep as nsd
from notsodeep import data
from notsodeep.report import pictures
from notsodeep.report.match_page import equations, match_page, snippet
from notsodeep.study import Comparison, Study, Trained, designs

PLOTS = 17  # three activations, heat maps, clouds of pairs, of the single layer and of training, two spectra


def study(name: str, found: data.Data) -> Study:
    return Study.of(nsd.match(nsd.DEQ(name, 0.2, 0.8), tau0=1.0), found)


def written(found: Study, comparison: Comparison | None, *place: Any) -> str:
    both = designs(found)
    return match_page(found, comparison, both, pictures.draw(found, comparison, both), *place)


@pytest.fixture(scope="module")
def small() -> Study:
    return study("relu", data.subsample(data.load("digits"), 120))


@pytest.fixture(scope="module")
def page(small: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    networks = [Trained(name, 100, 0.9, seconds, 10 * seconds, 2.0, (0.5, 0.8, 0.9)) for name, seconds in
                (("implicit", 0.4), ("explicit", 0.1))]  # fmt: skip
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(written(small, Comparison("As told", *networks), path.parent, "digits"), encoding="utf-8")
    return path


@pytest.mark.parametrize("source", [None, "digits"])
def test_the_code_on_the_page_runs(small: Study, source: str | None, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small.network.save(tmp_path / "network.json")
    code = snippet(small, Path(), source) + "assert K.shape == (len(X), len(X)) and len(outputs) == len(X)\n"
    examples.run(code, tmp_path)


def test_what_the_page_tells(page: Path, small: Study) -> None:
    text = page.read_text(encoding="utf-8")
    for words in (str(small.network.activations[0]), "4·recurrent·L²", f"{small.match.target.c1:.6g}", "As told."):
        assert words in text
    assert "is small, so only the large eigenvalues follow it" not in text  # p/n = 64/120
    assert len(text) < 3_000_000


def test_layers_are_numbered_beyond_nine() -> None:
    lines = equations(nsd.Explicit(["relu"] * 10 + ["tanh"])).splitlines()
    assert lines[0] == "x⁽¹⁾ = σ₁(W₁ x) / √m"
    assert lines[10:13] == ["x⁽¹¹⁾ = σ₁₁(W₁₁ x⁽¹⁰⁾) / √m", "f(x) = aᵀ x⁽¹¹⁾", ""]
    assert lines[-1] == "σ₁₁(x) = tanh(x)"


def test_few_features_are_told(tmp_path: Path) -> None:
    thin = data.Data("thin", np.random.default_rng(0).normal(size=(60, 6)))
    text = written(study("tanh", thin), None, tmp_path)
    assert "p/n = 0.1 is small: only the large eigenvalues follow the theory" in text
    assert "Accuracy and cost" not in text
    assert "network of 1 hidden layer that" in text


def test_a_strong_direction_is_told(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(120, 60))
    X[:, 0] *= 6
    text = written(study("tanh", data.Data("spiked", X)), None, tmp_path)
    assert "rows of nearly equal norm, but the strongest direction of C° has variance" in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def read(browser: Any, page: Path) -> Callable[..., Any]:
    """Open the page without a network, as a reader with this screen and system theme, and wait until it is drawn."""

    def open_(width: int = 1280, scheme: str = "light", again: bool = False) -> Any:
        if not again and getattr(browser, "reader", None) == (width, scheme):
            return browser
        mobile = width < 600
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": mobile})
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        media = {"features": [{"name": name, "value": value} for name, value in features.items()]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
        )
        browser.get(page.as_uri())
        wait(lambda: browser.execute_script("return document.documentElement.dataset.drawn") == str(PLOTS))
        browser.reader = (width, scheme)
        return browser

    return open_


def plot(browser: Any, words: str) -> Any:
    return browser.find_element("css selector", f'.plot[aria-label*="{words}"]')


def x_range(browser: Any, place: Any) -> list[float]:
    return [float(v) for v in browser.execute_script("return arguments[0]._fullLayout.xaxis.range", place)]


@in_a_browser
def test_it_loads_quietly_and_asks_nobody(read: Callable[..., Any]) -> None:
    browser = read(again=True)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert requests
    assert all(address.startswith(("file:", "data:", "blob:")) for address in requests), requests


@in_a_browser
def test_every_plot_is_drawn(read: Callable[..., Any]) -> None:
    browser = read()
    drawn = browser.execute_script("""return [...document.querySelectorAll(".plot")].map(place => ({
        label: place.getAttribute("aria-label"),
        traces: place._fullData.length,
        points: place.calcdata.every(trace => trace.length),
        area: place.querySelector(".plot .nsewdrag").getBoundingClientRect().toJSON(),
        marks: place.querySelectorAll(".trace path, .points path, .heatmaplayer image").length,
    }))""")
    assert len(drawn) == PLOTS
    for one in drawn:
        assert one["label"]
        assert one["points"], one
        assert one["marks"] >= 1, one
        assert one["area"]["width"] > 100, one
        assert one["area"]["height"] > 100, one
    assert sum(one["traces"] for one in drawn) >= 3 * 2 + 3 + 3 * 2 + 6 + 4
    pair = plot(browser, "implicit against matched")
    assert len(pair.find_elements("css selector", ".points path")) == 2000


@in_a_browser
@pytest.mark.parametrize(
    ("words", "mark", "label"),
    [
        ("Heat map of the implicit", ".nsewdrag", "samples"),
        ("Inference", ".points path", "implicit: 4 ms"),
        ("Test accuracy", ".points path", "epoch 1: 50.00 %"),
        ("implicit against matched", ".points path", "(label "),
    ],
)
def test_hovering_shows_a_label(read: Callable[..., Any], words: str, mark: str, label: str) -> None:
    from selenium.webdriver import ActionChains

    browser = read()
    place = plot(browser, words)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)
    ActionChains(browser).move_to_element(place.find_element("css selector", mark)).perform()
    text = wait(lambda: " ".join(one.text for one in place.find_elements("css selector", ".hovertext")))
    assert label in text.replace("\n", " ")


@in_a_browser
def test_dragging_zooms_and_the_theme_keeps_the_zoom(read: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains

    browser = read()
    place = plot(browser, "Test accuracy")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)
    before = x_range(browser, place)
    area = place.find_element("css selector", ".nsewdrag")
    drag = ActionChains(browser).move_to_element_with_offset(area, -40, -40).click_and_hold()
    drag.move_by_offset(40, 40).move_by_offset(30, 30).release().perform()
    wait(lambda: x_range(browser, place) != before)
    zoomed = x_range(browser, place)
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    for _ in range(2):  # there and back
        browser.find_element("id", "theme").click()
        assert x_range(browser, place) == zoomed
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", place)

    def reset() -> bool:
        """On a busy machine the two clicks may come too far apart to be one double click."""
        ActionChains(browser).double_click(area).perform()
        deadline = time.monotonic() + 5
        while x_range(browser, place) != pytest.approx(before):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    wait(reset)


@in_a_browser
def test_themes(read: Callable[..., Any]) -> None:
    browser = read()

    def look() -> tuple[str, str]:
        ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        line = plot(browser, "Test accuracy").find_element("css selector", ".lines path")
        return ground, line.value_of_css_property("stroke")

    light = look()
    assert light[0] == "rgb(255, 255, 255)"
    button = browser.find_element("id", "theme")
    browser.execute_script("arguments[0].focus()", button)
    button.send_keys(" ")  # the keyboard is enough
    dark = look()
    assert dark[0] == "rgb(20, 23, 27)"
    assert dark[1] != light[1]
    assert button.get_attribute("aria-label") == "Switch to light colours"
    read(again=True)
    assert look() == dark  # kept
    browser.find_element("id", "theme").click()
    read(again=True)
    assert look() == light
    read(scheme="dark")
    assert look() == dark  # as the system
    assert browser.get_log("browser") == []


@in_a_browser
@pytest.mark.parametrize("width", [375, 768])
def test_small_screens_scroll_one_way_only(read: Callable[..., Any], width: int) -> None:
    browser = read(width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    places = browser.execute_script("""
        return [...document.querySelectorAll(".plot .main-svg, h1, h2, p, button, figure")]
        .map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])""")
    assert all(left >= 0 and right <= width for left, right in places)
    assert browser.get_log("browser") == []


@in_a_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_legends_toolbars_plots_and_cards_keep_apart(read: Callable[..., Any], width: int) -> None:
    browser = read(width=width)
    plots = browser.execute_script("""
        return [...document.querySelectorAll(".plot")].map(place => {
          const box = one => one ? one.getBoundingClientRect().toJSON() : null;
          return [place.querySelector(".modebar-btn"), place.querySelector(".legend"), place].map(box);
        })""")
    legends = 0
    for toolbar, legend, place in plots:
        assert toolbar["bottom"] <= place["top"] + 1
        if legend:
            legends += 1
            assert toolbar["bottom"] <= legend["top"]
    assert legends >= 3
    rows = browser.execute_script("""
        return [...document.querySelectorAll(".row")].map(row => [...row.querySelectorAll(":scope > figure .plot")]
          .map(one => one.getBoundingClientRect().toJSON()))""")
    for row in rows:
        assert len({one["height"] for one in row}) <= 1
        for one, other in itertools.pairwise(row):
            assert one["top"] == pytest.approx(other["top"], abs=1) or other["top"] >= one["bottom"]
    cards = browser.execute_script("""return [...document.querySelectorAll(".facts dd")].map(one =>
        [one.getBoundingClientRect().height, parseFloat(getComputedStyle(one).lineHeight),
         one.scrollWidth - one.parentElement.clientWidth])""")
    assert cards
    assert all(height < 1.5 * line and wider <= 0 for height, line, wider in cards)


def test_times_of_a_busy_machine_are_no_headlines(small: Study, tmp_path: Path) -> None:
    networks = [Trained(one, 100, 0.9, 0.1, 1.0, 2.0, (0.5, 0.8), 0.1, 0.7) for one in ("implicit", "explicit")]
    comparison = Comparison("As told", *networks)
    assert not comparison.steady
    text = written(small, comparison, tmp_path)
    assert "faster predictions" not in text
    assert "1 ms (+70 %)" in text
    assert "0.1 s (+10 %)" in text


HOSTILE = ["<!--<script>", "</script><script>window.hacked=1</script>", "[x](javascript:window.hacked=1)",
           '<img src=x onerror="window.hacked=1">', '<a href="javascript:window.hacked=1">x</a>']  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on data whose name and labels are written to do harm."""
    rng = np.random.default_rng(0)
    labels = np.repeat(HOSTILE, 8)
    name = "[click](javascript:window.hacked=1) " + " ".join(HOSTILE)
    found = study("relu", data.Data(name, rng.normal(size=(40, 50)), labels))
    networks = [Trained(one, 100, 0.9, 0.1, 1.0, 2.0, (0.5, 0.8)) for one in ("implicit", "explicit")]
    path = tmp_path_factory.mktemp("hostile") / "index.html"
    path.write_text(written(found, Comparison(f"On {name}", *networks), path.parent, name), encoding="utf-8")
    return path


@in_a_browser
def test_a_page_of_hostile_names_is_whole_and_does_nothing(browser: Any, hostile: Path) -> None:
    browser.reader = None
    browser.get_log("browser")
    browser.get(hostile.as_uri())
    plots = f"return [document.documentElement.dataset.drawn, document.querySelectorAll('.plot').length === {PLOTS}]"
    wait(lambda: browser.execute_script(plots) == [str(PLOTS), True])
    links = browser.execute_script("return [...document.querySelectorAll('a')].map(one => one.getAttribute('href'))")
    assert links
    assert all(link.startswith("#") for link in links if link is not None), links
    texts = browser.execute_script("return [...document.querySelectorAll('.xtick')].map(one => one.textContent)")
    assert {"<!--<script>", "<img src=x oner…"} <= set(texts)  # written as they are
    assert browser.execute_script("return document.querySelector('main').innerText").count("[click](javascript:") > 1
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked") is None


@in_a_browser
@pytest.mark.parametrize(
    "smuggled",
    [
        "<img id=evil src=data: onerror='window.hacked=1'>",
        "<a id=evil href='javascript:window.hacked=1'>x</a>",
        "<button id=evil onclick='window.hacked=1'>x</button>",
        "<iframe id=evil srcdoc='<script>parent.hacked=1</script>'></iframe>",
    ],
)
def test_the_policy_refuses_what_would_run(browser: Any, hostile: Path, smuggled: str) -> None:
    """Should markup ever come through, the browser does not run it."""
    browser.reader = None
    browser.get(hostile.as_uri())
    wait(lambda: browser.execute_script("return document.documentElement.dataset.drawn") == str(PLOTS))
    browser.get_log("browser")
    browser.execute_script("document.body.insertAdjacentHTML('afterbegin', arguments[0])", smuggled)
    browser.execute_script("document.getElementById('evil').click()")
    wait(lambda: any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser")))
    assert browser.execute_script("return window.hacked") is None
