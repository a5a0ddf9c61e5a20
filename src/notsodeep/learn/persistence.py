"""Fitted estimators as one ``.npz`` file: arrays, a JSON header, a checksum over both; no pickle.

`_PARAMETERS` lists what a file may set: numbers, and choices from a list. A file cannot name a cluster, a directory or
a function.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import files
from notsodeep.activations import Activation, activation, activation_names, moderate
from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, count, matrix, nonnegative, positive, seeded, warn_ignored
from notsodeep.descriptions import model_from_dict
from notsodeep.models import DEQ, Explicit
from notsodeep.reading import Npz, json_text
from notsodeep.solvers import Solver
from notsodeep.solvers.preconditioners import PRECONDITIONERS
from notsodeep.solvers.shorthand import OLD, SOLVERS, solver_with

__all__ = ["from_plain_fields", "load", "numbers_of", "plain_fields", "save", "variance"]

Array: TypeAlias = NDArray[Any]
Check: TypeAlias = Callable[[Any, str], Any]

_FORMAT = "notsodeep.learn"
_VERSION = 1
_DATA = "; it holds data: the model that `notsodeep fit` wrote comes first"
_DEEPEST = 1000  # limit for the layers of an unrolled network, so that a file cannot ask for endless work
_LONGEST = 1000  # entries of a list
_MOST_ITERATIONS = 100_000  # of the equilibrium of a sample, or of a solver


def save(estimator: Any, path: str | Path, **options: Any) -> Path:
    """Write a fitted estimator; the file appears complete or not at all. Options are those of `files.writing`."""
    target = Path(path)
    if target.suffix.lower() != ".npz":
        raise InputError(f"path={str(path)!r} must end in .npz")
    arrays, numbers = estimator._state()
    if any(array.dtype.hasobject for array in arrays.values()):
        raise InputError("labels that are Python objects cannot be written to a file; use strings or numbers")
    given = estimator.get_params(deep=False)
    solver = given.get("solver")
    steps = solver.max_iter if isinstance(solver, Solver) else given.get("max_iter")
    for name, value, check in (("depth", given.get("depth"), _depth), ("max_iter", steps, _iterations)):
        if value:
            check(value, name)
    params = {name: _encode(value, name) for name, value in given.items()}
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "class": type(estimator).__name__,
        "params": params,
        "numbers": numbers,
        "arrays": {name: [array.dtype.str, list(array.shape)] for name, array in sorted(arrays.items())},
    }
    text = json.dumps(header, ensure_ascii=False)
    named: dict[str, Any] = {f"array.{name}": array for name, array in arrays.items()}
    with files.writing(target, **options) as file:
        np.savez(file, header=np.array(text), digest=np.array(_digest(text, arrays)), **named)
    return target


def load(path: str | Path) -> Any:
    """Read an estimator written by ``estimator.save(path)``; nothing in the file is executed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from notsodeep.learn import DEQKernelRegressor, load
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> fitted = DEQKernelRegressor().fit(X, X[:, 0] ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(fitted.save(Path(folder) / "model.npz"))
    >>> bool(np.all(again.predict(X) == fitted.predict(X)))
    True
    """
    if not Path(path).exists():
        raise InputError(f"path={str(path)!r} does not exist")
    try:
        header, text, digest, arrays = _read(Path(path))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        if Path(path).suffix.lower() in (".csv", ".npy", ".parquet"):
            reason += _DATA
        raise InputError(f"path={str(path)!r} is not a model written by notsodeep, or is damaged: {reason}") from None
    if header.get("version") != _VERSION:
        raise InputError(
            f"path={str(path)!r} has format version {header.get('version')!r}, this notsodeep reads {_VERSION}; "
            "upgrade notsodeep, or fit and save again"
        )
    if digest != _digest(text, arrays):
        raise InputError(f"path={str(path)!r} was changed after it was written (checksum differs); save it again")
    try:
        kind = _classes()[choice(header["class"], _classes(), "class")]
        estimator = kind(**_parameters(header["params"]))
        estimator._restore(arrays, header["numbers"])
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(f"path={str(path)!r} does not describe an estimator of this notsodeep: {error}") from None
    return estimator


def _read(path: Path) -> tuple[dict[str, Any], str, str, dict[str, Array]]:
    with Npz(path) as archive:
        if "header" not in archive:
            raise ValueError(f"it has no header{_DATA if 'X' in archive else ''}")
        text, digest = archive.text("header"), archive.text("digest")
        header = json_text(text)
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ValueError("its header was not written by notsodeep")
        described = header.get("arrays")
        if not isinstance(described, dict):
            raise ValueError("its header lists no arrays")
        arrays = {name: archive[f"array.{name}"] for name in described}
        if any([array.dtype.str, list(array.shape)] != described[name] for name, array in arrays.items()):
            raise ValueError("its arrays differ from those in its header")
    return header, text, digest, arrays


def _digest(text: str, arrays: dict[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for _, array in sorted(arrays.items()):
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _classes() -> dict[str, Any]:
    from notsodeep import learn

    names = [name for name in learn.__all__ if hasattr(getattr(learn, name), "_restore")]
    return {name: getattr(learn, name) for name in names}


def _encode(value: Any, name: str) -> Any:
    """A parameter as JSON."""
    if isinstance(value, Activation):
        return {"activation": value.to_dict()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_encode(entry, name) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    if (name == "progress" and callable(value)) or isinstance(value, np.random.Generator | np.random.RandomState):
        return None  # belongs to the process that fitted
    if isinstance(value, Solver):
        if type(value) not in _NAMES:
            raise InputError(f"solver={value!r} cannot be written to a file; use one of notsodeep.solvers")
        options = {part: _encode(getattr(value, part), part) for part in _SOLVER_OPTIONS if part in vars(value)}
        return {"name": _NAMES[type(value)], **options}
    if isinstance(value, DeepDEQ) or (isinstance(value, Explicit) and any(value.bias)):
        return value.to_dict()
    if isinstance(value, Explicit):
        return [_encode(phi, name) for phi in value.activations]
    if name == "dtype" and value is not None:
        return np.dtype(value).name
    if callable(value):
        return {"activation": activation(value).to_dict()}  # refuses Python functions
    return value


# --- what a file may set --------------------------------------------------------------------


def _parameters(content: Any) -> dict[str, Any]:
    """Parameters of an estimator, each checked against `_PARAMETERS`."""
    if not isinstance(content, Mapping):
        raise ValueError("its parameters are not names with values")
    unknown = [name for name in content if name not in _PARAMETERS]
    if unknown:
        raise ValueError(f"it sets {unknown[0]!r}, which no file may set")
    values = {name: _PARAMETERS[name](value, name) for name, value in content.items()}
    return _renamed(values)


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    """Parameters of version 0.1 under their present names."""
    if "solver" in values:
        old = {name: values.pop(name) for name in OLD if name in values}
        return values | ({"solver": solver_with(values["solver"], **old)} if old else {})
    new = {"max_iterations": "max_iter", "seed": "random_state"}
    return {new.get(name, name): value for name, value in values.items()}


def _activation(value: Any, name: str) -> Any:
    if isinstance(value, Mapping) and list(value) == ["activation"]:
        return Activation.from_dict(value["activation"])
    return choice(value, activation_names(), name)


def _activations(value: Any, name: str) -> Any:
    """Names or activations; the whole network if it has biases."""
    if isinstance(value, Mapping) and "model" in value:
        return _model(Explicit)(value, name)
    return _activation(value, name) if isinstance(value, str) else _each(_activation)(value, name)


def _model(kind: type) -> Check:
    def checked(value: Any, name: str) -> Any:
        model = model_from_dict(value, name)
        if not isinstance(model, kind):
            raise InputError(f"{name} describes a {type(model).__name__} where a {kind.__name__} belongs")
        return model

    return checked


def variance(value: Any, name: str) -> float:
    """A number that may be a variance, from a file."""
    moderate(nonnegative(value, name), name)
    return float(value)


def _one_of(*options: str) -> Check:
    return lambda value, name: choice(value, options, name)


def _optional(check: Check) -> Check:
    return lambda value, name: None if value is None else check(value, name)


def _each(check: Check) -> Check:
    def checked(value: Any, name: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > _LONGEST:
            raise InputError(f"{name}={value!r} must be a list of at most {_LONGEST} entries")
        return [check(entry, f"{name}[{k}]") for k, entry in enumerate(value)]

    return checked


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r} must be true or false")
    return value


def _ridge(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return choice(value, ("loo", "gcv"), name)
    return _each(nonnegative)(value, name) if isinstance(value, list) else nonnegative(value, name)


def _depth(value: Any, name: str) -> int:
    if count(value, name) > _DEEPEST:
        raise InputError(f"{name}={value!r} must be at most {_DEEPEST} in a file; use depth=None for the equilibrium")
    return int(value)


def _iterations(value: Any, name: str) -> int:
    if count(value, name) > _MOST_ITERATIONS:
        raise InputError(f"{name}={value!r} must be at most {_MOST_ITERATIONS} in a file; lower it")
    return int(value)


def _solver(value: Any, name: str) -> str | Solver:
    """A solver by name, or with options: numbers and choices, no directory, no checkpoint and no client."""
    if not isinstance(value, Mapping):
        return choice(value, SOLVERS, name)
    options = {option: entry for option, entry in value.items() if option != "name"}
    if unknown := [option for option in options if option not in _SOLVER_OPTIONS]:
        raise ValueError(f"it sets {unknown[0]!r} of a solver, which no file may set")
    if options.get("max_iter"):
        _iterations(options["max_iter"], "max_iter")
    return SOLVERS[choice(value.get("name"), SOLVERS, name)](**options)


def _nothing(value: Any, name: str) -> None:
    if value is not None:
        raise InputError(f"{name}={value!r} cannot come from a file; pass it to the estimator yourself")


def _dropped(value: Any, name: str) -> None:
    """Ignore the directory named in files of version 0.1: it may belong to another machine or user."""
    if not isinstance(value, str | None):
        raise InputError(f"{name}={value!r} cannot come from a file")
    if value is not None:
        warn_ignored(
            f"{name}={value[:100]!r} of the file is ignored: a file may not choose where to write; pass it yourself"
        )


_SOLVER_OPTIONS = ("tol", "max_iter", "memory", "refined", "preconditioner", "rank", "seed", "tile")  # checked
_NAMES = {kind: name for name, kind in SOLVERS.items()}
_PARAMETERS: dict[str, Check] = {
    "activation": _activation,
    "activations": _activations,
    "cell": _optional(_model(DeepDEQ)),
    "recurrent": variance,
    "input": variance,
    "bias": variance,
    "kind": _one_of(*DEQ.kinds),
    "depth": _optional(_depth),
    "optimize": _optional(_one_of("marginal_likelihood", "leave_one_out")),
    "ridge": _ridge,
    "normalize": _one_of("pixel", "center", "unit", "none"),
    "dtype": _optional(_one_of("float64", "float32")),
    "solver": _solver,
    "tol": positive,
    "max_iter": _iterations,
    "progress": _optional(_flag),
    "filter_size": count,
    "padding": _one_of("zero", "circular"),
    "readout": _one_of("flatten", "average_pool"),
    "pool": _optional(count),
    "image_shape": _optional(_each(count)),
    "width": count,
    "features": _one_of("explicit", "deq"),
    "centered": _flag,
    "orthogonal": _flag,
    "random_state": _optional(seeded),
    # of version 0.1
    "max_iterations": _optional(_iterations),
    "seed": seeded,
    "preconditioner": _one_of(*PRECONDITIONERS),
    "memory": _optional(positive),
    "client": _nothing,
    "directory": _dropped,
}


def numbers_of(arrays: Mapping[str, Array], name: str, rank: int, shape: tuple[int | None, ...]) -> Array:
    """An array of finite numbers from a file; None in `shape` is any size."""
    array = matrix(arrays[name], name, rank=rank)
    if any(wanted not in (None, there) for wanted, there in zip(shape, array.shape, strict=True)):
        raise ValueError("its arrays do not fit together")
    return array


def plain_fields(instance: Any, without: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a dataclass as JSON."""
    values = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    return {name: _encode(value, name) for name, value in values.items() if name not in without}


def from_plain_fields(kind: Any, content: Any, **others: Any) -> Any:
    """The dataclass that :func:`plain_fields` wrote; its fields are text, numbers and flags only."""
    types = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    plain = {str: ("str",), bool: ("bool",), int: ("int", "float"), float: ("int", "float")}
    for name, value in content.items():
        if types.get(name) not in plain.get(type(value), ()):
            raise ValueError(f"{name}={value!r} is no {name} of a {kind.__name__}")
    return kind(**content, **others)
