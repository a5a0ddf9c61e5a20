"""From any DEQ to its explicit equivalent."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from tests.public_cells import Monotone

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError
from notsodeep.nn.plain_cell import as_activation


def gaussian(n: int, p: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, p, generator=torch.Generator().manual_seed(seed), dtype=dtype) / p**0.5


class Theirs(torch.nn.Module):
    """A DEQ as somebody else writes it: linear layers, a function, a loop."""

    def __init__(self, m: int, p: int, act=torch.tanh) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.W, self.U = torch.nn.Linear(m, m, bias=False), torch.nn.Linear(p, m, bias=False)
        self.out = torch.nn.Linear(m, 2)
        self.act = act
        with torch.no_grad():
            self.W.weight.normal_(0, (0.2 / m) ** 0.5, generator=generator)
            self.U.weight.normal_(0, 0.8**0.5, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(len(x), self.W.out_features)
        for _ in range(40):
            h = self.act(self.W(h) + self.U(x))
        return self.out(h)


def test_a_fresh_network_meets_every_assumption_and_gets_its_own_match():
    deq = nsd.DEQ("tanh", recurrent=0.2, input=0.8)
    found = nn.match_module(nn.DEQNet(deq, 300, 400, 3), 2 * gaussian(60, 300))
    assert found.trustworthy, str(found)
    assert found.deq.recurrent == pytest.approx(0.2, rel=0.02)
    assert found.deq.input == pytest.approx(0.8, rel=0.02)
    assert found.tau0 == pytest.approx(2.0, rel=0.05)
    assert found.match.exact
    assert (found.network.in_features, found.network.width, found.network.out_features) == (300, 400, 3)
    theory = nsd.match(found.deq, tau0=found.tau0).network
    assert str(found.network.explicit) == str(theory)


@pytest.mark.parametrize("phi", [torch.tanh, torch.nn.Tanh(), "tanh", nsd.activation("tanh"), lambda x: torch.tanh(x)])
def test_somebody_elses_module_is_understood(phi):
    found = nn.match_module(Theirs(200, 100, torch.tanh), gaussian(30, 100), activation=phi)
    assert found.trustworthy, str(found)
    assert found.network.out_features == 2
    assert found.deq.activation.lipschitz == pytest.approx(1.0, rel=1e-6)
    assert found.match.residual < 1e-6


def test_bare_weights_are_enough():
    theirs = Theirs(200, 100, torch.relu)
    weights = {"W": theirs.W.weight, "U": theirs.U.weight, "phi": torch.relu}
    found = nn.match_module(weights, gaussian(30, 100))
    assert (found.match.family, found.match.depth) == ("hermite", 1)
    named = nn.match_module(
        {}, gaussian(30, 100), weight=theirs.W.weight, input_weight=theirs.U.weight, activation="relu"
    )
    assert str(named.match) == str(found.match)
    with pytest.raises(InputError, match="only weights"):
        nn.match_module(weights, gaussian(30, 100), distill=1)


def test_weights_that_training_has_changed_are_named():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.05, 0.8), 100, 200)
    with torch.no_grad():
        net.recurrent += 1.2  # a rank-one outlier
    found = nn.match_module(net, gaussian(30, 100))
    failed = {one.name for one in found.assumptions if not one.holds}
    assert {"‖W‖/(2σ_a)", "mean of W, in σ"} <= failed
    assert not found.trustworthy
    assert "FAIL" in str(found)
    first = next(one for one in found.assumptions if not one.holds)
    assert f">{first.meaning}: " in found._repr_html_()  # what is assumed, then whether it holds
    assert ">no</td>" in found._repr_html_()
    uneven = nn.match_module(
        nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.8), 100, 200), gaussian(30, 100) * torch.arange(30.0)[:, None]
    )
    assert "spread of ‖x‖²" in [one.name for one in uneven.assumptions if not one.holds]


def test_the_matched_network_has_the_kernel_of_the_deq():
    deq = nsd.DEQ("relu", 0.2, 0.8)
    X = gaussian(80, 400, dtype=torch.float64)
    found = nn.match_module(nn.DEQNet(deq, 400, 300, dtype=torch.float64), X, on="mixture")
    centred = deq.centered(found.tau0).kernel(X.numpy(), kind="ck")
    matched = found.network.explicit.kernel(X.numpy(), kind="ck")
    plain = nsd.Explicit(["relu"]).centered(found.tau0).kernel(X.numpy(), kind="ck")
    error = np.linalg.norm(matched - centred, 2) / np.linalg.norm(centred, 2)
    assert error < 0.1
    assert error < 0.3 * np.linalg.norm(plain - centred, 2) / np.linalg.norm(centred, 2)


@pytest.mark.parametrize("seed", [lambda: 2**32 - 1, lambda: np.random.default_rng(0)], ids=["largest", "Generator"])
def test_any_seed(seed):
    net, X = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 20, 30), gaussian(30, 20)
    first, again = (nn.match_module(net, X, seed=seed()).network(X) for _ in range(2))
    assert torch.equal(first, again)


def test_distillation_brings_the_outputs_together():
    teacher, X = Theirs(120, 20), gaussian(200, 20)
    found = nn.match_module(teacher, X, distill=40, lr=0.02)
    assert found.distillation.last.loss < 0.1 * found.distillation.epochs[0].loss
    again = nn.match_module(teacher, X, distill=40, lr=0.02)
    assert torch.equal(again.network(X), found.network(X))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": torch.zeros(3, 4)}, r"W has shape \(3, 4\)"),
        ({"weight": torch.zeros(3)}, "must be a matrix"),
        ({"weight": torch.full((5, 5), torch.nan)}, "W holds NaN"),
        ({"activation": "rellu"}, "did you mean 'relu'"),
        ({"lr": 0.1}, "pass distill"),
    ],
)
def test_bad_modules_are_refused(arguments, message):
    module = {"W": torch.eye(5) * 0.3, "U": torch.ones(5, 2), "phi": "tanh"}
    with pytest.raises(InputError, match=message):
        nn.match_module(module, gaussian(4, 2), **arguments)


def test_missing_parts_are_named():
    with pytest.raises(InputError, match="pass weight="):
        nn.match_module(torch.nn.Identity(), gaussian(4, 2))
    with pytest.raises(InputError, match="pass activation="):
        nn.match_module({"W": torch.eye(3), "U": torch.eye(3)}, gaussian(4, 3))
    with pytest.raises(InputError, match="X has 3 numbers a sample but U of the cell takes 2"):
        nn.match_module({"W": torch.eye(3), "U": torch.ones(3, 2), "phi": "tanh"}, gaussian(4, 3))
    cell = nsd.DeepDEQ([nsd.Layer("relu", 0.1, 0.7), nsd.Layer("tanh", 0.2, 0.4)])
    with pytest.raises(InputError, match=r"no single cell; match_module takes cells h = φ.*nn\.replace"):
        nn.match_module(nn.DEQNet(cell, 3, 4), gaussian(4, 3))


def test_uncentred_activations_and_biases_get_one_layer_on_the_sphere():
    X = torch.nn.functional.normalize(gaussian(80, 100))
    for deq in (nsd.DEQ("relu", 0.2, 0.8), nsd.DEQ("tanh", 0.2, 0.8, bias=0.3)):
        found = nn.match_module(nn.DEQNet(deq, 100, 300), X)
        assert found.trustworthy, str(found)
        assert (found.match.exact, found.match.depth) == (True, 1)
        assert found.deq.bias == pytest.approx(deq.bias, rel=0.2)
        theory = found.deq.kernel(X.numpy())
        assert np.linalg.norm(found.network.explicit.kernel(X.numpy()) - theory, 2) < 1e-5 * np.linalg.norm(theory, 2)
    forced = nn.match_module(nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8, bias=0.3), 100, 300), X, on="mixture")
    assert {"σ_0, bias", "|E φ(τ*ξ)|/√Var φ(τ*ξ)"} <= {one.name for one in forced.assumptions if not one.holds}


def test_biases_inside_linear_layers_count():
    theirs = Theirs(100, 50)
    theirs.W.bias = torch.nn.Parameter(torch.full((100,), 0.3))
    theirs.U.bias = torch.nn.Parameter(torch.full((100,), 0.4))
    for own, expected in ((None, 0.7), (torch.full((100,), 0.1), 0.8)):
        found = nn.match_module(theirs, gaussian(30, 50), bias=own)
        assert found.deq.bias == pytest.approx(expected**2, rel=1e-6)
    assert found.equation > 0.02  # the bias that was added is not in the module


class LayerNormCell(Theirs):
    def __init__(self, m, p):
        super().__init__(m, p, torch.tanh)
        self.norm = torch.nn.LayerNorm(m)

    def step(self, h, x):
        return self.norm(torch.tanh(self.W(h) + self.U(x)))

    def forward(self, x):
        h = torch.zeros(len(x), self.W.out_features)
        for _ in range(60):
            h = self.step(h, x)
        return self.out(h)


class ResidualCell(LayerNormCell):
    def step(self, h, x):
        return 0.5 * h + torch.tanh(self.W(h) + self.U(x))


class ScaledCell(LayerNormCell):
    def step(self, h, x):
        return torch.tanh(0.9 * self.W(h) + self.U(x))


class HiddenCell(LayerNormCell):
    """W is never multiplied itself."""

    def step(self, h, x):
        return torch.tanh(h @ (0.9 * self.W.weight).t() + self.U(x))


@pytest.mark.parametrize("cell", [LayerNormCell, ResidualCell, ScaledCell, HiddenCell])
def test_a_cell_of_another_form_is_not_trusted(cell):
    """The weights look right; only the equation at the module's own state tells."""
    X = torch.nn.functional.normalize(gaussian(60, 100))
    module = cell(200, 100)
    found = nn.match_module(module, X)
    failed = [one.name for one in found.assumptions if not one.holds]
    assert "‖φ(Wh + Ux + b) − h‖/‖h‖" in failed, str(found)
    assert not found.trustworthy
    assert "nn.replace" in str(found)
    if cell is ScaledCell:  # against the equation written out
        with torch.no_grad():
            h = torch.zeros(60, 200)
            for _ in range(200):
                h = module.step(h, X)
            gap = torch.tanh(module.W(h) + module.U(X)) - h
        assert found.equation == pytest.approx(float(gap.norm() / h.norm()), rel=1e-3)


def test_a_damped_iteration_has_the_same_equilibrium_and_is_trusted():
    class Damped(LayerNormCell):
        def step(self, h, x):
            return 0.3 * h + 0.7 * torch.tanh(self.W(h) + self.U(x))

    found = nn.match_module(Damped(300, 100), torch.nn.functional.normalize(gaussian(60, 100)))
    assert found.trustworthy, str(found)
    assert found.equation < 1e-5


def test_an_input_weight_that_ignores_most_features_is_not_trusted():
    module, X = Theirs(200, 100, torch.tanh), torch.nn.functional.normalize(gaussian(60, 100))
    assert nn.match_module(module, X).trustworthy
    with torch.no_grad():
        module.U.weight[:, 10:] = 0
        module.U.weight *= 10**0.5  # the variance is as before
    found = nn.match_module(module, X)
    assert {one.name for one in found.assumptions if not one.holds} >= {
        *("kernel distance on X", "kernel on X, in σ", "rows and columns of U, in σ")
    }
    assert found.distance > 0.3
    assert found.equation < 1e-5


def sparse_rows(module):
    module.U.weight[len(module.U.weight) // 10 :] = 0
    module.U.weight *= 10**0.5


def half_columns(module):
    module.U.weight[:, 50:] = 0
    module.U.weight *= 2**0.5


def low_rank(module):
    left, middle, right = torch.linalg.svd(module.U.weight, full_matrices=False)
    middle[10:] = 0
    module.U.weight.copy_((left * middle) @ right)
    module.U.weight *= (0.8 / module.U.weight.square().mean()) ** 0.5


def heavy_rows(module):
    module.W.weight[:20] *= 3


@pytest.mark.parametrize("width", [50, 200])
@pytest.mark.parametrize(
    ("change", "name"),
    [
        (sparse_rows, "rows and columns of U, in σ"),
        (half_columns, "rows and columns of U, in σ"),
        (low_rank, "‖U‖/(σ_b(√m + √p))"),
        (heavy_rows, "rows and columns of W, in σ"),
    ],
)
def test_weights_with_a_structure_are_not_trusted(change, name, width):
    """Variances and means are those of random weights; at such widths noise hides the kernel's norm."""
    module, X = Theirs(width, 100, torch.tanh), torch.nn.functional.normalize(gaussian(60, 100))
    with torch.no_grad():
        change(module)
    failed = [one.name for one in nn.match_module(module, X).assumptions if not one.holds]
    assert name in failed
    if change is sparse_rows:
        assert "kernel on X, in σ" in failed


def test_one_sample_is_enough_to_see_missing_columns():
    module, X = Theirs(200, 100, torch.tanh), torch.nn.functional.normalize(gaussian(60, 100))
    assert nn.match_module(module, X[:1]).trustworthy
    with torch.no_grad():
        module.U.weight[:, 10:] = 0
        module.U.weight *= 10**0.5
    assert not nn.match_module(module, X[:1]).trustworthy


def test_a_state_that_settled_must_solve_the_equation():
    """0.9·W with a small W misses it by 1.6 %, less than solvers may that stop early."""
    X = torch.nn.functional.normalize(gaussian(60, 100))
    module = ScaledCell(200, 100)
    with torch.no_grad():
        module.W.weight *= 0.5
    found = nn.match_module(module, X)
    assert found.equation < 0.02
    assert [one.name for one in found.assumptions if not one.holds] == ["‖φ(Wh + Ux + b) − h‖/‖h‖"]


def test_what_follows_the_state_is_seen():
    """The design stands for one cell, and for a readout of its state, not of its square."""
    X = torch.nn.functional.normalize(gaussian(60, 100))

    class Squared(Theirs):
        def forward(self, x):
            h = torch.zeros(len(x), self.W.out_features)
            for _ in range(40):
                h = self.act(self.W(h) + self.U(x))
            return self.out(h**2)

    class State(Squared):
        def forward(self, x):
            h = torch.zeros(len(x), self.W.out_features)
            for _ in range(40):
                h = self.act(torch.einsum("bi,oi->bo", h, self.W.weight) + self.U(x))
            return h

    twice = torch.nn.Sequential(Theirs(200, 100), torch.nn.Linear(2, 100), Theirs(200, 100))
    with torch.no_grad():
        twice[2].W.weight.copy_(twice[0].W.weight.flip(0))
    with pytest.raises(InputError, match="holds 2 cells"):
        nn.match_module(twice, X, activation="tanh")
    found = nn.match_module(Squared(200, 100), X, activation="tanh")
    assert "‖h read − h‖/‖h‖" in [one.name for one in found.assumptions if not one.holds], str(found)
    found = nn.match_module(State(200, 100), X)
    assert found.trustworthy, str(found)


class Followed(Theirs):
    def __init__(self, result) -> None:
        super().__init__(100, 20)
        self.out, self.skip = torch.nn.Linear(100, 10), torch.nn.Linear(20, 10)
        self.last, self.result = torch.nn.Linear(10, 3), result

    def forward(self, x):
        h = torch.zeros(len(x), self.W.out_features)
        for _ in range(40):
            h = self.act(self.W(h) + self.U(x))
        return self.result(self, x, h)


@pytest.mark.parametrize(
    ("result", "trusted"),
    [
        (lambda self, x, h: self.last(self.out(h)), True),
        (lambda self, x, h: (h, self.out(h)), True),
        (lambda self, x, h: self.out(h).softmax(1), False),
        (lambda self, x, h: self.out(h) * h.norm(dim=1, keepdim=True), False),
        (lambda self, x, h: self.skip(x) + self.out(h), False),
        (lambda self, x, h: self.out(h) - self.out(h).mean(0), False),  # of other rows
    ],
)
def test_outputs_of_a_trusted_module_are_affine_in_its_state(result, trusted):
    X = gaussian(60, 20)
    found = nn.match_module(Followed(result), X)
    assert found.trustworthy is trusted, str(found)
    if not trusted:
        assert [one.name for one in found.assumptions if not one.holds] == ["outputs − affine map of h"]


class WithSkip(torch.nn.Module):
    def __init__(self, net, scale) -> None:
        super().__init__()
        self.net, self.skip, self.scale = net, torch.nn.Linear(20, 32), scale

    def forward(self, x):
        return self.net(x) + self.scale * self.skip(x)


def test_a_trusted_wrapper_adds_linear_maps_alone():
    X = gaussian(60, 20)

    def found(*tail, rows=X):
        net = nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), 20, 100, 32, seed=0)
        module = WithSkip(net, *tail) if isinstance(tail[0], float) else torch.nn.Sequential(net, *tail)
        return nn.match_module(module, rows)

    linear = torch.nn.Linear(32, 10)
    for rows in (X, X[:1]):
        assert found(linear, rows=rows).trustworthy
        assert not found(10.0, rows=rows).trustworthy
    assert found(torch.nn.BatchNorm1d(32), linear).trustworthy
    for tail in ((torch.nn.ReLU(), linear), (torch.nn.Softmax(1),), (torch.nn.Tanh(), linear)):
        failed = [one.name for one in found(*tail).assumptions if not one.holds]
        assert failed == ["outputs − affine map of h"], tail


@pytest.mark.parametrize("phi", ["tanh", "relu"])
@pytest.mark.parametrize(("width", "seeds"), [(50, 6), (200, 4), (1000, 1)])
def test_random_weights_are_trusted(phi, width, seeds):
    for seed in range(seeds):
        X = torch.nn.functional.normalize(gaussian(60, 100, seed))
        for law in ("gaussian", "uniform", "rademacher"):
            net = nn.DEQNet(nsd.DEQ(phi, 0.2, 0.8), 100, width, seed=100 + seed, initialization=law)
            found = nn.match_module(net, X, seed=seed)
            assert found.trustworthy, (law, seed, str(found))
            if width == 1000:
                break


def test_a_monotone_deq_is_sent_to_replace():
    module, X = Monotone(40, 20), gaussian(50, 20)
    with pytest.raises(InputError, match=r"h = φ\(W h \+ U x \+ b\).*nn\.replace"):
        nn.match_module(module, X)
    found = nn.match_module(module, X, weight=module.matrix().detach())
    assert not found.trustworthy
    with pytest.raises(InputError, match=r"no infinite-width limit.*nn\.replace"):
        nn.match_module(module, X, weight=3 * module.matrix().detach())


def test_inputs_and_modules_of_many_kinds():
    X = torch.nn.functional.normalize(gaussian(40, 60))
    module = Theirs(150, 60, torch.tanh)
    plain = nn.match_module(module, X)
    sparse = scipy.sparse.csr_matrix(X.numpy())
    for rows in (X.numpy(), X.double().numpy(), sparse, X.to_sparse(), X.numpy().tolist()):
        found = nn.match_module(module, rows)
        assert (found.distance, found.equation) == pytest.approx((plain.distance, plain.equation), rel=1e-4)
    compiled = nn.match_module(torch.compile(module), X)
    assert compiled.distance == pytest.approx(plain.distance, rel=1e-4)
    half = nn.match_module(HalfCell(150, 60).to(torch.bfloat16), X)
    assert half.trustworthy, str(half)
    assert half.network.readout.dtype == torch.float32
    for bad, message in ((X[0], "one sample a row"), ("rows", "pass an array"), (X * torch.nan, "NaN")):
        with pytest.raises(InputError, match=message):
            nn.match_module(module, bad)


class HalfCell(Theirs):
    def __init__(self, m, p):
        super().__init__(m, p, torch.tanh)

    def forward(self, x):
        h = x.new_zeros(len(x), self.W.out_features)
        for _ in range(30):
            h = self.act(self.W(h) + self.U(x))
        return self.out(h)


@pytest.mark.parametrize(
    "norm", [torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.parametrizations.spectral_norm]
)
def test_weights_that_are_computed_anew_are_seen(norm):
    module, X = Theirs(200, 100), torch.nn.functional.normalize(gaussian(40, 100))
    norm(module.W)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = nn.match_module(module, X)
    assert found.equation < 1e-5
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_cell_inside_a_module_is_found():
    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Theirs(150, 60, torch.tanh)

        def forward(self, x):
            return self.inner(x.flatten(1))

    X = torch.nn.functional.normalize(gaussian(40, 60))
    found = nn.match_module(Inner(), X.reshape(40, 3, 20))
    assert found.trustworthy, str(found)
    assert found.network.in_features == 60


def test_a_state_is_seen_without_the_input_weight():
    module, X = Theirs(150, 60, torch.tanh), torch.nn.functional.normalize(gaussian(40, 60))
    plain, given = (nn.match_module(module, X, input_weight=U) for U in (None, module.U.weight.detach().numpy().copy()))
    assert given.equation == plain.equation < 1e-3


def test_a_network_inside_a_module_is_the_network_itself():
    X = torch.nn.functional.normalize(gaussian(40, 60))
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 60, 150, 3, tol=1e-5)
    bare = nn.match_module(net, X)
    wrapped = nn.match_module(torch.nn.Sequential(torch.nn.Flatten(), net), X.reshape(40, 3, 20))
    assert wrapped.trustworthy == bare.trustworthy
    assert (wrapped.equation, wrapped.distance) == pytest.approx((bare.equation, bare.distance), rel=1e-3)
    r = nn.replace(torch.nn.Sequential(net, torch.nn.Linear(3, 2)), X, samples=100, epochs=1, max_time_ratio=50.0)
    assert {"designed", "cell"} <= {row["family"] for row in r.table}
    turned = torch.nn.Sequential(torch.nn.Linear(60, 60), net)  # the state belongs to other inputs than X
    assert nn.match_module(turned, X).equation > 0.1
    with pytest.raises(InputError, match="2 DEQNets"):
        nn.match_module(torch.nn.Sequential(nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 60, 150, 60), net), X)


@pytest.mark.parametrize("kind", ["nngp", "ntk", "ntk_frozen_input", "ntk_injected"])
def test_every_kernel_is_measured(kind):
    X = torch.nn.functional.normalize(gaussian(40, 60))
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 60, 300)
    assert nn.match_module(net, X, kind=kind).trustworthy
    with torch.no_grad():
        net.input[:, 6:] = 0
        net.input *= 10**0.5
    assert not nn.match_module(net, X, kind=kind).trustworthy


def half_tanh() -> torch.nn.Module:
    class Tanh(torch.nn.Module):
        def forward(self, x):
            return 0.5 * torch.tanh(x)

    return Tanh()


def relu(x):
    return 1.4 * torch.relu(x)


@pytest.mark.parametrize(
    "function", [torch.nn.Hardtanh(-3, 3), torch.nn.Softplus(beta=5), relu, half_tanh(), torch.nn.GELU("tanh")]
)
def test_a_familiar_name_does_not_hide_other_values(function):
    grid = np.linspace(-4, 4, 101)
    expected = function(torch.as_tensor(grid)).numpy()
    np.testing.assert_allclose(as_activation(function)(grid), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (torch.nn.PReLU(init=0.1), "leaky_relu(x; a=1, b=0.1)"),
        (torch.nn.LeakyReLU(0.2), "leaky_relu(x; a=1, b=0.2)"),
        (torch.nn.GELU(), "gelu(x)"),
        (torch.nn.functional.silu, "swish(x)"),
    ],
)
def test_familiar_functions_are_recognised(function, text):
    assert str(as_activation(function)) == text


def test_a_module_is_asked_as_it_would_be_used():
    class Noisy(Theirs):
        def __init__(self, result) -> None:
            super().__init__(60, 20)
            self.dropout, self.result = torch.nn.Dropout(0.9), result
            self.dropout.eval()

        def forward(self, x):
            assert not self.training
            return self.result(super().forward(x))

    for result, outputs in ((lambda y: y[:, 0], 1), (lambda y: (y, None), 2)):
        module = Noisy(result)
        found = nn.match_module(module, gaussian(30, 20), distill=1)
        assert found.network.out_features == outputs
        assert module.training
        assert not module.dropout.training
    with pytest.raises(InputError, match="wrap it"):
        nn.match_module(Noisy(lambda y: y[None]), gaussian(30, 20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": torch.eye(4)}, "a DEQNet has its own"),
        ({"activation": "relu"}, "a DEQNet has its own"),
        ({"width": 0}, "width=0"),
        ({"out_features": 0}, "out_features=0"),
        ({"batchsize": 4, "distill": 1}, "did you mean 'batch_size'"),
        ({"epochs": 4, "distill": 1}, "no option 'epochs'"),
        ({"distill": -1}, "distill=-1"),
    ],
)
def test_arguments_without_a_meaning_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        nn.match_module(nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.5), 3, 4), gaussian(4, 3), **arguments)


def test_a_function_bound_to_single_precision_is_refused_clearly():
    weight = torch.full((1,), 0.1)
    with pytest.raises(InputError, match="cannot be evaluated elementwise in float64"):
        as_activation(lambda x: torch.nn.functional.prelu(x, weight))
