"""DEQs as other people write them."""

from __future__ import annotations

import torch


class Monotone(torch.nn.Module):
    """z = relu(Wz + Ux + b) with W = (1 − μ)I − AᵀA + B − Bᵀ, by damped steps [Winston & Kolter 2020]."""

    def __init__(self, m: int, p: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.U = torch.nn.Linear(p, m)
        self.A, self.B = torch.nn.Linear(m, m, bias=False), torch.nn.Linear(m, m, bias=False)
        self.out, self.act = torch.nn.Linear(m, 3), torch.nn.ReLU()

    def matrix(self) -> torch.Tensor:
        A, B = self.A.weight, self.B.weight
        return 0.2 * torch.eye(len(A)) - A.t() @ A + B - B.t()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z, W = torch.zeros(len(x), self.U.out_features), self.matrix()
        for _ in range(100):
            z = torch.relu(0.8 * z + 0.2 * (z @ W.t() + self.U(x)))
        return self.out(z)
