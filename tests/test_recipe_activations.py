"""What a recipe says of its activations and data: starts by depth, rates, replacements, baselines of papers, limits."""

import hashlib
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import softknee as sk
import trial_models
from softknee.errors import ParameterError, RecipeError
from softknee.lab.networks import mlp
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.examples import load_examples, recipe_examples
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.recipe import Data
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.trials import every_chosen, train_trials
from softknee.surgery.modules import activation_modules


def test_a_limit_takes_the_first_examples_of_each_part():
    whole, few = load_examples(Data(set="digits")), load_examples(Data(set="digits", limit=5))
    assert torch.equal(few.train_x, whole.train_x[:5])
    assert (len(few.validation_y), len(few.test_y)) == (5, 5)
    assert few.fingerprint != whole.fingerprint
    picture = load_examples(Data(set="camera", limit=5))
    assert (len(picture.train_x), len(picture.test_x)) == (5, 128 * 128)
    with pytest.raises(RecipeError, match=r"data\.limit must be"):
        Data(set="digits", limit=0)


# -- dropout, starts by depth, rates of their own, replacement without hardening ------------------------------


def test_dropout_is_on_inputs_and_after_each_activation():
    net = mlp((6, 5, 4, 3), activation="smelu", dropout={"input": 0.2, "hidden": 0.5})
    kinds = [type(item).__name__ for item in net]
    assert kinds == ["Dropout", "Linear", "SmeLU", "Dropout", "Linear", "SmeLU", "Dropout", "Linear"]
    assert [value.p for value in net if isinstance(value, nn.Dropout)] == [0.2, 0.5, 0.5]
    plain = mlp((6, 5, 4, 3), activation="smelu")
    x = torch.ones(2, 6)
    assert torch.equal(net.eval()(x), plain(x))  # the same weights, and nothing dropped after training
    assert not any(isinstance(entry, nn.Dropout) for entry in mlp((6, 5, 3), dropout={"input": 0.0}))
    with pytest.raises(ParameterError, match=r"dropout is a mapping such as \{'input': 0\.2"):
        mlp((6, 5, 3), dropout=0.5)
    with pytest.raises(ParameterError, match="Did you mean 'hidden'"):
        mlp((6, 5, 3), dropout={"hiden": 0.5})
    with pytest.raises(ParameterError, match=r"a share in \[0, 1\)"):
        mlp((6, 5, 3), dropout={"input": 1.0})


GRID = """
name: grid
data: {set: digits, limit: 40}
model: {arguments: {hidden: [4, 4, 4]}}
activations:
  - {name: gelu, replace: true}
  - {name: lambda_gelu, lam: 1.5, last: {lam: 2.5}, temperature: [0.1, 0.9], rate: [1, 9], learn: true}
training: {optimizer: sgd, learning_rate: 0.1, batch: 20, epochs: 1}
seeds: 2
measures: []
"""


def test_starts_by_depth_and_rates_of_their_own():
    recipe = read_recipe(GRID)
    examples = recipe_examples(recipe)
    trials = {trial.activation.label: trial for trial in train_trials(recipe, examples)}
    assert list(trials)[1:] == [
        f"lambda_gelu temperature={temperature} rate={rate}" for temperature in ("0.1", "0.9") for rate in (1, 9)
    ]
    assert [item.training.activation_rate for item in trials.values()] == [9.0, 1.0, 9.0, 1.0, 9.0]
    for chosen in list(every_chosen(recipe))[1:]:
        modules = activation_modules(model_maker(recipe.model, chosen, examples)(seed=1)).values()
        assert [module.lam.item() for module in modules] == pytest.approx([1.5, 2.0, 2.5])
    moved = []
    for label in ("lambda_gelu temperature=0.1 rate=1", "lambda_gelu temperature=0.1 rate=9"):
        result = run_trial(trials[label], examples=examples).outcome
        first, *_, last = result.parameters.values()
        assert (first["start"], last["start"]) == pytest.approx((1.5, 2.5))
        moved.append(abs(last["end"][0] - last["start"]))
    assert moved[1] > 2 * moved[0] > 0


def test_an_activation_is_replaced_that_was_not_hardened():
    recipe = read_recipe(GRID)
    examples = recipe_examples(recipe)
    gelu = replace(train_trials(recipe, examples)[0], keep=("models",))
    result = run_trial(gelu, examples=examples)
    assert result.outcome.replacement is not None
    assert result.outcome.replacement["limit"] == "ReLU"
    from safetensors.torch import load

    weights = load(next(iter(result.files.values())))
    for seed in range(2):
        net = mlp((64, 4, 4, 4, 10), activation="torch:relu")
        net.load_state_dict({name: weights[name][seed] for name in net.state_dict()})
        right = (net(examples.test_x).argmax(dim=1) == examples.test_y).double().mean().item()
        assert result.outcome.replacement["test"]["accuracy"][seed] == pytest.approx(right)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        ("{name: lambda_gelu, last: {lam: 2}, learn: true}", "activations[0].last.lam is where the last place begins"),
        ("{name: lambda_gelu, lam: 2, last: {lam: 0.5}}", "activations[0].last: "),
        ("{name: swish, rate: -1, learn: true}", "rate must be at least 0"),
        ("{name: tanh, replace: true}", "activations[0].replace: "),
    ],
)
def test_what_cannot_be_is_refused(activation, message):
    with pytest.raises(RecipeError) as caught:
        read_recipe(f"name: t\ndata: {{set: digits}}\nactivations: [{activation}]\n")
    assert message in str(caught.value)


def test_records_of_before_keep_their_keys():
    """The new keys of an activation and of the data are written only where they are used."""
    recipe = read_recipe("name: t\ndata: {set: digits}\nactivations: [relu]\n")
    (trial,) = train_trials(recipe, replace(recipe_examples(recipe), fingerprint=hashlib.sha256(b"").hexdigest()))
    assert not {"replace", "last", "rate"} & trial.plain()["activations"][0].keys()
    assert "limit" not in trial.plain()["data"]


# -- modules without a definition ---------------------------------------------------------------------------

BASELINES = "[{name: polyrelu, learn: true, order: [2, 3]}, polynorm, {name: kaf, points: 7, learn: a}, ditac]"
TEXT = f"name: t\ndata: {{set: digits}}\nactivations: {BASELINES}\nbaseline: polyrelu order=2\n"


def test_baselines_of_papers_are_taken_by_name():
    recipe = read_recipe(TEXT)
    chosen = {choice.label: choice for choice in every_chosen(recipe)}
    assert list(chosen) == ["polyrelu order=2", "polyrelu order=3", "polynorm", "kaf", "ditac"]
    assert chosen["polyrelu order=2"].values == {"order": 2}  # an option stays a whole number
    examples = recipe_examples(recipe)
    made = {label: model_maker(recipe.model, item, examples)(seed=0)[1] for label, item in chosen.items()}
    assert isinstance(made["kaf"], sk.nn.KAF)
    assert (made["kaf"].points, made["kaf"].learned, made["polynorm"].learned) == (7, ("a",), ())
    assert made["polyrelu order=2"].order == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["init=matched"], "init 'matched' needs functions of single numbers, not activations[0].name 'polyrelu'"),
        (["activations.0.order=0"], "order must be a whole number of at least 1"),
        (["activations.1.colour=1"], "activations[1]: "),
        (["activations.0.name=polyreluu"], "There is no activation named 'polyreluu'"),
        (["activations.3.harden=true", "hardening={start: 0.5}"], "activations[3].harden"),
    ],
)
def test_what_they_do_not_take_is_refused(settings, message):
    with pytest.raises(RecipeError) as caught:
        read_recipe(TEXT, settings=settings)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["kaf", "polynorm"])
def test_they_train_in_a_model_of_ones_own(name):
    data, numbers = trial_models.examples(), {"kaf": 20, "polynorm": 4}[name]
    results = [
        run_trial(trial_models.trial(name, learn=True, engine=engine, epochs=1), examples=data).outcome
        for engine in ("replicas", "loop")
    ]
    assert [result.trained for result in results] == [(5 * 8 + 8) + (8 * 8 + 8) + (8 * 3 + 3) + 2 * numbers] * 2
    assert results[0].test["log_loss"] == pytest.approx(results[1].test["log_loss"], rel=1e-5)
    assert len(results[0].parameters) == 2 * numbers


ENTROPIC = """
name: t
data: {set: digits, limit: 300}
model: {arguments: {hidden: [8]}}
activations:
  - {name: entropic_spline, label: fixed, refresh: 0}
  - {name: entropic_spline, label: learned, refresh: 0, learn: true}
  - {name: entropic_spline, every: [2, 4]}
training: {batch: 50, epochs: 3, engine: loop}
seeds: 2
measures: [entropy]
"""


def test_a_spline_that_takes_steps_of_its_own_is_taken_by_name():
    recipe = read_recipe(ENTROPIC)
    examples = recipe_examples(recipe)
    trials = {trial.activation.label: trial for trial in train_trials(recipe, examples)}
    assert list(trials) == ["fixed", "learned", "entropic_spline every=2", "entropic_spline every=4"]
    results = {label: run_trial(trial, examples=examples).outcome for label, trial in trials.items()}
    assert {label: result.trained - results["fixed"].trained for label, result in results.items()} == {
        **dict.fromkeys(trials, 0), "learned": 48
    }  # fmt: skip
    ends = {label: result.entropy[0]["end"] for label, result in results.items()}
    for seed in range(2):
        fixed, half, often = (
            ends[label]["output"][seed] - math.log(ends[label]["spread"][seed])
            for label in ("fixed", "entropic_spline every=4", "entropic_spline every=2")
        )
        assert often < half < fixed
    with pytest.raises(RecipeError, match=r"activations\[2\]: entropic_spline takes its steps.*'engine: loop'"):
        read_recipe(ENTROPIC, settings=["training.engine=replicas"])
