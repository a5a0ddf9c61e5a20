"""Any module in, plain layers out, with figures that are measured again here.

Also covers: nn/candidates.py, nn/distillation.py, nn/measurement.py, nn/observation.py, nn/plain_cell.py,
nn/targets.py, nn/unrolled.py, nn/verdicts.py, report/replacement.py.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.public_cells import Monotone

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError
from notsodeep.nn.candidates import Candidate, Scale, _steps, fit_readout
from notsodeep.nn.measurement import Agreement, calibration_error, closeness, closest
from notsodeep.nn.plain_cell import plain_cell
from notsodeep.nn.replacement import _judged
from notsodeep.nn.sequential import folded
from notsodeep.nn.unrolled import unrolled

QUICK = {"samples": 3000, "epochs": 4, "max_time_ratio": 10.0}


def rows(n: int = 400, p: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, p, generator=torch.Generator().manual_seed(seed)) / p**0.5


def deep(phi: str = "relu", **options) -> nn.DEQNet:
    return nn.DEQNet(nsd.DEQ(phi, 0.2, 0.8), 12, 48, 3, tol=1e-5, **options)


@pytest.fixture(scope="module")
def replaced():
    net, X = deep(), rows()
    y = net(X).argmax(1)
    y[:40] = (y[:40] + 1) % 3
    return net, X, y, nn.replace(net, X, y, min_agreement=0.9, **QUICK)


def test_the_result_is_plain_layers_that_agree(replaced):
    net, _, _, r = replaced
    assert type(r.network) is torch.nn.Sequential
    assert all(type(one).__module__.startswith("torch.") for one in r.network.modules())
    fresh = rows(2000, seed=9)
    with torch.no_grad():
        measured = float((r.network(fresh).argmax(1) == net(fresh).argmax(1)).double().mean())
    assert measured > 0.9
    assert r.agreement == pytest.approx(measured, abs=0.1)
    assert r.reached
    assert r.name in str(r)
    assert r.name in r._repr_html_()
    families = {row["family"] for row in r.table}
    assert families == {"module", "designed", "plain", "cell"}
    assert [row["network"] for row in r.table if "steps of the cell" in row["network"]]


def test_figures_are_those_of_independent_code(replaced):
    net, X, y, r = replaced
    X, y = X.numpy(), y.numpy()
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).numpy()
    held = order[round(0.85 * 400) :]
    with torch.no_grad():
        goal, found = (one(torch.as_tensor(X[held])).double().numpy() for one in (net, r.network))

    def probabilities(scores):
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    p, q = probabilities(goal), probabilities(found)
    row = r.chosen
    assert row["agreement"] == pytest.approx(np.mean(goal.argmax(1) == found.argmax(1)))
    assert row["accuracy"] == pytest.approx(np.mean(found.argmax(1) == y[held]))
    assert row["kl"] == pytest.approx(np.mean(np.sum(p * np.log(p / q), axis=1)), rel=1e-6)
    assert row["relative error"] == pytest.approx(np.linalg.norm(found - goal) / np.linalg.norm(goal), rel=1e-5)
    assert row["parameters"] == sum(one.numel() for one in r.network.parameters())
    module = r.table[0]
    assert (module["agreement"], module["time ratio"], module["kl"]) == (1.0, 1.0, 0.0)


def test_calibration_against_a_loop():
    generator = np.random.default_rng(0)
    scores = generator.dirichlet(np.ones(4), size=500)
    labels = generator.integers(0, 4, 500)
    total = 0.0
    confidence, right = scores.max(1), scores.argmax(1) == labels
    for k in range(15):
        inside = (confidence >= k / 15) & (confidence < (k + 1) / 15)
        total += abs(np.sum(right[inside]) - np.sum(confidence[inside])) / 500
    assert calibration_error(torch.as_tensor(scores), torch.as_tensor(labels)) == pytest.approx(total, rel=1e-10)


def test_the_files_hold_the_network(replaced, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("matplotlib"), pytest.importorskip("plotly")
    r = replaced[3]
    saved = r.save(tmp_path / "out")
    x = rows(7, seed=3)
    with torch.no_grad():
        expected = r.network(x)
    session = ort.InferenceSession(saved.onnx, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], expected.numpy(), atol=1e-5, rtol=1e-5)
    if saved.program is None:
        torch.testing.assert_close(nn.load(saved.weights)(x), expected)
    else:
        torch.testing.assert_close(torch.export.load(saved.program).module()(x), expected)
    content = json.loads(saved.table.read_text("utf-8"))
    assert content["table"] == r.table
    page = saved.page.read_text("utf-8")
    assert "What replaces the module" in page
    assert all(row["network"] in page for row in r.table)
    r.save(tmp_path / "out")  # replaces itself
    (tmp_path / "out" / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(InputError, match=r"notes\.txt"):
        r.save(tmp_path / "out")


@pytest.mark.parametrize("width", [256, 1024])
def test_networks_for_images_of_28_by_28_run_elsewhere(width, tmp_path):
    """At the size of MNIST, whatever candidate is the best: onnxruntime, torch.export, and the files."""
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("matplotlib"), pytest.importorskip("plotly")
    net = nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), 784, width, 10, tol=1e-4)
    X = torch.rand(60, 784, generator=torch.Generator().manual_seed(0))
    X = X / X.norm(dim=1, keepdim=True)
    r = nn.replace(net, X, samples=200, epochs=1, max_time_ratio=100.0)
    with torch.no_grad():
        expected = r.network(X)
    saved = r.save(tmp_path / "out")
    session = ort.InferenceSession(saved.onnx, providers=["CPUExecutionProvider"])
    for rows_ in (X, X[:1]):
        outputs = session.run(None, {"x": rows_.numpy()})[0]
        np.testing.assert_allclose(outputs, expected[: len(rows_)].numpy(), atol=1e-5, rtol=1e-5)
    batch = torch.export.Dim("batch", min=1, max=1000)
    exported = torch.export.export(r.network, (X[:5],), dynamic_shapes=({0: batch},)).module()
    torch.testing.assert_close(exported(X), expected, atol=1e-5, rtol=1e-5)
    assert {path.suffix for path in (saved.weights, saved.onnx, saved.table, saved.page)} == {
        *(".safetensors", ".onnx", ".json", ".html")
    }
    assert all(path.stat().st_size > 0 for path in (saved.weights, saved.onnx, saved.table, saved.page))


@pytest.mark.parametrize(("spread", "shown"), [(0.1, True), (2.0, False)])
def test_times_of_a_busy_machine_are_no_headlines(replaced, spread, shown):
    pytest.importorskip("matplotlib"), pytest.importorskip("plotly")
    from notsodeep.report.replacement import _page

    r = replaced[3]
    table = [{**row, "time spread": spread} for row in r.table]
    page = _page(dataclasses.replace(r, table=table), Path("out"), {"network.onnx"})
    assert ("faster on one row</" in page) == shown
    assert f"+{100 * spread:.0f} %" in page


def test_names_on_the_page_stay_text(replaced):
    pytest.importorskip("matplotlib"), pytest.importorskip("plotly")
    from notsodeep.report.replacement import _page

    evil = "[x](javascript:hacked()) <!--<script> </script><script>hacked()</script> <img src=x onerror=hacked()>"
    r = replaced[3]
    table = [{**row, "network": f"{k} {evil}"} for k, row in enumerate(r.table)]
    changed = dataclasses.replace(r, name=table[1]["network"], table=table, verdict=(evil, *r.verdict))
    seen: list[tuple[str, list[tuple[str, str | None]]]] = []
    texts: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: seen.append((tag, attributes))
    parser.handle_data = texts.append
    parser.feed(_page(changed, Path("out") / evil, {"network.pt2", "network.onnx"}))
    assert [dict(attributes).get("type") for tag, attributes in seen if tag == "script"] == [
        *("application/json", "text/plain", None)
    ]
    assert not [tag for tag, _ in seen if tag == "img"]
    assert not [name for _, attributes in seen for name, _ in attributes if name.startswith("on")]
    links = [dict(attributes)["href"] for tag, attributes in seen if tag == "a"]
    assert links
    assert all(link.startswith("#") for link in links if link is not None)
    assert "".join(texts).count(evil) > len(table)


@pytest.mark.parametrize("seed", [lambda: 3, lambda: np.random.default_rng(3)], ids=["int", "Generator"])
def test_the_same_seed_gives_the_same_network(seed):
    net, X = deep("tanh"), rows(120)
    first, again = (nn.replace(net, X, seed=seed(), samples=300, epochs=1, max_time_ratio=100.0) for _ in range(2))
    for a, b in zip(first.table, again.table, strict=True):
        assert (a["network"], a["agreement"], a["kl"]) == (b["network"], b["agreement"], b["kl"])


def test_limits_that_nothing_reaches_are_named():
    net, X = deep("tanh"), rows(120)
    r = nn.replace(net, X, samples=200, epochs=1, max_time_ratio=1e-9)
    assert not r.reached
    assert "No candidate has a time ratio ≤ 1e-09" in str(r)
    assert r.time_ratio == min(row["time ratio"] for row in r.table)
    r = nn.replace(net, X, samples=200, epochs=1, max_time_ratio=100, min_agreement=1.0, task="values")
    assert not r.reached
    assert "Not reached: agreement" in str(r)


def test_any_module_will_do():
    X = rows(200, 20)
    module = Monotone(40, 20)
    r = nn.replace(module, X, **QUICK)
    assert r.agreement > 0.8
    assert "not recognised" in str(r)
    assert {row["family"] for row in r.table} == {"module", "plain"}


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.W, self.U = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, z, x):
        return torch.tanh(0.3 * self.W(z) + self.U(x))


class Dense(torch.nn.Module):
    def __init__(self, spectral=False):
        super().__init__()
        self.W, self.U, self.act = torch.nn.Linear(24, 24), torch.nn.Linear(12, 24), torch.nn.Tanh()
        if spectral:
            torch.nn.utils.parametrizations.spectral_norm(self.W)

    def forward(self, z, x):
        return self.act(0.5 * self.W(z) + self.U(x))


class Pair(torch.nn.Module):
    """A state of two tensors."""

    def forward(self, state, x):
        a, b = state
        return torch.tanh(0.3 * b + x), torch.tanh(0.3 * a)


class First(torch.nn.Module):
    def forward(self, state):
        return state[0][:, :3]


def cells_of_other_forms():
    layers = torch.nn.Sequential
    torch.manual_seed(0)
    yield (
        "convolution",
        layers(nn.Equilibrium(Convolution(), (4, 3, 4)), torch.nn.Flatten(), torch.nn.Linear(48, 3)),
        (1, 3, 4),
    )
    yield "encoder", layers(torch.nn.Linear(7, 12), nn.Equilibrium(Dense(), (24,)), torch.nn.Linear(24, 3)), (7,)
    yield "spectral norm", layers(nn.Equilibrium(Dense(spectral=True), (24,)), torch.nn.Linear(24, 3)), (12,)
    yield "function", layers(torch.nn.Linear(7, 3), nn.Equilibrium(lambda z, x: torch.tanh(0.3 * z + x))), (7,)
    yield "two tensors", layers(nn.Equilibrium(Pair(), ((12,), (12,))), First()), (12,)
    cell = nsd.DeepDEQ([nsd.Layer("relu", 0.1, 0.0), nsd.Layer("tanh", 0.2, 0.4, normalize="rms")])
    yield "several layers", nn.DEQNet(cell, 12, 24, 3, tol=1e-5), (12,)


@pytest.mark.parametrize(("name", "module", "shape"), [pytest.param(*one, id=one[0]) for one in cells_of_other_forms()])
def test_steps_of_any_cell_are_candidates(name, module, shape, tmp_path, monkeypatch):
    """One step of Picard after another, written out, and in the files."""
    X = torch.randn(120, *shape, generator=torch.Generator().manual_seed(1))
    before = {key: value.clone() for key, value in module.state_dict().items()}
    r = nn.replace(module, X, samples=200, epochs=1, max_time_ratio=1000.0)
    assert [row["network"] for row in r.table if row["family"] == "cell"] == [
        f"{text}{trained}"
        for trained in ("", ", trained")
        for text in ("1 step of the cell", "2 steps of the cell", "3 steps of the cell")
    ]
    assert max(row["agreement"] for row in r.table if row["family"] == "cell") > 0.9
    assert all(type(one).__module__.startswith("torch.") for one in r.network.modules())
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])
    module(X[:3])  # still in one piece
    if name == "convolution":
        plain = unrolled(module, 2, X[:3])
        deep, x = module[0], X[:9]
        with torch.no_grad():
            expected = module[1:](deep.f(deep.f(torch.zeros(9, 4, 3, 4), x), x))
            torch.testing.assert_close(plain(x), expected)
        pytest.importorskip("matplotlib"), pytest.importorskip("plotly"), pytest.importorskip("onnx")
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "onnxscript", None)
            with pytest.warns(UserWarning, match=r"no network\.onnx was written: .* pip install"):
                saved = r.save(tmp_path / "out")
        assert saved.onnx is None
        loaded = torch.export.load(saved.program).module()
        with torch.no_grad():
            for rows_ in (X, X[:1]):
                torch.testing.assert_close(loaded(rows_), r.network(rows_))
        with pytest.raises(InputError, match=r"weights of generated code alone.*network\.pt2"):
            nn.load(saved.weights)
        page = saved.page.read_text("utf-8")
        assert "torch.export.load" in page
        assert "onnxruntime" not in page


def test_any_cell_is_saved_as_onnx(tmp_path):
    """Layers without a form among our own nodes are written by torch."""
    for package in ("matplotlib", "plotly", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    import onnxruntime as ort

    torch.manual_seed(0)
    module = torch.nn.Sequential(nn.Equilibrium(Normalised(12)), torch.nn.Linear(12, 3))
    saved = (r := nn.replace(module, rows(100), samples=100, epochs=1, max_time_ratio=100.0)).save(tmp_path / "out")
    assert r.chosen["family"] == "cell"
    for X in (rows(100), rows(1)):
        found = ort.InferenceSession(saved.onnx, providers=["CPUExecutionProvider"]).run(None, {"x": X.numpy()})[0]
        np.testing.assert_allclose(found, r.network(X).detach().numpy(), atol=1e-5)


def test_what_cannot_be_unrolled_is_said():
    class Uneven(torch.nn.Module):
        def forward(self, z, x):
            return torch.tanh(0.3 * z + x) if float(x.sum()) > 1e9 else torch.tanh(0.2 * z + x)

    X = rows(100)
    r = nn.replace(torch.nn.Sequential(nn.Equilibrium(Uneven()), torch.nn.Linear(12, 3)), X, samples=100, epochs=1)
    assert "No steps of the cell were tried: torch.fx cannot trace the module" in str(r)
    r = nn.replace(lambda x: torch.tanh(x)[:, :3], X, samples=100, epochs=1)
    assert "no nn.Equilibrium or nn.DEQNet was found" in str(r)
    encoder = torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.Linear(5, 12), deep())
    assert "has shape" not in str(nn.replace(encoder, X, samples=100, epochs=1))


class Normalised(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.W, self.norm = torch.nn.Linear(width, width), torch.nn.LayerNorm(width)
        with torch.no_grad():
            self.W.weight *= 0.3

    def forward(self, z, x):
        return self.norm(torch.tanh(self.W(z) + x))


class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = torch.nn.Embedding(11, 8), torch.nn.Linear(48, 3)
        self.deep = nn.Equilibrium(Normalised())

    def forward(self, x):
        return self.out(self.deep(self.table(x)).flatten(1))


def test_integers_that_are_looked_up_are_neither_rounded_nor_mixed(tmp_path):
    X = torch.randint(0, 11, (80, 6), generator=torch.Generator().manual_seed(0))
    module = Tokens()
    for given in (X, X.numpy().astype(np.uint8)):
        r = nn.replace(module, given, epochs=1, max_time_ratio=100.0)
    assert {row["family"] for row in r.table} == {"module", "cell"}
    assert "nothing was mixed" in str(r)
    torch.testing.assert_close(r.network(X), module(X), atol=0.05, rtol=0.0)
    plain = torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.Flatten(), torch.nn.Linear(48, 3))
    with pytest.raises(InputError, match=r"looks up in a table.*no nn\.Equilibrium or nn\.DEQNet was found"):
        nn.replace(plain, X)
    pytest.importorskip("matplotlib"), pytest.importorskip("plotly"), pytest.importorskip("onnx")
    saved = r.save(tmp_path / "out")
    torch.testing.assert_close(torch.export.load(saved.program).module()(X), r.network(X))
    page = saved.page.read_text("utf-8")
    assert "mixtures of them" not in page
    if saved.onnx is not None:
        ort = pytest.importorskip("onnxruntime")
        found = ort.InferenceSession(saved.onnx, providers=["CPUExecutionProvider"]).run(None, {"x": X.numpy()})[0]
        np.testing.assert_allclose(found, r.network(X).detach().numpy(), atol=1e-5)
        assert "int64" in page


def test_a_deq_that_lost_its_equilibrium_is_not_called_another_cell():
    net = nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), 12, 48, 3, max_iter=20, on_failure="ignore")
    with torch.no_grad():
        net.recurrent.mul_(8)
    r = nn.replace(net, rows(), **QUICK)
    assert {row["family"] for row in r.table} == {"module", "plain", "cell"}
    assert f"its solver does not converge (‖W‖·L = {net.contraction:.3g})" in str(r)
    assert "another cell" not in str(r)


def test_images_values_and_other_precisions():
    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = deep("tanh", dtype=torch.float64)

        def forward(self, x):
            return self.net(x.flatten(1))[:, 0]

    module, X = Regression(), rows(300).double().reshape(300, 3, 4)
    r = nn.replace(module, X.numpy(), module(X).detach().numpy() + 1.0, test=X[:50], **QUICK)
    assert r.task == "values"
    assert r.network(X[:5]).shape == (5,)
    assert r.network(X[:5]).dtype == torch.float64
    with torch.no_grad():
        goal, found = module(X[:50]), r.network(X[:50])
    assert r.agreement == pytest.approx(
        1 - float(((found - goal) ** 2).sum() / ((goal - goal.mean()) ** 2).sum()), rel=1e-6
    )
    assert r.agreement > 0.8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"module": 3}, "module=3"),
        ({"X": rows(5)}, "at least 20"),
        ({"y": np.zeros(3, dtype=int)}, r"y has shape \(3,\)"),
        ({"y": np.full(400, 7)}, "labels outside 0 … 2"),
        ({"y": ["a"] * 400}, "number the classes"),
        ({"task": "class"}, "did you mean 'classes'"),
        ({"max_time_ratio": 0}, "max_time_ratio"),
        ({"epochs": 0}, "epochs"),
        ({"min_agreement": 97}, "min_agreement=97 must be between 0 and 1"),
        ({"y": np.random.default_rng(0).random((400, 2))}, r"y has shape \(400, 2\) but the module returns 3 outputs"),
        ({"y": np.random.default_rng(0).random(400)}, r"y has shape \(400,\) but the module returns 3 outputs"),
        ({"y": np.full(400, 0.5), "task": "classes"}, "a vector of labels"),
        ({"test": (rows(5), np.full(5, 7))}, "y of test holds labels outside"),
        ({"test": rows(5, 3)}, "test has samples of shape"),
        ({"y": np.full(400, np.nan)}, "^y holds NaN or infinite values"),
        ({"test": (rows(5), [np.nan] * 5)}, "^y of test holds NaN or infinite values"),
        ({"module": lambda x: torch.ones(len(x), 1)}, "the same outputs for all samples"),
        ({"module": lambda x: torch.tensor([1.0, 2.0, 3.0]).expand(len(x), 3)}, "the same outputs for all samples"),
        ({"module": lambda x: torch.zeros(len(x), 2)}, "the same outputs for all samples"),
    ],
)
def test_bad_input_gets_one_line(change, message):
    arguments = {"module": deep(), "X": rows(), "y": None, **change}
    with pytest.raises(InputError, match=message):
        nn.replace(arguments.pop("module"), arguments.pop("X"), **arguments)


def test_outputs_that_are_constant_where_it_learns():
    """Only one row, which is held out, differs from the others."""
    X = rows(40)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))  # as replace holds out rows
    X[order[-1]] = 9.0
    r = nn.replace(lambda x: torch.relu(x[:, :3] - 5), X, samples=28, epochs=4)
    assert all(np.isfinite(row["agreement"]) for row in r.table)


def test_whole_numbers_are_classes_and_one_logit_tells_two():
    X, quick = rows(200), {"samples": 200, "epochs": 1, "max_time_ratio": 100.0}
    net = deep()
    y = net(X).argmax(1)
    r = nn.replace(net, X, y.double()[:, None].numpy(), **quick)
    assert (r.task, r.table[0]["accuracy"]) == ("classes", 1.0)
    net = nn.DEQNet(nsd.DEQ("relu", 0.2, 0.8), 12, 48, 1, tol=1e-5)
    with torch.no_grad():
        truth = net(X)[:, 0] > 0
    for labels in (truth, truth.long(), truth.double()):
        r = nn.replace(net, X, labels, **quick)
        assert (r.task, r.table[0]["accuracy"]) == ("classes", 1.0)
        order = torch.randperm(200, generator=torch.Generator().manual_seed(0))[170:]
        with torch.no_grad():
            found = r.network(X[order])[:, 0] > 0
        assert r.chosen["accuracy"] == r.agreement == float((found == truth[order]).double().mean())
    assert nn.replace(net, X, X[:, 0], **quick).task == "values"


def test_the_global_random_state_stays():
    state = torch.get_rng_state()
    nn.replace(deep(), rows(60), samples=60, epochs=1)
    assert torch.equal(torch.get_rng_state(), state)


# --- its parts ----------------------------------------------------------------------------


@pytest.mark.parametrize("phi", ["relu", "tanh", nsd.activation("leaky_relu", a=1.5, b=0.2) - 0.1])
def test_steps_of_the_cell_are_a_plain_iteration(phi):
    """h = after·g + constant: four steps from g = 0, written out."""
    net = nn.DEQNet(nsd.DEQ(phi, 0.1, 0.8, bias=0.3), 12, 30, 2)
    cell, X = plain_cell(net), rows(40)
    scale = Scale.of(X)
    one = Candidate("", "cell", _steps(cell, 4, 2, scale), False)
    form = folded(cell.phi, 30, torch.float32)
    with torch.no_grad():
        h = torch.full((40, 30), form.constant)
        for _ in range(4):
            h = cell.image(h, X)
        g = one.network[0](scale(X))
        torch.testing.assert_close(form.after * g + form.constant, h, rtol=1e-4, atol=1e-4)
        scale.fold_back(one.first)
        torch.testing.assert_close(one.network[0](X), g, rtol=1e-4, atol=1e-5)


def test_the_readout_is_ridge_regression():
    X, goal = rows(200, 5), rows(200, 2, seed=1)
    network = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    fit_readout(network, X[:150], goal[:150], (X[150:], goal[150:]))
    with torch.no_grad():
        features = network[:2](X[:150]).double().numpy()
    design = np.column_stack([features, np.ones(150)])
    solution = np.linalg.lstsq(design, goal[:150].double().numpy(), rcond=None)[0]
    found = network(X[:150]).detach().double().numpy() - goal[:150].numpy()
    least = design @ solution - goal[:150].numpy()
    assert np.linalg.norm(found) < 1.02 * np.linalg.norm(least)


def test_values_and_classes_have_their_own_closeness():
    outputs, goal = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 1.0]])
    found = closeness(outputs, goal, torch.tensor([1, 1]), True)
    assert (found.agreement, found.accuracy) == (0.5, 0.5)
    found = closeness(outputs, goal, None, False)
    assert found.agreement == pytest.approx(1 - 11 / 0.5)
    assert found.agrees.tolist() == [-1.0, -10.0]


# --- the choice ---------------------------------------------------------------------------


def figures(wrong: list[int], kl: float | None, n: int = 1500) -> Agreement:
    """A made-up network that misses the class of the module in some of n rows."""
    agrees = torch.ones(n, dtype=torch.float64)
    agrees[wrong] = 0
    return Agreement(float(agrees.mean()), 0.0, kl, 0.1, None, None, agrees)


def test_differences_within_chance_are_decided_by_kl():
    """Three rows of 1500 are chance; KL tells. Thirty are not, whatever KL says."""
    measured = {
        "1 step": figures([*range(30)], 0.027),
        "two layers": figures([*range(20, 53)], 0.015),
        "far": figures([*range(100, 160)], 0.001),
    }
    assert closest(["1 step", "two layers"], measured) == "two layers"
    assert closest(measured, measured) == "two layers"
    assert closest(["1 step", "far"], measured) == "1 step"
    values = {"near": figures([0], None), "far": dataclasses.replace(figures([0, 1], None), relative_error=0.2)}
    assert closest(values, values) == "near"


def judged(chosen_on: dict[str, Agreement], measured: dict[str, Agreement], times: dict[str, float]):
    families = {"1 step": "cell", "slow steps": "cell", "two layers": "plain", "hermite": "designed"}
    networks = {name: torch.nn.Sequential(torch.nn.Linear(2, 2)) for name in chosen_on}
    found = [Candidate(name, families[name], net, True) for name, net in networks.items()]
    columns = {"ms, batch 1": 1.0, "ms, large batch": 1.0, "large batch": 1000, "accuracy": None}
    table = [{"network": "the module", "family": "module", "agreement": 1.0, "time ratio": 1.0, **columns}] + [
        {"network": name, "family": families[name], "agreement": one.agreement, "time ratio": times[name], **columns}
        for name, one in measured.items()
    ]
    limits = {"max_time_ratio": 0.125, "min_agreement": 0.97}
    return _judged(found, networks, table, measured, chosen_on, limits, torch.zeros(3, 2), ["a note"], True, 9, 9)


def test_the_best_within_the_time_is_chosen_and_compared_with_the_best_plain_one():
    """The table of mnist-tanh-1024-0: one step was ahead by chance, two plain layers are closer."""
    chosen_on = {
        "1 step": figures([*range(30)], 0.027),
        "slow steps": figures([0], 0.001),
        "two layers": figures([*range(20, 53)], 0.015),
        "hermite": figures([*range(80)], 0.03),
    }
    on_test = {
        name: figures([*range(miss)], 0.0, 10_000) for name, miss in zip(chosen_on, (254, 10, 174, 270), strict=True)
    }
    times = {"1 step": 0.07, "slow steps": 0.3, "two layers": 0.12, "hermite": 0.06}
    r = judged(chosen_on, on_test, times)
    assert (r.name, r.reached) == ("two layers", True)
    assert [line.split(":")[0] for line in r.verdict[2:]] == ["The design does not pay here", "a note"]
    chosen_on["1 step"] = figures([0], 0.002)  # the rows that choose mislead
    r = judged(chosen_on, on_test, times)
    assert r.name == "1 step"
    assert r.verdict[2].startswith("On the held-out rows the plain network “two layers” is closer to the module")
    assert "(97.46 against 98.26 %" in r.verdict[2]
    on_test["1 step"] = figures([*range(20)], 0.0, 10_000)
    assert "is closer to the module than the best plain network of that time, “two layers”" in str(
        judged(chosen_on, on_test, times).verdict
    )
    on_test["1 step"] = figures([*range(20, 190)], 0.0, 10_000)
    assert "do not differ by more than chance (98.30 against 98.26 %" in judged(chosen_on, on_test, times).verdict[2]
