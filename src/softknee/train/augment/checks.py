"""What Augment is given, checked; refusals are sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...errors import ParameterError
from .rand_augment import LARGEST


def shape_of(images: Any) -> str:
    """The shape of a tensor, or what was given in its place."""
    return str(tuple(images.shape)) if isinstance(images, Tensor) else f"a {type(images).__name__}"


def read_whole(name: str, value: Any, *, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{name} must be a whole number of at least {least}, and {value!r} was given.")
    return value


def read_number(name: str, value: Any, *, most: float = math.inf) -> float:
    """A finite number from 0 to `most`."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 <= value <= most or math.isinf(value):
        top = f" and at most {most:g}" if most < math.inf else ""
        raise ParameterError(f"{name} must be a finite number of at least 0{top}, and {value!r} was given.")
    return float(value)


def read_pair(given: Any) -> tuple[float, float]:
    """Magnitude and deviation of RandAugment."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ParameterError(
            f"randaugment must be the magnitude and its standard deviation, such as (9, 0.5), and {given!r} was given."
        )
    magnitude = read_number("randaugment's magnitude", given[0], most=LARGEST)
    return magnitude, read_number("randaugment's deviation", given[1])


def read_normalisation(
    mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """A number for each channel, or None for both."""
    if (mean is None) != (std is None):
        raise ParameterError("mean and std normalise together: give both, or neither.")
    if mean is None or std is None:
        return None, None
    if len(mean) != len(std) or not all(one > 0 for one in std):
        raise ParameterError(
            f"mean and std must have a number for each channel, std above 0; got {mean!r} and {std!r}."
        )
    return tuple(map(float, mean)), tuple(map(float, std))


def read_shape(given: Sequence[int] | None) -> tuple[int, int, int] | None:
    """Channels, height and width of an image, or None."""
    if given is None:
        return None
    if not isinstance(given, list | tuple) or len(given) != 3:
        raise ParameterError(
            f"shape must be the channels, height and width of an image, such as (1, 28, 28), and {given!r} was given."
        )
    channels, height, width = (read_whole("each number of shape", one, least=1) for one in given)
    return channels, height, width
