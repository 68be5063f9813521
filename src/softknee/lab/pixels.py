"""Numbers as pixels: ramps of colours, and a picture inside a figure as a PNG in an address."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor

# Colours at equal distances: viridis and magma of matplotlib (CC0), RdBu of ColorBrewer from blue to red.
RAMPS = {
    "gray": "#000000 #ffffff",
    "viridis": "#440154 #482878 #3e4a89 #31688e #26828e #1f9e89 #35b779 #6dcd59 #b4de2c #fde725",
    "magma_r": "#fcfdbf #fec98d #fd9567 #f1605d #cd3f71 #9e2f7f #721f81 #440f76 #180f3d #000004",
    "RdBu_r": "#053061 #2166ac #4393c3 #92c5de #d1e5f0 #f7f7f7 #fddbc7 #f4a582 #d6604d #b2182b #67001f",
}


def rgb(colour: str) -> tuple[float, float, float]:
    """A colour such as #d55e00 as three numbers from 0 to 1."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue


def coloured(values: Tensor, ramp: str, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Colours [..., 3] from 0 to 1 of values, those outside of `low` and `high` as the ends of the ramp.

    >>> coloured(torch.tensor([0.0, 0.5, 2.0]), "gray")
    tensor([[0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.5000],
            [1.0000, 1.0000, 1.0000]])
    """
    stops = torch.tensor([rgb(colour) for colour in RAMPS[ramp].split()])
    share = ((values.float() - low) / ((high - low) or 1.0)).clamp(0, 1) * (len(stops) - 1)
    below = share.floor().long().clamp(max=len(stops) - 2)
    return torch.lerp(stops[below], stops[below + 1], (share - below).unsqueeze(-1))


def address(picture: Tensor) -> str:
    """Colours [rows, columns, 3 or 4] from 0 to 1 as a PNG in a data address, which a figure shows as an image."""
    rows, columns, channels = picture.shape
    values = (picture.clamp(0, 1) * 255).round().to(torch.uint8)
    lines = torch.cat([torch.zeros(rows, 1, dtype=torch.uint8), values.reshape(rows, -1)], dim=1)  # 0: not filtered
    head = struct.pack(">2I5B", columns, rows, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    body = zlib.compress(lines.numpy().tobytes(), 9)
    parts = ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()
