"""What the page shows for the position of its knobs, as dictionaries of numbers; nothing here knows of a server."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation, activation, activation_names
from notsodeep.checks import AssumptionWarning, InputError, choice, count, nonnegative, positive, real
from notsodeep.data import Data, subsample
from notsodeep.explore.formula import TypedFormula
from notsodeep.highdim import Mixture, forecast, spectrum
from notsodeep.kinds import Kind
from notsodeep.matching import Match, match
from notsodeep.models import DEQ, Explicit

__all__ = ["ACTIVATIONS", "TOPICS", "Knobs", "measured", "one_layer", "python"]

Array = NDArray[np.float64]

ACTIVATIONS = tuple(name for name in activation_names() if name not in ("piecewise_linear", "hermite"))
_COSINES = np.cos(np.linspace(np.pi, 0, 91))
_SIGNALS = np.linspace(-3, 3, 121)
_SAMPLES = 240  # rows of the sampled kernel
_HEAT = 96  # rows of the heat map
# beyond these, answers take long or lose their digits
_RANGES = (
    ("separation", 0.0, 30.0),
    ("tau0", 1e-3, 100.0),
    *(("recurrent", 1e-6, 100.0), ("input", 1e-6, 100.0), ("bias", 1e-6, 100.0)),
)


@dataclass(frozen=True)
class Knobs:
    """The position of the knobs; bad values raise `InputError`.

    Attributes
    ----------
    phi : str
        Name of an activation, or a formula of x.
    recurrent, input, bias : float
        Variances.
    tau0 : float
        Norm of the rows.
    kind : str
    ratio : float
        p/n.
    separation : float
        Distance of the two classes of the mixture, in units of their deviation.
    kinks : int
    """

    phi: str = "relu"
    recurrent: float = 0.2
    input: float = 0.8
    bias: float = 0.0
    tau0: float = 1.0
    kind: str = "ck"
    ratio: float = 1.5
    separation: float = 3.0
    kinks: int = 3

    @classmethod
    def of(cls, given: Any) -> Knobs:
        """From decoded JSON."""
        if not isinstance(given, Mapping):
            raise InputError("the request must hold one JSON object")
        for name in given:
            choice(name, cls.__dataclass_fields__, "knob")
        knobs = cls(**given)
        if not isinstance(knobs.phi, str) or len(knobs.phi) > 200:
            raise InputError("phi must be the name of an activation or a formula of at most 200 characters")
        for name in ("recurrent", "input", "bias", "separation"):
            nonnegative(getattr(knobs, name), name)
        positive(knobs.tau0, "tau0")
        choice(knobs.kind, DEQ.kinds, "kind")
        if not 0.05 <= real(knobs.ratio, "ratio") <= 20:
            raise InputError(f"ratio={knobs.ratio!r} must lie between 0.05 and 20")
        if not 1 <= count(knobs.kinks, "kinks") <= 8:
            raise InputError(f"kinks={knobs.kinks!r} must lie between 1 and 8")
        for name, least, most in _RANGES:
            value = getattr(knobs, name)
            if value > most:
                raise InputError(f"{name}={value!r} must be at most {most:g}")
            if 0 < value < least:
                raise InputError(f"{name}={value!r} must be at least {least:g}{'' if name == 'tau0' else ', or 0'}")
        return knobs

    @property
    def formula(self) -> TypedFormula | None:
        """The formula; None for an activation with a name."""
        return None if self.phi in ACTIVATIONS else TypedFormula(self.phi)

    @property
    def model(self) -> DEQ:
        return DEQ(_activation(self.phi), self.recurrent, self.input, self.bias)

    @property
    def sphere(self) -> tuple[Any, ...]:
        """What the design of one layer depends on."""
        return (self.phi, self.recurrent, self.input, self.bias, self.tau0, self.kind)


@lru_cache(64)
def _activation(phi: str) -> Activation:
    if phi in ACTIVATIONS:
        return activation(phi)
    formula = TypedFormula(phi)
    found = activation(formula, derivative=formula.derivative)
    if not found.kinks:
        return found
    # piecewise linear formulas have their moments in closed form
    ends = np.array([found.kinks[0] - 1, *found.kinks, found.kinks[-1] + 1])
    slopes = np.diff(formula(ends)) / np.diff(ends)
    exact = activation("piecewise_linear", kinks=found.kinks, slopes=slopes)
    exact = exact + (float(formula(0.0)) - float(exact(0.0)))
    probe = np.linspace(-9.7, 9.3, 401)
    return exact if np.allclose(exact(probe), formula(probe), rtol=1e-12, atol=1e-12) else found


def kernel(knobs: Knobs) -> dict[str, Any]:
    """Well-posedness and k(t)."""
    model = knobs.model
    verdict = model.well_posed
    answer: dict[str, Any] = {
        "text": str(model),
        "well_posed": {
            "verdict": bool(verdict),
            "reason": verdict.reason,
            "finite": verdict.finite_width.value,
            "infinite": verdict.infinite_width.value,
        },
        "python": python(knobs),
        "json": None if knobs.formula else model.to_dict(),
        "phi": {"x": _SIGNALS.tolist(), "y": _numbers(model.activation(_SIGNALS))},
    }
    if not verdict.infinite_width.holds:
        return {**answer, "obstacle": "there is no equilibrium, so there is no kernel: turn σ_a² down"}
    k = model.on_sphere(knobs.kind, norm=knobs.tau0)
    return {**answer, "k": {"t": _COSINES.tolist(), "deq": _numbers(k(_COSINES))}}


def network(knobs: Knobs) -> dict[str, Any]:
    """The explicit network with the same four numbers, or why there is none."""
    _require_equilibrium(knobs)
    found = _designed(*knobs.sphere)
    if isinstance(found, str):
        return {"refused": found}
    goal, reached = (
        one.on_sphere(kind, norm=knobs.tau0)(_COSINES)
        for one, kind in ((found.reference, knobs.kind), (found.network, Kind.of(knobs.kind).explicit))
    )
    return {
        "exact": found.exact,
        "missed": list(found.missed),
        "depth": found.depth,
        "numbers": {
            name: {"deq": goal_, "explicit": found.achieved._asdict()[name], "error": found.errors._asdict()[name]}
            for name, goal_ in found.target._asdict().items()
        },
        "curves": {"deq": _numbers(goal), "explicit": _numbers(reached)},
        "layers": [{"formula": str(one), "y": _numbers(one(_SIGNALS))} for one in found.network.activations],
        "network": found.network.to_dict(),
    }


def _require_equilibrium(knobs: Knobs) -> None:
    if not knobs.model.well_posed.infinite_width.holds:
        raise InputError("there is no equilibrium, so there is no kernel: turn σ_a² down")


@lru_cache(128)
def _designed(phi: str, recurrent: float, input: float, bias: float, tau0: float, kind: str) -> Match | str:
    """The network with the same four numbers, or why there is none."""
    try:
        found = match(DEQ(_activation(phi), recurrent, input, bias), tau0=tau0, kind=kind)
        assert isinstance(found, Match)
        return found
    except InputError as error:
        return str(error)


def _mixture(knobs: Knobs) -> Mixture:
    """Two classes, and the number p of features."""
    mean = np.zeros(max(2, round(knobs.ratio * _SAMPLES)))
    mean[0] = knobs.separation / 2
    return Mixture([mean, -mean], [knobs.tau0**2, knobs.tau0**2], [0.5, 0.5])


def spectra(knobs: Knobs) -> dict[str, Any]:
    """The limiting spectrum against a sampled one."""
    _require_equilibrium(knobs)
    model, mixture, n = knobs.model, _mixture(knobs), _SAMPLES
    X, _ = mixture.sample(n, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        limit = spectrum(model, mixture, kind=knobs.kind, n=n)
    K = model.centered(knobs.tau0).kernel(X, kind=knobs.kind, progress=False)
    return {
        "n": n,
        "p": mixture.p,
        "density": {"x": _numbers(limit.x), "y": _numbers(limit.y)},
        "support": [_numbers(interval) for interval in limit.support],
        "atoms": [list(atom) for atom in limit.atoms],
        "outliers": _numbers(limit.outliers),
        "eigenvalues": _numbers(np.linalg.eigvalsh(K)),
        "caveats": list(limit.caveats),
    }


def outlook(knobs: Knobs) -> dict[str, Any]:
    """The forecast accuracy of kernel ridge regression on two classes."""
    _require_equilibrium(knobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        ahead = forecast(knobs.model, _mixture(knobs), n=_SAMPLES, ridge="best", kind=knobs.kind)
    return {"accuracy": float(ahead.accuracy), "ridge": float(ahead.ridge), "outside": list(ahead.outside)}


def distance(knobs: Knobs) -> dict[str, Any]:
    """The distance of both kernels on rows of equal norm, predicted from k(t) and measured; empty without a network."""
    _require_equilibrium(knobs)
    found = _designed(*knobs.sphere)
    return dict(_distance(found, _mixture(knobs).p)) if isinstance(found, Match) else {}


@lru_cache(128)
def _distance(found: Match, p: int) -> dict[str, float]:
    rows = np.random.default_rng(1).standard_normal((_SAMPLES, p))
    rows *= found.tau0 / np.linalg.norm(rows, axis=1, keepdims=True)
    return {"predicted": predicted_distance(found, _SAMPLES, p), "measured": found.distance_on(rows)}


def predicted_distance(found: Match, n: int, p: int) -> float:
    """‖K̂ − K‖/‖K‖ for n rows of equal norm in random directions of dimension p, from k(t) alone.

    Cosines are nearly N(0, 1/p), so K ≈ a₀11ᵀ + a₁XXᵀ/τ₀² + dI with a₀ = E k(t), a₁ = E k'(t), d = k(1) − a₀ − a₁;
    XXᵀ/τ₀² has its eigenvalues between (1 ± √(n/p))², and 1 is nearly orthogonal to the directions at its edges.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    t, weights = np.clip(nodes / math.sqrt(p), -1, 1), weights / weights.sum()
    edge = (1 + math.sqrt(n / p)) ** 2
    low = max(0.0, 1 - math.sqrt(n / p)) ** 2 if n < p else 0.0

    def parts(model: Any, kind: str) -> Array:
        k = model.on_sphere(kind, norm=found.tau0)
        mean, slope = float(weights @ k(t)), float(weights @ (k(t) * t)) * p
        return np.array([mean, slope, float(k(1.0)) - mean - slope])

    def norm(a: Array) -> float:
        return float(max(abs(n * a[0] + a[1] + a[2]), abs(edge * a[1] + a[2]), abs(low * a[1] + a[2])))

    goal = parts(found.reference, found.kind)
    return norm(parts(found.network, Kind.of(found.kind).explicit) - goal) / norm(goal)


@lru_cache(32)
def _one_layer(phi: str, recurrent: float, input: float, bias: float, tau0: float, kind: str, kinks: int | None) -> Any:
    model = DEQ(_activation(phi), recurrent, input, bias)
    found = match(model, tau0=tau0, kind=kind, on="sphere", kinks=kinks)
    (layer,) = found.network.activations
    return {
        "y": _numbers(layer(_SIGNALS)),
        "formula": str(layer),
        "distance": found.distance,  # type: ignore[union-attr]
        "exact": found.exact,
        "network": found.network.to_dict(),
    }


def one_layer(knobs: Knobs, *, kinks: bool = False) -> dict[str, Any]:
    """The activation of one hidden layer: exact on the sphere, or piecewise linear with at most so many kinks."""
    _require_equilibrium(knobs)
    return dict(_one_layer(*knobs.sphere, knobs.kinks if kinks else None))


def measured(knobs: Knobs, data: Data, normalize: str = "unit") -> dict[str, Any]:
    """The kernel of data, the distance of the designed network's, and the accuracy of both by leave-one-out."""
    from notsodeep.learn import DEQKernelClassifier, ExplicitKernelClassifier

    chosen = subsample(data, 500)
    ready = chosen.prepared(normalize)
    tau0 = 1.0 if normalize != "none" else float(np.sqrt(np.mean(np.sum(ready.X**2, axis=1))))
    _require_equilibrium(knobs)
    found = _designed(knobs.phi, knobs.recurrent, knobs.input, knobs.bias, tau0, knobs.kind)
    order = np.arange(len(ready.X)) if ready.labels is None else np.argsort(ready.labels, kind="stable")
    order = order[np.linspace(0, len(order) - 1, min(_HEAT, len(order))).astype(int)]
    model = knobs.model.centered(tau0) if isinstance(found, Match) else knobs.model
    K = model.kernel(ready.X[order], kind=knobs.kind, progress=False)
    answer: dict[str, Any] = {
        "name": data.name,
        "notes": list(data.notes),
        "samples": len(data.X),
        "used": len(ready.X),
        "features": data.X.shape[1],
        "rows": ready.rows,
        "heat": [_numbers(row) for row in K],
        "classes": [] if ready.labels is None else [str(one) for one in ready.labels[order]],
        "distance": found.distance_on(ready.X) if isinstance(found, Match) else None,
        "refused": "" if isinstance(found, Match) else found,
        "accuracy": {},
    }
    if ready.labels is None or len(np.unique(ready.labels)) < 2:
        return answer
    ridge = 0.01 * float(np.mean(np.diag(K)))
    options: dict[str, Any] = {"ridge": ridge, "normalize": "none", "progress": False}
    machines: dict[str, Any] = {
        "implicit": DEQKernelClassifier(
            model.activation, model.recurrent, model.input, model.bias, knobs.kind, **options
        )
    }
    if isinstance(found, Match):
        explicit: Explicit = found.network
        machines["explicit"] = ExplicitKernelClassifier(
            explicit.activations, kind=Kind.of(knobs.kind).explicit, **options
        )
    for name, machine in machines.items():
        answer["accuracy"][name] = float(machine.fit(ready.X, ready.labels).calibration_.accuracy)
    return answer


def python(knobs: Knobs) -> str:
    """A script with the same model, kernel and networks."""
    formula = knobs.formula
    phi = repr(knobs.phi) if formula is None else f"nsd.activation(lambda x: {formula.python})"
    needs = "import scipy.special\n" if formula and "scipy" in formula.python else ""
    return (
        f"import numpy as np\n{needs}\nimport notsodeep as nsd\n\n"
        f"deq = nsd.DEQ({phi}, recurrent={knobs.recurrent!r}, input={knobs.input!r}, bias={knobs.bias!r})\n"
        "print(deq.well_posed)\n"
        f"k = deq.on_sphere(kind={knobs.kind!r}, norm={knobs.tau0!r})\n"
        "print(k(np.linspace(-1, 1, 5)))\n"
        + (
            f"print(nsd.match(deq, tau0={knobs.tau0!r}, kind={knobs.kind!r}))  # equal numbers in high dimension\n"
            if knobs.bias == 0
            else ""
        )
        + f"one = nsd.match(deq, tau0={knobs.tau0!r}, kind={knobs.kind!r}, on='sphere')  # one layer, exact\n"
        f"few = nsd.match(deq, tau0={knobs.tau0!r}, kind={knobs.kind!r}, on='sphere', kinks={knobs.kinks})\n"
    )


TOPICS = {"kernel": kernel, "network": network, "spectra": spectra, "outlook": outlook, "distance": distance}


def _numbers(values: Any) -> list[float | None]:
    """Rounded to eight digits for the page; what is not finite becomes null."""
    return [float(f"{value:.8g}") if math.isfinite(value) else None for value in np.ravel(values).tolist()]
