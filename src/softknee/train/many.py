"""What `Replicas` and `OneByOne` share: access to single models, and the log of the steps."""

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
            raise ParameterError(f"There are {self.count} models, from 0 to {self.count - 1}, and no model {index}.")
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
        """The gradient norm of every step so far, [steps, M]; NaN where `fit` did not record it."""
        return self._logged(1)

    @abstractmethod
    def _copy(self, index: int) -> nn.Module:
        """The model of this number, counted from 0, with tensors of its own."""

    def _logged(self, row: int) -> Tensor:
        kept = [log[:, row] if row < log.shape[1] else torch.full_like(log[:, 0], float("nan")) for log in self._logs]
        return torch.cat(kept).cpu() if kept else torch.zeros(0, self.count)


def to_probabilities(outputs: Tensor) -> Tensor:
    """Outputs [M, n, ...] through softmax, or through the sigmoid where each example has one output."""
    return outputs.sigmoid() if outputs.dim() < 3 or outputs.shape[2] == 1 else outputs.softmax(dim=2)
