"""What every way to train several models has: the models one by one, and the log of its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ..errors import ParameterError


class ManyModels(ABC):
    """`count` models, numbered from 0, and for each epoch a log [steps, 1 or 2, M]: losses, gradient norms."""

    count: int
    _logs: list[Tensor]

    def model(self, index: int) -> nn.Module:
        """One of them as an ordinary model of its own; the trained one stays here."""
        if not -self.count <= index < self.count:
            raise ParameterError(f"There are {self.count} models, from 0 to {self.count - 1}; {index} is none.")
        return self._copy(index % self.count)

    def models(self) -> list[nn.Module]:
        """Every one as an ordinary model."""
        return [self.model(index) for index in range(self.count)]

    @property
    def losses(self) -> Tensor:
        """The loss of every step of the epochs so far, [steps, M], on the CPU."""
        return self._logged(0)

    @property
    def gradient_norms(self) -> Tensor:
        """The gradient norm of every step so far, [steps, M]; NaN where it was not asked for."""
        return self._logged(1)

    @abstractmethod
    def _copy(self, index: int) -> nn.Module:
        """The model of this number, counted from 0, with tensors of its own."""

    def _logged(self, row: int) -> Tensor:
        kept = [one[:, row] if row < one.shape[1] else torch.full_like(one[:, 0], float("nan")) for one in self._logs]
        return torch.cat(kept).cpu() if kept else torch.zeros(0, self.count)
