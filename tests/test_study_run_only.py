"""A study one activation at a time: `softknee study run --only LABEL`."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from papers.runs import recipe_named

from softknee.errors import ParameterError
from softknee.lab.studies.runner import smoke
from softknee.lab.studies.store import RunStore
from softknee.lab.studies.trials import every_chosen
from study_runs import RECIPE, TUNED, Silent, contents, results, run_small, small_recipe, write_points


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_points(tmp_path)


@pytest.fixture
def run(folder: Path):
    return partial(run_small, folder)


def labels(outcomes: list[Any]) -> list[str]:
    return [outcome.trial.activation.label for outcome in outcomes]


def test_an_unknown_label_is_refused_and_near_ones_are_named(run, folder: Path) -> None:
    with pytest.raises(ParameterError, match=r"The study 'small' has no activation 'rellu'. Did you mean 'relu'\?"):
        run(only=["smelu", "rellu"])
    with pytest.raises(ParameterError, match=r"no activation 'xyz'. It has relu, smelu beta=0.5, smelu beta=1\."):
        run(only=["xyz"])
    with pytest.raises(
        ParameterError, match=r"'smelu beta=0'\. Did you mean 'smelu beta=0\.5'"
    ):  # the beginning of a word is no label
        run(only=["smelu beta=0"])
    assert not (folder / "study").exists()


def test_one_label_runs_as_it_does_in_the_whole_study_and_resume_runs_the_rest(run, folder: Path) -> None:
    whole = run(out=folder / "whole")
    display = Silent()
    (item,) = run(only=["smelu beta=1"], display=display)
    assert item == whole[2]
    assert RunStore(folder / "study").finished() == [item.trial.key]
    assert any("[1/1]" in line for line in display.lines)  # of those that are asked for
    assert run(only=["smelu beta=1"]) == [item]  # read, and not run again
    assert labels(run(only=["smelu"], resume=True)) == ["smelu beta=0.5", "smelu beta=1"]
    assert run(resume=True) == whole
    assert results(folder / "study") == results(folder / "whole")
    assert RunStore(folder / "study").outcomes() == whole  # in their order, whichever came first


def test_with_tuning_the_labels_may_come_one_after_the_other(run, folder: Path) -> None:
    recipe = small_recipe(TUNED)
    whole = run(recipe, out=folder / "whole")
    for label in ("smelu beta=1", "relu", "smelu beta=0.5"):
        display = Silent()
        result = run(recipe, only=[label], resume=True, display=display)
        assert [item.trial.kind for item in result] == ["tune", "tune", "train"]
        assert set(labels(result)) == {label}
        assert not any(".foreign" in line for line in display.lines)
    assert run(recipe) == whole
    assert results(folder / "study") == results(folder / "whole")
    assert not [name for name in contents(folder / "study") if name.endswith("foreign")]


def test_the_timing_of_all_waits_for_the_whole_study(run) -> None:
    recipe = small_recipe(RECIPE, "measures=[cost]")
    assert [item.trial.kind for item in run(recipe, only=["relu", "smelu beta=0.5"])] == ["train", "train"]
    assert [value.trial.kind for value in run(recipe, resume=True)] == ["train"] * 3 + ["cost"]


def test_the_command_takes_labels(softknee, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer", reason="typer is not installed; the extra 'lab' brings it")
    pytest.importorskip("rich", reason="rich is not installed; the extra 'lab' brings it")
    monkeypatch.chdir(folder)
    (folder / "mine.yaml").write_text(RECIPE.replace("name: small", "title: Mine"), encoding="utf-8")
    code, _, err = softknee("study", "mine.yaml", "--only", "rellu")
    assert code == 2
    assert "has no activation 'rellu'. Did you mean 'relu'?" in err
    code, out, err = softknee("study", "mine.yaml", "--only", "smelu beta=1", "--only", "relu", "--no-report")
    assert code == 0, err
    assert "The records are in studies/mine." in out
    assert set(labels(RunStore(folder / "studies" / "mine").outcomes())) == {"smelu beta=1", "relu"}
    code, out, err = softknee("study", "mine.yaml", "--only", "smelu beta=0.5", "--resume", "--no-report")
    assert code == 0, err
    assert "smelu beta=1" in out  # beside what was there, as in the report
    code, out, err = softknee("study", "mine.yaml", "--resume")
    assert code == 0, err
    assert "The report is" in out
    assert len(RunStore(folder / "studies" / "mine").finished()) == 3


# -- with --smoke ---------------------------------------------------------------------------------------------


def test_every_label_of_a_study_can_be_asked_for_in_its_smoke_form() -> None:
    for name in ("mollification-table-1", "smelu-table-1", "lambda-gelu-adult", "lambda-gelu-figure-1"):
        whole = recipe_named(name)
        for choice in every_chosen(whole):
            small = smoke(whole, only=[choice.label])
            assert list(every_chosen(small)) == [choice]  # with its values, its rate and its label
            assert small.name != smoke(whole).name  # a folder of its own


def test_a_smoke_form_has_what_was_asked_for_in_the_order_of_the_recipe() -> None:
    recipe = small_recipe()
    asked = smoke(recipe, only=["smelu beta=1", "relu"])
    assert [choice.label for choice in every_chosen(asked)] == ["relu", "smelu beta=1"]
    assert asked.baseline == "relu"
    assert [item.label for item in every_chosen(smoke(recipe, only=["smelu"]))] == ["smelu beta=0.5"]  # the first value
    three = ["relu", "smelu beta=0.5", "smelu beta=1"]  # two are the most only where nobody asks
    assert [value.label for value in every_chosen(smoke(recipe, only=three))] == three
    long = recipe_named("smelu-table-1")
    assert len(smoke(long, only=[entry.label for entry in every_chosen(long)]).name) <= 64
    with pytest.raises(ParameterError, match=r"The study 'small' has no activation 'rellu'. Did you mean 'relu'\?"):
        smoke(recipe, only=["rellu"])


def test_the_command_takes_labels_in_the_smoke_form(softknee, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer", reason="typer is not installed; the extra 'lab' brings it")
    pytest.importorskip("rich", reason="rich is not installed; the extra 'lab' brings it")
    monkeypatch.chdir(folder)
    text = RECIPE.replace("name: small", "title: Mine").replace("[relu,", "[relu, elu, gelu,")
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    for label, place in (("elu", "mine-smoke-elu"), ("smelu beta=1", "mine-smoke-smelu-beta-1")):
        code, out, err = softknee("study", "mine.yaml", "--smoke", "--only", label, "--no-report")
        assert code == 0, err
        assert "the activations that were asked for" in err
        assert f"The records are in studies/{place}." in out
        assert labels(RunStore(folder / "studies" / place).outcomes()) == [label]
    code, _, err = softknee("study", "mine.yaml", "--smoke", "--only", "rellu", "--no-report")
    assert code == 2
    assert "The study 'mine' has no activation 'rellu'. Did you mean 'relu' or 'elu' or 'gelu'?" in err
