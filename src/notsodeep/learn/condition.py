"""Extreme eigenvalues from a few products: the largest Ritz value of a block Krylov space."""

from __future__ import annotations

import numpy as np

from notsodeep.learn.products import Operator

__all__ = ["largest_eigenvalue"]


def largest_eigenvalue(operator: Operator, n: int, *, steps: int = 4, width: int = 8, seed: int = 0) -> float:
    """Largest eigenvalue of a symmetric positive operator on n coordinates, from below, by `steps` block products.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.linspace(1, 2, 1000) ** 8
    >>> bool(200 < largest_eigenvalue(lambda V: values[:, None] * V, 1000) <= 256)
    True
    """
    rng = np.random.default_rng(seed)
    block = rng.standard_normal((n, min(width, n)))
    block[:, 0] = 1.0  # close to the dominant direction of most kernels
    basis, images = np.zeros((n, 0)), np.zeros((n, 0))
    for _ in range(steps):
        for _ in range(2):  # once more for orthogonality to rounding
            block = block - basis @ (basis.T @ block)
            block = np.linalg.qr(block)[0]
        block = block[:, : n - basis.shape[1]]
        if not block.shape[1]:
            break
        image = operator(block)
        basis, images = np.hstack([basis, block]), np.hstack([images, image])
        block = image
    projected = basis.T @ images
    return float(np.linalg.eigvalsh((projected + projected.T) / 2)[-1])
