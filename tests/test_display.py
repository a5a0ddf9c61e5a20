"""Notebook displays: well-formed, small, escaped, without colours that a dark page would swallow."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import data, display
from notsodeep.kernels import MatrixBlocks
from notsodeep.solvers import solve

TAGS = {"div", "b", "i", "sub", "sup", "table", "tr", "td", "th", "svg", "path", "polyline"}


class Checked(HTMLParser):
    """Every tag is known and closed in order; the visible text is collected."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert not any(name.startswith("on") for name, _ in attributes)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        self.text.append(text)


def seen(thing: Any) -> str:
    html = thing._repr_html_() if hasattr(thing, "_repr_html_") else thing
    assert len(html) < 25_000
    assert not re.search(r"background:\s*#|[^-]color:\s*(black|white|#000|#fff)", html)
    return "".join(Checked(html).text)


DEQ = nsd.DEQ("relu", recurrent=0.2, input=0.8)
MIXTURE = nsd.Mixture(np.eye(2, 60) * 4, [1.0, 1.1], [0.5, 0.5])


def solution() -> Any:
    X = np.random.default_rng(0).standard_normal((20, 5))
    return solve(MatrixBlocks(DEQ.kernel(X)), X[:, 0], ridge=0.1)


OBJECTS = {
    "DEQ": (lambda: DEQ, ("σa²", "0.2", "relu(x)", "✓")),
    "not well-posed": (lambda: nsd.DEQ("relu", recurrent=0.7, input=0.8), ("✗", "may have no unique equilibrium")),
    "verdict": (lambda: DEQ.well_posed, ("finite width", "+0.2")),
    "condition": (lambda: DEQ.well_posed.finite_width, ("0.8", "✓")),
    "DeepDEQ": (lambda: nsd.DeepDEQ([nsd.Layer("tanh", 0.3, 0.4), nsd.Layer("relu", 0.1, 0.2)]), ("layer 2", "tanh")),
    "Explicit": (lambda: nsd.Explicit(["relu", "tanh"], bias=[0, 0.5]), ("2 hidden layers", "layer 2", "bias 0.5")),
    "ConvDEQ": (lambda: nsd.ConvDEQ("relu", recurrent=0.5, input=0.5), ("3×3, zero padding",)),
    "match": (lambda: nsd.match(DEQ, tau0=1.0), ("exact in all four numbers", "c1", "target", "0.210526316")),
    "missed": (lambda: nsd.match(DEQ, tau0=1.0, depth=1), ("✗", "misses")),
    "one layer": (lambda: nsd.match(nsd.DEQ("erf", 0.2, 0.8), tau0=1.0, on="sphere"), ("exact on the sphere", "sup")),
    "coefficients": (
        lambda: nsd.coefficients(DEQ, tau0=1.0),
        ("alpha1, α1", "tau, τ*", "gamma2, γ²", "DEQCoefficients"),
    ),
    "four numbers": (lambda: nsd.coefficients(DEQ, tau0=1.0).weights("ck"), ("c1", "class means")),
    "spectrum": (lambda: nsd.spectrum(DEQ, MIXTURE, n=120), ("bulk", "outliers")),
    "mixture": (lambda: MIXTURE, ("proportion", "p = 60")),
    "statistics": (lambda: MIXTURE.statistics(*MIXTURE.sample(40)), ("features p60", "samples n40")),
    "forecast": (lambda: nsd.forecast(DEQ, MIXTURE, n=[100, 200], ridge=0.1), ("100", "200", "accuracy")),
    "data": (lambda: data.load("digits").split(0.2), ("1437", "10 classes", "8 × 8 × 1")),
    "solution": (solution, ("✓ converged", "cholesky")),
    "info": (lambda: DEQ.kernel(np.eye(3), return_info=True)[1], ("polynomial", "error")),
}


@pytest.mark.filterwarnings("ignore::notsodeep.checks.AssumptionWarning")
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_show_what_matters(name: str) -> None:
    make, expected = OBJECTS[name]
    text = seen(make())
    for part in expected:
        assert part in text


def test_networks_show_what_matters() -> None:
    torch = pytest.importorskip("torch")
    from notsodeep import nn

    net = nn.DEQNet(DEQ, in_features=8, width=64, out_features=1)
    net(torch.randn(4, 8) / 3).sum().backward()
    assert "backward" in seen(net.last_solve)
    assert "✗ an assumption fails" in seen(nn.match_module(net, torch.randn(50, 8) / 3, on="mixture"))
    net = nn.ling23_network(width=50, in_features=8, recurrent=0.001, readout_norm=0.02)
    X = torch.eye(2, 8, dtype=torch.float64) * 8**0.5
    assert "Condition 1" in seen(nn.certificate(net, X, net(X)[:, 0].detach() + 0.01))


def test_text_of_others_is_only_text() -> None:
    hostile = "</td><script>alert(1)</script>\u202e"
    shown = data.Data(hostile, np.zeros((2, 3)), source=hostile)._repr_html_()
    assert "<script" not in shown
    assert "\u202e" not in shown
    assert hostile.rstrip("\u202e") in seen(shown)


def test_long_tables_end_with_what_is_left_out() -> None:
    text = seen(display.card("Many", [(k, k) for k in range(100)]))
    assert text.endswith("… 76 more")


def test_an_index_is_text() -> None:
    assert "<img" not in display.typeset("x_{<img src=x onerror=alert(1)>}")
