"""256 features of a small VGG-like network, trained once on CIFAR-10: the inputs of [Ling24] Figure 3.

Five blocks of convolution, batch normalisation, relu and pooling, a hidden layer of 256, and a readout. Weights and
optimiser are stored after each epoch, so a stopped training is resumed; the features are stored at the end.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep import data as datasets
from notsodeep import files
from notsodeep.checks import InputError
from notsodeep.data.catalog import cache_folder

__all__ = ["CHANNELS", "FEATURES", "features", "network", "stored", "train"]

FEATURES = 256
CHANNELS = (32, 64, 128, 128, 256)
EPOCHS, BATCH, RATE = 12, 128, 0.05


def features(folder: Path | None = None) -> datasets.Data:
    """The features of all images: from the user's cache, or after training for tens of minutes on two cores."""
    return datasets.load(str(stored(folder)))


def stored(folder: Path | None = None) -> Path:
    """The file of the features, trained if there is none."""
    folder = cache_folder() / "cifar10-vgg" if folder is None else folder
    path = folder / "features.npz"
    if not path.is_file():
        images = datasets.load("cifar10")
        net = train(images, folder / "training.pt")
        parts = images.parts
        hidden = {"X": _hidden(net, images.images), "X_test": _hidden(net, images.images_test)}
        content = io.BytesIO()
        np.savez(content, **hidden, y=parts.labels, y_test=parts.labels_test)
        files.write(path, content.getvalue(), parents=True)
    return path


def network(channels: tuple[int, ...] = CHANNELS, classes: int = 10, seed: int = 0) -> Any:
    """Images (n, 3, P, P) to class scores; ``net[:-1]`` gives the 256 features. Each block halves P."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    layers: list[Any] = []
    for before, after in zip((3, *channels[:-1]), channels, strict=True):
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.LazyLinear(FEATURES), nn.ReLU(), nn.Linear(FEATURES, classes)]
    return nn.Sequential(*layers)


def train(
    images: datasets.Data, checkpoint: Path, *, epochs: int = EPOCHS, channels: tuple[int, ...] = CHANNELS
) -> Any:
    """Train by stochastic gradient descent on cross-entropy, from the checkpoint if there is one."""
    import torch

    X, labels = _prepared(images.images), torch.as_tensor(np.asarray(images.labels), dtype=torch.int64)
    net = network(channels, int(labels.max()) + 1)
    net(X[:2])  # sizes of the lazy layer
    steps = epochs * -(-len(X) // BATCH)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    done = _resume(checkpoint, net, optimizer, schedule)
    for epoch in range(done, epochs):
        net.train()
        order = torch.Generator().manual_seed(epoch)
        for rows in torch.randperm(len(X), generator=order).split(BATCH):
            batch = X[rows]
            if torch.rand((), generator=order) < 0.5:
                batch = batch.flip(3)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(batch), labels[rows]).backward()
            optimizer.step()
            schedule.step()
        content = io.BytesIO()
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        torch.save({"epoch": epoch + 1, **state}, content)
        files.write(checkpoint, content.getvalue(), parents=True)
    return net.eval()


def _resume(checkpoint: Path, net: Any, optimizer: Any, schedule: Any) -> int:
    """Load the state of a stopped training; the number of epochs that are done."""
    import torch

    if not checkpoint.is_file():
        return 0
    try:
        state = torch.load(checkpoint, weights_only=True)
        for name, part in (("net", net), ("optimizer", optimizer), ("schedule", schedule)):
            part.load_state_dict(state[name])
        return int(state["epoch"])
    except (pickle.UnpicklingError, RuntimeError, LookupError, ValueError, TypeError) as error:
        raise InputError(f"{checkpoint} cannot be continued ({type(error).__name__}); delete it") from None


def _prepared(images: Any) -> Any:
    """Channels first, about centred, of variance about 1."""
    import torch

    return (torch.as_tensor(np.asarray(images), dtype=torch.float32).permute(0, 3, 1, 2) - 0.47) / 0.25


def _hidden(net: Any, images: Any) -> Any:
    import torch

    pieces = np.array_split(images, max(len(images) // 1000, 1))
    with torch.inference_mode():
        return torch.cat([net[:-1](_prepared(rows)) for rows in pieces]).numpy()
