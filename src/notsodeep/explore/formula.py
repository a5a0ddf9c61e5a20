"""Activations typed as formulas of x, in a small grammar: no formula is ever executed as code.

    formula  =  number | x | pi | e | -formula | formula (+ - * / ^) formula | name(formula, ...)

The text is parsed into Python's syntax tree, and every node outside this grammar is refused.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit

from notsodeep.checks import InputError, nearest

__all__ = ["FUNCTIONS", "TypedFormula"]

Array: TypeAlias = NDArray[Any]

_LONGEST, _DEEPEST, _POWER = 200, 20, 8
_CONSTANTS = {"pi": math.pi, "e": math.e}
_Dual: TypeAlias = tuple[Any, Any]  # a value and its derivative in x


class _Function(NamedTuple):
    value: Callable[..., Any]
    slopes: tuple[Callable[..., Any], ...]  # in each argument
    code: str


def _step(u: Any) -> Any:
    return np.where(u > 0, 1.0, 0.0)


FUNCTIONS = {
    "exp": _Function(np.exp, (np.exp,), "np.exp"),
    "log": _Function(np.log, (lambda u: 1 / u,), "np.log"),
    "sqrt": _Function(np.sqrt, (lambda u: 0.5 / np.sqrt(u),), "np.sqrt"),
    "abs": _Function(np.abs, (np.sign,), "np.abs"),
    "sin": _Function(np.sin, (np.cos,), "np.sin"),
    "cos": _Function(np.cos, (lambda u: -np.sin(u),), "np.cos"),
    "tanh": _Function(np.tanh, (lambda u: 1 - np.tanh(u) ** 2,), "np.tanh"),
    "arctan": _Function(np.arctan, (lambda u: 1 / (1 + u**2),), "np.arctan"),
    "erf": _Function(erf, (lambda u: 2 / math.sqrt(math.pi) * np.exp(-(u**2)),), "scipy.special.erf"),
    "sigmoid": _Function(expit, (lambda u: expit(u) * expit(-u),), "scipy.special.expit"),
    "relu": _Function(lambda u: np.maximum(u, 0.0), (_step,), "(lambda u: np.maximum(u, 0.0))"),
    "max": _Function(np.maximum, (lambda u, v: _step(u - v), lambda u, v: 1 - _step(u - v)), "np.maximum"),
    "min": _Function(np.minimum, (lambda u, v: 1 - _step(u - v), lambda u, v: _step(u - v)), "np.minimum"),
}
_BINARY: dict[type, tuple[Callable[[_Dual, _Dual], _Dual], str]] = {
    ast.Add: (lambda u, v: (u[0] + v[0], u[1] + v[1]), "+"),
    ast.Sub: (lambda u, v: (u[0] - v[0], u[1] - v[1]), "-"),
    ast.Mult: (lambda u, v: (u[0] * v[0], u[1] * v[0] + u[0] * v[1]), "*"),
    ast.Div: (lambda u, v: (u[0] / v[0], (u[1] - u[0] / v[0] * v[1]) / v[0]), "/"),
    ast.Pow: (lambda u, v: (u[0] ** v[0], v[0] * u[0] ** max(v[0] - 1, 0) * u[1]), "**"),
}


class TypedFormula:
    """A function of x from its text.

    Examples
    --------
    >>> from notsodeep.explore.formula import TypedFormula
    >>> f = TypedFormula("max(x, 0.1*x) + x^2/4")
    >>> f([-2.0, 2.0])
    array([0.8, 3. ])
    >>> f.python
    'np.maximum(x, (0.1 * x)) + ((x ** 2) / 4)'
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise InputError("formula is empty; type a function of x, such as tanh(x) or max(x, 0.1*x)")
        if len(text) > _LONGEST:
            raise InputError(f"formula has {len(text)} characters; use at most {_LONGEST}")
        self.text = text.strip()
        try:
            tree = ast.parse(self.text.replace("^", "**"), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
            raise InputError(f"formula={text!r} cannot be read: {reason}") from None
        self._dual, self.python = _built(tree, 0)
        self.python = self.python.removeprefix("(").removesuffix(")") if _enclosed(self.python) else self.python
        if not any(isinstance(node, ast.Name) and node.id == "x" for node in ast.walk(tree)):
            raise InputError(f"formula={text!r} does not depend on x")

    def __call__(self, x: Any) -> Array:
        return self._part(x, 0)

    def derivative(self, x: Any) -> Array:
        """The exact derivative, by the chain rule; at a kink, that of one side."""
        return self._part(x, 1)

    def _part(self, x: Any, which: int) -> Array:
        points = np.asarray(x, dtype=np.float64)
        with np.errstate(all="ignore"):
            return np.broadcast_to(self._dual(points)[which], points.shape).astype(np.float64)

    def __repr__(self) -> str:
        return self.text


def _built(node: ast.AST, depth: int) -> tuple[Callable[[Array], _Dual], str]:
    """Value and derivative of a node as functions of x, from those of its parts, and its Python code."""
    if depth > _DEEPEST:
        raise InputError(f"formula is nested more than {_DEEPEST} levels deep; make it simpler")
    match node:
        case ast.Constant(value=bool() | complex() | str() | bytes() | None):
            raise InputError(f"formula: {node.value!r} is not a number")
        case ast.Constant(value=int() | float() as value):
            if not value <= 1e12:
                raise InputError(f"formula: {str(value)[:20]} is too large; use at most 1e12")
            return (lambda x: (value, 0.0)), repr(value)
        case ast.Name(id="x"):
            return (lambda x: (x, 1.0)), "x"
        case ast.Name(id=name) if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return (lambda x: (constant, 0.0)), f"np.{name}"
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            inner, code = _built(operand, depth + 1)
            if isinstance(node.op, ast.UAdd):
                return inner, code
            return (lambda x: tuple(-part for part in inner(x))), f"(-{code})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            (first, code1), (second, code2) = _built(left, depth + 1), _built(right, depth + 1)
            apply, sign = _BINARY[type(op)]
            if isinstance(op, ast.Pow) and not (
                isinstance(right, ast.Constant) and isinstance(right.value, int) and 0 <= right.value <= _POWER
            ):
                raise InputError(f"formula: an exponent must be a whole number from 0 to {_POWER}; use exp or sqrt")
            return (lambda x: apply(first(x), second(x))), f"({code1} {sign} {code2})"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in FUNCTIONS:
                raise InputError(
                    f"formula: {name!r} is not known{nearest(name, FUNCTIONS)} (functions: {', '.join(FUNCTIONS)})"
                )
            function = FUNCTIONS[name]
            wanted = len(function.slopes)
            if len(arguments) != wanted:
                raise InputError(f"formula: {name} takes {wanted} argument{'s' * (wanted > 1)}, not {len(arguments)}")
            parts = [_built(one, depth + 1) for one in arguments]

            def chain(x: Array) -> _Dual:
                inner = [part(x) for part, _ in parts]
                values = [value for value, _ in inner]
                slopes = (slope(*values) * own for slope, (_, own) in zip(function.slopes, inner, strict=True))
                return function.value(*values), sum(slopes)

            return chain, f"{function.code}({', '.join(code for _, code in parts)})"
        case ast.Name(id=name):
            raise InputError(f"formula: {name[:40]!r} is not known{nearest(name, ('x', *_CONSTANTS, *FUNCTIONS))}")
        case _:
            known = ", ".join(FUNCTIONS)
            raise InputError(f"formula: {ast.unparse(node)[:40]!r} is not allowed; use + - * / ^ and {known}")


def _enclosed(code: str) -> bool:
    """Whether one pair of brackets encloses all of the code."""
    depth = 0
    for place, one in enumerate(code):
        depth += (one == "(") - (one == ")")
        if depth == 0:
            return place == len(code) - 1 and code.startswith("(")
    return False
