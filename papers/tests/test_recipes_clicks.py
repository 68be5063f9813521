"""The SmeLU paper's click models: their counts, and the recipes."""

import os
from dataclasses import replace
from itertools import product

import pytest
import torch
from papers.runs import recipe_named
from torch.nn import functional as F

from click_streams import EMBEDDINGS, dense, parameters, plain_stream, write_small_criteo
from softknee.errors import DataError, RecipeError
from softknee.lab.clicks import click_model
from softknee.lab.data.criteo import load_criteo
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.runner import run_study, smoke

# Equation 22, as the paper prints it.
N = [1373, 2148, 4847, 9781, 396, 28, 3591, 2798, 14, 7403, 2511, 5598, 9501, 46, 4753, 4056, 23, 3828, 5856, 12, 4226]
N += [23, 61, 3098, 494, 5087]
RECIPES = (
    *(f"smelu-table-{table}{start}" for table in (1, 2, 3) for start in ("", "-keras")),
    "smelu-figure-3",
    "smelu-figure-3-twelve",
)


@pytest.fixture
def data(tmp_path):
    return write_small_criteo(tmp_path / "data")


# -- the model ------------------------------------------------------------------------------------------------


def test_the_counts_follow_from_the_papers_equations():
    inputs = 13 + sum(d or n for n, d in zip(N, EMBEDDINGS, strict=True))
    tables = sum(n * d for n, d in zip(N, EMBEDDINGS, strict=True))
    assert inputs == 1042
    with torch.device("meta"):
        model = click_model()
    assert model[0].width == inputs
    assert parameters(model) == tables + dense(inputs, 2572, 1454, 1596, 1) == 10_333_914
    online = recipe_named("smelu-figure-3").model.arguments
    assert sum(online["embed"].values()) == 240
    tables = sum(N[int(column[1:]) - 1] * size for column, size in online["embed"].items())
    assert parameters(click_model(**online)) == tables + dense(240, 1024, 512, 256, 128, 64, 16, 1) == 1_929_761


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
