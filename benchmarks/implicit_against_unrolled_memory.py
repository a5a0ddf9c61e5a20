"""Memory of one forward + backward pass against the number of solver iterations, implicit against unrolled.

Two measures: the bytes the graph keeps for the backward pass, and the growth of the peak memory of a fresh process.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

from common import main

AREA = "nn"


def measure(backward: str, iterations: int, width: int, batch: int) -> tuple[float, float]:
    """Megabytes kept by the graph, and added to the peak of the process, after exactly `iterations` iterations."""
    import torch

    import notsodeep as nsd
    from notsodeep import nn

    torch.set_num_threads(1)
    # a tolerance that is not reached makes the number of iterations exact
    net = nn.DEQNet(
        nsd.DEQ("tanh", recurrent=0.2, input=0.8),
        64,
        width,
        1,
        solver="picard",
        tol=1e-15,
        max_iter=iterations,
        backward=backward,
        on_failure="ignore",
        dtype=torch.float64,
    )
    x = torch.randn(batch, 64, dtype=torch.float64) / 8
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = net(x).sum()
    output.backward()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return sum(kept.values()) / 2**20, (after - before) / 2**10


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    width, batch = (256, 256) if quick else (512, 512)
    rows: list[dict[str, Any]] = []
    for iterations in (4, 16) if quick else (4, 8, 16, 32):
        row: dict[str, Any] = {"iterations": iterations}
        for backward in ("implicit", "unrolled"):
            command = [sys.executable, __file__, "--measure", backward, str(iterations), str(width), str(batch)]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            row[f"{backward} graph MB"], row[f"{backward} peak MB"] = float(found[0]), float(found[1])
        rows.append(row)
    growth = {mode: rows[-1][f"{mode} graph MB"] / rows[0][f"{mode} graph MB"] for mode in ("implicit", "unrolled")}
    more = rows[-1]["iterations"] / rows[0]["iterations"]
    flat = growth["implicit"] < 1.01 and growth["unrolled"] > 2
    return {
        "question": "How does the memory of the backward pass grow with the number of iterations, implicit and "
        "unrolled?",
        "target": "implicit flat within 1 %",
        "rows": rows,
        "verdict": f"{'met' if flat else 'missed'}: {more:.0f} times the iterations keep "
        f"{growth['implicit']:.2f} times the memory implicit, {growth['unrolled']:.1f} times unrolled",
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(*measure(sys.argv[2], *(int(number) for number in sys.argv[3:])))
    else:
        main(__file__, run)
