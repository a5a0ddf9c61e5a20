"""A real browser without a window, for the tests that look at pages."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1280,900"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
in_a_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="NO CHROMIUM: THE REPORT WAS NOT LOOKED AT (install the packages chromium and chromium-driver)",
)


@contextmanager
def open_browser(profile: Path) -> Iterator[Any]:
    """Chromium with logs of its console and of its requests."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    driver.get("about:blank")
    driver.get_log("performance")  # what the browser's own first page asked for
    try:
        yield driver
    finally:
        driver.quit()


def wait(condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail("the browser did not get there in time")
