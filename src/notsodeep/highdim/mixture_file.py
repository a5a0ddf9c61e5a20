"""Mixtures in JSON files: numbers only, bounded and validated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.activations import moderate
from notsodeep.checks import InputError, nearest
from notsodeep.highdim.mixture import MOST_CLASSES, Mixture
from notsodeep.reading import json_file

__all__ = ["load_mixture"]

_KEYS = ("means", "covariances", "proportions")
_FARTHEST = 1e6  # means in units of the largest deviation
_LARGEST = 2**28  # bytes: five full covariances of 1500 features, written out


def load_mixture(path: str | Path) -> Mixture:
    """Read a mixture: ``{"means": K lists, "covariances": K entries, "proportions": K numbers}``.

    A covariance is a number (times the identity), a list (its diagonal) or a list of lists; ``mixture.save(path)``
    writes such a file. Without proportions all classes are equally likely.
    """
    content = _content(Path(path))
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        raise InputError(
            f"{str(path)!r} has an entry {unknown[0]!r}{nearest(unknown[0], _KEYS)} (use {', '.join(_KEYS)})"
        )
    for key in _KEYS[:2]:
        if not isinstance(content.get(key), list) or not content[key]:
            raise InputError(f"{str(path)!r} lacks {key!r}, a list with one entry per class")
    means, covariances = content["means"], content["covariances"]
    if len(means) > MOST_CLASSES:
        raise InputError(f"{str(path)!r} has {len(means)} classes; at most {MOST_CLASSES} are possible")
    proportions = content.get("proportions", [1 / len(means)] * len(means))
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that overflow are refused
            found = Mixture(means, covariances, proportions)
            _require_digits(found)
        return found
    except InputError as error:
        raise InputError(f"{str(path)!r}: {error}") from None
    except (TypeError, ValueError):
        raise InputError(f"{str(path)!r} holds lists of unequal lengths; every class needs the same features") from None


def _require_digits(mixture: Mixture) -> None:
    """Refuse numbers with which double precision computes nothing."""
    far, noise = (max(float(np.abs(one).max()) for one in ones) for ones in ([mixture.means], mixture.covariances))
    moderate(far, "means")
    moderate(noise, "covariances")
    if noise and far > _FARTHEST * np.sqrt(noise):
        raise InputError(
            f"means holds {far:.3g} beside deviations of at most {np.sqrt(noise):.3g}; scale the means down"
        )


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json_file(path, _LARGEST)
    except FileNotFoundError:
        raise InputError(f"mixture={str(path)!r} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"mixture={str(path)!r} is not a readable JSON file: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"mixture={str(path)!r} must hold an object with {', '.join(_KEYS)}")
    return content
