"""The documentation in a real browser: formulas are typeset, nothing fails, nothing is fetched, the search box works.

``make pages`` builds the site first; ``SITE`` names another directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import in_a_browser, open_browser, wait
from tests.examples import ROOT

SITE = Path(os.environ.get("SITE", ROOT / "site"))
WITH_FORMULAS = (
    "theory",
    "kernels",
    "conv",
    "training",
    "errata",
    "one_layer",
    "cells",
    "forecast",
    "choosing",
    "api/notsodeep",
)
pytestmark = [pytest.mark.docs, in_a_browser]

# words outside of code, headings, pictures and formulas that should have been typeset
LEFT = r"""
const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
const left = [];
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (node.parentElement.closest(".katex, code, pre, script, style, h1, h2, h3, h4, h5, .notebook-output, a")) continue;
  left.push(...(node.textContent.match(/\S*(\\\(|\\\[|\$\$|[α-ωΑ-Ω]|_\{|[²³⁻ᵀ√‖])\S*/gu) || []));
}
return left;
"""
BROKEN = """
return [...document.querySelectorAll(".katex-error, .arithmatex:not(:has(.katex))")].map(one => one.textContent);
"""
WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (SITE / "index.html").is_file():
        pytest.skip("THE SITE IS NOT BUILT: ITS PAGES WERE NOT LOOKED AT (run `make pages`)")
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def names() -> list[str]:
    return sorted(str(path.relative_to(SITE).with_suffix("")) for path in SITE.rglob("*.html") if path.stem != "404")


@pytest.mark.parametrize("name", names())
def test_pages_are_whole(browser: Any, name: str) -> None:
    browser.get((SITE / f"{name}.html").as_uri())
    wait(lambda: browser.execute_script("return document.readyState") == "complete")
    assert browser.execute_script(BROKEN) == []
    assert browser.execute_script(LEFT) == []
    if name in WITH_FORMULAS:
        assert browser.execute_script("return document.querySelectorAll('.katex').length") >= 2
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert not [entry for entry in browser.get_log("performance") if '"url":"http' in entry["message"]]


def test_pages_fit_a_phone(browser: Any) -> None:
    """No page is wider than the screen; wide formulas and tables scroll by themselves."""
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        wide = []
        for name in names():
            browser.get((SITE / f"{name}.html").as_uri())
            wide += [name] if browser.execute_script(WIDER) > 0 else []
        assert wide == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_search_finds_pages_from_the_disk(browser: Any) -> None:
    browser.get((SITE / "index.html").as_uri())
    browser.execute_script("document.querySelector('#__search').click()")
    box = browser.find_element("css selector", "input.md-search__input")
    wait(box.is_displayed)
    box.send_keys("errata")
    found = "return [...document.querySelectorAll('.md-search-result__link')].map(one => one.getAttribute('href'))"
    assert any("errata.html" in link for link in wait(lambda: browser.execute_script(found)))
