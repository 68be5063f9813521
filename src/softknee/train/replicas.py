"""M copies of a model trained at once, as one batched program on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ..devices import need_device
from ..errors import InputError, ParameterError
from ..nn.squaf import SQUAFP
from ..surgery.groups import LR_SCALE
from ..surgery.modules import eval_mode
from .arguments import (
    check_clip,
    read_examples,
    read_rate,
    read_shares,
    read_single,
    read_targets,
    steps_of_epoch,
    try_example,
)
from .augment import Augment
from .losses import Loss, read_loss
from .many import ManyModels, refuse_other_tensors, to_probabilities
from .optimizers import Own, StackedOptimizer, rate_dtype, read_own
from .program import BatchedGradients, Program, SeparateGradients, outputs, read_precision
from .schedules import Schedule
from .stacked_modules import stacked_copy
from .stacking import Knobs, Stack
from .streamed import Feed, Streamed

# -- progressive validation -------------------------------------------------------------------------------
#
# In a single pass each example is predicted before it is trained on (Blum et al., 1999): the outputs of a training
# step, computed before it moves anything, are predictions of unseen examples. None needs to be set aside.


def check_progressive(model: nn.Module, *, epochs: int, compiled: bool, augment: Any) -> None:
    """Refuse settings under which the outputs of a training step are no predictions of unseen examples."""
    if epochs != 1:
        raise ParameterError(f"progressive: an example is unseen only once, so epochs must be 1, not {epochs}.")
    if compiled or augment is not None:
        raise ParameterError("progressive: it works without compiled and augment alone; leave these out.")
    for path, module in model.named_modules():
        if (isinstance(module, _DropoutNd) and module.p > 0) or isinstance(module, _BatchNorm | SQUAFP):
            raise ParameterError(
                f"progressive: {path!r} ({type(module).__name__}) computes otherwise in training than in prediction, "
                "so that the outputs of a training step are no predictions; leave it out of the model."
            )


def room_for(outputs: Tensor, count: int) -> Tensor:
    """Room for the outputs of `count` examples, of the shape that `outputs` [M, n, ...] has; NaN until it is filled."""
    return outputs.new_full((outputs.shape[0], count, *outputs.shape[2:]), float("nan"))


def by_example(predictions: Tensor, order: Tensor) -> Tensor:
    """Outputs [M, n, ...] in the order of the steps, `order` [M or 1, n], in the order of the examples.

    >>> by_example(torch.tensor([[10.0, 11.0, 12.0]]), torch.tensor([[2, 0, 1]]))
    tensor([[11., 12., 10.]])
    """
    places = order.view(*order.shape, *[1] * (predictions.dim() - 2)).expand_as(predictions)
    return torch.empty_like(predictions).scatter_(1, places, predictions)


class Replicas(ManyModels):
    """Trains `count` copies of a model at once, which differ in their seeds and in parameters of your choice.

    Args:
        make_model: returns a new model, its weights drawn from torch's global generator (which is seeded for it) or
            from an argument called `seed`. Called once for each replica.
        count: how many replicas.
        seeds: one for each, all different; 0, 1, 2, ... by default. A seed decides the start, the order of the examples
            and the dropout of its replica, whatever the other replicas are. Where `knobs` make them differ, several
            replicas may have one seed.
        share_init: all start from the weights of the first seed.
        share_order: all see the examples in the order of the first seed.
        share_dropout: all have the dropout of the first seed.
        knobs: parameters of softknee activations, one value for each replica: {"beta": [...]} for every activation that
            has a beta, {"layers.1.beta": [...]} for one.
        device: where they live.

    The three settings of the SmeLU paper are the default, `share_init`, and `share_init` with `share_order`.

    >>> import softknee as sk, torch
    >>> make = lambda: torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SmeLU(), torch.nn.Linear(8, 2))
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > x[:, 1]).long()
    >>> replicas = sk.train.Replicas(make, count=3, knobs={"beta": [0.1, 0.5, 1.0]})
    >>> replicas.fit(x, y, epochs=10, batch=16, lr=0.5, momentum=0.9)
    Replicas(count=3, epochs=10, steps=40)
    >>> replicas.predict(x, probabilities=True).shape, replicas.losses.shape
    (torch.Size([3, 64, 2]), torch.Size([40, 3]))
    >>> replicas.model(2)[1]
    SmeLU(beta=1)

    Reference: Shamir, Lin, Coviello, "Smooth activations and reproducibility in deep learning" (2020).
    """

    format, title = "replicas, 3", "replicas"
    _optimizer: StackedOptimizer

    def __init__(
        self,
        make_model: Callable[..., nn.Module],
        *,
        count: int,
        seeds: Iterable[int] | None = None,
        share_init: bool = False,
        share_order: bool = False,
        share_dropout: bool = False,
        knobs: Knobs | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        starts, drawn = self._set_up(
            count=count, seeds=seeds, init=share_init, order=share_order, dropout=share_dropout, repeated=bool(knobs)
        )
        self.device = need_device(device)
        self._stack = Stack(make_model, seeds=starts, knobs=knobs or {}, device=self.device)
        self._skeleton, self._draws = stacked_copy(self._stack.template, drawn, self.device)
        self._apart: SeparateGradients | None = None  # where the last training was
        self.progressive_predictions: Tensor | None = None  # see `fit`, progressive

    def fit(
        self,
        x: Tensor | Streamed,
        y: Tensor,
        *,
        epochs: int,
        batch: int,
        lr: float | Sequence[float] | Tensor,
        optimizer: str = "sgd",
        loss: str | Loss = "cross_entropy",
        clip: float | None = None,
        augment: Augment | None = None,
        targets: Callable[[Tensor, Tensor], Tensor] | None = None,
        schedule: Schedule | None = None,
        total_epochs: int | None = None,
        drop_last: bool = False,
        shuffle: int | None = None,
        progressive: bool = False,
        gradient_norms: bool = False,
        lr_scale: float = LR_SCALE,
        activation_optimizer: str | None = None,
        activation_lr: float | None = None,
        compiled: bool = False,
        precision: str = "float32",
        on_step: Callable[[int], object] | None = None,
        on_epoch: Callable[[Replicas], object] | None = None,
        **options: Any,
    ) -> Replicas:
        """Train for some epochs more; the state of the optimiser stays while optimiser and options are the same.

        Args:
            x, y: all examples and their targets; they are kept on the device, and batches are gathered there. Images
                that no memory holds are `Streamed`: each batch is brought from the disk while the ones before are
                trained on. The training is the same to the bit; with `augment` it is given the bytes of the images.
            epochs, batch: how many passes, and how many examples a replica sees in a step.
            lr: the rate of all replicas, or one for each.
            optimizer: "sgd", "adagrad", "adam", "adamw" or "rmsprop"; `options` are those of torch.optim.
            loss: "cross_entropy", "mse", "bce_with_logits", or a function of one replica's output and target.
            clip: the largest gradient norm of a replica, as in torch.nn.utils.clip_grad_norm_.
            augment: what is done to the images of a batch, drawn from the key of each replica as dropout is; see
                `sk.train.augment.Augment`. With soft targets the loss is their cross-entropy.
            targets: from the inputs [M, n, ...] and targets of a batch, as augmented, to the targets that the loss is
                given, without gradients: the outputs of a teacher, say.
            schedule: a function from progress in [0, 1) to the share of the rate, such as `sk.train.cosine()`.
            total_epochs: the length of the whole training, which progress is a share of; default up to the end of this
                call.
            drop_last: leave out the last batch of an epoch where it is smaller.
            shuffle: within so many examples that follow one another, in each epoch anew; 1 keeps them in their order,
                and None shuffles all of them.
            progressive: keep in `progressive_predictions` what each replica predicts of an example before it is trained
                on it, [M, N, ...] in the order of the examples; for a single epoch.
            gradient_norms: keep the norm of each replica's gradient at every step, before clipping.
            lr_scale: the rate of activation parameters as a multiple; they, biases and vectors have no weight decay
                (see `sk.param_groups`).
            activation_optimizer, activation_lr: an optimiser that moves the activation parameters in the place of the
                weights', with torch's own settings and without weight decay, such as "adam" beside SGD; and its rate,
                which no schedule changes and `lr_scale` has no part in.
            compiled: for models that fill a GPU: each replica runs as a module of its own, fused by torch.compile, all
                of them beside one another in one captured step. On a CPU the modules run as they are. The result is
                that of the batched program to rounding; random numbers outside of nn.Dropout and SQUAFP come from
                torch's generator.
            precision: "bfloat16" runs compiled models under torch's autocast; weights, gradients and optimiser stay in
                float32.
            on_step, on_epoch: called after each step with its number, and after each epoch with the replicas.
        """
        if isinstance(x, Streamed):
            # The places stand in for the examples, which are as many.
            _, y = read_examples(x.places, y, epochs=epochs, batch=batch, device=self.device)
            if progressive:
                raise ParameterError("progressive: the examples must be a tensor, and these are read from a disk.")
        else:
            x, y = read_examples(x, y, epochs=epochs, batch=batch, device=self.device)
        y = read_targets(y, loss)
        if isinstance(x, Tensor) and self.step == 0 and augment is None and targets is None:
            try_example(self._stack.model(0), x, y, loss)
        per_epoch = steps_of_epoch(len(x), batch=batch, drop_last=drop_last)
        check_clip(clip)
        shares = read_shares(schedule, done=self.epoch, epochs=epochs, total_epochs=total_epochs, per_epoch=per_epoch)
        log = torch.zeros(per_epoch, 2 if gradient_norms else 1, self.count, device=self.device)
        if progressive:
            check_progressive(self._stack.template, epochs=epochs, compiled=compiled, augment=augment)
        self.progressive_predictions = None
        predictions = room_for(self.predict(x[:1]), len(x)) if progressive else None
        own = read_own(activation_optimizer, activation_lr, lr_scale=lr_scale)
        self._choose_optimizer(optimizer, options, lr_scale, own)
        orders = 1 if self.shares["order"] else self.count
        on_gpu = self.device.type == "cuda"
        with (
            Feed(x, orders=orders, batch=min(batch, len(x)), device=self.device)
            if isinstance(x, Streamed)
            else nullcontext(x)
        ) as source:
            program = Program(
                differentiate=self._differentiator(loss, compiled=compiled, precision=precision),
                tensors=self._stack.tensors,
                draws=self._draws,
                x=source,
                y=y,
                order=torch.zeros(orders, len(x), dtype=torch.int64, device=self.device),
                rates=self._rates(lr, shares),
                log=log,
                batch=batch,
                optimizer=self._optimizer,
                clip=clip,
                augment=augment,
                targets=targets,
                compiled=on_gpu and (compiled or augment is not None),
                predictions=predictions,
            )
            turns = self._turns(log, epochs=epochs, examples=len(x), window=shuffle, on_step=on_step, on_epoch=on_epoch)
            for turn, drawn in turns:
                if turn == 0:
                    program.begin_epoch(drawn)
                program.run(min(batch, len(x) - turn * batch))
                if predictions is not None and turn + 1 == per_epoch:
                    self.progressive_predictions = by_example(predictions, drawn)
        return self

    @torch.no_grad()
    def predict(self, x: Tensor | Streamed, *, probabilities: bool = False, batch: int = 1024) -> Tensor:
        """The outputs of every replica in eval mode, [M, N, ...]; with `probabilities`, through softmax (one output:
        the sigmoid)."""
        if not isinstance(x, Tensor | Streamed) or len(x.shape) == 0 or batch < 1:
            raise InputError("predict needs a tensor of examples, and a batch of at least 1.")
        with eval_mode(self._skeleton):  # predict may be called between two epochs
            on_disk = isinstance(x, Streamed)
            each = x.batches(batch, self.device) if on_disk else (part.to(self.device) for part in x.split(batch))
            result = torch.cat([self._outputs(part) for part in each], dim=1)
        return to_probabilities(result) if probabilities else result

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Resume from a state; a state of other replicas is refused, and nothing is changed."""
        super().load_state_dict(state)
        self._draws.step.fill_(self.step)
        return self

    def _outputs(self, x: Tensor) -> Tensor:
        if self._apart is not None:
            return self._apart.predict(x)
        return outputs(self._skeleton, self._stack.tensors, x, draws=self._draws, shared=True)

    def _differentiator(
        self, loss: str | Loss, *, compiled: bool, precision: str
    ) -> BatchedGradients | SeparateGradients:
        names = list(self._stack.moving.values())
        self._apart = None
        if compiled:
            self._apart = SeparateGradients(
                template=self._stack.template,
                tensors=self._stack.tensors,
                names=names,
                draws=self._draws,
                loss=read_single(loss),
                precision=precision,
                compiled=self.device.type == "cuda",
            )
            return self._apart
        if read_precision(precision) is not None:
            raise ParameterError(f"precision={precision!r} is for compiled models: pass compiled=True, too.")
        return BatchedGradients(
            skeleton=self._skeleton.train(),
            names=names,
            tensors=self._stack.tensors,
            draws=self._draws,
            loss=read_loss(loss),
        )

    def _rates(self, lr: float | Sequence[float] | Tensor, shares: Sequence[float]) -> Tensor:
        """[steps] for one rate, [steps, M] for one each."""
        rate = read_rate(lr, count=self.count)
        table = torch.tensor(shares, dtype=torch.float64).view(-1, *[1] * rate.dim()) * rate
        return table.to(self.device, rate_dtype(self.device))

    def _make_optimizer(self, name: str, options: Any, lr_scale: float, own: Own | None) -> StackedOptimizer:
        shares = {"activations": lr_scale if own is None else own}
        groups = [
            ([self._stack.tensors[name] for name in names], shares.get(group, 1.0), group == "weights")
            for group, names in self._stack.moving.items()
        ]
        return StackedOptimizer(name, groups, options=dict(options))

    def _moments(self) -> dict[str, Tensor]:
        kept = {
            f"{name}:{key}": tensor
            for names, state in zip(self._stack.moving.values(), self._optimizer.state, strict=True)
            for key, tensors in state.items()
            for name, tensor in zip(names, tensors, strict=True)
        }
        return {":age": self._optimizer.age, **kept}

    def _check_moments(self, tensors: Mapping[str, Tensor]) -> None:
        refuse_other_tensors(self._moments(), tensors, what="state is")

    def _load_moments(self, tensors: Mapping[str, Tensor]) -> None:
        for key, held in self._moments().items():
            held.copy_(tensors[key])
