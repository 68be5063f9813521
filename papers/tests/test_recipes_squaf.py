"""The recipes of the SQUAF paper: the counts of its tables, and each of them from its data to its report, small."""

from dataclasses import replace

import pytest
from papers.runs import recipe_named, recipe_names

from softknee.lab.report import summarise, write_report
from softknee.lab.report.summary import origin_of
from softknee.lab.report.tables import markdown
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.runner import run_study
from softknee.lab.studies.trials import every_chosen
from softknee.lab.table import escape_markdown

NETWORKS = ("squaf-table-4-", "squaf-table-6-")  # see test_recipes_squaf_networks.py
NAMES = [
    name
    for name in recipe_names()
    if name.startswith("squaf-") and not name.startswith(NETWORKS) and recipe_named(name).task is None
]
TWENTY = {(q, h) for q in (0.1, 0.2, 0.5, 1.0) for h in (0.5, 1.0, 2.0, 5.0, 10.0)}


def test_the_tables_are_there():
    pictures = [f"1-{picture}" for picture in ("camera", "grass", "page")]
    tables = [*pictures, "12", "2-c3", "2-c4", "3-1d", "3-1d-alone", "3-2d"]
    assert [f"squaf-table-{table}" for table in tables] == NAMES


@pytest.mark.parametrize("name", [name for name in NAMES if "table-12" not in name and "table-1-" not in name])
def test_as_many_parameters_are_trained_as_the_paper_counts(name):
    recipe = recipe_named(name)
    assert recipe.paper is not None
    examples = recipe_examples(recipe)
    chosen = [
        item for item in every_chosen(recipe) if item.label in recipe.paper.values
    ]  # there may be more than it has
    assert [value.label for value in chosen] == list(recipe.paper.values)
    for choice in chosen:
        model = model_maker(recipe.model, choice, examples)(seed=0)
        trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
        assert trained == recipe.paper.values[choice.label]["parameters"], choice.label


def test_the_settings_are_those_of_the_paper():
    iterations = {}
    for name in NAMES:
        recipe, training = recipe_named(name), recipe_named(name).training
        steps = -(-len(recipe_examples(recipe).train_x) // training.batch)
        iterations[name.removeprefix("squaf-table-")] = (steps * training.epochs, training.learning_rate)
        assert (training.optimizer, training.weight_decay, training.activation_rate) == ("adam", 0.0, 1.0)
        assert training.epochs // training.every == 50
        assert training.milestones == ((500,) if training.epochs == 1000 else ())
    assert iterations == {
        **dict.fromkeys(("1-camera", "1-grass", "1-page", "12"), (16_000, 1e-3)),
        **dict.fromkeys(("2-c3", "2-c4"), (100, 1e-3)),
        **dict.fromkeys(("3-1d", "3-1d-alone"), (40_000, 1e-3)),
        "3-2d": (40_000, 1e-2),
    }
    grid = {
        (float(choice.values["q"]), round(float(choice.values["alpha"]) * float(choice.values["q"]) ** 2, 9))
        for choice in every_chosen(recipe_named("squaf-table-12"))
    }
    assert grid == TWENTY


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_from_its_data_to_its_report(name, tmp_path):
    # One step with all examples; a network of four neurons in place of many, where there is one.
    settings = ["device=cpu", "seeds=2", "training.epochs=1", "training.batch=39200", "training.every=1"]
    whole = recipe_named(name, settings=[*settings, *(["model.arguments.hidden=[4]"] if "alone" not in name else [])])
    every = "clusters" in str(whole.data.set)  # they are few and quick
    chosen = whole.activations if every else (whole.activations[0], whole.activations[-1])
    assert whole.paper is not None
    paper = whole.paper.of([choice.title for choice in chosen])
    small = replace(whole, activations=chosen, paper=paper, baseline=chosen[0].title)
    result = run_study(small, out=tmp_path / "study", threads=1)
    assert [item.trial.activation.label for item in result] == [value.title for value in chosen]
    assert all(entry.diverged == (None, None) for entry in result)
    text = markdown(summarise(small, result), origin_of(small, command=f"softknee study {name}"))
    assert "## Beside the paper" in text
    assert paper.note.split()[-1] in text
    for label, numbers in paper.values.items():
        assert f"[{escape_markdown(label)}]" in text
        assert set(numbers) - {"parameters"} <= set(result[0].test)
    kept_files = {path.name.split(".")[1] for path in (tmp_path / "study" / "files").iterdir()} if small.keep else set()
    assert kept_files == set(small.keep)


def test_a_whole_report_of_one(tmp_path):
    settings = ["device=cpu", "seeds=2", "training.epochs=3", "training.every=2", "activations=[relu, ditac]"]
    small = recipe_named("squaf-table-2-c3", settings=settings)
    result = run_study(small, out=tmp_path / "study", threads=1)
    page = write_report(small, result, tmp_path / "study" / "report", command="softknee study squaf-table-2-c3")
    assert "Beside the paper" in page.read_text(encoding="utf-8")
    assert (page.parent / "paper.csv").is_file()
