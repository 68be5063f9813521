"""What a module does for all replicas at once, where that is more than the sum of what vmap would do.

The model runs under `torch.func.vmap`, so that any model works. At some modules the replicas' tensors are taken out of
it, with the replicas as their first dimension: linear maps become one batched product whose weight gradient is laid out
as the weight is; activations get their fused kernel, which takes a parameter per replica; batch norm moves the running
statistics of each replica; dropout draws each replica's mask from its key.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import InputError
from ..kernels import call
from ..kernels.squaf import squaf_sampled
from ..nn.module import Pointwise
from ..nn.one_vector import OneVector
from ..nn.squaf import SQUAF, SQUAFP
from .random_keys import bits, fold, masks, seed_keys, site_number


class Draws:
    """Whose dropout is drawn: the keys of the replicas, the step, and how often each site was passed in it."""

    def __init__(self, keys: Tensor, step: Tensor, passed: dict[str, int] | None = None) -> None:
        self.keys, self.step = keys, step
        self.passed: dict[str, int] = {} if passed is None else passed
        self.sites: dict[str, int] = {}

    def know(self, path: str) -> None:
        """Number this site now: torch.compile cannot look into a checksum."""
        self.sites[path] = site_number(path)

    def bits(self, path: str, length: int) -> Tensor:
        """Random bits for the next pass of this site, [M, length]."""
        return bits(self._next_keys(path), length)

    def mask(self, path: str, length: int, *, p: float, dtype: torch.dtype) -> Tensor:
        """What the next pass of this dropout multiplies with, [M, length]: 0 with probability p, else 1/(1 - p)."""
        keys, scale = self._next_keys(path), 1 / (1 - p) if p < 1 else 0.0
        return masks(keys, length, threshold=round(p * 2**32), scale=scale, dtype=dtype)

    def _next_keys(self, path: str) -> Tensor:
        turn = self.passed.get(path, 0)
        self.passed[path] = turn + 1
        site = self.sites[path] if path in self.sites else site_number(path)
        return fold(fold(fold(self.keys, self.step), site), turn)


class _OnAll(torch.autograd.Function):
    """Calls `run` on the tensors of all replicas; only its vmap rule is ever used."""

    @staticmethod
    def forward(run: Any, *tensors: Any) -> Any:
        raise InputError("A stacked module was called outside the program of its replicas.")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        run, *tensors = args
        stacked = [
            tensor
            if not isinstance(tensor, Tensor)
            else tensor.expand(info.batch_size, *tensor.shape)
            if dim is None
            else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims[1:], strict=True)
        ]
        return run(*stacked), 0


# torch binds the arguments by `inspect` at every call; a signature that is there already saves half of that time.
_OnAll.forward.__signature__ = inspect.signature(_OnAll.forward)  # pyright: ignore[reportFunctionMemberAccess]


def on_all(run: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """`run` on tensors with the replicas as first dimension, from inside vmap over the replicas."""
    return _OnAll.apply(run, *tensors)  # pyright: ignore[reportReturnType]


class _LinearMaps(torch.autograd.Function):
    """x [M, n, in], weight [M, out, in], bias [M, out] -> [M, n, out]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        # MKL's batched product with a transposed second factor took 11 ms where that of a copy takes 0.6 ms.
        turned = weight.mT.contiguous() if weight.device.type == "cpu" else weight.mT
        if bias is None:
            return torch.bmm(x, turned)
        return torch.baddbmm(bias.unsqueeze(1), x, turned)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        (g,) = grad_outputs
        x, weight = ctx.saved_tensors
        return (
            torch.bmm(g, weight) if ctx.needs_input_grad[0] else None,
            torch.bmm(g.mT, x) if ctx.needs_input_grad[1] else None,
            g.sum(1) if ctx.needs_input_grad[2] else None,
        )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The linear map of every replica: x [M, ..., in], weight [M, out, in], bias [M, out]."""
    flat = x.reshape(x.shape[0], -1, x.shape[-1])
    y: Any = _LinearMaps.apply(flat, weight, bias)
    return y.reshape(*x.shape[:-1], weight.shape[1])


class StackedLinear(nn.Linear):
    """One batched product."""

    def forward(self, input: Tensor) -> Tensor:
        return on_all(linear, input, self.weight, self.bias)


def aligned(x: Tensor, p: Tensor, *, tail: int = 0) -> Tensor:
    """A parameter [M, ...] that broadcasts against x [M, ...] as it does for one replica; its `tail` stays last."""
    return p.reshape(p.shape[0], *[1] * (x.dim() - p.dim() + tail), *p.shape[1:])


class StackedPointwise(Pointwise):
    """The activation with its kernel for ordinary tensors."""

    def run(self, x: Tensor, *params: Tensor) -> Tensor:
        """Of x [M, ...] with parameters [M, ...] that broadcast against the rest of it."""
        return call(self.definition, x, [aligned(x, p) for p in params])

    def forward(self, input: Tensor) -> Tensor:
        return on_all(self.run, input, *self.fitted(input))


class StackedSquaf(SQUAF):
    """SQUAF with its kernels for ordinary tensors: a row of parameters, and a table, for each replica."""

    draws: Draws
    path: str

    def run(self, x: Tensor, *params: Tensor) -> Tensor:
        """Of x [M, ...] with its parameters [M, ...], in their order."""
        named = zip(self.params, params, strict=True)
        return self.compute(x, {p.name: aligned(x, value, tail=len(self._tail(p.name))) for p, value in named})

    def compute(self, input: Tensor, values: dict[str, Any]) -> Tensor:
        if not isinstance(self, SQUAFP):
            return super().compute(input, values)
        high, low = self.draws.bits(self.path, 2).unbind(1)  # a seed of 63 bits from the key of each replica
        seed = (high >> 1 << 32) | low
        return squaf_sampled(input, **values, window=self.window, weights=self.weights, seed=seed)

    def forward(self, input: Tensor) -> Tensor:
        return on_all(self.run, input, *self.fitted(input).values())


class StackedVector(OneVector):
    """A baseline whose parameter is one vector, for each replica its own."""

    leading = 1

    def run(self, x: Tensor, vector: Tensor) -> Tensor:
        """Of x [M, ...] with vectors [M, ..., n]."""
        work = torch.promote_types(torch.float32, x.dtype)
        return self.compute(x.to(work), aligned(x, vector.to(work), tail=1)).to(x.dtype)

    def forward(self, input: Tensor) -> Tensor:
        _, vector = self._ready(input)
        return on_all(self.run, input, vector)


class StackedDropout(nn.Module):
    """What nn.Dropout becomes: one decision per element, or per channel after Dropout1d to Dropout3d."""

    p: float
    draws: Draws
    path: str
    kept_dims: int | None

    def forward(self, input: Tensor) -> Tensor:
        return on_all(self.forward_all, input) if self.training and self.p else input

    def forward_all(self, x: Tensor) -> Tensor:
        """Of the replicas' inputs, [M, ...]."""
        if not self.training or self.p == 0:
            return x
        shape = x.shape[1:] if self.kept_dims is None else (*x.shape[1:3], *[1] * (x.dim() - 3))
        length = shape.numel() if isinstance(shape, torch.Size) else shape[0] * shape[1]
        return x * self.draws.mask(self.path, length, p=self.p, dtype=x.dtype).view(-1, *shape)


class AloneDropout(StackedDropout):
    """The dropout of one replica whose model runs outside of vmap."""

    def forward(self, input: Tensor) -> Tensor:
        return self.forward_all(input.unsqueeze(0)).squeeze(0)


class AloneSquaf(StackedSquaf):
    """SQUAF-P of one replica whose model runs outside of vmap: sampled from its key."""

    def forward(self, input: Tensor) -> Tensor:
        return self.run(input.unsqueeze(0), *[value.unsqueeze(0) for value in self.fitted(input).values()]).squeeze(0)


class StackedNorm(nn.Module):
    """Batch norm over the batch of each replica: the channels of all replicas side by side in one call."""

    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        own._check_input_dim(input)
        return on_all(self.run, input, *self._tensors())

    def forward_all(self, x: Tensor) -> Tensor:
        """Of the replicas' inputs, [M, ...], where this module holds the stacked tensors itself."""
        own: Any = self
        own._check_input_dim(x[0])
        return self.run(x, *self._tensors())

    def _tensors(self) -> tuple[Any, ...]:
        own: Any = self
        return own.weight, own.bias, own.running_mean, own.running_var, own.num_batches_tracked

    def run(self, x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, count: Any) -> Tensor:
        """With the tensors of all replicas."""
        own: Any = self
        replicas, batch, channels = x.shape[:3]
        side_by_side = x.transpose(0, 1).reshape(batch, replicas * channels, *x.shape[3:])
        flat_weight, flat_bias = (None if tensor is None else tensor.reshape(-1) for tensor in (weight, bias))
        means, variances = (None if tensor is None else tensor.view(-1) for tensor in (mean, variance))
        if own.training and count is not None:
            count.add_(1)
        use_batch, momentum = own.training or mean is None, own.momentum or 0.0
        y = F.batch_norm(side_by_side, means, variances, flat_weight, flat_bias, use_batch, momentum, own.eps)
        return y.reshape(batch, replicas, channels, *x.shape[3:]).transpose(0, 1)


class _Norm1d(StackedNorm, nn.BatchNorm1d): ...


class _Norm2d(StackedNorm, nn.BatchNorm2d): ...


class _Norm3d(StackedNorm, nn.BatchNorm3d): ...


_NORMS: dict[type, type] = {nn.BatchNorm1d: _Norm1d, nn.BatchNorm2d: _Norm2d, nn.BatchNorm3d: _Norm3d}
_DROPOUTS: dict[type, int | None] = {nn.Dropout: None, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}


def stacked_copy(model: nn.Module, seeds: Sequence[int], device: torch.device) -> tuple[nn.Module, Draws]:
    """A copy of the model for a program of all replicas, and what draws in it; its own tensors are never used, only its
    shape: every call puts the stacked ones in their place."""
    draws = Draws(seed_keys(seeds, device=device), torch.zeros(1, dtype=torch.int64, device=device))
    skeleton = copy.deepcopy(model).to(device)
    stack_modules_(skeleton, draws)
    return skeleton, draws


def stack_modules_(model: nn.Module, draws: Draws) -> None:
    """Give the modules of a model (a copy of ours) their stacked forms; a subclass of yours is left to vmap."""
    for path, module in model.named_modules():
        kind = type(module)
        if kind is nn.Linear:
            module.__class__ = StackedLinear
        elif isinstance(module, Pointwise) and kind.forward is Pointwise.forward and not module.drawn:
            module.__class__ = type(f"Stacked{kind.__name__}", (StackedPointwise, kind), {})
        elif isinstance(module, SQUAF) and kind.forward is SQUAF.forward:
            _refuse_general_grid(module, path)
            layer: Any = module
            layer.__class__ = type(f"Stacked{kind.__name__}", (StackedSquaf, kind), {"draws": draws, "path": path})
        elif isinstance(module, OneVector) and kind.forward is OneVector.forward:
            module.__class__ = type(f"Stacked{kind.__name__}", (StackedVector, kind), {})
        elif kind in _NORMS:
            if getattr(module, "momentum", None) is None and getattr(module, "track_running_stats", False):
                raise InputError(
                    f"{path!r} is a {kind.__name__} with momentum=None, whose cumulative average cannot be kept in one "
                    "program of all replicas; give it a momentum, such as 0.1."
                )
            module.__class__ = _NORMS[kind]
        elif kind in _DROPOUTS:
            kept: Any = module
            kept.__class__ = StackedDropout
            kept.draws, kept.path, kept.kept_dims = draws, path, _DROPOUTS[kind]


def alone_modules_(model: nn.Module, draws: Draws) -> None:
    """Give what draws random numbers in the model of one replica the draws that it has among others."""
    for path, module in model.named_modules():
        kind, layer = type(module), module
        if kind in _DROPOUTS:
            kept: Any = layer
            kept.__class__ = AloneDropout
            draws.know(path)
            kept.draws, kept.path, kept.kept_dims = draws, path, _DROPOUTS[kind]
        elif isinstance(module, SQUAFP) and kind.forward is SQUAF.forward:
            _refuse_general_grid(module, path)
            draws.know(path)
            sampled: Any = layer
            # One class for all replicas: the compiler takes another for other code.
            sampled.__class__ = _alone_class(kind)
            sampled.draws, sampled.path = draws, path


@functools.cache
def _alone_class(kind: type) -> type:
    return type(f"Alone{kind.__name__}", (AloneSquaf, kind), {})


def _refuse_general_grid(module: SQUAF, path: str) -> None:
    if isinstance(module, SQUAFP) and module.k is None:
        raise InputError(
            f"{path!r} is a SQUAF-P on a general grid, whose draws cannot be keyed by replica; use a uniform "
            "grid (k= and q=), or train these models one by one."
        )
