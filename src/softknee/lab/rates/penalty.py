r"""The mean rate of a network's SQUAF layers by the kernels of SQUAF's own gradients.

    p_i = mean_l P(y_i | x[l])       is the slope of mean_l phi(x[l]) by z_i, as phi = sum_i z_i P(y_i | x)
    dR/dx, dR/dq, dR/dalpha          are the gradients of mean_l phi(x[l]) with dR/dp_i in the place of z_i

so that both passes are calls of `softknee::squaf_backward`, which on a GPU costs little more than reading x. It is
what `sk.nn.RatePenalty` gives, which works for every form of SQUAF; this is for long trainings with one table for each
layer on a uniform grid.

Reference: Soft quantization activation functions, equation 12.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...kernels.squaf.layout import BY_ALPHA, BY_Q, BY_X, BY_Z
from ...kernels.squaf.marginal import entropy_in_bits
from ...nn.squaf import SQUAF


class QuickRate:
    """The rate R of the last forward pass of a model, in bits per activation; a call forgets that pass.

    >>> import softknee as sk
    >>> net = nn.Sequential(nn.Linear(2, 8), sk.nn.SQUAF(k=4, q=0.5), nn.Linear(8, 1))
    >>> rate = QuickRate(net)
    >>> loss = net(torch.randn(16, 2)).square().mean() + 0.002 * rate()
    >>> loss.backward(); rate.close()
    """

    def __init__(self, model: nn.Module) -> None:
        layers = [one for one in model.modules() if isinstance(one, SQUAF)]
        if not layers:
            raise InputError(f"{type(model).__name__} has no SQUAF layer, and only these have a rate.")
        for one in layers:
            if one.k is None or one.granularity.per != "layer":
                raise InputError(
                    f"{one.title}: the quick rate is for layers with one table on a uniform grid; take "
                    "sk.nn.RatePenalty for others."
                )
        self._seen: list[tuple[Tensor, int]] = []

        # A function, which a copy of the model shares: a bound method would take this object along.
        def note(module: Any, given: tuple[Tensor, ...]) -> None:
            if torch.is_grad_enabled():
                self._seen.append((marginal(module, given[0]), given[0].numel()))

        self._handles = [one.register_forward_pre_hook(note) for one in layers]

    def __call__(self) -> Tensor:
        seen, self._seen = self._seen, []
        if not seen:
            raise InputError("No forward pass with gradient reached a SQUAF layer since the last call.")
        total = sum(count for _, count in seen)
        return torch.stack([entropy_in_bits(p) * (count / total) for p, count in seen]).sum()

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._seen = [], []


def marginal(module: SQUAF, x: Tensor) -> Tensor:
    """How often the layer takes each point of its grid on x, differentiable by x, q and alpha."""
    q, alpha = (module.effective(p).reshape(1) for p in module.params if p.name in ("q", "alpha"))
    found: Any = _Marginal.apply(x, q, alpha, module.points, module.window or 0, module.weights == "laplacian")
    return found


class _Marginal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool) -> Tensor:
        ctx.save_for_backward(x, q, alpha)
        ctx.how = window, laplacian
        nothing = torch.zeros(1, points, dtype=q.dtype, device=x.device)
        return _gradients(torch.ones_like(x), x, q, alpha, nothing, *ctx.how, BY_Z)[3].reshape(-1) / x.numel()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        x, q, alpha = ctx.saved_tensors
        by_x, by_q, by_alpha = ctx.needs_input_grad[:3]
        wanted = BY_X * by_x | BY_Q * by_q | BY_ALPHA * by_alpha
        slopes = (outer[0] / x.numel()).reshape(1, -1)
        found = _gradients(torch.ones_like(x), x, q, alpha, slopes, *ctx.how, wanted)
        each = zip(found[:3], (by_x, by_q, by_alpha), strict=True)
        return *(one if asked else None for one, asked in each), None, None, None


_gradients: Any = torch.ops.softknee.squaf_backward
