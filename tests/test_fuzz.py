"""Valid files of every kind the package reads, damaged at random: each is read or refused, never a traceback."""

from __future__ import annotations

import copy
import gzip
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import Run
from tests.image_files import COLOR, to_cifar, to_idx, to_png

import notsodeep as nsd
from notsodeep import InputError, data
from notsodeep.commands.fit import labels_for
from notsodeep.data import catalog
from notsodeep.data.formats import png
from notsodeep.highdim import load_mixture
from notsodeep.learn import DEQFeatures, DEQKernelClassifier, DEQKernelRegressor, load, persistence
from notsodeep.papers.trials import Trials
from notsodeep.scale import StoredBlocks, verify
from notsodeep.scale.store import TileStore
from notsodeep.solvers.conjugate_gradients import ConjugateGradients

SECONDS = 10.0  # of processor time for one file

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4))
Y = np.array(["a", "b", "c"] * 4)

# what a field of JSON becomes
STRANGE: list[Any] = [
    *(None, True, -1, 0, 0.5, 1e308, -1e308, 1e-308, float("nan"), float("inf"), 10**18, "", "x", "\x1b[31m", "=1+1"),
    *([], {}, [[]], [1, "x"], {"x": 1}, [None] * 50, "relu", "tcp://127.0.0.1:1", "/tmp/x", "nan"),
]


def random_bytes(whole: bytes, rng: np.random.Generator) -> bytes:
    """Cut, flip, swap, repeat or overwrite."""
    kind, size = rng.integers(6), len(whole)
    place, other = sorted(int(one) for one in rng.integers(0, size, 2))
    changed = bytearray(whole)
    if kind == 0:
        return whole[:place]
    if kind == 1:
        for bit in rng.integers(0, 8 * size, 1 + rng.integers(4)):
            changed[int(bit) // 8] ^= 1 << int(bit) % 8
    elif kind == 2:
        changed[place : place + 8] = rng.bytes(8)
    elif kind == 3:
        changed[place : place + 4] = rng.choice(
            [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"((((", b"9999"]
        )
    elif kind == 4:
        changed[place:place] = whole[place:other]
    else:
        del changed[place:other]
    return bytes(changed)


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of a JSON document, as the container and the key."""
    for key in content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ():
        yield content, key
        yield from places(content[key])


def strange_json(content: Any, rng: np.random.Generator) -> Any:
    """One field becomes another value, goes away, or changes places with another one."""
    changed = copy.deepcopy(content)
    fields = list(places(changed))
    container, key = fields[rng.integers(len(fields))]
    kind = rng.integers(5)
    if kind == 0 and isinstance(container, dict):
        del container[key]
    elif kind == 1:
        other, second = fields[rng.integers(len(fields))]
        container[key], other[second] = copy.deepcopy(other[second]), copy.deepcopy(container[key])
    else:
        container[key] = copy.deepcopy(STRANGE[rng.integers(len(STRANGE))])
    return changed


def strange_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    options = [
        lambda a: a[..., None],
        lambda a: a.ravel(),
        lambda a: a[:-1] if a.ndim else a[None],
        lambda a: a[:0] if a.ndim else a,
        lambda a: a.astype(str),
        lambda a: np.full(a.shape, np.nan),
        lambda a: np.full(a.shape, 1e308),
        lambda a: np.zeros(a.shape, complex),
        lambda a: np.zeros(a.shape, "M8[s]"),
        lambda a: np.zeros(a.shape, [("x", "f8")]),
        lambda a: np.zeros(a.shape, bool),
        lambda a: np.asfortranarray(a),
    ]
    return np.asarray(options[rng.integers(len(options))](array))


@dataclass
class Kind:
    """A kind of file: how a valid one is written, how one is read, and what else may change besides its bytes."""

    name: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    fields: Callable[[Path, np.random.Generator], None] | None = None


def json_fields(path: Path, rng: np.random.Generator) -> None:
    path.write_text(json.dumps(strange_json(json.loads(path.read_text("utf-8")), rng)), encoding="utf-8")


def npz_fields(path: Path, rng: np.random.Generator) -> None:
    content = dict(np.load(path))
    name = str(rng.choice(list(content)))
    content[name] = strange_array(content[name], rng)
    np.savez(path, **content)


def npy_fields(path: Path, rng: np.random.Generator) -> None:
    with path.open("wb") as file:
        np.save(file, strange_array(X, rng))


def csv_fields(path: Path, rng: np.random.Generator) -> None:
    cells = [line.split(",") for line in path.read_text("utf-8").splitlines()]
    row = cells[rng.integers(len(cells))]
    row[rng.integers(len(row))] = str(
        rng.choice(["", "nan", "1e999", "x" * 300, '"', "\x00", "label", "1_0", "+-", "١"])
    )
    path.write_text("\n".join(",".join(row) for row in cells), encoding="utf-8")


def learn_fields(path: Path, rng: np.random.Generator) -> None:
    """A changed header or array under a checksum that is right."""
    content = dict(np.load(path))
    header = json.loads(str(content.pop("header")))
    content.pop("digest")
    arrays = {name.removeprefix("array."): array for name, array in content.items()}
    if rng.integers(2):
        part = str(rng.choice(["params", "numbers"]))
        header[part] = strange_json(header[part], rng)
    else:
        name = str(rng.choice(list(arrays)))
        arrays[name] = strange_array(arrays[name], rng)
        header["arrays"][name] = [arrays[name].dtype.str, list(arrays[name].shape)]
    text = json.dumps(header)
    digest = persistence._digest(text, arrays) if not any(a.dtype.hasobject for a in arrays.values()) else ""
    named: dict[str, Any] = {f"array.{name}": array for name, array in arrays.items()}
    np.savez(path, header=np.array(text), digest=np.array(digest), **named)


def tensor_fields(kind: str) -> Callable[[Path, np.random.Generator], None]:
    def change(path: Path, rng: np.random.Generator) -> None:
        import safetensors.torch
        import torch

        from notsodeep.nn import export

        tensors, content = export.unpacked(path, kind)
        if rng.integers(2):
            content = strange_json(content, rng)
        else:
            name = str(rng.choice(list(tensors)))
            array = strange_array(tensors[name].numpy(), rng)
            tensors[name] = torch.as_tensor(array.copy() if array.dtype.kind in "biuf" else np.zeros(3))
        safetensors.torch.save_file(tensors, path, {kind: json.dumps(content)})

    return change


def read_model(path: Path) -> None:
    model: Any = nsd.load_model(path)
    _ = str(model), model.to_dict()
    if not isinstance(model, nsd.Explicit):
        _ = model.well_posed.reason
    if not isinstance(model, nsd.ConvDEQ):
        model.kernel(X)


def read_machine(path: Path) -> None:
    machine = load(path)
    _ = repr(machine)
    if hasattr(machine, "predict_proba"):
        machine.predict_proba(X)
    (machine.predict if hasattr(machine, "predict") else machine.transform)(X)


def read_data(path: Path) -> None:
    """Load it, and fit as ``notsodeep fit`` does."""
    found = data.load(path)
    if found.labels is not None:
        machine = DEQKernelClassifier(normalize="unit", progress=False)
        machine.fit(found.X, labels_for("classify", found.labels, found.name))
    else:
        nsd.DEQ("relu", 0.2, 0.8).kernel(found.X)


def written_machine(machine: Any) -> Callable[[Path], Any]:
    return lambda path: machine.fit(X, Y if hasattr(machine, "predict_proba") else X[:, 0]).save(path)


def read_network(path: Path, plain: bool = False) -> None:
    import torch

    from notsodeep import nn

    net: Any = nn.load(path)
    dtype = next(net.parameters()).dtype
    net(torch.ones(2, net[0].in_features if plain else net.in_features, dtype=dtype))


def training(path: Path, epochs: int) -> None:
    from notsodeep import nn

    net = nn.ExplicitNet(nsd.Explicit(["relu"]), 4, 5, 3)
    nn.fit(net, X, np.unique(Y, return_inverse=True)[1], epochs=epochs, checkpoint=path, patience=5, progress=False)


def gradients() -> ConjugateGradients:
    A = np.diag(np.arange(1.0, 13.0))
    return ConjugateGradients(lambda V: A @ V, X[:, :2].copy())


def checkpoint(path: Path) -> None:
    iteration = gradients()
    iteration.step()
    iteration.save(path, "me")


def resumed(path: Path) -> None:
    iteration = gradients()
    iteration.load(path, "me")
    iteration.step()


def write_idx(path: Path) -> None:
    path.write_bytes(to_idx(np.arange(20, dtype=np.uint8).reshape(5, 2, 2)))


def write_gz(path: Path) -> None:
    path.write_bytes(gzip.compress(to_idx(np.arange(20, dtype=np.uint8).reshape(5, 2, 2))))


def write_cifar(path: Path) -> None:
    path.write_bytes(to_cifar(COLOR.images[:3], COLOR.labels[:3]))


def write_parquet(path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": X[:, 0], "b": X[:, 1], "label": Y}), path)


def write_png(path: Path) -> None:
    path.write_bytes(to_png(np.arange(60, dtype=np.uint8).reshape(4, 5, 3), [0, 1, 2, 4]))


def read_png(path: Path) -> None:
    png(path.read_bytes(), path.name)


SETTINGS = {"n": 3, "seed": 0}


NUMBERS = {"error": 0.5, "curve": [1.0, 2.0]}


def write_trial(path: Path) -> None:
    trials = Trials(path.parent / "trials", "fuzz", 1)
    trials.get(SETTINGS, lambda n, seed: NUMBERS)
    path.write_bytes(trials.path(SETTINGS).read_bytes())


def read_trial(path: Path) -> None:
    """What is read is right, or done again."""
    trials = Trials(path.parent / "trials", "fuzz", 1)
    trials.path(SETTINGS).write_bytes(path.read_bytes())
    assert trials.get(SETTINGS, lambda n, seed: NUMBERS) == {**SETTINGS, **NUMBERS}


KERNEL = (X @ X.T).astype(np.float64)
MANIFEST = {"triangle": "upper", "kind": "ck", "model": nsd.DEQ("relu", 0.2, 0.8).to_dict(), "X": 64 * "0"}


def stored(folder: Path) -> Path:
    """A kernel in tiles; those that are missing or damaged are written again."""
    with TileStore.writing(folder, KERNEL.shape, (5, 5), np.float64, MANIFEST) as store:
        for tile in store.tiles():
            if not store.valid(tile):
                store.write(tile, KERNEL[store.span(tile)])
    return folder


def write_part(name: str) -> Callable[[Path], None]:
    return lambda path: shutil.copy(stored(path.parent / "whole.zarr") / name, path) and None


def read_part(name: str) -> Callable[[Path], None]:
    """A store is right or says that it is not, and is mended or refused by the command that wrote it."""

    def read(path: Path) -> None:
        folder = path.parent / "K.zarr"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(path.parent / "whole.zarr", folder)
        shutil.copy(path, folder / name)
        kernel = StoredBlocks(folder)
        _ = repr(kernel), kernel.provenance, verify(folder)
        try:
            assert np.array_equal(kernel.to_numpy(), KERNEL)
        finally:
            assert np.array_equal(StoredBlocks(stored(folder)).to_numpy(), KERNEL)

    return read


def write_mixture(path: Path) -> None:
    content = {
        "means": [[0.0, 1.0], [1.0, 0.0]],
        "covariances": [1.0, [[1.0, 0.1], [0.1, 2.0]]],
        "proportions": [0.4, 0.6],
    }
    path.write_text(json.dumps(content), encoding="utf-8")


def write_cache(path: Path) -> None:
    np.savez(path, manifest=np.array(json.dumps({"source": "x"})), images=np.zeros((2, 2)), labels=np.zeros(2),
             images_test=np.zeros((2, 2)), labels_test=np.zeros(2))  # fmt: skip


def read_cache(path: Path) -> None:
    target = catalog.CATALOG["mnist"].path(path.parent)
    target.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="run: notsodeep data fetch"):
        data.load("mnist", cache=path.parent, fetch=False)


def write_csv(path: Path) -> None:
    lines = ["a,b,label", *(f"{a:.3f},{b:.3f},{label}" for (a, b), label in zip(X[:, :2], Y, strict=True))]
    path.write_text("\n".join(lines), encoding="utf-8")


def of_commands(run: Run, *words: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        result = run(*(path if word == "FILE" else word for word in words))
        assert result.code in (0, 2), result
        assert result.code == 0 or result.err.count("\n") == 1, result
        assert "\x1b" not in result.out + result.err

    return read


def match_content(path: Path) -> None:
    from notsodeep.study import Study

    found = Study.of(nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0), data.Data("d", X, np.repeat([0, 1], 6)))
    content = {**found.to_dict(), "forecast": found.outlook.to_dict(), "comparison": None}
    path.write_text(json.dumps(content), encoding="utf-8")


MODELS = {
    "deq": nsd.DEQ(nsd.activation("hard_tanh") - 0.1, 0.2, 0.8, 0.1),
    "explicit": nsd.Explicit(["relu", "tanh"]),
    "conv": nsd.ConvDEQ("relu", 0.2, 0.8),
}
KINDS: list[Kind] = [
    *(Kind(f"{name}.json", model.save, read_model, json_fields) for name, model in MODELS.items()),
    Kind("classifier.npz", written_machine(DEQKernelClassifier()), read_machine, learn_fields),
    Kind("regressor.npz", written_machine(DEQKernelRegressor(normalize="unit")), read_machine, learn_fields),
    Kind("features.npz", written_machine(DEQFeatures(width=6)), read_machine, learn_fields),
    Kind("data.npz", lambda path: np.savez_compressed(path, X=X, y=Y, X_test=X, y_test=Y), read_data, npz_fields),
    Kind("data.npy", lambda path: np.save(path, X), read_data, npy_fields),
    Kind("data.csv", write_csv, read_data, csv_fields),
    Kind("data.parquet", write_parquet, read_data),
    Kind("data-idx3-ubyte", write_idx, read_data),
    Kind("data-idx3-ubyte.gz", write_gz, read_data),
    Kind("data.bin", write_cifar, read_data),
    Kind("picture.png", write_png, read_png),
    Kind("cg.npz", checkpoint, resumed, npz_fields),
    Kind("trial.json", write_trial, read_trial, json_fields),
    Kind("cache.npz", write_cache, read_cache, npz_fields),
    Kind("zarr.json", write_part("zarr.json"), read_part("zarr.json"), json_fields),
    Kind("tile", write_part("c/0/1"), read_part("c/0/1")),
    Kind("mixture.json", write_mixture, load_mixture, json_fields),
]
TORCH_KINDS = [
    Kind("run.safetensors", lambda path: training(path, 1), lambda path: training(path, 2), tensor_fields("training")),
    *(
        Kind(name, lambda path, name=name: networks(path, name), read_network, tensor_fields("notsodeep-network"))
        for name in ("deq.safetensors", "explicit.safetensors")
    ),
    Kind(
        "plain.safetensors",
        lambda path: networks(path, "plain"),
        partial(read_network, plain=True),
        tensor_fields("notsodeep-sequential"),
    ),
]


def networks(path: Path, name: str) -> None:
    from notsodeep import nn

    if name.startswith("deq"):
        nn.save(nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.8, 0.1), 3, 5, 2), path)
        return
    net = nn.ExplicitNet(nsd.Explicit(["relu", "tanh"]), 3, [4, 5], 2, learnable=["scale"])
    bent = nsd.activation("piecewise_linear", kinks=[-0.5, 0.1, 0.8], slopes=[0.1, 0.9, -0.4, 1.3])
    plain = nn.ExplicitNet(nsd.Explicit([bent, "tanh"]), 3, [4, 5], 2).to_sequential()
    nn.save(plain if name == "plain" else net, path)


def damage(kind: Kind, folder: Path, rounds: int, seed: int) -> tuple[int, int]:
    """Read damaged copies; how many were refused, and how many were not."""
    original, path = folder / f"original-{kind.name}", folder / kind.name
    kind.write(original)
    whole = original.read_bytes()
    path.write_bytes(whole)
    kind.read(path)  # it is read as it is
    rng = np.random.default_rng(seed)
    refused = 0
    for turn in range(rounds):
        path.write_bytes(random_bytes(whole, rng) if kind.fields is None or turn % 2 else whole)
        if kind.fields is not None and not turn % 2:
            kind.fields(path, rng)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind.read is not read_model:
                warnings.simplefilter("error", RuntimeWarning)  # of NumPy: a second line beside the error
            try:
                kind.read(path)
            except InputError:
                refused += 1
            except Exception:
                kept = folder.parent / f"failed-{kind.name}"
                kept.write_bytes(path.read_bytes())
                print(f"round {turn}: {kept}")
                raise
        assert time.process_time() - began < SECONDS, f"round {turn}"
    return refused, rounds - refused


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged_files(kind: Kind, tmp_path: Path) -> None:
    refused, _ = damage(kind, tmp_path, 60, seed=0)
    assert refused or kind.name in ("trial.json", "cache.npz")  # these are made anew


@pytest.mark.parametrize("kind", TORCH_KINDS, ids=lambda kind: kind.name)
def test_damaged_networks(kind: Kind, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    refused, _ = damage(kind, tmp_path, 60, seed=0)
    assert refused


@pytest.mark.parametrize("name", ["deq.json", "match.json"])
def test_commands_on_damaged_files(name: str, run: Run, tmp_path: Path) -> None:
    write = match_content if name == "match.json" else MODELS["deq"].save
    damage(Kind(name, write, of_commands(run, "show", "FILE"), json_fields), tmp_path, 60, seed=0)
    damage(Kind(name, write, of_commands(run, "show", "FILE", "--json"), json_fields), tmp_path, 20, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", [*KINDS, *TORCH_KINDS], ids=lambda kind: kind.name)
def test_many_damaged_files(kind: Kind, seed: int, tmp_path: Path) -> None:
    if kind in TORCH_KINDS:
        pytest.importorskip("torch")
    damage(kind, tmp_path, 600, seed)
