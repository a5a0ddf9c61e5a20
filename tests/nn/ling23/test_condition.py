"""[Ling23]: the closed-form gradients, Condition 1 where it holds, and what is seen where it does not.

Also covers: nn/ling23/descent.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError
from notsodeep.nn.ling23.condition import Norms, ReluWeights, condition, gradients


def on_sphere(n: int, d: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True) * math.sqrt(d)


def targets(n: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# covers: [Ling23] Asm. 1
def test_the_network_has_the_distribution_of_the_paper():
    weights = ReluWeights.of(nn.ling23_network(600, 50, 0.08))
    assert float(weights.W.var()) == pytest.approx(2 * 0.08 / 600, rel=0.02)
    assert float(weights.U.var()) == pytest.approx(2 / 50, rel=0.03)
    assert float(weights.a.var()) == pytest.approx(1 / 600, rel=0.15)


@pytest.mark.parametrize("recurrent", [0.02, 0.08, 0.12])
# covers: [Ling23] Lemma 1
def test_random_weights_contract_below_one_eighth(recurrent):
    """‖W‖ tends to 2√2 σ_w, which is below 1 for σ_w² < 1/8."""
    drawn = [ReluWeights.of(nn.ling23_network(250, 10, recurrent, seed=seed)).W for seed in range(4)]
    norms = np.array([np.linalg.norm(W.numpy(), 2) for W in drawn]) / (2 * math.sqrt(2 * recurrent))
    assert norms.min() > 0.95
    assert norms.max() < 1.02 < 1 / math.sqrt(8 * 0.12)


def relu_dual(cosine: np.ndarray) -> np.ndarray:
    """Q(x) = (√(1−x²) + (π − arccos x)x)/π, [Ling23] Eq. (11)."""
    x = np.clip(cosine, -1, 1)
    return (np.sqrt(1 - x**2) + (np.pi - np.arccos(x)) * x) / np.pi


# covers: [Ling23] Def. 1; [Ling23] Lemma 3; [Ling23] Thm 3
def test_the_population_matrix_follows_its_recursion():
    """K^(l) = ρ^(l) Q(cos θ^(l)), Eq. (12), (13) with ρ^(l), against kernels of finite depth; the limit, Eq. (14)."""
    X, square = on_sphere(6, 20).numpy(), 0.08  # σ_w²
    deq = nsd.DEQ("normalized_relu", recurrent=square, input=1.0)
    overlap = X @ X.T / 20
    cosine, before = overlap, np.zeros((6, 6))
    for layer in range(1, 13):
        rho = (1 - square**layer) / (1 - square)
        if layer > 1:
            cosine = ((rho - 1) * relu_dual(cosine) + overlap) / rho
        K = rho * relu_dual(cosine)
        np.testing.assert_allclose(K, deq.kernel(X / math.sqrt(20), kind="ck", depth=layer - 1), atol=1e-7)
        assert np.all(np.abs(K - before) <= (2 * layer - 1) * square ** (layer - 1) + 1e-7)  # as in the proof
        before = K
    limit = nn.ling23_network(10, 20, square).deq.kernel(X, kind="ck")
    np.testing.assert_allclose(limit, K, atol=1e-7)
    for _ in range(20):
        cosine = square * relu_dual(cosine) + (1 - square) * overlap
    np.testing.assert_allclose(limit, relu_dual(cosine) / (1 - square), atol=1e-7)


# covers: [Ling23] Thm 3; [Ling23] Asm. 2
def test_the_population_matrix_is_positive_definite_unless_rows_are_parallel():
    deq = nn.ling23_network(10, 4, 0.08).deq
    X = on_sphere(12, 4).numpy()  # more rows than features: the linear part alone is singular
    assert np.linalg.eigvalsh(X @ X.T)[0] < 1e-10
    assert np.linalg.eigvalsh(deq.kernel(X, kind="ck"))[0] > 1e-4
    assert abs(np.linalg.eigvalsh(deq.kernel(np.vstack([X, X[:1]]), kind="ck"))[0]) < 1e-10
    for angle in (1.0, 0.1, 0.01):  # two rows: λ_* = K_11 − K_12, by Eq. (14)
        two = 2 * np.array([[1, 0, 0, 0], [math.cos(angle), math.sin(angle), 0, 0]])
        cosine = math.cos(angle)
        for _ in range(40):
            cosine = 0.08 * float(relu_dual(np.array(cosine))) + 0.92 * math.cos(angle)
        expected = (1 - float(relu_dual(np.array(cosine)))) / 0.92
        assert np.linalg.eigvalsh(deq.kernel(two, kind="ck"))[0] == pytest.approx(expected, rel=1e-6)
        assert expected > 0


@pytest.mark.parametrize("name", ["relu", "normalized_relu"])
# covers: [Ling23] Lemma 2
def test_lemma_2_agrees_with_autograd(name):
    net = nn.DEQNet(nsd.DEQ(name, 0.1, 0.5), 6, 40, tol=1e-13, dtype=torch.float64)
    X, y = on_sphere(8, 6), targets(8)
    weights = ReluWeights.of(net)
    closed = gradients(net, weights, X, y)
    (0.5 * ((net(X)[:, 0] - y) ** 2).sum()).backward()
    gain = math.sqrt(2) if name == "normalized_relu" else 1.0
    # W = gain·σ_a A/√m, U = gain·σ_b B, a/√m
    torch.testing.assert_close(net.recurrent.grad, closed.W * gain * math.sqrt(0.1 / 40), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(net.input.grad, closed.U * gain * math.sqrt(0.5), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(net.readout.grad[0], closed.a / math.sqrt(40), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(closed.prediction, net(X)[:, 0].detach(), rtol=1e-10, atol=1e-10)
    # and with the matrices themselves as variables: w = (D⁻¹ − Wᵀ)⁻¹ a r, dense, sample by sample
    Z = closed.state
    expected = torch.zeros_like(weights.W)
    for i in range(8):
        D = torch.diag((weights.W @ Z[i] + weights.U @ X[i] > 0).double())
        flow = D @ torch.linalg.solve(torch.eye(40, dtype=torch.float64) - weights.W.t() @ D, weights.a)
        expected += (closed.prediction[i] - y[i]) * torch.outer(flow, Z[i])
    torch.testing.assert_close(closed.W, expected, rtol=1e-8, atol=1e-8)


def test_gradients_that_start_from_those_of_other_weights_are_the_same():
    net, X, y = nn.ling23_network(40, 6, 0.08, seed=1), on_sphere(8, 6), targets(8)
    weights = ReluWeights.of(net)
    other = gradients(net, ReluWeights(weights.W * 0.9, weights.U * 1.1, weights.a + 0.1), X, -y)
    fresh, warm = gradients(net, weights, X, y), gradients(net, weights, X, y, other)
    for name in ("prediction", "state", "flow", "W", "U", "a"):
        torch.testing.assert_close(getattr(warm, name), getattr(fresh, name), rtol=1e-8, atol=1e-8)
        assert not torch.allclose(getattr(other, name), getattr(fresh, name), rtol=1e-3), name


# covers: [Ling23] Lemma 8
def test_states_and_gradients_obey_their_bounds():
    """Eq. (15) to (18) at the start, and after a step of norm δ or less in each weight."""
    net, X, y = nn.ling23_network(120, 10, 0.05), on_sphere(6, 10), targets(6)
    bounds = nn.certificate(net, X, y, width=False)
    before, size = ReluWeights.of(net), float(X.norm())
    rng = torch.Generator().manual_seed(2)
    changes = [torch.randn(one.shape, generator=rng, dtype=one.dtype) for one in (before.W, before.U, before.a)]
    dW, dU, da = (one * (0.9 * bounds.delta / one.norm()) for one in changes)
    after = ReluWeights(before.W + dW, before.U + dU, before.a + da)
    first, second = (gradients(net, weights, X, y) for weights in (before, after))
    for found in (first, second):
        error = float((found.prediction - y).norm())
        assert found.state.norm() <= bounds.c_a * size
        assert found.W.norm() <= bounds.c_w * size * error
        assert found.U.norm() <= bounds.c_u * size * error
        assert found.a.norm() <= bounds.c_a * size * error
    w, u, a = (float(torch.linalg.matrix_norm(one, 2)) for one in (dW, dU, da[None]))
    moved = float((second.state - first.state).norm())
    assert 0 < moved <= (bounds.c_w * w + bounds.c_u * u) * size / bounds.rho_a
    moved = float((second.prediction - first.prediction).norm())
    assert 0 < moved <= (bounds.c_w * w + bounds.c_u * u + bounds.c_a * a) * size


def certified() -> tuple[nn.DEQNet, torch.Tensor, torch.Tensor]:
    """Few orthogonal samples, a small readout, and targets near the first predictions."""
    net = nn.ling23_network(300, 8, 0.001, readout_norm=0.02, tol=1e-12, solver="picard")
    X = torch.linalg.qr(on_sphere(8, 8))[0][:2] * math.sqrt(8)
    shift = targets(2)
    return net, X, net(X)[:, 0].detach() + 0.02 * shift / shift.norm()


# covers: [Ling23] Condition 1; [Ling23] Thm 1
def test_where_condition_1_holds_the_bound_is_never_violated():
    net, X, y = certified()
    found = nn.certificate(net, X, y)
    assert found.holds
    assert all(line.margin > 1 for line in found.inequalities)
    assert found.required_width < 300 * 20
    seen = nn.descend(net, X, y, steps=60)
    assert all(seen.checks.values()), seen
    assert seen.loss[-1] < 0.95 * seen.loss[0]
    assert 0 < seen.step < found.max_step
    # the network was updated: its loss is the last one recorded
    assert 0.5 * float(((net(X)[:, 0].detach() - y) ** 2).sum()) == pytest.approx(seen.loss[-1], rel=1e-6)


def test_at_ordinary_widths_the_condition_fails_but_the_behaviour_is_seen():
    net = nn.ling23_network(256, 40, 0.02, tol=1e-8, solver="picard")
    X, y = on_sphere(10, 40), targets(10)
    found = nn.certificate(net, X, y)
    assert not found.holds
    assert math.isinf(found.required_width)  # the third inequality never improves with the width …
    assert 0 < found.required_readout < found.norms.a  # … but with a smaller readout
    assert "no width suffices" in str(found)
    seen = nn.descend(net, X, y, steps=60, step=0.03 / found.lambda0)
    assert all(seen.checks.values()), seen
    assert seen.loss[-1] < 0.4 * seen.loss[0]


def test_the_monitor_notices_a_step_that_is_too_large():
    net = nn.ling23_network(128, 20, 0.02, tol=1e-8, on_failure="ignore", max_iter=50)
    X, y = on_sphere(6, 20), 3 * targets(6)
    found = nn.certificate(net, X, y, width=False)
    seen = nn.descend(net, X, y, steps=5, step=8 / found.lambda0)
    assert not seen.checks["loss below the bound"]


def test_the_best_delta_beats_every_other_one():
    norms = Norms(W=0.3, U=2.0, a=0.05, X=3.0, error=0.01)
    best = condition(500.0, norms)
    worst = min(line.margin for line in best.inequalities)
    from notsodeep.nn.ling23.condition import _at_delta

    for delta in np.geomspace(1e-5, 0.69, 300):
        assert min(line.margin for line in _at_delta(500.0, norms, float(delta)).inequalities) <= worst * (1 + 1e-6)
    # the three lines, written out once more
    d, rw, ru, ra = best.delta, 0.3 + best.delta, 2.0 + best.delta, 0.05 + best.delta
    cw, cu, ca = ru * ra / (1 - rw) ** 2, ra / (1 - rw), ru / (1 - rw)
    assert [line.right for line in best.inequalities] == pytest.approx(
        [
            4 / d * max(cw, cu, ca) * 3 * 0.01,
            4 * (2 + 2**0.5) / ra * (cw**2 + cu**2) * 9 * 0.01,
            8 * (cw**2 + cu**2) * 9,
        ]
    )
    assert best.max_step == pytest.approx(min(2 / 500, 2 * (cw**2 + cu**2) / ((cw**2 + cu**2 + ca**2) ** 2 * 9)))
    assert best.rate(1e-4) == pytest.approx(1 - 1e-4 * 500 / 2)


# covers: [Ling23] Thm 1
def test_the_promised_rate_is_the_one_that_is_proved():
    """[Ling23]: Φ(τ+1) ≤ (1 − η(λ0 − ηC₁² − 2C₂))Φ(τ), written out here; the printed condition allows less decrease."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(300):
        W, U, a, X = rng.uniform(0.01, 0.9), *10 ** rng.uniform(-2, 1, 3)
        norms = Norms(W, U, a, X, 1e-9 * rng.random())
        needed = condition(1.0, norms)
        lambda0 = float(needed.inequalities[2].right * 10 ** rng.uniform(-0.3, 0.5))
        found = condition(lambda0, norms)
        C1 = (found.c_w**2 + found.c_u**2 + found.c_a**2) * X**2
        C2 = (found.c_w**2 + found.c_u**2) * X**2
        step = found.max_step * rng.uniform(0.5, 1)
        proved = step * (lambda0 - step * C1**2 - 2 * C2)
        if found.holds:
            held += 1
            assert 1 - proved <= found.rate(step) + 1e-12
        else:
            assert lambda0 < 8 * C2 * (1 + 1e-9)
    assert 100 < held < 280


# covers: [Ling23] Thm 2; [Ling23] Def. 1
def test_the_smallest_eigenvalue_grows_like_the_population_one():
    X = on_sphere(5, 20)
    net = nn.ling23_network(1500, 20, 0.05, tol=1e-8)
    population = np.linalg.eigvalsh(net.deq.kernel(X.numpy(), kind="ck"))[0]
    found = nn.certificate(net, X, targets(5), width=False)
    assert found.lambda0 / 1500 == pytest.approx(population, rel=0.25)
    assert found.lambda0 >= 750 * population


@pytest.mark.parametrize(
    ("deq", "outputs", "message"),
    [
        (nsd.DEQ("tanh", 0.1, 0.5), 1, "relu and normalized_relu"),
        (nsd.DEQ("relu", 0.1, 0.5, 0.1), 1, "bias=0"),
        (nsd.DEQ("relu", 0.1, 0.5), 2, "one output"),
    ],
)
def test_networks_outside_the_theorem_are_refused(deq, outputs, message):
    with pytest.raises(InputError, match=message):
        nn.certificate(nn.DEQNet(deq, 4, 10, outputs, dtype=torch.float64), on_sphere(2, 4), targets(2))


def test_bad_targets_are_refused():
    net = nn.ling23_network(10, 4)
    with pytest.raises(InputError, match="3 entries for 2 samples"):
        nn.certificate(net, on_sphere(2, 4), targets(3))
    with pytest.raises(InputError, match="NaN"):
        nn.certificate(net, on_sphere(2, 4), torch.tensor([1.0, math.nan]))


def test_a_large_weight_leaves_nothing_to_promise():
    net = nn.ling23_network(60, 8, 0.4, on_failure="ignore", max_iter=20)
    X, y = on_sphere(4, 8), targets(4)
    found = nn.certificate(net, X, y)
    assert found.norms.W >= 1
    assert not found
    assert math.isnan(found.max_step)
    assert all(math.isnan(line.margin) for line in found.inequalities)
    assert "≥ 1" in str(found)
    assert "lower recurrent" in found.obstacle
    with pytest.raises(InputError, match="admits no step"):
        nn.descend(net, X, y, steps=1)


# covers: [Ling23] Asm. 2
def test_equal_inputs_are_the_reason_that_is_given():
    net, X = nn.ling23_network(200, 8, 0.02), on_sphere(4, 8)
    found = nn.certificate(net, torch.cat([X, 2 * X[:1]]), targets(5))
    assert found.lambda0 == 0
    assert math.isinf(found.required_width)
    assert "two point the same way" in str(found)
    with pytest.raises(InputError, match="X is zero"):
        nn.certificate(net, torch.zeros(2, 8, dtype=torch.float64), targets(2))


def test_an_exact_fit_breaks_no_promise():
    net, X, _ = certified()
    seen = nn.descend(net, X, net(X)[:, 0].detach(), steps=5)
    assert all(seen.checks.values()), seen


def test_the_monitor_measures_the_norm_where_the_bound_is_too_weak():
    net, X, y = nn.ling23_network(64, 20, 0.1), on_sphere(6, 20), 30 * targets(6)
    before = ReluWeights.of(net).W
    seen = nn.descend(net, X, y, steps=3, step=5e-4)
    after = ReluWeights.of(net).W
    true = float(torch.linalg.matrix_norm(after, 2))
    weak = float(torch.linalg.matrix_norm(before, 2) + (after - before).norm())
    assert weak >= 1
    assert seen.norm[-1] == pytest.approx(true, rel=1e-9)
