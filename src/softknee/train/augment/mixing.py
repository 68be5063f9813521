"""Mixup and CutMix: each image with its mirror place in the batch, one share for each replica and step; soft targets.

As timm does by batch: image i is mixed with image n - 1 - i. Batches come in random order, so that this is a random
partner, and no image is read twice.

References: Zhang, Cisse, Dauphin, Lopez-Paz, "mixup" (2018); Yun et al., "CutMix" (2019).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .numbers import BETA_BITS, beta, uniform, whole

DRAWS = BETA_BITS + 3  # for a replica


def draw(raw: Tensor, *, mixup: float, cutmix: float, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """From bits [M, DRAWS], for each replica the share that stays its own [M], whether a box is cut [M], and the box
    (top, bottom, left, right) [M, 4]; with both kinds each has probability 1/2."""
    cut = uniform(raw[:, -1]) < (0.5 if mixup and cutmix else float(bool(cutmix)))
    share = beta(raw[:, :BETA_BITS], torch.where(cut, cutmix, mixup))
    edges = box(share, whole(raw[:, -3], height), whole(raw[:, -2], width), height=height, width=width)
    top, bottom, left, right = edges.unbind(1)
    kept = 1 - ((bottom - top) * (right - left)).double() / (height * width)  # a box at the edge is smaller than asked
    return torch.where(cut, kept, share), cut, edges


def box(kept: Tensor, row: Tensor, column: Tensor, *, height: int, width: int) -> Tensor:
    """The rectangle around (row, column) whose area is 1 - kept of the image, cut at its edges: [M, 4].

    >>> box(torch.tensor([0.75]), torch.tensor([4]), torch.tensor([0]), height=8, width=8)
    tensor([[2, 6, 0, 2]])
    """
    side = (1 - kept).clamp(min=0).sqrt()
    high, wide = (side * height).long(), (side * width).long()
    edges = [row - high // 2, row + (high + 1) // 2, column - wide // 2, column + (wide + 1) // 2]
    limits = (height, height, width, width)
    return torch.stack([edge.clamp(0, limit) for edge, limit in zip(edges, limits, strict=True)], dim=1)


def mix(images: Tensor, own: Tensor, cut: Tensor, edges: Tensor) -> Tensor:
    """Images [M, n, channels, height, width] with their partners, as `draw` says."""
    other = images.flip(1)
    share = own.to(images.dtype).view(-1, 1, 1, 1, 1)
    blended = share * images + (1 - share) * other
    top, bottom, left, right = edges.view(-1, 4, 1, 1, 1, 1).unbind(1)
    y = torch.arange(images.shape[3], device=images.device).view(1, 1, 1, -1, 1)
    x = torch.arange(images.shape[4], device=images.device).view(1, 1, 1, 1, -1)
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return torch.where(cut.view(-1, 1, 1, 1, 1), torch.where(inside, other, images), blended)


def soft_targets(targets: Tensor, *, classes: int, smoothing: float) -> Tensor:
    """Class numbers [M, n] as probabilities [M, n, classes], of which `smoothing` is spread over all classes.

    >>> soft_targets(torch.tensor([[1]]), classes=4, smoothing=0.2)
    tensor([[[0.0500, 0.8500, 0.0500, 0.0500]]])
    """
    # torch's one_hot looks at the numbers on the host.
    hot = targets.unsqueeze(-1) == torch.arange(classes, device=targets.device)
    return hot.float() * (1 - smoothing) + smoothing / classes


def mix_targets(soft: Tensor, own: Tensor) -> Tensor:
    """Probabilities [M, n, classes] with those of the partners."""
    share = own.to(soft.dtype).view(-1, 1, 1)
    return share * soft + (1 - share) * soft.flip(1)
