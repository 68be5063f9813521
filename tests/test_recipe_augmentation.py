"""Augmentation that a recipe asks for: shifts with a probability and from an epoch on, rows, bytes, and the loop."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from papers.runs import recipe_named
from scipy import stats
from sklearn import datasets
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import idx_files
import softknee as sk
from data_files import cifar_parts, publish_cifar, write_binary
from softknee.errors import InputError, ParameterError, RecipeError
from softknee.lab.data import idx
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.engine import pack_examples, unpack_examples
from softknee.lab.studies.examples import load_examples, recipe_examples
from softknee.lab.studies.reading import read_recipe, to_yaml
from softknee.lab.studies.recipe import Data
from softknee.lab.studies.runner import smoke
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.running.run import levels, training_inputs
from softknee.lab.studies.running.training import fit_settings
from softknee.lab.studies.trial import Trial
from softknee.lab.studies.trials import Outcome, cost_trial, train_trials, tuning_trials
from softknee.train import OneByOne, Replicas
from softknee.train.augment import Augment
from softknee.train.random_keys import order, seed_keys
from softknee.train.stacked_modules import Draws

SHIFTS = {"crop": 3, "probability": 0.5, "mean": [0.25], "std": [0.5]}
MIXED = {"crop": 2, "flip": True, "erasing": 0.3, "mixup": 0.5, "cutmix": 1.0, "smoothing": 0.1, "classes": 3}
RARE = 1e-4


def drawn(seeds: list[int], step: int) -> Draws:
    return Draws(seed_keys(seeds), torch.tensor([step]))


def pixels(count: int, channels: int = 1, side: int = 12) -> Tensor:
    made = torch.Generator().manual_seed(0)
    return torch.randint(1, 256, (count, channels, side, side), generator=made, dtype=torch.uint8)


# -- Augment ------------------------------------------------------------------------------------------------


def test_half_of_the_images_are_shifted_and_what_comes_in_is_black():
    """Every image is one of the 49 windows of the padded bytes, normalised; all of them alike."""
    images = pixels(4000)
    actual, _ = Augment(**SHIFTS)(images, torch.zeros(4000))
    padded = (F.pad(images.double(), (3, 3, 3, 3)) / 255 - 0.25) / 0.5
    counts = np.zeros((7, 7))
    for row in range(7):
        for column in range(7):
            window = padded[:, :, row : row + 12, column : column + 12]
            counts[row, column] = int(((actual - window).abs().amax((1, 2, 3)) < 1e-5).sum())
    assert counts.sum() == 4000  # images have no level 0, so that no window looks like another
    expected = np.full((7, 7), 0.5 / 49) + 0.5 * (np.arange(49).reshape(7, 7) == 24)
    assert stats.chisquare(counts.flatten(), 4000 * expected.flatten()).pvalue > RARE


def test_nothing_is_done_before_the_first_step_and_all_of_it_from_then_on():
    images, targets = pixels(6).expand(2, 6, 1, 12, 12), torch.tensor([[0, 1, 2, 0, 1, 2]] * 2)
    late = Augment(**MIXED, mean=[0.25], std=[0.5], randaugment=(9, 0.5), from_step=3)
    always = Augment(**MIXED, mean=[0.25], std=[0.5], randaugment=(9, 0.5))
    for step in range(5):
        result, soft = late(images, targets, draws=drawn([4, 5], step))
        changed, mixed = always(images, targets, draws=drawn([4, 5], step))
        plain = (images.float() / 255 - 0.25) / 0.5
        assert torch.equal(result, changed if step >= 3 else plain)
        assert torch.equal(soft, mixed if step >= 3 else F.one_hot(targets, 3).float())
        assert not torch.equal(changed, plain)


def test_rows_are_images():
    images, targets = pixels(10, channels=3), torch.arange(10)
    whole, rows = Augment(crop=2, flip=True), Augment(crop=2, flip=True, shape=(3, 12, 12))
    expected, _ = whole(images, targets, draws=drawn([7], 2))
    actual, same = rows(images.flatten(1), targets, draws=drawn([7], 2))
    assert torch.equal(actual, expected.flatten(1))
    assert same.tolist() == list(range(10))
    stacked, _ = rows(images.flatten(1).unsqueeze(0), targets.unsqueeze(0), draws=drawn([7], 2))
    assert torch.equal(stacked[0], actual)
    with pytest.raises(InputError, match=r"takes rows \[n, 432\]"):
        rows(images, targets)
    with pytest.raises(ParameterError, match="channels, height and width"):
        Augment(shape=(28, 28))
    assert "probability=0.5" in repr(Augment(**SHIFTS))


def test_no_value_reaches_the_host():
    with FakeTensorMode():
        rows = torch.zeros(2, 8, 144, dtype=torch.uint8)
        given = Augment(**SHIFTS, mixup=0.3, classes=4, from_step=5, shape=(1, 12, 12), seeds=[0, 1])
        result, soft = given(rows, torch.zeros(2, 8, dtype=torch.int64))
    assert (result.shape, soft.shape) == ((2, 8, 144), (2, 8, 4))


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), sk.nn.SmeLU(learn=True), nn.Flatten(), nn.Linear(400, 3))


@pytest.mark.parametrize("late", [0, 4])
def test_the_loop_trains_what_replicas_train(late: int):
    images, targets = pixels(26), torch.arange(26) % 3
    augment = Augment(**MIXED, mean=[0.5], std=[0.25], probability=0.7, from_step=late)
    given = {"epochs": 4, "batch": 8, "lr": 0.05, "momentum": 0.9, "augment": augment}
    settings = {"count": 2, "seeds": [3, 8], "share_dropout": bool(late)}
    loop, together = (kind(small, **settings).fit(images, targets, **given) for kind in (OneByOne, Replicas))
    torch.testing.assert_close(loop.losses, together.losses, rtol=2e-4, atol=2e-5)
    for name, item in loop.weights().items():
        torch.testing.assert_close(item, together.weights()[name], rtol=1e-3, atol=1e-4)
    plain = Augment(mean=[0.5], std=[0.25])
    other = OneByOne(small, **settings).fit(images, targets, **{**given, "augment": plain})
    assert (other.losses[late + 1 :] - loop.losses[late + 1 :]).abs().min() > 1e-3


# -- the bytes of the examples ------------------------------------------------------------------------------


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", ["digits", "mnist", "cifar-10"])
def test_bytes_are_those_of_the_files(name, flat, tmp_path, monkeypatch):
    if name == "mnist":
        idx_files.write(tmp_path / name)
        monkeypatch.setitem(idx.SETS, name, idx_files.as_published(name))
        whole = torch.frombuffer(bytearray(idx_files.contents()["train-images-idx3-ubyte"][16:]), dtype=torch.uint8)
    elif name == "cifar-10":
        publish_cifar(monkeypatch, name, write_binary(tmp_path, name))
        whole = torch.tensor(cifar_parts(10)["train"][0]).permute(0, 3, 1, 2)
    else:
        whole = torch.tensor(datasets.load_digits().images * 15).byte()
    examples = load_examples(Data(set=name), folder=tmp_path, flat=flat)
    assert examples.image is not None
    result = levels(examples)
    assert (result.shape, result.dtype) == (examples.train_x.shape, torch.uint8)
    there = {bytes(item) for item in whole.reshape(-1, np.prod(examples.image)).tolist()}
    assert {bytes(value) for value in result.flatten(1).tolist()} <= there
    shown, _ = Augment(mean=[entry / 255 for entry in examples.mean], std=[one / 255 for one in examples.spread])(
        result.reshape(-1, *examples.image), examples.train_y
    )
    torch.testing.assert_close(shown.reshape(examples.train_x.shape), examples.train_x, rtol=1e-5, atol=1e-5)
    again = unpack_examples(pack_examples(examples))
    assert (again.image, again.mean, again.spread) == (examples.image, examples.mean, examples.spread)


# -- recipes ------------------------------------------------------------------------------------------------

RECIPE = """
name: shifted
data: {set: digits, limit: 60}
model: {arguments: {hidden: [12]}}
activations: [smelu]
training: {optimizer: sgd, learning_rate: 1e-12, batch: 25, epochs: 2}
augment: {shift: 2, probability: 0.5, from_epoch: 2}
seeds: 2
tuning: {learning_rate: [1e-3], seeds: 1}
measures: [cost]
"""


@pytest.mark.parametrize("engine", ["replicas", "loop"])
def test_a_trial_trains_on_what_the_recipe_says(engine):
    """With a rate of almost 0 its losses are those of the first model: of images as they are, then of shifted ones."""
    recipe = read_recipe(RECIPE, settings=[f"training.engine={engine}"])
    examples = recipe_examples(recipe)
    (trial,) = train_trials(recipe, examples)
    result = run_trial(trial, examples=examples).outcome
    make = model_maker(trial.model, trial.activation, examples)
    inputs, _ = training_inputs(trial, examples)
    shift = Augment(
        crop=2,
        probability=0.5,
        mean=[examples.mean[0] / 255],
        std=[examples.spread[0] / 255],
        seeds=[0, 1],
    )
    for index, seed in enumerate((0, 1)):
        model, turns = make(seed), order(seeds=[seed], epoch=1, length=60)[0].split(25)
        plain = F.cross_entropy(model(examples.train_x), examples.train_y).item()
        assert result.train["log_loss"][index] == pytest.approx(plain, rel=1e-5)
        shifted = []
        for step, turn in enumerate(turns):
            images = inputs[turn].reshape(-1, 1, 8, 8)
            x, _ = shift(images, examples.train_y[turn], draws=drawn([seed], 3 + step))
            shifted.append(F.cross_entropy(model(x.flatten(1)), examples.train_y[turn]).item())
        first = order(seeds=[seed], epoch=0, length=60)[0].split(25)
        whole = [F.cross_entropy(model(examples.train_x[item]), examples.train_y[item]).item() for item in first]
        assert result.curves["train_loss"][0][index] == pytest.approx(np.mean(whole), rel=1e-4)
        assert result.curves["train_loss"][1][index] == pytest.approx(np.mean(shifted), rel=1e-4)
        assert np.mean(shifted) != pytest.approx(np.mean(whole), rel=1e-3)


def test_it_is_written_where_it_is_asked_for_and_nowhere_else():
    recipe = read_recipe(RECIPE)
    assert read_recipe(to_yaml(recipe)) == recipe
    assert "augment: {shift: 2, probability: 0.5, from_epoch: 2}" in to_yaml(recipe)
    examples = recipe_examples(recipe)
    for trial in (*train_trials(recipe, examples), *tuning_trials(recipe, examples)):
        assert trial.augment == recipe.augment
        assert trial.plain()["augment"] == {"shift": 2, "probability": 0.5, "from_epoch": 2}
        assert Trial.read(json.loads(json.dumps(trial.plain()))) == trial
        record = Outcome(trial=trial, seconds=0.0).record(command="", git=None)
        assert '"from_epoch": 2' in record.to_json()
        without = replace(trial, augment=None)
        assert "augment" not in without.plain()
        assert {"floor", "warmup_start"}.isdisjoint(without.plain()["training"])
        assert without.key != trial.key
    cost = cost_trial(recipe, examples)
    assert cost is not None
    assert cost.augment is None
    small_one = smoke(recipe)
    assert small_one.augment is not None
    assert (small_one.augment.shift, small_one.augment.from_epoch) == (2, 1)


@pytest.mark.parametrize(
    ("data", "augment", "said"),
    [
        ("set: adult", "{crop: 4}", "augment is for data sets of images (digits, mnist"),
        ("file: own.npz", "{crop: 4}", "and the data are 'own.npz'"),
        ("set: digits", "{crop: 4, shift: 4}", "two names of one thing"),
        ("set: digits", "{crop: -1}", "augment.crop must be a whole number of pixels"),
        ("set: digits", "{flip: true, probability: 0.5}", "augment.probability is that of a crop or shift"),
        ("set: digits", "{crop: 2, probability: 0}", "augment.probability must be a number above 0"),
        ("set: digits", "{crop: 2, from_epoch: 0}", "augment.from_epoch must be an epoch"),
        ("set: digits", "{from_epoch: 2}", "augment asks for nothing"),
        ("set: digits", "{randaugment: [9]}", "augment: randaugment must be the magnitude"),
        ("set: digits", "{erasing: 2}", "augment: erasing must be a finite number"),
        ("set: digits", "{corp: 2}", "Did you mean 'crop'"),
    ],
)
def test_what_cannot_be_is_refused(data, augment, said):
    with pytest.raises(RecipeError) as caught:
        read_recipe(f"name: t\ndata: {{{data}}}\nactivations: [relu]\naugment: {augment}\n")
    assert said in str(caught.value)


def test_the_papers_settings():
    for name in ("smelu-figure-4", "smelu-figure-13"):
        augment = recipe_named(name).augment
        assert augment is not None
        assert augment.changes() == {"shift": 3, "probability": 0.5, "from_epoch": 2}
    usual = {"crop": 4, "flip": True}
    timms = {"randaugment": (9.0, 0.5), "mixup": 0.8, "cutmix": 1.0, "erasing": 0.25, "smoothing": 0.1}
    few = ("mollification-table-1", "mollification-table-2", "eafo-table-1")
    more = (*(f"mollification-table-{table}" for table in ("1-augmented", "2-augmented", "4")), "eafo-table-2")
    for name, said in {**dict.fromkeys(few, usual), **dict.fromkeys(more, usual | timms)}.items():
        recipe = recipe_named(name)
        assert recipe.augment is not None
        assert recipe.augment.changes() == said
        assert recipe.training.every == 10
        settings = fit_settings(recipe.training, task="classification", gradients=False)
        rates = [settings["lr"] * settings["schedule"](progress) for progress in (0.0, 0.1, 0.2, 1.0)]
        assert rates == pytest.approx([1e-6, (1e-6 + 2.5e-4) / 2, 2.5e-4, 1e-5])
