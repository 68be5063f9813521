"""What augmentation does to an image, against PIL, timm and plain loops over the images."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import auto_augment
from timm.data.mixup import mixup_target, rand_bbox
from torch import Tensor
from torch.nn import functional as F

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.train import augment
from softknee.train.augment import NONE, OPERATIONS, apply, crop_flip

FILL = (7, 130, 201)


def levels(count: int, channels: int = 3, *, seed: int = 0) -> Tensor:
    """Noise, a smooth picture of few levels, and a channel of one level alone, in turns."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (count, channels, 20, 28), generator=g).float()
    soft = F.interpolate(torch.rand(count, channels, 5, 7, generator=g) * 90 + 60, size=(20, 28), mode="bilinear")
    noise[1::3] = soft.round()[1::3]
    noise[2::3, 0] = 77
    return noise


def as_pil(image: Tensor) -> Image.Image:
    array = image.byte().permute(1, 2, 0).numpy()
    return Image.fromarray(array if array.shape[2] > 1 else array[:, :, 0])


def from_pil(image: Image.Image) -> Tensor:
    array = np.array(image)
    return torch.tensor(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1).float()


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_timms(name: str, channels: int) -> None:
    """One batch in which every image has a magnitude and a direction of its own."""
    magnitudes = [0.3, 2.6, 5.0, 7.4, 9.0, 9.9]
    images = levels(len(magnitudes), channels)
    level_to_arguments, rng = auto_augment.LEVEL_TO_ARG[name], random.Random(5)
    expected, turned = [], []
    for image, magnitude in zip(images, magnitudes, strict=True):
        random.seed(rng.random())
        arguments = level_to_arguments(magnitude, {}) if level_to_arguments else ()
        about = 1.0 if name in OPERATIONS[7:11] else 0.0  # a blend is turned below 1
        turned.append(bool(arguments) and arguments[0] < about)
        fill = FILL if channels == 3 else FILL[0]
        options = {"fillcolor": fill, "resample": Image.Resampling.BILINEAR}
        expected.append(from_pil(auto_augment.NAME_TO_OP[name](as_pil(image), *arguments, **options)))
    actual = apply(
        images,
        torch.full((len(images),), OPERATIONS.index(name)),
        torch.tensor(magnitudes),
        torch.tensor(turned),
        fill=torch.tensor(FILL[:channels]).float(),
    )
    off = (actual - torch.stack(expected)).abs()
    if name in ("Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"):
        # PIL computes in double and rounds down: where the sum is whole, the last bit of a float decides.
        assert off.max() <= 1
        assert (off > 0).float().mean() < 0.02
    else:
        assert off.max() == 0


def test_the_operations_are_those_of_timms_recipe() -> None:
    theirs = auto_augment.rand_augment_transform("rand-m9-mstd0.5-inc1", {})
    assert tuple(op.name for op in theirs.ops) == OPERATIONS
    assert (theirs.num_layers, theirs.choice_weights) == (2, None)
    assert {(op.prob, op.magnitude, op.magnitude_std) for op in theirs.ops} == {(0.5, 9, 0.5)}


def test_no_operation_leaves_the_image_and_each_image_has_its_own() -> None:
    images = levels(NONE + 1)
    operation = torch.arange(NONE + 1)
    magnitude, turned = torch.full((NONE + 1,), 9.0), operation % 2 == 0
    fill = torch.tensor(FILL).float()
    together = apply(images, operation, magnitude, turned, fill=fill)
    assert torch.equal(together[NONE], images[NONE])
    for item in range(NONE):
        at = slice(item, item + 1)
        alone = apply(images[at], operation[at], magnitude[at], turned[at], fill=fill)
        assert torch.equal(alone, together[at])


def test_posterize_to_no_bits_is_black() -> None:
    """At magnitude 10 no bit is left; today's PIL refuses that."""
    operation = torch.tensor([OPERATIONS.index("PosterizeIncreasing")])
    result = apply(levels(1), operation, torch.tensor([10.0]), torch.tensor([False]), fill=torch.zeros(3))
    assert result.abs().max() == 0


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32, torch.bfloat16], ids=str)
def test_crops_and_flips_are_slices_of_the_padded_image(kind: torch.dtype) -> None:
    images = levels(50).to(kind)
    g = torch.Generator().manual_seed(1)
    rows, columns = torch.randint(0, 7, (2, 50), generator=g)
    flips = torch.rand(50, generator=g) < 0.5
    result = crop_flip(images, rows=rows, columns=columns, flips=flips, padding=3)
    padded = F.pad(images, (3, 3, 3, 3))
    for i in range(50):
        window = padded[i, :, rows[i] : rows[i] + 20, columns[i] : columns[i] + 28]
        assert torch.equal(result[i], window.flip(2) if flips[i] else window)


def test_boxes_are_timms() -> None:
    """timm draws the centre from numpy's global state, which is why that is used here."""
    for i, share in enumerate(torch.linspace(0, 1, 41).double().tolist()):
        np.random.seed(i)  # noqa: NPY002
        row, column = np.random.randint(0, 20), np.random.randint(0, 28)  # noqa: NPY002
        centre = torch.tensor([row]), torch.tensor([column])
        result = augment.box(torch.tensor([share]).double(), *centre, height=20, width=28)
        np.random.seed(i)  # noqa: NPY002
        assert result[0].tolist() == [int(edge) for edge in rand_bbox((2, 3, 20, 28), share)]


def test_mixing_is_a_loop_over_images() -> None:
    images = torch.rand(2, 5, 3, 20, 28)
    own, cut = torch.tensor([0.3, 0.8]).double(), torch.tensor([False, True])
    edges = torch.tensor([[1, 3, 4, 9], [0, 6, 20, 28]])
    result = augment.mix(images, own, cut, edges)
    for i in range(5):
        blended = 0.3 * images[0, i] + 0.7 * images[0, 4 - i]
        torch.testing.assert_close(result[0, i], blended)
        boxed = images[1, i].clone()
        boxed[:, 0:6, 20:28] = images[1, 4 - i, :, 0:6, 20:28]
        assert torch.equal(result[1, i], boxed)


def test_soft_targets_are_timms() -> None:
    targets = torch.tensor([[3, 0, 2, 2], [1, 1, 0, 3]])
    soft = augment.soft_targets(targets, classes=5, smoothing=0.1)
    actual = augment.mix_targets(soft, torch.tensor([0.25, 0.9]))
    for replica, share in enumerate((0.25, 0.9)):
        expected = mixup_target(targets[replica], 5, lam=share, smoothing=0.1)
        torch.testing.assert_close(actual[replica], expected)


def test_erasing_fills_rectangles() -> None:
    images, filling = torch.rand(3, 2, 6, 7), torch.randn(3, 2, 6, 7)
    actual = augment.erase(images, torch.tensor([[1, 4, 0, 7], [2, 2, 3, 3], [5, 6, 6, 7]]), filling)
    expected = images.clone()
    expected[0, :, 1:4, 0:7] = filling[0, :, 1:4, 0:7]
    expected[2, :, 5:6, 6:7] = filling[2, :, 5:6, 6:7]
    assert torch.equal(actual, expected)


def test_nothing_asked_for_is_nothing_done() -> None:
    images, targets = torch.rand(4, 3, 8, 8), torch.arange(4)
    result, same = sk.train.augment.Augment()(images, targets)
    assert torch.equal(result, images)
    assert torch.equal(same, targets)


def test_bytes_become_normalised_floats() -> None:
    images = levels(4).byte()
    actual, _ = sk.train.augment.Augment(mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3))(images, torch.arange(4))
    expected = (images / 255 - torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)) / torch.tensor([0.1, 0.2, 0.3]).view(
        3, 1, 1
    )
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_bytes_and_floats_are_augmented_alike(channels: int) -> None:
    images, targets = levels(16, channels).byte(), torch.arange(16)
    settings = {"crop": 4, "flip": True, "randaugment": (9, 0.5), "erasing": 0.25}
    item, _ = sk.train.augment.Augment(**settings)(images, targets)
    two, _ = sk.train.augment.Augment(**settings)(images.float() / 255, targets)
    assert torch.equal(item, two)
    assert not torch.equal(item, images.float() / 255)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"crop": -1}, "crop must be a whole number of at least 0"),
        ({"mixup": float("inf")}, "mixup must be a finite number"),
        ({"erasing": 1.5}, "erasing must be a finite number of at least 0 and at most 1"),
        ({"randaugment": 9}, "must be the magnitude and its deviation"),
        ({"randaugment": (11, 0.5)}, "magnitude must be a finite number of at least 0 and at most 10"),
        ({"mean": (0.5,)}, "give both, or neither"),
        ({"mean": (0.5,), "std": (0.0,)}, "std above 0"),
        ({"seeds": (1, 1)}, "seeds must be different"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_are_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        sk.train.augment.Augment(**arguments)


@pytest.mark.parametrize(
    ("arguments", "images", "targets", "sentence"),
    [
        ({}, torch.rand(4, 8), torch.arange(4), r"takes images \[n, channels"),
        ({}, torch.rand(2, 4, 3, 8, 8), torch.zeros(2, 4), "images of 2 replicas and keys of 1"),
        ({}, torch.rand(4, 3, 8, 8), torch.arange(3), "do not belong to images"),
        ({"mixup": 0.8}, torch.rand(4, 3, 8, 8), torch.arange(4), "say how many `classes`"),
        ({"randaugment": (9, 0)}, torch.rand(4, 2, 8, 8), torch.arange(4), "1 or 3 channels"),
        ({"mean": [0.5], "std": [1]}, torch.rand(4, 3, 8, 8), torch.arange(4), "have 1 numbers, and images 3"),
    ],
    ids=["shape", "replicas", "targets", "classes", "channels", "mean"],
)
def test_inputs_that_are_refused(arguments: dict, images: Tensor, targets: Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sk.train.augment.Augment(**arguments)(images, targets)
