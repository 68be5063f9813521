"""Whose predictions are compared: a checkpoint, weights with the function that builds their model, or a file of them.

Nothing is unpickled: a file that only pickle reads is refused, with the line that converts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ..errors import DataError, InputError, MissingToolError, ParameterError
from ..train.arguments import tensor_of
from .checkpoint import CheckpointError, load_checkpoint
from .studies.examples import Examples, read_arrays
from .studies.own_functions import find_function, takes

_PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_SCORES = ("probabilities", "logits")


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """One side of a comparison: models that predict, or what they predicted.

    models:      as many as there are; empty where there are predictions instead.
    flat:        whether a model takes every example as one row of numbers.
    predictions: probabilities, [M, N, L], and their labels, if they were in the file.
    data:        the data set that a checkpoint was trained on, if it says so.
    """

    name: str
    models: tuple[nn.Module, ...] = ()
    flat: bool = False
    predictions: Tensor | None = None
    labels: Tensor | None = None
    data: str | None = None

    @torch.no_grad()
    def predict(self, x: Tensor, *, batch: int, device: torch.device | str) -> Tensor:
        """The probabilities of x, [M, N, L], in float64."""
        parts = (x.flatten(1) if self.flat else x).split(batch)
        found = []
        for model in self.models:
            model = model.to(device).eval()
            try:
                found.append(torch.cat([tensor_of(model(part.to(device))).cpu() for part in parts]))
            except (RuntimeError, ValueError, TypeError) as error:
                if isinstance(error, InputError):
                    raise
                line = (str(error).strip().splitlines() or ["no message"])[0]
                raise InputError(
                    f"{self.name} cannot be run on examples of shape {tuple(x.shape[1:])} ({line}). Give the data that "
                    "it was trained on."
                ) from error
        return as_probabilities(torch.stack(found))


def read_predictor(
    place: str | os.PathLike[str], *, model: str | None, arguments: Mapping[str, Any], examples: Examples | None
) -> Predictor:
    """What stands at a path.

    Args:
        model, arguments: how to build the model of a file of weights; `examples` tell it their shape and classes.
    """
    path = Path(place)
    ending = path.suffix.lower()
    if path.is_dir():
        found = load_checkpoint(path)
        data = found.task.get("data")
        return Predictor(
            name=path.name,
            models=(found.model,),
            flat=found.builder == "mlp",
            data=data if isinstance(data, str) else None,
        )
    if ending in _PICKLED:
        _refuse_pickled(path)
    if not path.is_file():
        raise DataError(f"There is no checkpoint or file of predictions '{place}'. Check the path.")
    if ending not in (".safetensors", ".npz"):
        raise DataError(
            f"'{path.name}' is no checkpoint: give the folder of one, a .safetensors file of weights or predictions, "
            "or a .npz file of predictions."
        )
    tensors = _safetensors(path) if ending == ".safetensors" else _npz(path)
    if kind := next((one for one in _SCORES if one in tensors), None):
        return _predicted(path, tensors, kind)
    if ending == ".npz":
        raise DataError(
            f"'{path.name}' has no array 'probabilities' or 'logits'; it has {', '.join(tensors) or 'none'}."
        )
    if model is None:
        raise ParameterError(
            f"'{path.name}' holds weights; say how their model is built: --model package.module:function (or, if it "
            "should hold predictions, call them 'probabilities')."
        )
    return Predictor(name=path.name, models=_built(path, tensors, model, arguments, examples))


def as_probabilities(outputs: Tensor) -> Tensor:
    """Softmax over the labels in float64; one output alone is the log-odds of the second of two labels."""
    outputs = outputs.double()
    outputs = outputs.unsqueeze(2) if outputs.dim() == 2 else outputs
    if outputs.dim() != 3:
        raise InputError(
            f"A comparison needs one row of outputs for each example; they have shape {tuple(outputs.shape)}."
        )
    return (torch.cat([torch.zeros_like(outputs), outputs], 2) if outputs.shape[2] == 1 else outputs).softmax(dim=2)


def _predicted(path: Path, tensors: Mapping[str, Tensor], kind: str) -> Predictor:
    scores, labels = tensors[kind].double(), tensors.get("labels")
    scores = scores.unsqueeze(0) if scores.dim() == 2 else scores
    if scores.dim() != 3 or 0 in scores.shape:
        raise DataError(
            f"'{path.name}': {kind} must have the shape (examples, labels) or (models, examples, labels), and they "
            f"have {tuple(tensors[kind].shape)}."
        )
    if labels is not None:
        if labels.is_floating_point() or labels.numel() != scores.shape[1]:
            raise DataError(f"'{path.name}': labels must be {scores.shape[1]} whole numbers, one for each example.")
        labels = labels.flatten().long()
    found = as_probabilities(scores) if kind == "logits" else scores
    return Predictor(name=path.name, predictions=found, labels=labels)


def _built(
    path: Path, tensors: Mapping[str, Tensor], build: str, arguments: Mapping[str, Any], examples: Examples | None
) -> tuple[nn.Module, ...]:
    """The models of the weights: one, or as many as they are stacked (as a study keeps them)."""
    function = find_function(build)
    offered = {} if examples is None else {"classes": examples.outputs, "input_shape": examples.input_shape}
    given = {**{name: value for name, value in offered.items() if takes(function, name)}, **arguments}

    def make() -> nn.Module:
        try:
            made = function(**given)
        except Exception as error:  # whatever the function does
            raise ParameterError(
                f"--model {build}: the function failed with the arguments {', '.join(given) or 'none'} "
                f"({type(error).__name__}: {error}); give others with --argument NAME=VALUE."
            ) from error
        if not isinstance(made, nn.Module):
            raise ParameterError(f"--model {build} must return a torch.nn.Module, not a {type(made).__name__}.")
        return made

    first = make()
    own = {name: one for name, one in first.state_dict().items() if isinstance(one, Tensor)}
    shapes = {name: tuple(one.shape) for name, one in tensors.items()}
    single = {name: tuple(one.shape) for name, one in own.items()}
    if shapes == single:
        first.load_state_dict(dict(tensors))
        return (first,)
    counts = {one[0] if one else 0 for one in shapes.values()}
    many = counts.pop() if len(counts) == 1 else 0
    stacked = {name: (many, *one.shape) for name, one in own.items()}
    if many and shapes == stacked:
        models = [first, *(make() for _ in range(many - 1))]
        for index, each in enumerate(models):
            each.load_state_dict({name: one[index] for name, one in tensors.items()})
        return tuple(models)
    # Of models that were stacked, the stack is no difference.
    expected = stacked if any(shapes.get(name) == shape for name, shape in stacked.items()) else single
    differs = next(name for name in (*own, *shapes) if shapes.get(name) != expected.get(name))
    raise CheckpointError(
        f"The weights in '{path.name}' do not belong to the model that {build} builds: they differ in {differs!r}, "
        f"which is {shapes.get(differs, 'not there')} in the file and "
        f"{tuple(own[differs].shape) if differs in own else 'not there'} in the model."
    )


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"'{path.name}' is read with the package 'safetensors', which is not installed. Install it with: "
            "pip install 'softknee[deploy]'"
        ) from error
    try:
        return safetensors.torch.load_file(path)
    except Exception as error:  # the library raises several kinds for what is no safetensors file
        raise DataError(f"'{path.name}' is no whole file of safetensors ({error}). Take it anew.") from error


def _npz(path: Path) -> dict[str, Tensor]:
    arrays = read_arrays(path)
    return {name: torch.from_numpy(one) for name, one in arrays.items() if one.dtype.kind in "fiub"}


def _refuse_pickled(path: Path) -> NoReturn:
    raise DataError(
        f"'{path.name}' is a pickle, which may run code when it is read, so softknee does not read it. If you trust "
        f'it, convert its weights once: python -c "import torch, safetensors.torch as s; '
        f"s.save_file(torch.load('{path.name}', weights_only=True), '{path.stem}.safetensors')\""
    )
