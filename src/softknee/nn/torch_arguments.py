"""The arguments of torch's modules as arguments of ours: one table per class says what each of them is called here.

    LeakyReLU: {"negative_slope": "slope", "inplace": "inplace"}      # in torch's order, so that LeakyReLU(0.2) works

A value of the table is the name of an argument of ours, or a function that makes several of them from the number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ParameterError
from ..spec.param import read_number

Table = Mapping[str, str | Callable[[Any], Mapping[str, Any]]]

# What Pointwise takes beside the parameters, with its defaults.
OPTIONS: Mapping[str, Any] = {"per": "layer", "size": None, "dim": 1, "inplace": False, "device": None, "dtype": None}


def translate(
    title: str, table: Table, positional: Sequence[Any], options: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options and the parameters' values, with torch's arguments among them under our names."""
    if len(positional) > len(table):
        most = f"at most {len(table)} arguments without a name ({', '.join(table)})"
        raise ParameterError(f"{title} takes {most}, and {len(positional)} were given.")
    given = dict(zip(table, positional, strict=False))
    options, left = dict(options), dict(values)
    for name in table:
        if name in left and table[name] != name:
            if name in given:
                raise ParameterError(f"{title}: {name} was given twice, by its place and by its name.")
            given[name] = left.pop(name)
    for name, value in given.items():
        ours = table[name]
        for target, number in ({ours: value} if isinstance(ours, str) else ours(value)).items():
            twice = options[target] != OPTIONS[target] if target in OPTIONS else target in left
            if twice:
                also = f", which {target} says too" if target != name else ""
                raise ParameterError(f"{title}: {name} was given twice{also}; leave one of them out.")
            (options if target in OPTIONS else left)[target] = number
    return options, left


def channels(count: Any) -> Mapping[str, Any]:
    """torch's num_parameters: one number for the layer, or one per channel of dimension 1."""
    return {} if count == 1 and not isinstance(count, bool) else {"per": "channel", "size": count}


def linear_from(threshold: Any) -> Mapping[str, Any]:
    """torch's softplus is x from a threshold on, which only a low threshold shows; ours is right there, too."""
    number = read_number("softplus", "threshold", threshold)
    if not number >= LEAST_THRESHOLD:
        raise ParameterError(
            f"softplus: threshold={number:g} would make the function jump by {math.log1p(math.exp(-number)):.2g}/beta "
            f"where beta x = {number:g}. softknee computes softplus itself on the whole line; leave threshold out, or "
            f"give {LEAST_THRESHOLD:g} or more, where torch's is the same to six digits."
        )
    return {}


LEAST_THRESHOLD = 15.0


def squared(b: Any) -> Mapping[str, Any]:
    """Keras's b of squareplus is the square of our delta."""
    number = read_number("squareplus", "b", b)
    if not 0 < number < math.inf:
        raise ParameterError(f"squareplus: b must be a finite number above 0, and {number!r} was given.")
    return {"delta": math.sqrt(number)}
