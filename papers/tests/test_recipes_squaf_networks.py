"""The recipes of the SQUAF paper's tables 4 and 6: counts, where SQUAF starts and learns, and a smoke run of each."""

import pytest
import torch
from papers.runs import recipe_file, recipe_named, recipe_names
from torch import nn

import softknee as sk
from data_files import publish_cifar, write_binary
from small_images import tiny
from softknee.errors import RecipeError
from softknee.lab import vision_networks as room
from softknee.lab.studies.building import start_squaf_
from softknee.lab.studies.reading import combinations, read_recipe, to_yaml
from softknee.lab.studies.recipe import Choice
from softknee.lab.studies.runner import run_study, smoke
from softknee.lab.studies.trial import Chosen
from softknee.lab.vision_networks import NETWORKS

TABLES = [name for name in recipe_names() if name.startswith(("squaf-table-4-", "squaf-table-6-", "squaf-table-7-"))]
TABLES.remove("squaf-table-6-vit-short")  # shares its network with other papers: test_paper_recipes.py
SHORT = [name for name in TABLES if name.endswith("-short")]
NAMES = [name for name in TABLES if name not in SHORT and "table-7" not in name]
SAME = (
    "optimizer", "momentum", "weight_decay", "activation_optimizer", "activation_learning_rate", "factor",
)  # fmt: skip
CNNS = ("vgg8", "vgg13", "resnet56", "shufflenetv1")
# timm's networks with fewer layers and channels: what is tested is the way through, and not the time it takes.
FEW = {
    "resnet18": {"layers": [1, 1, 1, 1], "channels": [4, 4, 4, 4]},
    "resnet34": {"layers": [1, 1, 1, 1], "channels": [4, 4, 4, 4]},
    "vit_tiny_patch16_224": {"depth": 2, "embed_dim": 12, "img_size": 32},
    "swin_tiny_patch4_window7_224": {
        "embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1), "img_size": 32, "window_size": 2
    },
    "efficientformer_l1": {"depths": (1, 1, 1, 1), "embed_dims": (4, 4, 4, 8)},  # its attention knows one size
}  # fmt: skip
# What the paper's table 13 says that SQUAF adds, with 1,000 and with 100 classes; ResNet-56's count is that of 20.
ADDED = {
    "squaf-table-4-resnet18": (11_689_512, 455),
    "squaf-table-4-resnet34": (21_797_672, 945),
    "squaf-table-4-vit": (5_717_416, 420),  # the table has 5,543,716, which is ViT-T with 100 classes
    "squaf-table-4-swin": (28_288_354, 350),
    "squaf-table-6-vit": (5_543_716, 35),
    "squaf-table-6-efficientformer": (11_481_728, 35),
}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Small files of CIFAR-100, and small networks in the place of the paper's."""
    publish_cifar(monkeypatch, "cifar-100", write_binary(tmp_path / "data", "cifar-100"))
    monkeypatch.setenv("SOFTKNEE_DATA", str(tmp_path / "data"))
    for name in CNNS:
        monkeypatch.setitem(NETWORKS, name, tiny)
    whole = room._timm
    monkeypatch.setattr(room, "_timm", lambda name, *, classes: whole(name, classes=classes, **FEW[name]))


def test_the_columns_are_there():
    columns = [f"squaf-table-4-{name}" for name in ("resnet18", "resnet34", "swin", "vit")]
    columns += [f"squaf-table-6-{name}" for name in sorted((*CNNS, "vit", "efficientformer"))]
    assert columns == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_from_its_files_to_its_outcomes(name, small, tmp_path):
    if recipe_named(name).model.build == "enlarged":
        pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    settings = ["data.set=cifar-100"]
    if recipe_named(name).model.build == "enlarged" and "efficientformer" not in name:
        settings.append("model.arguments.side=32")
    result = run_study(smoke(recipe_named(name, settings=settings)), out=tmp_path / "study", threads=1)
    assert len(result) == 2
    learned = result[1].trial.activation
    assert (learned.name, result[1].diverged) == ("squaf", (None, None))
    trained = {"squaf-table-4-vit": 2 * 35}.get(name, 3 * 35 if "table-4-swin" in name else 35)
    places = {"squaf-table-4-resnet18": 7, "squaf-table-4-resnet34": 7}.get(name)  # the stem and three stages of two
    assert result[1].trained - result[0].trained == (trained if places is None else 35 * places)


@pytest.mark.parametrize("name", ADDED)
def test_squaf_adds_as_many_numbers_as_in_the_paper(name):
    pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    recipe = recipe_named(name)
    (chosen,) = combinations(recipe.activations[-1])
    plain, added = ADDED[name]
    classes = 1000 if "table-4" in name else 100
    with torch.device("meta"):
        model = NETWORKS["enlarged"](classes=classes, activation=nn.ReLU, model=recipe.model.arguments["model"])
        assert count(model) == plain
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.ReLU):
            parent, _, last = path.rpartition(".")
            setattr(model.get_submodule(parent), last, sk.nn.SQUAF(k=16, q=1.0, learn=True))
    start_squaf_(model, Chosen(name="squaf", label="squaf", learn=True, trained=chosen.trained))
    assert count(model) - plain == added


def test_the_settings_are_those_of_the_paper():
    for name in NAMES:
        recipe = recipe_named(name)
        assert read_recipe(to_yaml(recipe)) == recipe
        assert recipe.paper is not None
        squaf = recipe.activations[-1]
        assert (squaf.name, squaf.values["k"], squaf.learn) == ("squaf", 16, True)
        cnn = recipe.training.optimizer == "sgd"
        assert squaf.fitted == ("relu" if cnn else "gelu")
        assert squaf.values["q"] == (1.0 if cnn or "table-4" in name else 0.25)
        own = recipe.training.activation_optimizer, recipe.training.activation_learning_rate
        assert own == (("adam", 1e-3) if cnn else (None, None))
        if not cnn:
            assert recipe.training.activation_rate == 1
        else:  # said, because the paper does not say it
            assert ("which does not fall" if "table-4" in name else "and here it does not") in recipe.paper.note
        if "table-6" in name and cnn:
            training = recipe.training
            assert (training.batch, training.epochs, training.milestones) == (64, 240, (150, 180, 210))
            assert training.learning_rate == (0.01 if "shuffle" in name else 0.05)
            assert (training.momentum, training.schedule) == (0.9, "step")
        other = recipe_named(name, settings=["data.set=cifar-10", f"name={name}-cifar-10"])
        assert (other.data.set, other.name) == ("cifar-10", f"{name}-cifar-10")


def test_short_schedules_have_the_papers_networks_and_numbers():
    students = [f"squaf-table-7-{name}-short" for name in ("vgg", "wrn")]
    assert [*(f"squaf-table-6-{name}-short" for name in sorted(CNNS)), *students] == SHORT
    for name in SHORT:
        short, own = recipe_named(name), recipe_named(name.removesuffix("-short"))
        assert read_recipe(to_yaml(short)) == short
        assert (short.model, short.augment, short.task) == (own.model, own.augment, own.task)
        assert set(map(str, short.activations)) < set(map(str, own.activations))
        assert short.seeds.count == 5
        for key in SAME:
            assert getattr(short.training, key) == getattr(own.training, key)
        epochs, milestones = short.training.epochs, short.training.milestones
        assert [round(240 * milestone / epochs) for milestone in milestones] == [150, 180, 210]
        assert short.paper is not None
        assert own.paper is not None
        assert f"{epochs} epochs" in short.paper.note
        file = recipe_file(name)
        assert file is not None
        assert f"{epochs} of the 240" in " ".join(file.read_text(encoding="utf-8").split())
        labels = {chosen.label or chosen.name for chosen in short.activations}
        assert set(short.paper.values) == labels - {"polyrelu"}  # which does not converge there
        for label, values in short.paper.values.items():
            assert values["accuracy"] == own.paper.values[label]["accuracy"]


def test_a_fitted_start_is_that_of_the_papers_networks():
    first, second = (sk.nn.SQUAF(k=16, q=0.25, learn=("q", "z")) for _ in range(2))
    model = nn.Sequential(first, nn.Linear(2, 2), second)
    chosen = {"name": "squaf", "label": "squaf", "learn": ("q", "z")}
    start_squaf_(model, Chosen(**chosen))
    assert first.z[0, 16] == 0  # as it was: ReLU at the points
    start_squaf_(model, Chosen(**chosen, fitted="gelu", trained="first"))
    wanted = sk.design.start("gelu", k=16, q=0.25)
    for item in (first, second):
        torch.testing.assert_close(item.z.detach().flatten().double(), wanted.z, rtol=1e-6, atol=1e-6)
        assert item.alpha.item() == pytest.approx(wanted.alpha)
    assert [name for name, value in first.named_parameters() if value.requires_grad] == ["raw_q", "z"]
    assert not any(parameter.requires_grad for parameter in second.parameters())
    with pytest.raises(RecipeError, match=r"fitted begins with alpha = 1\.5 / q² = 24, and 1\.5 was given"):
        start_squaf_(model, Chosen(**chosen, fitted="gelu", values={"q": 0.25, "alpha": 1.5}))
    general = nn.Sequential(sk.nn.SQUAF(grid=[0.0, 1.0, 3.0]))
    with pytest.raises(RecipeError, match="one table a layer on a uniform grid"):
        start_squaf_(general, Chosen(**chosen, fitted="gelu"))


def test_keys_of_trials_that_say_nothing_of_it_stay_the_same():
    assert {"fitted", "trained"}.isdisjoint(to_yaml(recipe_named("quickstart")).split())
    for wrong, message in (
        ({"name": "relu", "fitted": "relu"}, "fitted must be for squaf alone"),
        ({"name": "squaf", "trained": "first"}, "trained must be beside learn"),
    ):
        with pytest.raises(RecipeError, match=message):
            Choice(**wrong)
