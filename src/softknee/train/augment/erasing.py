"""Random erasing: a rectangle of an image is filled with normal noise, as timm does it by pixel.

Reference: Zhong, Zheng, Kang, Li, Yang, "Random erasing data augmentation" (2020).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .numbers import uniform, whole

SMALLEST, LARGEST = 0.02, 1 / 3  # shares of the image's area
SLIMMEST = 0.3  # height by width lies between this and its inverse
_ATTEMPTS = 10
DRAWS = 3 + 2 * _ATTEMPTS  # for an image


def draw(raw: Tensor, *, probability: float, height: int, width: int) -> Tensor:
    """From bits [n, DRAWS] the rectangle (top, bottom, left, right) of each image, empty where nothing is erased.

    Area and ratio are drawn until the rectangle fits into the image, ten times at most.
    """
    area = (SMALLEST + (LARGEST - SMALLEST) * uniform(raw[:, 3 : 3 + _ATTEMPTS])) * (height * width)
    ratio = (math.log(SLIMMEST) * (1 - 2 * uniform(raw[:, 3 + _ATTEMPTS :]))).exp()
    high, wide = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    fits = (high < height) & (wide < width)
    turns = torch.arange(_ATTEMPTS, device=raw.device)
    first = torch.where(fits, turns, _ATTEMPTS - 1).amin(1, keepdim=True)
    done = (uniform(raw[:, 0]) < probability) & fits.any(1)
    high, wide = (one.gather(1, first).squeeze(1) * done for one in (high, wide))
    top, left = whole(raw[:, 1], height - high + 1), whole(raw[:, 2], width - wide + 1)
    return torch.stack([top, top + high, left, left + wide], dim=1)


def erase(images: Tensor, edges: Tensor, filling: Tensor) -> Tensor:
    """Images [n, channels, height, width] with `filling` inside their rectangles."""
    top, bottom, left, right = edges.view(-1, 4, 1, 1, 1).unbind(1)
    y = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    x = torch.arange(images.shape[3], device=images.device)
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return torch.where(inside, filling.to(images.dtype), images)
