"""Both explicit designs beside the DEQ: the network with its four numbers, and the single layer with its kernel."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from notsodeep.data import Data
from notsodeep.extras import available
from notsodeep.one_layer import SphereMatch, match_on_sphere
from notsodeep.study.kernels import Study
from notsodeep.study.timing import best_times, predict, torch_on_one_thread

__all__ = ["Designed", "Designs", "designs", "measured_on"]

_ROWS = 500  # on which kernels are compared
_SAMPLES = 1000  # that are predicted in one go


@dataclass(frozen=True)
class Designed:
    """One network of a given width.

    Attributes
    ----------
    name : str
    layers : int or None
        Hidden layers; None for the DEQ.
    distance, normalised : float or None
        ‖K̂ − K‖/‖K‖ on rows of the data as they are, and scaled to norm τ0. The former is not computed for a single
        layer that is made for one norm.
    parameters : int
    milliseconds : float or None
        To predict 1000 samples on one thread; None without PyTorch, or without an equilibrium at finite width.
    """

    name: str
    layers: int | None
    distance: float | None
    normalised: float | None
    parameters: int
    milliseconds: float | None


@dataclass(frozen=True)
class Designs:
    """The DEQ, the matched network and the single layer."""

    single: SphereMatch = field(repr=False)
    width: int
    networks: tuple[Designed, ...]

    columns = ("network", "layers", "distance", "at norm τ0", "parameters", "time")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The table of all three, as text."""

        def cell(value: float | None, form: str) -> str:
            return "–" if value is None else format(value, form)

        return [
            (
                one.name,
                cell(one.layers, "d"),
                cell(one.distance, ".1e"),
                cell(one.normalised, ".1e"),
                str(one.parameters),
                "–" if one.milliseconds is None else f"{one.milliseconds:.3g} ms",
            )
            for one in self.networks
        ]

    @property
    def setting(self) -> str:
        """One line about the table."""
        return (
            f"The DEQ and the explicit networks designed for it, {self.width} wide: relative distance of their "
            f"{self.single.kind} in the spectral norm, on these rows and scaled to norm τ0; parameters; and the time "
            "of 1000 predictions on one thread"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the table, JSON-ready."""
        return {
            "setting": self.setting,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "networks": [asdict(one) for one in self.networks],
            "single": {key: value for key, value in self.single.to_dict().items() if key not in ("network", "model")},
        }


def designs(study: Study, width: int = 256) -> Designs:
    """Design the single layer for the DEQ of a study, and measure it beside the matched network."""
    single = match_on_sphere(study.deq, study.tau0, study.match.kind)
    X = study.data.X[:_ROWS].astype(np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    unit = study.tau0 * X[norms[:, 0] > 0] / norms[norms[:, 0] > 0]
    features, outputs = X.shape[1], 10 if study.data.labels is None else len(np.unique(study.data.labels))
    times = _times(study, single, (features, width, outputs))
    ends = width * (features + outputs)
    networks = [Designed("DEQ", None, None, None, ends + len(study.deq.layers) * width**2, times.get("DEQ"))]
    for name, found in (("matched", study.match), ("single layer", single)):
        parameters = ends + (found.depth - 1) * width**2
        # a series whose layer does not normalise rows is tabulated for every norm, which takes seconds
        anywhere = found is study.match or found.network.normalize is not None
        distances = found.distance_on(X) if anywhere else None, found.distance_on(unit)
        networks.append(Designed(name, found.depth, *distances, parameters, times.get(name)))
    return Designs(single, width, tuple(networks))


def measured_on(found: SphereMatch, data: Data | None, normalize: str) -> dict[str, Any] | None:
    """How far both kernels are apart on the rows of a data set, prepared and scaled to norm τ0; rows of zeros go."""
    if data is None:
        return None
    ready, scaled = data.prepared(normalize), normalize != "none" and found.tau0 != 1
    X = ready.X[(ready.X != 0).any(axis=1)] * (found.tau0 if scaled else 1.0)
    rows = ready.rows + (f", then times τ0 = {found.tau0:g}" if scaled else "")
    facts = {"name": data.name, "samples": len(X), "features": X.shape[1], "normalize": normalize, "rows": rows}
    return {**facts, "distance": found.distance_on(X)}


def _times(study: Study, single: SphereMatch, shape: tuple[int, int, int]) -> dict[str, float]:
    if not (available("torch") and available("safetensors")):
        return {}
    import torch

    from notsodeep import nn

    nets: dict[str, Any] = {
        "matched": nn.ExplicitNet(study.network, *shape),
        "single layer": nn.ExplicitNet(single.network, *shape),
    }
    if study.deq.well_posed:
        nets["DEQ"] = nn.DEQNet(study.deq, *shape, tol=1e-4)
    X = study.data.X
    sample = torch.as_tensor(X[np.arange(_SAMPLES) % len(X)], dtype=torch.float32)
    with torch_on_one_thread():
        found = best_times({name: partial(predict, net, sample) for name, net in nets.items()}, rounds=8)
    return {name: 1e3 * seconds for name, seconds in found.items()}
