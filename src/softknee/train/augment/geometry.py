"""Where pixels come from: shifted crops, mirrored images, affine maps. Every image has its own numbers."""

from __future__ import annotations

import torch
from torch import Tensor


def crop_flip(images: Tensor, *, rows: Tensor, columns: Tensor, flips: Tensor, padding: int) -> Tensor:
    """A window of the image's own size out of the image with `padding` zeros around it, then mirrored where asked.

    Args:
        images: [n, channels, height, width], of any type.
        rows, columns: the corner of the window in the padded image, 0 to 2 * padding, [n].
        flips: whether left and right change places, [n].

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> one = torch.tensor([1])
    >>> crop_flip(image, rows=one, columns=one * 2, flips=one == 0, padding=1)
    tensor([[[[2, 0],
              [4, 0]]]])
    """
    n, _channels, height, width = images.shape
    y = torch.arange(height, device=images.device) + (rows - padding).unsqueeze(1)
    x = torch.arange(width, device=images.device).expand(n, width)
    x = torch.where(flips.unsqueeze(1), width - 1 - x, x) + (columns - padding).unsqueeze(1)
    inside = ((y >= 0) & (y < height)).unsqueeze(2) & ((x >= 0) & (x < width)).unsqueeze(1)
    found = _pick(images, y.clamp(0, height - 1).unsqueeze(2), x.clamp(0, width - 1).unsqueeze(1))
    return found * inside.unsqueeze(1).to(images.dtype)


def warp(levels: Tensor, matrices: Tensor, *, fill: Tensor) -> Tensor:
    """The image under affine maps, bilinear, rounded down as PIL does for 8 bits.

    The pixel with its centre at (x, y) is taken from (a x + b y + c, d x + e y + f); outside of the image it is `fill`.

    Args:
        levels: whole numbers 0 to 255 as floats, [n, channels, height, width].
        matrices: (a, b, c, d, e, f) of each image, [n, 6].
        fill: one level for each channel.
    """
    _, _, height, width = levels.shape
    y = (torch.arange(height, device=levels.device) + 0.5).view(1, -1, 1)
    x = (torch.arange(width, device=levels.device) + 0.5).view(1, 1, -1)
    a, b, c, d, e, f = matrices.view(-1, 6, 1, 1).unbind(1)
    from_x, from_y = a * x + b * y + c, d * x + e * y + f
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    left, top = (from_x - 0.5).floor(), (from_y - 0.5).floor()
    right_share, low_share = (from_x - 0.5 - left).unsqueeze(1), (from_y - 0.5 - top).unsqueeze(1)
    columns = [(left.long() + one).clamp(0, width - 1) for one in (0, 1)]
    lines = [(top.long() + one).clamp(0, height - 1) for one in (0, 1)]
    above, below = (
        torch.lerp(_pick(levels, line, columns[0]), _pick(levels, line, columns[1]), right_share) for line in lines
    )
    return torch.where(inside.unsqueeze(1), torch.lerp(above, below, low_share).floor(), fill.view(-1, 1, 1))


def _pick(images: Tensor, lines: Tensor, columns: Tensor) -> Tensor:
    """The pixels at these places, the same for all channels; lines and columns broadcast to [n, height, width]."""
    n, channels, _height, width = images.shape
    places = (lines * width + columns).view(n, 1, -1).expand(n, channels, -1)
    return images.reshape(n, channels, -1).gather(2, places).view(images.shape)
