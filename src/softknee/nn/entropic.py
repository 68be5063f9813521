"""A spline that lowers its own output entropy while the network trains, that learns its slopes, or that does both."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from ..design.entropic.descent import EafoDescent, eafo_descent
from ..design.entropic.spline import SLOPES, Spline, spline_value, table_of
from ..errors import InputError, ParameterError, require_count
from ..spec import Activation, VectorParam
from .one_vector import OneVector
from .parameters import leaf_of_graph

# Quantiles of the normal density stand in for pre-activations until some have been seen.
_FIRST = 4096
_FEWEST = 256

# How a compiled graph calls back into Python: an operator that carries the module's number.
_modules: weakref.WeakValueDictionary[int, EntropicSpline] = weakref.WeakValueDictionary()
_keys = itertools.count()


def _observe(input: Tensor, recent: Tensor, table: Tensor, key: int) -> None:
    _modules[key]._observe(input, recent, table)


_library = torch.library.Library("softknee", "FRAGMENT")
_library.define("entropic_observe(Tensor input, Tensor(a!) recent, Tensor(b!) table, int key) -> ()")
_library.impl("entropic_observe", _observe, "CompositeExplicitAutograd")
torch.library.register_fake("softknee::entropic_observe", lambda input, recent, table, key: None, lib=_library)


class EntropicSpline(OneVector):
    """A strictly increasing spline that every N training calls takes EAFO steps on its own pre-activations.

    A step lowers the entropy of the output at fixed mean and variance of the output (`sk.design.eafo_descent`), so the
    layers behind it see the same scale. In eval mode nothing is collected and nothing changes. With `refresh=False`
    and `learn=True` it is a plain learned spline: an optimiser moves `gain`, the logarithms of what the slopes at the
    knots are multiplied by, and entropy has no say. With both, the steps start from what was learned; with neither it
    is a fixed spline. `state_dict` has the spline.

    In a study on Fashion-MNIST the steps lowered the entropy, and bent softplus no further than to what LeakyReLU
    reaches; that they do better than learned slopes was not shown (papers/eafo, `entropy_does_more_than_the_loss`).

    Args:
        start: what it is before the first refresh: a name or definition, a function of a tensor, an `EafoDescent` or a
            `Spline`. Where a function is flat or falls it is given the lowest slope allowed: "relu" starts as a leaky
            ReLU of slope 0.01 (a function without an inverse has no entropy to lower) and is nearly at the end.
        every: how many training calls lie between two refreshes.
        steps: EAFO steps per refresh.
        rate: the largest change of the logarithm of a slope in one step.
        knots: of the spline.
        floor: the lowest slope, as a share of the highest; what is learned may go below it.
        memory: how many pre-activations are kept, from the calls since the last refresh: 4 bytes each (64 KiB).
        refresh: False takes no EAFO steps.
        learn: True for a parameter `gain` that an optimiser moves.
        per, size, dim: "layer" alone: a layer has one spline.
        device, dtype: of the table; half types are kept as float32, because knots would coincide.

    A call that does not refresh costs the spline and a copy of `memory/every` numbers, chosen without random numbers
    and without waiting for the device; one that does waits for it and works on the CPU. torch.compile takes both modes
    whole. With activation checkpointing a call is counted twice, and a refresh between the two would make them differ:
    pass refresh=False there and call `refresh_(samples)` yourself. Under data parallelism each process sees its own
    samples, and the buffers of the first are the ones that are broadcast.

    >>> import softknee as sk, torch
    >>> act = sk.nn.EntropicSpline("softplus", every=10)
    >>> before = act(torch.zeros(1))
    >>> for _ in range(10):
    ...     _ = act(torch.randn(64, 32))
    >>> act.refreshes, act.eval()(torch.zeros(1)).equal(before)
    (1, False)
    >>> sk.nn.make("entropic_spline", start="gelu", learn=True, refresh=False).gain.shape
    torch.Size([1, 48])
    """

    vector = VectorParam("gain", "", about="logarithms of what the slopes at the knots are multiplied by")
    settings = ("start", "every", "steps", "knots", "floor", "memory", "refresh")
    words = ("start",)
    table: Tensor
    recent: Tensor
    counts: Tensor

    def __init__(
        self,
        start: str | Activation | EafoDescent | Spline | Callable[[Tensor], Tensor] = "softplus",
        *,
        every: int = 100,
        steps: int = 1,
        rate: float = 0.1,
        knots: int = 48,
        floor: float = 0.01,
        memory: int = 16384,
        refresh: bool = True,
        learn: bool | str | Iterable[str] = False,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **params: Any,
    ) -> None:
        super().__init__()
        for name, value, least in (("every", every, 1), ("steps", steps, 1), ("memory", memory, _FEWEST)):
            require_count("EntropicSpline", name, value, least=least)
        if per in ("channel", "neuron"):
            raise ParameterError(f"EntropicSpline: a layer has one spline, and per={per!r} was given; leave it out.")
        # A text can name a start; any other is known by the numbers of the table alone.
        self.start = start if isinstance(start, str) and start.isidentifier() else "softplus"
        self.every, self.steps, self.rate, self.floor, self.memory = every, steps, rate, floor, memory
        self.refreshing = bool(refresh)
        self.last: EafoDescent | None = None
        self.calls = self.refreshes = self._filled = 0
        self.skipped = ""
        spline = _spline(start, knots, floor, params)
        self.knots = len(spline.knots)
        work = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
        self.register_buffer("table", spline.table.to(device=device, dtype=work))
        self._enrol()
        # What is waiting for the next refresh is not part of a checkpoint.
        self.register_buffer("recent", torch.zeros(memory, device=device), persistent=False)
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64, device=device), persistent=False)
        zeros = torch.zeros(self.knots, dtype=torch.float64, device="cpu")
        self._hold_vector(
            "entropic_spline", zeros, learn=learn, per=per, size=size, dim=dim, device=device, dtype=dtype
        )
        if not self.learned:
            self.register_buffer("gain", self.gain, persistent=False)  # zeros, and no part of the function

    @property
    def spline(self) -> Spline:
        """The activation as it is now: its slope, its inverse, its definition."""
        knots, values, slopes, _ = self._with_gain(self.table.double()).detach().cpu()
        return Spline(knots, values, slopes)

    @property
    def refresh(self) -> bool:
        """Whether it takes EAFO steps; set `refreshing` to change that."""
        return self.refreshing

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        if not isinstance(input, Tensor) or not input.is_floating_point():
            what = input.dtype if isinstance(input, Tensor) else type(input).__name__
            raise InputError(f"EntropicSpline works on real floating-point tensors, and {what} was given.")
        if not (self.training and self.refreshing):
            return spline_value(input, self._with_gain(self.table))
        seen = input.detach()
        if torch.compiler.is_compiling():
            torch.ops.softknee.entropic_observe.default(seen, self.recent, self.table, self.key)
        else:
            self._observe(seen, self.recent, self.table)
        # A refresh writes into the table, and an earlier call may not have been differentiated yet.
        return spline_value(input, self._with_gain(self.table.clone()))

    def _with_gain(self, table: Tensor) -> Tensor:
        """The table with the slopes as they were learned; the value at the middle knot stays."""
        if not self.learned:
            return table
        knots, values, slopes, _ = table
        slopes = slopes * self.gain[0].to(table.dtype).exp()
        rise = torch.cumsum((knots[1:] - knots[:-1]) * (slopes[1:] + slopes[:-1]) / 2, 0)
        middle = self.knots // 2
        values = values[middle] + torch.cat([rise.new_zeros(1), rise]) - rise[middle - 1]
        return table_of(knots, values, slopes)

    def _observe(self, input: Tensor, recent: Tensor, table: Tensor) -> None:
        """Keep some of the input, and refresh when it is time."""
        if is_batchedtensor(input) or (input.is_cuda and torch.cuda.is_current_stream_capturing()):
            raise InputError(
                "EntropicSpline counts its calls and refreshes its table in Python, which a program of many replicas "
                "or a recorded step (a CUDA graph) does not repeat. Train with sk.train.OneByOne (in a recipe: engine: "
                "loop) or a loop of your own, or set its refreshing to False."
            )
        flat = input.reshape(-1)
        share = min(-(-self.memory // self.every), flat.numel(), self.memory)
        if share:
            first = self._filled % self.memory
            share = min(share, self.memory - first)
            # Multiples of an odd number near the golden section of the size go through the input evenly.
            stride = int(0.6180339887498949 * flat.numel()) | 1
            place = (torch.arange(share, device=flat.device) + self._filled) * stride % flat.numel()
            recent[first : first + share] = flat[place].to(recent.dtype)
            self._filled += share
        self.calls += 1
        if self.calls % self.every == 0:
            self._refresh(recent[: min(self._filled, self.memory)], table)
        self.counts[0].fill_(self.calls)  # without waiting for the device
        self.counts[1].fill_(self._filled)

    def train(self, mode: bool = True) -> Self:
        """As every module's; a training that goes on where another stopped goes on with its counts."""
        if mode and not self.counts.is_meta:
            self.calls, self._filled = self.counts.tolist()
        return super().train(mode)

    def refresh_(self, samples: Tensor | None = None) -> Self:
        """Take the EAFO steps now, on these pre-activations or on those collected. Where they are fewer than 256, or
        nearly all one number (a dead layer), nothing changes and `skipped` says why."""
        seen = self.recent[: min(self._filled, self.memory)] if samples is None else samples.detach().reshape(-1)
        self._refresh(seen, self.table)
        return self

    @torch.no_grad()
    def _refresh(self, seen: Tensor, table: Tensor) -> None:
        seen = seen.cpu().double()
        seen = seen[seen.isfinite()]
        self._filled = 0
        if len(seen) < _FEWEST:
            self.skipped = f"a refresh needs {_FEWEST} finite pre-activations, and {len(seen)} had been seen."
            return
        now = self._with_gain(table.double()).cpu()
        try:
            descent = eafo_descent(
                Spline(*now[:3]), seen, self.steps, knots=self.knots, floor=self.floor, rate=self.rate
            )
        except InputError as error:
            self.skipped = str(error)
            return
        made = descent.spline.refined(self.knots).table
        if self.learned:  # what was learned stays where it is, and the table beside it makes up the rest
            made[SLOPES] /= self.gain[0].double().exp().cpu()
        table.copy_(made)
        self.last, self.skipped = descent, ""
        self.refreshes += 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._enrol()  # a copy is another module

    def _enrol(self) -> None:
        self.key = next(_keys)
        _modules[self.key] = self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As every module's, but the table does not become a half type."""
        buffers = {name: self._buffers[name] for name in ("table", "recent")}
        super()._apply(fn, recurse)
        for name, before in buffers.items():
            after = self._buffers[name]
            if before is not None and after is not None and after.dtype.itemsize < 4:
                self._buffers[name] = before.to(after.device)
        return self

    def extra_repr(self) -> str:
        how = f"every={self.every}, steps={self.steps}" if self.refreshing else "refresh=False"
        return ", ".join([f"knots={self.knots}, {how}", *(self._shown() if self.learned else ())])


def _spline(start: Any, knots: int, floor: float, params: dict[str, Any]) -> Spline:
    if isinstance(start, EafoDescent):
        return start.spline
    if isinstance(start, Spline):
        return start
    share = (torch.arange(_FIRST, dtype=torch.float64) + 0.5) / _FIRST
    normal = torch.special.ndtri(share)
    return eafo_descent(start, normal, 0, knots=knots, floor=floor, **params).spline
