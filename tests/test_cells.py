"""Cells of several layers against long iteration in extended precision and against finite networks.

Also covers: recursion.py.
"""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.cell_oracle import Level, kernels, random_levels
from tests.command_line import Run

import notsodeep as nsd
from notsodeep import DeepDEQ, InputError, Layer
from notsodeep.learn import DEQKernelClassifier, ExplicitKernelRegressor, load

TWO = DeepDEQ([Layer("relu", recurrent=0.5, input=0.7), Layer("relu", recurrent=0.6, input=0.4)])


def phi_of(level: Level) -> Any:
    if isinstance(level.phi, str):
        return nsd.activation(level.phi)
    low, high = level.phi
    if low == high:
        return nsd.activation("identity") * high
    return nsd.activation("piecewise_linear", kinks=[0.0], slopes=[low, high])


def cell_of(levels: tuple[Level, ...]) -> DeepDEQ:
    return DeepDEQ([Layer(phi_of(v), v.a, v.b, v.c, v.normalize) for v in levels])


def check_bound(model: Any, levels: tuple[Level, ...], rows: Any, closed: bool = True, most: float = 1e-10) -> None:
    """Every entry lies within twice the stated error, and that is small."""
    found, info = model.kernel(rows, kind=model.kinds, return_info=True)
    assert info.error < most
    for i in range(len(rows)):
        for j in range(i, len(rows)):
            truth = kernels(levels, closed, rows[i], rows[j])
            for kind in model.kinds:
                K = getattr(found, kind)
                scale = math.sqrt(K[i, i] * K[j, j])
                assert abs(K[i, j] - float(truth[kind])) <= 2 * info.error * scale, (kind, i, j)


def test_one_layer_is_a_deq_to_the_bit() -> None:
    X = np.random.default_rng(0).standard_normal((20, 5))
    for phi, bias in (("relu", 0.0), ("tanh", 0.3), ("hard_tanh", 0.1)):
        cell, deq = DeepDEQ([Layer(phi, 0.2, 0.8, bias)]), nsd.DEQ(phi, 0.2, 0.8, bias)
        for kind in cell.kinds:
            np.testing.assert_array_equal(cell.kernel(X, kind=kind), deq.kernel(X, kind=kind))
            np.testing.assert_array_equal(cell.kernel_diag(X, kind=kind), deq.kernel_diag(X, kind=kind))
        assert cell.well_posed.infinite_width.value == deq.well_posed.infinite_width.value


def test_the_diagonal_of_two_relu_layers_by_hand() -> None:
    """v₁ = (0.5 v₂ + 0.7)/2, v₂ = (0.6 v₁ + 0.4)/2."""
    v2 = (0.3 * 0.35 + 0.2) / (1 - 0.3 * 0.25)
    assert TWO.kernel(np.eye(2))[0, 0] == pytest.approx(v2, rel=1e-14)
    assert TWO.kernel_diag(np.eye(2))[0] == pytest.approx(v2, rel=1e-14)


RELU, LEAKY, ABS, IDENTITY = (0.0, 1.0), (0.25, 1.0), (-1.0, 1.0), (1.0, 1.0)


@pytest.mark.parametrize(
    "levels",
    [
        (Level(RELU, 0.5, 0.7), Level(RELU, 0.6, 0.4)),
        (Level("erf", 0.4, 0.5, 0.1), Level(RELU, 0.6, 0.0)),
        (Level(RELU, 0.5, 0.7), Level(IDENTITY, 0.9, 0.2), Level("erf", 0.8, 0.0, 0.2)),
        (Level("erf", 0.5, 0.5), Level(IDENTITY, 0.8, 0.3, 0.0, "rms")),
        (Level(RELU, 0.9, 0.6, 0.1, "layer"), Level(LEAKY, 0.5, 0.3, 0.2)),
        (Level(LEAKY, 0.5, 2.6, 0.4, "layer"), Level(ABS, 0.3, 0.3, 0.0, "rms")),
        (Level(RELU, 1.9, 0.1), Level(RELU, 1.9, 0.1)),
    ],
    ids=["relu-relu", "erf-relu", "three", "rms", "layer", "both", "limit"],
)
def test_kernels_against_long_iteration(levels: tuple[Level, ...]) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((5, 3)) * np.array([[0.3], [1.0], [1.0], [2.0], [1.0]])
    rows[3] = -1.5 * rows[2]
    check_bound(cell_of(levels), levels, rows, most=2e-12)
    check_bound(cell_of(levels), levels, rows / np.linalg.norm(rows, axis=1, keepdims=True), most=2e-12)


@pytest.mark.parametrize("distance", [1e-3, 1e-8, 1e-12])
@pytest.mark.parametrize("normalize", ["rms", "layer"])
def test_nearly_equal_rows_keep_their_digits(distance: float, normalize: str) -> None:
    levels = (
        Level("erf", 0.5, 0.5),
        Level(RELU, 0.9, 0.2),
        Level(RELU, 1.1, 0.0, 0.0, normalize),
        Level(ABS, 0.6, 0.2),
    )
    x = np.array([0.6, -0.7, 0.3])
    rows = np.stack([x, x + distance * np.array([0.3, 0.5, -0.2])])
    check_bound(cell_of(levels), levels, rows, most=2e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 4), share=st.floats(0.05, 0.9))
def test_the_stated_error_of_any_cell_is_a_bound(seed: int, count: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    levels = random_levels(rng, count, share)
    rows = rng.standard_normal((3, 4)) * rng.uniform(0.3, 2.0, (3, 1))
    rows[2] = rows[1] * (1 + 10.0 ** -rng.integers(1, 14))
    cell = cell_of(levels)
    try:
        cell.kernel_diag(rows)
    except InputError as error:
        assert "contract" in str(error) or "well-posed" in str(error)  # noqa: PT017
        return
    squares = [float(row @ row) for row in rows]
    assume(max(cell.recursion(square).contraction(square) for square in squares) < 0.98)  # or the oracle takes for ever
    check_bound(cell, levels, rows, most=1e-9)


def test_explicit_networks_with_biases() -> None:
    levels = (Level(RELU, 0.0, 1.0, 0.5), Level("erf", 1.0, 0.0, 0.2), Level(ABS, 1.0, 0.0))
    net = nsd.Explicit(["relu", "erf", "abs"], bias=[0.5, 0.2, 0.0])
    check_bound(net, levels, np.random.default_rng(2).standard_normal((4, 4)), closed=False, most=1e-12)
    assert nsd.Explicit(["relu"], bias=0.0) == nsd.Explicit(["relu"])
    with pytest.raises(InputError, match="bias has 3 entries for 2 layers"):
        nsd.Explicit(["relu", "tanh"], bias=[1, 2, 3])


# --- finite networks --------------------------------------------------------------------


def finite(cell: DeepDEQ, X: Any, width: int, seed: int, iterations: int = 20) -> tuple[Any, Any]:
    """CK and NTK of one finite network, by iteration and autograd; float64."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    forms = {"relu(x)": torch.relu, "tanh(x)": torch.tanh, "x": lambda u: u}
    weights = [(draw(width, width), draw(width, X.shape[1]), draw(width)) for _ in cell.layers]
    readout = draw(width)
    parameters = [readout, *(w for layer in weights for w in layer)]

    def state(x: Any) -> Any:
        z = torch.zeros(width, dtype=torch.float64)
        for _ in range(iterations):
            start, h = z, z
            for layer, (W, U, b) in zip(cell.layers, weights, strict=True):
                h = math.sqrt(layer.recurrent) * W @ h + math.sqrt(layer.input) * U @ x + math.sqrt(layer.bias) * b
                h = forms[str(layer.activation)](h + layer.skip * start * math.sqrt(width))
                h = h + layer.residual * start * math.sqrt(width)
                if layer.normalize == "layer":
                    h = (h - h.mean()) / h.std(correction=0)
                elif layer.normalize == "rms":
                    h = h / h.square().mean().sqrt()
                h = h / math.sqrt(width)
            z = h
        return z

    states = [state(torch.as_tensor(x)) for x in X]
    gradients = [torch.autograd.grad(readout @ z, parameters, retain_graph=True, allow_unused=True) for z in states]
    flat = torch.stack([torch.cat([g.ravel() for g in gs if g is not None]) for gs in gradients])
    Z = torch.stack(states).detach()
    return (Z @ Z.T).numpy(), (flat @ flat.T).numpy()


CELLS = {
    "two": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("tanh", 0.4, 0.4, 0.2)]),
    "three": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("identity", 0.4, 0.1), Layer("relu", 0.4, 0.4)]),
    "rms": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("identity", 0.3, 0.8, normalize="rms")]),
    "layer": DeepDEQ([Layer("tanh", 0.3, 0.7), Layer("relu", 0.2, 0.8, normalize="layer")]),
    "residual": DeepDEQ([Layer("relu", 0.1, 0.7), Layer("tanh", 0.1, 0.4, residual=0.4)]),
    "skip": DeepDEQ([Layer("tanh", 0.2, 0.7), Layer("relu", 0.2, 0.4, skip=0.4)]),
    "post-norm": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("identity", 0.3, 0.8, normalize="layer", residual=1.0)]),
    "multiscale": DeepDEQ([Layer("relu", 0.1, 0.7), Layer("relu", 0.1, 0.9, normalize="layer", skip=0.5)]),
}


@pytest.mark.parametrize("name", CELLS)
def test_finite_networks_have_these_kernels(name: str) -> None:
    """Means over draws agree within four standard errors and a bias of the order 1/width."""
    X = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
    width, draws = 200, 24
    found = np.array([finite(CELLS[name], X, width, seed) for seed in range(draws)])
    theory = [CELLS[name].kernel(X, kind=kind) for kind in ("ck", "ntk")]
    error = found.std(axis=0, ddof=1) / math.sqrt(draws)
    allowed = 4 * error + 4 / width * np.abs(theory)
    assert (np.abs(found.mean(axis=0) - theory) <= allowed).all(), (found.mean(axis=0), theory, error)
    assert (allowed[0] <= 0.2 * theory[0][0, 0]).all()  # the comparison means something


# --- in high dimension ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("three", "nngp"),
        ("three", "ntk"),
        ("rms", "ck"),
        ("rms", "ntk"),
        ("layer", "ck"),
        ("layer", "ntk"),
        ("skip", "ck"),
    ],
)
def test_four_numbers_describe_a_cell(name: str, kind: str) -> None:
    """The distance of the kernel on a mixture from its equivalent falls like √(log n/n); a wrong number would stay."""
    cell = DeepDEQ([Layer(v.activation, v.recurrent, v.input, 0.0, v.normalize, v.skip) for v in CELLS[name].layers])
    sizes, errors = (150, 750), []
    for n in sizes:
        p = n // 2
        means = np.zeros((2, p))
        means[0, 0] = 2.0
        mixture = nsd.Mixture(means, [1.0, 1.0 + 2 / math.sqrt(p)], [0.4, 0.6])
        found = []
        for seed in range(2):
            X, labels = mixture.sample(n, seed)
            stats = mixture.statistics(X, labels)
            K = cell.centered(stats.tau0).kernel(X, kind=kind)
            M = nsd.equivalent(cell, X, stats, kind).dense()
            found.append(np.linalg.norm(K - M, 2) / np.linalg.norm(K, 2))
        errors.append(np.mean(found))
    assert math.log(errors[1] / errors[0]) / math.log(sizes[1] / sizes[0]) < -0.28, errors


def test_one_layer_has_the_coefficients_of_a_deq() -> None:
    deq, cell = nsd.DEQ("swish", 0.2, 0.8), DeepDEQ([Layer("swish", 0.2, 0.8)])
    for kind in cell.kinds:
        np.testing.assert_allclose(
            nsd.coefficients(cell, 1.3).weights(kind), nsd.coefficients(deq, 1.3).weights(kind), rtol=1e-13
        )


@pytest.mark.parametrize("name", ["two", "three", "rms", "layer", "skip", "multiscale"])
def test_one_hidden_layer_has_the_kernel_of_a_cell(name: str) -> None:
    X = np.random.default_rng(0).standard_normal((60, 30))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for kind, limit in (("ck", 1e-9), ("ntk", 1e-8)):
        k = CELLS[name].on_sphere(kind)
        np.testing.assert_allclose(k(X @ X.T), CELLS[name].kernel(X, kind=kind), rtol=0, atol=1e-7 * k(1.0))
        m = nsd.match(CELLS[name], tau0=1.0, kind=kind, on="sphere")
        assert m.network.depth == 1
        assert m.distance_on(X) <= limit


def test_forecasts_of_a_cell_and_of_its_match_agree() -> None:
    """Accuracy depends on the four numbers alone."""
    p = 200
    mixture = nsd.Mixture(np.eye(2, p) * 2, [1.0, 1.0], [0.5, 0.5])
    options: dict[str, Any] = {"n": 400, "ridge": 0.05, "kind": "ck"}
    deq, cell = nsd.DEQ("relu", 0.2, 0.8), DeepDEQ([Layer("relu", 0.2, 0.8)])
    assert nsd.forecast(cell, mixture, **options).accuracy == pytest.approx(
        nsd.forecast(deq, mixture, **options).accuracy, abs=1e-12
    )
    tau0 = math.sqrt(float(np.trace(np.eye(p))) / p)
    network = nsd.match(TWO, tau0=tau0).network
    assert nsd.forecast(network, mixture, **options).accuracy == pytest.approx(
        nsd.forecast(TWO, mixture, **options).accuracy, abs=1e-6
    )
    with pytest.raises(InputError, match="no forecast at finite width"):
        nsd.forecast(TWO, mixture, width=300, **options)


def test_a_cell_is_matched_by_an_explicit_network() -> None:
    m = nsd.match(TWO, tau0=1.0, kind="ck")
    assert m.exact
    assert m.network.depth <= 3


# --- descriptions and bad input ---------------------------------------------------------


def test_a_cell_survives_a_file(tmp_path: Any) -> None:
    cell = DeepDEQ([Layer("tanh", 0.3, 0.7), Layer("relu", 0.2, 0.8, 0.1, normalize="layer", residual=0.5)])
    assert nsd.load_model(cell.save(tmp_path / "cell.json")) == cell
    net = nsd.Explicit(["relu", "tanh"], bias=[0.1, 0.2])
    assert nsd.load_model(net.save(tmp_path / "net.json")) == net


def test_estimators_take_cells_and_keep_them_in_files(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.integers(0, 2, 40)
    machine = DEQKernelClassifier(kind="ntk", cell=TWO, ridge=0.1).fit(X, y)
    prepared = machine.X_fit_
    expected = np.linalg.solve(TWO.kernel(prepared, kind="ntk") + 0.1 * np.eye(40), 2.0 * y - 1)
    np.testing.assert_allclose(machine.dual_coef_[:, 0], expected, rtol=1e-8)
    again = load(machine.save(tmp_path / "m.npz"))
    assert again.cell == TWO
    np.testing.assert_array_equal(again.decision_function(X), machine.decision_function(X))
    net = nsd.Explicit(["relu", "erf"], bias=[0.3, 0.1])
    biased = ExplicitKernelRegressor(net, kind="ck").fit(X, X[:, 0])
    assert load(biased.save(tmp_path / "e.npz")).activations == net
    with pytest.raises(InputError, match="cell='relu' must be"):
        DEQKernelClassifier(cell="relu").fit(X, y)
    with pytest.raises(InputError, match="kind='ntk_injected'"):
        DEQKernelClassifier(cell=TWO).fit(X, y)


def test_commands_take_cells(run: Run, tmp_path: Any) -> None:
    cell = str(TWO.save(tmp_path / "cell.json"))
    found = run("kernel", "digits", "--cell", cell, "--limit", "50", "--out", tmp_path / "K.npy", "--json")
    assert found.code == 0, found.err
    assert np.load(tmp_path / "K.npy").shape == (50, 50)
    assert found.json["model"] == TWO.to_dict()
    found = run("match", "--cell", cell, "--data", "digits", "--limit", "200", "--json")
    assert found.code == 0, found.err
    assert found.json["match"]["exact"]
    found = run("show", cell)
    assert found.code == 0, found.err
    assert "relu" in found.out


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Layer("relu", -0.1, 0.5), "recurrent=-0.1"),
        (lambda: Layer("relu", 0.0, 0.0), "leave nothing that drives"),
        (lambda: Layer("relu", 0.5, 0.5, normalize="batch"), "normalize='batch'"),
        (lambda: DeepDEQ([]), "must be a list of Layer"),
        (lambda: DeepDEQ(["relu"]), "must be a list of Layer"),  # type: ignore[list-item]
        (lambda: DeepDEQ([Layer("relu", 0.5)]), "nothing drives the cell"),
        (lambda: DeepDEQ([Layer("relu", 0.5, 1, skip=0.1), Layer("relu", 0.5)]), "only the last layer"),
        (lambda: DeepDEQ([Layer("tanh", 0.5, 1, skip=0.1)]), "no closed form"),
        (lambda: DeepDEQ([Layer("relu", 0.5, 1, skip=1.0)]), "skip < 1"),
        (
            lambda: DeepDEQ(
                [Layer("relu", 0.3, 0.5), Layer("relu", 0.3, 0.5, normalize="layer", skip=1e200)]
            ).recursion(1.0),
            "skip=1e\\+200 is too large",
        ),
        (lambda: DeepDEQ([Layer("relu", 0.5, 1, residual=1.0)]), "residual < 1"),
        (lambda: DeepDEQ([Layer("relu", 3, 1), Layer("relu", 2, 1)]).kernel(np.eye(2)), "not well-posed"),
        (lambda: TWO.kernel(np.eye(2), kind="ntk_injected"), "kind='ntk_injected'"),
        (lambda: TWO.kernel(np.eye(2), depth=3), "depth=3 is for a DEQ"),
        (lambda: CELLS["multiscale"].kernel(np.diag([1.0, 2.0])), "rows of one norm"),
        (
            lambda: DeepDEQ([Layer("tanh", 9.0, 0.01, normalize="rms"), Layer("tanh", 9.0, 0.01)]).kernel(np.eye(2)),
            "does not contract",
        ),
    ],
)
def test_bad_cells_get_one_line(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_a_file_is_read_before_anything_else_was_imported(tmp_path: Any) -> None:
    path = nsd.DeepDEQ([nsd.Layer("relu", recurrent=0.2, input=0.8)]).save(tmp_path / "cell.json")
    code = f"import notsodeep as nsd; print(type(nsd.load_model({str(path)!r})).__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout == "DeepDEQ\n"
