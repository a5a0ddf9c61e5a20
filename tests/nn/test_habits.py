"""Training as people are used to: loaders, optimisers, schedulers, losses, shapes, precision, callbacks.

Also covers: nn/batches.py, nn/projection.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.utils.data import DataLoader, TensorDataset

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError


def task(n: int = 96, p: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    X = torch.randn(n, p, generator=torch.Generator().manual_seed(0))
    return X, (X[:, 0] > 0).long()


def shallow(**options) -> nn.ExplicitNet:
    return nn.ExplicitNet(nsd.Explicit(["tanh"]), 6, 20, 2, **options)


def weights(net: torch.nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().reshape(-1) for one in net.parameters()])


def test_a_generator_is_a_seed():
    X, y = task()
    nets = [shallow(), shallow()]
    for net in nets:
        nn.fit(net, X, y, epochs=1, batch_size=16, seed=np.random.default_rng(5))
    assert torch.equal(weights(nets[0]), weights(nets[1]))


def test_a_loader_gives_what_arrays_give():
    X, y = task()
    by_hand, by_loader = shallow(), shallow()
    expected = nn.fit(by_hand, X, y, epochs=2, batch_size=96, validation=(X, y)).last.validation_accuracy
    loader = DataLoader(TensorDataset(X.double(), y), batch_size=96)
    history = nn.fit(by_loader, loader, epochs=2, validation=loader)
    torch.testing.assert_close(weights(by_loader), weights(by_hand), rtol=1e-5, atol=1e-6)
    assert history.last.validation_accuracy == pytest.approx(expected, abs=0.01)
    with pytest.raises(InputError, match="brings its own targets"):
        nn.fit(shallow(), loader, y)
    with pytest.raises(InputError, match="y is missing"):
        nn.fit(shallow(), X)
    with pytest.raises(InputError, match="pairs"):
        nn.fit(shallow(), DataLoader(TensorDataset(X)))
    with pytest.raises(InputError, match="without any batch"):
        nn.fit(shallow(), DataLoader([]))


def test_a_loader_may_give_several_inputs():
    """Lists and dictionaries reach the network as they are, in its precision; so does anything that is no tensor."""
    X, y = task()

    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = shallow(dtype=torch.float64)

        def forward(self, x):
            first, second = x.values() if isinstance(x, dict) else getattr(x, "both", x)
            return self.net(torch.cat([first, second], dim=1))

    class Graph:
        def __init__(self, both):
            self.both = both

    def pairs(give):
        return DataLoader(list(zip(X, y, strict=True)), batch_size=32, collate_fn=lambda batch: collated(give, batch))

    def collated(give, batch):
        x, labels = (torch.stack(one) for one in zip(*batch, strict=True))
        return give(x[:, :2], x[:, 2:]), labels

    losses = []
    for give in (
        lambda a, b: [a, b],
        lambda a, b: (a, b),
        lambda a, b: {"a": a, "b": b},
        lambda a, b: Graph((a.double(), b.double())),
    ):
        losses.append(nn.fit(Pair(), pairs(give), epochs=2, validation=pairs(give), seed=0).last.loss)
    assert losses == [losses[0]] * 4
    assert losses[0] == pytest.approx(
        nn.fit(shallow(dtype=torch.float64), DataLoader(TensorDataset(X, y), 32), epochs=2, seed=0).last.loss
    )


def test_a_shuffling_loader_resumes_exactly(tmp_path):
    X, y = task()
    whole, parts = shallow(), shallow()

    def loader():
        return DataLoader(TensorDataset(X, y), batch_size=16, shuffle=True)

    def halved(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    nn.fit(whole, loader(), epochs=4, scheduler=halved, seed=3)
    for epochs in (2, 4):
        nn.fit(parts, loader(), epochs=epochs, scheduler=halved, seed=3, checkpoint=tmp_path / "run.safetensors")
    assert torch.equal(weights(parts), weights(whole))


@pytest.mark.parametrize(
    "build",
    [
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.003),
        lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9, nesterov=True),
    ],
)
def test_any_optimiser_resumes(build, tmp_path):
    X, y = task()
    whole, parts = shallow(), shallow()
    nn.fit(whole, X, y, epochs=3, optimizer=build)
    for epochs in (1, 3):
        nn.fit(parts, X, y, epochs=epochs, optimizer=build, checkpoint=tmp_path / "run.safetensors")
    assert torch.equal(weights(parts), weights(whole))
    ready = shallow()
    nn.fit(ready, X, y, epochs=3, optimizer=build(ready.parameters()))
    assert torch.equal(weights(ready), weights(whole))


def test_the_loop_is_the_one_everybody_writes():
    """Weight decay, clipping, a schedule for each step and accumulation, against a loop by hand."""
    X, y = task()
    net, mine = shallow(), shallow()
    nn.fit(
        net,
        X,
        y,
        epochs=2,
        batch_size=96,
        lr=0.02,
        weight_decay=0.05,
        clip=0.1,
        scheduler=lambda opt: torch.optim.lr_scheduler.ExponentialLR(opt, 0.5),
        scheduler_per="step",
    )
    optimizer = torch.optim.Adam(mine.parameters(), lr=0.02, weight_decay=0.05)
    for step in range(2):
        order = torch.randperm(96, generator=torch.Generator().manual_seed(step + 1))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(mine(X[order]), y[order]).backward()
        torch.nn.utils.clip_grad_norm_(mine.parameters(), 0.1)
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
    torch.testing.assert_close(weights(net), weights(mine), rtol=1e-6, atol=1e-7)
    split = shallow()
    nn.fit(split, X, y, epochs=2, batch_size=36, accumulate=3, optimizer="sgd", lr=0.2)
    whole = shallow()
    nn.fit(whole, X, y, epochs=2, batch_size=108, optimizer="sgd", lr=0.2)
    torch.testing.assert_close(weights(split), weights(whole), rtol=1e-5, atol=1e-6)


def test_own_losses_and_a_plateau():
    X, y = task()
    net = shallow()

    def huber(outputs, targets):
        return torch.nn.functional.huber_loss(outputs[:, 0], targets)

    history = nn.fit(
        net,
        X,
        X[:, 1],
        loss=huber,
        lr=0.05,
        epochs=25,
        scheduler=lambda opt: torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0),
    )
    assert history.last.accuracy is None
    with torch.no_grad():
        assert float(huber(net(X), X[:, 1])) < 0.5 * history.epochs[0].loss
    with pytest.raises(InputError, match="scalar"):
        nn.fit(net, X, y, loss=lambda a, b: a)


def test_images_and_sequences_keep_their_shapes():
    X, y = torch.randn(40, 1, 4, 4), torch.randint(3, (40,))
    images = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3)
    )
    assert nn.fit(images, X, y, epochs=3).last.accuracy is not None
    places = torch.nn.Conv2d(1, 3, 1)
    labels = torch.randint(3, (40, 4, 4))
    assert 0 <= nn.fit(places, X, labels, epochs=1).last.accuracy <= 1
    words, tags = torch.randn(30, 5, 6), torch.randint(2, (30, 5))
    history = nn.fit(shallow(), words, tags, epochs=2, validation=(words, tags))
    with torch.no_grad():
        net = shallow()
        first = torch.nn.functional.cross_entropy(net(words).reshape(-1, 2), tags.reshape(-1))
    assert history.epochs[0].loss == pytest.approx(float(first), rel=0.2)
    assert nn.fit(shallow(), words, torch.randn(30, 5, 2), epochs=1).last.accuracy is None
    with pytest.raises(InputError, match="labels of shape"):
        nn.fit(shallow(), words, torch.randint(2, (30, 4)))


def test_half_precision_where_it_is_safe():
    X, y = task()
    seen = []

    class Watching(torch.nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            seen.append(out.dtype)
            return out

    history = nn.fit(Watching(6, 2), X, y, epochs=40, lr=0.1, autocast=torch.bfloat16)
    assert set(seen[1:]) == {torch.bfloat16}
    assert history.last.accuracy > 0.8


@pytest.mark.parametrize("name", ["DEQNet", "several layers", "ExplicitNet", "Hermite series", "function"])
def test_half_precision_in_front_of_a_network(name):
    torch.manual_seed(0)
    X, y = task()
    cell = nsd.DeepDEQ([nsd.Layer("relu", 0.1, 0.7), nsd.Layer("tanh", 0.2, 0.4)])
    explicit = {
        "ExplicitNet": nsd.Explicit(["tanh", "relu"]),
        "Hermite series": nsd.Explicit([nsd.activation("hermite", coefficients=[0.0, 0.6, 0.3], bends=[0.2])]),
        "function": nsd.Explicit([lambda x: np.maximum(x, -0.5)]),
    }
    if name in explicit:
        net: torch.nn.Module = nn.ExplicitNet(explicit[name], 6, 32, 2)
    else:
        net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8) if name == "DEQNet" else cell, 6, 32, 2, tol=1e-5)
    whole = torch.nn.Sequential(torch.nn.Linear(6, 6), net)
    exact = whole(X).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = whole(X)
        with torch.no_grad():
            again = whole(X)
    assert outputs.dtype == torch.bfloat16
    for one in (outputs, again):
        assert float((one.detach() - exact).norm() / exact.norm()) < 0.02
    history = nn.fit(whole, X, y, epochs=8, autocast=torch.bfloat16)
    assert history.last.loss < history.epochs[0].loss
    with pytest.raises(InputError, match=r"x is torch\.bfloat16"):
        net(X.bfloat16())


def test_integers_are_looked_up_in_a_table():
    words, tags = torch.randint(10, (40, 5)), torch.randint(2, (40, 5))
    losses = []
    for data in ((words, tags), (words.numpy(), tags), (DataLoader(TensorDataset(words, tags), batch_size=128),)):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Embedding(10, 6), nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 6, 24, 2))
        epoch = nn.fit(net, *data, epochs=1).last
        losses.append(epoch.loss)
        assert epoch.iterations == net[1].last_solve.iterations
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


def test_places_without_a_label_do_not_count():
    X, tags = torch.randn(40, 5, 6), torch.randint(2, (40, 5))
    tags[:, 3:] = -100
    whole, part = (nn.fit(shallow(), *data, epochs=2).last for data in ((X, tags), (X[:, :3], tags[:, :3])))
    assert (whole.loss, whole.accuracy) == pytest.approx((part.loss, part.accuracy), rel=1e-5)
    with pytest.raises(InputError, match="negative labels"):
        nn.fit(shallow(), X, tags.clamp_min(-1))


def test_batches_count_by_their_labels():
    """A batch without any has no loss; those whose gradients are added up weigh as the places that they label."""
    X, tags = torch.randn(40, 5, 6), torch.randint(2, (40, 5))
    tags[8:, 1:] = -100
    whole, parts = shallow(), shallow()
    losses = [
        nn.fit(net, X, tags, epochs=1, batch_size=size, accumulate=steps, optimizer="sgd", validation=(X, tags)).last
        for net, size, steps in ((whole, 40, 1), (parts, 8, 5))
    ]
    torch.testing.assert_close(weights(parts), weights(whole))
    assert losses[0].loss == pytest.approx(losses[1].loss, rel=1e-5)
    assert losses[0].accuracy == pytest.approx(losses[1].accuracy)
    assert losses[0].validation_loss == pytest.approx(losses[1].validation_loss, rel=1e-5)
    few = tags.clone()
    few[1:] = -100
    alone, among = shallow(), shallow()
    nn.fit(alone, X[:1], few[:1], epochs=2)
    last = nn.fit(among, X, few, epochs=2, batch_size=1, validation=(X, few)).last
    torch.testing.assert_close(weights(among), weights(alone))
    assert np.isfinite(last.validation_loss)
    with pytest.raises(InputError, match="in epoch 1, or y no label but -100"):
        nn.fit(shallow(), X, torch.full_like(tags, -100))
    with pytest.raises(InputError, match="validation X gives no sample, or y no label but -100"):
        nn.fit(shallow(), X, tags, validation=(X, torch.full_like(tags, -100)))


def test_a_checkpoint_knows_the_tensors_of_a_loader(tmp_path):
    X, y = task()
    path = tmp_path / "run.safetensors"
    for shift, epochs in ((0, 1), (0, 2)):
        nn.fit(shallow(), DataLoader(TensorDataset(X + shift, y), batch_size=32), epochs=epochs, checkpoint=path)
    with pytest.raises(InputError, match="other data"):
        nn.fit(shallow(), DataLoader(TensorDataset(X + 1, y), batch_size=32), epochs=3, checkpoint=path)


def test_callbacks_see_every_epoch_and_may_stop():
    X, y = task()
    seen = []
    history = nn.fit(
        shallow(),
        X,
        y,
        epochs=9,
        callbacks=[lambda epoch, net: seen.append(epoch.epoch), lambda epoch, net: epoch.epoch == 3],
    )
    assert seen == [1, 2, 3]
    assert history.stopped_early


class Theirs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.W, self.U, self.out = torch.nn.Linear(20, 20), torch.nn.Linear(6, 20), torch.nn.Linear(20, 2)
        self.act = torch.nn.Tanh()

    def forward(self, x):
        h = self.U(x).tanh()
        for _ in range(15):
            h = self.act(self.W(h) + self.U(x))
        return self.out(h)


def test_the_equilibrium_stays_unique_when_asked():
    X, y = task()
    y = y ^ (X[:, 1] > 0).long()  # not linear, so that the recurrent weight grows
    free, held = (nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), 6, 24, 2) for _ in range(2))
    sizes = []
    nn.fit(free, X, y, epochs=15, lr=0.1)
    nn.fit(held, X, y, epochs=15, lr=0.1, contraction=0.9, callbacks=lambda epoch, net: sizes.append(net.contraction))
    assert free.contraction > 1
    assert len(sizes) == 15
    assert max(sizes) <= 0.9 + 1e-5
    assert max(sizes) > 0.89
    other = Theirs()
    nn.fit(other, X, y, epochs=10, lr=0.1, contraction=0.5)
    assert float(torch.linalg.matrix_norm(other.W.weight.detach(), 2)) <= 0.5 + 1e-5
    for net, bound, message in ((held, 1.0, "between 0 and 1"), (torch.nn.Linear(6, 2), 0.5, "no attribute U")):
        with pytest.raises(InputError, match=message):
            nn.fit(net, X, y, contraction=bound)


def test_the_contraction_of_networks_inside_others():
    X, y = task()
    deep = [nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 6, 100, outputs, tol=1e-5) for outputs in (6, 2)]
    before = deep[1].contraction
    nn.fit(torch.nn.Sequential(torch.nn.Flatten(), deep[1]), X, y, epochs=1, lr=1e-5, contraction=0.95)
    assert deep[1].contraction == pytest.approx(before, rel=1e-3)
    nn.fit(torch.nn.Sequential(*deep), X, y, epochs=1, contraction=0.5)
    assert max(one.contraction for one in deep) <= 0.5 + 1e-5
    assert min(one.contraction for one in deep) > 0.45


class Cell(torch.nn.Module):
    def __init__(self, act=torch.tanh):
        super().__init__()
        torch.manual_seed(0)
        self.W, self.U = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.act = act

    def forward(self, z, x):
        return self.act(self.W(z) + self.U(x))


class Doubled(Cell):
    def forward(self, z, x):
        return self.act(2 * self.W(z) + self.U(x))


class Normed(Cell):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, z, x):
        return self.norm(super().forward(z, x))


class Convolved(Cell):
    def __init__(self):
        super().__init__()
        self.W, self.U = (torch.nn.Conv1d(1, 1, 3, padding=1) for _ in range(2))

    def forward(self, z, x):
        return super().forward(z[:, None], x[:, None])[:, 0]


def bounded():
    cell = Cell()
    torch.nn.utils.parametrizations.spectral_norm(cell.W)
    return cell


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (Doubled, "misses by"),
        (Normed, "misses by"),
        (Convolved, "must be a matrix"),
        (bounded, "that is a parameter"),
        (lambda: nn.DEQNet(nsd.DeepDEQ([nsd.Layer("relu", 0.1, 0.7), nsd.Layer("tanh", 0.2, 0.4)]), 6, 6), "one layer"),
    ],
)
def test_the_contraction_of_other_cells_is_refused(build, message):
    X, y = task()
    cell = build()
    inner = nn.Equilibrium(cell, on_failure="ignore") if isinstance(cell, Cell) else cell
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), inner, torch.nn.LazyLinear(2))
    net(X)
    before = weights(net)
    with pytest.raises(InputError, match=rf"^contraction= .*{message}") as caught:
        nn.fit(net, X, y, contraction=0.5)
    assert "match_module" not in str(caught.value)
    assert torch.equal(before, weights(net))


def test_the_contraction_of_a_cell_behind_other_layers():
    X, y = task()
    cell = Cell()
    net = torch.nn.Sequential(torch.nn.Linear(6, 6), nn.Equilibrium(cell), torch.nn.Linear(6, 2))
    nn.fit(net, X, y, epochs=3, lr=0.1, contraction=0.3)
    assert float(torch.linalg.matrix_norm(cell.W.weight.detach(), 2)) <= 0.3 + 1e-5
    two = torch.nn.Sequential(nn.Equilibrium(Cell()), nn.Equilibrium(Cell()), torch.nn.Linear(6, 2))
    with pytest.raises(InputError, match="holds 2 cells"):
        nn.fit(two, X, y, contraction=0.3)
    before = weights(net)
    with pytest.raises(InputError, match="does not show"):
        nn.fit(net, X[:, None], y[:, None], contraction=0.1)
    assert torch.equal(before, weights(net))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": lambda p: 3}, "must be a name, an Optimizer"),
        ({"optimizer": lambda p: torch.optim.SGD(p, 0.1), "lr": 0.1}, "lr=0.1 is for an optimizer by name"),
        ({"scheduler": lambda opt: None}, "returned none"),
        ({"scheduler_per": "batch"}, "scheduler_per"),
        ({"clip": 0}, "clip"),
        ({"accumulate": 0}, "accumulate"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"optimizer": torch.optim.LBFGS}, "optimizer=LBFGS computes the loss several times a step"),
        ({"scheduler": torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.ones(1)], 0.1), 1)}, "function that"),
        ({"autocast": True}, "torch.bfloat16"),
        ({"autocast": "bfloat16"}, "torch.bfloat16"),
        ({"callbacks": [1]}, "must be functions"),
        ({"callbacks": 1}, "must be functions"),
    ],
)
def test_bad_habits_get_one_line(change, message):
    X, y = task()
    with pytest.raises(InputError, match=message):
        nn.fit(shallow(), X, y, **change)


@pytest.mark.parametrize("kind", ["scipy", "torch", "pandas", "read-only", "iterable"])
def test_data_of_many_kinds_is_the_array(kind):
    X, y = np.round(np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)), np.arange(40) % 2

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return zip(torch.as_tensor(X), y.tolist(), strict=True)

    def of_kind():
        if kind == "iterable":
            return (torch.utils.data.DataLoader(Stream(), batch_size=40),)
        if kind == "pandas":
            pandas = pytest.importorskip("pandas")
            return pandas.DataFrame(X), pandas.Series(y)
        if kind == "scipy":
            return scipy.sparse.csr_matrix(X), y
        if kind == "torch":
            return torch.as_tensor(X).to_sparse(), y
        fixed = X.copy()
        fixed.flags.writeable = False
        return fixed, y

    losses = []
    for data in ((X, y), of_kind()):
        net = nn.ExplicitNet(nsd.Explicit(["tanh"]), 4, 16, 2)
        losses.append([epoch.loss for epoch in nn.fit(net, *data, epochs=3, batch_size=40).epochs])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
