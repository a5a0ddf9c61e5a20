"""Networks out of Python: ONNX, safetensors, and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import ConvergenceWarning, nn
from notsodeep.checks import InputError


def gaussian(n: int, p: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, p, generator=torch.Generator().manual_seed(0), dtype=dtype) / p**0.5


REGISTERED = [name for name in nsd.activation_names() if name != "piecewise_linear"]


def test_onnx_computes_the_same_outputs(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    bent = nsd.activation("piecewise_linear", kinks=[-0.7, -0.1, 0.4], slopes=[0.2, 1.0, -0.5, 0.3])
    x = 2 * gaussian(9, 7)
    for name in [*REGISTERED, "bent"]:
        phi = 1.4 * (bent if name == "bent" else nsd.activation(name)).stretched(0.9) - 0.1
        net = nn.ExplicitNet(nsd.Explicit([phi, phi]), 7, [33, 20], 4)
        path = nn.export_onnx(net, tmp_path / f"{name}.onnx")
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(found, net(x).detach().numpy(), atol=1e-5, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(("name", "kind"), [("relu", "ck"), ("tanh", "ntk")])
def test_onnx_of_the_single_layer(name, kind, tmp_path):
    """A Hermite series with its tail, inside its table, at its ends and far beyond; and the plain network of it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    found = nsd.match(nsd.DEQ(name, 0.2, 0.8), tau0=1.0, kind=kind, on="sphere")
    x = gaussian(9, 7) * torch.tensor([1e-3, 0.5, 1.0, 3.0, 7.0, 8.0, 30.0, 100.0, 0.0])[:, None]
    net = nn.ExplicitNet(found.network, 7, 33, 4)
    expected = net(x).detach().numpy()
    scale = np.abs(expected).max()
    plain = net.to_sequential()
    np.testing.assert_allclose(plain(x).detach().numpy(), expected, rtol=0, atol=1e-5 * scale)
    for network in (net, plain):
        path = nn.export_onnx(network, tmp_path / "net.onnx")
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        (found_there,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(found_there, expected, rtol=0, atol=1e-5 * scale)
        (nothing,) = session.run(None, {session.get_inputs()[0].name: np.full((2, 7), np.nan, np.float32)})
        assert np.isnan(nothing).all()


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(InputError, match="make one from a DEQ"):
        nn.export_onnx(nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.5), 3, 4), tmp_path / "net.onnx")
    custom = nn.ExplicitNet(nsd.Explicit([np.arctan]), 3, 4)
    with pytest.raises(InputError, match="cannot be exported to ONNX"):
        nn.export_onnx(custom, tmp_path / "net.onnx")
    with pytest.raises(InputError, match="cannot be written to a file"):
        nn.save(custom, tmp_path / "net.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_survive_the_disk(tmp_path, dtype):
    x = gaussian(4, 6, dtype=dtype)
    deep = nn.DEQNet(nsd.DEQ("gelu", 0.1, 0.8, 0.2), 6, 20, 3, solver="broyden", memory=4, tol=1e-5, dtype=dtype)
    learned = nn.ExplicitNet(
        nsd.Explicit(["leaky_relu", "tanh"]), 6, [9, 8], 2, learnable=["scale", "shift"], dtype=dtype
    )
    with torch.no_grad():
        learned.activations[0].scale.mul_(1.7)
    for net in (deep, learned):
        again = nn.load(nn.save(net, tmp_path / "net.safetensors"))
        assert torch.equal(again(x), net(x))
        assert repr(again) == repr(net)
    assert nn.load(nn.save(deep, tmp_path / "net.safetensors")).solve_options == deep.solve_options


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "net.safetensors"
    with pytest.raises(InputError, match="does not exist"):
        nn.load(path)
    path.write_bytes(b"not a network")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        nn.load(path)
    import safetensors.torch

    safetensors.torch.save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="holds no network"):
        nn.load(path)
    with pytest.raises(InputError, match="directory"):
        nn.save(nn.ExplicitNet(nsd.Explicit(["relu"]), 2, 3), tmp_path / "absent" / "net.safetensors")


def test_files_hold_no_pickle(tmp_path):
    path = nn.save(nn.DEQNet(nsd.DEQ("relu", 0.1, 0.8), 2, 3), tmp_path / "net.safetensors")
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    assert set(header) == {"__metadata__", "input", "readout", "recurrent"}


def test_mixed_layers_remember_what_each_of_them_learns(tmp_path):
    net = nn.ExplicitNet(nsd.Explicit(["leaky_relu", "tanh"]), 6, [9, 8], learnable=True)
    again = nn.load(nn.save(net, tmp_path / "net.safetensors"))
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in net.named_parameters()]
    one = nn.ExplicitNet(nsd.Explicit(["relu", "tanh"]), 6, 9, learnable="scale")
    assert [len(list(phi.parameters())) for phi in one.activations] == [1, 1]
    with pytest.raises(InputError, match="3 entries for 2 layers"):
        nn.ExplicitNet(nsd.Explicit(["relu", "tanh"]), 6, 9, learnable=[["scale"], [], []])


def test_learnable_numbers_keep_the_digits_of_the_network():
    phi = nsd.activation("leaky_relu", a=1.0, b=0.1) * (1 / 3)
    net = nn.ExplicitNet(nsd.Explicit([phi]), 3, 4, learnable=True, dtype=torch.float64)
    assert float(net.activations[0].scale.detach()) == 1 / 3
    assert float(net.activations[0].slopes.detach()[0]) == 0.1


def test_loading_judges_the_weights_that_were_saved(tmp_path):
    path = tmp_path / "net.safetensors"
    net = nn.DEQNet(nsd.DEQ("tanh", 0.05, 0.8), 3, 40)
    with torch.no_grad():
        net.recurrent.mul_(10)
    nn.save(net, path)
    with pytest.warns(ConvergenceWarning, match="≥ 1"):
        nn.load(path)
    with pytest.warns(ConvergenceWarning):
        wild = nn.DEQNet(nsd.DEQ("tanh", 0.9, 0.8), 3, 40)
    with torch.no_grad():
        wild.recurrent.mul_(0.1)
    nn.load(nn.save(wild, path))  # a warning here would be an error


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "{",
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace("float32", "load"),
        lambda text: text.replace('"width": 3', '"width": 4'),
        lambda text: text.replace('"width": 3', '"width": null'),
        lambda text: text.replace('"options": {', '"options": {"unheard": 1, '),
    ],
)
def test_damaged_descriptions_are_refused_in_one_way(tmp_path, change):
    import safetensors.torch

    path = nn.save(nn.DEQNet(nsd.DEQ("relu", 0.1, 0.8), 2, 3), tmp_path / "net.safetensors")
    with safetensors.safe_open(str(path), framework="pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    (key,) = metadata
    description = json.loads(metadata[key])
    checksum = description.pop("sha256")
    text = json.dumps(description)
    assert change(text) != text
    safetensors.torch.save_file(tensors, path, {key: change(text)})  # without a checksum, as version 0.1.0 wrote them
    with pytest.raises(InputError, match="is damaged"):
        nn.load(path)
    safetensors.torch.save_file(tensors, path, {key: text})
    assert nn.load(path).width == 3
    safetensors.torch.save_file(tensors, path, {key: json.dumps({**description, "tol": 1e-3, "sha256": checksum})})
    with pytest.raises(InputError, match="was changed after it was written"):
        nn.load(path)


def test_a_compiled_network_is_saved_as_itself(tmp_path):
    net = nn.ExplicitNet(nsd.Explicit(["tanh"]), 5, 16, 2)
    again = nn.load(nn.save(torch.compile(net, backend="eager"), tmp_path / "net.safetensors"))
    assert type(again) is nn.ExplicitNet
    x = torch.ones(2, net.in_features)
    torch.testing.assert_close(again(x), net(x))
    onnx = pytest.importorskip("onnx")
    stored = onnx.load(nn.export_onnx(net, tmp_path / "net.onnx", dtype=torch.float64))
    assert stored.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    compiled = torch.compile(net, backend="eager")
    assert onnx.load(nn.export_onnx(compiled, tmp_path / "net.onnx", dtype=torch.float64)) == stored
    with pytest.raises(InputError, match=r"torch.bfloat16.*net\.float\(\)"):
        nn.export_onnx(net.to(torch.bfloat16), tmp_path / "half.onnx")
