"""What becomes of levels 0 to 255: tables of 256 entries, and blends with a plainer image. As PIL computes them."""

from __future__ import annotations

import torch
from torch import Tensor


def autocontrast_table(pixels: Tensor, entries: Tensor) -> Tensor:
    """Stretches each channel to 0 to 255: pixels [n, channels, size] of whole numbers to [n, channels, 256]."""
    low, high = (one.double() for one in torch.aminmax(pixels, dim=2, keepdim=True))
    span = (high - low).clamp(min=1)
    scale = torch.full_like(span, 255) / span  # 255 / span would be 255 * (1 / span), and round elsewhere than PIL
    return torch.where(high > low, (entries * scale - low * scale).trunc().clamp(0, 255).long(), entries)


def equalize_table(pixels: Tensor, entries: Tensor) -> Tensor:
    """Makes the levels of each channel about equally frequent, [n, channels, 256]."""
    counts = torch.zeros(*pixels.shape[:2], 256, dtype=torch.int64, device=pixels.device)
    counts.scatter_add_(2, pixels, torch.ones_like(pixels))
    highest = counts.gather(2, pixels.amax(2, keepdim=True))
    step = (pixels.shape[2] - highest) // 255
    below = counts.cumsum(2) - counts
    found = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, found, entries)


def posterize_table(entries: Tensor, *, kept_bits: Tensor) -> Tensor:
    """Only the highest bits of each level are kept; `kept_bits` of each image, [n]."""
    step = 1 << (8 - kept_bits).view(-1, 1, 1)
    return entries // step * step


def solarize_table(entries: Tensor, *, threshold: Tensor) -> Tensor:
    """Levels from the threshold on are inverted, [n]."""
    return torch.where(entries < threshold.view(-1, 1, 1), entries, 255 - entries)


def solarize_add_table(entries: Tensor, *, added: Tensor) -> Tensor:
    """Levels below 128 become brighter by `added`, [n]."""
    return torch.where(entries < 128, (entries + added.view(-1, 1, 1)).clamp(max=255), entries)


def grey(levels: Tensor) -> Tensor:
    """Luma of red, green and blue (0.299, 0.587, 0.114 in 16 bits), [n, 1, height, width]; one channel stays."""
    if levels.shape[1] == 1:
        return levels
    red, green, blue = levels.long().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).unsqueeze(1).to(levels.dtype)


def mean_grey(levels: Tensor) -> Tensor:
    """The mean of `grey`, rounded, [n, 1, 1, 1]."""
    luma = grey(levels).long()
    pixels = luma.shape[2] * luma.shape[3]
    return ((2 * luma.sum((2, 3), keepdim=True) + pixels) // (2 * pixels)).to(levels.dtype)


def smooth(levels: Tensor) -> Tensor:
    """The mean over 3 x 3 in which the middle counts five times; the pixels at the edge stay."""
    rows = levels[..., :-2, :] + levels[..., 1:-1, :] + levels[..., 2:, :]
    around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    found = levels.clone()
    found[..., 1:-1, 1:-1] = ((around + 4 * levels[..., 1:-1, 1:-1]) / 13).round()
    return found


def blend(plain: Tensor, levels: Tensor, factor: Tensor) -> Tensor:
    """plain + factor (levels - plain), cut to 0 to 255 and rounded down; the factor of each image, [n]."""
    return (plain + factor.view(-1, 1, 1, 1) * (levels - plain)).clamp(0, 255).floor()
