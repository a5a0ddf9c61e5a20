"""Measure what the misprinted formulas of the papers do, and write ``docs/errata.md``.

Run ``python -m docs.errata`` from the root of the repository (about a minute). The tests use
the same formulas: each one that belongs to an equivalent must fail the n^−1/2 decay which
the correct one shows. ``notsodeep reproduce errata`` draws the curves.
"""

from __future__ import annotations

import math
from pathlib import Path

from notsodeep import files
from notsodeep.papers.misprints import (
    ERRATA,
    INPUT,
    RECURRENT,
    SLIDES,
    SLOPES,
    Sample,
    border_variances,
    guaranteed_corner,
    hard_tanh_slopes,
    population_cosines,
    second_layer_mean,
)

TEMPLATE = """# Errata of the papers

The formulas of this library differ from some printed ones. Every difference was settled by measurement: an
equivalent must approach the exact kernel like n^−1/2 in relative spectral norm, and each printed formula below
stops doing so. This page is written by `python -m docs.errata`; `test_misprints_do_not_decay` and the tests of
`test_printed_formulas.py` check the same.

## Formulas of equivalents

Two classes with different means and covariances, p/n = 0.8; relu DEQ with σ_a² = {recurrent}, σ_b² = {drive}; two
leaky-relu layers with slopes {slopes} for the explicit network. Relative spectral error ‖M − M̄‖/‖M‖:

| where | printed | correct | kernel | printed, n = {small} | n = {large} | correct, n = {small} | n = {large} |
|---|---|---|---|---|---|---|---|
{rows}

The correct columns fall by about √({large}/{small}) = {ratio:.2f}; the printed ones level off.

## Others

| where | printed | correct | consequence |
|---|---|---|---|
| [Ling24] Asm. 3.1 | the condition is on (φ²)' | on (φ²)'', which the coefficients use | none for the coefficients |
| [Ling24] App. D | four moments given for the hard tanh | those belong to a·sin + c·cos; for a·clip(x, −c, c) \
and k = c/(τ√2): E[σ'] = a·erf k, E[σ²] = a²[τ²(erf k − (2/√π) k e^(−k²)) + c² erfc k] | E[σ'] at a = c = τ = 1 \
would be {sine:.4f} instead of {clip:.4f}, and no hard tanh can be matched |
| [Ling24] Eq. (20); slides, Examples | layer l is centred by (a − b) τ̃_l/√(2π) | τ̃_{{l−1}}, as in App. D | the \
second layer of the network for relu, σ_a² = 0.2, σ_b² = 0.8, has mean {mean:.3f} instead of 0 |
| [Ling24] Eq. (6), (23); slides | the product runs to Ġ^(l+1) | Ġ^(l+1) = 1 by convention, as [FK20] Thm 1 says | the \
limit would be GĠ/(1 − Ġ), not the G/(1 − Ġ) of Eq. (7): on the diagonal of relu, σ_a² = 0.2, a tenth of it |
| [Ling24] Lemma B.1, not centred | E[φ']² + E[φ'']² Λ_ij + … | E[φ]² + E[φ']² Λ_ij + …; printed is the expansion for \
φ' | none: App. C uses it for φ' |
| [Ling24] App. B | λ_{{1,4}} = 0, (1 − σ_a²)‖x‖², E[f'(τξ)] = τ E[f''] | λ_{{1,4}} = σ_b², σ_b²‖x‖², E[ξ f'(τξ)] | \
none for the limits |
| [Ling24] Eq. (7) | called the NTK | the NTK when the input weights B are frozen; training all weights gives \
G + ΛĠ/(1 − σ_a²Ġ) | ‖difference‖/‖NTK‖ = {frozen:.2f} on the data above |
| [Ling23] Eq. (9) | λ0 ≥ 4(c_w² + c_u²)‖X‖² | 8(c_w² + c_u²)‖X‖²: the last step of the proof goes from \
1 − η(λ0 − 4(c_w² + c_u²)‖X‖²) to 1 − ηλ0/2 | a wide network with ‖a‖ = {readout:.3f} meets the printed condition with \
margin {margin:.2f}; the proof gives a decrease of {proved:.1e} a step where {claimed:.1e} is stated |
| [Ling23] Lemma 1 | ‖W‖ ≤ 2√2 σ_w with probability 1 − e^(−Ω(m)) | ‖W‖ ≤ (1 + ε) 2√2 σ_w for any fixed ε > 0 | one \
matrix in eight is larger at m = 200, and the share does not fall with m; ‖W‖ < 1 remains true, as 2√2 σ_w < 1 |
| [Ling23] Lemma 2 | R = (a ⊗ I_n) J⁻¹ D | (I_n ⊗ aᵀ) J⁻¹ D | the printed factors are mn×n and mn×mn and have no \
product |
| [Ling23] Lemma 3 | cos θ_ij is divided by σ_w² K_ij + 1 | σ_w² K_ii + 1, as in App. C.2 | {lemma3:.4f} instead of \
{cosine:.4f} at l = 5 for σ_w² = 0.08, x_iᵀx_j = 0.1 d |
| [Ling23] Eq. (13) | contains ρ^(l−1) | ρ^(l), as in App. C.1 | one layer behind, {eq13:.4f} instead of {second:.4f} \
at l = 2, and a division by ρ^(0) = 0 at l = 1 |
| [Ling23] App. E | Ĝ is an expectation over w ~ N(0, I) | N(0, 2I), as the M of Lemma 4 | half of what its next \
lines say |
| [FK20] §3.1, App. A | injection and bias are scaled by σ_U²/N, σ_b²/N | σ_U², σ_b² | both vanish with the width: the \
variance of a pre-activation would tend to 1/N instead of 1 |
| [FK20] Eq. (13) and the output below | U is scaled by σ_U²/C, the output is not scaled | σ_U², and 1/√C | the image \
vanishes with the number of channels, and the kernel grows with it |
| [FK20] App. B | S is the number of pixels in the window | S² is, as in the initialisation | variances of \
3×3 windows would be 1/9 to 1/4 instead of 1 |
| [FK20] Eq. (18), (25) | 1/(S S') inside the window sum | outside, at the output position | pixel variances of a \
{size}×{size} image lie in [{low:.3f}, {high:.3f}] instead of being 1, and the proof of Thm 3 fails |

## Settings of experiments

What the captions say or leave open, and what the numbers or the authors' public scripts show. None of it changes a
theorem.

| where | text | found | consequence |
|---|---|---|---|
| [Ling24] Figure 5 | MNIST with n = 3000 | printed 1.80 (relu), 2.02 (tanh); by the scripts' recipe at their default \
n = 400 the exact kernels give 1.72, 1.88 | the size of n = 400; norms grow with n and are several times larger at \
3000 ([ling24-fig5](gallery.md#ling24-fig5) measures both) |
| [Ling24] Figure 6 | MNIST with n = 3000 | printed 3.93, 4.82; the same recipe gives 2.02, 2.15 at n = 400 | not \
explained: larger than at n = 400, several times smaller than at n = 3000 ([ling24-fig6](gallery.md#ling24-fig6)) |
| [Ling24] Figures 1, 4 to 7 | one expectation, width 2¹² | scripts: averages of 10 networks of width 800 to 1000, \
25 iterations | an estimate has noise of relative size √(n/(10 m)) in the bulk of the spectrum |
| [Ling24] Figures 5, 6 | V as in Thm 3.3 | scripts, on MNIST: t = 0, products of covariances taken element by \
element, C° half the pooled covariance, ψ divided by p twice | the term VAVᵀ is almost nil there |
| [Ling24] Figures 5, 6 | τ0² = tr C°/p | scripts: the mean of ‖x‖², which contains the class means | the column \
gap_rms of the same entries |
| [Ling24] Figure 7 | two networks; MNIST with n = 3000 | scripts: both have the same random weights, and the hard \
tanh has the misprinted moments; printed 2.34, 4.79, networks of width 800 and n = 400 give 0.56, 0.33 here | not \
explained; exact distances are far smaller still ([ling24-fig7](gallery.md#ling24-fig7)) |
| [Ling24] Figure 3 | CIFAR-10 by the 16th convolution of VGG-19 | scripts: 256 numbers of a VGG16 that was trained on \
CIFAR-10 | accuracies depend on these features; [ling24-fig3](gallery.md#ling24-fig3) trains a small network of the \
kind |
| [Ling24] Figure 3 | classification accuracies | scripts: only the readout is trained, on 50 000 images, and tested \
on 8000; equilibria are solved to 1e-2 | random features are compared, not trained DEQs |
| [Ling24] Figure 3 | ReLU-ENN, Tanh-ENN | scripts: constants are subtracted inside the relu, and the tanh network \
has input variance 0.2 on MNIST, 0.8 on CIFAR-10 | part of the gap to the DEQ is the scale of the competitor; \
[ling24-fig3](gallery.md#ling24-fig3) has a centred one, too |
| [Ling24] Tables 1, 2 | time of a DEQ | scripts: its samples pass one after the other through a loop in Python, \
solved to 1e-2 | the factors are over that loop |

[Ling24] Ling, Li, Feng, Zhang, Zhou, Qiu, Liao. *Deep Equilibrium Models are Almost Equivalent to Not-so-deep
Explicit Models for High-dimensional Gaussian Mixtures.* ICML 2024.
[Ling23] Ling, Xie, Wang, Zhang, Lin. *Global Convergence of Over-parameterized Deep Equilibrium Models.* AISTATS 2023.
[FK20] Feng, Kolter. *On the Neural Tangent Kernel of Equilibrium Models.* 2020.
"""


def write(path: Path, small: int = 200, large: int = 800) -> None:
    """Measure and write the page."""
    samples = [Sample.draw(small), Sample.draw(large)]
    rows = []
    for e in ERRATA + SLIDES:
        printed = [s.error(e.model, e.kind, e.weights(s)) for s in samples]
        correct = [s.error(e.model, e.kind, s.weights(e.model, e.kind)) for s in samples]
        kernel = f"{'DEQ' if e.model == 'deq' else 'explicit'} `{e.kind}`"
        numbers = " | ".join(f"{value:.3f}" for value in printed + correct)
        rows.append(f"| {e.where} | {e.printed} | {e.correct} | {kernel} | {numbers} |")
    clip, sine = hard_tanh_slopes()
    variances, corner = border_variances(8), guaranteed_corner()
    text = TEMPLATE.format(
        recurrent=RECURRENT,
        drive=INPUT,
        slopes=" and ".join(str(pair) for pair in SLOPES),
        small=small,
        large=large,
        ratio=math.sqrt(large / small),
        rows="\n".join(rows),
        sine=sine,
        clip=clip,
        frozen=samples[0].distance("deq", "ntk", samples[0].kernel("deq", "ntk_frozen_input")),
        mean=second_layer_mean(),
        cosine=population_cosines(5)[-1],
        lemma3=population_cosines(5, "Lemma 3")[-1],
        second=population_cosines(2)[-1],
        eq13=population_cosines(2, "Eq. (13)")[-1],
        readout=corner.readout,
        margin=corner.margin,
        proved=corner.proved,
        claimed=corner.claimed,
        size=8,
        low=variances.min(),
        high=variances.max(),
    )
    files.write(path, text)


if __name__ == "__main__":
    write(Path(__file__).with_name("errata.md"))
