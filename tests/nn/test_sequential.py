"""Explicit networks as plain torch layers: the same function, in every format that a server takes.

Also covers: nn/onnx_graph.py.
"""

from __future__ import annotations

import io
import math
import pickle
import sys

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError
from notsodeep.nn import export

NAMES = [name for name in nsd.activation_names() if name not in ("piecewise_linear", "hermite")]
SHAPES = {
    **{name: nsd.activation(name) for name in NAMES},
    "scaled": 1.7 * nsd.activation("tanh") - 0.3,
    "one kink": nsd.activation("piecewise_linear", kinks=[0.4], slopes=[0.2, -1.5]),
    "kink on the left": nsd.activation("piecewise_linear", kinks=[-0.7], slopes=[0.2, 1.5]),
    "flat on the right": nsd.activation("piecewise_linear", kinks=[0.4], slopes=[2.0, 0.0]),
    "flat on the left": nsd.activation("piecewise_linear", kinks=[-0.4], slopes=[0.0, 2.0]),
    "clipped": nsd.activation("piecewise_linear", kinks=[0.2, 0.9], slopes=[0.0, 2.0, 0.0]),
    "three kinks": nsd.activation("piecewise_linear", kinks=[-0.5, 0.1, 0.8], slopes=[0.1, 0.9, -0.4, 1.3]),
    "equal ends": nsd.activation("piecewise_linear", kinks=[-0.5, 0.8], slopes=[1.0, 3.0, 1.0]),
    "flat ends": nsd.activation("piecewise_linear", kinks=[-0.5, 0.1, 0.8], slopes=[0.0, 0.9, -0.4, 0.0]),
    "flat left": nsd.activation("piecewise_linear", kinks=[-0.5, 0.8], slopes=[0.0, 0.9, 0.4]),
    "flat right": nsd.activation("piecewise_linear", kinks=[-0.5, 0.8], slopes=[0.6, 0.9, 0.0]),
}


def rows(n: int = 30, p: int = 6, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n, p, generator=torch.Generator().manual_seed(1), dtype=dtype)


def modules(net: torch.nn.Module) -> set[str]:
    return {type(one).__module__.split(".")[0] for one in net.modules()}


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_function_of_plain_layers(name):
    explicit = nsd.Explicit([SHAPES[name], "leaky_relu"], bias=[0.5, 0.0])
    net = nn.ExplicitNet(explicit, 6, [9, 7], 3, dtype=torch.float64)
    plain = net.to_sequential()
    assert type(plain) is torch.nn.Sequential
    assert "notsodeep" not in modules(plain)
    x = rows()
    torch.testing.assert_close(plain(x), net(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain(x[0]), net(x)[0], rtol=1e-12, atol=1e-12)  # one sample, as nn.Linear


def test_designs_on_the_sphere_are_plain_layers_too():
    for deq, kinks in (
        (nsd.DEQ("relu", 0.2, 0.8), None),
        (nsd.DEQ("relu", 0.2, 0.8), 3),
        (nsd.DEQ("tanh", 0.2, 0.8), 2),
    ):
        network = nsd.match(deq, tau0=1.0, on="sphere", kinks=kinks).network
        net = nn.ExplicitNet(network, 6, 50, 2)
        plain = net.to_sequential()
        assert "notsodeep" not in modules(plain)
        x = rows(dtype=torch.float32)
        torch.testing.assert_close(plain(x), net(x), rtol=1e-5, atol=1e-5)
        assert plain(torch.full_like(x, math.nan)).isnan().all()  # as every layer of torch


def test_a_homogeneous_network_needs_no_norms():
    net = nn.ExplicitNet(nsd.Explicit(["leaky_relu"], normalize=1.0), 6, 9, 2, dtype=torch.float64)
    plain = net.to_sequential()
    assert [type(one).__name__ for one in plain] == ["Linear", "LeakyReLU", "Linear"]
    torch.testing.assert_close(plain(rows()), net(rows()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["relu", "erf", "gaussian", "three kinks", "clipped", "gelu", "on sphere"])
def test_onnx_and_export_take_it(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    explicit = nsd.Explicit(["tanh"], normalize=1.3) if name == "on sphere" else nsd.Explicit([SHAPES[name]])
    net = nn.ExplicitNet(explicit, 6, 9, 2)
    plain, x = net.to_sequential(), rows(dtype=torch.float32)
    program = torch.export.export(plain, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.testing.assert_close(program.module()(x[:7]), net(x[:7]), rtol=1e-5, atol=1e-6)
    in_double = [] if name in ("erf", "gelu") else [{"opset": 21, "dtype": "float64"}]  # onnxruntime has no such Erf
    for options in ({}, {"opset": 13}, *in_double):
        path = nn.export_onnx(plain, tmp_path / "net.onnx", **options)
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        wide = options.get("dtype", "float32")
        found = session.run(None, {"x": x[:5].numpy().astype(wide)})[0]
        np.testing.assert_allclose(found, net(x[:5]).detach().numpy(), rtol=1e-5, atol=1e-5)
    again = pickle.loads(pickle.dumps(plain))
    torch.testing.assert_close(again(x), plain(x))


def test_images_and_vectors_in_onnx(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    net = torch.nn.Sequential(torch.nn.Flatten(1), torch.nn.Linear(12, 1), torch.nn.Flatten(0))
    with pytest.raises(InputError, match=r"shape=\(1, 28, 28\)"):
        nn.export_onnx(net, tmp_path / "net.onnx")
    path = nn.export_onnx(net, tmp_path / "net.onnx", shape=(3, 4))
    x = torch.randn(5, 3, 4)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    for bad, message in (({"opset": 7}, "opset=7"), ({"dtype": "int8"}, "dtype")):
        with pytest.raises(InputError, match=message):
            nn.export_onnx(net, tmp_path / "net.onnx", shape=(3, 4), **bad)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([torch.nn.Linear(12, 12), torch.nn.LayerNorm(12), torch.nn.Softmax(1)], (12,)),
        ([torch.nn.Conv2d(2, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(), torch.nn.Flatten()], (2, 4, 5)),
        ([torch.nn.Linear(4, 6), torch.nn.Flatten(2)], (2, 3, 4)),  # the rank stays above 2
        ([torch.nn.Linear(4, 6), torch.nn.Unflatten(1, (2, 3)), torch.nn.Tanh()], (6, 4)),
        ([torch.nn.Embedding(11, 4), torch.nn.Flatten(), torch.nn.Linear(12, 3)], (3,)),
    ],
    ids=["normalisation", "convolution", "flatten", "unflatten", "table"],
)
def test_other_layers_are_left_to_the_exporter_of_torch(layers, shape, tmp_path, capfd):
    pytest.importorskip("onnxscript")
    ort = pytest.importorskip("onnxruntime")
    net = torch.nn.Sequential(*layers)
    path = nn.export_onnx(net, tmp_path / "net.onnx", shape=shape)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    table = isinstance(layers[0], torch.nn.Embedding)
    for n in (1, 5):
        x = torch.randint(0, 11, (n, *shape)) if table else torch.randn(n, *shape)
        found = session.run(None, {"x": x.numpy()})[0]
        assert found.shape == net(x).shape
        np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert capfd.readouterr() == ("", "")
    if table:
        with pytest.raises(InputError, match="shape is missing"):
            nn.export_onnx(net, tmp_path / "net.onnx")


def test_what_no_exporter_takes_is_one_line(tmp_path, monkeypatch):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Softmax(1))
    pytest.importorskip("onnxscript")
    with monkeypatch.context() as patch:
        patch.setattr(torch.onnx, "export", lambda *given, **named: 1 / 0)
        with pytest.raises(InputError, match=r"^the layer Softmax.*torch\.onnx\.export fails: division by zero$"):
            nn.export_onnx(net, tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"the layer Softmax\(dim=1\) is left to .* pip install \"notsodeep\[nn\]\""):
        nn.export_onnx(net, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_plain_layers_survive_the_disk(tmp_path):
    net = nn.ExplicitNet(nsd.Explicit([SHAPES["three kinks"], SHAPES["clipped"]]), 6, 9, 2).to_sequential()
    again = nn.load(nn.save(net, tmp_path / "net.safetensors"))
    assert torch.equal(again(rows(dtype=torch.float32)), net(rows(dtype=torch.float32)))
    strange = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Softmax(1))
    with pytest.raises(InputError, match="load cannot rebuild"):
        nn.save(strange, tmp_path / "other.safetensors")


def test_what_load_could_not_read_is_refused(tmp_path):
    net = nn.ExplicitNet(nsd.Explicit(["relu"]), 3, 4)
    with pytest.raises(InputError, match=r"bfloat16.*net\.float\(\)"):
        nn.save(nn.ExplicitNet(nsd.Explicit(["relu"]), 3, 4).to(torch.bfloat16), tmp_path / "net.safetensors")
    deep = nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.5), 3, 4)
    torch.nn.utils.parametrizations.spectral_norm(deep, "recurrent")
    with pytest.raises(InputError, match="remove_parametrizations"):
        nn.save(deep, tmp_path / "net.safetensors")
    with torch.no_grad():
        net.readout[0, 0] = torch.nan
    with pytest.raises(InputError, match="NaN"):
        nn.save(net, tmp_path / "net.safetensors")
    with pytest.raises(InputError, match="Linear must be a DEQNet"):
        nn.save(torch.nn.Linear(2, 2), tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


class Twice(torch.nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


class Other(nn.ExplicitNet):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked(net):
    net.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return net


def line():
    return torch.nn.Linear(3, 3)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")  # of torch
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: torch.nn.Sequential(torch.nn.utils.weight_norm(line())), "remove_weight_norm"),
        (lambda: torch.nn.Sequential(prune.l1_unstructured(line(), "weight", 0.5)), r"prune\.remove"),
        (lambda: torch.nn.Sequential(line(), line().double()), "float32 and torch.float64"),
        (lambda: Twice(line()), "Twice has hooks or a forward of its own"),
        (lambda: Other(nsd.Explicit(["relu"]), 3, 4), "Other has hooks or a forward of its own"),
        (lambda: torch.nn.Sequential(hooked(line())), "hooks"),
        (lambda: hooked(torch.nn.Sequential(line())), "hooks"),
        (lambda: hooked(nn.ExplicitNet(nsd.Explicit(["relu"]), 3, 4)), "hooks"),
        (lambda: torch.nn.Sequential(torch.nn.ReLU()), "has no weights"),
        (lambda: torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(line())), "before quantisation"),
        (lambda: torch.nn.Sequential(torch.nn.Sequential(line())), "load cannot rebuild"),
    ],
)
def test_what_load_would_read_as_another_function_is_refused(build, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        nn.save(build(), tmp_path / "net.safetensors")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["three kinks", "clipped", "gelu"])
def test_plain_layers_draw_no_random_numbers(name):
    net = nn.ExplicitNet(nsd.Explicit([SHAPES[name]]), 6, 9, 2)
    before = torch.get_rng_state()
    net.to_sequential()
    assert torch.equal(before, torch.get_rng_state())


def growing(n: int, stages: int) -> tuple[list[dict[str, object]], dict[str, torch.Tensor]]:
    """A few weights whose activations have 2·n**stages entries."""
    layers, tensors = [], {}
    for stage in range(stages):
        layers += [
            {"layer": "Linear", "in_features": 1, "out_features": n, "bias": False},
            {"layer": "Unflatten", "dim": -1, "unflattened_size": [n, 1]},
        ]
        tensors[f"{2 * stage}.weight"] = torch.ones(n, 1)
    return layers, tensors


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([{"layer": "ReLU"}] * 1001, "at most 1000"),
        ([{"layer": "Unflatten", "dim": -1, "unflattened_size": [1] * 9}], "at most 8"),
        ([{"layer": "Hardtanh", "min_val": 1.0, "max_val": -1.0}], "is damaged"),
    ],
)
def test_layers_that_a_file_may_not_ask_for(extra, message, tmp_path):
    layers, tensors = growing(3, 1)
    content = export.packed(tensors, export._SEQUENTIAL, {"layers": [*layers, *extra], "dtype": "float32"})
    (tmp_path / "net.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=message):
        nn.load(tmp_path / "net.safetensors")


def test_a_file_of_few_weights_takes_no_memory_for_activations(tmp_path):
    layers, tensors = growing(3000, 3)  # 2·10¹¹ bytes if it were evaluated
    content = export.packed(tensors, export._SEQUENTIAL, {"layers": layers, "dtype": "float32"})
    (tmp_path / "net.safetensors").write_bytes(content)
    assert len(nn.load(tmp_path / "net.safetensors")) == 6


# --- modules that behave ----------------------------------------------------------------


def both() -> list[torch.nn.Module]:
    deq = nsd.DEQ("relu", 0.2, 0.8)
    sphere = nsd.match(deq, tau0=1.0, on="sphere").network
    return [
        nn.DEQNet(deq, 6, 20, 3),
        nn.ExplicitNet(nsd.Explicit(["leaky_relu", "tanh"]), 6, 20, 3),
        nn.ExplicitNet(sphere, 6, 20, 3),
    ]


def test_leading_dimensions_as_a_linear_layer():
    x = rows(24, 6, torch.float32)
    for net in both():
        whole = net(x)
        torch.testing.assert_close(net(x.reshape(4, 2, 3, 6)), whole.reshape(4, 2, 3, 3), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(net(x[0]), whole[0], rtol=1e-4, atol=1e-5)
        assert net(x[:0]).shape == (0, 3)
        assert net(x[:0].reshape(0, 5, 6)).shape == (0, 5, 3)
        net(x[:0]).sum().backward()
        assert net.to("meta")(x.to("meta")).shape == (24, 3)


def test_traced_and_mapped_networks():
    x = rows(8, 6, torch.float32)
    for net in both()[1:]:
        compiled = torch.compile(net, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        program = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.testing.assert_close(program.module()(x[:5]), net(x[:5]), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.func.vmap(net)(x), net(x), rtol=1e-4, atol=1e-5)
        slopes = torch.func.jacrev(lambda one, net=net: net(one).sum(0))(x)
        assert slopes.shape == (3, 8, 6)
        with pytest.raises(InputError, match="NaN"):
            net(x * torch.nan)


def test_a_plain_network_runs_where_notsodeep_is_missing():
    plain = nn.ExplicitNet(nsd.Explicit(["erf"], normalize=1.0), 6, 9, 2).to_sequential()
    buffer = io.BytesIO()
    torch.save(plain, buffer)
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "notsodeep"}
    sys.modules["notsodeep"] = None
    try:
        buffer.seek(0)
        again = torch.load(buffer, weights_only=False)
        x = rows(dtype=torch.float32)
        torch.testing.assert_close(again(x), plain(x))
    finally:
        sys.modules.pop("notsodeep")
        sys.modules.update(hidden)
