"""What a trial trains on: its training examples, or with augmentation the bytes of its images and what changes them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....errors import RecipeError
from ....train.augment import Augment
from ..examples import Examples
from ..trial import Trial

_AT_ONCE = 4096  # images


def training_inputs(trial: Trial, examples: Examples) -> tuple[Tensor, Augment | None]:
    """The inputs that `fit` is given, and its `augment`.

    Bytes take a quarter of the room of floats on a GPU, and black is 0 in them; they are normalised after they were
    changed. Images on a disk are bytes there, and stay there.
    """
    if examples.on_disk and trial.training.engine == "loop":
        raise RecipeError(
            f"training.engine: loop has all examples in memory, and those of {examples.name} are read from a disk. "
            "Take training.engine: compiled or replicas; or a part of them, which is in memory: --set data.limit=N."
        )
    if trial.augment is None:
        return examples.train_x, None
    if examples.image is None:
        raise RecipeError(f"augment is for images, and {examples.name} has none.")
    augment = trial.augment.augment(
        steps_of_epoch=math.ceil(len(examples.train_x) / trial.training.batch),
        classes=examples.classes,
        mean=[one / 255 for one in examples.mean],
        std=[one / 255 for one in examples.spread],
        shape=examples.image if examples.input_shape != examples.image else None,
    )
    return examples.train_x if examples.on_disk else levels(examples), augment


def levels(examples: Examples) -> Tensor:
    """The training images as bytes, in the shape that the examples have.

    >>> from softknee.lab.studies.examples import load_examples
    >>> from softknee.lab.studies.recipe import Data
    >>> found = levels(load_examples(Data(set="digits"), flat=True))  # sixteenths, as multiples of 15
    >>> found.shape, found.dtype, found.max().item(), (found % 15).max().item()
    (torch.Size([718, 64]), torch.uint8, 240, 0)
    """
    assert examples.image is not None
    x = examples.train_x
    mean, spread = (torch.tensor(one, device=x.device).view(-1, 1, 1) for one in (examples.mean, examples.spread))
    # A float32 holds (level - mean) / spread to some 1e-5 of a level: rounding gives the byte that it was made of.
    parts = [part.reshape(-1, *examples.image) * spread + mean for part in x.split(_AT_ONCE)]
    return torch.cat([one.round().clamp(0, 255).byte() for one in parts]).reshape(x.shape)
