"""Runs a model on an example and leaves it as it was: modes, buffers, random numbers."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from .probing import not_compiled


def run_example(
    model: nn.Module, example: Any, *, inside: AbstractContextManager[Any] | None = None, after: str = ""
) -> Any:
    """The model's output on the example, in eval mode, without gradients; the model is left as it was.

    `inside` is entered around the call; `after` says what was done to the model since the example last worked.
    """
    title = type(model).__name__
    if any(nn.parameter.is_lazy(one) for one in (*model.parameters(), *model.buffers())):
        raise InputError(
            f"{title} has lazy layers that never ran, and an example would give them their shapes; call the model once "
            f"yourself first."
        )
    try:
        with _left_as_it_was(model), inside or contextlib.nullcontext():
            return _call_with(model, example)
    except Exception as error:
        reason = f"{type(error).__name__}: {_first_line(error)}"
        if after:
            raise InputError(
                f"{after}, {title} no longer runs on the example ({reason}) Nothing was changed; leave out the site "
                f"that fails with where=."
            ) from error
        raise InputError(
            f"The example does not fit {title}: {reason} Give what the model is called with: a tensor, a tuple of "
            f"arguments, or a dict of named ones."
        ) from error


def _call_with(model: nn.Module, example: Any) -> Any:
    example = _copied(example)  # a model may overwrite its input
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple | list) else model(example)


def _copied(example: Any) -> Any:
    if isinstance(example, Tensor):
        return example.detach().clone()
    if isinstance(example, Mapping):
        return {name: _copied(one) for name, one in example.items()}
    return [_copied(one) for one in example] if type(example) in (list, tuple) else example


@contextlib.contextmanager
def _left_as_it_was(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    devices = list({one.device for one in model.parameters() if one.device.type == "cuda"})
    # Batch norm would count the example, and dropout would make two runs differ.
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices), not_compiled(), warnings.catch_warnings():
            # What a model has to say of a run without gradients is not for the user's ears.
            warnings.simplefilter("ignore")
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                if buffer.device.type != "meta" and not torch.equal(buffer, before):
                    buffer.copy_(before)
                module._buffers[name] = buffer


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, also inside lists, tuples and mappings."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [one for part in value for one in tensors_in(part)] if isinstance(value, list | tuple) else []


def compare(before: Any, after: Any) -> tuple[float | None, float | None]:
    """The largest change of any number in an output, and the same as a share of the largest number.

    Infinite where the outputs have other shapes than before, or are no longer finite; None on the meta device.
    """
    pairs = [[one.detach() for one in tensors_in(output) if one.is_floating_point()] for output in (before, after)]
    if [one.shape for one in pairs[0]] != [one.shape for one in pairs[1]]:
        return math.inf, math.inf
    if any(one.device.type == "meta" for one in pairs[0]):
        return None, None
    change, scale = 0.0, 0.0
    for old, new in zip(*pairs, strict=True):
        if not old.numel():
            continue
        old, new = old.double(), new.double()
        same = (old == new) | (old.isnan() & new.isnan())
        moved = (old - new).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf).max().item()
        change, scale = max(change, moved), max(scale, old.abs().nan_to_num(0.0, 0.0, 0.0).max().item())
    return change, change / scale if scale else (0.0 if change == 0 else math.inf)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    text = lines[0].strip()
    return text if text.endswith((".", "!", "?")) else text + "."
