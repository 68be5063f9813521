"""What the tests of surgery share: an input, a small network, and a picture of a model that shows any change."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

X = torch.linspace(-3, 3, 24).reshape(4, 6)


def mlp(*acts: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for act in acts for layer in (nn.Linear(6, 6), act)), nn.Linear(6, 2))


def snapshot(model: nn.Module) -> Any:
    """Everything that a failed or a dry surgery must leave alone."""
    modules = [(path, id(module), module.training, type(module)) for path, module in model.named_modules()]
    attributes = [sorted(vars(module)) for module in model.modules()]
    state = [(name, id(value), value.tolist()) for name, value in (*model.named_parameters(), *model.named_buffers())]
    return modules, attributes, state
