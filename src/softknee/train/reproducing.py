"""Reproducibility as a training aim: an ensemble learns the widths of activations by how alike its models predict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..devices import need_device
from ..errors import InputError, ParameterError, did_you_mean, require_choice, require_number
from ..nn.parameters import Held, Parameterised
from ..spec.constraints import NARROWEST, WIDEST, AtLeastOne, Positive
from ..surgery.modules import activation_modules, eval_mode
from .arguments import read_examples, steps_of_epoch
from .losses import Loss, read_loss
from .many import StackedModels
from .optimizers import StackedOptimizer, rate_dtype
from .program import losses_of, outputs
from .replicas import Replicas
from .schedules import Schedule, read_table
from .stacked_modules import StackedDropout, stacked_copy
from .stacking import Stack

KINDS = ("probabilities", "log_odds", "outputs")


def dissimilarity(outputs: Tensor, *, of: str = "probabilities") -> Tensor:
    """The mean squared distance of M models from their mean, one number.

    Args:
        outputs: of all models on the same examples, [M, n, L]: the logits of L labels; [M, n] or [M, n, 1]: the logit
            of the second of two labels.
        of: "probabilities", "log_odds", or "outputs" as they are.

    >>> import torch
    >>> from softknee.train import dissimilarity
    >>> logits = torch.tensor([[[0.0, 0.0]], [[0.0, 2.0]]])
    >>> p, q = logits.softmax(2)
    >>> torch.allclose(dissimilarity(logits), (p - q).square().sum() / 4)
    True
    >>> dissimilarity(logits, of="log_odds")  # log-odds of 0 and 0 against -2 and 2
    tensor(2.)
    """
    require_choice("dissimilarity", "of", of, KINDS)
    if outputs.dim() < 2 or not outputs.is_floating_point() or outputs.numel() == 0:
        raise InputError(
            "The outputs to compare must be of shape [M, n] or [M, n, L], models first, and floating point; they are "
            f"{outputs.dtype} of shape {tuple(outputs.shape)}."
        )
    scores = scores_of(outputs, of)
    return (scores - scores.mean(0, keepdim=True)).square().flatten(2).sum(2).mean()


def scores_of(outputs: Tensor, of: str) -> Tensor:
    """What is compared, [M, n, L]."""
    if of == "outputs":
        return outputs if outputs.dim() > 2 else outputs.unsqueeze(2)
    if outputs.dim() > 3:
        raise InputError(
            f"The outputs have shape {tuple(outputs.shape)}, and labels are compared along the third of three "
            "dimensions; reshape the output of the model to [examples, labels], or compare of='outputs'."
        )
    if outputs.dim() == 2 or outputs.shape[2] == 1:
        logit = outputs.reshape(*outputs.shape[:2], 1)
        odds = torch.cat([-logit, logit], dim=2)
        return odds if of == "log_odds" else odds.sigmoid()
    return log_odds(outputs) if of == "log_odds" else outputs.softmax(dim=2)


def log_odds(logits: Tensor) -> Tensor:
    """log P(l) - log(1 - P(l)) along the last dimension, also where a probability is 1 to rounding.

    Of the most probable label it is its logit less the log-sum-exp of the others; of any other label P is at most 1/2,
    and log(1 - P) is harmless.
    """
    top = F.one_hot(logits.argmax(-1), logits.shape[-1]).bool()
    others = logits.masked_fill(top, -torch.inf).logsumexp(-1, keepdim=True)
    log_p = logits.log_softmax(-1)
    # Under the mask the branch is not used, but its gradient must be a number: 0 times infinity is none.
    rest = log_p - torch.log1p(-torch.where(top, -1.0, log_p).exp())
    return torch.where(top, logits - others, rest)


@dataclass(frozen=True)
class Width:
    """One learned parameter of one activation. `narrows`: it hardens as it grows (1), as it falls (-1), or neither."""

    key: str
    family: tuple[str, str]
    param: Held
    narrows: int
    start: Tensor


class Widths:
    """Every learned width of a model by "path.name" (the name of its buffer), in order of depth."""

    def __init__(
        self, model: nn.Module, *, learn: str | Iterable[str] | None, wider_first: bool, device: torch.device
    ) -> None:
        self.all = {width.key: width for width in find_widths(model, learn)}
        self.anchors: dict[str, Tensor] = {}
        self.raw: dict[str, Tensor] = {}
        for key, width in self.all.items():
            start = width.start.to(device)
            positive = isinstance(width.param.constraint, Positive)
            self.anchors[key] = start.clone() if positive else width.param.constraint.anchor(start)
            self.raw[key] = torch.zeros_like(start) if positive else width.param.constraint.raw(start)
        self.orders = self._orders() if wider_first else []
        self.order_()

    def values(self, raw: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The widths, differentiable in the raw values."""
        widths = {}
        for key, value in (self.raw if raw is None else raw).items():
            constraint, anchor = self.all[key].param.constraint, self.anchors[key]
            if isinstance(constraint, Positive):
                widths[key] = (anchor * value.exp()).clamp(NARROWEST, WIDEST)
            else:
                widths[key] = constraint.lift(value, anchor) if constraint.lifted else value
        return widths

    @torch.no_grad()
    def order_(self) -> None:
        """Move the raw values to the nearest ones in which no activation is wider than one before it."""
        for keys in self.orders:
            sign = -self.all[keys[0]].narrows
            now = [self._place(key) for key in keys]
            for key, old, new in zip(keys, now, falling([sign * place for place in now]), strict=True):
                if sign * new != old:  # what is in order keeps its bits
                    self.raw[key].copy_(torch.as_tensor(self._raw_at(key, sign * new)))

    def _place(self, key: str) -> float:
        """A number that grows with the parameter, comparable between activations of a family."""
        raw, anchor = self.raw[key].double(), self.anchors[key].double()
        positive = isinstance(self.all[key].param.constraint, Positive)
        return float(raw + anchor.log() if positive else raw / anchor)

    def _raw_at(self, key: str, place: float) -> float:
        anchor = float(self.anchors[key].double())
        return place - math.log(anchor) if isinstance(self.all[key].param.constraint, Positive) else place * anchor

    def _orders(self) -> list[list[str]]:
        families: dict[tuple[str, str], list[str]] = {}
        for key, width in self.all.items():
            if width.narrows and isinstance(width.param.constraint, Positive | AtLeastOne):
                if width.start.numel() != 1:
                    raise ParameterError(
                        f"wider_first compares one width for each activation, and {key!r} has {width.start.numel()}; "
                        "build the activations with one value per layer, or leave wider_first out."
                    )
                families.setdefault(width.family, []).append(key)
        orders = [keys for keys in families.values() if len(keys) > 1]
        if not orders:
            raise ParameterError("wider_first orders the widths of equal activations by depth, and no two are there.")
        return orders


def find_widths(model: nn.Module, learn: str | Iterable[str] | None) -> list[Width]:
    """The parameters of these names in every activation that has them; the knob of each for None."""
    modules = activation_modules(model)
    names = None if learn is None else [learn] if isinstance(learn, str) else list(learn)
    widths = [
        _width(path, module, p)
        for path, module in modules.items()
        for p in module.params
        if p.name in (_knobs(module) if names is None else names)
    ]
    known = sorted({p.name for module in modules.values() for p in module.params})
    missing = [name for name in names or () if name not in known]
    if missing or not widths:
        what = f"a parameter {missing[0]!r}" if missing else "a width to learn"
        near = did_you_mean(missing[0], known) if missing else ""
        has = f"parameters {', '.join(known)}" if known else "no parameter"
        raise ParameterError(f"No activation of {type(model).__name__} has {what}; its activations have {has}.{near}")
    return widths


def _knobs(module: Parameterised) -> Sequence[str]:
    return getattr(getattr(module, "definition", None), "knobs", ())


def _width(path: str, module: Parameterised, p: Held) -> Width:
    key = f"{path}.{p.name}" if path else p.name
    if p.name in module.learned:
        raise InputError(
            f"{key!r} is learned by the model itself; build the activation with {p.name} fixed (without learn=), so "
            "that the ensemble can learn it, and models retrained with what it found keep it."
        )
    start = module.effective(p).detach().clone()
    for value in start.double().flatten().tolist():
        if not p.constraint.allows_learned(value):
            raise ParameterError(f"To be learned, {key} must start at {p.constraint.learned_words}, not {value!r}.")
    narrows = 0
    if p.name in _knobs(module):
        definition = getattr(module, "definition", None)
        narrows = -1 if getattr(definition, "toward", 0.0) == 0 else 1
    return Width(key, (module.title, p.name), p, narrows, start)


def falling(values: Sequence[float]) -> list[float]:
    """The nearest non-increasing sequence, in least squares: neighbours in the wrong order are pooled into their mean.

    >>> falling([3.0, 1.0, 2.0, 0.0])
    [3.0, 1.5, 1.5, 0.0]
    """
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while blocks and blocks[-1][0] < mean:
            before, size = blocks.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]


def widths_by_depth(model: nn.Module, *, first: float, last: float, name: str | None = None) -> dict[str, float]:
    """Widths that go from `first` at the input to `last` at the output by equal factors: a start, or fixed ones.

    Args:
        model: with softknee activations, in order of depth.
        first, last: values of the parameter, above 0; a single activation gets `first`.
        name: of the parameter; left out, the knob of each activation.

    The keys are those of the knobs of `sk.train.Replicas`, which takes a value for each replica.

    >>> import softknee as sk, torch
    >>> act, linear = sk.nn.SmeLU, torch.nn.Linear
    >>> net = torch.nn.Sequential(linear(2, 8), act(), linear(8, 8), act(), linear(8, 8), act(), linear(8, 2))
    >>> sk.train.widths_by_depth(net, first=2.0, last=0.5)
    {'1.beta': 2.0, '3.beta': 1.0, '5.beta': 0.5}
    """
    require_number("widths_by_depth", "first", first)
    require_number("widths_by_depth", "last", last)
    keys = [width.key for width in find_widths(model, name)]
    depths = list(dict.fromkeys(key.rpartition(".")[0] for key in keys))
    place = {path: index / max(1, len(depths) - 1) for index, path in enumerate(depths)}
    return {key: float(first * (last / first) ** place[key.rpartition(".")[0]]) for key in keys}


OBJECTIVES = ("separate", "combined", "joint")


class Ensemble(StackedModels):
    r"""Models with weights of their own and widths in common: the task trains the weights, likeness the widths.

    With L_m the task loss of model m and D the `dissimilarity` of the predictions on a common batch, each step goes
    down the gradients of

        objective     weights of model m    widths
        "separate"    L_m                   weight * D                         (appendix B of the SmeLU paper)
        "combined"    L_m                   mean_m L_m + weight * D            (accuracy and reproducibility, summed)
        "joint"       L_m + M weight * D    mean_m L_m + weight * D            (co-distillation that learns widths, too)

    so that in the first neither loss touches the other group. In the last both follow J = mean_m L_m + weight * D;
    the factor M gives a model's own loss the weight it has when it is trained alone. The widths found are then fixed,
    and fresh models are trained with them: `fresh`.

    Nothing in D says when to stop: wider activations are nearer to linear ones, and linear models agree. How far to go
    is for `weight`, `width_lr` and the number of epochs, and for the accuracy of the retrained models to say.

    Args:
        make_model: as for `Replicas`; the widths to learn are fixed in it (built without learn=).
        count: how many models; 2 to 5 will do.
        seeds: one for each.
        learn: the names of the parameters to learn, such as "beta"; left out, the knob of each activation.
        of: what D compares: "probabilities", "log_odds" or "outputs".
        weight: of D.
        objective: as above.
        wider_first: no activation may be wider than one nearer the input (see `widths`).
        share_init: all start from the weights of the first seed; they need orders of their own then, or dropout.
        share_order: all see the same batches, as one network that holds them all would. Otherwise each has its own
            order, and D is of one more forward pass, on the batch of the first.
        device: where they live.

    >>> import softknee as sk, torch
    >>> make = lambda: torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SmeLU(beta=0.1), torch.nn.Linear(8, 2))
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > x[:, 1]).long()
    >>> ensemble = sk.train.Ensemble(make, count=3)
    >>> ensemble.fit(x, y, epochs=5, batch=16, lr=0.5)
    Ensemble(count=3, objective='separate', of='probabilities', steps=20)
    >>> ensemble.learned()["1.beta"].shape, ensemble.dissimilarities.shape
    (torch.Size([1]), torch.Size([20]))
    >>> ensemble.fresh(count=2).fit(x, y, epochs=5, batch=16, lr=0.5)
    Replicas(count=2, epochs=5, steps=20)

    Reference: Shamir, Lin and Coviello, Smooth activations and reproducibility in deep networks, appendix B.
    """

    def __init__(
        self,
        make_model: Callable[..., nn.Module],
        *,
        count: int = 2,
        seeds: Iterable[int] | None = None,
        learn: str | Iterable[str] | None = None,
        of: str = "probabilities",
        weight: float = 1.0,
        objective: str = "separate",
        wider_first: bool = False,
        share_init: bool = False,
        share_order: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        starts, drawn = self._set_up(count=count, seeds=seeds, init=share_init, order=share_order, dropout=False)
        if count < 2:
            raise ParameterError("Ensemble: a single model differs from no other; count must be at least 2.")
        require_choice("Ensemble", "of", of, KINDS)
        require_choice("Ensemble", "objective", objective, OBJECTIVES)
        require_number("Ensemble", "weight", weight, zero=True)
        self.make_model, self.device = make_model, need_device(device)
        self.of, self.weight, self.objective, self.share_order = of, float(weight), objective, share_order
        self._stack = Stack(make_model, seeds=starts, knobs={}, device=self.device)
        self._widths = Widths(self._stack.template, learn=learn, wider_first=wider_first, device=self.device)
        self._refuse_other_learners()
        self._skeleton, self._draws = stacked_copy(self._stack.template, drawn, self.device)
        drops = any(isinstance(module, StackedDropout) and module.p > 0 for module in self._skeleton.modules())
        if share_init and share_order and not drops:
            raise ParameterError(
                "Ensemble: with share_init and share_order and without dropout all models stay equal, and nothing can "
                "be learned from how they differ; pass share_order=False."
            )
        names = self._stack.trainable
        # Leaves that share their memory with what the optimisers move.
        self._weights = {name: self._stack.tensors[name].detach().requires_grad_() for name in names}
        self._raw = {key: raw.detach().requires_grad_() for key, raw in self._widths.raw.items()}
        self._path: dict[str, list[Tensor]] = {
            key: [width.detach().clone()] for key, width in self._widths.values().items()
        }
        self._keep_widths()

    def fit(
        self,
        x: Tensor,
        y: Tensor,
        *,
        epochs: int,
        batch: int,
        lr: float,
        optimizer: str = "sgd",
        loss: str | Loss = "cross_entropy",
        width_lr: float = 0.02,
        width_optimizer: str = "adam",
        schedule: Schedule | None = None,
        on_epoch: Callable[[Ensemble], object] | None = None,
        **options: Any,
    ) -> Ensemble:
        """Train for some epochs more; the optimisers start anew with each call.

        Args:
            x, y, epochs, batch, loss: as in `Replicas.fit`.
            lr, optimizer, options: of the weights, as in `Replicas.fit`.
            width_lr, width_optimizer: of the widths, whose logarithm is learned: with Adam a step changes a width by
                about the share `width_lr`.
            schedule: the share of both rates as a function of progress through this call.
            on_epoch: called after each epoch with the ensemble.
        """
        x, y = read_examples(x, y, epochs=epochs, batch=batch, device=self.device)
        for name, value in (("lr", lr), ("width_lr", width_lr)):
            require_number("Ensemble", name, value, zero=True)
        groups = self._stack.groups
        movers = (
            StackedOptimizer(
                optimizer,
                [
                    ([self._stack.tensors[name] for name in names], 1.0, kind == "weights")
                    for kind, names in groups.items()
                ],
                options=options,
            ),
            StackedOptimizer(width_optimizer, [(list(self._widths.raw.values()), 1.0, False)], options={}),
        )
        per_epoch = steps_of_epoch(len(x), batch=batch, drop_last=False)
        shares = iter(read_table(schedule, first=0, count=epochs * per_epoch, total=epochs * per_epoch))
        task = read_loss(loss)
        log = torch.zeros(per_epoch, 2, self.count, dtype=next(iter(self._weights.values())).dtype, device=self.device)
        for turn, orders in self._turns(log, epochs=epochs, examples=len(x), on_epoch=on_epoch):
            chosen = orders[:, turn * batch : (turn + 1) * batch]
            share = next(shares)
            rates = torch.tensor([share * lr, share * width_lr], dtype=rate_dtype(self.device), device=self.device)
            log[turn, 0], log[turn, 1] = self._step(x, y, chosen, task, movers, rates=rates)
            if turn + 1 == per_epoch:
                self._keep_widths()
        return self

    def gradients(
        self, x: Tensor, y: Tensor, *, loss: str | Loss = "cross_entropy", common: Tensor | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a step goes down: the gradients by the weights, [M, ...] by name, and by the raw widths (log widths).

        x, y: one batch for each model, [M, n, ...]. common: the batch that D is of; left out, x holds the same batch
        for every model.
        """
        return self._gradients(x, y, read_loss(loss), common)[:2]

    def learned(self) -> dict[str, Tensor]:
        """The widths by "path.name", on the CPU."""
        return {key: width.detach().clone().cpu() for key, width in self._widths.values().items()}

    def knobs(self, count: int) -> dict[str, list[Any]]:
        """The widths as the knobs of `count` replicas."""
        return {key: [width] * count for key, width in self.learned().items()}

    def fresh(self, *, count: int, seeds: Iterable[int] | None = None, **settings: Any) -> Replicas:
        """New models with the learned widths fixed, untrained: call `fit` on them.

        seeds: by default the next ones after those of the ensemble, whose models saw the widths come about.
        settings: of `Replicas`, such as share_init.
        """
        after = max(self.seeds) + 1
        chosen = range(after, after + count) if seeds is None else seeds
        settings = {"device": self.device, **settings}
        return Replicas(self.make_model, count=count, seeds=chosen, knobs=self.knobs(count), **settings)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """The outputs of every model in eval mode, [M, N, ...]."""
        with eval_mode(self._skeleton):
            return outputs(self._skeleton, self._tensors(), x.to(self.device), draws=self._draws, shared=True)

    @property
    def dissimilarities(self) -> Tensor:
        """D before every step of the epochs so far, [steps], on the CPU."""
        return self._logged(1)[:, 0]

    @property
    def path(self) -> dict[str, Tensor]:
        """The widths at the start and after every step, [steps + 1, ...], on the CPU."""
        return {key: torch.stack(each).cpu() for key, each in self._path.items()}

    def __repr__(self) -> str:
        return f"Ensemble(count={self.count}, objective={self.objective!r}, of={self.of!r}, steps={self.step})"

    # -- one step ---------------------------------------------------------------------------------------

    def _step(
        self,
        x: Tensor,
        y: Tensor,
        chosen: Tensor,
        task: Loss,
        movers: tuple[StackedOptimizer, StackedOptimizer],
        *,
        rates: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The losses, and D, before the step."""
        self._skeleton.train()
        # One order for all is the batch that D is of; with orders of their own that is the batch of the first.
        common = None if len(chosen) == 1 else x[chosen[0]]
        chosen = chosen.expand(self.count, -1)
        weights, raw, losses, apart = self._gradients(x[chosen], y[chosen], task, common)
        movers[0].step([[weights[name] for name in names] for names in self._stack.groups.values()], rates[0])
        movers[1].step([list(raw.values())], rates[1])
        self._widths.order_()
        self._draws.step.add_(1)
        for key, width in self._widths.values().items():
            self._path[key].append(width.detach().clone())
        return losses.detach(), apart.detach()

    def _gradients(
        self, x: Tensor, y: Tensor, task: Loss, common: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Tensor]:
        tensors = self._tensors()
        predictions = outputs(self._skeleton, tensors, x, draws=self._draws)
        losses = losses_of(task, predictions, y)
        if common is not None:
            predictions = outputs(self._skeleton, tensors, common, draws=self._draws, shared=True)
        apart = dissimilarity(predictions, of=self.of)
        for_weights, for_widths = losses.sum(), self.weight * apart
        if self.objective != "separate":
            for_widths = losses.mean() + for_widths
        if self.objective == "joint":
            for_weights = self.count * for_widths
        return _grad(for_weights, self._weights, keep=True), _grad(for_widths, self._raw), losses, apart

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that the models are called with: the widths are the same tensor for each."""
        shared = self._widths.values(self._raw)
        spread = {key: width.expand(self.count, *width.shape) for key, width in shared.items()}
        return {**self._stack.tensors, **self._weights, **spread}

    @torch.no_grad()
    def _keep_widths(self) -> None:
        for key, width in self._widths.values().items():
            self._stack.tensors[key].copy_(width.expand(self.count, *width.shape))

    def _refuse_other_learners(self) -> None:
        if own := self._stack.groups.get("activations"):
            raise InputError(
                f"The model learns {own[0]!r} of an activation by the task itself; build its activations without "
                "learn= (and without PReLU), so that the ensemble alone learns their parameters."
            )
        for key in self._widths.all:
            each = self._stack.tensors[key]
            if not bool((each == each[0]).all()):
                raise InputError(f"make_model gives {key!r} another value for another seed; all models have one.")


def _grad(value: Tensor, leaves: dict[str, Tensor], *, keep: bool = False) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(value, list(leaves.values()), retain_graph=keep, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))
