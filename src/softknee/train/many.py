"""What `Replicas`, `OneByOne` and `Ensemble` share: seeds, the loop over epochs and steps, and its log; and the first
two knobs, weights, and a state to resume from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError, require_number
from .arguments import read_seeds
from .optimizers import Own, read_options, read_own
from .program import norms
from .random_keys import order
from .stacking import Knobs, Stack

_STATE = {"format", "seeds", "shares", "frozen", "epoch", "step", "tensors", "logs", "optimizer"}


class StackedModels:
    """`count` models in a stack, numbered from 0, with how far they are trained, and for each epoch a log [steps, rows,
    M]: the losses, and what else there is for a step."""

    device: torch.device
    _stack: Stack

    def _set_up(
        self, *, count: int, seeds: Iterable[int] | None, init: bool, order: bool, dropout: bool, repeated: bool = False
    ) -> tuple[list[int], list[int]]:
        """The seeds of the starts, and those of the dropout; `repeated` allows one seed for several models."""
        self.seeds = read_seeds(type(self).__name__, count=count, seeds=seeds, repeated=repeated)
        self.count, self.shares = count, {"init": init, "order": order, "dropout": dropout}
        self.epoch = self.step = 0
        self._logs: list[Tensor] = []
        shared = self.seeds[:1] * count
        return shared if init else self.seeds, shared if dropout else self.seeds

    # -- the loop over epochs and steps ---------------------------------------------------------------------

    def _turns(
        self,
        log: Tensor,
        *,
        epochs: int,
        examples: int,
        window: int | None = None,
        on_step: Callable[[int], object] | None = None,
        on_epoch: Callable[[Any], object] | None = None,
    ) -> Iterator[tuple[int, Tensor]]:
        """For every step its turn in the epoch and the order of the examples, [M or 1, n]; the step fills its row of
        the log, and is counted when the next is asked for."""
        seeds = self.seeds[:1] if self.shares["order"] else self.seeds
        for _ in range(epochs):
            orders = order(seeds=seeds, epoch=self.epoch, length=examples, device=self.device, window=window)
            for turn in range(len(log)):
                yield turn, orders
                self.step += 1
                if on_step is not None:
                    on_step(self.step)
            self.epoch += 1
            self._logs.append(log.clone())
            if on_epoch is not None:
                on_epoch(self)

    # -- single models, and the log -------------------------------------------------------------------------

    def model(self, index: int) -> nn.Module:
        """One of them as an ordinary model of its own; the trained one stays here."""
        if not -self.count <= index < self.count:
            raise ParameterError(f"There are {self.count} models, from 0 to {self.count - 1}, and no model {index}.")
        return self._stack.model(index % self.count)

    def models(self) -> list[nn.Module]:
        """Every one as an ordinary model."""
        return [self.model(index) for index in range(self.count)]

    @property
    def losses(self) -> Tensor:
        """The loss of every step of the epochs so far, [steps, M], on the CPU."""
        return self._logged(0)

    def _logged(self, row: int) -> Tensor:
        kept = [log[:, row] if row < log.shape[1] else torch.full_like(log[:, 0], float("nan")) for log in self._logs]
        return torch.cat(kept).cpu() if kept else torch.zeros(0, self.count)


class ManyModels(StackedModels, ABC):
    """Models with an optimiser for each; the second row of their log, where there is one, are the gradient norms.

    format: of the states of this class; title: what a sentence about them calls it.
    """

    format: ClassVar[str]
    title: ClassVar[str]
    _optimizer: Any = None  # what `_make_optimizer` made
    _optimizer_key: tuple[Any, ...] = ()  # name, options, lr_scale and `Own`; empty before there is one

    @property
    def gradient_norms(self) -> Tensor:
        """The gradient norm of every step so far, [steps, M]; NaN where `fit` did not record it."""
        return self._logged(1)

    # -- knobs and weights ----------------------------------------------------------------------------------

    def weight_norms(self) -> Tensor:
        """The 2-norm of all trained parameters of each model, [M]."""
        return norms(list(self._stack.stacked(self._stack.trainable).values())).cpu()

    def knobs(self) -> dict[str, Tensor]:
        """The effective parameters of the activations by "path.name", with the models first, on the CPU."""
        return self._stack.knobs()

    def set_knobs(self, knobs: Knobs) -> Self:
        """New effective values of activation parameters, as `knobs` at construction; all or none are set."""
        self._stack.set_knobs(knobs)
        return self

    def freeze_knobs(self, knobs: str | Iterable[str] | None = None) -> Self:
        """Freeze activation parameters from the next `fit` on; `set_knobs` still moves them.

        Args:
            knobs: which, as the keys of `knobs`: "beta", "layers.1.beta"; every parameter of an activation by default.

        The optimiser keeps its state of the other parameters; a frozen one counts in no gradient norm.
        """
        frozen = self._stack.frozen | self._stack.behind(knobs)
        if frozen >= set(self._stack.trainable):
            raise ParameterError("freeze_knobs: nothing would be left to train, for the model has no other parameter.")
        kept = self._moments() if self._optimizer_key else {}
        self._stack.frozen = frozen
        if self._optimizer_key:
            self._optimizer = self._make_optimizer(*self._optimizer_key)
            self._load_moments({key: each for key, each in kept.items() if key.rpartition(":")[0] not in frozen})
        return self

    def weights(self) -> dict[str, Tensor]:
        """Copies of all parameters and buffers by name, [M, ...], where the models live; whole in every process."""
        return {name: tensor.clone() for name, tensor in self._stack.stacked().items()}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> Self:
        """Copy back a result of `weights`; one of other models is refused, and nothing is changed.

        The state of the optimiser, the counts of epochs and steps and the losses stay as they are.
        """
        refuse_other_tensors(self._stack.shapes(), weights, what="weights are")
        self._stack.load(weights)
        return self

    # -- the state ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to resume, as tensors on the CPU, numbers and text; whole in every process."""
        optimizer = None
        if self._optimizer_key:
            name, options, lr_scale, own = self._optimizer_key
            optimizer = {"name": name, "options": dict(options), "lr_scale": lr_scale}
            if own is not None:
                optimizer |= {"activation_optimizer": own.name, "activation_lr": own.rate}
            optimizer["tensors"] = {key: _copied(each) for key, each in self._moments().items()}
        return {
            "format": self.format,
            "seeds": list(self.seeds),
            "shares": dict(self.shares),
            "frozen": sorted(self._stack.frozen),
            "epoch": self.epoch,
            "step": self.step,
            "tensors": {name: _copied(tensor) for name, tensor in self._stack.stacked().items()},
            "logs": [_copied(log) for log in self._logs],
            "optimizer": optimizer,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Resume from a state; a state of other models is refused, and nothing is changed."""
        if not isinstance(state, Mapping) or not set(state) >= _STATE or state["format"] != self.format:
            raise InputError(f"This is no state of {self.title}: pass a result of state_dict(), of the same version.")
        if list(state["seeds"]) != self.seeds or dict(state["shares"]) != self.shares:
            raise InputError(
                f"The state is of models with the seeds {list(state['seeds'])} and shares {dict(state['shares'])}, and "
                f"these have {self.seeds} and {self.shares}; build them alike."
            )
        refuse_other_tensors(self._stack.shapes(), state["tensors"], what="state is")
        frozen, saved = frozenset(state["frozen"]), state["optimizer"]
        if not frozen <= set(self._stack.trainable):
            raise InputError("The state is of another model: it has frozen what is not trained here.")
        before = self._optimizer, self._optimizer_key, self._stack.frozen
        self._optimizer, self._optimizer_key, self._stack.frozen = None, (), frozen
        try:
            if saved is not None:
                own = read_own(saved.get("activation_optimizer"), saved.get("activation_lr"))
                self._choose_optimizer(saved["name"], saved["options"], saved["lr_scale"], own)
                self._check_moments(saved["tensors"])
        except Exception:
            self._optimizer, self._optimizer_key, self._stack.frozen = before
            raise
        self._stack.load(state["tensors"])
        if saved is not None:
            self._load_moments(saved["tensors"])
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
        self._logs = [log.to(self.device, copy=True) for log in state["logs"]]
        return self

    def __repr__(self) -> str:
        shared = "".join(f", share_{name}=True" for name, shares in self.shares.items() if shares)
        return f"{type(self).__name__}(count={self.count}{shared}, epochs={self.epoch}, steps={self.step})"

    # -- the optimiser --------------------------------------------------------------------------------------

    def _choose_optimizer(self, name: str, options: Mapping[str, Any], lr_scale: float, own: Own | None) -> None:
        """Keep the optimiser if it is of this kind, else make a new one."""
        require_number("fit", "lr_scale", lr_scale, zero=True)
        key = (name, tuple(sorted(read_options(name, options).items())), float(lr_scale), own)
        if key != self._optimizer_key:
            self._optimizer, self._optimizer_key = self._make_optimizer(*key), key

    @abstractmethod
    def _make_optimizer(self, name: str, options: Any, lr_scale: float, own: Own | None) -> Any:
        """A fresh one over what is not frozen; `options` are pairs of name and value, complete."""

    @abstractmethod
    def _moments(self) -> dict[str, Tensor]:
        """What the optimiser keeps, by "path of the parameter:name", with the models first."""

    @abstractmethod
    def _check_moments(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse what a fresh optimiser has no place for."""

    @abstractmethod
    def _load_moments(self, tensors: Mapping[str, Tensor]) -> None:
        """Give a fresh optimiser what another one kept."""


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def refuse_other_tensors(held: Mapping[str, Tensor], given: Mapping[str, Tensor], *, what: str) -> None:
    """Refuse tensors that differ from those held here in names, shapes or types."""
    if set(held) != set(given):
        differs = sorted(set(held) ^ set(given))
        raise InputError(f"The {what} of another model: it differs in {', '.join(map(repr, differs[:3]))}.")
    for name, tensor in held.items():
        if tensor.shape != given[name].shape or tensor.dtype != given[name].dtype:
            raise InputError(
                f"The {what} of another model: {name!r} has shape {tuple(given[name].shape)} there and "
                f"{tuple(tensor.shape)} here, or another type."
            )


def to_probabilities(outputs: Tensor) -> Tensor:
    """Outputs [M, n, ...] through softmax, or through the sigmoid where each example has one output."""
    return outputs.sigmoid() if outputs.dim() < 3 or outputs.shape[2] == 1 else outputs.softmax(dim=2)
