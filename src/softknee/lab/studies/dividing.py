"""Which examples are kept apart, and how they are scaled: by the training part alone, the same on every machine."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Parts = Mapping[str, tuple[Tensor, Tensor]]  # inputs and targets by the name of the part


def split(among: Tensor, *, share: float, seed: int, stratified: bool = True) -> tuple[Tensor, Tensor]:
    """Places of the examples that are kept apart, and of the rest: the share of every class, to the nearest example.

    `among` are the classes of the examples. One example of each class stays at least with the rest.

    >>> kept, rest = split(torch.tensor([0] * 10 + [1] * 5), share=0.4, seed=0)
    >>> sorted(kept.tolist()), len(rest)
    ([0, 2, 3, 4, 12, 14], 9)
    """
    order = torch.randperm(len(among), generator=torch.Generator().manual_seed(seed))
    groups = among[order] if stratified else torch.zeros(len(among), dtype=torch.int64)
    classes, counts = groups.unique(return_counts=True)
    exact = counts.double() * share
    take = exact.floor().long()
    # What rounding down left over goes to the classes that lost most by it.
    missing = round(float(exact.sum())) - int(take.sum())
    if missing > 0:
        take[(exact - take).argsort(descending=True, stable=True)[:missing]] += 1
    take = take.minimum(counts - 1)
    kept = torch.zeros(len(among), dtype=torch.bool)
    for one, number in zip(classes.tolist(), take.tolist(), strict=True):
        kept[(groups == one).nonzero().flatten()[:number]] = True
    return order[kept], order[~kept]


def standardised(parts: Parts, *, targets_too: bool) -> dict[str, tuple[Tensor, Tensor]]:
    """By the part "train": every column of a row by its own mean and spread, an image by one of each.

    targets_too: also the targets, as a regression wants it.
    """
    x, y = parts["train"]
    scale_x = _scale(x, whole=x.dim() > 2)
    scale_y = _scale(y, whole=False) if targets_too else None
    return {
        part: (_scaled(one, scale_x), _scaled(target, scale_y) if scale_y else target)
        for part, (one, target) in parts.items()
    }


def _scale(x: Tensor, *, whole: bool) -> tuple[Tensor, Tensor]:
    # Summed in float64 and then rounded to float32: another order of summation on another machine gives the same.
    wide = x.double()
    mean = wide.mean() if whole else wide.mean(dim=0)
    off = (wide - mean).square()
    spread = (off.mean() if whole else off.mean(dim=0)).sqrt()
    # What is constant in training, but for rounding, has no spread of its own.
    constant = spread <= 1e-12 * mean.abs()
    return mean.float(), spread.float().masked_fill(constant, 1.0)


def _scaled(x: Tensor, scale: tuple[Tensor, Tensor]) -> Tensor:
    return (x - scale[0]) / scale[1]
