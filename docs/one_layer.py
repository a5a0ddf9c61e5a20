"""Write the tables of ``docs/one_layer.md``: ``python -m docs.one_layer [OUT]``, from the root.

With the folder of ``notsodeep reproduce covariances --out OUT`` it writes the table of accuracies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import notsodeep as nsd
from notsodeep.papers import covariances

PAGE = Path(__file__).resolve().parent / "one_layer.md"
KINKS = (1, 2, 3, 8)


def kinks() -> str:
    """sup |k̂ − k|/k(1) of piecewise-linear designs, with their slopes relative to those of φ, and E[σ⁴]/E[σ²]²."""
    lines = ["| φ | kernel | series | " + " | ".join(f"{k} kink{'s' * (k > 1)}" for k in KINKS) + " |"]
    lines.append("|:--|:--|--:|" + "--:|" * len(KINKS))
    for phi in ("relu", "tanh"):
        deq = nsd.DEQ(phi, recurrent=0.2, input=0.8)
        for kind in ("ck", "ntk"):
            exact = nsd.match(deq, tau0=1.0, kind=kind, on="sphere")
            few = [nsd.match(deq, tau0=1.0, kind=kind, on="sphere", kinks=count) for count in KINKS]
            steepest = deq.activation.lipschitz
            cells = [f"{m.distance:.1e} ({m.lipschitz / steepest:.2g}×, {m.fourth:.2f})" for m in (exact, *few)]
            lines.append(f"| {phi} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def trials(out: Path) -> list[dict[str, Any]]:
    """The rows of a finished run."""
    return list(json.loads((out / "covariances" / "data.json").read_text(encoding="utf-8")))


def replaced(text: str, name: str, content: str) -> str:
    """The text with new content between the marks of this name."""
    head, mark, rest = text.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    if not (mark and end):
        raise ValueError(f"there is no place for {name!r}")
    return f"{head}{mark}{content}\n{end}{tail}"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    if len(sys.argv) > 1:
        found = trials(Path(sys.argv[1]))
        page = replaced(page, "covariances", "\n".join(covariances.table(found)))
    else:
        page = replaced(page, "kinks", kinks())
    PAGE.write_text(page, encoding="utf-8")
    print(PAGE)
