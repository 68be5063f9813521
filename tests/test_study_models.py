"""The models of a study: the same weights for the same seed whatever the activation; a sentence where it cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import integrate, stats
from torch import nn

import softknee as sk
from softknee.errors import RecipeError
from softknee.lab.studies.building import model_maker, start_gain
from softknee.lab.studies.examples import Examples, recipe_examples
from softknee.lab.studies.own_functions import find_function, source_fingerprint
from softknee.lab.studies.reading import find_recipe, read_recipe, recipe_text
from softknee.lab.studies.recipe import Model
from softknee.lab.studies.trial import Chosen
from softknee.lab.studies.trials import train_trials

OWN = """
import torch
from torch import nn
import torch.nn.functional as F

class Called(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(inputs, 12), nn.Linear(12, 12), nn.Linear(12, classes)

    def forward(self, x):
        return self.last(F.gelu(self.second(F.gelu(self.first(x)))))

def asks(input_shape, classes, activation, width=12):
    layers = [nn.Linear(input_shape[0], width), activation(), nn.Linear(width, width), activation(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(width, classes))

def seeded(input_shape, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(input_shape[0], 4), nn.ReLU(), nn.Linear(4, classes))
    for one in model.parameters():
        one.data.normal_(generator=generator)
    return model

def calls(input_shape, classes):
    return Called(input_shape[0], classes)

def lazy(classes):
    return nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(classes))

def keeps_one(classes, activation):
    return nn.Sequential(nn.Linear(6, 5), activation(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, classes))

def forgets(classes, activation):
    return nn.Linear(6, classes)

def breaks(classes):
    raise ZeroDivisionError("by nought")

def no_model_of(activation):
    return 3

def no_model(classes):
    return 3
"""
RELU = Chosen(name="relu", label="relu")
SMELU = Chosen(name="smelu", label="smelu", values={"beta": 0.5}, learn="beta")
SEVERAL = [
    RELU,
    Chosen(name="gelu", label="gelu"),
    SMELU,
    Chosen(name="squaf", label="squaf", values={"k": 3, "q": 0.5}, learn="z"),
]


def examples(shape: tuple[int, ...] = (6,), *, classes: int = 3, base: Path | None = None) -> Examples:
    x = torch.randn(40, *shape, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) % classes
    parts = {"train_x": x[:20], "train_y": y[:20], "validation_x": x[20:30], "validation_y": y[20:30]}
    return Examples(
        task="classification",
        classes=classes,
        **parts,
        test_x=x[30:],
        test_y=y[30:],
        name="made",
        base=None if base is None else str(base),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("own")
    (place / "study_model.py").write_text(OWN)
    return place


MODELS = {
    "mlp": (Model(arguments={"hidden": [12, 12]}), (6,)),
    "cnn": (Model(build="cnn", arguments={"channels": [3, 4]}), (2, 8, 8)),
    "asks": (Model(build="study_model:asks"), (6,)),
    "calls": (Model(build="study_model:calls"), (6,)),
    "lazy": (Model(build="study_model:lazy"), (6,)),
    "seeded": (Model(build="study_model:seeded"), (6,)),
    "timm": (Model(build="timm:test_resnet"), (3, 32, 32)),
}


def weights(model: nn.Module) -> list[torch.Tensor]:
    """All parameters that belong to no activation."""
    own = {
        id(parameter)
        for module in model.modules()
        if hasattr(module, "granularity")
        for parameter in module.parameters()
    }
    return [item.detach() for item in model.parameters() if id(item) not in own]


@pytest.mark.parametrize("kind", MODELS)
def test_one_seed_gives_the_same_weights_to_every_activation(kind: str, folder: Path) -> None:
    model, shape = MODELS[kind]
    data = examples(shape, base=folder)
    state = torch.get_rng_state()
    first = weights(model_maker(model, RELU, data)(seed=5))
    for chosen in SEVERAL[1:] if kind != "timm" else [SMELU]:
        made = weights(model_maker(model, chosen, data)(seed=5))
        assert len(made) == len(first)
        assert all(torch.equal(a, b) for a, b in zip(made, first, strict=True))
    other = weights(model_maker(model, RELU, data)(seed=6))
    assert not any(torch.equal(a, b) for a, b in zip(other, first, strict=True) if a.dim() > 1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["mlp", "asks", "calls"])
@pytest.mark.parametrize("chosen", SEVERAL[:3], ids=lambda one: one.name)
def test_every_path_computes_the_same_function(kind: str, chosen: Chosen, folder: Path) -> None:
    model, shape = MODELS[kind]
    data = examples(shape, base=folder)
    made = model_maker(model, chosen, data)(seed=1)
    function = {"relu": torch.relu, "gelu": nn.functional.gelu, "smelu": lambda x: sk.get("smelu")(x, beta=0.5)}
    x = data.test_x
    one, two, three = [made.first, made.second, made.last] if kind == "calls" else [made[0], made[2], made[4]]
    expected = three(function[chosen.name](two(function[chosen.name](one(x)))))
    torch.testing.assert_close(made(x), expected, rtol=1e-5, atol=1e-6)
    learned = {name for name, _ in made.named_parameters() if name.endswith("raw_beta")}
    assert len(learned) == (2 if chosen.learn else 0)


@pytest.mark.parametrize("kind", ["mlp", "asks", "calls", "cnn"])
@pytest.mark.parametrize("per", ["channel", "neuron"])
def test_a_value_for_each_channel_or_neuron(kind: str, per: str, folder: Path) -> None:
    model, shape = MODELS[kind]
    chosen = Chosen(name="smelu", label="smelu", values={"beta": 0.5}, learn="beta", per=per)
    made = model_maker(model, chosen, examples(shape, base=folder))(seed=0)
    sizes = [tuple(module.beta.shape) for module in made.modules() if isinstance(module, sk.nn.SmeLU)]
    wanted = [(12,), (12,)]
    if kind == "cnn":
        wanted = [(3,), (4,)] if per == "channel" else [(3, 8, 8), (4, 4, 4)]
    assert sizes == wanted


@pytest.mark.parametrize("per", ["layer", "channel"])
def test_what_a_function_did_not_ask_for_stays(per: str, folder: Path) -> None:
    chosen = Chosen(name="smelu", label="smelu", learn="beta", per=per)
    made = model_maker(Model(build="study_model:keeps_one"), chosen, examples(base=folder))(seed=0)
    assert [type(made[at]) for at in (1, 3)] == [sk.nn.SmeLU, nn.ReLU]


def test_what_is_made_can_be_trained_as_replicas(folder: Path) -> None:
    data = examples(base=folder)
    for kind in ("asks", "calls"):
        make = model_maker(MODELS[kind][0], SMELU, data)
        replicas = sk.train.Replicas(make, count=2, seeds=[3, 4])
        torch.testing.assert_close(replicas.predict(data.test_x)[1], make(seed=4)(data.test_x).detach())
        replicas.fit(data.train_x, data.train_y, epochs=1, batch=10, lr=0.1)
        assert replicas.losses.isfinite().all()


def test_one_output_for_the_log_odds_of_two_classes() -> None:
    made = model_maker(MODELS["mlp"][0], RELU, examples(classes=2), loss="bce_with_logits")(seed=0)
    assert made(torch.zeros(5, 6)).shape == (5, 1)


def test_the_recipe_for_ones_own_data_works_as_its_comments_say(tmp_path: Path) -> None:
    lines = recipe_text("own-data").splitlines()
    code = [line.removeprefix("  #     ") for line in lines if line.startswith("  #     ")]
    assert len(code) == 2
    (tmp_path / "my_model.py").write_text("\n".join(["from torch import nn", *code]) + "\n")
    (tmp_path / "my_data.csv").write_text("a,b,label\n" + "".join(f"{i},{'uvw'[i % 3]},{i % 2}\n" for i in range(40)))
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    said = [line.removeprefix("  #   ") for line in lines if line.startswith(("  #   build:", "  #   arguments:"))]
    settings = [f"model.{line.replace(': ', '=', 1)}" for line in said]
    assert len(settings) == 2
    for more in ([], settings):
        recipe = find_recipe(tmp_path / "mine.yaml", settings=more)
        data = recipe_examples(recipe, base=tmp_path)
        trials = train_trials(recipe, data)
        assert len(trials) == 5
        for trial in trials:
            made = model_maker(trial.model, trial.activation, data, init=trial.init)(seed=0)
            assert made(data.test_x).shape == (8, 2)


# -- matched weights ----------------------------------------------------------------------------------------


def mean_square(function: Callable[..., torch.Tensor], **values: float) -> float:
    """E f(Z)^2 by scipy's quadrature of our float64 values."""

    def integrand(z: float) -> float:
        return float(function(torch.tensor([z], dtype=torch.float64), **values)) ** 2 * stats.norm.pdf(z)

    return integrate.quad(integrand, -12, 12, points=[-0.5, 0.0, 0.5], limit=200)[0]


MATCHED = [
    RELU,
    Chosen(name="gelu", label="gelu"),
    SMELU,
    Chosen(name="lambda_gelu", label="l", learn=True),
    Chosen(name="srelu", label="s", values={"delta": 1.0}, learn="delta", per="channel"),
]


@pytest.mark.parametrize("chosen", MATCHED, ids=lambda one: one.name)
def test_the_gain_is_that_of_the_start_values(chosen: Chosen) -> None:
    # A learned lambda starts at 1.01 and not at the 1 that a fixed one has.
    values = {"lambda_gelu": {"lam": 1.01}}.get(chosen.name, dict(chosen.values))
    wanted = mean_square(sk.get(chosen.name), **values) ** -0.5
    assert start_gain(chosen) == pytest.approx(wanted, rel=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("chosen", MATCHED, ids=lambda one: one.name)
def test_matched_weights_keep_the_size_of_the_signal(chosen: Chosen) -> None:
    data = examples((256,))
    model = Model(arguments={"hidden": [512, 512, 512]})
    plain, matched = (model_maker(model, chosen, data, init=init)(seed=2) for init in ("default", "matched"))
    for index, gain in ((0, 1.0), *((at, start_gain(chosen)) for at in (2, 4, 6))):
        ratio = matched[index].weight / plain[index].weight
        assert float(ratio.std()) < 1e-5 * float(ratio.mean())  # the same directions
        size = matched[index].weight.double().square().mean()
        assert float(size) == pytest.approx(gain**2 / matched[index].in_features, rel=1e-5)
        assert torch.equal(matched[index].bias, plain[index].bias)
    x = torch.randn(500, 256, generator=torch.Generator().manual_seed(1))
    variance = [float(matched[:depth](x).var()) for depth in (1, 3, 5)]
    assert all(0.85 < item < 1.15 for item in variance), variance
    assert float(plain[:5](x).var()) < 0.5  # which the default is not


def test_matched_leaves_zeros_and_modes_alone(folder: Path) -> None:
    (folder / "zero_model.py").write_text(
        "from torch import nn\n"
        "def make(activation):\n"
        "    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), activation(), nn.Linear(8, 3))\n"
        "    nn.init.zeros_(model[3].weight)\n"
        "    return model\n"
    )
    made = model_maker(Model(build="zero_model:make"), RELU, examples(base=folder), init="matched")(seed=0)
    assert made.training
    assert not made[3].weight.any()
    assert torch.equal(made[1].running_mean, torch.zeros(8))


def test_names_of_timm() -> None:
    """Here and not beside the other refusals, because importing timm takes seconds."""
    with pytest.raises(RecipeError, match=r"timm has no model 'resnet1'\. Did you mean"):
        read_recipe("name: t\ndata: {set: digits}\nactivations: [relu]\nmodel: {build: 'timm:resnet1'}\n")


# -- what cannot be made ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("nowhere_at_all:make", "no module 'nowhere_at_all'"),
        ("study_modle:asks", "Did you mean 'study_model'?"),
        ("study_model:ask", "Did you mean 'asks'"),
        ("study_model:OWN", "has no function 'OWN'"),
        ("os:system", "makes no models"),
        ("torch.hub:load", "makes no models"),
        ("study_model:forgets", "does not use it"),
        ("study_model:breaks", "ZeroDivisionError: by nought"),
        ("study_model:no_model_of", "must return an nn.Module, not a int"),
        ("study_model:no_model", "must return an nn.Module, not a int"),
        ("needs_more:make", "needs the package 'not_there_at_all'"),
        ("wrong_text:make", "importing 'wrong_text' failed (SyntaxError"),
    ],
)
def test_a_function_of_ones_own_that_does_not_work(build: str, said: str, folder: Path) -> None:
    (folder / "needs_more.py").write_text("import not_there_at_all\n")
    (folder / "wrong_text.py").write_text("def make(:\n")
    with pytest.raises(RecipeError) as caught:
        model_maker(Model(build=build), RELU, examples(base=folder))(seed=0)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        (Model(arguments={"widths": [5, 4, 3]}), (6,), "cannot take examples of shape (6,)"),
        (Model(arguments={"widths": [6, 4, 7]}), (6,), "(2, 7) for 2 examples, and the data needs (2, 3)"),
        (Model(arguments={"hidden": [4, 0]}), (6,), "whole numbers above 0"),
        (Model(arguments={"hidden": 4}), (6,), "must be a list of widths"),
        (Model(arguments={"dropout": 0.5}), (6,), "dropout must be a section such as {input: 0.2, hidden: 0.5}"),
        (Model(), (1, 8, 8), "one row of numbers"),
        (Model(build="cnn"), (6,), "takes images"),
        (Model(build="cnn", arguments={"channels": [4] * 5}), (1, 8, 8), "at least 32 x 32"),
        (Model(build="study_model:asks", arguments={"wdth": 3}), (6,), "Look at model.arguments"),
        (Model(build="study_model:calls", replacing="relu"), (6,), "it computes gelu"),
    ],
)
def test_a_model_that_does_not_fit(model: Model, shape: tuple[int, ...], said: str, folder: Path) -> None:
    for init in ("default", "matched"):
        with pytest.raises(RecipeError) as caught:
            model_maker(model, RELU, examples(shape, base=folder), init=init)(seed=0)
        assert said in str(caught.value)


def test_a_model_of_timm_that_does_not_take_an_argument() -> None:
    pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    model = Model(build="timm:resnet10t", arguments={"depht": 3})
    with pytest.raises(RecipeError, match=r"timm:resnet10t\(num_classes, in_chans, depht\) failed .*model.arguments"):
        model_maker(model, RELU, examples((3, 32, 32)))(seed=0)


def test_one_example_is_enough_to_try_a_model_with() -> None:
    whole = examples((6,))
    few = replace(whole, train_x=whole.train_x[:1], train_y=whole.train_y[:1])
    assert model_maker(Model(), RELU, few)(seed=0)(few.train_x).shape == (1, 3)


def test_each_recipe_has_the_module_beside_it(tmp_path: Path) -> None:
    for name, number in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same_name.py").write_text(f"def make():\n    return {number}\n")
    results = [find_function("same_name:make", folder=tmp_path / name)() for name in ("one", "two", "one")]
    assert results == [1, 2, 1]


def test_a_changed_model_is_another_trial(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    file.write_text("def make():\n    return 1\n")
    before = source_fingerprint("changing:make", folder=tmp_path)
    file.write_text("def make():\n    return 2\n")
    after = source_fingerprint("changing:make", folder=tmp_path)
    assert len(before) == 64
    assert before != after
    assert source_fingerprint("changing:make", folder=tmp_path) == after


@torch.no_grad()
def test_keras_weights_are_glorots_and_its_biases_zero() -> None:
    model = Model(arguments={"hidden": [300, 200]})
    made = model_maker(model, RELU, examples((100,)), init="keras")(seed=2)
    for layer in (layer for layer in made if isinstance(layer, nn.Linear)):
        limit = math.sqrt(6 / (layer.in_features + layer.out_features))
        assert not layer.bias.any()
        assert 0.95 * limit < float(layer.weight.abs().max()) <= limit
        assert float(layer.weight.std()) == pytest.approx(limit / math.sqrt(3), rel=0.06)
    again = model_maker(model, RELU, examples((100,)), init="keras")(seed=2)
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), again.parameters(), strict=True))
