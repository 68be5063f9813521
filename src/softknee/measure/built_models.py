"""Models to measure, built on the spot with random weights: any of timm's, and a few kinds of transformers'.

Nothing is downloaded. A model is named by a text, "timm:resnet18" or "transformers:gpt2"; `config` changes what it is
built with ("depth=2" of a timm model, "n_layer=2" of GPT-2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, MissingToolError, ParameterError, did_you_mean

# The kinds of transformers' models, with the class that builds each and what differs from the default configuration:
# a Llama of the default size has 6.7 billion parameters.
_SMALL = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8}
TRANSFORMERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("AutoModelForMaskedLM", {}),
    "distilbert": ("AutoModelForMaskedLM", {}),
    "gpt2": ("AutoModelForCausalLM", {"use_cache": False}),
    "llama": ("AutoModelForCausalLM", {**_SMALL, "num_key_value_heads": 8, "use_cache": False}),
    "vit": ("AutoModelForImageClassification", {}),
}
_EXTRAS = {"timm": "vision", "transformers": "text"}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large the inputs are; None for the model's own image size."""

    batch: int
    image: int | None = None
    length: int = 128


def read_config(texts: Sequence[str]) -> dict[str, int | float]:
    """What to build with, from texts such as "depth=2"."""
    found: dict[str, int | float] = {}
    for text in texts:
        key, _, value = text.partition("=")
        number = re.fullmatch(r"\s*[+-]?[0-9]*(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*", value)
        if not key.strip().isidentifier() or number is None or not re.search("[0-9]", value):
            raise ParameterError(f"{text!r} does not say what to build with: write KEY=NUMBER, such as depth=2.")
        found[key.strip()] = float(value) if any(number.groups()) else int(value)
    return found


def build(
    name: str, shape: Shape, config: Mapping[str, Any] | None = None, *, seed: int = 0
) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model of that name, and an input of that shape as keyword arguments; the weights are drawn from the seed."""
    library, _, kind = name.partition(":")
    if library not in _EXTRAS or not kind:
        raise ParameterError(
            f"There is no model {name!r} to measure: write timm:NAME, such as timm:vit_tiny_patch16_224, or "
            f"transformers:KIND with one of {', '.join(TRANSFORMERS)}."
        )
    make = _timm if library == "timm" else _transformers
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return make(kind, shape, dict(config or {}))
        except (TypeError, ValueError, AssertionError) as error:
            if isinstance(error, ParameterError):
                raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"{name} could not be built as asked for: {reason}") from error


def _timm(kind: str, shape: Shape, config: dict[str, Any]) -> tuple[nn.Module, dict[str, Tensor]]:
    timm: Any = _library("timm")
    if not timm.is_model(kind):
        raise ParameterError(f"timm has no model {kind!r}.{did_you_mean(kind, timm.list_models())}")
    if shape.image is None:
        model = timm.create_model(kind, pretrained=False, **config)
    else:
        try:
            model = timm.create_model(kind, pretrained=False, img_size=shape.image, **config)
        except TypeError:  # a convolutional network takes any size, and knows no such argument
            model = timm.create_model(kind, pretrained=False, **config)
    channels, *size = import_module("timm.data").resolve_model_data_config(model)["input_size"]
    size = [shape.image, shape.image] if shape.image else size
    return model, {"x": torch.randn(shape.batch, channels, *size)}


def _transformers(kind: str, shape: Shape, config: dict[str, Any]) -> tuple[nn.Module, dict[str, Tensor]]:
    transformers: Any = _library("transformers")
    if kind not in TRANSFORMERS:
        raise ParameterError(
            f"transformers:{kind} is not among the kinds that can be built here, {', '.join(TRANSFORMERS)}."
            f"{did_you_mean(kind, TRANSFORMERS)}"
        )
    builder, changes = TRANSFORMERS[kind]
    asked = {**changes, **config}
    if kind == "vit" and shape.image:
        asked["image_size"] = shape.image
    settings = transformers.AutoConfig.for_model(kind, **asked)
    if strange := [key for key in config if not hasattr(type(settings)(), key)]:
        raise ParameterError(f"The configuration of transformers:{kind} has no {strange[0]!r}.")
    if kind == "vit":
        size = settings.image_size
        inputs = {"pixel_values": torch.randn(shape.batch, settings.num_channels, size, size)}
    else:
        longest = settings.max_position_embeddings
        if shape.length > longest:
            raise ParameterError(
                f"transformers:{kind} reads at most {longest} tokens, and length={shape.length} was asked."
            )
        inputs = {"input_ids": torch.randint(settings.vocab_size, (shape.batch, shape.length))}
    return getattr(transformers, builder).from_config(settings), inputs


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise MissingToolError(
            f"Models of {name} need the package {name!r}, which is not installed. Install it with: "
            f"pip install 'softknee[{_EXTRAS[name]}]'"
        ) from error
