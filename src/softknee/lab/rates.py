"""Bits of activations: the rate of SQUAF layers as a term of a loss, and what the coders make of their symbols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import softknee as sk

from ..errors import InputError
from ..kernels.squaf.marginal import entropy_in_bits
from ..nn.rate import marginal_of
from ..nn.squaf import SQUAF, Chosen
from ..wire import sizes

_BATCH = 500
MODES = ("soft", "sampled", "step")
CODERS = ("entropy", "huffman", "rans", "packed")  # "entropy" is that of the symbols themselves


class BitPrice:
    """The rate R of the last forward pass of watched models in training, in bits per activation.

    >>> import softknee as sk
    >>> bits = BitPrice()
    >>> net = bits.watch(nn.Sequential(nn.Linear(2, 8), sk.nn.SQUAFP(k=4, q=0.5), nn.Linear(8, 1)))
    >>> loss = net(torch.randn(16, 2)).square().mean() + 0.002 * bits.rate()
    >>> loss.backward()

    A copy of a watched model is watched, too; `sk.nn.RatePenalty` watches one model alone.

    Reference: equation 12 of the SQUAF paper.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[Tensor, int]] = []

    def watch(self, model: nn.Module) -> nn.Module:
        """The model itself, whose SQUAF layers are watched from now on."""
        layers = [module for module in model.modules() if isinstance(module, SQUAF)]
        if not layers:
            raise InputError(f"{type(model).__name__} has no SQUAF layer, and only these have a rate.")
        seen = self._seen

        # A function, which a copy of the model shares: a bound method would take this object along.
        def note(module: Any, inputs: tuple[Tensor, ...]) -> None:
            if module.training and torch.is_grad_enabled():
                seen.append((marginal_of(module, inputs[0]), inputs[0].numel()))

        for layer in layers:
            layer.register_forward_pre_hook(note)
        return model

    def rate(self) -> Tensor:
        """Of the forward pass since the last call, which is forgotten."""
        if not self._seen:
            raise InputError("No forward pass with gradient reached a SQUAF layer since the last call.")
        total = sum(count for _, count in self._seen)
        rate = torch.stack([entropy_in_bits(p) * (count / total) for p, count in self._seen]).sum()
        self._seen.clear()
        return rate


def measure_coding(model: nn.Module, x: Tensor, y: Tensor, *, coded: int, draws: int, seed: int) -> dict[str, float]:
    """A network with SQUAF layers on test examples, in eval mode; it is left in the mode it was in.

    accuracy_soft, accuracy_step: switched to SQUAF and to SQUAF-S; accuracy_sampled: the mean over so many draws of
        SQUAF-P. A draw moves the accuracy by as much as another seed of the training does.
    bits: the paper's rate, equation 12, over all examples, in bits per activation; outside: the share of
        pre-activations beyond the grids.
    bits_entropy, bits_huffman, bits_rans, bits_packed, and these with step_ before: of the symbols of the first
        `coded` examples as SQUAF-P and as SQUAF-S draws them, each layer a message of its own with table and header.
    """
    layers = [module for module in model.modules() if isinstance(module, SQUAF)]
    before, training, scores = layers[0].mode, model.training, {}
    model.eval()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(seed)
        for mode in MODES:
            sk.squaf_mode_(model, mode)
            times = draws if mode == "sampled" else 1
            scores[f"accuracy_{mode}"] = sum(_accuracy(model, x, y) for _ in range(times)) / times
            if mode != "soft":
                prefix = "step_" if mode == "step" else ""
                scores |= {f"{prefix}bits_{coder}": bits for coder, bits in code(model, x[:coded]).items()}
        sk.squaf_mode_(model, "sampled")
        rate = sk.measure.rate(model, x.split(_BATCH))
    sk.squaf_mode_(model, before)
    model.train(training)
    return scores | {"bits": rate.bits, "outside": rate.outside}


@torch.no_grad()
def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    pairs = zip(x.split(_BATCH), y.split(_BATCH), strict=True)
    return sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in pairs) / len(y)


@torch.no_grad()
def code(model: nn.Module, x: Tensor) -> dict[str, float]:
    """Bits per activation of the symbols that the SQUAF layers send for these examples, by coder.

    The network must be in the mode "sampled" or "step": a mean of the table is no symbol.
    """
    with watched(model) as symbols:
        model(x)
    total = sum(sent.numel() for sent, _ in symbols.values())
    bits: dict[str, float] = dict.fromkeys(CODERS, 0.0)
    for sent, levels in symbols.values():
        size = sizes(sent.to(torch.uint8 if levels <= 256 else torch.int32).cpu(), levels=levels)
        for coder in CODERS:
            bits[coder] += getattr(size, coder) * sent.numel() / total
    return bits


@contextmanager
def watched(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, int]]]:
    """While open, a dict of the symbols of the last call of each SQUAF layer, with the number of levels.

    What a layer gives on to the next one comes from the draw that its symbols are of.
    """
    sent: dict[str, tuple[Tensor, int]] = {}

    def hook(path: str) -> Any:
        def after(module: Any, given: tuple[Tensor, ...], _: Tensor) -> Tensor:
            output, symbols = module.with_symbols(given[0])
            sent[path] = symbols, module.points
            return output

        return after

    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, Chosen)}
    handles = [layer.register_forward_hook(hook(path)) for path, layer in layers.items()]
    try:
        yield sent
    finally:
        for handle in handles:
            handle.remove()
