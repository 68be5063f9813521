"""Images of 8 x 8 in two classes that a network tells apart at once, and a network of three places for them."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from softknee.lab.data.image_set import ImageSet
from softknee.lab.vision_networks import NETWORKS, Place, built

PLACES = 8 * 8 * 8 + 12 * 4 * 4 + 12 * 4 * 4  # elements of the three activations for one image


def tiny(*, classes=100, activation=nn.ReLU, seed=0):
    """To be put among the networks by name: those of the papers take a processor of ours too long."""

    def make():
        first = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), Place(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), Place()]
        third = [nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12), Place()]
        end = [nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(), nn.Linear(24, classes)]
        return nn.Sequential(*first, *second, *third, *end)

    return built(make, activation=activation, classes=classes, seed=seed)


@contextmanager
def tiny_vggs():
    """While open, `tiny` stands in the place of the VGGs, which take a processor too long."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("vgg8", "vgg13"):
            patch.setitem(NETWORKS, name, tiny)
        yield


def two_halves(count: int = 24, *, side: int = 8) -> ImageSet:
    """Bright in the upper or in the lower half; as many images to train on as to test."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.arange(2 * count) % 2
    pixels = torch.randint(0, 60, (2 * count, 3, side, side), generator=generator)
    upper = torch.arange(side).view(1, 1, -1, 1) < side // 2
    pixels += 150 * (upper == (labels == 0).view(-1, 1, 1, 1))
    images = pixels.to(torch.uint8)
    return ImageSet(
        name="halves",
        train_images=images[:count],
        train_labels=labels[:count],
        test_images=images[count:],
        test_labels=labels[count:],
        labels=("upper", "lower"),
    )
