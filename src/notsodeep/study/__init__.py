"""Measured comparisons of a DEQ and the explicit network designed for it: kernels, forecasts, accuracy, cost."""

from notsodeep.study.kernels import Closeness, Outlook, Study, closer_network
from notsodeep.study.training import Comparison, Trained, comparable, compare

__all__ = ["Closeness", "Comparison", "Outlook", "Study", "Trained", "closer_network", "comparable", "compare"]
