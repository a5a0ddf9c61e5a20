"""Training as a kernel: against integration in time, plain loops, matrix exponentials and trained networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy.integrate import solve_ivp

import notsodeep as nsd
from notsodeep import InputError, learn

RNG = np.random.default_rng(0)
X, TEST = RNG.standard_normal((12, 5)) / 2, RNG.standard_normal((4, 5)) / 2
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2]])
ALL = np.vstack([X, TEST])
N = len(X)
DEQ = nsd.DEQ("relu", 0.4, 0.8, 0.1)
CASES = [
    *((DEQ, kind) for kind in DEQ.kinds),
    (nsd.Explicit(["relu", "erf"], bias=[0.1, 0.0]), "ntk"),
    (nsd.DeepDEQ([nsd.Layer("relu", 0.5, 0.7), nsd.Layer("erf", 0.3, 0.4)]), "ntk"),
]
PRIOR = {"ck": "ck", "nngp": "nngp", "ntk": "ck", "ntk_frozen_input": "ck", "ntk_injected": "nngp"}


def descend(theta: Any, start: Any, y: Any, steps: int, lr: float, momentum: float) -> Any:
    """Outputs of all samples after steps of torch.optim.SGD on the mean squared error of the first N, linearised."""
    outputs, velocity = start.copy(), np.zeros_like(y)
    for _ in range(steps):
        velocity = momentum * velocity + 2 / y.size * (outputs[:N] - y)
        outputs = outputs - lr * theta[:, :N] @ velocity
    return outputs


@pytest.mark.parametrize(("model", "kind"), CASES)
def test_the_flow_is_the_integral(model: Any, kind: str) -> None:
    theta = model.kernel(ALL, kind=kind)

    def rate(_: float, f: Any) -> Any:
        return (-2 / Y.size * theta[:, :N] @ (f.reshape(-1, 2)[:N] - Y)).ravel()

    times = [0.0, 3.0, 40.0]
    exact = solve_ivp(rate, (0, 40), np.zeros(ALL.shape[0] * 2), "DOP853", times, rtol=1e-11, atol=1e-13).y.T
    exact = exact.reshape(3, -1, 2)
    training = learn.TrainingDynamics(model, X, Y, kind=kind)
    np.testing.assert_allclose(training.predict(TEST, times).mean, exact[:, N:], atol=1e-9)
    np.testing.assert_allclose(training.predict(X, times).mean, exact[:, :N], atol=1e-9)


@pytest.mark.parametrize(("model", "kind"), CASES)
def test_the_covariance_is_that_of_trained_processes(model: Any, kind: str) -> None:
    theta, prior = model.kernel(ALL, kind=kind), model.kernel(ALL, kind=PRIOR[kind])
    training = learn.TrainingDynamics(model, X, Y[:, 0], kind=kind)
    for t in (0.0, 7.0):
        # f_t(x) − mean = Z f_0, with the matrix exponential of the whole system
        decay = scipy.linalg.expm(-2 / N * t * np.hstack([theta[:, :N], np.zeros((len(ALL), len(TEST)))]))
        mean, covariance = training.predict(TEST, t)
        np.testing.assert_allclose(covariance, (decay @ prior @ decay.T)[N:, N:], atol=1e-11)
        fixed = np.concatenate([Y[:, 0], theta[N:, :N] @ np.linalg.solve(theta[:N, :N], Y[:, 0])])
        np.testing.assert_allclose(mean, (fixed - decay @ fixed)[N:], atol=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("share", [0.05, 0.9])
def test_steps(share: float, momentum: float) -> None:
    theta, prior = DEQ.kernel(ALL, kind="ntk"), DEQ.kernel(ALL, kind="ck")
    lr = share * learn.TrainingDynamics(DEQ, X, Y).largest_lr * (1 + momentum)
    training = learn.TrainingDynamics(DEQ, X, Y, lr=lr, momentum=momentum)
    start = np.random.default_rng(1).standard_normal((len(ALL), 2))
    for steps in (0, 1, 2, 37):
        exact = descend(theta, np.zeros_like(start), Y, steps, lr, momentum)
        mean, covariance = training.predict(TEST, steps)
        np.testing.assert_allclose(mean, exact[N:], atol=1e-10)
        np.testing.assert_allclose(training.predict(X, steps).mean, exact[:N], atol=1e-10)
        moved = descend(theta, np.eye(len(ALL)), np.zeros((N, len(ALL))), 0, lr, momentum)
        for column in range(len(ALL)):  # what each initial output becomes, with targets 0
            one = descend(theta, np.tile(np.eye(len(ALL))[:, [column]], 2), np.zeros_like(Y), steps, lr, momentum)
            moved[:, column] = one[:, 0]
        np.testing.assert_allclose(covariance, (moved @ prior @ moved.T)[N:, N:], atol=1e-10)
        one = training.follow(TEST, steps, (start[:N], start[N:]))
        np.testing.assert_allclose(one, descend(theta, start, Y, steps, lr, momentum)[N:], atol=1e-10)


def test_small_steps_are_the_flow() -> None:
    flow = learn.TrainingDynamics(DEQ, X, Y).predict(TEST, 20.0)
    steps = learn.TrainingDynamics(DEQ, X, Y, lr=1e-4).predict(TEST, 200_000)
    np.testing.assert_allclose(steps.mean, flow.mean, atol=1e-4)
    np.testing.assert_allclose(steps.covariance, flow.covariance, atol=1e-4)


def test_the_end_of_training_is_the_kernel_machine() -> None:
    machine = learn.DEQKernelRegressor("relu", 0.4, 0.8, 0.1, "ntk", ridge=0.0, normalize="none").fit(X, Y)
    for options in ({}, {"lr": 0.5, "momentum": 0.5}):
        training = learn.TrainingDynamics(DEQ, X, Y, **options)
        np.testing.assert_allclose(training.predict(TEST, np.inf).mean, machine.predict(TEST), atol=1e-8)
        np.testing.assert_allclose(training.predict(TEST, 10**9).mean, machine.predict(TEST), atol=1e-6)
        assert training.loss(np.inf) < 1e-20


def test_losses_are_those_of_the_predictions() -> None:
    training, held = learn.TrainingDynamics(DEQ, X, Y), np.ones((len(TEST), 2))
    times = [0.0, 5.0, 500.0]
    for rows, targets, found in ((X, Y, training.loss(times)), (TEST, held, training.loss(times, TEST, held))):
        mean, covariance = training.predict(rows, times)
        exact = np.mean((mean - targets) ** 2, axis=(1, 2)) + np.trace(covariance, axis1=1, axis2=2) / len(rows)
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-14)
    assert np.all(np.diff(training.loss(times)) < 0)
    late = training.loss([1e4, 1.1e4])  # small numbers keep their digits: the slowest direction is left
    slowest = np.exp(-4 / Y.size * training.eigenvalues[0] * 1e3)
    assert late[1] / late[0] == pytest.approx(slowest, rel=0.05)


def test_identical_and_opposite_rows() -> None:
    rows = np.vstack([X, X[:1], -X[1:2]])
    training = learn.TrainingDynamics(nsd.DEQ("erf", 0.4, 0.8), rows, np.arange(14.0))
    mean, covariance = training.predict(rows, [0, 10, np.inf])
    assert np.isfinite(mean).all()
    assert np.isfinite(covariance).all()
    assert mean[2, 0] == pytest.approx(mean[2, 12]) == pytest.approx(6.0)  # 0 and 12 cannot both be learned


def test_shapes() -> None:
    training = learn.TrainingDynamics(DEQ, X, Y)
    assert training.predict(TEST, 1.0).mean.shape == (4, 2)
    assert training.predict(TEST, [1.0], covariance=False) == (pytest.approx(training.predict(TEST, [1]).mean), None)
    assert training.loss(1.0).shape == ()
    images = np.random.default_rng(2).standard_normal((3, 4, 4, 2))
    conv = learn.TrainingDynamics(nsd.ConvDEQ("normalized_relu", 0.5, 0.5), images, [1.0, 0.0, 1.0])
    assert conv.predict(images, np.inf).mean == pytest.approx([1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: learn.TrainingDynamics("relu", X, Y), "must be a model"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y, kind="nkt"), "ntk"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y[:5]), "5 rows for 12 samples"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y, lr=1e9), "use lr <"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y, momentum=0.5), "need lr"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y, lr=0.1, momentum=1.0), "momentum < 1"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y, lr=0.1).predict(TEST, 1.5), "leave out lr"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y).predict(TEST, [-1.0]), "number ≥ 0"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y).predict(TEST[:, :2], 1.0), "features"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y).loss(1.0, TEST), "both or neither"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y).loss(1.0, TEST, np.ones(4)), "1 outputs"),
        (lambda: learn.TrainingDynamics(DEQ, X, Y).follow(TEST, 1.0, (Y, np.ones(4))), "2 and 1 outputs"),
    ],
)
def test_bad_input_is_one_line(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def distance(net: Any, model: Any, steps: int) -> float:
    """How far a network trained by nn.fit is from its prediction, relative to how far it moved."""
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("notsodeep.nn")
    rows, new = (torch.tensor(part) for part in (X, TEST))
    with torch.no_grad():
        before = [net(part).numpy() for part in (rows, new)]
    lr = 0.25 * learn.TrainingDynamics(model, X, Y).largest_lr
    training = learn.TrainingDynamics(model, X, Y, lr=lr)
    history = nn.fit(net, rows, torch.tensor(Y), epochs=steps, batch_size=N, optimizer="sgd", lr=lr, progress=False)
    exact = training.follow(X, np.arange(steps), (before[0], before[0]))
    assert [epoch.loss for epoch in history.epochs] == pytest.approx(np.mean((exact - Y) ** 2, axis=(1, 2)), rel=0.2)
    with torch.no_grad():
        after = net(new).numpy()
    predicted = training.follow(TEST, steps, (before[0], before[1]))
    return float(np.linalg.norm(after - predicted) / np.linalg.norm(after - before[1]))


def test_a_wide_network_follows() -> None:
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("notsodeep.nn")
    model = nsd.Explicit(["erf"])
    net = nn.ExplicitNet(model, in_features=5, width=4096, out_features=2, dtype=torch.float64)
    assert distance(net, model, 40) < 0.1  # a few 1/√4096 = 0.016


@pytest.mark.slow
@pytest.mark.parametrize("model", [nsd.DEQ("relu", 0.2, 0.8), nsd.Explicit(["relu", "relu"])])
def test_wider_networks_follow_more_closely(model: Any) -> None:
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("notsodeep.nn")
    make = nn.DEQNet if isinstance(model, nsd.DEQ) else nn.ExplicitNet

    def apart(width: int) -> float:
        nets = [make(model, 5, width, 2, seed=seed, dtype=torch.float64) for seed in range(3)]
        return float(np.mean([distance(net, model, 25) for net in nets]))

    narrow, wide = apart(256), apart(4096)
    assert wide < 0.1
    assert wide < narrow / 2
