"""A module from a name."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import ParameterError
from ..kernels import find
from ..spec import Activation, Rowwise, SoftTable
from . import zoo
from .baselines import Baseline, baseline_named
from .module import Pointwise
from .rowwise import RowwiseModule
from .squaf_modes import read_mode

# By its name a function is its definition: RReLU, which draws its slopes in training, is to be had as a class alone.
CLASSES: dict[str, type[Pointwise]] = {
    cls.activation: cls
    for cls in vars(zoo).values()
    if isinstance(cls, type) and cls.__dict__.get("activation") and not cls.drawn
}


def make(activation: str | Activation | SoftTable | Rowwise | Baseline, **arguments: Any) -> nn.Module:
    """The module of an activation, given by name or as a definition of your own.

    Args:
        activation: a name of `sk.names()`, the path of a file that holds a definition, or a definition.
        arguments: what the class of the module takes, above all
            its parameters by name: beta=0.5;
            learn: the parameters to train: a name, several names, or True for all (False where nothing is given);
            per: "layer" for one value of each parameter, "channel" for one per channel, "neuron" for one per element of
                the input without the batch;
            size: with per="channel" the number of channels, with per="neuron" the trailing shape of the input;
            dim: with per="channel" the input's dimension that the channels lie along (1 where nothing is given);
            device, dtype: of the parameters;
            mode, of "squaf" alone: "soft", "sampled" (SQUAF-P) or "step" (SQUAF-S).

    >>> import softknee as sk
    >>> sk.nn.make("smelu", beta=0.5, learn="beta", per="channel", size=64)
    SmeLU(beta=0.5 (learned), per='channel', size=64, dim=1)
    """
    baseline = activation if isinstance(activation, Baseline) else baseline_named(activation)
    if baseline is not None:
        return baseline.module(**arguments)
    assert not isinstance(activation, Baseline)
    definition = find(activation) if isinstance(activation, str) else activation
    if not isinstance(definition, (Activation, SoftTable, Rowwise)):
        raise ParameterError(
            f"make() takes the name of an activation or a definition, and {type(definition).__name__} was given; "
            "sk.names() lists the names."
        )
    if isinstance(definition, SoftTable):
        return read_mode(arguments.pop("mode", "soft"))(definition, **arguments)
    if isinstance(definition, Rowwise):
        return RowwiseModule(definition, **arguments)
    cls = CLASSES.get(definition.name)
    if cls is not None and definition is find(definition.name):
        return cls(**({"learn": False, **arguments}))  # the class PReLU learns, as torch's does
    return Pointwise(definition, **arguments)
