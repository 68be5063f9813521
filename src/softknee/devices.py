"""Whether a device is there, said before anything is done with it."""

from __future__ import annotations

import torch

from .errors import InputError, ParameterError


def need_device(
    name: torch.device | str, *, cures: str = "choose device='cpu', or run it where there is one"
) -> torch.device:
    """The device as torch names it ("cuda", "cuda:1", "mps"), or a sentence that says what is missing, with `cures`.

    >>> need_device("cpu")
    device(type='cpu')
    """
    device = read_device(name)
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    missing = missing_device(device, cuda=seen, mps=torch.backends.mps.is_available())
    if missing:
        raise InputError(f"{missing}: {cures}.")
    return device


def read_device(name: torch.device | str) -> torch.device:
    """The device of that name, whether it is there or not."""
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(
            f"{name!r} is no device that torch knows: write it like 'cpu', 'cuda', 'cuda:1' or 'mps'."
        ) from error


def missing_device(device: torch.device, *, cuda: int, mps: bool) -> str:
    """What a machine with so many CUDA devices, and with or without Apple's, lacks for this one; empty for nothing."""
    if device.type == "mps":
        return "" if mps else "No MPS device (the GPU of an Apple computer) is visible to torch here"
    if device.type != "cuda" or (device.index or 0) < cuda:
        return ""
    if not cuda:
        return "No CUDA device is visible to torch here"
    there = "cuda:0 alone" if cuda == 1 else f"cuda:0 to cuda:{cuda - 1}"
    return f"There is no device {device} here, where torch sees {there}"
