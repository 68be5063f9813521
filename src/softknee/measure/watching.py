"""Batches through a model while what goes into its activations, and what comes out of them, is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from torch import Tensor, nn

from ..surgery.calibration.observe import quietly, run_all
from ..surgery.finding.probing import not_compiled


class Watcher(Protocol):
    """Gets the input of a module, before an inplace one overwrites it, and then its output."""

    def before(self, x: Tensor) -> None: ...

    def after(self, y: Tensor) -> None: ...


def watch(model: nn.Module, batches: Iterable[Any], watched: Mapping[nn.Module, Watcher]) -> int:
    """Run every batch in eval mode, each module watched by its watcher; returns how many batches there were."""
    with ExitStack() as stack:
        stack.enter_context(not_compiled())  # a compiled model would not call hooks that came after it
        stack.enter_context(quietly(model, {module: one.before for module, one in watched.items()}))
        for module, one in watched.items():
            stack.callback(module.register_forward_hook(_given(one.after)).remove)
        return run_all(model, batches)


def _given(after: Callable[[Tensor], None]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            after(result.detach())

    return hook
