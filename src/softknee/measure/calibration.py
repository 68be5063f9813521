r"""Whether models are as sure as they are right.

The confidence of a prediction is its largest probability. Put the examples into bins by confidence; then

    ECE = sum over bins b of  n_b/N |share of right predictions in b - mean confidence in b|

scheme="width": bins ((b - 1)/B, b/B], as wide as each other (Guo et al. 2017). scheme="mass": bins with as many
examples as each other, to one (Nguyen and O'Connor 2015); examples of equal confidence that a border separates each
count as right by the share of them that are, so that the order of the examples makes no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import require_choice, require_count
from .estimate import Score, score
from .scores import read, refuse_sums

Scheme = Literal["width", "mass"]
_MOST_BINS = 1_000_000


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability diagram: how many examples, their mean confidence, and the share that is right."""

    count: int
    confidence: float
    accuracy: float


def expected_calibration_error(
    probs: Any, labels: Any, *, bins: int = 15, scheme: Scheme = "width", logits: bool = False, level: float = 0.95
) -> Score:
    """The expected calibration error of predictions of shape (M, N, L) or (N, L), with its spread over the models.

    >>> import softknee as sk, torch
    >>> sure = torch.tensor([[0.8, 0.2]] * 4)
    >>> round(sk.measure.expected_calibration_error(sure, [0, 0, 0, 1]).value, 6)      # 3/4 against 0.8
    0.05
    """
    confidence, right = _judged(probs, labels, logits=logits)
    each = []
    for sure, correct in zip(confidence, right, strict=True):
        model_bins = _bins(sure, correct, bins=bins, scheme=scheme)
        each.append(sum(item.count * abs(item.accuracy - item.confidence) for item in model_bins) / len(sure))
    return score(each, larger_is_better=False, level=level, bounds=(0.0, 1.0))


def reliability(
    probs: Any, labels: Any, *, bins: int = 15, scheme: Scheme = "width", logits: bool = False
) -> tuple[tuple[Bin, ...], ...]:
    """The bins of each model's reliability diagram, from low confidence to high; empty ones are left out.

    >>> import softknee as sk, torch
    >>> [[bin]] = sk.measure.reliability(torch.tensor([[0.75, 0.25]] * 4), [0, 0, 0, 1])
    >>> bin
    Bin(count=4, confidence=0.75, accuracy=0.75)
    """
    confidence, right = _judged(probs, labels, logits=logits)
    return tuple(_bins(a, b, bins=bins, scheme=scheme) for a, b in zip(confidence, right, strict=True))


def _judged(probs: Any, labels: Any, *, logits: bool) -> tuple[Tensor, Tensor]:
    """The confidence of every prediction, and 1 or 0 for right or wrong; both of shape (M, N)."""
    predictions, truth = read(probs, labels, logits=logits)
    # argmax before softmax, which may round two labels to the same number
    chosen = predictions.argmax(dim=2, keepdim=True)
    if logits:
        predictions = torch.softmax(predictions, dim=2)
    else:
        refuse_sums(predictions)
    return predictions.gather(2, chosen).squeeze(2).cpu(), (chosen.squeeze(2) == truth).double().cpu()


def _bins(sure: Tensor, right: Tensor, *, bins: int, scheme: str) -> tuple[Bin, ...]:
    require_count("calibration", "bins", bins, most=_MOST_BINS)
    require_choice("calibration", "scheme", scheme, ("width", "mass"))
    if scheme == "width":
        # The borders as the numbers b/B themselves: a confidence of exactly 0.8 belongs below the border 12/15.
        borders = torch.tensor([b / bins for b in range(1, bins)], dtype=torch.float64)
        where = torch.bucketize(sure, borders)
    else:
        sure, order = sure.sort()
        _, place, counts = torch.unique_consecutive(sure, return_inverse=True, return_counts=True)
        equal = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, place, right[order])
        right = (equal / counts)[place]
        where = torch.arange(len(sure)) * bins // len(sure)
    counts, confidence, correct = (torch.bincount(where, weights, bins) for weights in (None, sure, right))
    return tuple(
        Bin(int(n), float(c) / int(n), float(a) / int(n))
        for n, c, a in zip(counts, confidence, correct, strict=True)
        if n
    )
