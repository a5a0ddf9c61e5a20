"""Files: the same predictions, no pickle, and one clear error for any other file."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tests.command_line import Run

import notsodeep as nsd
from notsodeep.learn import (
    ConvDEQKernelClassifier,
    DEQFeatures,
    DEQKernelClassifier,
    DEQKernelRegressor,
    ExplicitKernelClassifier,
    ExplicitKernelRegressor,
    load,
    persistence,
)
from notsodeep.solvers import CG
from notsodeep.solvers.shorthand import SOLVERS

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6))
NEW = RNG.standard_normal((9, 6))
Y = X[:, :2] ** 2
LABELS = np.array(["blue", "green", "red"])[np.argmax(X[:, :3], axis=1)]
LEAKY = nsd.activation("leaky_relu", a=1.0, b=0.2)

MACHINES = [
    (DEQKernelRegressor(), Y[:, 0]),
    (DEQKernelRegressor(LEAKY, kind="ck", normalize="unit", dtype="float32", ridge=[0.1, 1.0]), Y),
    (DEQKernelClassifier(depth=4, normalize="none", progress=lambda done, total: None), LABELS),
    (DEQKernelClassifier(dtype=np.float32), LABELS.astype(object)),
    (DEQKernelClassifier(), (X[:, 0] > 0).astype(int)),
    (ExplicitKernelClassifier(["relu", LEAKY]), LABELS),
    (ExplicitKernelRegressor(["tanh"], kind="ck", ridge="gcv"), Y),
]


@pytest.mark.parametrize(("machine", "y"), MACHINES)
def test_round_trip(machine: Any, y: Any, tmp_path: Path) -> None:
    weight = np.arange(40) % 3
    machine.fit(X, y, sample_weight=weight)
    path = machine.save(tmp_path / "model.npz")
    again = load(path)
    assert type(again) is type(machine)
    np.testing.assert_array_equal(again.predict(NEW), machine.predict(NEW))
    if hasattr(machine, "predict_proba"):
        np.testing.assert_array_equal(again.predict_proba(NEW), machine.predict_proba(NEW))
        assert again.classes_.dtype == machine.classes_.dtype
    assert (again.ridge_, again.residual_) == (machine.ridge_, machine.residual_)
    assert again.solution_.method == machine.solution_.method
    assert str(again.preparation_) == str(machine.preparation_)
    with pytest.raises(nsd.InputError, match="no factorisation"):
        _ = again.leave_one_out_error_
    assert type(machine).__name__ in again._repr_html_()  # asks for every property
    np.testing.assert_array_equal(load(again.save(tmp_path / "second.npz")).predict(NEW), machine.predict(NEW))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.npz", "second.npz"]


@pytest.mark.parametrize("solver", ["cholesky", "cg", "nystrom", "out_of_core"])
def test_every_solver_leaves_a_file_that_is_read(solver: str, tmp_path: Path) -> None:
    if solver == "out_of_core":
        pytest.importorskip("zarr")
    options: dict[str, Any] = {"cg": {"memory": 1 << 30}, "out_of_core": {"directory": tmp_path / "work"}}.get(
        solver, {}
    )
    machine = DEQKernelRegressor(solver=SOLVERS[solver](max_iter=500, **options), dtype="float32")
    again = load(machine.fit(X, Y, sample_weight=1.0 + np.arange(40) % 3).save(tmp_path / "model.npz"))
    assert vars(again.solution_).keys() == vars(machine.solution_).keys()
    assert again.solution_.reason == machine.solution_.reason
    if solver == "out_of_core":  # a file names no directory
        machine.set_params(solver=replace(machine.solver, directory=None))
    assert again.get_params() == machine.get_params()


@pytest.mark.parametrize("features", ["explicit", "deq"])
def test_features_keep_their_weights(features: str, tmp_path: Path) -> None:
    fitted = DEQFeatures(LEAKY, width=20, features=features).fit(X)
    again = load(fitted.save(tmp_path / "features.npz"))
    np.testing.assert_array_equal(again.transform(NEW), fitted.transform(NEW))
    assert list(again.get_feature_names_out()) == list(fitted.get_feature_names_out())


def test_names_of_columns_are_kept(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    again = load(DEQKernelRegressor().fit(frame, Y).save(tmp_path / "model.npz"))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("fedcba")])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return DEQKernelClassifier().fit(X, LABELS).save(tmp_path / "model.npz")


def rewrite(path: Path, **changes: Any) -> None:
    with np.load(path) as archive:
        content = dict(archive)
    for name, change in changes.items():
        content[name.replace("__", ".")] = change(content[name.replace("__", ".")])
    np.savez(path, **content)


def test_truncated_and_damaged_files(saved: Path) -> None:
    whole = saved.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 10):
        saved.write_bytes(whole[:size])
        with pytest.raises(nsd.InputError, match="not a model written by notsodeep, or is damaged"):
            load(saved)
    for position in range(60, len(whole), len(whole) // 23):
        bad = bytearray(whole)
        bad[position] ^= 0xFF
        saved.write_bytes(bytes(bad))
        try:
            again = load(saved)
        except nsd.InputError:
            continue
        # a byte between the members of the archive: nothing of the model was touched
        saved.write_bytes(whole)
        np.testing.assert_array_equal(again.predict(NEW), load(saved).predict(NEW))


def test_changed_files(saved: Path) -> None:
    rewrite(saved, array__dual_coef=lambda c: c + 1e-9)
    with pytest.raises(nsd.InputError, match="was changed after it was written"):
        load(saved)


def test_changed_headers(saved: Path) -> None:
    rewrite(saved, header=lambda h: np.array(str(h).replace('"recurrent": 0.25', '"recurrent": 0.26')))
    with pytest.raises(nsd.InputError, match="was changed after it was written"):
        load(saved)


def test_future_files(saved: Path) -> None:
    rewrite(saved, header=lambda h: np.array(json.dumps({**json.loads(str(h)), "version": 99})))
    with pytest.raises(nsd.InputError, match="format version 99"):
        load(saved)


def test_foreign_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X)
    np.save(tmp_path / "b.npy", X)
    np.savez(tmp_path / "c.npz", header=np.array("{}"), digest=np.array(""))
    np.savez(tmp_path / "d.npz", header=np.array([{"a": 1}], dtype=object), digest=np.array(""))  # a pickle
    (tmp_path / "e.npz").write_text("hello")
    for name in ("a.npz", "b.npy", "c.npz", "d.npz", "e.npz"):
        with pytest.raises(nsd.InputError, match="not a model written by notsodeep"):
            load(tmp_path / name)
    with pytest.raises(nsd.InputError, match="does not exist"):
        load(tmp_path / "nowhere.npz")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    machine = DEQKernelRegressor().fit(X, Y)
    with pytest.raises(nsd.InputError, match=r"must end in \.npz"):
        machine.save(tmp_path / "model.pkl")
    with pytest.raises(nsd.InputError, match="create it first"):
        machine.save(tmp_path / "no" / "model.npz")
    with pytest.raises(nsd.InputError, match="is a Python function and cannot be written"):
        DEQKernelRegressor(np.arctan, kind="ck").fit(X, Y).save(tmp_path / "model.npz")
    mixed = np.array([1, "a"] * 20, dtype=object)
    with pytest.raises((nsd.InputError, TypeError, ValueError)):
        DEQKernelClassifier().fit(X, mixed).save(tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_depth_that_no_file_may_ask_for_is_not_written(tmp_path: Path) -> None:
    machine = DEQKernelRegressor(depth=1001).fit(X, X[:, 0])
    with pytest.raises(nsd.InputError, match="depth=1001 must be at most 1000 in a file"):
        machine.save(tmp_path / "deep.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_cannot_ask_for_endless_iterations(tmp_path: Path) -> None:
    machine = DEQFeatures(width=6, features="deq").fit(X)
    path = machine.save(tmp_path / "features.npz")
    with pytest.raises(nsd.InputError, match="max_iter=1000000000000 must be at most 100000 in a file; lower it"):
        load(forge(path, max_iter=10**12, tol=1e-30))
    with pytest.raises(nsd.InputError, match="max_iter=1000000 must be at most 100000 in a file; lower it"):
        machine.set_params(max_iter=10**6).save(tmp_path / "more.npz")
    regressor = DEQKernelRegressor(solver=CG(max_iter=0)).fit(X, np.zeros(40))
    path = regressor.save(tmp_path / "machine.npz")
    assert load(path).solver == CG(max_iter=0)
    for many in (10**12, 10**5 + 1):
        with pytest.raises(nsd.InputError, match=f"max_iter={many} must be at most 100000 in a file; lower it"):
            load(forge(path, solver={"name": "cg", "max_iter": many}))
    with pytest.raises(nsd.InputError, match="max_iter=1000000 must be at most 100000 in a file; lower it"):
        regressor.set_params(solver=CG(max_iter=10**6)).save(tmp_path / "more.npz")
    assert not (tmp_path / "more.npz").exists()


def test_arrays_of_another_type_or_size_are_refused(saved: Path) -> None:
    """The checksum is over bytes; the same bytes as integers are other numbers."""
    content = dict(np.load(saved))
    for name in ("array.dual_coef", "array.X_fit"):
        np.savez(saved, **{**content, name: content[name].view(np.int64)})
        with pytest.raises(nsd.InputError, match="differ from those in its header"):
            load(saved)


def test_an_explicit_network_is_written(tmp_path: Path) -> None:
    solver = CG(checkpoint=tmp_path / "cg.npz", client=None, seed=3)
    machine = ExplicitKernelRegressor(nsd.Explicit(["relu", LEAKY]), solver=solver).fit(X, Y)
    again = load(machine.save(tmp_path / "model.npz"))
    np.testing.assert_array_equal(again.predict(NEW), machine.predict(NEW))
    assert again.solver == CG(seed=3)  # the checkpoint is of the process that fitted
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(nsd.InputError, match="is a directory"):
        machine.save(tmp_path / "folder.npz")


def forge(path: Path, **changes: Any) -> Path:
    """Change parameters (``name``), other entries of the header (``_name``) or arrays, and make the checksum right."""
    content = dict(np.load(path))
    header = json.loads(str(content["header"]))
    arrays = {name.removeprefix("array."): array for name, array in content.items() if name.startswith("array.")}
    for name, value in changes.items():
        if name in arrays:
            arrays[name] = content[f"array.{name}"] = value
            header["arrays"][name] = [value.dtype.str, list(value.shape)]
        else:
            place = header if name.startswith("_") else header["params"]
            place[name.removeprefix("_")] = value
    text = json.dumps(header)
    np.savez(path, **{**content, "header": np.array(text), "digest": np.array(persistence._digest(text, arrays))})
    return path


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("X_fit", 1e308, "has a row of norm inf, whose kernel overflows float64"),
        ("mean", 1e308, "whose kernel overflows float64"),
        ("mean", -1e308, "whose kernel overflows float64"),
        ("dual_coef", 1e308, "predictions overflow float64 (coefficients of the machine are up to 1e+308)"),
        ("dual_coef", np.nan, "dual_coef holds 120 NaN or infinite values"),
        ("classes", np.nan, "classes holds 3 NaN or infinite values"),
    ],
)
def test_a_machine_that_overflows_is_refused_in_one_line(
    saved: Path, name: str, value: float, message: str, run: Run, tmp_path: Path
) -> None:
    np.save(tmp_path / "mine.npy", NEW)
    forge(saved, **{name: np.full(np.load(saved)[f"array.{name}"].shape, value)})
    result = run("predict", saved, tmp_path / "mine.npy")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert message in " ".join(result.err.split())


def test_a_temperature_without_which_probabilities_overflow(saved: Path, run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", NEW)
    numbers = json.loads(str(np.load(saved)["header"]))["numbers"]
    numbers["calibration"]["temperature"] = 1e-310
    result = run("predict", forge(saved, _numbers=numbers), tmp_path / "mine.npy", "--proba")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert "probabilities overflow float64 (temperature=1e-310)" in result.err


def test_weights_that_nobody_drew_are_refused(tmp_path: Path) -> None:
    path = DEQFeatures(width=6, features="deq").fit(X).save(tmp_path / "features.npz")
    with pytest.raises(nsd.InputError, match="its weights are not standard normal"):
        load(forge(path, weight1=np.full((6, 6), 1e308)))


def test_a_file_cannot_open_a_connection(saved: Path, run: Run, tmp_path: Path) -> None:
    """A stranger's model that names a scheduler: it received the samples, and its answer was unpickled."""
    np.save(tmp_path / "mine.npy", NEW)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(0.2)
        address = f"tcp://127.0.0.1:{stranger.getsockname()[1]}"
        forge(saved, client=address)
        with pytest.raises(nsd.InputError, match=f"client='{address}' cannot come from a file"):
            load(saved)
        forge(saved, client=None, solver={"name": "cg", "client": address})
        with pytest.raises(nsd.InputError, match="it sets 'client' of a solver, which no file may set"):
            load(saved)
        result = run("predict", saved, tmp_path / "mine.npy")
        assert (result.code, result.err.count("\n")) == (2, 1)
        with pytest.raises(TimeoutError):
            stranger.accept()


def test_a_file_cannot_name_a_directory(saved: Path, tmp_path: Path) -> None:
    """Files of version 0.1.0 hold the directory of their fit: it is not taken over, and that is said."""
    place = tmp_path / "elsewhere"
    assert load(forge(saved, directory=None)).solver == "auto"
    with pytest.warns(UserWarning, match="of the file is ignored: a file may not choose where to write") as told:
        machine = load(forge(saved, directory=str(place), solver="cg"))
    assert (len(told), told[0].filename) == (1, __file__)
    assert machine.solver == "cg"
    machine.fit(X, LABELS)
    assert not place.exists()
    for option in ("directory", "checkpoint"):
        with pytest.raises(nsd.InputError, match=f"it sets '{option}' of a solver, which no file may set"):
            load(forge(saved, solver={"name": "out_of_core", option: str(place)}))


def test_files_of_the_first_release_are_read() -> None:
    """Written by version 0.1.0, whose estimators had the options of their solvers as parameters of their own."""
    folder, rows = Path(__file__).parent / "files", np.random.default_rng(0).standard_normal((8, 3)).round(2)
    machine = load(folder / "classifier-0.1.npz")
    assert machine.solver == CG(tol=1e-9, max_iter=300, preconditioner="none")
    np.testing.assert_allclose(
        machine.decision_function(rows[:2]), [-0.6803435153909003, -0.26851081715039093], rtol=1e-12
    )
    np.testing.assert_allclose(clone(machine).fit(rows, list("aabbabab")).dual_coef_, machine.dual_coef_, rtol=1e-7)
    features = load(folder / "features-0.1.npz")
    assert features.max_iter == 150
    expected = [[-0.152636507651404, -0.184823201630057, -0.09479011602347312, -0.184823201630057]]
    np.testing.assert_allclose(features.transform(rows[:1]), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"progress": "bar"},
        {"directory": ["x"]},
        {"directory": 1},
        {"solver": "cgg"},
        {"solver": {"name": "cgg"}},
        {"solver": {"name": "cg", "tol": -1}},
        {"solver": {"name": "cg", "preconditioner": ["none"]}},
        {"solver": {"tol": 1e-6}},
        {"solver": {"name": "cholesky", "rank": 3}},
        {"kind": "secret"},
        {"activation": "os.system"},
        {"activation": ["relu"]},
        {"activation": {"activation": {"name": "relu", "scale": 1e300, "stretch": 1e300, "shift": 0}}},
        {"recurrent": "0.2"},
        {"recurrent": True},
        {"recurrent": None},
        {"depth": 10**9},
        {"depth": 0.5},
        {"ridge": {}},
        {"ridge": [[1]]},
        {"dtype": "object"},
        {"normalize": "pickle"},
        {"depth": 1001},
        {"memory": -1},
        {"random_state": 1},
        {"class": "x"},
        {"_class": "KernelMachine"},
        {"_class": "ZCA"},
        {"_class": []},
        {"_class": "DEQFeatures"},
        {"_class": "ConvDEQKernelClassifier"},
        {"_params": []},
        {"_numbers": []},
        {"_numbers": {}},
    ],
    ids=str,
)
def test_a_file_sets_numbers_and_choices_and_nothing_else(saved: Path, change: dict[str, Any]) -> None:
    with pytest.raises(nsd.InputError, match="does not describe an estimator of this notsodeep"):
        load(forge(saved, **change))


def test_a_file_pools_over_whole_blocks_of_pixels(tmp_path: Path) -> None:
    images = X[:, :4].reshape(-1, 2, 2, 1)
    machine = ConvDEQKernelClassifier(filter_size=1, normalize="unit", readout="average_pool", pool=2)
    path = machine.fit(images, LABELS).save(tmp_path / "images.npz")
    assert load(forge(path, pool=1)).pool == 1
    assert load(forge(path, pool=None)).pool is None
    for change in ({"readout": "max_pool"}, {"pool": 0}, {"pool": 2.5}, {"pool": True}, {"pool": "2"}, {"pool": [2]}):
        forge(path, readout="average_pool", pool=None)
        with pytest.raises(nsd.InputError, match=f"does not describe an estimator.*{next(iter(change))}"):
            load(forge(path, **change))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_features_in", 7),
        ("n_features_in", "6"),
        ("scale", 0),
        ("ridge", [1]),
        ("solution", {}),
        ("solution", {"factor": "x"}),
        ("solution", []),
        ("calibration", {"temperature": -1.0, "accuracy": 1.0, "rows": 1, "method": ""}),
        ("calibration", {"temperature": "x"}),
    ],
)
def test_numbers_that_do_not_fit_are_refused(saved: Path, name: str, value: Any) -> None:
    numbers = json.loads(str(np.load(saved)["header"]))["numbers"]
    with pytest.raises(nsd.InputError, match="does not describe an estimator of this notsodeep"):
        load(forge(saved, _numbers={**numbers, name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("recurrent", "input", "bias", "ridge") for value in (1e308, -1.0, float("nan"))),
        ("ridge", 0.5),
        ("criterion", "\x1b[31m"),
        ("criterion", "leave_one_out"),
        ("rows", "x"),
    ],
)
def test_tuned_numbers_are_checked_like_parameters(tmp_path: Path, name: str, value: Any) -> None:
    pytest.importorskip("torch")
    machine = DEQKernelRegressor(kind="ck", optimize="marginal_likelihood", ridge=1e-2).fit(X, X[:, 0])
    path = machine.save(tmp_path / "tuned.npz")
    assert np.array_equal(load(path).predict(X), machine.predict(X))
    numbers = json.loads(str(np.load(path)["header"]))["numbers"]
    numbers["tuning"][name] = value
    with pytest.raises(nsd.InputError, match="does not describe an estimator of this notsodeep"):
        load(forge(path, _numbers=numbers))
