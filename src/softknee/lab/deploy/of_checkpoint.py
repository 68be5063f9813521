"""The deploy check of a checkpoint: the model as it was saved, and its copy with ReLU in place of what it has."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...errors import InputError
from ...nn.parameters import Parameterised
from ...surgery import relu_ize_, sites, swap_
from ..checkpoint import Checkpoint, CheckpointError, load_checkpoint
from ..splits import Split, load_split
from .check import deploy_check
from .report import DeployReport

MOST_CALIBRATION = 1000
# What is like ReLU but smooth, in modules and calls that are not softknee's own. Those have their limit written down.
_SMOOTH = ("gelu", "gelu_tanh", "silu", "swish", "mish", "softplus", "elu", "celu", "tanhexp")


def check_checkpoint(
    folder: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> DeployReport:
    """Load a checkpoint and the data of its task, put ReLU into a copy, and check both.

    Args:
        data: the folder of the data sets; the digits need none.
        options: of `deploy_check`, such as points and eps.
    """
    report("loading")
    checkpoint = load_checkpoint(folder)
    split = data_of(checkpoint, data)
    after = relu_copy(checkpoint.model, split.test_images[:2])
    return deploy_check(
        checkpoint.model,
        after,
        images=split.test_images,
        labels=split.test_labels,
        calibration=split.train_images[:MOST_CALIBRATION],
        title=f"{checkpoint.builder} on {split.name}, as saved and with ReLU",
        names=("as saved", "with ReLU"),
        report=report,
        **options,
    )


def data_of(checkpoint: Checkpoint, folder: str | os.PathLike[str] | None = None) -> Split:
    """The data set that the checkpoint's task names, in the shape that its network takes."""
    name = checkpoint.task.get("data")
    if not isinstance(name, str):
        raise CheckpointError(
            "The checkpoint does not say what data it was trained on; save it with task={'data': 'digits'} or the "
            "like, or call deploy_check with your own images."
        )
    return load_split(name, folder, flat=checkpoint.builder == "mlp")


def relu_copy(model: nn.Module, example: Tensor) -> nn.Module:
    """A copy in which plain torch modules stand for all smooth relatives of ReLU; no weight changes.

    Softknee's activations become their hard limit; torch's and others' own (GELU, SiLU, ...) become ReLU. Whatever is
    neither stays.

    >>> import torch
    >>> relu_copy(nn.Sequential(nn.Linear(2, 3), nn.GELU()), torch.zeros(2, 2))[1]
    ReLU()
    """
    found = copy.deepcopy(model)
    foreign = [
        site.path
        for site in sites(found, example)
        if site.activation in _SMOOTH and not (site.kind == "module" and _own(found.get_submodule(site.path)))
    ]
    if foreign:
        swap_(found, "relu", where=lambda site: site.path in foreign, example=example)
    if any(_own(module) for module in found.modules()):
        relu_ize_(found)
    if not any(isinstance(module, nn.ReLU) for module in found.modules()):
        raise InputError(
            f"{type(model).__name__} has no activation that ReLU could stand for; put one in with sk.swap_ first."
        )
    return found


def _own(module: nn.Module) -> bool:
    return isinstance(module, Parameterised)
