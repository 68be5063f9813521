"""Claims of the SmeLU paper about prediction differences and about its Criteo set-up."""

from __future__ import annotations

import itertools
import math

import torch

from ... import measure
from .entry import Finding, claims_of
from .tools import F64

claim = claims_of("smelu")


def _predictions(models: int, examples: int, labels: int) -> torch.Tensor:
    """Probabilities of the shape (models, examples, labels)."""
    drawn = torch.randn(models, examples, labels, generator=torch.Generator().manual_seed(0), dtype=F64)
    return torch.softmax(drawn, dim=2)


@claim(
    place="Section 2, below equation 1",
    says=r"With two models and two labels, $\Delta_1$ is the mean of $\lvert P_{n,1}(1) - P_{n,2}(1)\rvert$.",
    expect="holds",
)
def two_models_two_labels() -> Finding:
    """The metric on random predictions against the short form; and with more models, where it does not hold."""
    pair = _predictions(2, 500, 2)
    short = (pair[0, :, 1] - pair[1, :, 1]).abs().mean().item()
    gap = abs(measure.prediction_difference(pair).delta_1.value - short)
    return Finding(
        f"on 500 random examples both are {short:.6f} (apart by less than {'1e-15' if gap < 1e-15 else f'{gap:.0e}'}): "
        f"the two labels' halves add up to the whole",
        parts={"identity": gap < 1e-15},
        numbers={"delta_1": short},
    )


@claim(
    place="Appendix F, with equation 1",
    says=r"$\Delta_2$ behaves like $\Delta_1$.",
    expect="holds",
)
def norms_are_tied() -> Finding:
    r"""For two labels Delta_1 = sqrt(2) Delta_2 exactly; for ten, Delta_2 <= Delta_1 <= sqrt(10) Delta_2."""
    binary, ten = (measure.prediction_difference(_predictions(5, 400, labels)) for labels in (2, 10))
    ratios = [one.delta_1.value / one.delta_2.value for one in (binary, ten)]
    # Two models on either side of a tie disagree on every label and in next to no probability.
    tie = measure.prediction_difference(torch.tensor([[[0.51, 0.49]], [[0.49, 0.51]]], dtype=F64))
    return Finding(
        rf"$\Delta_1 = \sqrt 2\,\Delta_2$ for two labels, exactly; for $L$ labels it lies between $\Delta_2$ and "
        rf"$\sqrt L\,\Delta_2$ ({ratios[1]:.2f} times for ten random ones). (The Hamming difference is not tied to "
        rf"them: it is {tie.hamming.value:.0f} for two models with $\Delta_1 = {tie.delta_1.value:.2f}$.)",
        parts={"two labels": abs(ratios[0] - math.sqrt(2)) < 1e-12, "ten labels": 1 <= ratios[1] <= math.sqrt(10)},
        numbers={"ratio_for_two": ratios[0], "ratio_for_ten": ratios[1]},
    )


@claim(
    place="Section 2, last paragraph",
    says="The Hamming difference is the mean share of examples that two of the models label differently.",
    expect="holds",
)
def hamming_over_pairs() -> Finding:
    """The metric against a loop over all pairs of six models; and 0 for models that are equal."""
    drawn = _predictions(6, 300, 4)
    labels = drawn.argmax(2)
    pairs = list(itertools.combinations(range(6), 2))
    slow = sum((labels[a] != labels[b]).double().mean().item() for a, b in pairs) / len(pairs)
    found = measure.prediction_difference(drawn).hamming.value
    equal = measure.prediction_difference(drawn[:1].expand(3, -1, -1))
    return Finding(
        f"{found:.6f} for six random models and {slow:.6f} by a loop over their {len(pairs)} pairs; every metric is 0 "
        f"for equal models",
        parts={
            "pairs": abs(found - slow) < 1e-12,
            "equal models": equal.hamming.value == 0 and equal.delta_1.value < 1e-15,
        },
        numbers={"hamming": found},
    )


# Appendix E, equations 22 and 23: buckets of each categorical feature, and the width of its embedding (0: one-hot).
BUCKETS = (
    *(1373, 2148, 4847, 9781, 396, 28, 3591, 2798, 14, 7403, 2511, 5598, 9501),
    *(46, 4753, 4056, 23, 3828, 5856, 12, 4226, 23, 61, 3098, 494, 5087),
)
WIDTHS = (3, 9, 29, 11, 17, 0, 14, 4, 0, 12, 19, 24, 29, 0, 13, 25, 0, 8, 29, 0, 22, 0, 0, 31, 0, 29)


@claim(
    place="Section 5 and appendix E, equations 22 and 23",
    says="A categorical feature is one-hot if it has fewer than 110 buckets and embedded otherwise.",
    expect="fails",
)
def criteo_embeddings() -> Finding:
    """The rule against the two printed lists, feature by feature."""
    odd = [(n, d) for n, d in zip(BUCKETS, WIDTHS, strict=True) if (n < 110) != (d == 0)]
    text = ", ".join(f"N = {n} with d = {d}" for n, d in odd) or "none"
    return Finding(
        f"{len(BUCKETS) - len(odd)} of {len(BUCKETS)} features follow it; exceptions: {text}",
        parts={"every feature": not odd},
        numbers={"exceptions": [n for n, _ in odd]},
    )
