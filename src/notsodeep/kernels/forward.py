"""Networks of a finite depth on row slices: the Hermite series of each level, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.hermite import CHUNK, bucket_of, set_apart, sums, sums_alone
from notsodeep.kinds import CK, FROZEN, NNGP, NTK

__all__ = ["Stack", "Stages", "forward_pass"]

_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})


class Stack(NamedTuple):
    """Numbers of each sample at each level, in the dtype of the tile."""

    factor: Any  # (n,): sample = factor · row
    inverse: Any  # (levels, n): 1/√q, 0 for q = 0
    terms: Any  # (levels, terms, n): as in `hermite.Expansion`, with zeros in front


class Stages(NamedTuple):
    """The levels: quantities shared by all samples."""

    numbers: Any  # (levels, 3): σ_a², σ_b², σ_0² in the dtype of the tile
    odd: Any  # (levels,) of bool: φ
    orders: Any  # (levels, terms): of `rising`
    skip: Any  # (levels, BUCKETS + 1): leading terms that are negligible for |ρ| ≤ b/BUCKETS
    reach: Any  # (levels,): the largest |ρ| of each series


@_jit
def forward_pass(
    out: Any, left: Any, right: Any, rising_left: Any, rising_right: Any, stages: Any, codes: Any,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> tuple[Any, int]:  # fmt: skip
    """Pass Λ = σ_a² K + σ_b² x·y + σ_0² through all levels, K = G(Λ), with the tangents of `layers`.

    left, right : :class:`Stack`; rising : their terms again, (n, levels, terms), lowest order first; stages :
    :class:`Stages`.

    Pairs with |ρ| > reach at some level are left at infinity for `remaining_pass`. Returns the largest |ρ| of the
    others at each level, and how many are left.
    """
    levels, terms = left.terms.shape[0], left.terms.shape[1]
    one, two = out.dtype.type(1), out.dtype.type(2)
    nearest, remaining = np.zeros(levels), 0
    buffer = np.empty((11, CHUNK), out.dtype)
    kept, work = np.empty((2, CHUNK), out.dtype), np.empty((2, terms), out.dtype)
    chosen = np.empty(CHUNK, np.int64)
    for i in range(i0, i1):
        for start in range(max(j0, i + 1) if symmetric else j0, j1, CHUNK):
            count = min(CHUNK, j1 - start)
            stop = start + count
            product, state, covariance, injected = (
                buffer[0, :count], buffer[1, :count], buffer[2, :count], buffer[3, :count],
            )  # fmt: skip
            tangent, frozen, rho, z = buffer[4, :count], buffer[5, :count], buffer[6, :count], buffer[7, :count]
            G, slope, beyond = buffer[8, :count], buffer[9, :count], buffer[10, :count]
            row, scale_i, scale = out[0, i, start:stop], left.factor[i], right.factor[start:stop]
            for j in range(count):
                product[j] = row[j] * (scale_i * scale[j])
                state[j] = tangent[j] = frozen[j] = beyond[j] = 0
            for level in range(levels):
                recurrent, gain, bias = stages.numbers[level, 0], stages.numbers[level, 1], stages.numbers[level, 2]
                inverse_i, inverse = left.inverse[level, i], right.inverse[level, start:stop]
                odd, reach = stages.odd[level], out.dtype.type(stages.reach[level])
                close = highest = one - one
                for j in range(count):
                    covariance[j] = recurrent * state[j] + gain * product[j] + bias
                    rho[j] = min(max(covariance[j] * (inverse_i * inverse[j]), -one), one)
                    far = abs(rho[j])
                    beyond[j] = max(beyond[j], far - reach)
                    close = max(close, far if far <= reach else one - one)
                    z[j] = rho[j]
                nearest[level] = max(nearest[level], np.float64(close))
                apart = set_apart(rho, z, terms, stages.skip[level], chosen, kept)
                for j in range(count):
                    highest = max(highest, abs(rho[j]))
                    z[j] = rho[j] * rho[j] if odd else rho[j]
                first = stages.skip[level, bucket_of(highest)]
                sums(left.terms[level], right.terms[level], i, start, first, z, G, slope)
                if odd:  # G = ρ p(ρ²), dG/dρ = p + 2ρ² p'
                    for j in range(count):
                        p = G[j]
                        G[j] = rho[j] * p
                        slope[j] = p + two * z[j] * slope[j]
                for m in range(apart):
                    j = chosen[m]
                    a, b, place = rising_left[i, level], rising_right[start + j, level], kept[1, m]
                    for k in range(terms):
                        work[0, k] = a[k] * b[k]
                    used = terms - stages.skip[level, bucket_of(abs(place))]
                    G[j], slope[j], _ = sums_alone(work[0], work[1], stages.orders[level], odd, used, place)
                for j in range(count):
                    steep = slope[j] * (inverse_i * inverse[j])  # Ġ
                    injected[j] = covariance[j] + recurrent * tangent[j]
                    tangent[j] = steep * injected[j]
                    frozen[j] = G[j] + recurrent * steep * frozen[j]
                    state[j] = G[j]
            for k in range(codes.size):
                target, code = out[k, i, start:stop], codes[k]
                for j in range(count):
                    if code == CK:
                        target[j] = state[j]
                    elif code == NNGP:
                        target[j] = covariance[j]
                    elif code == NTK:
                        target[j] = state[j] + tangent[j]
                    elif code == FROZEN:
                        target[j] = frozen[j]
                    else:
                        target[j] = injected[j]
            for j in range(count):
                if beyond[j] > 0:
                    out[0, i, start + j] = np.inf
                    remaining += 1
    return nearest, remaining
