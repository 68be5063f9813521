"""The recipes of the four older papers, and one of SQUAF's that shares their network: each from its data to its outcome
as a smoke run."""

from dataclasses import replace

import pytest
import torch
from papers.runs import recipe_file, recipe_named, recipe_names
from torch import nn

import idx_files
from data_files import publish_cifar, tiny_imagenet_files, write_adult, write_binary, write_imagenet, write_tree
from softknee.lab import vision_networks
from softknee.lab.data import idx
from softknee.lab.report import summarise
from softknee.lab.report.summary import origin_of
from softknee.lab.report.tables import markdown
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.reading import read_recipe, to_yaml
from softknee.lab.studies.reporting import recipe_of
from softknee.lab.studies.runner import run_study, smoke
from softknee.lab.studies.store import RunStore
from softknee.lab.studies.trials import train_trials
from softknee.lab.vision_networks import NETWORKS

PAPERS = ("eafo-", "lambda-gelu-", "mollification-", "smelu-figure-", "squaf-table-6-vit-short")
CLICKS = "smelu-figure-3"  # on clicks: test_recipes_clicks.py
FASHION = str(recipe_file("lambda-gelu-fashion"))
NAMES = [
    name
    for name in recipe_names()
    if name.startswith(PAPERS) and not name.startswith(CLICKS) and recipe_named(name).task is None
]
# The networks are theirs, with fewer layers and channels: what is tested is the way through, and not the time it takes.
SMALL = {
    "mlp": ["model.arguments.hidden=[8, 8]"],
    "timm:deit_tiny_patch16_224": ["model.arguments.depth=1", "model.arguments.embed_dim=12"],
    "timm:convnext_tiny": ["model.arguments.depths=[1, 1, 1, 1]", "model.arguments.dims=[4, 4, 4, 4]"],
    "timm:resnet18": ["model.arguments.layers=[1, 1, 1, 1]", "model.arguments.channels=[4, 4, 4, 4]"],
}
# Of networks by name, which a recipe does not make smaller: what timm is asked for in their place.
SMALLER = {
    "vit_tiny_patch16_224": {"depth": 1, "embed_dim": 12},
    "deit_tiny_distilled_patch16_224": {"depth": 1, "embed_dim": 12},
    "tnt_s_legacy_patch16_224": {"depth": 1, "embed_dim": 12, "inner_dim": 4, "num_heads_inner": 2},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with small files in the formats of all data sets of the recipes, written once."""
    folder = tmp_path_factory.mktemp("files") / "data"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mnist", "fashion-mnist"):
            idx_files.write(folder / name)
            patch.setitem(idx.SETS, name, idx_files.as_published(name))
        for name in ("cifar-10", "cifar-100"):
            publish_cifar(patch, name, write_binary(folder, name))
        write_adult(folder / "adult", patch)
        write_tree(folder / "tiny-imagenet-200", tiny_imagenet_files())
        write_imagenet(folder / "imagenet")
        yield folder


@pytest.fixture
def data(files, monkeypatch):
    monkeypatch.setenv("SOFTKNEE_DATA", str(files))
    return files


@pytest.fixture
def small_networks(monkeypatch):
    whole = vision_networks._timm
    monkeypatch.setattr(vision_networks, "_timm", lambda name, **given: whole(name, **given, **SMALLER.get(name, {})))


def test_the_tables_are_there():
    assert NAMES == [
        "eafo-entropic-spline",
        "eafo-table-1",
        "eafo-table-1-deit",
        "eafo-table-1-tnt",
        "eafo-table-2",
        "eafo-table-2-deit",
        "eafo-table-2-tnt",
        "eafo-table-3-deit",
        "eafo-table-3-vit",
        "lambda-gelu-adult",
        "lambda-gelu-cifar-10",
        "lambda-gelu-cifar-100",
        "lambda-gelu-cifar-100-small",
        "lambda-gelu-fashion",
        "lambda-gelu-figure-1",
        "lambda-gelu-figure-2",
        "lambda-gelu-figure-2-small",
        "lambda-gelu-tiny-imagenet",
        "mollification-table-1",
        "mollification-table-1-augmented",
        "mollification-table-1-deit",
        "mollification-table-1-deit-cifar-100",
        "mollification-table-1-deit-imagenet",
        "mollification-table-1-deit-small",
        "mollification-table-1-tnt",
        "mollification-table-1-tnt-cifar-100",
        "mollification-table-1-tnt-small",
        "mollification-table-1-vit-cifar-100",
        "mollification-table-1-vit-cifar-100-short",
        "mollification-table-1-vit-imagenet",
        "mollification-table-2",
        "mollification-table-2-augmented",
        "mollification-table-2-cifar-100",
        "mollification-table-2-cifar-100-small",
        "mollification-table-2-imagenet",
        "mollification-table-4",
        "mollification-table-4-cifar-100",
        "mollification-table-4-small",
        "smelu-figure-13",
        "smelu-figure-13-small",
        "smelu-figure-4",
        "smelu-figure-4-keras",
        "squaf-table-6-vit-short",
    ]


def kind(name: str) -> tuple:
    """What the way of a recipe through the package depends on: tables of two papers often have the same."""
    recipe = recipe_named(name)
    return recipe.model.build, recipe.data.set, recipe.training.engine, recipe.training.optimizer, recipe.measures


KINDS = {kind(name): name for name in NAMES}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in KINDS.values()])
def test_each_of_a_kind_that_runs_has_its_trials(name, data):
    """Those that are not run below: their examples are read, and their trials are those of a smoke run and others."""
    whole = recipe_named(name)
    small = smoke(whole)
    result = train_trials(small, recipe_examples(small))
    assert len(result) == 2
    assert not {item.key for item in result} & {trial.key for trial in train_trials(whole, recipe_examples(whole))}


# torch's own remark on attention of several models at once on a CPU.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", KINDS.values())
def test_each_runs_from_its_files_to_its_outcomes(name, data, small_networks, tmp_path):
    if recipe_named(name).model.build != "mlp":
        pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    # The small CIFAR-100 has one image of each class, of which none is left for validation.
    own = recipe_named(name)
    last = ["select=last"] if (own.data.set, own.select) == ("cifar-100", "best_val") else []
    whole = recipe_named(name, settings=[*SMALL.get(own.model.build, []), *last])
    small = smoke(whole)
    result = run_study(small, out=tmp_path / "study", threads=1)
    assert len(result) == 2
    for item in result:
        assert item.diverged == (None, None)
        assert len(item.curves["train_loss"]) == 1
        assert all(0 <= score <= 1 for score in item.test["accuracy"])
        assert (item.replacement is not None) == (item.trial.activation.harden or item.trial.activation.replace)
        assert bool(item.entropy) == ("entropy" in whole.measures)
    real = {trial.key for trial in train_trials(whole, recipe_examples(whole))}
    assert not real & {value.trial.key for value in result}


def test_the_recipes_settings_are_those_of_the_papers():
    for name in NAMES:
        recipe = recipe_named(name)
        assert read_recipe(to_yaml(recipe)) == recipe
        assert recipe.paper is not None
        assert recipe.paper.note
        if name == "eafo-entropic-spline" or name.endswith("-small"):  # settings of ours, for which a CPU is enough
            continue
        assert recipe.device == "cuda"
        if name.startswith(("eafo", "mollification")):
            training = recipe.training
            assert (training.optimizer, training.learning_rate, training.weight_decay) == ("adamw", 2.5e-4, 0.05)
            epochs = 15 if name.endswith("-short") else 100
            assert (training.batch, training.epochs, training.clip, training.warmup) == (256, epochs, 1.0, 0.2)
    sgd, adagrad = recipe_named("smelu-figure-4"), recipe_named("smelu-figure-13")
    assert replace(adagrad, name=sgd.name, title=sgd.title, training=sgd.training, paper=sgd.paper) == sgd
    assert (sgd.seeds.count, sgd.seeds.share_init, sgd.training.momentum, sgd.training.epochs) == (12, True, 0.9, 50)
    assert (adagrad.training.epochs, adagrad.training.learning_rate) == (150, 0.02)


# The EAFO paper's table 7, also for the mollification paper's rows; a learned number is one for each place. The
# ResNet-18's is 17 convolutions, 3 shortcuts, their norms and the last layer, counted by hand.
COUNTS = {
    ("resnet18", "cifar-100"): (11_220_132, 17),
    ("vit_tiny", "cifar-10"): (5_399_818, 12),
    ("vit_tiny", "cifar-100"): (5_417_188, 12),
    ("vit_tiny", "imagenet"): (5_754_472, 12),
    ("deit_tiny", "cifar-10"): (5_365_076, 12),
    ("deit_tiny", "cifar-100"): (5_399_816, 12),
    ("deit_tiny", "imagenet"): (5_910_800, 12),
    ("tnt_small", "cifar-10"): (21_525_298, 24),
    ("tnt_small", "cifar-100"): (21_559_948, 24),
}
CLASSES = {"cifar-10": 10, "cifar-100": 100, "imagenet": 1000}


def test_the_networks_of_the_recipes_have_the_papers_counts():
    pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    asked = {}
    for name in NAMES:
        recipe = recipe_named(name)
        if recipe.model.build in NETWORKS:
            asked[recipe.model.build, recipe.data.set] = dict(recipe.model.arguments)
    assert asked.keys() == COUNTS.keys()
    for (build, data_set), arguments in asked.items():
        with torch.device("meta"):
            net = NETWORKS[build](classes=CLASSES[data_set], activation=nn.PReLU, **arguments)
        learned = sum(isinstance(module, nn.PReLU) for module in net.modules())
        count = sum(parameter.numel() for parameter in net.parameters())
        assert (count - learned, learned) == COUNTS[build, data_set], (build, data_set)


@pytest.mark.parametrize(("name", "own"), [("eafo-table-1", []), ("squaf-table-6-vit-short", ["squaf first"])])
def test_trials_that_two_papers_share_have_one_key(name, own, data):
    every, some = (
        {trial.activation.label: trial.key for trial in train_trials(each, recipe_examples(each))}
        for each in (recipe_named("mollification-table-1"), recipe_named(name))
    )
    assert [label for label, key in some.items() if every.get(label) != key] == own


# -- smoke runs ---------------------------------------------------------------------------------------------


def test_a_smoke_run_says_so_and_stays_apart(softknee, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--set", SMALL["mlp"][0]]
    code, out, err = softknee("study", "run", FASHION, "--smoke", "--no-report", *small)
    assert code == 0
    assert "Smoke run: " in err
    assert "Smoke run, its numbers mean nothing" in " ".join(out.split())
    store = RunStore("studies/lambda-gelu-fashion-smoke")
    text = markdown(summarise(recipe_of(store), store.outcomes()), origin_of(recipe_of(store), command=""))
    assert "Smoke run, its numbers mean nothing" in text
    assert not (tmp_path / "studies/lambda-gelu-fashion").exists()
    command = ("study", "run", FASHION, *small, "--set", "device=cpu", "--no-report")
    code, _, err = softknee(*command, "--out", "studies/lambda-gelu-fashion-smoke")
    assert code != 0
    assert "another recipe" in err


def test_a_smoke_run_keeps_what_does_most_and_a_little_of_the_tuning():
    small = smoke(recipe_named("fashion-cnn"))
    assert [activation.title for activation in small.activations] == ["relu", "lambda_gelu"]
    assert small.tuning is not None
    assert (small.tuning.learning_rate, small.tuning.seeds) == ((3e-4, 1e-3), 1)
    assert (small.data.limit, small.training.batch, small.device, small.paper) == (8, 4, "cpu", None)
    assert "cost" not in small.measures
    assert smoke(recipe_named("smelu-figure-4")).activations[1].values == {"lam": 1.0, "beta": 1.0}
