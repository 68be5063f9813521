r"""The rate of a network's SQUAF activations, as a term of the loss that is made smaller.

    p_t = mean_l P(.|x_t[l])      how often layer t takes each point of its grid
    r_t = -sum_i p_ti log2 p_ti   bits per activation
    R   = sum_t N_t r_t / sum_t N_t,  N_t the elements of layer t
    loss = task + weight * R

Reference: Soft quantization activation functions, equations 11 and 12 (weights 0 to 0.006 in its figure 3).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import InputError, require_number
from ..kernels.dispatch import inside_transform
from ..kernels.squaf.marginal import entropy_in_bits, squaf_marginal
from .parameters import require_model
from .squaf import SQUAF


@dataclass(frozen=True)
class Observed:
    """What a layer did: how often it took each point (they sum to 1, no gradient), over how many elements."""

    marginal: Tensor
    elements: int

    @property
    def bits(self) -> float:
        """The rate, bits per activation."""
        return max(0.0, float(entropy_in_bits(self.marginal.double())))


def marginal_of(module: SQUAF, x: Tensor) -> Tensor:
    """How often a module takes each point of its grid on this input; differentiable, no probabilities are kept.

    >>> import softknee as sk
    >>> marginal_of(sk.nn.SQUAF(k=1, q=1.0, alpha=200.0), torch.tensor([-1.0, 0.0, 0.0, 1.0]))
    tensor([0.2500, 0.5000, 0.2500])
    """
    values: dict[str, Any] = {
        p.name: module.granularity.shaped(module.effective(p), x, module.title, tail=len(module._tail(p.name)))
        for p in module.params
        if p.name in ("q", "grid", "alpha")
    }
    return squaf_marginal(x, **values, points=module.points, window=module.window, weights=module.weights)


class RatePenalty:
    """weight times the mean rate of all SQUAF layers of a model, to be added to any loss:

        penalty = sk.nn.RatePenalty(model, weight=0.002)
        loss = task_loss(model(x), y) + penalty()

    Hooks take the marginal of each layer in every forward pass; a call returns the penalty of all passes since the last
    call, and forgets them. Passes of one layer (several batches, a module used in several places) are one layer with
    more elements. `penalty.observed` then holds what the last call saw, and `penalty.close()` takes the hooks away.

    Gradient and mode: passes with and without gradient (validation) are kept apart, and a call takes those of its own
    kind; so a validation between two steps does not enter the next step's loss. Train or eval mode makes no difference.

    Activation checkpointing: with use_reentrant=False a layer that is computed again in the backward pass counts once.
    With use_reentrant=True the first pass has no gradient to give, and the call says so with an error.

    DDP: each process takes the rate of its own part of the batch, and DDP averages the gradients. That mean of
    entropies is at most the entropy of the whole batch, and close to it where each part has many elements.

    torch.compile: make the penalty before the compiled model first runs. Each SQUAF layer then breaks the graph in two
    (fullgraph=True is refused by torch); the numbers are the same.

    Copies of the model (an average of weights, a saved model) are not watched.

    >>> import softknee as sk
    >>> net = nn.Sequential(nn.Linear(2, 8), sk.nn.SQUAF(k=4, q=0.5), nn.Linear(8, 1))
    >>> penalty = sk.nn.RatePenalty(net, weight=0.01)
    >>> loss = net(torch.randn(16, 2)).square().mean() + penalty()
    >>> loss.backward(); list(penalty.observed)
    ['1']
    >>> penalty.close()
    """

    def __init__(self, model: nn.Module, *, weight: float) -> None:
        require_model(model, "RatePenalty")
        require_number("RatePenalty", "weight", weight, zero=True)
        self.weight = weight
        self.observed: dict[str, Observed] = {}
        self._sites = {path: _Site() for path, module in model.named_modules() if isinstance(module, SQUAF)}
        if not self._sites:
            raise InputError(
                f"{type(model).__name__} has no SQUAF layer, and only these have a rate; put some in first, for "
                f"instance with sk.swap_(model, 'squaf', k=16, q=0.25, z='fit')."
            )
        self._handles = [
            model.get_submodule(path).register_forward_pre_hook(_Hook(path, site), with_kwargs=True)
            for path, site in self._sites.items()
        ]

    def __call__(self) -> Tensor:
        """weight * R of the forward passes since the last call, in bits per activation; they are forgotten."""
        with_gradient = torch.is_grad_enabled()
        marginals: dict[str, tuple[Tensor, int]] = {}
        for path, site in self._sites.items():
            if (marginal := site.marginal(with_gradient)) is not None:
                marginals[path] = marginal
            elif with_gradient and site.hidden:
                self.clear()
                raise InputError(
                    f"The SQUAF layer {path!r} ran without gradient while it was training, so that its rate cannot be "
                    "trained. With activation checkpointing, pass use_reentrant=False to torch.utils.checkpoint."
                )
        self.clear()
        if not marginals:
            kind = "with gradient" if with_gradient else "without gradient"
            raise InputError(
                f"No forward pass {kind} reached a SQUAF layer since the last call; call the model before the penalty, "
                f"and make the penalty before a compiled model first runs{'.' if self._handles else ' (it is closed).'}"
            )
        self.observed = {path: Observed(p.detach(), count) for path, (p, count) in marginals.items()}
        for path, seen in self.observed.items():
            if (module := self._sites[path].layer) is not None:
                _last[module] = seen
        everything = sum(count for _, count in marginals.values())
        home = next(iter(marginals.values()))[0].device
        parts = [(entropy_in_bits(p) * (count / everything)).to(home) for p, count in marginals.values()]
        return self.weight * torch.stack(parts).sum()

    def clear(self) -> None:
        """Forget the forward passes since the last call."""
        for site in self._sites.values():
            site.clear()

    def close(self) -> None:
        """Take the hooks away: the model is as it was before."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def last_observed(module: nn.Module) -> Observed | None:
    """What a RatePenalty saw of this module in its last call, if one did."""
    return _last.get(module)


_last: weakref.WeakKeyDictionary[nn.Module, Observed] = weakref.WeakKeyDictionary()


@dataclass
class _Site:
    """The passes of one layer since the last call, those without gradient as one sum (they may be many)."""

    passes: list[tuple[Tensor, int]] = field(default_factory=list)
    sums: Tensor | None = None
    elements: int = 0
    hidden: bool = False  # a pass without gradient in training: reentrant checkpointing, most likely
    _layer: weakref.ref[SQUAF] | None = None

    @property
    def layer(self) -> SQUAF | None:
        """The layer that ran last; sk.swap_ takes hooks along to another one."""
        return None if self._layer is None else self._layer()

    @layer.setter
    def layer(self, module: SQUAF) -> None:
        self._layer = weakref.ref(module)

    def marginal(self, with_gradient: bool) -> tuple[Tensor, int] | None:
        if not with_gradient:
            return None if self.sums is None else (self.sums / self.elements, self.elements)
        if len(self.passes) < 2:
            return self.passes[0] if self.passes else None
        total = sum(count for _, count in self.passes)
        return torch.stack([p * (count / total) for p, count in self.passes]).sum(0), total

    def add(self, p: Tensor, count: int, *, training: bool) -> None:
        if torch.is_grad_enabled():
            self.passes.append((p, count))
            return
        self.sums = p * count if self.sums is None else self.sums + p * count
        self.elements += count
        self.hidden = self.hidden or training

    def clear(self) -> None:
        self.passes, self.sums, self.elements, self.hidden = [], None, 0, False


class _Hook:
    """A forward pre-hook. A copied or unpickled one has no site and does nothing, as one whose penalty is gone."""

    def __init__(self, path: str = "", site: _Site | None = None) -> None:
        self.path, self._site = path, None if site is None else weakref.ref(site)
        # The graph of a compiled model ends before the record and begins again behind it. `disable` imports the
        # compiler, 2 to 10 s, and so is called where there is something to record, not where this file is imported.
        self._record: Any = _record if site is None else torch.compiler.disable(_record)

    @property
    def site(self) -> _Site | None:
        return None if self._site is None else self._site()

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["input"]
        if isinstance(x, Tensor):
            self._record(self, module, x)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return _Hook()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, ()


def _record(hook: _Hook, module: nn.Module, x: Tensor) -> None:
    site = hook.site
    # A layer that sk.swap_ made something else of keeps its hooks, and has no rate any more.
    if site is None or x.numel() == 0 or not isinstance(module, SQUAF):
        return
    if inside_transform():
        raise InputError(
            f"RatePenalty cannot watch {hook.path!r} inside a transform of torch.func (grad, vmap, ...); close it "
            "there, and make the rate part of the function itself, from softknee.nn.rate.marginal_of(module, x)."
        )
    p = marginal_of(module, x)
    # Inside a backward pass this is checkpointing, which computes a layer again. It counts what is saved for the
    # gradient, so the marginal is taken again as well, but it is not another pass.
    if torch._C._current_graph_task_id() == -1:
        site.add(p, x.numel(), training=module.training)
        site.layer = module
