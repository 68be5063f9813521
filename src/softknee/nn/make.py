"""A module from a name."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError
from ..kernels import Choice, choose, find
from ..kernels.squaf import choose_path
from ..registry import resolve, with_preset
from ..spec import Activation, Rowwise, SoftTable
from . import zoo
from .baselines import Baseline
from .module import Pointwise, RowwiseModule
from .squaf import Squaf, read_mode


def explain(what: Any, x: Tensor) -> Choice:
    """Say how a module or a definition would be computed on this tensor, and why.

    >>> import softknee as sk, torch
    >>> sk.explain(sk.nn.SReLU(), torch.zeros(3)).path
    'plain'
    """
    if not isinstance(x, Tensor):
        raise InputError(f"explain() takes the tensor of the call, and {type(x).__name__} was given.")
    if isinstance(what, Pointwise):
        choice = choose(what.definition, x, what.fitted(x))
        return choice if what.save == "input" else Choice(choice.path, f"{choice.reason}; {what.saved_output()}")
    if isinstance(what, Activation):
        return choose(what, x, [torch.full((1,), p.default, device=x.device) for p in what.params])
    if isinstance(what, Squaf):
        choice = _of_table(x, uniform=what.k is not None, order=what.definition.order)
        if what.tails == "flat":
            return choice
        return Choice(choice.path, f"{choice.reason} Its linear tails are plain tensor operations around that.")
    if isinstance(what, SoftTable):
        return _of_table(x, uniform=True, order=what.order)
    if isinstance(what, (Rowwise, RowwiseModule)):
        return Choice("plain", "a function of rows runs the torch code that its author wrote")
    raise InputError(
        f"explain() takes a softknee module or a definition, and {type(what).__name__} was given; "
        f"for a whole model ask for its activation modules one by one."
    )


def _of_table(x: Tensor, *, uniform: bool, order: int) -> Choice:
    if order:
        return Choice("plain", "A derivative of its own is computed with plain tensor operations.")
    return Choice(*choose_path(x, uniform=uniform))


# By its name a function is its definition: RReLU, which draws its slopes in training, is to be had as a class alone.
CLASSES: dict[str, type[Pointwise]] = {
    cls.activation: cls
    for cls in vars(zoo).values()
    if isinstance(cls, type) and cls.__dict__.get("activation") and not cls.drawn
}


def make(
    activation: str | os.PathLike[str] | Activation | SoftTable | Rowwise | Baseline, **arguments: Any
) -> nn.Module:
    """The module of an activation, given as a text or as a definition of your own.

    Args:
        activation: a name of `sk.names()`, a name with values ("srelu(delta=0.05, learn=delta)"), the path of a file
            that holds a definition, a formula ("x * sigmoid(2 * x)"), an engine's call ("mollify(relu, box)"), or a
            definition.
        arguments: what the class of the module takes, above all
            its parameters by name: beta=0.5;
            preset: the name of values that the definition has beside its defaults: "paper" for those of its paper;
            learn: the parameters to train: a name, several names, or True for all (False where nothing is given);
            per: "layer" for one value of each parameter, "channel" for one per channel, "neuron" for one per element of
                the input without the batch;
            size: with per="channel" the number of channels, with per="neuron" the trailing shape of the input;
            dim: with per="channel" the input's dimension that the channels lie along (1 where nothing is given);
            save: what is kept for the backward pass: "input" (where nothing is given), or "output", which the next
                layer holds anyway;
            device, dtype: of the parameters;
            mode, of "squaf" alone: "soft", "sampled" (SQUAF-P) or "step" (SQUAF-S).

    >>> import softknee as sk
    >>> sk.nn.make("smelu", beta=0.5, learn="beta", per="channel", size=64)
    SmeLU(beta=0.5 (learned), per='channel', size=64, dim=1)
    >>> sk.nn.make("mollify(relu, box, width=0.5)")
    Pointwise('relu_box')
    >>> sk.nn.make("srelu"), sk.nn.make("srelu", preset="paper")
    (SReLU(delta=1), SReLU(delta=0.01))
    """
    definition, values, learn = resolve(activation)
    arguments = with_preset(definition, {**values, **({} if learn is None else {"learn": learn}), **arguments})
    if not isinstance(definition, Activation) and arguments.pop("save", "input") != "input":
        name = getattr(definition, "name", type(definition).__name__)
        raise ParameterError(
            f"{name}: save='output' needs a function of single elements that is given by a formula, and this is none. "
            "Use save='input', which is the default."
        )
    if isinstance(definition, Baseline):
        return definition.module(**arguments)
    if not isinstance(definition, (Activation, SoftTable, Rowwise)):
        raise ParameterError(
            f"make() takes the name of an activation or a definition, and {type(definition).__name__} was given; "
            "sk.names() lists the names."
        )
    if isinstance(activation, str) and isinstance(definition, Activation) and not definition.formula.free_symbols:
        raise ParameterError(
            f"The formula {activation!r} has no x: it is a constant. Give a name its values as in srelu(delta=0.05)."
        )
    if isinstance(definition, SoftTable):
        return read_mode(arguments.pop("mode", "soft"))(definition, **arguments)
    if isinstance(definition, Rowwise):
        return RowwiseModule(definition, **arguments)
    cls = CLASSES.get(definition.name)
    if cls is not None and definition is find(definition.name):
        return cls(**({"learn": False, **arguments}))  # the class PReLU learns, as torch's does
    return Pointwise(definition, **arguments)
