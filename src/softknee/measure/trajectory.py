"""How the parameters of a model's activations move while it trains.

trace = ParameterTrace(model); trace.record(step)     # as often as wanted
trace.path("1", "beta")                               # one (step, value) after the other

`HardnessTrace` follows the knobs alone and measures their drift; here every learned parameter is followed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..errors import InputError, did_you_mean
from ..surgery.modules import activation_modules
from .inputs import check_later


@dataclass(frozen=True)
class ParameterPoint:
    """One parameter of one activation at one step: mean, lowest and highest over channels or neurons.

    A number has one entry in each of them; a table, such as SQUAF's z, one for every entry of its own.
    """

    step: float
    path: str
    activation: str
    name: str
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class ParameterTrace:
    """The parameters of the activations of a model over time; with learned=False also those that are not trained.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), sk.nn.SmeLU(beta=0.5, learn=True))
    >>> trace = sk.measure.ParameterTrace(net)
    >>> for step in range(2):
    ...     trace.record(step)
    ...     _ = net[1].set_(beta=1.5)
    >>> trace.path("1", "beta")
    [(0, 0.5), (1, 1.5)]
    """

    def __init__(self, model: nn.Module, *, learned: bool = True) -> None:
        self.model, self.learned = model, learned
        self.points: list[ParameterPoint] = []
        if not self._now(0.0):
            what = "that learns a parameter" if learned else "with a parameter"
            raise InputError(
                f"{type(model).__name__} has no softknee activation {what}, so that there is nothing to follow; put "
                f"one in first, for instance with sk.swap_(model, 'smelu', learn=True)."
            )

    def record(self, step: float) -> None:
        """Keep the parameters as they are now, under that number."""
        check_later(step, self.points[-1].step if self.points else None)
        self.points += self._now(step)

    def path(self, path: str, name: str) -> list[tuple[float, float]]:
        """The steps and means of one parameter that is a number."""
        points = [point for point in self.points if (point.path, point.name) == (path, name)]
        if not points:
            known = {f"{point.path}.{point.name}" for point in self.points}
            raise InputError(f"No parameter {path}.{name} was recorded.{did_you_mean(f'{path}.{name}', sorted(known))}")
        if len(points[0].mean) > 1:
            raise InputError(f"{path}.{name} is a table of {len(points[0].mean)} numbers; read it from `points`.")
        return [(point.step, point.mean[0]) for point in points]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each step and parameter, as a `Record` takes them."""
        return [{**vars(point)} for point in self.points]

    def _now(self, step: float) -> list[ParameterPoint]:
        points = []
        for path, module in activation_modules(self.model).items():
            for p in module.params:
                if self.learned and p.name not in module.learned:
                    continue
                values = module.effective(p).detach().double().reshape(-1, math.prod(module._tail(p.name)))
                points.append(
                    ParameterPoint(
                        step=step,
                        path=path,
                        activation=module.title,
                        name=p.name,
                        mean=tuple(values.mean(dim=0).tolist()),
                        low=tuple(values.amin(dim=0).tolist()),
                        high=tuple(values.amax(dim=0).tolist()),
                    )
                )
        return points
