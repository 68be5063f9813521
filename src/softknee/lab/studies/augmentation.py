"""What a study does to its training images: the section `augment` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ...errors import ParameterError, RecipeError
from ...train.augment import Augment
from .fitting import later, refusal, settle

_WHEN = ("probability", "from_epoch")  # these say how often, and not what


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What is done to the images of a training batch, drawn for each seed from its own key; nothing by default.

    crop, flip, randaugment, mixup, cutmix, erasing, smoothing: as in `sk.train.augment.Augment`; `randaugment` is a
                 list of the magnitude and its standard deviation, [9, 0.5] for timm's "rand-m9-mstd0.5-inc1".
    shift:       in place of `crop`, which is the same: up to so many pixels up or down and left or right, each way as
                 often as any other; what comes in from outside is black.
    probability: that an image is cropped or shifted at all.
    from_epoch:  the first epoch, from 1, in which anything is done.

    Images are changed as bytes and normalised afterwards, so that what is outside of them is black. Validation and test
    images, and the training images that are scored at the end, are as they are.

    >>> Augmentation(shift=3, probability=0.5, from_epoch=2).words()
    'shift 3, probability 0.5, from epoch 2'
    """

    crop: int = later(0)
    flip: bool = later(False)
    randaugment: tuple[float, ...] | None = later(None)
    mixup: float = later(0.0)
    cutmix: float = later(0.0)
    erasing: float = later(0.0)
    smoothing: float = later(0.0)
    shift: int = later(0)
    probability: float = later(1.0)
    from_epoch: int = later(1)

    def __post_init__(self) -> None:
        settle(self, where="augment")
        for name in ("crop", "shift"):
            if getattr(self, name) < 0:
                raise refusal(f"augment.{name}", "a whole number of pixels, at least 0", getattr(self, name))
        if self.crop and self.shift:
            raise RecipeError("augment.crop and augment.shift are two names of one thing; give one of them.")
        if not 0 < self.probability <= 1:
            raise refusal("augment.probability", "a number above 0 and at most 1", self.probability)
        if self.probability < 1 and not self.crop and not self.shift:
            raise RecipeError("augment.probability is that of a crop or shift, and neither is asked for.")
        if self.from_epoch < 1:
            raise refusal("augment.from_epoch", "an epoch, a whole number of at least 1", self.from_epoch)
        if not any(name not in _WHEN for name in self.said()):
            raise RecipeError(
                "augment asks for nothing: leave it out, or give it a 'crop', 'flip', 'mixup' or another."
            )
        try:
            self.augment()
        except ParameterError as error:
            raise RecipeError(f"augment: {error}") from error

    def augment(self, *, steps_of_epoch: int = 1, **of_examples: Any) -> Augment:
        """What training is given; `of_examples` are classes, mean, std and shape."""
        return Augment(
            crop=self.crop or self.shift,
            flip=self.flip,
            randaugment=self.randaugment,  # pyright: ignore[reportArgumentType] - its length is checked there
            mixup=self.mixup,
            cutmix=self.cutmix,
            erasing=self.erasing,
            smoothing=self.smoothing,
            probability=self.probability,
            from_step=(self.from_epoch - 1) * steps_of_epoch,
            **of_examples,
        )

    def said(self) -> dict[str, Any]:
        """What differs from doing nothing, by name."""
        found = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        return {name: value for name, (value, usual) in found.items() if value != usual}

    def words(self) -> str:
        """The same for a reader, in one line."""
        found = [
            name if value is True else f"{name} {' '.join(f'{one:g}' for one in _several(value))}"
            for name, value in self.said().items()
        ]
        return ", ".join(found).replace("from_epoch", "from epoch")


def _several(value: Any) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)
