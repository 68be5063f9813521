"""The arguments of measurements, read in one place: numbers, yes or no, and the true labels of examples."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError


def as_number(value: Any) -> float:
    """The number that was given; NaN for what is none, so that every comparison with it says no.

    >>> as_number(2), as_number("2"), 0 < as_number(None)
    (2.0, nan, False)
    """
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        return math.nan


def check_later(step: Any, last: float | None) -> None:
    """Refuse what is no number, or does not come after the last one of a trace (None: there is none yet)."""
    if math.isnan(as_number(step)):
        raise ParameterError(f"A trace is recorded under numbers, such as epochs, and {step!r} was given.")
    if last is not None and not step > last:
        raise ParameterError(f"A trace is recorded in the order of time, and {step:g} does not come after {last:g}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise ParameterError(f"{name} is True or False, and {type(value).__name__} was given.")


def whole_numbers(labels: Any) -> Tensor:
    """Labels as whole numbers on the CPU."""
    try:
        truth = torch.as_tensor(labels).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"The labels cannot be read as an array of whole numbers: {error}.") from error
    if truth.is_floating_point() or truth.is_complex():
        raise InputError(f"Labels are whole numbers, and {truth.dtype} was given; convert them first.")
    return truth.long()


def read_labels(labels: Any, examples: int, classes: int) -> Tensor:
    """The true label of each example, on the CPU."""
    truth = whole_numbers(labels)
    if tuple(truth.shape) != (examples,):
        raise InputError(
            f"There is one true label for each of {examples} examples, and the labels have shape {tuple(truth.shape)}."
        )
    if int(truth.min()) < 0 or int(truth.max()) >= classes:
        raise InputError(f"Labels lie between 0 and {classes - 1}, not {int(truth.min())} to {int(truth.max())}.")
    return truth
