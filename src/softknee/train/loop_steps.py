"""One step of one model of a loop: its gradient over the batch of all processes, clipped, and torch's optimiser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ParameterError
from ..surgery.groups import param_groups
from . import parallel
from .arguments import one_number, tensor_of
from .augment import Augment
from .loop_models import LoopModels
from .losses import Loss
from .optimizers import Own, make_optimizer, parts_of, read_options
from .random_keys import fold, seed_keys, site_number
from .stacked_modules import Draws


class LoopSteps:
    """What a step needs beside the models: an optimiser for each, and the keys that random numbers are drawn from."""

    def __init__(
        self, models: LoopModels, *, dropout_seeds: Sequence[int], device: torch.device, strategy: str
    ) -> None:
        self.models, self.device, self.strategy = models, device, strategy
        self._dropout_keys = fold(seed_keys(dropout_seeds), site_number("dropout"))
        self._keys = seed_keys(dropout_seeds, device=device)
        self._augment: Augment | None = None
        self.optimizers: list[torch.optim.Optimizer] = []
        self.optimizer_key: tuple[Any, ...] = ()

    def begin(self, x: Tensor, y: Tensor, judge: Loss, augment: Augment | None = None) -> None:
        """Make the models ready to be trained; x and y are a batch of examples."""
        self._augment = augment
        for model in self.models.bare:
            model.train()

        def loss_of(model: nn.Module) -> Tensor:
            images, targets = self._batch(0, x, y, torch.arange(len(x), device=self.device), step=0)
            return judge(tensor_of(model(images)), targets)

        with self.own_random_numbers():
            self.models.average_gradients(loss_of)

    def own_random_numbers(self) -> Any:
        """What is drawn inside leaves torch's generators as they were."""
        return torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else [])

    def seed_dropout(self, index: int, step: int) -> None:
        """From now on torch draws what belongs to this model and step, and with several processes to this one."""
        key = fold(self._dropout_keys[index : index + 1], step)
        if self.strategy != "none":
            key = fold(key, parallel.rank())
        torch.default_generator.manual_seed(int(key))
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):  # the seed is that of the current device
                torch.cuda.manual_seed(int(key))
        elif self.device.type != "cpu":
            getattr(torch, self.device.type).manual_seed(int(key))

    def differentiate(self, index: int, x: Tensor, y: Tensor, row: Tensor, judge: Loss, *, step: int) -> Tensor:
        """Leave the gradient of the loss over the batch `row` in the model; this process's part of that loss."""
        model = self.models.called[index]
        model.zero_grad(set_to_none=True)
        if self.strategy == "none":
            images, targets = self._batch(index, x, y, row, step=step)
            loss = one_number(judge(tensor_of(model(images)), targets))
            loss.backward()
        else:
            part = parallel.part_of(len(row))
            count = len(row[part])
            # With nothing to do a process goes along with one example that counts for nothing.
            images, targets = self._batch(index, x, y, row, step=step, part=part if count else slice(1))
            with self.models.counting(count):
                loss = one_number(judge(tensor_of(model(images)), targets)) * (count / len(row))
                (loss * parallel.world()).backward()  # both ways of spreading take the mean over the processes
        for one in self._trained(index):
            if one.grad is None:  # what the loss does not depend on has the gradient 0, as in Replicas
                one.grad = torch.zeros_like(one)
        return loss.detach()

    def _batch(
        self, index: int, x: Tensor, y: Tensor, row: Tensor, *, step: int, part: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """The examples of a part of the batch `row`, augmented as those of this model are in `Replicas`."""
        if self._augment is None:
            return x[row[part]], y[row[part]]
        # All of them, whatever the part: what is drawn depends on the place in the batch, and images are mixed.
        draws = Draws(self._keys[index : index + 1], torch.tensor([step], device=self.device))
        images, targets = self._augment(x[row].unsqueeze(0), y[row].unsqueeze(0), draws=draws)
        return images[0, part], targets[0, part]

    @torch.no_grad()
    def clip(self, index: int, clip: float | None) -> Tensor:
        """The norm of the gradient over all processes; the gradient is shortened to `clip` where it is longer."""
        gradients = [parallel.local(one.grad) for one in self._trained(index) if one.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one) for one in gradients]))
        if self.strategy == "fsdp2":
            norm = parallel.total(norm.square()).sqrt()
        if clip is not None:
            share = (clip / (norm + 1e-6)).clamp(max=1.0)
            for one in gradients:
                one.mul_(share)
        return norm

    def _trained(self, index: int) -> list[nn.Parameter]:
        return [one for group in self.optimizers[index].param_groups for one in group["params"]]

    def move(self, index: int, rate: float) -> None:
        """A step of the optimiser, with this rate of the weights."""
        _, _, lr_scale, own, _ = self.optimizer_key
        for group in self.optimizers[index].param_groups:
            if group["name"] != "activations":
                group["lr"] = rate
            elif own is None:
                group["lr"] = rate * lr_scale
        self.optimizers[index].step()

    def choose_optimizer(self, name: str, options: Mapping[str, Any], lr_scale: float, own: Own | None) -> None:
        """Go on with the optimisers where they are of this kind, and make new ones where not."""
        if not 0 <= lr_scale < math.inf:
            raise ParameterError(f"lr_scale must be a finite number of at least 0, and {lr_scale!r} was given.")
        read = read_options(name, options)
        key = (name, tuple(sorted(read.items())), float(lr_scale), own, self.models.frozen)
        if self.optimizers and key == self.optimizer_key:
            return
        new = []
        for model in self.models.bare:
            left_alone = {id(one) for n, one in model.named_parameters() if n in self.models.frozen}
            groups = param_groups(model, lr=1.0, weight_decay=read["weight_decay"], lr_scale=lr_scale)
            for group in groups:
                group["params"] = [one for one in group["params"] if id(one) not in left_alone]
            new.append(make_optimizer([group for group in groups if group["params"]], name, read, own))
        same_kind = self.optimizers and key[:4] == self.optimizer_key[:4]
        for before, after in zip(self.optimizers, new, strict=True) if same_kind else ():
            # Something was frozen meanwhile; what is kept of the others goes on.
            held = {one: kept for part in parts_of(before) for one, kept in part.state.items()}
            for part in parts_of(after):
                moved = [one for group in part.param_groups for one in group["params"]]
                part.state.update({one: held[one] for one in moved if one in held})
        self.optimizers, self.optimizer_key = new, key

    def keep_optimizer(self) -> None:
        """After something was frozen: the same optimiser over what is left, with what it keeps."""
        if self.optimizers:
            name, options, lr_scale, own, _ = self.optimizer_key
            self.choose_optimizer(name, dict(options), lr_scale, own)
