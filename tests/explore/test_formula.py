"""Formulas typed by a user: what they mean, and everything that they must not be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf, expit

import notsodeep as nsd
from notsodeep.explore.formula import FUNCTIONS, TypedFormula

X = np.linspace(-3, 3, 61)
MEANINGS = {
    "tanh(x) + 0.1*x": np.tanh(X) + 0.1 * X,
    "max(x, 0.1*x)": np.maximum(X, 0.1 * X),
    "-x^2/(1 + x^2) + pi": np.pi - X**2 / (1 + X**2),
    "min(max(x, -1), 1)": np.clip(X, -1, 1),
    "exp(-x**2) - 2**3 + e": np.exp(-(X**2)) - 8 + np.e,
    "x*sigmoid(x) - erf(+x)": X * expit(X) - erf(X),
    "relu(x) + abs(sin(x))*cos(x) + arctan(x)": np.maximum(X, 0) + np.abs(np.sin(X)) * np.cos(X) + np.arctan(X),
    "sqrt(1 + x^2) + log(1 + exp(x))": np.sqrt(1 + X**2) + np.log1p(np.exp(X)),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_meaning(text: str) -> None:
    formula = TypedFormula(text)
    np.testing.assert_allclose(formula(X), MEANINGS[text], rtol=1e-13, atol=1e-14)
    step = 1e-6
    slopes = (formula(X + 0.01 + step) - formula(X + 0.01 - step)) / (2 * step)  # away from the kinks
    np.testing.assert_allclose(formula.derivative(X + 0.01), slopes, rtol=1e-7, atol=1e-8)
    import scipy.special

    code = eval(f"lambda x: {formula.python}", {"np": np, "scipy": scipy, "__builtins__": {}})  # what the page copies
    np.testing.assert_allclose(code(X), MEANINGS[text], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("3", "does not depend on x"),
        ("x +", "cannot be read"),
        ("__import__('os').system('id')", "is not allowed"),
        ("x.__class__", "is not allowed"),
        ("(lambda: x)()", "is not allowed"),
        ("[x for x in x]", "is not allowed"),
        ("exp(x)(x)", "is not allowed"),
        ("open(x)", "'open' is not known"),
        ("tahn(x)", "did you mean 'tanh'?"),
        ("y + x", "'y' is not known"),
        ("max(x)", "max takes 2 arguments, not 1"),
        ("exp(x, out=x)", "is not allowed"),
        ("exp(*x)", "is not allowed"),
        ("'x' * x", "is not a number"),
        ("x * True", "is not a number"),
        ("x * 1j", "is not a number"),
        ("x * 1e13", "is too large"),
        ("x * " + "9" * 150, "is too large"),
        ("x ** x", "an exponent must be a whole number"),
        ("x ** 99", "an exponent must be a whole number"),
        ("x if x else x", "is not allowed"),
        ("x < 1", "is not allowed"),
        ("x := 1", "cannot be read"),
        ("x" + "+x" * 120, "use at most 200"),
        ("-" * 100 + "x", "levels deep"),
        ("(" * 99 + "x" + ")" * 99, ""),
        ("abs(" * 30 + "x" + ")" * 30, "levels deep"),
        ("x\0", "cannot be read"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    if not message:  # brackets alone do no harm
        TypedFormula(text)
        return
    with pytest.raises(nsd.InputError, match=message.replace("?", r"\?")) as raised:
        TypedFormula(text)
    assert len(str(raised.value)) < 600


@given(st.text(alphabet="x01.+-*/^(), eprmaxsintahlogqu_[]{}'\"\\\n:=", max_size=60))
def test_no_text_does_anything_else(text: str) -> None:
    try:
        values = TypedFormula(text)(X)
    except nsd.InputError:
        return
    assert values.shape == X.shape


def test_a_formula_is_an_activation() -> None:
    formula = TypedFormula("tanh(x)")
    typed = nsd.DEQ(nsd.activation(formula, derivative=formula.derivative), 0.2, 0.8)
    known = nsd.DEQ("tanh", 0.2, 0.8)
    t = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(typed.on_sphere("ntk")(t), known.on_sphere("ntk")(t), rtol=1e-8)
    assert set(FUNCTIONS) >= {"exp", "tanh", "max", "erf"}
