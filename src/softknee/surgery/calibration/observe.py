"""What the activations of a model see, without leaving a trace: modes, hooks and random numbers are put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, SoftkneeError
from ...nn.parameters import Parameterised
from ..finding.probing import not_compiled
from .spread import Spread


def observe(
    model: nn.Module, sites: Mapping[str, Parameterised], batches: Iterable[Any]
) -> tuple[dict[str, Spread], int]:
    """The spread of every site's input over the batches, and how many batches there were."""
    seen = {path: Spread(module.granularity.count) for path, module in sites.items()}
    refuse_one_batch(batches)
    with quietly(model, {module: _counter(path, module, seen[path]) for path, module in sites.items()}):
        count = run_all(model, batches)
    if not count:
        raise InputError("batches was empty, so that there is nothing to go by; nothing was changed.")
    if missed := [path for path in sites if not seen[path].count]:
        more = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
        raise InputError(
            f"No batch reached the activation {missed[0]!r}{more}; leave it out with where=, or give batches that take "
            f"that way. Nothing was changed."
        )
    return seen, count


@contextmanager
def quietly(model: nn.Module, hooks: Mapping[nn.Module, Callable[[Tensor], None]]) -> Iterator[None]:
    """Eval mode, no gradients, a hook on the input of each of these modules; everything as before at the end."""
    modes = {module: module.training for module in model.modules()}
    devices = sorted({p.device.index or 0 for p in (*model.parameters(), *model.buffers()) if p.device.type == "cuda"})
    handles = []
    try:
        for module, hook in hooks.items():
            handles.append(module.register_forward_pre_hook(_given(hook), with_kwargs=True))
        model.eval()
        # A compiled graph does not see hooks that came after it.
        with torch.random.fork_rng(devices=devices), torch.no_grad(), not_compiled():
            yield
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes.items():
            module.training = training


def refuse_one_batch(batches: Any) -> None:
    """Refuse what could be iterated over and is a batch itself."""
    if isinstance(batches, Tensor | Mapping | str):
        raise InputError(
            f"batches must be an iterable of batches, and one {type(batches).__name__} was given; put it in a list."
        )
    if not isinstance(batches, Iterable):
        raise InputError(
            f"batches must be an iterable of batches, such as a loader or a list of them, and "
            f"{type(batches).__name__} was given."
        )


def run_all(model: nn.Module, batches: Iterable[Any]) -> int:
    """Every batch through the model, on the model's device; returns how many there were."""
    count = 0
    device = next((one.device for one in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    for batch in batches:
        run(model, batch, device=device, number=count)
        count += 1
    return count


def run(model: nn.Module, batch: Any, *, device: torch.device, number: int) -> Any:
    """One batch through the model: a tensor, a tuple whose first entry is the input, or a dict of keyword arguments."""
    if isinstance(batch, list | tuple):
        batch = batch[0] if batch else None
    if not isinstance(batch, Tensor | Mapping):
        raise InputError(
            f"Batch {number} must be a tensor, a tuple whose first entry is one, or a dict of keyword arguments, and "
            f"{type(batch).__name__} was given."
        )
    try:
        if isinstance(batch, Tensor):
            return model(batch.to(device))
        return model(**{key: one.to(device) if isinstance(one, Tensor) else one for key, one in batch.items()})
    except SoftkneeError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"Batch {number} does not fit {type(model).__name__}: {reason.rstrip('.')}.") from error


def _given(hook: Callable[[Tensor], None]) -> Callable[..., None]:
    def pre(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hook(args[0] if args else kwargs["input"])

    return pre


def _counter(path: str, module: Parameterised, seen: Spread) -> Callable[[Tensor], None]:
    kept = module.granularity

    def count(x: Tensor) -> None:
        if not bool(x.isfinite().all()):
            raise InputError(
                f"A pre-activation of {path!r} is NaN or infinite; check the batches and the model. Nothing was "
                f"changed."
            )
        if kept.per == "channel":
            seen.add(x.movedim(kept.dim, 0).reshape(kept.count, -1))
        elif kept.per == "neuron":
            seen.add(x.reshape(-1, kept.count).T)
        else:
            seen.add(x.reshape(1, -1))

    return count
