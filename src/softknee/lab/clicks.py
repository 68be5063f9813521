"""The click models of the SmeLU paper (tables 1 to 3 and figure 3), which recipes name as "click_model".

Progressive validation, by which figure 3 is judged, is `training.progressive` of a recipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError, did_you_mean, require_number
from ..nn.row_norm import row_norm
from .data.criteo import BUCKETS, CATEGORIES, EMBEDDINGS, NUMBERS
from .networks import arguments_of, new_activation, whole_numbers
from .vision_networks import Factory, Place, built

HIDDEN = (2572, 1454, 1596)
COLUMNS = tuple(f"C{place}" for place in range(1, CATEGORIES + 1))
SPREAD = 0.05  # embeddings begin uniform in [-0.05, 0.05], as Keras draws them; torch's N(0, 1) is 35 times as wide


class ClickInputs(nn.Module):
    """From rows of 13 numbers and 26 buckets, as `lab.data.criteo` gives them, to the inputs of the first layer.

    Args:
        sizes: for the columns that are taken, "C1" to "C26", the size of their embedding; 0 is one-hot.
        numbers: whether the 13 numbers are inputs, too; they come first.
        spread: embeddings begin uniform in [-spread, spread].

    A bucket is a whole number in float32 (exact below 2^24; the largest is 9,780). Every embedded column has a table
    [N_k, d_k] of its own, read by index: also with a table for each of many replicas nothing as wide as N_k is made.
    Its gradient is summed in an order that does not depend on chance, on a GPU too.

    >>> inputs = ClickInputs({"C1": 3, "C6": 0}, numbers=True)
    >>> inputs.width, inputs(torch.zeros(2, 39)).shape  # 13 + 3 + 28
    (44, torch.Size([2, 44]))
    """

    def __init__(self, sizes: Mapping[str, int], *, numbers: bool = True, spread: float = SPREAD) -> None:
        super().__init__()
        self.columns = tuple((column, COLUMNS.index(column)) for column in sizes)
        self.numbers = numbers
        rows = {column: BUCKETS[place] for column, place in self.columns}
        self.tables = nn.ParameterDict(
            {
                column: nn.Parameter(torch.empty(rows[column], size).uniform_(-spread, spread))
                for column, size in sizes.items()
                if size
            }
        )
        self.width = numbers * NUMBERS + sum(size or rows[column] for column, size in sizes.items())

    def forward(self, input: Tensor) -> Tensor:
        if input.shape[-1] != NUMBERS + CATEGORIES:
            raise InputError(
                f"A click model takes rows of {NUMBERS} numbers and {CATEGORIES} buckets, as the data set 'criteo' has "
                f"them, and one of {input.shape[-1]} was given."
            )
        parts = [input[..., :NUMBERS]] if self.numbers else []
        for column, place in self.columns:
            bucket = input[..., NUMBERS + place]
            if column in self.tables:
                parts.append(self.tables[column][bucket.long()])
            else:
                every = torch.arange(BUCKETS[place], device=input.device, dtype=input.dtype)
                parts.append((bucket.unsqueeze(-1) == every).to(input.dtype))
        return torch.cat(parts, dim=-1)

    def extra_repr(self) -> str:
        return f"{len(self.columns)} categories, {len(self.tables)} of them embedded, width={self.width}"


def click_model(
    *,
    classes: int = 1,
    hidden: Sequence[int] = HIDDEN,
    embed: Mapping[str, int] | None = None,
    numbers: bool = True,
    spread: float = SPREAD,
    weight_norm: float | None = None,
    activation: Factory = nn.ReLU,
    seed: int = 0,
) -> nn.Sequential:
    """Criteo's columns, linear layers of these widths with the activation after each, and a linear output.

    Args:
        classes: how many outputs: 1 is the log-odds of a click, for the loss "bce_with_logits".
        hidden: the widths; those of tables 1 to 3 by default.
        embed: {column: size} of the categories that are taken, "C1" to "C26"; size 0 is one-hot. All 26 by default,
            with the sizes of equation 23.
        numbers: whether the 13 numbers are inputs, too.
        spread: embeddings begin uniform in [-spread, spread].
        weight_norm: the norm v that the weights into each hidden neuron are kept at (`sk.nn.row_norm`); None for none.
        activation: a function that returns a new module at each call.
        seed: what the weights are made from; torch's global random state is neither used nor changed.

    The model of tables 1 to 3 has 1042 inputs and 10,333,914 parameters:

    >>> model = click_model(hidden=(8, 8))
    >>> len(model[0].tables), model[1]
    (18, Linear(in_features=1042, out_features=8, bias=True))
    >>> online = click_model(hidden=(16, 4), embed={"C3": 3, "C4": 5}, numbers=False, weight_norm=1.0)
    >>> online(torch.zeros(2, 39)).shape, round(online[1].weight[0].norm().item(), 6)
    (torch.Size([2, 1]), 1.0)

    Reference: Shamir, Lin, Coviello, "Smooth activations and reproducibility in deep networks" (2020), section 5 and
    appendix E.
    """
    widths = whole_numbers("click_model: hidden", hidden, least=1)
    sizes = dict(zip(COLUMNS, EMBEDDINGS, strict=True)) if embed is None else _sizes(embed)
    require_number("click_model", "spread", spread)
    if not sizes and not numbers:
        raise ParameterError("click_model: without numbers and without categories there is nothing to predict from.")

    def make() -> nn.Module:
        inputs = ClickInputs(sizes, numbers=bool(numbers), spread=spread)
        layers: list[nn.Module] = [inputs]
        for wide, narrow in pairwise((inputs.width, *widths)):
            layers += [nn.Linear(wide, narrow), Place()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes))

    model: Any = built(make, activation=activation, classes=classes, seed=seed)
    if weight_norm is not None:
        row_norm(model, v=weight_norm, where=[f"{2 * place + 1}" for place in range(len(widths))])
    return model


def _sizes(embed: Any) -> dict[str, int]:
    if not isinstance(embed, Mapping):
        raise ParameterError(f"click_model: embed is {{column: size}}, such as {{C4: 64}}, and {embed!r} was given.")
    for column, size in embed.items():
        if column not in COLUMNS:
            raise ParameterError(
                f"click_model: embed names the column {column!r}, and there are C1 to C{CATEGORIES}."
                f"{did_you_mean(str(column), COLUMNS)}"
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ParameterError(
                f"click_model: the size of {column} must be a whole number above 0, or 0 for one-hot, and {size!r} was "
                "given."
            )
    return dict(sorted(embed.items(), key=lambda item: COLUMNS.index(item[0])))


def build_by_name(*, activation: str = "relu", seed: int = 0, **knobs: Any) -> nn.Module:
    """The model with an activation by its name; what is no argument of the model is a knob of the activation.

    >>> made = build_by_name(hidden=[8, 4], activation="smelu", beta=2.0, learn=True, per="channel")
    >>> made[2], made[4]
    (SmeLU(beta=2 (learned), per='channel', size=8, dim=1), SmeLU(beta=2 (learned), per='channel', size=4, dim=1))
    """
    own = {name: knobs.pop(name) for name in arguments_of(click_model) if name in knobs}
    widths: Iterator[int] = iter(own.get("hidden", HIDDEN))
    return click_model(**own, activation=lambda: new_activation(activation, knobs, channels=next(widths)), seed=seed)
