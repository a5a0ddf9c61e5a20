"""The Gaussian mixture of the theory's usual examples, by name."""

from __future__ import annotations

import math

import numpy as np

from notsodeep.checks import InputError, count, nearest
from notsodeep.data.dataset import Data
from notsodeep.highdim import Mixture

__all__ = ["draw_mixture"]

_DEFAULTS = {"n": 800, "p": 1000, "classes": 2, "seed": 0, "test": 0}


def draw_mixture(settings: str) -> Data:
    """√p x ~ N(8 e_{8a}, (1 + 8a/√p) I) in class a = 0, 1, …, all classes equally likely.

    The classes differ in mean and in covariance, as in the experiments of [Ling24].

    Parameters
    ----------
    settings : str
        ``"n=800,p=1000,classes=2,seed=0,test=0"`` or any part of it; ``test`` more samples make the test part.
    """
    values = dict(_DEFAULTS)
    for setting in filter(None, settings.split(",")):
        key, _, text = (part.strip() for part in setting.partition("="))
        if key not in values:
            known = ", ".join(values)
            raise InputError(f"gaussian-mixture has no setting {key!r}{nearest(key, values)} (choose from {known})")
        if not text.isdecimal():
            raise InputError(f"gaussian-mixture: {setting.strip()!r} must look like {key}={values[key]}")
        values[key] = int(text)
    n, p, classes, seed, test = values.values()
    count(p, "p", minimum=8 * count(classes, "classes") - 7)  # room for the means
    steps = 8 * np.arange(classes)
    means = np.zeros((classes, p))
    means[np.arange(classes), steps] = 8.0
    mixture = Mixture(means, [1 + step / math.sqrt(p) for step in steps], np.full(classes, 1 / classes))
    rng = np.random.default_rng(seed)
    X, labels = mixture.sample(n, rng)
    X_test, labels_test = mixture.sample(test, rng) if test else (None, None)
    written = ",".join(f"{k}={v}" for k, v in values.items() if k in ("n", "p", "seed") or v != _DEFAULTS[k])
    return Data("gaussian-mixture", X, labels, X_test, labels_test, source=f"drawn: gaussian-mixture:{written}")
