"""Records of the studies of the four older papers as if they had been run."""

from dataclasses import replace

import pytest
import torch
from papers.lambda_gelu.findings import HARDENED
from papers.ledger import find_statements
from papers.runs import Runs, recipe_named
from papers.statement import judge

from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.recipe import Data
from softknee.lab.studies.runner import recipe_mapping
from softknee.lab.studies.store import Description
from softknee.lab.studies.trials import Outcome, train_trials
from softknee.measure import Record, prediction_difference


@pytest.fixture(scope="module")
def digits():
    return recipe_examples(replace(recipe_named("quickstart"), data=Data(set="digits")))


def store(folder, name, outcome_of, digits):
    """Records of a study as if it had been run on the digits: {field of Outcome: value} for each trial."""
    recipe = replace(recipe_named(name), data=Data(set="digits"))
    (folder / name / "trials").mkdir(parents=True)
    described = Description(recipe=recipe_mapping(recipe), fingerprint=digits.fingerprint, threads=1)
    (folder / name / "study.json").write_bytes(described.to_json())
    for place, trial in enumerate(train_trials(recipe, digits)):
        seeds = trial.seeds.count
        found = Outcome(
            trial=trial, seconds=1.0, diverged=(None,) * seeds, selected=(1,) * seeds, **outcome_of(trial, seeds)
        )
        record = found.record(command="test", git=None)
        record.settings["store"] = {"position": place}
        record.write(folder / name / "trials" / f"{trial.key}.json")


def verdict(folder, name):
    paper = name.partition(".")[0]
    (found,) = (one for one in find_statements([paper]) if one.id == name)
    (judged,) = judge([found], Runs(folder))
    return judged


def near(mean, seeds, *, noise=0.001):
    """Scores of the seeds around a mean."""
    draw = torch.randn(seeds, generator=torch.Generator().manual_seed(round(1e6 * mean)), dtype=torch.float64)
    return tuple((mean + noise * draw).tolist())


def accuracies(means):
    return lambda trial, seeds: {"test": {"accuracy": near(means(trial.activation.label), seeds)}}


def differing(size, seeds):
    """The prediction differences of models that disagree more the larger the size."""
    random = torch.Generator().manual_seed(0)
    common = torch.randn(1, 40, 3, generator=random)
    noise = torch.randn(seeds, 40, 3, generator=random)
    labels = torch.zeros(40, dtype=torch.int64)
    found = prediction_difference(torch.softmax(common + size * noise, dim=2), labels)
    names = ("delta_1", "delta_2", "relative", "hamming", "true_label")
    return {name: vars(one) for name in names if (one := getattr(found, name)) is not None}


def hardened(drop, *, bare):
    def outcome(trial, seeds):
        label = trial.activation.label
        before = near(0.86, seeds)
        lost = bare if label == "gelu" else drop
        after = tuple(one - lost - 0.0001 * seed for seed, one in enumerate(before))
        profile = [2.1 + 0.3 * depth for depth in range(4)]
        sites = tuple(
            {"path": str(depth), "knob": "lam", "start": (1.01,) * seeds, "end": (one,) * seeds, "distance": (1.0,)}
            for depth, one in enumerate(profile)
        )
        swapped = {"limit": "ReLU", "test": {"accuracy": after}} if label in ("gelu", HARDENED) else None
        return {"test": {"accuracy": before}, "hardness": sites, "replacement": swapped}

    return outcome


def language_record(path, *, shock, hardened_shock, relu=0.1, learned=1.1, parameters=30_000_000):
    def row(name, **columns):
        return {"row": name, "loss_by_seed": {key: list(near(one, 3)) for key, one in columns.items()}}

    rows = [
        row("GELU", free=5.0, replaced=5.0 + shock),
        row("lambda-GELU, hardened", free=5.001, bare=5.5, hardened=5.02, replaced=5.02 + hardened_shock)
        | {"learned_knobs": [[learned] * 6] * 3},
        row("ReLU from scratch", free=5.0 + relu),
    ]
    Record.now("study wikitext", command="", rows=rows, settings={"parameters": parameters}).write(path)
