"""BLAS and LAPACK on parts of one matrix, in place: no copies, and the interpreter's lock (GIL) is released.

SciPy's Python wrappers copy any part that is not contiguous; these calls pass the leading dimension instead.
All arrays are row-major with unit stride along the rows, all of one dtype (float32 or float64).
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, TypeAlias

import numpy as np
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

__all__ = ["cholesky", "solve_right", "solve_transposed", "subtract_product", "subtract_square"]

Array: TypeAlias = NDArray[Any]


@functools.cache
def _routine(name: str, dtype: np.dtype[Any], arguments: int) -> Any:
    library = "blas" if name in ("gemm", "syrk", "trsm") else "lapack"
    letter = "s" if dtype == np.float32 else "d"
    address = get_cython_function_address(f"scipy.linalg.cython_{library}", letter + name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _call(name: str, dtype: np.dtype[Any], *arguments: Any) -> None:
    """Pointers to the arguments: Fortran takes characters, integers, numbers and matrices by address."""
    number = ctypes.c_float if dtype == np.float32 else ctypes.c_double
    kept: list[Any] = []
    for argument in arguments:
        if isinstance(argument, str):
            kept.append(ctypes.c_char(argument.encode()))
        elif isinstance(argument, int):
            kept.append(ctypes.c_int(argument))
        elif isinstance(argument, float):
            kept.append(number(argument))
        else:
            kept.append(argument)
    addresses = [a.ctypes.data if isinstance(a, np.ndarray) else ctypes.addressof(a) for a in kept]
    _routine(name, dtype, len(arguments))(*addresses)


def _leading(A: Array) -> int:
    """The distance between rows, in elements."""
    if A.strides[1] != A.itemsize and A.shape[1] > 1:
        raise ValueError("rows must be contiguous")
    return max(A.strides[0] // A.itemsize, A.shape[1], 1)


def subtract_product(C: Array, A: Array, B: Array) -> None:
    """C ← C − A Bᵀ, with C (m, n), A (m, k), B (n, k)."""
    m, n, k = len(A), len(B), A.shape[1]
    if not m or not n or not k:
        return
    _call("gemm", C.dtype, "T", "N", n, m, k, -1.0, B, _leading(B), A, _leading(A), 1.0, C, _leading(C))


def subtract_square(C: Array, A: Array) -> None:
    """C ← C − A Aᵀ in the lower triangle, with C (m, m), A (m, k)."""
    if A.size:
        m, k = A.shape
        _call("syrk", C.dtype, "U", "T", m, k, -1.0, A, _leading(A), 1.0, C, _leading(C))


def solve_right(L: Array, A: Array) -> None:
    """A ← A L⁻ᵀ, with L (k, k) lower triangular and A (m, k)."""
    if len(A):
        _call("trsm", A.dtype, "L", "U", "T", "N", len(L), len(A), 1.0, L, _leading(L), A, _leading(A))


def solve_transposed(L: Array, B: Array, *, back: bool) -> None:
    """B ← L⁻¹ B, or L⁻ᵀ B (back substitution), with L (k, k) lower triangular and B (k, m)."""
    if B.size:
        transposed = "T" if back else "N"
        _call("trsm", B.dtype, "R", "U", transposed, "N", B.shape[1], len(L), 1.0, L, _leading(L), B, _leading(B))


def cholesky(A: Array) -> int:
    """A ← L in the lower triangle, A = L Lᵀ; return 0, or the 1-based number of the first bad pivot."""
    info = ctypes.c_int(0)
    _call("potrf", A.dtype, "U", len(A), A, _leading(A), info)
    return info.value
