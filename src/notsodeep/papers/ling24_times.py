"""The times that [Ling24] prints: its Tables 1 and 2, in seconds on its own machine."""

from __future__ import annotations

__all__ = ["EPOCH", "NETWORKS", "SECONDS", "WIDTHS", "printed_ratio"]

WIDTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
EPOCH = 50_000  # training images in the scripts
NETWORKS = {
    ("relu", "implicit"): "ReLU-DEQ",
    ("relu", "explicit"): "L-ReLU-ENN",
    ("tanh", "implicit"): "Tanh-DEQ",
    ("tanh", "explicit"): "H-Tanh-ENN",
}

# job: (data, activation, network): seconds at these widths
SECONDS: dict[str, dict[tuple[str, str, str], tuple[float, ...]]] = {
    "inference": {
        ("mnist", "relu", "implicit"): (0.26, 0.26, 0.27, 0.28, 0.27, 0.29, 0.3, 0.32),
        ("mnist", "relu", "explicit"): (0.09, 0.11, 0.12, 0.15, 0.14, 0.11, 0.1, 0.16),
        ("mnist", "tanh", "implicit"): (0.24, 0.24, 0.27, 0.26, 0.28, 0.26, 0.28, 0.29),
        ("mnist", "tanh", "explicit"): (0.12, 0.12, 0.11, 0.11, 0.14, 0.11, 0.1, 0.1),
        ("fashion-mnist", "relu", "implicit"): (0.26, 0.27, 0.26, 0.26, 0.32, 0.32, 0.31, 0.32),
        ("fashion-mnist", "relu", "explicit"): (0.17, 0.13, 0.14, 0.11, 0.12, 0.13, 0.12, 0.14),
        ("fashion-mnist", "tanh", "implicit"): (0.22, 0.24, 0.25, 0.26, 0.28, 0.27, 0.28, 0.3),
        ("fashion-mnist", "tanh", "explicit"): (0.13, 0.13, 0.12, 0.12, 0.11, 0.12, 0.1, 0.12),
        ("cifar10", "relu", "implicit"): (0.23, 0.22, 0.23, 0.24, 0.27, 0.28, 0.28, 0.31),
        ("cifar10", "relu", "explicit"): (0.09, 0.08, 0.09, 0.09, 0.09, 0.09, 0.1, 0.1),
        ("cifar10", "tanh", "implicit"): (0.2, 0.2, 0.21, 0.22, 0.23, 0.23, 0.26, 0.27),
        ("cifar10", "tanh", "explicit"): (0.09, 0.08, 0.09, 0.09, 0.09, 0.08, 0.08, 0.09),
    },
    "training": {
        ("mnist", "relu", "implicit"): (68.76, 72.72, 82.0, 95.52, 97.38, 93.96, 110.04, 189.54),
        ("mnist", "relu", "explicit"): (3.045, 2.67, 3.52, 3.75, 4.12, 3.65, 3.09, 3.97),
        ("mnist", "tanh", "implicit"): (65.34, 83.94, 84.72, 84.78, 85.14, 94.14, 306.0, 322.56),
        ("mnist", "tanh", "explicit"): (2.76, 5.32, 2.8, 2.65, 2.96, 2.69, 6.59, 2.64),
        ("fashion-mnist", "relu", "implicit"): (58.46, 81.72, 72.78, 73.38, 141.72, 156.42, 169.74, 246.42),
        ("fashion-mnist", "relu", "explicit"): (3.53, 3.17, 3.07, 2.7, 2.84, 3.06, 2.71, 3.11),
        ("fashion-mnist", "tanh", "implicit"): (70.8, 80.28, 81.48, 79.38, 91.5, 96.0, 109.98, 113.04),
        ("fashion-mnist", "tanh", "explicit"): (2.98, 2.78, 2.76, 2.19, 2.71, 3.3, 2.19, 2.47),
        ("cifar10", "relu", "implicit"): (225.0, 253.26, 302.16, 172.68, 870.0, 1167.6, 1208.4, 1204.2),
        ("cifar10", "relu", "explicit"): (2.47, 3.21, 2.28, 3.05, 4.65, 5.34, 4.71, 4.53),
        ("cifar10", "tanh", "implicit"): (68.6, 79.26, 89.22, 92.98, 108.0, 192.46, 254.46, 307.56),
        ("cifar10", "tanh", "explicit"): (2.24, 2.9, 2.91, 3.06, 2.99, 2.91, 3.36, 7.17),
    },
}


def printed_ratio(job: str, data: str, activation: str, width: int) -> float | None:
    """Seconds of the DEQ over those of the explicit network, as printed; None where nothing is printed.

    Examples
    --------
    >>> round(printed_ratio("inference", "mnist", "relu", 32), 2)
    2.89
    """
    table = SECONDS[job]
    if (data, activation, "implicit") not in table or width not in WIDTHS:
        return None
    place = WIDTHS.index(width)
    implicit, explicit = (table[data, activation, who][place] for who in ("implicit", "explicit"))
    return implicit / explicit
