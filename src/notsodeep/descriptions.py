"""Models as dictionaries and JSON files, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from notsodeep import files
from notsodeep.activations import Activation, moderate
from notsodeep.checks import InputError, positive, real
from notsodeep.reading import json_file

__all__ = ["Description", "described_activations", "load_model", "model_from_dict", "register"]

_MOST_LAYERS = 1000  # of a description
_MOST_COEFFICIENTS = 1 << 16  # of all its layers together
_MODELS: dict[str, Callable[..., Any]] = {}  # how to build each kind of model


class Description:
    """Base class of the models, which are dataclasses: dictionaries and JSON files."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"model": type(self).__name__, **{k: _plain(v) for k, v in values.items()}}

    def save(self, path: str | Path) -> Path:
        """Write the description as a small JSON file; :func:`load_model` reads it back."""
        text = json.dumps(self.to_dict(), indent=2) + "\n"  # serialise before touching the disk
        return files.write(path, text)


def _plain(value: Any) -> Any:
    if isinstance(value, Activation):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value


def load_model(path: str | Path) -> Any:
    """Read a model written by ``model.save(path)`` (JSON, no code is executed)."""
    try:
        content = json_file(path)
    except FileNotFoundError:
        raise InputError(f"path={str(path)!r} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"path={str(path)!r} is not a readable model file: {error}") from None
    return model_from_dict(content, str(path))


def model_from_dict(content: Any, origin: str = "description") -> Any:
    """Rebuild a model from ``model.to_dict()``."""
    from notsodeep import cells  # noqa: F401, which registers its model, and imports those of `models`

    name = content.get("model") if isinstance(content, Mapping) else None
    if not isinstance(name, str) or name not in _MODELS:
        raise InputError(
            f'{origin} does not describe a model of notsodeep (expected "model": one of {", ".join(_MODELS)})'
        )
    parts = {key: value for key, value in content.items() if key != "model"}
    try:
        if "activation" in parts:
            parts["activation"] = Activation.from_dict(parts["activation"])
        if "activations" in parts:
            parts["activations"] = _layers(parts["activations"])
        for key in ("recurrent", "input", "bias"):
            value = parts.get(key, [])
            for number in value[: _MOST_LAYERS + 1] if isinstance(value, list) else [value]:
                moderate(real(number, key), key)
        if parts.get("normalize") is not None:
            size = positive(parts["normalize"], "normalize")
            moderate(max(size, 1 / size), "normalize")
        return _MODELS[name](**parts)
    except (TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{origin} is damaged: {error}") from None


def _layers(descriptions: Any) -> list[Activation]:
    """The layers of an explicit network; their number is limited, so that a file cannot ask for endless work."""
    if not isinstance(descriptions, list | tuple):
        raise InputError(f"activations={descriptions!r} must be a list")
    if len(descriptions) > _MOST_LAYERS:
        raise InputError(f"activations has {len(descriptions)} entries; at most {_MOST_LAYERS} are possible")
    return described_activations(descriptions)


def described_activations(descriptions: Sequence[Any]) -> list[Activation]:
    """Activations from a file; Hermite series that are long together are refused, each takes seconds to tabulate."""
    lengths = [len(one.get("coefficients", ())) for one in descriptions if isinstance(one, Mapping)]
    if len(lengths) > 1 and sum(lengths) > _MOST_COEFFICIENTS:
        raise InputError(f"its layers have {sum(lengths)} coefficients; at most {_MOST_COEFFICIENTS} are possible")
    return [Activation.from_dict(one) for one in descriptions]


def register(name: str, build: Callable[..., Any]) -> None:
    """Register a kind of model for descriptions; `build` takes the entries of the description."""
    _MODELS[name] = build
