"""The warning about iterations that stop too early; warning filters for scikit-learn's class catch it too."""

from __future__ import annotations

from sklearn import exceptions

__all__ = ["ConvergenceWarning"]


class ConvergenceWarning(exceptions.ConvergenceWarning):  # type: ignore[misc]
    """An iteration or a series stopped above its tolerance."""
