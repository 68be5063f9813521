"""Places where a swap would be ignored without a word: fast paths, fused layers, configurations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from ...errors import InputError
from ...nn.parameters import require_model
from ..finding.identify import identify_module
from .operation import Step, Undo

# Layers that compute an activation inside a kernel of their own, by the names of their classes.
_FUSED = {
    "FusedMLP": "it computes its activation inside a fused kernel",
    "ParallelFusedMLP": "it computes its activation inside a fused kernel",
    "FusedDenseGeluDense": "it computes GELU inside a fused kernel",
    "LayerNormMLP": "it computes its activation inside a fused kernel",
    "LigerSwiGLUMLP": "it computes SiLU inside a fused kernel",
    "LigerGEGLUMLP": "it computes GELU inside a fused kernel",
    "LigerPhi3SwiGLUMLP": "it computes SiLU inside a fused kernel",
    "LigerBlockSparseTop2MLP": "it computes SiLU inside a fused kernel",
    "LigerQwen3MoeSwiGLUMLP": "it computes SiLU inside a fused kernel",
    "InplaceAbn": "it computes its activation inside its batch norm",
    "InPlaceABN": "it computes its activation inside its batch norm",
    "InPlaceABNSync": "it computes its activation inside its batch norm",
}
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def hidden(model: nn.Module) -> Iterator[tuple[str, str, str]]:
    """Modules that hide an activation: path, class, and the reason why it cannot be changed."""
    for path, module in model.named_modules():
        if isinstance(module, _RECURRENT):
            yield path, type(module).__name__, "It computes its activation inside a recurrent kernel."
        for cls in type(module).__mro__:
            if cls.__name__ in _FUSED and not any(True for _ in _activation_children(module)):
                reason = _FUSED[cls.__name__]
                yield path, type(module).__name__, f"{reason[0].upper()}{reason[1:]}; build the layer unfused first."
                break


def _activation_children(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if identify_module(child) is not None:
            yield child


def fast_paths(steps: Sequence[Step], model: nn.Module) -> list[Callable[[], Undo]]:
    """For each encoder layer of torch that gets a new activation: how to switch its fused path off."""
    layers = [step.place.owner for step in steps if isinstance(step.place.owner, nn.TransformerEncoderLayer)]
    return [partial(_leave_fast_path, layer, model) for layer in layers]


def _leave_fast_path(layer: nn.TransformerEncoderLayer, model: nn.Module) -> Undo:
    """torch's encoder layer has a fused eval path that uses the activation it was built with: switch it off.

    The encoder around it would pack padded batches into nested tensors, which only that path takes.
    """
    before: list[tuple[nn.Module, str, Any]] = [(layer, "activation_relu_or_gelu", layer.activation_relu_or_gelu)]
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and any(one is layer for one in module.layers):
            before += [(module, name, getattr(module, name)) for name in _NESTED if hasattr(module, name)]
    for owner, name, _ in before:
        setattr(owner, name, 0 if name == "activation_relu_or_gelu" else False)

    def undo() -> None:
        for owner, name, value in before:
            setattr(owner, name, value)

    return undo


_NESTED = ("enable_nested_tensor", "use_nested_tensor")


def refuse_untouchable(
    model: nn.Module, title: str, *, cure: str = "and would not train what surgery adds; swap first, then wrap."
) -> None:
    """Refuse what cannot be changed, or would not train what is added; `cure` ends the sentence for a wrapped model."""
    require_model(model, title)
    own = identify_module(model)
    if own is not None:
        raise InputError(
            f"The model is itself an activation ({own}), which cannot be replaced inside itself; put it into a "
            f"torch.nn.Sequential, or make the new one with sk.nn.make."
        )
    wrappers: tuple[Any, ...] = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    if (sharding := sys.modules.get("torch.distributed.fsdp")) is not None:
        wrappers += (sharding.FSDPModule, sharding.FullyShardedDataParallel)
    for module in model.modules():
        if isinstance(module, wrappers):
            raise InputError(f"The model is already wrapped ({type(module).__name__}), {cure}")
        if isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                f"{type(module).__name__} is TorchScript, whose code is fixed; change the model before it is scripted."
            )
