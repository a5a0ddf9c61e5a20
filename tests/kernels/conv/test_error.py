"""The stated error of convolutional kernels bounds the true one, and is small for ordinary images."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.conv_digits import Digits
from tests.conv_oracle import KINDS
from tests.kernels.conv.test_blocks import blobs, images

import notsodeep as nsd
from notsodeep.kernels.conv import ConvBlocks

ACTIVATIONS = {
    "relu": nsd.activation("relu"),
    "normalized_relu": nsd.activation("normalized_relu"),
    "leaky": nsd.activation("leaky_relu", a=1.0, b=0.3),
    "abs": nsd.activation("abs"),
    "negative": nsd.activation("leaky_relu", a=0.9, b=-0.4),  # Ġ changes its sign
}
PIXELS = ("unit", "any", "black", "wild")
POOLS = {(4, 4): 2, (3, 6): 3, (6, 4): 2}  # sides of blocks, for sizes of images
RELATIONS = ("far", "near", "same", "scaled", "nearly scaled", "shared pixels", "antipodal", "flipped pixels")


def power(phi: nsd.Activation) -> float:
    """v = E[φ(ξ)²]."""
    return (float(phi(1.0)) ** 2 + float(phi(-1.0)) ** 2) / 2


class Case(NamedTuple):
    """A model, two images, and what is asked of them."""

    model: nsd.ConvDEQ
    x: np.ndarray
    y: np.ndarray
    dtype: str
    depth: int | None
    readout: str
    words: tuple[Any, ...]
    pool: int | None = None


def image(rng: np.random.Generator, shape: tuple[int, int, int], pixels: str) -> np.ndarray:
    x = rng.standard_normal(shape)
    if pixels == "unit":
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
    elif pixels == "black":
        x[rng.random(shape[:2]) < 0.5] = 0
    elif pixels == "wild":
        x *= 10.0 ** rng.uniform(-3, 3, (*shape[:2], 1))
    return x


def related(rng: np.random.Generator, x: np.ndarray, pixels: str, relation: str, distance: float) -> np.ndarray:
    y = image(rng, x.shape, pixels)  # type: ignore[arg-type]
    noise = distance * rng.standard_normal(x.shape) * np.linalg.norm(x, axis=-1, keepdims=True)
    some = rng.random(x.shape[:2])[..., None] < 0.6
    if relation == "near":
        y = x + noise
        return y / np.linalg.norm(y, axis=-1, keepdims=True) if pixels == "unit" else y
    return {
        "far": y,
        "same": x,
        "scaled": 10.0 ** rng.uniform(-3, 3) * x,
        "nearly scaled": 10.0 ** rng.uniform(-3, 3) * (x + noise),
        "shared pixels": np.where(some, x, y),
        "antipodal": noise - x if rng.random() < 0.5 else -x,
        "flipped pixels": np.where(some, x, -x),
    }[relation]


def draw(seed: int, *, rare: bool = False, pool: bool = False) -> Case:
    """A random case; `rare` ones are slow or need more compiled loops, those of `pool` average over blocks."""
    rng = np.random.default_rng([14, seed])
    name = str(rng.choice(list(ACTIVATIONS)))
    phi = ACTIVATIONS[name]
    limit = float(rng.choice([0.1, 0.3, 0.65, 0.9, 0.99, 0.999]))
    model = nsd.ConvDEQ(
        phi,
        recurrent=limit / power(phi),
        input=float(rng.choice([1 - limit, 1.0])),
        filter_size=int(rng.choice([1, 3])) if rare else 3,
        padding=str(rng.choice(["zero", "circular"])),
    )
    pixels, relation = str(rng.choice(PIXELS)), str(rng.choice(RELATIONS))
    distance = 10.0 ** -int(rng.integers(3, 13))
    shape = list(POOLS)[seed % 3] if pool else (3, int(rng.integers(3, 5)))
    x = image(rng, (*shape, int(rng.integers(1, 4))), pixels)
    y = related(rng, x, pixels, relation, distance)
    dtype = str(rng.choice(["float64", "float32"]))
    depth = int(rng.choice([0, 1, 2, 5, 12])) if rng.random() < 0.3 else None
    readout = "average_pool" if rng.random() < (0.2 if rare else 0.1) else "flatten"
    if rng.random() < 0.5:  # images that are what they seem in this precision
        x, y = x.astype(dtype), y.astype(dtype)
    words = (name, limit, pixels, relation, distance)
    return Case(model, x, y, dtype, depth, "average_pool" if pool else readout, words, POOLS[shape] if pool else None)


def compare(case: Case) -> dict[str, tuple[float, float]]:
    """The true and the stated relative error of each kind."""
    model, x, y, dtype, depth, readout, _, pool = case
    digits = Digits(model, *x.shape[:2])
    exact, left, right = (digits.kernels(a, b, depth, readout, pool) for a, b in ((x, y), (x, x), (y, y)))
    options: dict[str, Any] = {"dtype": dtype, "depth": depth, "readout": readout, "pool": pool}
    found = {}
    for kind in KINDS:
        K, info = model.kernel(x[None], y[None], kind=kind, **options, return_info=True)
        size = float((left[kind] * right[kind]) ** 0.5)
        found[kind] = abs(float(exact[kind] - float(K[0, 0]))) / size if size else 0.0, info.error
    return found


def check(seed: int, **options: bool) -> None:
    case = draw(seed, **options)
    for kind, (true, stated) in compare(case).items():
        assert true <= stated, (seed, kind, true, stated, str(case.model), *case[3:])


@pytest.mark.filterwarnings("ignore::notsodeep.convergence.ConvergenceWarning")  # which is the statement, made aloud
@pytest.mark.parametrize("seed", range(48))
def test_no_pair_is_less_exact_than_stated(seed: int) -> None:
    check(seed)


@pytest.mark.filterwarnings("ignore::notsodeep.convergence.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(12))
def test_no_pooled_pair_is_less_exact_than_stated(seed: int) -> None:
    check(seed, pool=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::notsodeep.convergence.ConvergenceWarning")
@pytest.mark.parametrize("batch", range(20))
def test_no_pair_of_many_is_less_exact_than_stated(batch: int) -> None:
    for seed in range(1000 + 100 * batch, 1100 + 100 * batch):
        check(seed, rare=True)
    for seed in range(1000 + 10 * batch, 1010 + 10 * batch):
        check(seed, pool=True)


@pytest.mark.parametrize("recurrent", [0.25, 0.65, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_images_are_stated_to_twelve_digits(recurrent: float, kind: str) -> None:
    """Times 1/(1 − σ_a² v), the factor from a change of the pixels to the tangent kernel of nearly equal images."""
    model = nsd.ConvDEQ("normalized_relu", recurrent, 1 - recurrent)
    for X in (images(8, (8, 8, 3)), images(8, (8, 8, 3), unit=False), images(8, (6, 5, 2)), blobs(6, 16)):
        _, info = model.kernel(X, kind=kind, return_info=True)
        assert 0 < info.error <= 1e-12 / (1 - recurrent)


# --- single defects ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("padding", ["zero", "circular"])
@pytest.mark.parametrize("depth", [None, 3])
def test_a_brighter_copy_has_the_kernel_of_the_image(dtype: str, padding: str, depth: int | None) -> None:
    """K(x, sy) = s K(x, y); with variances of their own the gaps used to cancel to half the digits."""
    model = nsd.ConvDEQ("normalized_relu", 0.9, 0.1, padding=padding)
    X = images(3, (6, 5, 2), unit=False).astype(dtype)
    scale = np.array([0.37, 1.7, 290.0])
    k = model.kernel(X, (X * scale[:, None, None, None]).astype(dtype), kind=KINDS, depth=depth)
    exact = model.kernel(X.astype(np.float64), kind=KINDS, depth=depth)
    for kind in KINDS:
        size = np.diag(getattr(exact, kind))
        wrong = np.diag(getattr(k, kind)) / scale - size
        assert np.all(np.abs(wrong) <= {"float64": 1e-12, "float32": 1e-5}[dtype] * size), kind


def test_light_that_has_died_out_still_counts() -> None:
    """A single white pixel beside a white image: variances below 1e-15 of the largest keep their digits."""
    model = nsd.ConvDEQ("normalized_relu", 0.65, 0.35)
    x, y = np.zeros((3, 32, 1)), np.ones((3, 32, 1))
    x[1, 0] = 1
    blocks = ConvBlocks(model, np.stack([x, y]))
    exact = [float(v) for v in Digits(model, 3, 32).variances(x, None)[0]]
    assert min(exact) < 1e-15 * max(exact)
    np.testing.assert_allclose(blocks._left.root[0, 0].ravel() ** 2, exact, rtol=1e-13)
    true = compare(Case(model, x, y, "float64", None, "flatten", ()))
    assert all(error <= stated <= 1e-11 for error, stated in true.values())


@pytest.mark.parametrize("recurrent", [0.999, 1.0, 1.5])
def test_finite_depth_beyond_the_limit_states_an_error(recurrent: float) -> None:
    model = nsd.ConvDEQ("normalized_relu", recurrent, 0.5)
    x, y = images(2, (3, 3, 2))
    for error, stated in compare(Case(model, x, y, "float64", 4, "flatten", ())).values():
        assert error <= stated
        assert 1e-16 < stated < 1e-12


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("distance", [0.0, 1e-9])
def test_antipodal_pixels_keep_their_digits(depth: int, distance: float) -> None:
    """ρ = −1 at the first layer, where h = 2 − k has lost the digits of k."""
    model = nsd.ConvDEQ(ACTIVATIONS["leaky"], 0.5, 0.5)
    x = images(1, (3, 4, 2))[0]
    y = distance * np.random.default_rng(0).standard_normal(x.shape) - x
    for error, stated in compare(Case(model, x, y, "float64", depth, "flatten", ())).values():
        assert error <= stated < 1e-12


def test_the_diagonal_alone_has_an_error_too() -> None:
    _, info = nsd.ConvDEQ("normalized_relu", 0.65, 0.35).kernel(images(1), return_info=True)
    assert 1e-16 < info.error < 1e-13
