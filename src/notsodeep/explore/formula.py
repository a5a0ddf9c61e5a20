"""Activations typed as formulas of x, in a small grammar: no formula is ever executed as code.

    formula  =  number | x | pi | e | -formula | formula (+ - * / ^) formula | name(formula, ...)

The text is parsed into Python's syntax tree, and every node outside this grammar is refused.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit

from notsodeep.checks import InputError, nearest

__all__ = ["FUNCTIONS", "Formula"]

Array: TypeAlias = NDArray[Any]

_LONGEST, _DEEPEST, _POWER = 200, 20, 8
_CONSTANTS = {"pi": math.pi, "e": math.e}
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, str]] = {  # function, arguments, Python code
    "exp": (np.exp, 1, "np.exp"),
    "log": (np.log, 1, "np.log"),
    "sqrt": (np.sqrt, 1, "np.sqrt"),
    "abs": (np.abs, 1, "np.abs"),
    "sin": (np.sin, 1, "np.sin"),
    "cos": (np.cos, 1, "np.cos"),
    "tanh": (np.tanh, 1, "np.tanh"),
    "arctan": (np.arctan, 1, "np.arctan"),
    "erf": (erf, 1, "scipy.special.erf"),
    "sigmoid": (expit, 1, "scipy.special.expit"),
    "relu": (lambda x: np.maximum(x, 0.0), 1, "(lambda u: np.maximum(u, 0.0))"),
    "max": (np.maximum, 2, "np.maximum"),
    "min": (np.minimum, 2, "np.minimum"),
}
_BINARY: dict[type, tuple[Callable[[Any, Any], Any], str]] = {
    ast.Add: (np.add, "+"),
    ast.Sub: (np.subtract, "-"),
    ast.Mult: (np.multiply, "*"),
    ast.Div: (np.divide, "/"),
    ast.Pow: (np.power, "**"),
}


class Formula:
    """A function of x from its text.

    Examples
    --------
    >>> from notsodeep.explore.formula import Formula
    >>> f = Formula("max(x, 0.1*x) + x^2/4")
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
        self._value, self.python = _built(tree, 0)
        self.python = self.python.removeprefix("(").removesuffix(")") if _enclosed(self.python) else self.python
        if not any(isinstance(node, ast.Name) and node.id == "x" for node in ast.walk(tree)):
            raise InputError(f"formula={text!r} does not depend on x")

    def __call__(self, x: Any) -> Array:
        points = np.asarray(x, dtype=np.float64)
        with np.errstate(all="ignore"):
            return np.broadcast_to(self._value(points), points.shape).astype(np.float64)

    def __repr__(self) -> str:
        return self.text


def _built(node: ast.AST, depth: int) -> tuple[Callable[[Array], Any], str]:
    """The function of a node, from those of its parts, and its Python code."""
    if depth > _DEEPEST:
        raise InputError(f"formula is nested more than {_DEEPEST} levels deep; make it simpler")
    match node:
        case ast.Constant(value=bool() | complex() | str() | bytes() | None):
            raise InputError(f"formula: {node.value!r} is not a number")
        case ast.Constant(value=int() | float() as value):
            if not math.isfinite(number := float(min(value, 1e300) if value > 0 else value)) or abs(number) > 1e12:
                raise InputError(f"formula: {str(value)[:20]} is too large; use at most 1e12")
            return (lambda x: number), repr(value)
        case ast.Name(id="x"):
            return (lambda x: x), "x"
        case ast.Name(id=name) if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return (lambda x: constant), f"np.{name}"
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            inner, code = _built(operand, depth + 1)
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            return (lambda x: sign * inner(x)), f"(-{code})" if sign < 0 else code
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            (first, code1), (second, code2) = _built(left, depth + 1), _built(right, depth + 1)
            apply, sign_text = _BINARY[type(op)]
            if isinstance(op, ast.Pow) and not (
                isinstance(right, ast.Constant) and isinstance(right.value, int) and 0 <= right.value <= _POWER
            ):
                raise InputError(f"formula: an exponent must be a whole number from 0 to {_POWER}; use exp or sqrt")
            return (lambda x: apply(first(x), second(x))), f"({code1} {sign_text} {code2})"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in FUNCTIONS:
                raise InputError(
                    f"formula: {name!r} is not known{nearest(name, FUNCTIONS)} (functions: {', '.join(FUNCTIONS)})"
                )
            function, wanted, code = FUNCTIONS[name]
            if len(arguments) != wanted:
                raise InputError(f"formula: {name} takes {wanted} argument{'s' * (wanted > 1)}, not {len(arguments)}")
            parts = [_built(one, depth + 1) for one in arguments]
            inside = ", ".join(part[1] for part in parts)
            return (lambda x: function(*(part[0](x) for part in parts))), f"{code}({inside})"
        case ast.Name(id=name):
            raise InputError(f"formula: {name[:40]!r} is not known{nearest(name, ('x', *_CONSTANTS, *FUNCTIONS))}")
        case _:
            raise InputError(
                f"formula: {ast.unparse(node)[:40]!r} is not allowed; use + - * / ^ and {', '.join(FUNCTIONS)}"
            )


def _enclosed(code: str) -> bool:
    """Whether one pair of brackets encloses all of the code."""
    depth = 0
    for place, one in enumerate(code):
        depth += (one == "(") - (one == ")")
        if depth == 0:
            return place == len(code) - 1 and code.startswith("(")
    return False
