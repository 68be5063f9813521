"""Three grey pictures that come with scikit-image, as the task to store a picture in a network: place in, grey out.

    camera  a man with a camera, 512 x 512        grass  a lawn, 512 x 512        page  a scanned page, 191 x 384

Each is brought to 128 x 128 (`skimage.transform.resize` with anti-aliasing, so that a page is stretched to a square),
with grey values between 0 and 1. The input is the place of a pixel: its row and its column, each on an even grid from
-1 to 1 that has the first and the last pixel at its ends. All three parts are the whole picture, pixel by pixel in the
order of the rows: what is asked is how well it is stored, not what lies between the pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import MissingToolError, ParameterError, did_you_mean

PICTURES = ("camera", "grass", "page")
SIDE = 128  # pixels


def load_picture(name: str, *, side: int = SIDE) -> Tensor:
    """The picture as grey values between 0 and 1, of shape (side, side) and in float32.

    >>> load_picture("camera").shape
    torch.Size([128, 128])
    """
    if name not in PICTURES:
        known = ", ".join(map(repr, PICTURES))
        raise ParameterError(f"There is no picture {name!r} here; there are {known}.{did_you_mean(name, PICTURES)}")
    try:
        from skimage import data
        from skimage.transform import resize
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"The picture {name!r} comes with scikit-image, which is not installed. Install it with: "
            "pip install 'softknee[pictures]'"
        ) from error
    grey = getattr(data, name)() / 255.0
    # In float64 and rounded once: another order of summation on another machine gives the same float32.
    return torch.from_numpy(resize(grey, (side, side), anti_aliasing=True)).float().clamp(0.0, 1.0)


def picture_parts(name: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Places (row, column) in [-1, 1]^2 and grey values, each of shape (pixels, ...): the same for all three parts."""
    grey = load_picture(name)
    return dict.fromkeys(("train", "validation", "test"), (places(*grey.shape), grey.reshape(-1, 1)))


def places(height: int, width: int) -> Tensor:
    """Row and column of every pixel, row by row, on even grids from -1 to 1; (height * width, 2).

    >>> places(2, 3).tolist()
    [[-1.0, -1.0], [-1.0, 0.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    down, across = (torch.linspace(-1.0, 1.0, count, dtype=torch.float64) for count in (height, width))
    return torch.cartesian_prod(down, across).float()
