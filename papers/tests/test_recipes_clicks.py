"""The SmeLU paper's click models: their inputs and counts, progressive validation against a plain loop, the recipes."""

import os
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from papers.runs import recipe_named
from torch import nn
from torch.nn import functional as F

import softknee as sk
from click_streams import FEW, plain_stream, stream_model
from data_files import write_criteo
from softknee.errors import DataError, InputError, ParameterError, RecipeError
from softknee.lab.clicks import ClickInputs, build_by_name, click_model
from softknee.lab.data.criteo import load_criteo
from softknee.lab.networks import build
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.runner import run_study, smoke
from softknee.train import random_keys
from softknee.train.random_keys import order

# Equations 22 and 23, as the paper prints them.
N = [1373, 2148, 4847, 9781, 396, 28, 3591, 2798, 14, 7403, 2511, 5598, 9501, 46, 4753, 4056, 23, 3828, 5856, 12, 4226]
N += [23, 61, 3098, 494, 5087]
D = [3, 9, 29, 11, 17, 0, 14, 4, 0, 12, 19, 24, 29, 0, 13, 25, 0, 8, 29, 0, 22, 0, 0, 31, 0, 29]
RECIPES = (
    *(f"smelu-table-{table}{start}" for table in (1, 2, 3) for start in ("", "-keras")),
    "smelu-figure-3",
    "smelu-figure-3-twelve",
)


@pytest.fixture
def data(tmp_path):
    """A folder with small files of Criteo's format."""
    for part, count in (("train", 96), ("dev", 24), ("test", 24)):
        write_criteo(tmp_path / "data" / "criteo" / f"dac8k_{part}.tsv", count, seed=len(part))
    return tmp_path / "data"


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def dense(*widths: int) -> int:
    return sum((wide + 1) * narrow for wide, narrow in pairwise(widths))


# -- the model ------------------------------------------------------------------------------------------------


def test_the_counts_follow_from_the_papers_equations():
    inputs = 13 + sum(d or n for n, d in zip(N, D, strict=True))
    tables = sum(n * d for n, d in zip(N, D, strict=True))
    assert inputs == 1042
    with torch.device("meta"):
        model = click_model()
    assert model[0].width == inputs
    assert parameters(model) == tables + dense(inputs, 2572, 1454, 1596, 1) == 10_333_914
    online = recipe_named("smelu-figure-3").model.arguments
    assert sum(online["embed"].values()) == 240
    tables = sum(N[int(column[1:]) - 1] * size for column, size in online["embed"].items())
    assert parameters(click_model(**online)) == tables + dense(240, 1024, 512, 256, 128, 64, 16, 1) == 1_929_761


def test_inputs_are_numbers_embeddings_and_one_hots(data):
    x, _ = load_criteo(data)["train"]
    inputs = ClickInputs({f"C{k + 1}": d for k, d in enumerate(D)})
    actual = inputs(x)
    assert actual.shape == (len(x), 1042)
    for row, given in zip(actual.tolist()[:5], x.tolist()[:5], strict=True):
        wanted = given[:13]
        for k, (n, d) in enumerate(zip(N, D, strict=True)):
            bucket = int(given[13 + k])
            if d:
                wanted += inputs.tables[f"C{k + 1}"][bucket].tolist()
            else:
                wanted += [float(place == bucket) for place in range(n)]
        assert row == wanted


def test_a_seed_decides_the_weights_and_hidden_rows_keep_their_norm():
    made = [click_model(hidden=(6, 4), embed=FEW, weight_norm=2.0, seed=seed) for seed in (1, 1, 2)]
    state = [dict(item.named_parameters()) for item in made]
    assert all(torch.equal(value, state[1][name]) for name, value in state[0].items())
    assert not torch.equal(state[0]["0.tables.C9"], state[2]["0.tables.C9"])
    torch.testing.assert_close(made[0][1].weight.norm(dim=1), torch.full((6,), 2.0))
    torch.testing.assert_close(made[0][3].weight.norm(dim=1), torch.full((4,), 2.0))
    assert made[0][5].weight.norm() != 2.0  # the output is no hidden neuron
    begun = ClickInputs({"C9": 50}, spread=0.25).tables["C9"].detach()
    assert begun.abs().max().item() == pytest.approx(0.25, rel=0.02)


def test_it_is_built_by_name_with_activations_by_channel():
    model = build("click_model", hidden=[6, 4], embed=FEW, activation="smelu", beta=2.0, per="channel", learn=True)
    assert [tuple(item.beta.shape) for item in (model[2], model[4])] == [(6,), (4,)]
    assert parameters(build_by_name(hidden=[6], embed={"C9": 3})) == 14 * 3 + dense(16, 6, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hidden": []}, "hidden must be whole numbers"),
        ({"embed": {"C27": 3}}, "C1 to C26"),
        ({"embed": {"C1": -1}}, "size of C1"),
        ({"embed": [3]}, "embed is"),
        ({"embed": {}, "numbers": False}, "nothing to predict from"),
        ({"spread": 0.0}, "spread"),
    ],
    ids=["hidden", "column", "size", "list", "nothing", "spread"],
)
def test_what_is_no_model_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        click_model(**given)


def test_rows_of_another_kind_are_refused():
    with pytest.raises(InputError, match="13 numbers and 26 buckets"):
        click_model(hidden=(4,), embed=FEW)(torch.zeros(2, 64))


# -- the order of a stream ------------------------------------------------------------------------------------


def test_a_window_keeps_the_order_of_what_lies_apart(monkeypatch):
    result = order(seeds=[0, 5], epoch=1, length=25, window=10)
    for start, stop in ((0, 10), (10, 20), (20, 25)):
        for row in result[:, start:stop].tolist():
            assert sorted(row) == list(range(start, stop))
    assert result[0].tolist() != result[1].tolist()
    assert order(seeds=[3], epoch=0, length=7, window=1).tolist() == [list(range(7))]
    assert torch.equal(order(seeds=[3], epoch=0, length=7, window=7), order(seeds=[3], epoch=0, length=7))
    monkeypatch.setattr(random_keys, "_LONG", 8)  # many examples are ordered seed by seed
    assert torch.equal(order(seeds=[0, 5], epoch=1, length=25, window=10), result)
    with pytest.raises(ParameterError, match="window"):
        order(seeds=[0], epoch=0, length=7, window=0)


# -- progressive validation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [None, 1.0], ids=["free", "normed"])
def test_progressive_predictions_are_those_of_a_plain_loop(data, norm):
    x, y = load_criteo(data)["train"]
    x = x[:90]  # the last batch is smaller
    y = y[:90]
    replicas = sk.train.Replicas(lambda seed: stream_model(seed, norm), count=3, seeds=[4, 5, 6], share_init=True)
    replicas.fit(
        *(x, y), epochs=1, batch=16, lr=0.1, optimizer="adagrad", initial_accumulator_value=0.1,
        loss="bce_with_logits", shuffle=32, progressive=True,
    )  # fmt: skip
    predictions, losses = plain_stream(x, y, seeds=[4, 5, 6], shared=True, window=32, batch=16, lr=0.1, norm=norm)
    torch.testing.assert_close(replicas.progressive_predictions.squeeze(2), predictions, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(replicas.losses, losses, rtol=1e-4, atol=1e-5)
    # Whatever was said at the end, after training, is something else.
    assert (replicas.predict(x).squeeze(2) - predictions).abs().max() > 0.01
    replicas.fit(x, y, epochs=1, batch=16, lr=0.1, loss="bce_with_logits")
    assert replicas.progressive_predictions is None


def test_what_is_no_single_pass_of_predictions_is_refused(data):
    x, y = load_criteo(data)["train"]
    usual = {"batch": 16, "lr": 0.1, "loss": "bce_with_logits", "progressive": True}
    with pytest.raises(ParameterError, match="epochs must be 1"):
        sk.train.Replicas(stream_model, count=2).fit(x, y, epochs=2, **usual)
    for odd in (nn.Dropout(0.5), nn.BatchNorm1d(39)):
        other = sk.train.Replicas(lambda odd=odd: nn.Sequential(odd, nn.Linear(39, 1)), count=2)
        with pytest.raises(ParameterError, match=f"'0' \\({type(odd).__name__}\\)"):
            other.fit(x, y, epochs=1, **usual)


# -- recipes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_runs_from_its_files_to_its_outcomes(name, data, tmp_path):
    small = smoke(recipe_named(name, settings=["model.arguments.hidden=[8, 4]"]))
    result = run_study(small, out=tmp_path / "study", data_folder=data, threads=1)
    assert result[0].trial.activation.name == "relu"
    for item in result:
        assert {"accuracy", "log_loss"} <= item.test.keys()
        assert item.difference["binary"]["value"] >= 0
        assert item.trial.model.build == "click_model"


def test_the_settings_are_those_of_the_paper():
    tables = {number: recipe_named(f"smelu-table-{number}") for number in (1, 2, 3)}
    for table in tables.values():
        assert (table.seeds.count, table.training.epochs, table.training.optimizer) == (40, 1, "adam")
        assert table.model.arguments["hidden"] == (2572, 1454, 1596)
        assert len(table.paper.values) == 12
    shared = {number: (item.seeds.share_init, item.training.shuffle) for number, item in tables.items()}
    assert shared == {1: (False, None), 2: (False, 1), 3: (True, None)}
    assert tables[1].paper.values["smelu beta=2.5"] == {"auc": 78.7, "delta_1": 0.029, "binary": 0.225}
    online = recipe_named("smelu-figure-3")
    assert (online.seeds.count, online.training.optimizer, online.training.epochs) == (2, "adagrad", 1)
    twelve = recipe_named("smelu-figure-3-twelve")
    assert replace(twelve, name=online.name, title=online.title, seeds=online.seeds, paper=online.paper) == online


def test_a_progressive_study_is_judged_by_what_was_said_before_training(data, tmp_path):
    sets = ["model.arguments.hidden=[8, 4]", "model.arguments.embed={C6: 0, C9: 3, C20: 2}", "device=cpu"]
    sets += ["training.batch=16", "training.shuffle=32", "keep=[predictions]", "model.arguments.numbers=true"]
    recipe = recipe_named(
        "smelu-figure-3", settings=[*sets, "activations=[{name: smelu, beta: 0.5}]", "baseline=smelu"]
    )
    (actual,) = run_study(recipe, out=tmp_path / "study", data_folder=data, threads=1)
    x, y = load_criteo(data)["train"]
    predictions, _ = plain_stream(x, y, seeds=[0, 1], shared=True, window=32, batch=16, lr=0.1, norm=1.0)
    late, truth = predictions[:, 48:].double(), y[48:].double()
    wanted = F.binary_cross_entropy_with_logits(late, truth.expand_as(late), reduction="none").mean(dim=1)
    assert actual.test["log_loss"] == pytest.approx(wanted.tolist(), rel=1e-3)
    right = [((row > 0) == (truth > 0)).double().mean().item() for row in late]
    assert actual.test["accuracy"] == pytest.approx(right)
    chances = late.sigmoid()
    middle = chances.mean(dim=0)
    relative = (2 * (chances - middle).abs() / middle).mean().item()  # both labels over that of label 1
    assert actual.difference["binary"]["value"] == pytest.approx(relative, rel=1e-3)
    clicked, others = late[:, truth == 1], late[:, truth == 0]
    for score, two in zip(actual.test["auc"], zip(clicked.tolist(), others.tolist(), strict=True), strict=True):
        pairs = [0.5 if abs(a - b) < 1e-6 else float(a > b) for a, b in product(*two)]
        assert score == pytest.approx(sum(pairs) / len(pairs), abs=2e-3)


@pytest.mark.skipif(not os.environ.get("SOFTKNEE_DATA"), reason="SOFTKNEE_DATA is not set: there are no real files")
def test_a_recipe_runs_on_the_real_files(tmp_path):
    small = smoke(recipe_named("smelu-figure-3", settings=["model.arguments.hidden=[8, 4]"]))
    result = run_study(small, out=tmp_path / "study", threads=1)
    assert all(0 < item.test["log_loss"][0] < 5 for item in result)


def test_missing_files_are_named_with_their_place(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as refused:
        recipe_examples(recipe_named("smelu-table-1"), folder=tmp_path / "empty")
    for part in (str(tmp_path / "empty"), "criteo/dac8k_train.tsv", "softknee data criteo", "SOFTKNEE_DATA"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.epochs=2", "needs training.epochs 1"),
        ("training.engine=loop", "training.engine 'replicas'"),
        ("training.progressive=0", "training.progressive must be a share"),
        ("training.shuffle=0", "training.shuffle"),
        ("activations=[{name: gelu, replace: true}]", "judged after training"),
        ("model.arguments.embedd=3", "Did you mean 'embed'"),
    ],
    ids=["epochs", "engine", "share", "shuffle", "replace", "argument"],
)
def test_a_recipe_that_cannot_be_judged_so_is_refused(setting, message):
    with pytest.raises(RecipeError, match=message):
        recipe_named("smelu-figure-3", settings=[setting, "baseline=gelu"] if "gelu" in setting else [setting])


def test_other_data_are_refused_with_what_the_model_takes(tmp_path):
    model = "{build: click_model, arguments: {hidden: [4]}}"
    text = f"name: x\ndata: {{set: clusters-3}}\nmodel: {model}\nactivations: [relu]\nseeds: 2\n"
    with pytest.raises(RecipeError, match="rows of 13 numbers"):
        run_study(read_recipe(text), out=tmp_path / "study", threads=1)
