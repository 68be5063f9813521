"""How augmentation is drawn: its distributions, and that a replica's draws depend on its key and the step alone."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import softknee as sk
from softknee.train import augment
from softknee.train.augment import Augment
from softknee.train.random_keys import fold, order, seed_keys
from softknee.train.stacked_modules import Draws

FULL = {
    "crop": 4,
    "flip": True,
    "randaugment": (9, 0.5),
    "mixup": 0.8,
    "cutmix": 1.0,
    "erasing": 0.25,
    "smoothing": 0.1,
    "classes": 10,
    "mean": (0.49, 0.48, 0.45),
    "std": (0.25, 0.24, 0.26),
}
KEYS = fold(seed_keys(range(4)), 3)
# Draws are fixed numbers, so that a test passes always or never; a right generator fails one in 10,000 of these.
RARE = 1e-4


def raw(images: int, each: int) -> Tensor:
    """Bits for the images of all four replicas."""
    return augment.image_bits(KEYS, augment.IMAGES, images=images, each=each).flatten(0, 1)


def drawn(seeds: list[int], step: int = 0) -> Draws:
    return Draws(seed_keys(seeds), torch.tensor([step]))


def batch(replicas: int, count: int = 12) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 16, 16), generator=g).byte()
    targets = torch.randint(0, 10, (count,), generator=g)
    return images.expand(replicas, *images.shape), targets.expand(replicas, count)


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_the_share_of_mixup_is_beta(alpha: float) -> None:
    result = augment.beta(raw(5000, augment.BETA_BITS), torch.tensor(alpha).double())
    assert stats.kstest(result.numpy(), stats.beta(alpha, alpha).cdf).pvalue > RARE
    assert stats.kstest(result.numpy(), stats.beta(alpha * 1.2, alpha * 1.2).cdf).pvalue < RARE  # it can fail


def test_uniform_and_normal_numbers() -> None:
    assert stats.kstest(augment.uniform(raw(5000, 1)).flatten().numpy(), "uniform").pvalue > RARE
    assert stats.kstest(augment.normal(raw(5000, 1)).flatten().numpy(), "norm").pvalue > RARE
    extreme = augment.beta(raw(500, augment.BETA_BITS), torch.tensor(0.001))  # both gamma draws are 0 as floats
    assert ((extreme >= 0) & (extreme <= 1)).all()
    ends = torch.tensor([0, 2**32 - 1])
    assert 0 < augment.uniform(ends)[0] < augment.uniform(ends)[1] < 1
    assert augment.normal(ends).isfinite().all()
    assert augment.whole(ends, 9).tolist() == [0, 8]


def test_crops_are_uniform_and_half_of_the_images_are_flipped() -> None:
    """Read off the images themselves: the place of one bright pixel, and which side its neighbour is on."""
    image = torch.zeros(20_000, 1, 11, 11)
    image[:, :, 5, 5], image[:, :, 5, 6] = 1, 0.5
    result, _ = Augment(crop=3, flip=True)(image, torch.zeros(20_000))
    place = result.flatten(1).argmax(1)
    row, column = place // 11, place % 11
    flipped = result[torch.arange(20_000), 0, row, (column + 1) % 11] != 0.5
    down, across = 5 - row + 3, torch.where(flipped, column - 5, 5 - column) + 3
    cells = torch.stack([down, across, flipped.long()], 1)
    assert cells[:, :2].min() == 0
    assert cells[:, :2].max() == 6
    counts = np.histogramdd(cells.numpy(), bins=(range(8), range(8), range(3)))[0]
    assert stats.chisquare(counts.flatten()).pvalue > RARE  # each of 7 x 7 x 2 alike


def test_randaugment_draws() -> None:
    both = raw(4000, 2 * augment.RAND_AUGMENT_DRAWS).chunk(2, dim=1)
    operation, magnitude, turned = augment.draw_rand_augment(both[0], magnitude=9.0, deviation=0.5)
    counts = torch.bincount(operation, minlength=16).numpy()
    assert stats.chisquare(counts, np.array([0.5 / 15] * 15 + [0.5]) * 16_000).pvalue > RARE
    below = magnitude[magnitude < 10].numpy()
    assert stats.kstest(below, stats.truncnorm(-18, 2, loc=9, scale=0.5).cdf).pvalue > RARE
    clipped = int((magnitude == 10).sum())
    assert stats.binomtest(clipped, 16_000, stats.norm.sf(2)).pvalue > RARE
    assert stats.binomtest(int(turned.sum()), 16_000, 0.5).pvalue > RARE
    second = augment.draw_rand_augment(both[1], magnitude=9.0, deviation=0.5)[0]
    assert stats.pearsonr((operation == 15).numpy(), (second == 15).numpy()).pvalue > RARE


def test_half_of_the_steps_mix_and_half_cut() -> None:
    bits = augment.image_bits(seed_keys(range(4000)), augment.MIXING, images=1, each=augment.MIXING_DRAWS).squeeze(1)
    own, cut, edges = augment.draw_mixing(bits, mixup=0.8, cutmix=1.0, height=32, width=32)
    assert stats.binomtest(int(cut.sum()), 4000, 0.5).pvalue > RARE
    assert stats.kstest(own[~cut].numpy(), stats.beta(0.8, 0.8).cdf).pvalue > RARE
    top, bottom, left, right = edges.unbind(1)
    assert torch.equal(own[cut], 1 - ((bottom - top) * (right - left))[cut].double() / 1024)
    assert not augment.draw_mixing(bits, mixup=0.8, cutmix=0.0, height=8, width=8)[1].any()
    assert augment.draw_mixing(bits, mixup=0.0, cutmix=1.0, height=8, width=8)[1].all()


def test_erased_rectangles_are_distributed_as_in_a_plain_loop() -> None:
    edges = augment.draw_erasing(raw(2500, augment.ERASING_DRAWS), probability=0.4, height=32, width=24)
    high, wide = edges[:, 1] - edges[:, 0], edges[:, 3] - edges[:, 2]
    done = high > 0
    assert edges.min() >= 0
    assert edges[:, 1].max() <= 32
    assert edges[:, 3].max() <= 24
    assert stats.binomtest(int(done.sum()), 10_000, 0.4).pvalue > RARE
    rng, expected = random.Random(0), []
    while len(expected) < 10_000:
        area, ratio = rng.uniform(0.02, 1 / 3) * 32 * 24, math.exp(rng.uniform(math.log(0.3), -math.log(0.3)))
        h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if h < 32 and w < 24:
            expected.append((h, w, rng.randint(0, 32 - h), rng.randint(0, 24 - w)))
    actual = torch.stack([high, wide, edges[:, 0], edges[:, 2]], 1)[done].numpy()
    for mine, theirs in zip(actual.T, np.array(expected).T, strict=True):
        assert stats.ks_2samp(mine, theirs).pvalue > RARE


def test_erased_pixels_are_normal_noise() -> None:
    result, _ = Augment(erasing=1.0)(torch.full((60, 3, 16, 16), 9.0), torch.zeros(60))
    noise = result[result != 9]
    assert 0.02 < len(noise) / result.numel() < 0.4
    assert stats.kstest(noise.numpy(), "norm").pvalue > RARE


def test_a_replica_does_not_depend_on_the_others() -> None:
    augment = Augment(**FULL)
    images, targets = augment(*batch(3), draws=drawn([5, 7, 9], step=4))
    alone = augment(*batch(1), draws=drawn([7], step=4))
    company = augment(*batch(2), draws=drawn([7, 100], step=4))
    for item, two, three in zip((images, targets), alone, company, strict=True):
        assert torch.equal(item[1], two[0])
        assert torch.equal(item[1], three[0])
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images, augment(*batch(3), draws=drawn([5, 7, 9], step=5))[0])


def test_an_image_does_not_depend_on_the_size_of_the_batch() -> None:
    augment = Augment(**{**FULL, "mixup": 0.0, "cutmix": 0.0})
    images, targets = batch(2)
    whole, _ = augment(images, targets, draws=drawn([1, 2]))
    part, _ = augment(images[:, :5], targets[:, :5], draws=drawn([1, 2]))
    assert torch.equal(whole[:, :5], part)


def test_its_own_step_goes_on() -> None:
    images, targets = batch(1)
    augment, again = Augment(**FULL, seeds=[3]), Augment(**FULL, seeds=[3])
    first, second = (augment(images[0], targets[0]) for _ in range(2))
    assert not torch.equal(first[0], second[0])
    for turn, (result, soft) in enumerate((first, second)):
        other = again(images, targets, draws=drawn([3], step=turn))
        assert torch.equal(result, other[0][0])
        assert torch.equal(soft, other[1][0])


@pytest.mark.slow
def test_no_value_reaches_the_host() -> None:
    """Fake tensors have no values: whoever asks for one is refused."""
    with FakeTensorMode():
        images = torch.zeros(2, 8, 3, 16, 16, dtype=torch.uint8)
        result, soft = Augment(**FULL, seeds=[0, 1])(images, torch.zeros(2, 8, dtype=torch.int64))
        with pytest.raises(Exception, match=r"_local_scalar_dense"):
            result.sum().item()
    assert (result.shape, soft.shape) == ((2, 8, 3, 16, 16), (2, 8, 10))


@pytest.mark.gpu
def test_a_captured_call_is_the_eager_one() -> None:
    images, targets = (sample.cuda() for sample in batch(3))
    augment = Augment(**FULL, probability=0.7, from_step=1)
    draws = Draws(seed_keys([1, 2, 3], device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda"))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        augment(images, targets, draws=draws)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual, soft = augment(images, targets, draws=draws)
    for step in range(3):
        draws.step.fill_(step)
        graph.replay()
        expected = augment(images, targets, draws=draws)
        assert torch.equal(actual, expected[0])
        assert torch.equal(soft, expected[1])
        on_cpu = augment(*batch(3), draws=drawn([1, 2, 3], step=step))
        # A level may round the other way where a sum is whole: one in 255, over a deviation of 0.24.
        off = (actual.cpu() - on_cpu[0]).abs()
        assert off.max() < 0.02
        assert (off > 1e-4).float().mean() < 0.01


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), sk.nn.SmeLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 10))


def fitted(seeds: list[int], *, epochs: int = 2, lr: float = 0.05, **options: object) -> sk.train.Replicas:
    images, targets = (sample[0] for sample in batch(1))
    replicas = sk.train.Replicas(small, count=len(seeds), seeds=seeds, **options)
    return replicas.fit(images, targets, epochs=epochs, batch=5, lr=lr, total_epochs=2, augment=Augment(**FULL))


def test_training_with_augmentation_is_repeatable_and_a_replica_is_its_own() -> None:
    first, again, company = fitted([1, 7, 3]), fitted([1, 7, 3]), fitted([11, 7, 2])
    assert torch.equal(first.losses, again.losses)
    assert not torch.equal(first.losses[:, 0], company.losses[:, 0])
    for name, item in first.weights().items():
        assert torch.equal(item, again.weights()[name])
        assert torch.equal(item[1], company.weights()[name][1])


def test_training_goes_on_from_its_state() -> None:
    whole, half = fitted([1, 7]), fitted([1, 7], epochs=1)
    images, targets = (sample[0] for sample in batch(1))
    other = sk.train.Replicas(small, count=2, seeds=[1, 7]).load_state_dict(copy.deepcopy(half.state_dict()))
    other.fit(images, targets, epochs=1, batch=5, lr=0.05, augment=Augment(**FULL))
    assert torch.equal(whole.losses, other.losses)


def test_training_sees_the_images_that_the_keys_say() -> None:
    """With a rate of 0 the losses are those of the first model on batches that are made here."""
    images, targets = (sample[0] for sample in batch(1))
    replicas = fitted([1, 7], epochs=1, lr=0.0)
    turns = order(seeds=[1, 7], epoch=0, length=len(images))
    for step in range(3):
        chosen = turns[:, step * 5 : step * 5 + 5]
        x, y = Augment(**FULL)(images[chosen], targets[chosen], draws=drawn([1, 7], step=step))
        for index in range(2):
            expected = F.cross_entropy(replicas.model(index)(x[index]), y[index])
            torch.testing.assert_close(replicas.losses[step, index], expected)


def test_random_shifts_are_a_crop_alone() -> None:
    """As in figure 4 of the SmeLU paper: every replica shifts the digit in its own way."""
    image = torch.zeros(2, 30, 1, 28, 28)
    image[:, :, :, 14, 14] = 1
    result, _ = Augment(crop=2)(image, torch.zeros(2, 30), draws=drawn([0, 1]))
    assert torch.equal(result.sum((2, 3, 4)), torch.ones(2, 30))
    assert result[:, :, :, 12:17, 12:17].sum() == 60
    assert not torch.equal(result[0], result[1])
