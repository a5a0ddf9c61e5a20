"""The warning of iterations that stop too early; filters for scikit-learn's catch it too."""

from __future__ import annotations

from sklearn import exceptions

__all__ = ["ConvergenceWarning"]


class ConvergenceWarning(exceptions.ConvergenceWarning):  # type: ignore[misc]
    """An iteration or a series stopped above its tolerance."""
