"""What a trained network with SQUAF-P is worth: accuracy in each mode, and the bits of its activations, coded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import softknee as sk

from ...nn.squaf_modes import Chosen
from ...wire import sizes
from ..data.images import ImageSet
from ..image_training import MODES, accuracy

_BATCH = 500
CODERS = ("entropy", "huffman", "rans", "packed")  # "entropy" is that of the symbols themselves


@dataclass(frozen=True, kw_only=True)
class Coded:
    """Bits per activation of the symbols of some test images, each layer coded by itself, with table and header."""

    symbols: int
    bits: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One network after training.

    accuracy: of the test images in percent, in each mode of `MODES`; of other activations {"soft": ...} alone. That
              of "sampled" is the mean of `draws`.
    rate:     the paper's, equation 12, over all test images, in bits per activation.
    outside:  the share of pre-activations beyond the grids.
    coded:    by mode, what the coders make of the symbols.
    layers:   the paper's rate of each SQUAF layer.
    draws:    the accuracy of SQUAF-P with each of its draws.
    """

    accuracy: Mapping[str, float]
    rate: float | None = None
    outside: float | None = None
    coded: Mapping[str, Coded] = field(default_factory=dict)
    layers: Mapping[str, float] = field(default_factory=dict)
    draws: Sequence[float] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Measured:
        """What `dataclasses.asdict` made of one."""
        coded = {mode: Coded(**one) for mode, one in row["coded"].items()}
        return cls(**{**row, "coded": coded, "draws": tuple(row["draws"])})

    @property
    def bits(self) -> dict[str, float]:
        """The rate, and each coder's bits for SQUAF-P and, with "step_" before it, for SQUAF-S."""
        if self.rate is None:
            return {}
        found = {"rate": self.rate}
        for coder in CODERS:
            found[coder] = self.coded["sampled"].bits[coder]
            found[f"step_{coder}"] = self.coded["step"].bits[coder]
        return found


def measure(model: nn.Module, data: ImageSet, *, coded_images: int, draws: int, seed: int) -> Measured:
    """Everything about one network in eval mode, in float32; it is left in the mode it was in.

    SQUAF-P draws anew at each call: what is drawn here follows from the seed. A draw moves the accuracy by as much as
    another seed of the training does, so that it is taken over several.
    """
    layers = [one for one in model.modules() if isinstance(one, sk.nn.SQUAF)]
    if not layers:
        return Measured(accuracy={"soft": accuracy(model, data)})
    before, found, coded = layers[0].mode, {}, {}
    devices = [data.test_images.device] if data.test_images.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        for mode in MODES:
            sk.squaf_mode_(model, mode)
            found[mode] = [accuracy(model, data) for _ in range(draws if mode == "sampled" else 1)]
            if mode != "soft":
                coded[mode] = code(model, data.ready(data.test_images[:coded_images]))
        sk.squaf_mode_(model, "sampled")
        rate = sk.measure.rate(model, (data.ready(one) for one in data.test_images.split(_BATCH)))
    sk.squaf_mode_(model, before)
    sites = {one.path: one.bits for one in rate.sites}
    return Measured(
        accuracy={mode: sum(each) / len(each) for mode, each in found.items()},
        rate=rate.bits,
        outside=rate.outside,
        coded=coded,
        layers=sites,
        draws=tuple(found["sampled"]),
    )


@torch.no_grad()
def code(model: nn.Module, images: Tensor) -> Coded:
    """The symbols that the SQUAF layers of a network send for these images, coded with every coder.

    The network must be in the mode "sampled" or "step": a mean of the table is no symbol.
    """
    with watched(model) as symbols:
        model(images)
    total = sum(one.numel() for one, _ in symbols.values())
    bits: dict[str, float] = dict.fromkeys(CODERS, 0.0)
    for one, levels in symbols.values():
        found = sizes(one.to(torch.uint8 if levels <= 256 else torch.int32).cpu(), levels=levels)
        for name in CODERS:
            bits[name] += getattr(found, name) * one.numel() / total
    return Coded(symbols=total, bits=bits)


@contextmanager
def watched(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, int]]]:
    """While open, a dict of the symbols of the last call of each SQUAF layer, with the number of levels.

    What a layer gives on to the next one comes from the draw that its symbols are of.
    """
    found: dict[str, tuple[Tensor, int]] = {}

    def hook(path: str) -> Any:
        def after(module: Any, given: tuple[Tensor, ...], _: Tensor) -> Tensor:
            output, symbols = module.with_symbols(given[0])
            found[path] = symbols, module.points
            return output

        return after

    layers = {path: one for path, one in model.named_modules() if isinstance(one, Chosen)}
    handles = [one.register_forward_hook(hook(path)) for path, one in layers.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
