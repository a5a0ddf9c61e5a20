"""Random mixtures with exact kernel machines trained on them: what a forecast is measured against."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

import notsodeep as nsd

Array = Any


class Scores(NamedTuple):
    """Scores of new samples with their classes, and the training residuals with theirs."""

    test: Array
    labels: Array
    residuals: Array
    train_labels: Array

    def accuracy(self, targets: Array) -> Array:
        """Of each class: the nearest target must be the own one."""
        distance = ((self.test[:, None, :] - targets) ** 2).sum(axis=2)
        right = distance.argmin(axis=1) == self.labels
        return np.array([right[self.labels == a].mean() for a in range(len(targets))])

    def means(self) -> Array:
        return np.stack([self.test[self.labels == a].mean(axis=0) for a in range(self.labels.max() + 1)])

    def covariances(self) -> Array:
        parts = (self.test[self.labels == a] for a in range(self.labels.max() + 1))
        return np.stack([np.atleast_2d(np.cov(part.T)) for part in parts])


def train(
    model: Any, mixture: nsd.Mixture, n: int, ridge: float, kind: str, targets: Array, seed: int, tests: int = 4000
) -> Scores:
    """Kernel ridge regression with the exact kernel of the centred model on one draw of the mixture."""
    exact = model.centered(mixture.statistics().tau0)
    X, labels = mixture.sample(n, seed=seed)
    new, new_labels = mixture.sample(tests, seed=100_000 + seed)
    system = exact.kernel(X, kind=kind)
    system[np.diag_indices(n)] += ridge
    alpha = cho_solve(cho_factor(system), targets[labels])
    return Scores(exact.kernel(new, X, kind=kind) @ alpha, new_labels, ridge * alpha, labels)


def random_mixture(seed: int, p: int) -> tuple[nsd.Mixture, dict[str, Any]]:
    """A mixture of 2 to 5 classes with a random network and a random ridge; the same family for every p.

    Classes differ in means (‖μ‖ = 1 … 3.5), in the trace of the covariance (by O(√p)) and in its shape; covariances are
    multiples of the identity, diagonal, or full without common eigenvectors.
    """
    family, own = np.random.default_rng(seed), np.random.default_rng([seed, p])
    k = int(family.integers(2, 6))
    settings = {
        "n": round(p * math.exp(family.uniform(math.log(0.3), math.log(4)))),
        "ridge": 10 ** family.uniform(-4, 0),
        "activation": ("relu", "tanh", "swish", "gelu")[family.integers(4)],
        "kind": ("ck", "ntk")[family.integers(2)],
        "shape": ("scalar", "diagonal", "full")[family.integers(3)],
    }
    separation, strength = family.uniform(1.0, 3.5), family.uniform(0, 0.6)
    proportions, traces = family.dirichlet(np.full(k, 8.0)), 1.5 * family.standard_normal(k)
    means = separation * own.standard_normal((k, p)) / math.sqrt(p)
    spreads: list[Any] = []
    for trace in traces:
        scale = 1 + trace / math.sqrt(p)
        if settings["shape"] == "scalar":
            spreads.append(scale)
        elif settings["shape"] == "diagonal":
            spreads.append(scale * np.exp(strength * own.standard_normal(p) - strength**2 / 2))
        else:
            factor = own.standard_normal((p, 2 * p)) / math.sqrt(2 * p)
            spreads.append(scale * ((1 - strength) * np.eye(p) + strength * factor @ factor.T))
    return nsd.Mixture(means, spreads, proportions), settings
