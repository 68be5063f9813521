r"""Weights whose rows have a fixed norm: w_j is used as v w_j / ||w_j||_p.

A row is everything that comes into one output neuron: a row of a linear layer's matrix, the kernels of one output
channel of a convolution. Nothing is centred and no length is learned, so that pre-activations keep their scale while a
network trains: otherwise they grow, and a knee of a given width becomes narrower and narrower relative to them.

Reference: Shamir, Lin and Coviello, Smooth activations and reproducibility in deep networks, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from ..errors import InputError, ParameterError, did_you_mean
from .parameters import require_model

_STRAIGHT = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class UnitRows(nn.Module):
    """v w / ||w||_p for every row of a weight; a row of zeros has no direction and stays as it is.

    groups: of a transposed convolution, whose weight (in, out/groups, ...) has its outputs along dimension 1; None for
            weights whose rows lie along dimension 0.

    >>> import torch
    >>> UnitRows(v=10.0)(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[6., 8.],
            [0., 0.]])
    """

    def __init__(self, *, v: float = 1.0, p: float = 2.0, groups: int | None = None) -> None:
        super().__init__()
        self.v, self.p, self.groups = float(v), float(p), groups

    def forward(self, weight: Tensor) -> Tensor:
        if not torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage]
            _refuse_without_rows(weight)
        rows = self.rows(weight)
        if rows.numel() == 0:
            return weight
        # The result does not depend on the length of a row, so its largest entry may be divided out first, as a
        # constant: squares then neither overflow nor vanish.
        largest = rows.detach().abs().amax(dim=1, keepdim=True)
        empty = largest == 0
        # Filled, and not chosen by torch.where: the number stays an argument, and nothing is copied to a GPU.
        scaled = rows / largest.masked_fill(empty, 1.0)
        norms = torch.linalg.vector_norm(scaled.masked_fill(empty, 1.0), ord=self.p, dim=1, keepdim=True)
        return self._back(self.v * scaled / norms, weight)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What is assigned is kept as it is; its lengths are not used."""
        return weight

    def rows(self, weight: Tensor) -> Tensor:
        """The weight as a matrix with one row for each output neuron."""
        if self.groups is None:
            return weight.flatten(1)
        # (groups * in, out, ...) -> (groups * out, in, ...)
        return weight.unflatten(0, (self.groups, -1)).transpose(1, 2).flatten(0, 1).flatten(1)

    def _back(self, rows: Tensor, like: Tensor) -> Tensor:
        if self.groups is None:
            return rows.view(like.shape)
        inputs, outputs, *kernel = like.shape
        shaped = rows.view(self.groups, outputs, inputs // self.groups, *kernel)
        return shaped.transpose(1, 2).reshape(like.shape)

    def extra_repr(self) -> str:
        return f"v={self.v:g}, p={self.p:g}"


def _refuse_without_rows(weight: Tensor) -> None:
    if weight.dim() < 2:
        raise InputError(
            f"UnitRows: a weight has a dimension of rows and one or more of their elements, and a tensor of shape "
            f"{tuple(weight.shape)} was given."
        )


@dataclass(frozen=True)
class RowNorm:
    """What `row_norm` did: the paths of the layers whose rows are kept at norm v.

    `remove_()` takes it away again, and leaves the normalised weights as they are, or with keep=False those they were
    computed from, lengths and all.
    """

    paths: tuple[str, ...]
    v: float
    p: float
    layers: tuple[nn.Module, ...] = field(repr=False, compare=False)

    def remove_(self, *, keep: bool = True) -> None:
        """Make the weights plain parameters again; layers that have none of it any more are passed over."""
        for layer in self.layers:
            if _has_row_norm(layer):
                _remove(layer, keep=keep)


def row_norm(model: nn.Module, *, v: float = 1.0, p: float = 2.0, where: str | Iterable[str] | None = None) -> RowNorm:
    """Keep every row of every linear and convolution weight at p-norm v, from now on and while it trains.

    v:     the norm.
    p:     which norm: a number of at least 1, or math.inf.
    where: a pattern for the layers' paths, or several; left out, all linear layers and convolutions.

    Layers are those of torch.nn and classes derived from them; embeddings, the packed weight of MultiheadAttention and
    layers of other libraries' own kind, such as transformers' Conv1D, are left alone.

    Optimizers keep working: the parameters stay the same tensors, now called `parametrizations.weight.original`. All or
    nothing: a layer that cannot be normalised is refused with the reason before any is changed.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), sk.nn.SmeLU(), torch.nn.Linear(8, 2))
    >>> done = sk.nn.row_norm(net, v=2.0)
    >>> done.paths
    ('0', '2')
    >>> torch.allclose(net[0].weight.norm(dim=1), torch.tensor(2.0))
    True
    >>> done.remove_()
    """
    require_model(model, "row_norm")
    _check(v, p)
    kinds = (*_STRAIGHT, *_TRANSPOSED)
    layers = {path: module for path, module in model.named_modules() if isinstance(module, kinds)}
    chosen = _chosen(type(model).__name__, layers, where)
    planned = [(layer, _planned(path, layer, v=v, p=p)) for path, layer in chosen.items()]
    _refuse_ties(model, chosen)
    done: list[nn.Module] = []
    try:
        for layer, rows in planned:
            parametrize.register_parametrization(layer, "weight", rows)
            done.append(layer)
    except BaseException:
        for layer in done:
            _remove(layer, keep=False)
        raise
    return RowNorm(tuple(chosen), float(v), float(p), tuple(chosen.values()))


def _check(v: Any, p: Any) -> None:
    numbers = not any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in (v, p))
    if not numbers or not (0 < v < math.inf):
        raise ParameterError(f"row_norm: v is the norm of every row, a finite number above 0, and {v!r} was given.")
    if not p >= 1:
        raise ParameterError(f"row_norm: p is a number of at least 1 (math.inf for the largest), and {p!r} was given.")


def _chosen(title: str, layers: Mapping[str, nn.Module], where: str | Iterable[str] | None) -> dict[str, nn.Module]:
    if not layers:
        raise ParameterError(f"row_norm: {title} has no linear layer and no convolution to normalise.")
    patterns = ["*"] if where is None else [where] if isinstance(where, str) else list(where)
    chosen = {path: layer for path, layer in layers.items() if any(fnmatchcase(path, wanted) for wanted in patterns)}
    if not chosen:
        near = did_you_mean(patterns[0], layers) if patterns else ""
        first = next(iter(layers))
        raise ParameterError(
            f"row_norm: where={where!r} matches none of the {len(layers)} linear layers and convolutions of {title}, "
            f"the first of which is {first!r}.{near}"
        )
    return chosen


def _planned(path: str, layer: nn.Module, *, v: float, p: float) -> UnitRows:
    """The parametrization of one layer, or the reason why it cannot have one."""
    name = repr(path) if path else type(layer).__name__
    if parametrize.is_parametrized(layer, "weight"):
        what = "a row norm" if _has_row_norm(layer) else "another parametrization"
        raise ParameterError(
            f"row_norm: the weight of {name} has {what} already; remove it first, or leave the layer out with where=. "
            f"Nothing was changed."
        )
    weight = layer._parameters.get("weight")
    if weight is None or isinstance(weight, UninitializedParameter):
        raise ParameterError(
            f"row_norm: {name} has no weight of its own yet; run a batch through a lazy layer first, and take away "
            f"older weight norms. Nothing was changed."
        )
    if not weight.is_floating_point():
        raise ParameterError(f"row_norm: the weight of {name} is {weight.dtype}, and rows of it have no norm.")
    rows = UnitRows(v=v, p=p, groups=cast(Any, layer).groups if isinstance(layer, _TRANSPOSED) else None)
    if weight.device.type != "meta":
        matrix = rows.rows(weight.detach())
        empty = (~(matrix != 0).any(dim=1)).nonzero().flatten().tolist()
        if empty:
            more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
            raise ParameterError(
                f"row_norm: row {empty[0]}{more} of the weight of {name} is all zeros, which has no direction to be "
                f"given the norm {v:g}; initialise it anew, or leave the layer out with where=. Nothing was changed."
            )
    return rows


def _refuse_ties(model: nn.Module, chosen: Mapping[str, nn.Module]) -> None:
    """A weight that another part of the model uses as well would have two meanings, and change there on removal."""
    weights = {id(layer._parameters["weight"]): path for path, layer in chosen.items()}
    layers = {id(layer) for layer in chosen.values()}
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if id(parameter) in weights and not (id(module) in layers and name == "weight"):
                raise ParameterError(
                    f"row_norm: the weight of {weights[id(parameter)]!r} is that of {f'{path}.{name}'!r}, too, which "
                    f"would keep using it without a norm; leave the layer out with where=, or untie them. Nothing was "
                    f"changed."
                )


def _remove(layer: nn.Module, *, keep: bool) -> None:
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=keep)
    # torch registers it last; optimizers know parameters by their order, in which the weight of these layers is first.
    others = {name: layer._parameters.pop(name) for name in list(layer._parameters) if name != "weight"}
    layer._parameters.update(others)


def _has_row_norm(layer: nn.Module) -> bool:
    return parametrize.is_parametrized(layer, "weight") and any(
        isinstance(parametrization, UnitRows) for parametrization in cast(Any, layer).parametrizations.weight
    )
