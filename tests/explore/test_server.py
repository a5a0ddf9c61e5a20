"""The explorer: its numbers, whom it answers, and the page in a real browser.

Also covers: commands/explore.py, explore/answers.py.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser import in_a_browser, open_browser, wait
from tests.command_line import Run
from threadpoolctl import threadpool_info

import notsodeep as nsd

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

from notsodeep.descriptions import model_from_dict
from notsodeep.explore import answers, application, serve
from notsodeep.explore.answers import Knobs

HERE = "http://127.0.0.1:1234"


@pytest.fixture(scope="module")
def client() -> Any:
    pytest.importorskip("httpx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the successor of httpx
        from starlette.testclient import TestClient

    return TestClient(application("token", 1234), base_url=HERE)


def ask(client: Any, topic: str, **knobs: Any) -> Any:
    reply = client.post(f"/token/ask/{topic}", json=knobs)
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    return reply.json()


def test_the_numbers_are_those_of_the_library(client: Any) -> None:
    knobs = {"phi": "erf", "recurrent": 0.3, "input": 0.7, "tau0": 1.5, "kind": "ntk"}
    deq = nsd.DEQ("erf", 0.3, 0.7)
    found = ask(client, "kernel", **knobs)
    t = np.array(found["k"]["t"])
    np.testing.assert_allclose(found["k"]["deq"], deq.on_sphere("ntk", norm=1.5)(t), rtol=1e-7)
    assert found["well_posed"]["reason"] == deq.well_posed.reason
    network = ask(client, "network", **knobs)
    expected = nsd.match(deq, tau0=1.5, kind="ntk")
    assert isinstance(expected, nsd.Match)
    assert network["network"] == expected.network.to_dict()
    assert {name: row["deq"] for name, row in network["numbers"].items()} == expected.target._asdict()
    scope: dict[str, Any] = {}
    exec(found["python"].split("one = ")[0], scope)  # what "copy as Python" copies; the design of one layer is slow
    assert scope["deq"] == deq
    assert model_from_dict(found["json"]) == deq
    spectra = ask(client, "spectra", **knobs, ratio=2.0, separation=0.0)
    assert (spectra["n"], spectra["p"], len(spectra["eigenvalues"])) == (240, 480, 240)
    edges = np.array(spectra["support"])
    inside = [
        (value > edges[:, 0] * 0.97).any() and (value < edges[:, 1] * 1.03).any() for value in spectra["eigenvalues"]
    ]
    assert np.mean(inside) > 0.97


@pytest.mark.parametrize("kind", ["ck", "ntk"])
@pytest.mark.parametrize("ratio", [0.5, 3.0])
def test_the_distance_is_predicted(kind: str, ratio: float) -> None:
    """From k(t) alone, within a factor of two of what is measured on random rows of equal norm."""
    knobs = Knobs(phi="relu", recurrent=0.4, kind=kind, ratio=ratio)
    found = answers.distance(knobs)
    assert 0.5 < found["predicted"] / found["measured"] < 2
    assert answers.distance(replace(knobs, bias=0.5)) == {}  # no network has the numbers of a DEQ with a bias


def test_piecewise_linear_formulas_have_closed_forms() -> None:
    typed, known = Knobs(phi="max(x, 0.3*x) - 1").model, nsd.activation("leaky_relu", a=1.0, b=0.3) - 1.0
    t = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(typed.on_sphere("ntk")(t), nsd.DEQ(known, 0.2, 0.8).on_sphere("ntk")(t), rtol=1e-12)
    bent = Knobs(phi="max(x, 0.3*x) + sin(x)/9").model
    assert bent.activation(0.5) == pytest.approx(0.5 + np.sin(0.5) / 9, rel=1e-12)


def test_one_layer(client: Any) -> None:
    found = ask(client, "exact", phi="erf", recurrent=0.2)
    expected = nsd.match(nsd.DEQ("erf", 0.2, 0.8), tau0=1.0, kind="ck", on="sphere")
    assert (found["exact"], found["distance"]) == (expected.exact, expected.distance)  # type: ignore[union-attr]


def test_what_cannot_be_is_said(client: Any) -> None:
    assert "no equilibrium" in ask(client, "kernel", phi="relu", recurrent=2.5)["obstacle"]
    assert "no equilibrium" in ask(client, "network", phi="relu", recurrent=2.5)["error"]
    assert "bias" in ask(client, "network", phi="relu", bias=0.5)["refused"]
    for knobs, message in (
        ({"phi": "tahn(x)"}, "did you mean 'tanh'?"),
        ({"phi": "__import__('os')"}, "is not known"),
        ({"recurrent": "0.2"}, "must be a real number"),
        ({"recurrent": None}, "must be a real number"),
        ({"kind": "nkt"}, "did you mean 'ntk'?"),
        ({"recurent": 0.2}, "did you mean 'recurrent'?"),
        ({"ratio": 1e9}, "between 0.05 and 20"),
        ({"tau0": 1e300}, "at most 100"),
        ({"tau0": 1e-100}, "tau0=1e-100 must be at least 0.001"),
        ({"input": 1e-300}, "input=1e-300 must be at least 1e-06, or 0"),
        ({"phi": ["relu"]}, "phi must be"),
        ({"kinks": 100}, "between 1 and 8"),
    ):
        assert message in ask(client, "kernel", **knobs)["error"]
    for content in (b"[]", b"{", b"[" * 60000, b"x" * 70000):
        assert client.post("/token/ask/kernel", content=content).status_code == 400
    assert client.post("/token/ask/nothing", json={}).status_code == 404
    assert client.get("/token/parts/server.py").status_code == 404


def test_an_answer_has_limits(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr("notsodeep.explore.server._PATIENCE", 0.01)
    monkeypatch.setitem(answers.TOPICS, "kernel", lambda knobs: {"late": ended.wait(30)})
    threading.Timer(1.0, ended.set).start()
    assert "takes more than 0.01 seconds" in ask(client, "kernel")["error"]
    monkeypatch.setattr("notsodeep.explore.server._PATIENCE", 30.0)
    monkeypatch.setitem(answers.TOPICS, "kernel", lambda knobs: {"value": 1.0 / (knobs.tau0 - 1.0)})
    assert "leave no digits" in ask(client, "kernel")["error"]


def test_an_answer_uses_one_thread_of_blas(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On small matrices a second thread costs more than it brings, and two answers would fight for the cores."""

    def threads(knobs: Knobs) -> dict[str, Any]:
        return {"threads": [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]}

    monkeypatch.setitem(answers.TOPICS, "kernel", threads)
    before = threads(Knobs())
    assert set(ask(client, "kernel")["threads"]) == {1}
    assert threads(Knobs()) == before


def test_only_its_own_page_is_answered(client: Any) -> None:
    assert client.get("/token/").status_code == 200
    for path in ("/wrong/", "/token2/parts/page.js", "/wrong/ask/kernel"):
        reply = client.post(path, json={}) if "ask" in path else client.get(path)
        assert reply.status_code == 403
        assert "token is wrong" in reply.text
    for headers in (
        {"host": "evil.example"},
        {"host": "127.0.0.1:9"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        for reply in (
            client.get("/token/", headers=headers),
            client.post("/token/ask/kernel", json={}, headers=headers),
        ):
            assert reply.status_code == 403, headers
    assert client.get("/").status_code == 404
    same = {"origin": HERE, "sec-fetch-site": "same-origin"}
    assert client.post("/token/ask/kernel", json={}, headers=same).status_code == 200


def test_data(client: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    rows = [f"{k},{','.join(map(str, x))},{'ab'[int(x[0] > 0)]}" for k, x in enumerate(X)]
    table = "\n".join(["id,p,q,r,s,species", *rows])
    told = client.post("/token/upload", params={"name": "../flowers.csv"}, content=table).json()
    assert "--label species" in told["error"]
    options = {"name": "flowers.csv", "label": "species", "ignore": ["id"]}
    found = client.post("/token/upload", params=options, content=table).json()
    assert (found["samples"], found["features"]) == (30, 4)
    seen = ask(client, "data", source="yours", normalize="unit")
    assert (seen["used"], len(seen["heat"]), seen["classes"][0]) == (30, 30, "a")
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0)
    assert seen["distance"] == pytest.approx(expected.distance_on(unit), rel=1e-6)
    assert seen["accuracy"]["implicit"] > 0.7
    assert "must end in" in client.post("/token/upload", params={"name": "x.py"}, content=b"").json()["error"]
    assert "is not here" in ask(client, "data", source="/etc/passwd")["error"]


def test_a_question_that_was_overtaken_is_not_computed() -> None:
    from notsodeep.explore.server import _Latest

    latest, done, first = _Latest(), [], threading.Event()

    def slow(name: str) -> dict[str, Any]:
        done.append(name)
        first.wait(10)
        return {"name": name}

    results: dict[str, Any] = {}
    threads = []
    for name in ("first", "second", "third"):
        threads.append(threading.Thread(target=lambda name=name: results.update({name: latest(lambda: slow(name))})))
        threads[-1].start()
        while latest._newest < len(threads):
            time.sleep(0.01)
    first.set()
    for thread in threads:
        thread.join(10)
    assert results == {"first": {"name": "first"}, "second": None, "third": {"name": "third"}}


def test_the_command_refuses_a_bad_port(run: Run) -> None:
    assert "port=70000 must lie between" in run("explore", "--port", "70000", "--no-browser").err


@pytest.fixture
def address() -> str:
    found: list[str] = []
    threading.Thread(target=serve, kwargs={"tell": found.append}, daemon=True).start()
    while not found:
        time.sleep(0.02)
    return found[0]


@in_a_browser
def test_the_page(address: str, tmp_path: Path) -> None:
    """Knobs move, curves follow, nothing is complained about, and a phone has room for all of it."""
    with open_browser(tmp_path) as browser:
        browser.get(address)

        def answered(topic: str) -> int:
            return int(browser.execute_script(f"return document.documentElement.dataset.{topic} || 0"))

        def curve() -> list[float]:
            return list(browser.execute_script("return document.getElementById('plot-k').data[0].y.slice(0, 5)"))

        def turn(name: str, value: object) -> None:
            change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
            browser.execute_script(change, browser.find_element("id", name), value)

        wait(lambda: answered("kernel") and answered("network"))
        before = curve()
        for name, value in (
            ("recurrent", "0.5"),
            ("input", "0.3"),
            ("bias", "0.4"),
            ("tau0", "2"),
            ("phi", "tanh"),
            ("kind", "ntk"),
        ):
            turn(name, value)
            wait(lambda before=before: curve() != before)
            before = curve()
        shown = browser.execute_script("return document.querySelector('label[for=recurrent] output').textContent")
        assert shown == "0.5"
        turn("phi", "")
        turn("formula", "max(x, 0.3*x)")  # closed form, recognised
        turn("bias", "0")
        expected = nsd.DEQ(nsd.activation("leaky_relu", a=1.0, b=0.3), 0.5, 0.3).on_sphere("ntk", norm=2.0)(-1.0)
        wait(lambda: abs(curve()[0] - expected) < 1e-6 * abs(expected))
        turn("formula", "tahn(x)")
        wait(lambda: "did you mean 'tanh'?" in browser.find_element("id", "error").text)
        turn("phi", "erf")
        turn("recurrent", "2")
        wait(lambda: "no equilibrium" in browser.find_element("id", "error").text)
        turn("recurrent", "0.2")
        wait(lambda: not browser.find_element("id", "error").is_displayed())
        for topic, tab in (("spectra", "spectra"), ("data", "data")):
            browser.find_element("id", f"tab-{tab}").click()
            wait(lambda topic=topic: answered(topic))
        assert "97" in browser.find_element("id", "scores").text
        browser.execute_script("document.getElementById('theme').click()")
        ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(20, 23, 27)"
        browser.set_window_size(390, 844)
        for tab in ("kernel", "spectra", "data"):
            browser.execute_script(f"document.getElementById('tab-{tab}').click()")
            fits = "return document.documentElement.scrollWidth <= innerWidth"
            wait(lambda fits=fits: browser.execute_script(fits))
        # the browser logs the two refused questions above, as any answer 400, and nothing else
        complaints = [one["message"] for one in browser.get_log("browser") if "400 (Bad Request)" not in one["message"]]
        assert complaints == []
        asked = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
        urls = {one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"}
        assert {url for url in urls if not url.startswith((address, "data:", "about:"))} == set()
        browser.get(address.rsplit("/", 2)[0] + "/wrong/")
        assert "the token is wrong" in browser.find_element("tag name", "body").text


@in_a_browser
def test_answers_come_in_any_order(address: str, tmp_path: Path) -> None:
    """The networks before the kernel: the curves of both are drawn all the same."""
    slow = """
        const usual = window.fetch;
        window.fetch = (path, options) => new Promise(done =>
          setTimeout(() => done(usual(path, options)), String(path).endsWith("kernel") ? 3000 : 0));
    """
    with open_browser(tmp_path) as browser:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": slow})
        browser.get(address)
        wait(lambda: browser.execute_script("return document.documentElement.dataset.network"))
        assert not browser.execute_script("return document.documentElement.dataset.kernel")
        wait(lambda: browser.execute_script("return document.documentElement.dataset.kernel"))
        names = "return document.getElementById(arguments[0]).data.map(one => one.name)"
        assert browser.execute_script(names, "plot-k") == ["DEQ", "DEQ, centred", "explicit"]
        assert browser.execute_script(names, "plot-phi") == ["φ", "layer 1", "layer 2"]
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
