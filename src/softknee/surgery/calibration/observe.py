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

# -- how far numbers spread from 0, counted as they stream by ---------------------------------------------
#
# Every one counts, and nothing is drawn at random.
#
# The magnitudes are counted in bins of a sixteenth of an octave, from 2^-32 to 2^32, for each group (a layer, or each
# channel or neuron) apart: 8 KiB for a group. Counts of two streams add up to those of both, in any order and on any
# device. A quantile read from them is right to 4.4%, the width of a bin, and to a fraction of a percent where the bin
# is well filled.


_BINS_PER_OCTAVE = 16
_LOWEST, _HIGHEST = -32, 32
_BINS = _BINS_PER_OCTAVE * (_HIGHEST - _LOWEST)
# The median of |x| for a normal x of standard deviation 1.
_NORMAL_MEDIAN = 0.6744897501960817


class Spread:
    """Counts of magnitudes in groups; bin 0 holds what is 0 or below 2^-32.

    >>> import torch
    >>> from softknee.surgery.calibration.observe import Spread
    >>> seen = Spread(1)
    >>> for part in torch.linspace(-3, 3, 60001).split(1000):
    ...     seen.add(part[None])
    >>> f"{seen.quantile(0.5).item():.2f}, {seen.share_below(1.0):.3f}"
    '1.50, 0.333'
    """

    def __init__(self, groups: int, counts: Tensor | None = None) -> None:
        self.counts = torch.zeros(groups, _BINS + 1, dtype=torch.int64) if counts is None else counts

    def add(self, x: Tensor) -> None:
        """Count finite numbers, laid out as (groups, any number)."""
        groups = len(self.counts)
        work = x.detach().to(torch.promote_types(x.dtype, torch.float32)).abs()
        # log2(0) is -inf, and becomes bin 0.
        place = ((work.log2() - _LOWEST) * _BINS_PER_OCTAVE).floor().clamp(-1, _BINS - 1).to(torch.int64) + 1
        offset = torch.arange(groups, device=x.device)[:, None] * (_BINS + 1)
        found = torch.bincount((place + offset).reshape(-1), minlength=groups * (_BINS + 1))
        self.counts += found.cpu().reshape(groups, -1)

    @property
    def pooled(self) -> Spread:
        """All groups as one."""
        return Spread(1, self.counts.sum(0, keepdim=True))

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def quantile(self, level: float) -> Tensor:
        """The magnitude that this share of the numbers does not exceed, for each group; 0 where they are 0."""
        total = self.counts.cumsum(1).double()
        wanted = level * total[:, -1:]
        place = (total < wanted).sum(1, keepdim=True).clamp(max=_BINS)
        inside = self.counts.gather(1, place).clamp(min=1).double()
        share = ((wanted - (total.gather(1, place) - inside)) / inside).clamp(0, 1)
        exponent = (place - 1 + share) / _BINS_PER_OCTAVE + _LOWEST
        return torch.where(place == 0, torch.zeros_like(exponent), exponent.exp2())[:, 0]

    @property
    def scale(self) -> Tensor:
        """A standard deviation about 0 that a few huge numbers do not move: the median of |x|, over a normal one's."""
        return self.quantile(0.5) / _NORMAL_MEDIAN

    def share_below(self, magnitude: float | Tensor) -> float:
        """The share of the numbers whose magnitude is at most this, given once or for each group."""
        limit = torch.as_tensor(magnitude, dtype=torch.float64).reshape(-1, 1).expand(len(self.counts), 1)
        place = ((limit.log2() - _LOWEST) * _BINS_PER_OCTAVE + 1).clamp(0, _BINS + 1)
        whole = place.floor().to(torch.int64)
        total = torch.nn.functional.pad(self.counts.cumsum(1).double(), (1, 0))
        ends = torch.nn.functional.pad(total, (0, 1), mode="replicate")
        below = ends.gather(1, whole) + (place - whole) * (ends.gather(1, whole + 1) - ends.gather(1, whole))
        return float(below.sum()) / max(self.count, 1)


# -- what the activations of a model see, without leaving a trace -----------------------------------------
#
# Modes, hooks and random numbers are put back.


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
