"""Training: it learns, it is deterministic, and it survives being killed at any moment.

Also covers: nn/checkpoints.py, nn/epochs.py, nn/training_run.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError, NotConvergedError
from notsodeep.nn import export


def task(n: int = 120, p: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, p, generator=torch.Generator().manual_seed(0)) / p**0.5
    return x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0).long()


def deep(**options) -> nn.DEQNet:
    return nn.DEQNet(nsd.DEQ("relu", 0.15, 0.8), 8, 48, 3, tol=1e-5, **options)


def shallow() -> nn.ExplicitNet:
    return nn.ExplicitNet(nsd.Explicit(["leaky_relu", "tanh"]), 8, 48, 3)


@pytest.mark.parametrize("build", [deep, shallow])
@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 0.015), ("sgd", 1.0)])
def test_both_networks_learn(build, optimizer, lr):
    x, y = task()
    net = build()
    history = nn.fit(net, x, y, epochs=25, batch_size=40, optimizer=optimizer, lr=lr, validation=(x, y))
    assert history.last.accuracy > (0.75 if optimizer == "adam" else 0.55)
    assert history.last.loss < 0.9 * history.epochs[0].loss
    assert (history.last.iterations is None) == (build is shallow)
    assert history.last.validation_accuracy == pytest.approx(float((net(x).argmax(1) == y).float().mean()))


def test_squared_loss_and_arrays():
    x, y = task()
    targets = np.eye(3)[y.numpy()]
    history = nn.fit(shallow(), x.numpy(), targets, epochs=15, lr=0.02)
    assert history.last.loss < 0.5 * history.epochs[0].loss
    assert history.last.accuracy is None


def test_training_is_deterministic_and_leaves_the_random_state_alone():
    x, y = task()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    nets = [deep(), deep(), deep()]
    seeds = [0, 0, 1]
    for net, seed in zip(nets, seeds, strict=True):
        nn.fit(net, x, y, epochs=2, batch_size=32, seed=seed)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(nets[0].recurrent, nets[1].recurrent)
    assert not torch.equal(nets[0].recurrent, nets[2].recurrent)


def test_early_stopping_returns_to_the_best_epoch():
    x, y = task()
    net = shallow()
    flipped = (y + 1) % 3  # validation that gets worse as training gets better
    history = nn.fit(net, x, y, epochs=50, lr=0.03, validation=(x, flipped), patience=3)
    assert history.stopped_early
    assert len(history.epochs) == history.best + 3
    loss = float(torch.nn.functional.cross_entropy(net(x).detach(), flipped))
    assert loss == pytest.approx(history.epochs[history.best - 1].validation_loss, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_resumed_training_ends_with_the_same_bits(tmp_path, optimizer):
    x, y = task()
    whole, pieces = deep(), None
    straight = nn.fit(whole, x, y, epochs=5, batch_size=32, optimizer=optimizer, validation=(x, y), patience=4)
    for epochs in (1, 3, 5):
        pieces = deep()
        resumed = nn.fit(
            pieces,
            x,
            y,
            epochs=epochs,
            batch_size=32,
            optimizer=optimizer,
            validation=(x, y),
            patience=4,
            checkpoint=tmp_path / "run.safetensors",
        )
    for one, other in zip(whole.parameters(), pieces.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [e.loss for e in straight.epochs] == [e.loss for e in resumed.epochs]
    assert straight.best == resumed.best


# one interpreter, warm, that forks a child for every run; a timer of its processor time ends it without a chance to
# clean up, as SIGKILL would, however busy the machine is, but never while it waits for a disk
SCRIPT = """
import os, random, signal, sys, time
import torch, notsodeep as nsd
from notsodeep import nn
torch.set_num_threads(1)
folder, epochs = sys.argv[1], 30

def train(name):
    x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    net = nn.DEQNet(nsd.DEQ("relu", 0.15, 0.8), 8, 32, 2, tol=1e-3)
    nn.fit(net, x, (x[:, 0] > 0).long(), epochs=epochs, batch_size=50, checkpoint=f"{folder}/{name}.ckpt")
    nn.save(net, f"{folder}/{name}.safetensors")

def run(seconds=0.0):
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        train("part")
        os._exit(0)
    return os.waitpid(child, 0)[1]

train("warm")
began = time.process_time()
train("whole")
epoch = (time.process_time() - began) / epochs
clock, kills = random.Random(3), 0
for _ in range(5):
    resumed = os.path.exists(f"{folder}/part.ckpt")
    status = run(clock.uniform(2, 6) * epoch)
    if not os.WIFSIGNALED(status):
        break
    assert os.WTERMSIG(status) == signal.SIGPROF
    kills += resumed
else:
    status = run()
assert status == 0
print(kills)
"""


def test_kills_at_random_moments_change_nothing(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0, "no resumed training was killed"
    assert (tmp_path / "part.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_checkpoints_of_another_training_are_refused(tmp_path):
    x, y = task()
    path = tmp_path / "run.safetensors"
    nn.fit(shallow(), x, y, epochs=1, checkpoint=path)
    with pytest.raises(InputError, match=r"belongs to a training with lr=0\.01"):
        nn.fit(shallow(), x, y, epochs=2, lr=0.5, checkpoint=path)
    with pytest.raises(InputError, match="other data"):
        nn.fit(shallow(), x + 1, y, epochs=2, checkpoint=path)
    with pytest.raises(InputError, match="another network"):
        nn.fit(deep(), x, y, epochs=2, checkpoint=path)
    nn.save(shallow(), path)
    with pytest.raises(InputError, match="no training state"):
        nn.fit(shallow(), x, y, epochs=2, checkpoint=path)
    path.write_bytes(b"broken")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        nn.fit(shallow(), x, y, epochs=2, checkpoint=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "adamm"}, "did you mean 'adam'"),
        ({"loss": "cross-entropy"}, "did you mean 'cross_entropy'"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"lr": -1.0}, "lr=-1.0"),
        ({"y": torch.zeros(3, dtype=torch.long)}, "for 120 samples"),
        ({"y": torch.full((120,), 7)}, "label 7 but the network has 3 outputs"),
        ({"y": torch.full((120,), -1)}, "negative labels"),
        ({"y": torch.zeros(120)}, "network gives"),
        ({"X": torch.full((120, 8), torch.nan)}, "NaN"),
        ({"X": torch.zeros(0, 8), "y": torch.zeros(0, dtype=torch.long)}, "at least one sample"),
        ({"X": torch.zeros(120, 7)}, "X has 7 features but the network takes 8"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    x, y = task()
    arguments = {"X": x, "y": y, "epochs": 1} | change
    with pytest.raises(InputError, match=message):
        nn.fit(shallow(), **arguments)


def test_a_loss_that_explodes_is_an_error():
    x, _ = task()
    with pytest.raises(NotConvergedError, match="lower lr"):
        nn.fit(shallow(), x, torch.randn(120, 3), epochs=30, optimizer="sgd", lr=1e4)


def test_progress_is_told():
    x, y = task()
    seen = []
    nn.fit(shallow(), x, y, epochs=3, progress=lambda epoch, total: seen.append((epoch.epoch, total, str(epoch))))
    assert [row[:2] for row in seen] == [(1, 3), (2, 3), (3, 3)]
    assert "accuracy" in seen[0][2]
    nn.fit(deep(), x, y, epochs=1, progress=True)


@pytest.mark.parametrize("model", ["deq", "explicit"])
def test_the_train_command(tmp_path, model, capsys):
    from notsodeep.commands.train import train

    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6))
    np.savez(tmp_path / "data.npz", X=X, y=np.where(X[:, 0] > 0, "yes", "no"))
    options = {"data": str(tmp_path / "data.npz"), "model": model, "width": 40, "epochs": 6, "lr": 0.03}
    train(**options, certify=model == "deq", json=True, out=tmp_path / "net.safetensors")
    result = json.loads(capsys.readouterr().out)
    assert result["test_accuracy"] > 0.7
    assert len(result["epochs"]) == 6
    assert ("certificate" in result) == (model == "deq")
    assert nn.load(tmp_path / "net.safetensors").out_features == 2
    train(**options)
    assert "test accuracy" in capsys.readouterr().out
    with pytest.raises(InputError, match="did you mean 'explicit'"):
        train(**{**options, "model": "explicitt"})


def small(**options) -> nn.ExplicitNet:
    return nn.ExplicitNet(nsd.Explicit(["tanh"]), 4, 8, 3, **options)


def rows(n: int = 12, p: int = 4) -> torch.Tensor:
    return torch.randn(n, p, generator=torch.Generator().manual_seed(0))


LABELS = torch.arange(12) % 3


@pytest.mark.parametrize(
    ("X", "y", "arguments", "message"),
    [
        (rows(), LABELS + 1, {}, "y holds the label 3"),
        (rows(), LABELS, {"validation": (rows(), LABELS + 1)}, "validation y holds the label 3"),
        (rows(p=5), LABELS, {}, "X has 5 features but the network takes 4"),
        (rows(), LABELS, {"validation": (rows(p=5), LABELS)}, "validation X has 5 features"),
        (rows(), LABELS, {"checkpoint": "absent/run.safetensors"}, "directory 'absent' does not exist"),
        (rows(), LABELS, {"validation": 0.2}, "must be a pair"),
        (rows(), LABELS, {"seed": 2**70}, "must be below"),
        (rows(), ["a", "b", "c"] * 4, {}, "number the classes"),
        (rows(), torch.zeros(12, 2), {}, r"y has shape \(2,\) a sample but the network gives \(3,\)"),
    ],
)
def test_mistakes_are_found_before_the_first_step(X, y, arguments, message):
    net = small()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(InputError, match=message):
        nn.fit(net, X, y, epochs=1, batch_size=3, **arguments)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_seeds_of_networks_have_a_limit_too():
    with pytest.raises(InputError, match="must be below"):
        small(seed=2**70)


def test_a_checkpoint_belongs_to_its_network(tmp_path):
    path = tmp_path / "run.safetensors"
    nn.fit(small(), rows(), LABELS, epochs=1, checkpoint=path)
    other = nn.ExplicitNet(nsd.Explicit(["relu"]), 4, 8, 3)
    with pytest.raises(InputError, match="another network"):
        nn.fit(other, rows(), LABELS, epochs=2, checkpoint=path)
    foreign = tmp_path / "foreign.safetensors"
    nn.fit(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()), rows(), LABELS, epochs=1, checkpoint=foreign)
    with pytest.raises(InputError, match="another network"):
        nn.fit(
            torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), rows(), LABELS, epochs=2, checkpoint=foreign
        )


def bad_epochs(**changes):
    return lambda tensors, state: state["epochs"][0].update(changes)


@pytest.mark.parametrize(
    "damage",
    [
        lambda tensors, state: state.clear(),
        lambda tensors, state: state.update(epochs=5),
        lambda tensors, state: state.update(epochs=[{}]),
        lambda tensors, state: state.update(best="x"),
        lambda tensors, state: state.update(settings=3),
        bad_epochs(loss="0.1"),
        bad_epochs(epoch=7),
        bad_epochs(extra=1),
        lambda tensors, state: tensors.pop("net/readout"),
        lambda tensors, state: tensors.update({"net/readout": tensors["net/readout"].double()}),
        lambda tensors, state: tensors.update({"net/readout": tensors["net/readout"] * torch.nan}),
        lambda tensors, state: tensors.update({"best/readout": torch.zeros(3)}),
        lambda tensors, state: tensors.update({"optimizer/0/exp_avg": torch.zeros(3)}),
        lambda tensors, state: tensors.update({"optimizer/99/exp_avg": torch.zeros(3)}),
        lambda tensors, state: tensors.update({"optimizer/x/exp_avg": torch.zeros(3)}),
        lambda tensors, state: tensors.update({"optimizer/+0/step": tensors["optimizer/0/step"].clone()}),
        lambda tensors, state: tensors.update({"optimizer/٠/step": tensors["optimizer/0/step"].clone()}),
        lambda tensors, state: tensors.pop("rng"),
        lambda tensors, state: tensors.update(rng=torch.zeros(7)),
        lambda tensors, state: tensors.update(rng=tensors["rng"] * 0 + 255),
        lambda tensors, state: state.update(epochs=[]),
        lambda tensors, state: state.update(best=2),
        bad_epochs(loss=None),
        bad_epochs(epoch=1.0),
        lambda tensors, state: tensors.pop("optimizer/0/exp_avg_sq"),
        lambda tensors, state: tensors.pop("optimizer/0/step"),
        lambda tensors, state: tensors.update({"optimizer/0/evil": tensors["optimizer/0/exp_avg"].clone()}),
        lambda tensors, state: tensors.update({"optimizer/-1/exp_avg": tensors["optimizer/1/exp_avg"].clone()}),
        lambda tensors, state: tensors.update({"optimizer/0/step": torch.tensor(-1.0)}),
        lambda tensors, state: tensors.update({"optimizer/0/exp_avg_sq": -tensors["optimizer/0/exp_avg_sq"]}),
    ],
)
def test_damaged_checkpoints_leave_the_network_alone(tmp_path, damage):
    import safetensors.torch

    path = tmp_path / "run.safetensors"
    nn.fit(small(), rows(), LABELS, epochs=1, checkpoint=path)
    tensors, state = export.unpacked(path, "training")
    damage(tensors, state)
    safetensors.torch.save_file(tensors, path, {"training": json.dumps(state)})  # without a checksum
    net = small(seed=1)
    before = net.readout.detach().clone()
    with pytest.raises(InputError, match="is damaged"):
        nn.fit(net, rows(), LABELS, epochs=2, checkpoint=path)
    assert torch.equal(net.readout, before)


SCHEDULERS = {
    "multi step": lambda opt: torch.optim.lr_scheduler.MultiStepLR(opt, [2], gamma=0.1),
    "one cycle": lambda opt: torch.optim.lr_scheduler.OneCycleLR(opt, 1.0, total_steps=40),
    "plateau": lambda opt: torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, threshold=0.5),
    "warm restarts": lambda opt: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 2),
    "sequence": lambda opt: torch.optim.lr_scheduler.SequentialLR(
        opt, [torch.optim.lr_scheduler.ConstantLR(opt), SCHEDULERS["multi step"](opt)], [1]
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about its own schedulers
@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_resumed_scheduler_is_where_it_was(tmp_path, name, per):
    if name == "plateau" and per == "step":
        pytest.skip("it looks at the loss of an epoch")
    options = {"scheduler": SCHEDULERS[name], "scheduler_per": per, "batch_size": 7}
    whole, parts = small(), small()
    nn.fit(whole, rows(), LABELS, epochs=4, **options)
    for epochs in (1, 3):
        nn.fit(small(), rows(), LABELS, epochs=epochs, checkpoint=tmp_path / "run.safetensors", **options)
    nn.fit(parts, rows(), LABELS, epochs=4, checkpoint=tmp_path / "run.safetensors", **options)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))


@pytest.mark.parametrize("steps", [None, 0, -1, 10**39, 1.5, 2_000_001])
def test_a_file_does_not_decide_how_long_a_scheduler_runs(tmp_path, steps):
    import safetensors.torch

    path, options = tmp_path / "run.safetensors", {"scheduler": SCHEDULERS["multi step"], "scheduler_per": "step"}
    nn.fit(small(), rows(), LABELS, epochs=1, checkpoint=path, **options)
    tensors, state = export.unpacked(path, "training")
    forged = {**state, "steps": steps, "scheduler": {"step": 3, "optimizer": 3, "last_epoch": None}}
    safetensors.torch.save_file(tensors, path, {"training": json.dumps(forged)})
    with pytest.raises(InputError, match="is damaged"):
        nn.fit(small(), rows(), LABELS, epochs=2, checkpoint=path, **options)


def test_an_optimizer_that_cannot_be_copied_is_resumed(tmp_path):
    class Own(torch.optim.Adam):
        def __init__(self, parameters):
            super().__init__(parameters)
            self.mine = lambda: None  # not part of what a copy of an optimizer has

        def step(self, closure=None):
            self.mine()
            return super().step(closure)

    whole, parts = small(), small()
    nn.fit(whole, rows(), LABELS, epochs=3, optimizer=Own)
    for epochs in (1, 3):
        nn.fit(parts, rows(), LABELS, epochs=epochs, optimizer=Own, checkpoint=tmp_path / "run.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))


def test_the_best_weights_belong_to_a_checkpoint_with_patience(tmp_path):
    import safetensors.torch

    path = tmp_path / "run.safetensors"
    nn.fit(small(), rows(), LABELS, epochs=1, checkpoint=path, patience=3)
    tensors, state = export.unpacked(path, "training")
    kept = {name: value for name, value in tensors.items() if not name.startswith("best/")}
    safetensors.torch.save_file(kept, path, {"training": json.dumps(state)})
    with pytest.raises(InputError, match="is damaged"):
        nn.fit(small(), rows(), LABELS, epochs=2, checkpoint=path, patience=3)


def test_a_refused_checkpoint_is_one_short_line(tmp_path):
    import safetensors.torch

    path = tmp_path / "run.safetensors"
    nn.fit(small(), rows(), LABELS, epochs=1, checkpoint=path)
    tensors, state = export.unpacked(path, "training")
    state["settings"]["batch_size"] = "x" * 10**6
    safetensors.torch.save_file(tensors, path, {"training": json.dumps(state)})
    with pytest.raises(InputError, match="belongs to a training with batch_size") as refusal:
        nn.fit(small(), rows(), LABELS, epochs=2, checkpoint=path)
    assert len(str(refusal.value)) < 1000


def test_a_checkpoint_that_was_changed_is_told(tmp_path):
    path = tmp_path / "run.safetensors"
    nn.fit(small(), rows(), LABELS, epochs=1, checkpoint=path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="was changed after it was written"):
        nn.fit(small(), rows(), LABELS, epochs=2, checkpoint=path)


def test_validation_leaves_the_mode_as_it_was():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout())
    nn.fit(net, rows(), LABELS, epochs=1, validation=(rows(), LABELS))
    assert net.training
    assert net[1].training


def test_patience_ends_with_the_best_weights_even_when_epochs_run_out():
    net, held = small(), (rows(), (LABELS + 1) % 3)  # what is learnt is wrong there: the loss rises
    history = nn.fit(net, rows(), LABELS, epochs=6, validation=held, patience=50, lr=0.1)
    assert history.best < 6
    assert not history.stopped_early
    with torch.no_grad():
        loss = float(torch.nn.functional.cross_entropy(net(held[0]), held[1]))
    assert loss == pytest.approx(history.epochs[history.best - 1].validation_loss, rel=1e-5)


def test_the_train_command_trains_networks_that_can_be_compared(tmp_path):
    from notsodeep.commands.train import train

    path = tmp_path / "net.safetensors"
    train(model="deq", width=16, epochs=1, tol=1e-4, out=path, json=True)
    implicit = nn.load(path)
    assert implicit.deq == nsd.DEQ("relu", 0.2, 0.8).centered(1.0)
    train(model="explicit", width=16, epochs=1, out=path, force=True, json=True)
    assert nn.load(path).explicit == nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0).network


def test_the_train_command_refuses_before_it_trains(tmp_path, monkeypatch):
    from notsodeep.commands.train import train

    monkeypatch.setattr(nn, "fit", lambda *_, **__: pytest.fail("training began"))
    with pytest.raises(InputError, match="for relu and normalized_relu"):
        train(activation="tanh", width=16, epochs=1, certify=True)
    with pytest.raises(InputError, match=r"out=.*does not exist"):
        train(width=16, epochs=1, out=tmp_path / "absent" / "net.safetensors")
    (tmp_path / "net.safetensors").write_text("mine")
    with pytest.raises(InputError, match="exists already; pass --force"):
        train(width=16, epochs=1, out=tmp_path / "net.safetensors")
