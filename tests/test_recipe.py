"""Recipes: what may be written, what it is read as, and a sentence with the place for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe_text import text
from softknee.errors import RecipeError
from softknee.files import ReadError
from softknee.lab.studies.reading import (
    dump,
    find_file,
    find_recipe,
    load,
    read_recipe,
    recipe_text,
    shipped,
    to_yaml,
    with_settings,
)
from softknee.lab.studies.recipe import Choice, Data, Hardening, Model, Recipe, Seeds, Training, Tuning

# -- what may be written ------------------------------------------------------------------------------------


def test_what_is_left_out_has_its_default() -> None:
    recipe = read_recipe(text())
    assert recipe == Recipe(
        name="t",
        data=Data(set="digits"),
        activations=(Choice(name="relu"), Choice(name="smelu", values={"beta": (0.5, 1)})),
    )
    assert (recipe.training, recipe.seeds, recipe.model) == (Training(), Seeds(), Model())


def test_every_part_is_read() -> None:
    recipe = read_recipe(
        text(
            title="A study",
            activations="[gelu, {name: srelu, label: knee, delta: 1e-1, learn: [delta], per: channel, harden: true}]",
            model="{build: cnn, arguments: {channels: [4, 8]}}",
            training="{optimizer: sgd, learning_rate: 1E-2, momentum: 0.9, options: {nesterov: true}}",
            seeds="{count: 3, first: 7, share_init: true}",
            hardening="{}",
            tuning="{learning_rate: [1e-3, .5, 1.], seeds: 2}",
            measures="[cost]",
            init="matched",
            select="best_val",
            keep="[predictions, models]",
            device="cuda:1",
            baseline="knee",
        )
    )
    assert recipe.activations[1] == Choice(
        name="srelu", label="knee", values={"delta": 0.1}, learn=("delta",), per="channel", harden=True
    )
    assert recipe.training.optimizer_options == {"weight_decay": 0.0, "momentum": 0.9, "nesterov": True}
    assert recipe.seeds.numbers == (7, 8, 9)
    assert recipe.hardening == Hardening()
    assert recipe.tuning == Tuning(learning_rate=(1e-3, 0.5, 1.0), seeds=2)
    assert recipe.baseline == "knee"
    assert read_recipe(to_yaml(recipe)) == recipe


def test_short_forms() -> None:
    recipe = read_recipe(text(seeds="5"))
    assert recipe.seeds == Seeds(count=5)
    # A whole number of a parameter and an option that must be one.
    squaf = read_recipe(text(activations="[relu, {name: squaf, k: 3, q: 1, learn: z}]")).activations[1]
    assert squaf.values == {"k": 3, "q": 1}
    assert isinstance(squaf.values["k"], int)


def test_the_baseline_is_the_label_of_a_trial() -> None:
    assert read_recipe(text()).baseline == "relu"
    assert read_recipe(text(activations="[gelu, silu]")).baseline == "gelu"
    assert read_recipe(text(activations="[gelu, {name: relu, label: plain}]")).baseline == "plain"
    assert read_recipe(text(activations="[{name: smelu, beta: [1, 2]}, gelu]")).baseline == "smelu beta=1"
    assert read_recipe(text(baseline="smelu beta=0.5")).baseline == "smelu beta=0.5"
    assert read_recipe(text(activations="[{name: gelu, label: G}]")).cost_baseline == "G"
    assert read_recipe(text()).cost_baseline == "gelu"  # which is not in the study


def test_a_file_gives_its_name_and_its_comments(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("# why\n" + text().replace("name: t\n", ""))
    assert read_recipe(file).name == read_recipe(str(file)).name == find_recipe(str(file)).name == "mine"
    assert recipe_text(file).startswith("# why\n")
    assert find_file(str(file)) == file
    (tmp_path / "broken.yaml").write_text("seeds: many\n")
    with pytest.raises(RecipeError, match=r"broken\.yaml: seeds must be a section"):
        find_recipe(tmp_path / "broken.yaml")


# -- those that come with the package -----------------------------------------------------------------------


def test_shipped_recipes_are_read_and_written_again() -> None:
    names = dict(shipped())
    assert {"quickstart", "smelu-sweep", "fashion-cnn", "own-data"} <= set(names)
    assert all(names.values())
    for name in names:
        recipe = find_recipe(name)
        assert recipe.name == name
        assert read_recipe(to_yaml(recipe)) == recipe == read_recipe(recipe_text(name))
        assert find_file(name) is None


def test_the_quickstart_is_what_the_page_says() -> None:
    recipe = find_recipe("quickstart")
    names = [choice.name for choice in recipe.activations]
    assert names == ["relu", "gelu", "silu", "srelu", "smelu", "crrelu", "lambda_gelu"]
    assert recipe.activations[4].values == {"beta": (0.25, 0.5, 1.0, 2.0)}
    assert (recipe.seeds.count, recipe.training.epochs, recipe.training.batch) == (12, 30, 64)
    assert [choice.name for choice in recipe.activations if choice.harden] == ["lambda_gelu"]
    assert dict(recipe.model.arguments) == {"hidden": (128, 128)}


def test_a_name_that_is_none() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'quickstart'"):
        find_recipe("quikstart")
    with pytest.raises(ReadError, match="could not be read"):
        find_recipe("nowhere.yaml")


# -- changes by --set ---------------------------------------------------------------------------------------


def test_settings_reach_every_place() -> None:
    asked = [
        "training.epochs=3",
        "training.learning_rate=1e-2",
        "seeds=4",
        "hardening.start=0.5",
        "activations.1.beta=[1, 2]",
        "activations.0=gelu",
        "title=a = b",
        "model.arguments.hidden=[8]",
    ]
    recipe = read_recipe(text(seeds="{count: 9, share_init: true}"), settings=asked)
    assert (recipe.training.epochs, recipe.training.learning_rate) == (3, 0.01)
    assert recipe.seeds == Seeds(count=4, share_init=True)
    assert recipe.hardening == Hardening(start=0.5)
    assert [choice.name for choice in recipe.activations] == ["gelu", "smelu"]
    assert recipe.activations[1].values == {"beta": (1, 2)}
    assert recipe.title == "a = b"
    assert recipe.model.arguments == {"hidden": (8,)}


def test_settings_leave_the_mapping_alone() -> None:
    mapping = {"training": {"epochs": 5}, "activations": ["relu"]}
    assert with_settings(mapping, ["training.epochs=1", "activations.0.label=R"]) == {
        "training": {"epochs": 1},
        "activations": [{"name": "relu", "label": "R"}],
    }
    assert mapping == {"training": {"epochs": 5}, "activations": ["relu"]}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("training.epochs", "--set takes key=value"),
        ("=3", "--set takes key=value"),
        (".epochs=3", "--set takes key=value"),
        ("training..epochs=3", "--set takes key=value"),
        ("training.epoch=3", "training.epoch is no key of a recipe. Did you mean 'epochs'?"),
        ("name.x=3", "no 'x' inside of 't'"),
        ("activations.2=gelu", "'2' is no place in a list, which has 0 to 1"),
        ("activations.first=gelu", "'first' is no place"),
        ("seeds=[", "--set seeds=[: The text is no YAML"),
        ("training.epochs=0", "training.epochs must be a whole number of at least 1, and 0 was given"),
    ],
)
def test_settings_that_are_none(setting: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe(text(), settings=[setting])
    assert said in str(caught.value)


# -- written and read again ---------------------------------------------------------------------------------

WORDS = st.text("ab01e-+.:#[]{},&*!|>'\"%@` ~=?\\\t\nüλ\u2028", min_size=1, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(WORDS, SCALARS | st.lists(SCALARS, max_size=3), max_size=4))
def test_yaml_gives_back_what_was_written(value: dict[str, object]) -> None:
    again = load(dump(value))
    assert again == value
    assert repr(again) == repr(value)  # 1 is not 1.0, nor true


@settings(max_examples=15, deadline=None)
@given(
    st.builds(
        Recipe,
        name=st.just("t"),
        title=WORDS,
        data=st.builds(Data, set=st.just("digits"), split_seed=st.integers(0, 99)),
        model=st.builds(Model, build=st.just("a.b:c"), arguments=st.dictionaries(WORDS, SCALARS, max_size=3)),
        activations=st.lists(
            st.builds(
                Choice,
                name=st.sampled_from(["relu", "gelu", "smelu"]),
                label=st.text("abcdef 1e-3:[]{}#'\"", min_size=1, max_size=8).filter(str.strip),
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda one: one.label,
        ).map(tuple),
        training=st.builds(Training, learning_rate=st.floats(1e-9, 1e3), clip=st.none() | st.floats(1e-3, 10)),
        tuning=st.none() | st.builds(Tuning, learning_rate=st.just((1e-5, 3e-4))),
    )
)
def test_a_recipe_gives_back_what_was_written(recipe: Recipe) -> None:
    first = read_recipe(to_yaml(recipe), settings=[f"baseline={dump(recipe.activations[0].label)}"])
    assert read_recipe(to_yaml(first)) == first
    for name in ("title", "data", "model", "activations", "training", "tuning"):
        assert getattr(first, name) == getattr(recipe, name)
