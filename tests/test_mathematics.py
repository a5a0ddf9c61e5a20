"""Formulas in plain text become TeX, and sentences stay sentences."""

from __future__ import annotations

import doctest

import pytest

pytest.importorskip("markdown")
from docs import mathematics
from docs.mathematics import PlainMathematics, inline, tex


def test_its_examples() -> None:
    assert doctest.testmod(mathematics).failed == 0


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("σ_a² G(Λ)", "σ_{a}^{2} G(Λ)"),
        ("√(1 − t)", r"\sqrt{1 - t}"),
        ("√(λ/γ(x + 1))", r"\sqrt{λ/γ(x + 1)}"),
        ("Σ_k b_k tᵏ", r"\sum _{k} b_{k} t^{k}"),
        ("Σ⁰ = x·y", r"Σ^{0} = x\cdot y"),
        ("τ*²", "τ^{*2}"),
        ("x⁽ˡ⁻¹⁾", "x^{(l-1)}"),
        ("|x|log|y|", r"\lvert x\rvert \log \lvert y\rvert"),
        ("f₋ᵢ", "f_{-i}"),
        ("τ0.", "τ_{0}."),
        ("x1.5", "x1.5"),
        ("φ(cx) dt/nk", "φ(cx) dt/nk"),
        ("n = 20 000", r"n = 20\,000"),
        ("λ_max(K)", r"λ_{\mathrm{max}}(K)"),
        ("z_0 at the end", r"z_{0} ~\text{at the end}"),
    ],
)
def test_tex(plain: str, expected: str) -> None:
    assert tex(plain) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "This is a sentence, e.g. one with an I/O error, 1e-12, 1e+05 and 3 words.",
        "Python 3.11 or newer, make and a C compiler; it doesn't matter, and/or CRC-32C with SHA-256.",
        "See [Ling24, Eq. (7)] by J. B. Simon and `code with σ_a²` and [a link](σ.md).",
        "At most 1000 MB, 1.04× and 95 % of float32 on x86-64, well-posed, leave-one-out.",
        "By default it is In order. My Data: Is it so? By what.",
    ],
)
def test_sentences_stay(sentence: str) -> None:
    assert inline(sentence) == sentence


@pytest.mark.parametrize(
    ("sentence", "formula"),
    [
        ("the map z* = φ(σ_a A z* + σ_b B x)/√m has", r"\(z^{*} = φ(σ_{a} A z^{*} + σ_{b} B x)/\sqrt{m}\)"),
        ("with n samples", r"\(n\)"),
        ("(τ0 = 1)", r"(\(τ_{0} = 1\))"),
        ("| c1 | largest ‖Y − (K + ridge W⁻¹)α‖/‖Y‖ |", r"| \(c_{1}\) |"),
        ("**φ odd** or *ξ*", r"**\(φ\) odd** or *\(ξ\)*"),
        ("the cell is h = φ(Wh + Ux + b), plain", r"\(h = φ(Wh + Ux + b),\)"),
        ("a = c = 1 and b", r"\(a = c = 1\)"),
    ],
)
def test_formulas_are_found(sentence: str, formula: str) -> None:
    assert formula in inline(sentence)


def test_blocks() -> None:
    text = "As\n\n    Λ = G(Λ)/(1 − Λ),\n    G = E[φ]     the mean\n\nsays τ.\n"
    text += "\n    pip install x\n\n- item\n\n    more τ\n"
    shown = "\n".join(PlainMathematics().run(text.split("\n")))
    assert (
        r"$$\begin{aligned}Λ &= \frac{G(Λ)}{1 - Λ}, \\ G &= \mathbb{E}[φ] \qquad \text{the mean}\end{aligned}$$"
        in shown
    )
    assert "\n    pip install x\n" in shown
    code = ["", '    render("τ", [x]) → y', ""]
    assert PlainMathematics().run(code) == code
    assert PlainMathematics().run(["See :func:`match` and :class:`~a.b`."]) == ["See `match` and `a.b`."]
    assert "\n    more \\(τ\\)\n" in shown
