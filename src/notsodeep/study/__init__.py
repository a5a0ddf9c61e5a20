"""Measured comparisons of a DEQ and the explicit network designed for it: kernels, forecasts, accuracy, cost."""

from notsodeep.study.explicit_designs import Designed, Designs, designs, measured_on
from notsodeep.study.kernels import Closeness, Outlook, Study, closer_network
from notsodeep.study.training import Comparison, Trained, comparable, compare

__all__ = [
    "Closeness",
    "Comparison",
    "Designed",
    "Designs",
    "Outlook",
    "Study",
    "Trained",
    "closer_network",
    "comparable",
    "compare",
    "designs",
    "measured_on",
]
