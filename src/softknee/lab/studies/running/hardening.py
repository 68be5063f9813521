"""The knobs of all seeds on their way to the hard limit at once: what `sk.Hardener` does to one model.

The mathematics are the hardener's own (`surgery/hardening`): free for e_s = floor(start total) epochs, frozen, and then
before epoch e at k(e) = k(e_s) + (e - e_s)/(total - e_s) (target - k(e_s)), each seed from where its own knobs were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ....surgery.hardening import hard_module
from ....surgery.hardening.checks import free_steps
from ....surgery.hardening.schedules import read_schedule
from ....surgery.hardening.sites import HardeningSite, Knobs, choose_sites
from ....surgery.hardening.targets import by_tolerance
from ..recipe import Hardening
from .trainer import Trainer

Stacked = dict[str, Tensor]  # "path.knob" to its values, [M, ...], in float64


class StackedHardening:
    """Call `prepare(trainer, epoch, alive)` before each epoch, from 1 on.

    last_free: the last epoch in which the knobs are learned like any parameter.
    begin, targets: of each knob where it was frozen and where it ends; empty before that.
    """

    def __init__(self, trainer: Trainer, *, total: int, settings: Hardening) -> None:
        self.total, self.tolerance = total, settings.tolerance
        self.last_free = free_steps("start", settings.start, total)
        self.schedule = read_schedule("linear")
        self.begin: Stacked = {}
        self.targets: Stacked = {}
        self.names: list[str] = []
        for site in choose_sites(trainer.model(0), None):
            # What cannot be hardened or replaced is said now, and not after a quarter of the training or at its end.
            _target(site, self.tolerance)
            hard_module(site.module)
            self.names += [f"{site.path}.{knob}" if site.path else knob for knob in site.knobs]

    def prepare(self, trainer: Trainer, epoch: int, alive: Sequence[int]) -> None:
        """Set the knobs for that epoch; before the first one that is not free, freeze them."""
        if epoch <= self.last_free:
            return
        if not self.begin:
            self._freeze(trainer, alive)
        trainer.set_knobs(self.at(epoch))

    def at(self, epoch: int) -> Stacked:
        """The knobs that epoch `epoch` trains with."""
        progress = (epoch - self.last_free) / (self.total - self.last_free)
        return {name: self.schedule.between(one, self.targets[name], progress) for name, one in self.begin.items()}

    def _freeze(self, trainer: Trainer, alive: Sequence[int]) -> None:
        found: list[tuple[Knobs, Knobs]] = []
        for index in range(trainer.count):
            # A seed that diverged has no knobs to start from; it takes those of another, and nobody looks at it.
            found.append(self._of_model(trainer, index if index in alive else alive[0]))
        self.begin = {name: torch.stack([begin[name] for begin, _ in found]) for name in self.names}
        self.targets = {name: torch.stack([target[name] for _, target in found]) for name in self.names}
        trainer.freeze_knobs(self.names)

    def _of_model(self, trainer: Trainer, index: int) -> tuple[Knobs, Knobs]:
        begin: Knobs = {}
        target: Knobs = {}
        for site in choose_sites(trainer.model(index), None):
            for knobs, values in ((begin, site.now()), (target, _target(site, self.tolerance))):
                knobs.update({f"{site.path}.{knob}" if site.path else knob: one for knob, one in values.items()})
        return begin, target

    def state(self) -> dict[str, Any]:
        """What going on needs, beside the state of the trainer."""
        return {"begin": dict(self.begin), "targets": dict(self.targets)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.begin, self.targets = dict(state["begin"]), dict(state["targets"])


def _target(site: HardeningSite, tolerance: float) -> Knobs:
    now, found = site.now(), by_tolerance(site, tolerance)
    for name, value in found.items():
        site.check(name, value[value != now[name]])
    return found
