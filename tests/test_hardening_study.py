"""The recipes of hardening: what they train, deploy checks of their models, and what the retired command says."""

from pathlib import Path

import pytest

from softknee.errors import InputError
from softknee.lab.data.images import load_split
from softknee.lab.deploy.check import study_checkpoints
from softknee.lab.studies.reading import find_recipe
from softknee.lab.studies.runner import run_study
from softknee.lab.studies.store import RunStore
from softknee.lab.studies.trials import every_chosen

pytest.importorskip("sklearn", reason="scikit-learn is not installed; it brings the digits")

HARDENED = "srelu hardened best"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("study") / "run"
    recipe = find_recipe("hardening-digits", settings=["seeds=2", "training.epochs=4", "measures=[hardness]"])
    run_study(recipe, out=place, only=("gelu", HARDENED))
    return place


@pytest.mark.parametrize("name", ["hardening-digits", "hardening-fashion"])
def test_the_recipe_has_every_column_of_the_command(name: str) -> None:
    recipe = find_recipe(name)
    chosen = {choice.label: choice for choice in every_chosen(recipe)}
    assert [item for item, match in chosen.items() if match.replace] == ["gelu", "lambda_gelu", "srelu"]
    for function in ("lambda_gelu", "srelu"):
        last, best = (chosen[f"{function} {end}"] for end in ("hardened", "hardened best"))
        assert last.harden
        assert best.harden
        assert (last.select, best.select) == (None, "best_val")
        assert last.learn is best.learn is chosen[function].learn is True
    assert not chosen["relu"].harden
    assert recipe.select == "best_val"
    assert "models" in recipe.keep


def test_a_hardened_network_is_reported_after_its_knobs_froze(folder: Path) -> None:
    outcomes = {item.trial.activation.label: item for item in RunStore(folder).outcomes()}
    assert all(epoch is not None and epoch > 1 for epoch in outcomes[HARDENED].selected)
    for outcome in outcomes.values():
        assert outcome.replacement is not None
        assert outcome.replacement["limit"] == "ReLU"


def test_the_models_of_a_study_are_checkpoints(folder: Path) -> None:
    checkpoints = study_checkpoints(folder)
    assert list(checkpoints) == [f"{label} seed {seed}" for label in ("gelu", HARDENED) for seed in (0, 1)]
    data = load_split("digits", flat=True)
    outcomes = {outcome.trial.activation.label: outcome for outcome in RunStore(folder).outcomes()}
    for name, checkpoint in checkpoints.items():
        label, seed = name.split(" seed ")
        right = (checkpoint.model(data.test_images).argmax(1) == data.test_labels).double().mean().item()
        assert right == outcomes[label].test["accuracy"][int(seed)]
        assert checkpoint.task == {"data": "digits"}


def test_a_study_without_models_is_refused(tmp_path: Path) -> None:
    settings = ["seeds=1", "training.epochs=4", "measures=[]", "keep=[]"]
    run_study(find_recipe("hardening-digits", settings=settings), out=tmp_path / "run", only=("gelu",))
    with pytest.raises(InputError, match=r"keep=\[models\]"):
        study_checkpoints(tmp_path / "run")


@pytest.mark.slow
def test_the_command_checks_a_study(tmp_path: Path, softknee) -> None:
    recipe = find_recipe("hardening-digits", settings=["seeds=2", "training.epochs=4", "measures=[]"])
    run_study(recipe, out=tmp_path / "run", only=(HARDENED,))
    code, out, err = softknee("deploy-check", str(tmp_path / "run"), "--points", "0")
    assert code == 0, err
    assert f"{HARDENED}, with ReLU" in out


def test_the_old_command_names_the_recipes(softknee) -> None:
    code, _, err = softknee("study", "hardening", "--only", "digits", "--json", "found.json")
    assert code == 2
    assert "softknee study hardening-digits" in " ".join(err.split())
