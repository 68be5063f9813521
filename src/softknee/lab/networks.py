"""Small networks with any activation: what the studies train and the deploy checks take.

Weights come from the seed alone: two activations with one seed start from the same weights. An activation that starts
at random, such as SQUAF with z="random", is drawn from the seed too, after the weights. Neither network has
normalisation. Batch statistics that were gathered under a smooth activation would change the function for a second
reason when ReLU is put in its place; and linear maps, pooling and activations are what every tool downstream takes
(ONNX, pruning, verification by Marabou).

>>> mlp((64, 16, 10), activation="srelu", delta=0.5, learn="delta")
Sequential(
  (0): Linear(in_features=64, out_features=16, bias=True)
  (1): SReLU(delta=0.5 (learned), per='layer')
  (2): Linear(in_features=16, out_features=10, bias=True)
)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

import softknee as sk

from ..errors import ParameterError, did_you_mean

# What "torch:NAME" may ask for. A plain module is what a stock network has, with nothing of softknee in it.
PLAIN: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "softplus": nn.Softplus,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}
_PREFIX = "torch:"
_DROPPED = ("input", "hidden")


def mlp(
    widths: Sequence[int] = (784, 128, 128, 10),
    *,
    activation: str = "relu",
    seed: int = 0,
    dropout: Mapping[str, float] | None = None,
    **knobs: Any,
) -> nn.Sequential:
    """Linear layers of these widths with the activation between them; takes images as rows of numbers.

    Args:
        widths: of the input, of each hidden layer, and the number of classes.
        activation: a name that softknee knows, or "torch:gelu" and the like for torch's own module.
        seed: what the weights are made from; torch's global random state is neither used nor changed.
        dropout: which share of the inputs and of each activation's outputs is dropped: {"input": 0.2, "hidden": 0.5}.
        knobs: what `sk.nn.make` takes, such as `learn="delta"` or `per="channel"` (sizes follow from the widths).
    """
    widths = whole_numbers("mlp: widths", widths, least=3)
    of_input, of_hidden = _dropped({} if dropout is None else dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linears = [nn.Linear(wide, narrow) for wide, narrow in pairwise(widths)]
        layers: list[nn.Module] = [*_dropout(of_input), linears[0]]
        for linear in linears[1:]:
            layers += [new_activation(activation, knobs, channels=linear.in_features), *_dropout(of_hidden), linear]
    return nn.Sequential(*layers)


def cnn(
    channels: Sequence[int] = (16, 32, 64),
    *,
    classes: int = 10,
    image: Sequence[int] = (1, 28, 28),
    activation: str = "relu",
    seed: int = 0,
    **knobs: Any,
) -> nn.Sequential:
    """Blocks of 3 x 3 convolution, activation and 2 x 2 maximum, then one linear layer.

    Args:
        channels: of each block; every block halves height and width.
        classes: how many outputs there are.
        image: channels, height and width of the input.
        activation, seed, knobs: as for `mlp`.

    >>> import torch
    >>> cnn((4, 8), image=(1, 8, 8), activation="torch:gelu")(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    channels = whole_numbers("cnn: channels", channels, least=1)
    inputs, height, width = whole_numbers("cnn: image", image, least=3, most=3)
    (classes,) = whole_numbers("cnn: classes", [classes], least=1)
    shrink = 2 ** len(channels)
    if min(height, width) < shrink:
        raise ParameterError(
            f"cnn: {len(channels)} blocks halve an image {len(channels)} times, and one of {height} x {width} is gone "
            f"before; give fewer channels or an image of at least {shrink} x {shrink}."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        convolutions = [nn.Conv2d(a, b, kernel_size=3, padding=1) for a, b in pairwise((inputs, *channels))]
        head = nn.Linear(channels[-1] * (height // shrink) * (width // shrink), classes)
        layers: list[nn.Module] = []
        for convolution in convolutions:
            knee = new_activation(activation, knobs, channels=convolution.out_channels)
            layers += [convolution, knee, nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), head)


def alone(*, activation: str = "relu", seed: int = 0, **knobs: Any) -> nn.Sequential:
    """The activation and nothing else, for inputs of one number: what a function can fit without any weights.

    Args:
        activation, seed, knobs: as for `mlp`.

    >>> alone(activation="squaf", k=13, q=1 / 13, learn=("z", "alpha"))
    Sequential(
      (0): SQUAF(k=13, q=0.0769231, alpha=253.5 (learned), z=0..1 (learned), per='layer', window=5)
    )
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(new_activation(activation, knobs, channels=1))


def kan(
    widths: Sequence[int] = (784, 64, 10),
    *,
    activation: str = "squaf",
    seed: int = 0,
    grid: int = 11,
    low: float = -1.0,
    high: float = 1.0,
    base: str | None = "silu",
    learn: Any = False,
    per: str = "layer",
    **values: Any,
) -> nn.Sequential:
    """KAN layers of these widths: the activation is what their edges are made of.

    Args:
        widths: of the input, of each hidden layer, and the number of outputs.
        activation: "squaf" for soft tables, or a soft ReLU whose second differences are the functions of a spline.
        seed: as for `mlp`.
        grid, low, high, base: as in `sk.nn.KANLinear`.
        learn, values: of a soft ReLU, as in `sk.nn.make`; one for each layer.

    >>> len(kan((2, 5, 1), activation="smelu", beta=0.5, learn="beta"))
    2
    """
    widths = whole_numbers("kan: widths", widths, least=2)
    if per != "layer":
        raise ParameterError(f"kan: the edges of a layer share their functions, so per must be 'layer', not {per!r}.")
    if activation == "squaf" and (values or learn):
        given = ", ".join([*values, *(["learn"] if learn else [])])
        raise ParameterError(
            f"kan: the tables of its edges are always learned and follow from grid; leave out {given}."
        )
    edge = sk.get(activation).with_defaults(**values) if values else activation
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shared: dict[str, Any] = {"edge": edge, "grid": grid, "low": low, "high": high, "base": base, "learn": learn}
        return nn.Sequential(*[sk.nn.KANLinear(n_in, n_out, **shared) for n_in, n_out in pairwise(widths)])


SMALL: dict[str, Callable[..., nn.Sequential]] = {"mlp": mlp, "cnn": cnn, "alone": alone}
OF_ROWS = ("mlp", "kan")  # these take every example as one row of numbers


def new_activation(name: str, knobs: dict[str, Any], *, channels: int) -> nn.Module:
    """A module of its own for each place."""
    if not name.startswith(_PREFIX):
        sized = {"size": channels} if knobs.get("per") == "channel" and "size" not in knobs else {}
        return sk.nn.make(name, **knobs, **sized)
    plain = name.removeprefix(_PREFIX)
    if plain not in PLAIN:
        known = ", ".join(f"{_PREFIX}{key}" for key in PLAIN)
        raise ParameterError(f"There is no plain activation {name!r}; there are {known}.{did_you_mean(plain, PLAIN)}")
    try:
        return PLAIN[plain](**knobs)
    except TypeError as error:
        raise ParameterError(
            f"torch's own {plain} does not take {', '.join(knobs)} ({error}); leave out {_PREFIX!r} for softknee's."
        ) from error


def _dropped(dropout: Mapping[str, float]) -> tuple[float, float]:
    if not isinstance(dropout, Mapping):
        raise ParameterError(f"mlp: dropout is a mapping such as {{'input': 0.2, 'hidden': 0.5}}, not {dropout!r}.")
    for name, share in dropout.items():
        if name not in _DROPPED:
            raise ParameterError(
                f"mlp: dropout has the keys {' and '.join(map(repr, _DROPPED))}, and {name!r} was given."
                f"{did_you_mean(name, _DROPPED)}"
            )
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise ParameterError(f"mlp: dropout of {name} must be a share in [0, 1), and {share!r} was given.")
    return dropout.get("input", 0.0), dropout.get("hidden", 0.0)


def _dropout(share: float) -> list[nn.Module]:
    return [nn.Dropout(share)] if share else []


def whole_numbers(what: str, numbers: Sequence[int], *, least: int, most: int | None = None) -> tuple[int, ...]:
    """The numbers as a tuple (JSON has lists), refused where one is no whole number above 0 or the count is wrong."""
    values = tuple(numbers) if isinstance(numbers, list | tuple) else ()
    fits = len(values) >= least and (most is None or len(values) <= most)
    if not fits or any(isinstance(number, bool) or not isinstance(number, int) or number < 1 for number in values):
        count = f"{least} " if most == least else f"at least {least} " if least > 1 else ""
        raise ParameterError(f"{what} must be {count}whole numbers above 0, and {numbers!r} was given.")
    return values


def arguments_of(network: Callable[..., nn.Module]) -> tuple[str, ...]:
    """What a network of the papers takes besides its activation and its seed."""
    return tuple(key for key in inspect.signature(network).parameters if key not in ("activation", "seed"))
