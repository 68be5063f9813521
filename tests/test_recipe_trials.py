"""The trials of a recipe: which there are, in which order, what they are called, and what their names depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe_text import text
from softknee.errors import RecipeError
from softknee.lab.studies.examples import Examples, load_examples
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.recipe import Data, Model, Seeds, Training
from softknee.lab.studies.trial import Chosen, Trial
from softknee.lab.studies.trials import Outcome, choose_tuned, cost_trial, train_trials, tuning_trials

SEVERAL = "[relu, {name: smelu, beta: [0.5, 1]}, {name: lambda_gelu, label: hard, learn: true, harden: true}]"


@pytest.fixture(scope="module")
def examples() -> Examples:
    return load_examples(Data(set="digits"), flat=True)


def recipe(**changes: str) -> Any:
    return read_recipe(text(activations=SEVERAL, hardening="{}", **changes))


def test_one_trial_for_each_combination_in_the_order_of_the_recipe(examples: Examples) -> None:
    asked = read_recipe(
        text(activations="[{name: asymmetric_smelu, label: a, beta: [1, 2], alpha: [0.5, 3]}, {name: gelu, beta: 2}]")
    )
    chosen = [trial.activation for trial in train_trials(asked, examples)]
    assert [choice.label for choice in chosen] == [
        "a beta=1 alpha=0.5",
        "a beta=1 alpha=3",
        "a beta=2 alpha=0.5",
        "a beta=2 alpha=3",
        "gelu",
    ]
    assert chosen[1].values == {"beta": 1.0, "alpha": 3.0}
    assert all(isinstance(number, float) for number in chosen[1].values.values())
    assert chosen[4].values == {"beta": 2.0}


def test_what_each_trial_is_given(examples: Examples) -> None:
    trials = train_trials(recipe(select="best_val", keep="[models]"), examples)
    assert [trial.hardening is not None for trial in trials] == [False, False, False, True]
    for trial in trials:
        assert (trial.kind, trial.select, trial.keep, trial.seeds) == ("train", "best_val", ("models",), Seeds())
        assert trial.fingerprint == examples.fingerprint
        assert "cost" not in trial.measures
        assert "hardness" in trial.measures
    assert len({trial.key for trial in trials}) == 4


def test_tuning_is_the_same_for_all_and_has_seeds_of_its_own(examples: Examples) -> None:
    asked = recipe(tuning="{learning_rate: [1e-3, 1e-2], weight_decay: [0, 0.1], seeds: 2}")
    trials = tuning_trials(asked, examples)
    by_label: dict[str, list[tuple[float, float]]] = {}
    for trial in trials:
        settings = trial.training.learning_rate, trial.training.weight_decay
        by_label.setdefault(trial.activation.label, []).append(settings)
        assert (trial.kind, trial.seeds.count) == ("tune", 2)
        assert not set(trial.seeds.numbers) & set(asked.seeds.numbers)
        assert trial.keep == trial.measures == ()
    budget = [(1e-3, 0.0), (1e-3, 0.1), (1e-2, 0.0), (1e-2, 0.1)]
    assert by_label == dict.fromkeys(("relu", "smelu beta=0.5", "smelu beta=1", "hard"), budget)
    assert tuning_trials(recipe(), examples) == []
    rates = tuning_trials(recipe(tuning="{learning_rate: [1e-3, 1e-2]}", training="{weight_decay: 0.3}"), examples)
    assert {trial.training.weight_decay for trial in rates} == {0.3}


def outcome(trial: Trial, *losses: float | None, name: str = "log_loss") -> Outcome:
    return Outcome(trial=trial, seconds=1.0, validation={name: losses})


def test_the_best_on_validation_is_chosen(examples: Examples) -> None:
    asked = recipe(tuning="{learning_rate: [1, 2, 3], seeds: 2}")
    trials = tuning_trials(asked, examples)
    outcomes = [
        *map(outcome, trials[:3], [0.5, 0.3, 0.3], [0.5, 0.4, 0.4]),  # relu: two equals, of which the first
        *map(outcome, trials[3:6], [0.2, None, 0.9], [None, 0.1, 0.9]),  # the one setting that never diverged
        *map(outcome, trials[6:9], [None, None, 0.9], [None, 0.1, None]),  # none is without; 0.1 is better
        *map(outcome, trials[9:], [None] * 3, [None] * 3),  # diverged with everything
    ]
    tuned = choose_tuned(outcomes)
    assert tuned == {"relu": (2.0, 0.0), "smelu beta=0.5": (3.0, 0.0), "smelu beta=1": (2.0, 0.0)}
    rates = [trial.training.learning_rate for trial in train_trials(asked, examples, tuned)]
    assert rates == [2.0, 3.0, 2.0, 1e-3]
    assert choose_tuned([outcome(trials[0], 2.0, name="mse"), outcome(trials[1], 1.0, name="mse")]) == {
        "relu": (2.0, 0.0)
    }


def test_costs_are_measured_beside_their_baseline(examples: Examples) -> None:
    trial = cost_trial(recipe(), examples)
    assert trial is not None
    labels = [activation.label for activation in trial.activations]
    assert labels == ["relu", "smelu beta=0.5", "smelu beta=1", "hard", "gelu"]
    assert (trial.kind, trial.cost_baseline, trial.measures) == ("cost", "gelu", ("cost",))
    own = cost_trial(recipe(cost_baseline="lambda_gelu"), examples)
    assert own is not None
    assert (own.cost_baseline, len(own.activations)) == ("hard", 4)
    assert cost_trial(recipe(measures="[hardness]"), examples) is None
    # The cost is a trial of its own, and the others do not know of it.
    with_cost, without = (train_trials(recipe(measures=item), examples) for item in ("[hardness, cost]", "[hardness]"))
    assert with_cost == without


# -- names of records ---------------------------------------------------------------------------------------


def test_a_key_never_changes() -> None:
    """Written records are found by it: who changes this number makes every study on disk unreadable."""
    trial = Trial(
        kind="train",
        activations=(Chosen(name="smelu", label="smelu", values={"beta": 0.5}),),
        data=Data(set="digits"),
        fingerprint="0" * 64,
        model=Model(arguments={"hidden": [128, 128]}),
        training=Training(),
        seeds=Seeds(),
    )
    assert trial.key == "505bcb72dae39dfe"


def test_a_trial_comes_back_from_its_plain_form(examples: Examples) -> None:
    asked = recipe(tuning="{learning_rate: [1, 2]}", training="{options: {betas: [0.8, 0.9]}}")
    cost = cost_trial(asked, examples)
    assert cost is not None
    for trial in [*train_trials(asked, examples), *tuning_trials(asked, examples), cost]:
        again = Trial.read(trial.plain())
        assert again == trial
        assert again.key == trial.key
    plain = cost.plain()
    with pytest.raises(RecipeError, match=r"trial\.knid is no key"):
        Trial.read({**plain, "knid": 1})
    with pytest.raises(RecipeError, match="every one of its keys"):
        Trial.read({key: value for key, value in plain.items() if key != "device"})
    with pytest.raises(RecipeError, match="lacks the key 'seeds'"):
        Trial.read({key: value for key, value in plain.items() if key != "seeds"})
    with pytest.raises(RecipeError, match=r"trial\.kind must be 'train', 'tune', 'cost' or 'teacher'"):
        Trial.read({**plain, "kind": "trian"})


def test_the_key_is_of_what_a_result_depends_on(examples: Examples) -> None:
    first = train_trials(recipe(), examples)[0]
    same = [
        train_trials(recipe(title="Another"), examples)[0],
        train_trials(recipe(tuning="{learning_rate: [1]}"), examples)[0],
        train_trials(recipe(cost_baseline="relu"), examples)[0],
        train_trials(read_recipe(text()), examples)[0],
    ]
    assert {trial.key for trial in same} == {first.key}
    other = [
        train_trials(recipe(training="{epochs: 29}"), examples)[0],
        train_trials(recipe(seeds="11"), examples)[0],
        train_trials(recipe(init="matched"), examples)[0],
        train_trials(recipe(device="cuda"), examples)[0],
        train_trials(recipe(), replace(examples, fingerprint="f" * 64))[0],
    ]
    assert len({first.key, *(trial.key for trial in other)}) == 6


def test_the_key_does_not_depend_on_where_files_lie(tmp_path: Path) -> None:
    keys = set()
    for folder, name in (("one", "data.csv"), ("two", "deep/data.csv")):
        file = tmp_path / folder / name
        file.parent.mkdir(parents=True)
        file.write_text("a,t\n" + "".join(f"{i},{i % 2}\n" for i in range(30)))
        (tmp_path / folder / "beside.py").write_text("def make():\n    pass\n")
        for given in (name, str(file)):
            asked = read_recipe(text(data=f"{{file: {given}}}", model="{build: beside:make}"))
            trial = train_trials(asked, load_examples(asked.data, base=tmp_path / folder))[0]
            assert trial.data.file == "data.csv"
            assert len(trial.source) == 64
            keys.add(trial.key)
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("loss", "classes", "fits"),
    [
        ("cross_entropy", 3, True),
        ("bce_with_logits", 2, True),
        ("bce_with_logits", 3, False),
        ("mse", 2, False),
        ("mse", 0, True),
        ("cross_entropy", 0, False),
    ],
)
def test_a_loss_that_does_not_fit_the_data(loss: str, classes: int, fits: bool) -> None:
    x, y = torch.zeros(4, 2), torch.zeros(4, 1) if classes == 0 else torch.zeros(4, dtype=torch.int64)
    result = Examples(
        task="classification" if classes else "regression",
        classes=classes,
        train_x=x,
        train_y=y,
        validation_x=x,
        validation_y=y,
        test_x=x,
        test_y=y,
        name="made",
        fingerprint="0" * 64,
    )
    asked = read_recipe(text(training=f"{{loss: {loss}}}"))
    if fits:
        assert len(train_trials(asked, result)) == 3
    else:
        with pytest.raises(RecipeError, match=f"training.loss '{loss}' does not fit made"):
            train_trials(asked, result)
