"""Forward + backward of one DEQ layer at relative residual 1e-5, ours against torchdeq.

Both get the same weights, the same injection computed once, the same batched function and the same tolerance,
1e-5 relative for the forward and the backward solve; torchdeq starts from zeros, as its documentation does. The
ratio compares our default solver with the fastest solver of torchdeq. Afterwards the residual ‖f(z) − z‖/‖f(z)‖
of every returned state is measured by independent code.

torchdeq steps past the state it measured. The column "ratio, loosened" therefore repeats the comparison with the
loosest forward tolerance (up to 3e-4) at which the state it returns still has residual ≤ 1e-5, and 3e-5 backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from common import best_times, main
from torch import Tensor

import notsodeep as nsd
from notsodeep import nn

AREA = "nn"
TOL = 1e-5
BATCH = 128
FEATURES = 784
TORCHDEQ_SOLVERS = ("fixed_point_iter", "anderson", "broyden")


def ours(net: nn.DEQNet, x: Tensor) -> Callable[[], Tensor]:
    def call() -> Tensor:
        net.zero_grad(set_to_none=True)
        z = net.equilibrium(x)
        (z @ net.readout.t()).square().sum().backward()
        return z.detach()

    return call


def loosened(net: nn.DEQNet, x: Tensor, solver: str) -> Callable[[], Tensor]:
    for slack in (30, 10, 3):
        call = theirs(net, x, solver, slack * TOL, 3 * TOL)
        if residual(net, x, call()) <= TOL:
            return call
    return theirs(net, x, solver)


def theirs(net: nn.DEQNet, x: Tensor, solver: str, tol: float = TOL, backward_tol: float = TOL) -> Callable[[], Tensor]:
    import torchdeq

    options: dict[str, Any] = {"ift": True, "f_solver": solver, "b_solver": solver, "f_tol": tol, "b_tol": backward_tol}
    deq = torchdeq.get_deq(**options, f_max_iter=200, b_max_iter=200, f_stop_mode="rel", b_stop_mode="rel")
    phi, factor = net.phi, math.sqrt(net.deq.recurrent)
    root = math.sqrt(net.width)

    def call() -> Tensor:
        net.zero_grad(set_to_none=True)
        drive = net.drive(x)

        def f(z: Tensor) -> Tensor:
            return phi(torch.addmm(drive, z, net.recurrent.t(), alpha=factor)) / root

        states, _ = deq(f, drive.new_zeros(drive.shape))
        (states[-1] @ net.readout.t()).square().sum().backward()
        return states[-1].detach()

    return call


@torch.no_grad()
def residual(net: nn.DEQNet, x: Tensor, z: Tensor) -> float:
    """Worst ‖f(z) − z‖/‖f(z)‖ of the batch, in float64, without any code of either solver."""
    drive, weight = net.drive(x).double(), math.sqrt(net.deq.recurrent) * net.recurrent.double()
    image = net.phi(z.double() @ weight.t() + drive) / math.sqrt(net.width)
    return float(((image - z.double()).norm(dim=1) / image.norm(dim=1)).max())


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    widths = (256, 512, 1024) if quick else (256, 512, 1024, 2048)
    rows: list[dict[str, Any]] = []
    for name, recurrent in (("relu", 0.2), ("tanh", 0.2)):
        deq = nsd.DEQ(name, recurrent=recurrent, input=0.8)
        for width in widths:
            net = nn.DEQNet(deq, FEATURES, width, 10, tol=TOL, seed=0)
            x = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(1)) / math.sqrt(FEATURES)
            contenders = {"notsodeep": ours(net, x), **{s: theirs(net, x, s) for s in TORCHDEQ_SOLVERS}}
            states = {who: call() for who, call in contenders.items()}
            rough = best_times(contenders, repeats=1 if quick else 3)
            fastest = min(TORCHDEQ_SOLVERS, key=rough.__getitem__)
            duel = {"notsodeep": contenders["notsodeep"], "torchdeq": contenders[fastest]}
            times = best_times({**duel, "loosened": loosened(net, x, fastest)}, repeats=5 if quick else 15)
            rows.append(
                {
                    "activation": name,
                    "width": width,
                    "notsodeep ms": 1e3 * times["notsodeep"],
                    "torchdeq ms": 1e3 * times["torchdeq"],
                    **{f"{s} ms": 1e3 * rough[s] for s in TORCHDEQ_SOLVERS},
                    "fastest": fastest,
                    "ratio": times["notsodeep"] / times["torchdeq"],
                    "ratio, loosened": times["notsodeep"] / times["loosened"],
                    "residual": residual(net, x, states["notsodeep"]),
                    "residual torchdeq": residual(net, x, states[fastest]),
                }
            )
    worst = max(row["ratio"] for row in rows)
    loose = max(row["ratio, loosened"] for row in rows)
    honest = all(row["residual"] <= 1.01 * TOL for row in rows)
    return {
        "question": "How long do forward + backward of a DEQ take at residual 1e-5, relative to the fastest solver "
        "of torchdeq?",
        "target": "ratio ≤ 0.8, and no state returned with a residual above the tolerance",
        "rows": rows,
        "verdict": f"{'met' if worst <= 0.8 and honest else 'missed'}: worst ratio {worst:.2f} "
        f"({loose:.2f} against torchdeq loosened), "
        f"residuals {'within' if honest else 'above'} the tolerance",
    }


if __name__ == "__main__":
    main(__file__, run)
