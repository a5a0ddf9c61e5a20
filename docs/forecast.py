"""Write the tables of ``docs/forecast.md``: ``python -m docs.forecast``, from the root."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import notsodeep as nsd

PAGE = Path(__file__).resolve().parent / "forecast.md"
P = 400


def mixtures() -> dict[str, tuple[nsd.Mixture, int]]:
    """What two classes can differ in, with a number of samples each."""
    signs = np.where(np.arange(P) < P // 2, 1.0, -1.0)
    means = np.zeros((2, P))
    means[:, 0] = 1.2, -1.2
    return {
        "means ±1.2": (nsd.Mixture(means, [1.0, 1.0], [0.5, 0.5]), 800),
        "variances 1 and 1.15": (nsd.Mixture(0 * means, [1.0, 1.15], [0.5, 0.5]), 800),
        "shapes: 1.6 and 0.4 on swapped halves": (
            nsd.Mixture(0 * means, [1 + 0.6 * signs, 1 - 0.6 * signs], [0.5, 0.5]),
            1600,
        ),
    }


def sensitivities() -> str:
    """Points of accuracy that 1 % of each number moves."""
    lines = ["| classes differ in | φ | n | accuracy | c1 | c2 | c3 | d |", "|:--|:--|--:|--:|--:|--:|--:|--:|"]
    for name, (mixture, n) in mixtures().items():
        for phi in ("relu", "tanh"):
            found = nsd.forecast(nsd.DEQ(phi, recurrent=0.2, input=0.8), mixture, n=n, ridge=0.02)
            cells = " | ".join(f"{round(value, 3) + 0.0:+.3f}" for value in found.sensitivity)
            lines.append(f"| {name} | {phi} | {n} | {100 * found.accuracy:.1f} % | {cells} |")
    return "\n".join(lines)


def networks() -> str:
    """Accuracy of explicit networks in the place of a relu DEQ."""
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    mixture, n = mixtures()["shapes: 1.6 and 0.4 on swapped halves"]
    candidates = {
        "the DEQ": deq,
        "two layers, designed": nsd.match(deq, tau0=1.0).network,
        "one relu layer": nsd.Explicit(["relu"]),
        "two relu layers": nsd.Explicit(["relu", "relu"]),
        "two layers max(x, x/5)": nsd.Explicit([nsd.activation("leaky_relu", a=1.0, b=0.2)] * 2),
        "two tanh layers": nsd.Explicit(["tanh", "tanh"]),
    }
    lines = ["| network | c1 | c2 | c3 | d | ridge 0.02 | best ridge |", "|:--|--:|--:|--:|--:|--:|--:|"]
    for name, model in candidates.items():
        fixed, best = (nsd.forecast(model, mixture, n=n, ridge=ridge) for ridge in (0.02, "best"))
        numbers = " | ".join(f"{value:.4f}" for value in fixed.weights)
        lines.append(f"| {name} | {numbers} | {100 * fixed.accuracy:.1f} % | {100 * best.accuracy:.1f} % |")
    return "\n".join(lines)


TABLES = {"sensitivities": sensitivities, "networks": networks}


def written(text: str) -> str:
    """The page with its tables computed again."""
    for name, table in TABLES.items():
        head, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        if not (mark and end):
            raise ValueError(f"forecast.md has no place for the table {name!r}")
        text = f"{head}{mark}{table()}\n{end}{tail}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE)
