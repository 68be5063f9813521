"""What surgery did: every site changed, every site left with the reason, and the way back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import InputError
from ...nn.parameters import require_model
from ..finding.identify import identify_module
from .operation import Step, Undo, still_there, take_back

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


@dataclass(frozen=True)
class Changed:
    """A site that was changed: what it computed, and the module that is there now.

    also: further sites that call the same module, from other lines of its owner.
    """

    path: str
    was: str
    now: str
    kind: str
    also: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Skipped:
    """A site that was left as it is, and why."""

    path: str
    activation: str
    reason: str


@dataclass
class Report:
    """The result of `swap_` and `apply_`; prints as a table.

    changed:       the sites changed, in order of depth.
    skipped:       the sites left, each with its reason; also layers that hide their activation.
    uncalled:      the sites changed that the example never called, empty without one.
    notes:         what to know beyond that.
    output_change: the largest change of any output on the example, None without one.
    relative_change: the same, as a share of the largest output.
    """

    changed: list[Changed]
    skipped: list[Skipped]
    notes: list[str] = field(default_factory=list)
    output_change: float | None = None
    relative_change: float | None = None
    uncalled: list[str] = field(default_factory=list)
    dry_run: bool = False
    plan: dict[str, Any] = field(default_factory=dict, repr=False)
    steps: list[Step] = field(default_factory=list, repr=False)
    _done: list[Undo] = field(default_factory=list, repr=False)
    _undone: bool = field(default=False, repr=False)

    def undo(self) -> None:
        """Put the old activations back exactly as they were; weights trained since then stay."""
        if self.dry_run:
            raise InputError("This report is of a dry run: nothing was changed, so there is nothing to undo.")
        if self._undone:
            raise InputError("This surgery is undone already; its report cannot undo it again.")
        still_there(self.steps)
        take_back(self._done)
        self._undone = True

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the surgery to a file (.json), for `sk.apply_` to repeat it on another model like this one."""
        from .plan import write

        return write(self.plan, path)

    def __str__(self) -> str:
        rows = [("site", "was", "is now"), *((", ".join([c.path, *c.also]), c.was, c.now) for c in self.changed)]
        idle = f" ({len(self.uncalled)} never called)" if self.uncalled else ""
        title = f"{len(self.changed)} changed{idle}, {len(self.skipped)} left" + " (dry run)" * self.dry_run
        lines = [title, *_table(rows)]
        if self.skipped:
            lines += [
                "",
                *_table([("left", "computes", "because"), *((s.path, s.activation, s.reason) for s in self.skipped)]),
            ]
        lines += [f"\n{note}" for note in self.notes]
        if self.output_change is not None:
            lines.append(
                f"\nLargest change of an output on the example: {self.output_change:.3g} "
                f"({self.relative_change or 0.0:.2%} of the largest output)."
            )
        return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows in columns; the last column is as wide as it likes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    ]
