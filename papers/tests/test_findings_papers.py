"""The empirical statements of the four older papers: verdicts that follow from records made up for the purpose."""

import functools
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import scipy.stats
import torch
from papers.claim import paper
from papers.exhibits import EXHIBITS
from papers.lambda_gelu.findings import (
    ADULT,
    FASHION,
    HARDENED,
    LARGE,
    LEARNED,
    SMALL,
    correlations,
    order_figure,
)
from papers.ledger import find_statements
from papers.pages import comparisons, forest
from papers.pages import page as page_of
from papers.preferences import S_RELU, STORIES, TABLES, preference_tables
from papers.runs import Runs, recipe_named
from papers.squaf.findings import GAPS, MODES, TIMES
from papers.statement import (
    NOT_SHOWN,
    NOT_THERE,
    SHOWN,
    agrees_more,
    corrected,
    drops,
    judge,
    mean,
    rank_correlation_of_groups,
)
from papers.tables import figures_of, file_of, study_tables, write_figures

from softknee.errors import DataError
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.recipe import Data
from softknee.lab.studies.runner import recipe_mapping
from softknee.lab.studies.store import Description
from softknee.lab.studies.trials import Outcome, train_trials
from softknee.measure import Quantity, Record, prediction_difference


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
        result = Outcome(
            trial=trial, seconds=1.0, diverged=(None,) * seeds, selected=(1,) * seeds, **outcome_of(trial, seeds)
        )
        record = result.record(command="test", git=None)
        record.settings["store"] = {"position": place}
        record.write(folder / name / "trials" / f"{trial.key}.json")


@functools.lru_cache(maxsize=1)
def runs_with(folder, records):
    """The runs in a folder, read once for all questions as long as its records stay the same."""
    return Runs(folder)


def verdict(folder, name):
    paper = name.partition(".")[0]
    (result,) = (statement for statement in find_statements([paper]) if statement.id == name)
    records = tuple((path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*.json")))
    (judged,) = judge([result], runs_with(folder, records))
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
    result = prediction_difference(torch.softmax(common + size * noise, dim=2), labels)
    names = ("delta_1", "delta_2", "relative", "hamming", "true_label")
    return {name: vars(one) for name in names if (one := getattr(result, name)) is not None}


# -- mollification and EAFO -----------------------------------------------------------------------------------


def test_srelu_against_the_others_and_against_relu(tmp_path, digits):
    wide = {"srelu": 0.90, "relu": 0.90}
    store(tmp_path, "mollification-table-2-augmented", accuracies(lambda label: wide.get(label, 0.62)), digits)
    store(tmp_path, "mollification-table-1", accuracies(lambda label: wide.get(label, 0.92)), digits)
    best = verdict(tmp_path, "mollification.srelu_is_best_in_convnext_augmented")
    assert (best.verdict, best.size) == (SHOWN, "2 as printed, 4 smaller")  # 28 points, where 25.0 to 30.1 are printed
    vit = verdict(tmp_path, "mollification.srelu_is_best_in_vit")  # with less augmentation than the paper has
    assert (vit.verdict, vit.size) == ("doubted", "")
    assert verdict(tmp_path, "mollification.smoothing_helps_convnext_augmented").verdict == NOT_SHOWN
    assert verdict(tmp_path, "mollification.smoothing_helps_vit").verdict == NOT_SHOWN


def test_a_small_gain_is_not_the_papers(tmp_path, digits):
    means = {"srelu": 0.65, "relu": 0.65}
    store(tmp_path, "mollification-table-2-augmented", accuracies(lambda label: means.get(label, 0.60)), digits)
    result = verdict(tmp_path, "mollification.srelu_is_best_in_convnext_augmented")
    assert (result.verdict, result.size) == (SHOWN, "smaller")
    compared = result.evidence.parts[0]
    seeds = [near(means.get(label, 0.60), compared.seeds) for label in ("srelu", "gelu")]
    truth = scipy.stats.ttest_ind(*seeds, equal_var=False)
    assert compared.interval == pytest.approx(tuple(100 * end for end in truth.confidence_interval()), rel=1e-5)
    assert compared.printed == pytest.approx(25.0)
    low, high = compared.interval
    assert compared.ours() == f"{compared.difference:+.2f} [{low:.2f}, {high:.2f}] points"
    line = comparisons(paper("mollification"), [result]).splitlines()[1]
    assert line.startswith(
        "srelu_is_best_in_convnext_augmented,mollification-table-2-augmented: srelu better than gelu in accuracy,3,"
    )
    assert line.endswith(f",points,{compared.p:.2g},25,shown,smaller,2,same")
    chart = forest(paper("mollification"), [result])
    assert chart is not None
    drawn = {row["compared"]: row for layer in chart["layer"] for row in layer["data"]["values"] if "compared" in row}
    first = drawn["S-ReLU better than GELU in accuracy"]
    assert first["numbers"] == f"{compared.ours()}; printed +25"
    assert first["ours"] == pytest.approx(compared.difference / 25.0)
    assert forest(paper("eafo"), [result]) is None
    # A comparison that was not run blocks nothing and counts for nothing.
    for path in (tmp_path / "mollification-table-2-augmented" / "trials").glob("*.json"):
        if Outcome.read(Record.read(path)).trial.activation.label in ("mish", "relu"):
            path.unlink()
    fewer = verdict(tmp_path, "mollification.srelu_is_best_in_convnext_augmented")
    assert (fewer.verdict, fewer.counts) == (SHOWN, "5 shown, 1 not run")
    assert verdict(tmp_path, "mollification.smoothing_helps_convnext_augmented").verdict == NOT_THERE


def test_the_sweep_of_delta(tmp_path, digits):
    def mean(label):
        return 0.9 - 0.05 * float(label.partition("=")[2] or 0) ** 0.3

    store(tmp_path, "mollification-table-4", accuracies(mean), digits)
    result = verdict(tmp_path, "mollification.a_narrow_knee_is_best")
    assert result.verdict == SHOWN
    assert len(result.evidence.parts) == 7


ORDER = ("lambda_gelu", "squaf", "srelu", "elu", "celu", "silu", "mish", "gelu", "relu", "prelu", "crrelu")


def entropic(slope):
    """Outcomes that are better the later in ORDER, and whose entropy grows with that by `slope`."""

    def outcome(trial, seeds):
        rank = ORDER.index(trial.activation.label)
        numbers = {"input": (1.0,) * seeds, "output": near(2.0 + slope * rank, seeds), "spread": (0.5,) * seeds}
        sites = [{"path": str(i), "activation": "A", "start": numbers, "end": numbers} for i in range(2)]
        return {"test": {"accuracy": near(0.6 + 0.02 * rank, seeds)}, "entropy": tuple(sites)}

    return outcome


def test_crrelu_and_entropy(tmp_path, digits):
    store(tmp_path, "eafo-table-1", entropic(-0.1), digits)
    for name in ("crrelu_is_best_on_cifar_10", "the_correction_helps", "prelu_is_next"):
        assert verdict(tmp_path, f"eafo.{name}").verdict == "supported", name
    assert verdict(tmp_path, "eafo.elu_and_celu_are_one").verdict == "doubted"  # two points apart here
    assert verdict(tmp_path, "eafo.crrelu_is_best_on_cifar_100").verdict == "no records"


@pytest.mark.parametrize(("slope", "expected"), [(-0.1, "supported"), (0.1, "doubted"), (0.0, NOT_SHOWN)])
def test_entropy_against_accuracy(slope, expected, tmp_path, digits):
    store(tmp_path, "mollification-table-1", entropic(slope), digits)
    result = verdict(tmp_path, "eafo.less_entropy_goes_with_accuracy")
    assert result.verdict == expected
    rho, low, high = result.evidence.numbers["correlation"]
    assert low <= rho <= high
    assert "27 runs of 9 activations" in result.measured  # of two that are one function, one counts
    outcomes = Runs(tmp_path).study("mollification-table-1").outcomes
    runs = [outcome for label, outcome in outcomes.items() if label not in ("celu", "srelu")]
    points = [pair for run in runs for pair in zip(run.entropy[0]["end"]["output"], run.test["accuracy"], strict=True)]
    assert rho == pytest.approx(scipy.stats.spearmanr(*zip(*points, strict=True)).statistic)


# Accuracy and entropy of each kind of row; of several rows of a kind the last has the lowest validation loss.
SPLINES = {
    "bending": {"fixed": (0.80, 1.0), "learned": (0.84, 1.2), "entropic": (0.84, 0.5), "both": (0.84, 0.5)},
    "entropy": {"fixed": (0.80, 1.0), "learned": (0.83, 1.2), "entropic": (0.88, 0.5), "both": (0.86, 0.5)},
    "harm": {"fixed": (0.80, 1.0), "learned": (0.85, 1.2), "entropic": (0.70, 1.6), "both": (0.75, 0.5)},
}
STEPS = (
    *("steps_lower_entropy", "steps_improve_their_start"),
    *("entropy_does_more_than_the_loss", "steps_beat_known_functions"),
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bending", ("supported", "supported", NOT_SHOWN, NOT_SHOWN)),
        ("entropy", ("supported",) * 4),
        ("harm", ("doubted",) * 4),
    ],
)
def test_is_it_the_entropy_or_the_flexibility(kind, expected, tmp_path, digits):
    last = {"learned rate=9", "entropic every=6", "both every=6"}

    def outcome(trial, seeds):
        label = trial.activation.label
        right, entropy = SPLINES[kind].get(label.partition(" ")[0], (0.84, 0.0))
        chosen = label in last or " " not in label
        end = {"input": (1.0,) * seeds, "output": near(entropy + math.log(2.0), seeds), "spread": (2.0,) * seeds}
        return {
            "test": {"accuracy": near(right if chosen else 1 - right, seeds, noise=0.002)},
            "validation": {"log_loss": near(0.4 if chosen else 0.5, seeds)},
            "entropy": tuple({"path": path, "activation": "A", "start": end, "end": end} for path in "13"),
        }

    store(tmp_path, "eafo-entropic-spline", outcome, digits)
    results = [verdict(tmp_path, f"eafo.{name}") for name in STEPS]
    assert tuple(result.verdict for result in results) == expected
    lower = results[0].evidence
    assert lower.numbers["fixed"] == pytest.approx(1.0, abs=0.01)  # at a standard deviation of 1
    assert [part.says.rpartition(" ")[2] for part in lower.parts] == ["fixed", "rate=9"]
    assert "entropic every=6 better than fixed" in results[1].evidence.parts[0].says


def test_the_interval_knows_that_seeds_of_one_activation_belong_together():
    random = torch.Generator().manual_seed(1)
    centres = torch.randn(6, 2, generator=random).tolist()
    alone = rank_correlation_of_groups([[(a, b)] for a, b in centres])
    many = rank_correlation_of_groups([[(a, b)] * 9 for a, b in centres])
    assert many[2] - many[1] == pytest.approx(alone[2] - alone[1], abs=0.02)  # 54 points, and no more known
    assert many[2] - many[1] > 0.5


# -- SmeLU ----------------------------------------------------------------------------------------------------


def smooth(sizes):
    """Outcomes whose models disagree as much as `sizes` says of each name, and of each family least at beta = 2."""

    def outcome(trial, seeds):
        chosen = trial.activation
        away = abs(math.log2(float(chosen.values.get("beta", 1.0)) / 2.0))
        size = sizes.get(chosen.name, 0.5) * (1.0 + 0.2 * away)
        return {"test": {"accuracy": near(0.985, seeds, noise=0.0)}, "difference": differing(size, seeds)}

    return outcome


def test_smooth_models_agree_more_than_relus(tmp_path, digits):
    sizes = {"relu": 1.0, "swish": 0.8}
    for name in ("smelu-figure-4", "smelu-figure-13"):
        store(tmp_path, name, smooth(sizes), digits)
    figures = {"smelu-figure-4", "smelu-figure-13"}
    names = [statement.name for statement in find_statements(["smelu"]) if figures >= set(statement.needs)]
    assert len(names) == 15
    for name in names:  # with one accuracy for all, no function is more accurate
        expected = NOT_SHOWN if "more_accurate" in name else SHOWN
        assert verdict(tmp_path, f"smelu.{name}").evidence.direction == expected, name
    text = "".join(study_tables(Runs(tmp_path), "smelu"))
    assert "| prediction difference |" in text
    assert "smelu beta=2.5" in text


def test_a_relu_that_agrees_more_is_seen_and_one_optimizer_does_not_wait_for_the_other(tmp_path, digits):
    store(tmp_path, "smelu-figure-4", smooth({"relu": 0.3}), digits)
    for name in ("smooth_models_agree_more", "smelu_has_the_better_trade_off", "other_measures_say_the_same"):
        result = verdict(tmp_path, f"smelu.{name}_with_sgd")
        assert result.verdict == "doubted", name  # from torch's start, where the paper has Keras'
        assert all(part.difference < 0 for part in result.evidence.parts)
        waiting = verdict(tmp_path, f"smelu.{name}_with_adagrad")
        assert waiting.verdict == "no records"
        assert waiting.missing == ("smelu-figure-13",)
    study = Runs(tmp_path).study("smelu-figure-4")
    (same,) = corrected(agrees_more(study, "relu", ["relu"]))
    assert same.direction == NOT_SHOWN


# -- lambda-GELU ----------------------------------------------------------------------------------------------


def hardened(drop, *, bare):
    def outcome(trial, seeds):
        label = trial.activation.label
        before = near(0.86, seeds)
        lost = bare if label == "gelu" else drop
        after = tuple(item - lost - 0.0001 * seed for seed, item in enumerate(before))
        profile = [2.1 + 0.3 * depth for depth in range(4)]
        sites = tuple(
            {"path": str(depth), "knob": "lam", "start": (1.01,) * seeds, "end": (value,) * seeds, "distance": (1.0,)}
            for depth, value in enumerate(profile)
        )
        swapped = {"limit": "ReLU", "test": {"accuracy": after}} if label in ("gelu", HARDENED) else None
        curves = {"validation_accuracy": (tuple(item - 0.1 for item in before), before)}
        return {"test": {"accuracy": before}, "hardness": sites, "replacement": swapped, "curves": curves}

    return outcome


def test_hardening_makes_the_swap_cheap(tmp_path, digits):
    for name in ("lambda-gelu-fashion", "lambda-gelu-adult"):
        store(tmp_path, name, hardened(0.001, bare=0.04), digits)
    assert verdict(tmp_path, "lambda_gelu.replacing_after_hardening_costs_little").verdict == SHOWN
    assert verdict(tmp_path, "lambda_gelu.learning_hardness_costs_nothing").verdict == SHOWN
    assert verdict(tmp_path, "lambda_gelu.learned_gates_become_harder").verdict == SHOWN
    costs = verdict(tmp_path, "lambda_gelu.hardening_costs_accuracy_on_adult")
    assert (costs.verdict, costs.size) == (NOT_SHOWN, "excluded")  # nothing, where 4 points are printed
    order = verdict(tmp_path, "lambda_gelu.order_of_layers_is_robust")
    assert order.verdict == NOT_SHOWN  # on both data sets alike
    assert order.evidence.numbers["lambda-gelu-fashion"] == pytest.approx(1.0)
    study = Runs(tmp_path).study("lambda-gelu-adult")
    assert drops(study, "gelu")[:3] == pytest.approx([4.0, 4.01, 4.02])
    assert drops(study, "relu") == []
    text = "".join(study_tables(Runs(tmp_path), "lambda-gelu"))
    assert "accuracy, %, when replaced" in text
    assert "ReLU: 8" in text


@pytest.mark.parametrize(("drop", "bare", "expected"), [(0.001, 0.04, SHOWN), (0.04, 0.001, "reversed")])
def test_the_bare_swap_against_the_hardened(drop, bare, expected, tmp_path, digits):
    def noisy(trial, seeds):
        result = hardened(drop, bare=bare)(trial, seeds)
        if trial.activation.label == "gelu":  # pairs that differ from each other, so that there is a test
            after = tuple(item + 0.0003 * seed for seed, item in enumerate(result["replacement"]["test"]["accuracy"]))
            result["replacement"] = {"limit": "ReLU", "test": {"accuracy": after}}
        return result

    for data in ("fashion", "adult", "cifar-10", "cifar-100", "tiny-imagenet"):
        store(tmp_path, f"lambda-gelu-{data}", noisy, digits)
    names = ("the_bare_swap_costs_more", "replacing_in_resnet", "replacing_in_resnet_on_cifar_100", "replacing_in_deit")
    for name in names:
        assert verdict(tmp_path, f"lambda_gelu.{name}").evidence.direction == expected, name
    assert verdict(tmp_path, "lambda_gelu.replacing_in_resnet").stand_in


def test_the_grid_of_temperature_and_rate(tmp_path, digits):
    def outcome(trial, seeds):
        chosen = trial.activation
        if chosen.name == "gelu":
            return {"curves": {"validation_accuracy": ((0.80,) * seeds, (0.86,) * seeds)}}
        speed = trial.training.activation_rate / float(chosen.values["temperature"])
        way = tuple((1.0 + speed * step,) * seeds for step in (0, 1, 0))  # there and back: a drift of 2 speed
        return {
            "parameters": {f"{place}.lam": {"start": 1.0, "end": way[-1], "curve": way} for place in (1, 3)},
            "curves": {"validation_accuracy": ((0.855,) * seeds, (0.83,) * seeds)},
        }

    store(tmp_path, "lambda-gelu-figure-1", outcome, digits)
    result = verdict(tmp_path, "lambda_gelu.drift_follows_temperature_and_rate")
    assert result.verdict == SHOWN
    assert len(result.evidence.parts) == 24
    assert result.evidence.numbers == pytest.approx(
        {f"t={t:g} c={c}": 2 * c / t for t in (0.1, 0.3, 0.6, 0.9) for c in (1, 3, 6, 9)}, rel=1e-9
    )
    best = verdict(tmp_path, "lambda_gelu.the_chosen_cell_is_as_good_as_gelu")
    (part,) = best.evidence.parts
    assert (part.difference, best.verdict) == (pytest.approx(-0.5), SHOWN)
    rate = verdict(tmp_path, "lambda_gelu.a_temperature_is_a_learning_rate")
    assert rate.verdict == NOT_SHOWN  # here the drift goes by c / t


def language_record(path, *, shock, hardened_shock, relu=0.1, learned=1.1, parameters=30_000_000):
    def row(name, **columns):
        return {"row": name, "loss_by_seed": {key: list(near(item, 3)) for key, item in columns.items()}}

    rows = [
        row("GELU", free=5.0, replaced=5.0 + shock),
        row("lambda-GELU, hardened", free=5.001, bare=5.5, hardened=5.02, replaced=5.02 + hardened_shock)
        | {"learned_knobs": [[learned] * 6] * 3},
        row("ReLU from scratch", free=5.0 + relu),
    ]
    Record.now("study wikitext", command="", rows=rows, settings={"parameters": parameters}).write(path)


def test_the_table_of_language_models(tmp_path):
    shutil.copy(Runs.committed().paths[SMALL], tmp_path / SMALL)
    runs = Runs(tmp_path)
    page = page_of(paper("lambda_gelu"), [], judge(find_statements(["lambda_gelu"]), runs), runs)
    assert "### λ-GELU, WikiText-2: a GPT-2 of 30,044,544 parameters from scratch" in page
    assert "| perplexity | free | bare | hardened | replaced | together | went on |" in page
    assert "| GELU | 142.00 ± 1.42 | – | – | 1043.42 ± 152.97 | 144.02 ± 1.03 | 143.01 ± 0.48 |" in page
    assert "trained on wikitext2_train.txt.gz, valid (476,225 tokens)" in page
    run = "softknee study run papers/lambda_gelu/recipes/wikitext-small.yaml"
    assert f"Again: `{run}`" in page
    assert f"    {run} --only lambda_gelu\n" in page


def language_store(folder, recipe, outcome_of):
    """Records of a study of language models: the numbers of each trial by the label of its activation."""
    (folder / recipe.name / "trials").mkdir(parents=True)
    described = Description(recipe=recipe_mapping(recipe), fingerprint="0" * 64, threads=1)
    (folder / recipe.name / "study.json").write_bytes(described.to_json())
    for trial in train_trials(recipe, SimpleNamespace(fingerprint="0" * 64, base=None)):
        seeds = trial.seeds.count
        test = outcome_of(trial.activation.label, seeds)
        gone = [1 if any(each[seed] is None for each in test.values()) else None for seed in range(seeds)]
        outcome = Outcome(trial=trial, seconds=1.0, diverged=tuple(gone), selected=(1,) * seeds, test=test)
        outcome.record(command="test", git=None).write(folder / recipe.name / "trials" / f"{trial.key}.json")


def test_a_study_of_a_recipe_has_its_table(tmp_path):
    def perplexities(label, seeds):
        names = ("perplexity", "perplexity_replaced") if label != "relu" else ("perplexity",)
        return {name: near(142.0, seeds) for name in names}

    language_store(tmp_path, recipe_named("lambda-gelu-wikitext-124m"), perplexities)
    page = "".join(study_tables(Runs(tmp_path), "lambda-gelu"))
    assert "| activation | parameters | perplexity: paper | here |" in page
    assert "| gelu |  | 28.46 | " in page


@pytest.mark.parametrize("as_the_paper", [True, False])
def test_language_models(as_the_paper, tmp_path):
    paper, other = {"shock": 0.9, "hardened_shock": 0.3}, {"shock": 0.05, "hardened_shock": 0.0}
    settings = paper if as_the_paper else {**other, "relu": -0.1, "learned": 1.5}
    language_record(tmp_path / SMALL, **settings)
    assert verdict(tmp_path, "lambda_gelu.hardening_lessens_the_shock").missing == (LARGE,)
    language_record(tmp_path / LARGE, **settings, parameters=124_439_808)
    names = [statement.name for statement in find_statements(["lambda_gelu"]) if statement.needs == (SMALL, LARGE)]
    assert len(names) == 4
    results = {name: verdict(tmp_path, f"lambda_gelu.{name}").verdict for name in names}
    if as_the_paper:
        assert set(results.values()) == {"supported"}
    else:
        assert results == {
            "relu_is_worse_in_language_models": NOT_SHOWN,
            "replacing_breaks_language_models": "doubted",
            "hardening_lessens_the_shock": "supported",
            "language_models_keep_soft_gates": "doubted",
        }


@pytest.mark.parametrize(("gain", "expected"), [(0.05, SHOWN), (-0.05, "reversed"), (None, NOT_SHOWN)])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.study)
def test_preferences(table, gain, expected, tmp_path):
    recipe = recipe_named(table.study)

    def numbers(label, seeds):
        test = {}
        for beta in recipe.task.betas:
            for column in table.columns:
                shift = 0.0 if label != table.label else gain if column.larger or gain is None else -gain
                values = (None,) * seeds if shift is None else near(0.5 + beta / 100 + shift, seeds)
                test[recipe.task.measure(column.name, beta)] = values
        return test

    language_store(tmp_path, recipe, numbers)
    (statement,) = (item for item in find_statements([table.paper]) if item.needs == (table.study,))
    judged = verdict(tmp_path, statement.id)
    assert judged.verdict == expected
    assert not judged.stand_in
    assert len(judged.evidence.parts) == len(table.values) * len(table.columns)
    page = "".join(preference_tables(Runs(tmp_path), table.paper))
    assert f", {table.place.lower()}: {table.network} trained on preferences (DPO)" in page
    assert all(f" | {cell} | " in page for _, _, _, cells in table.rows() for cell in cells if cell)
    assert ("diverged" in page) == (gain is None)
    assert not "".join(study_tables(Runs(tmp_path), table.paper.replace("_", "-")))


def test_a_story_model_stands_in_for_gpt2(tmp_path):
    recipe = recipe_named(STORIES)
    assert {float(beta) for table in TABLES if table.instead for beta in table.values} == set(recipe.task.betas)

    def numbers(label, seeds):
        better = {"silu": 0.0, "srelu": 0.05, "crrelu": -0.05, "squaf": 0.0}[label]
        sign = {"rejected_reward": -1, "evaluation_loss": -1}
        names = {column.name for table in TABLES for column in table.columns}
        return {
            recipe.task.measure(name, beta): near(0.5 + sign.get(name, 1) * better, seeds)
            for name in names
            for beta in recipe.task.betas
        }

    language_store(tmp_path, recipe, numbers)
    tables = [table for table in TABLES if table.instead]
    results = {table.label: verdict(tmp_path, f"{table.paper}.{table.statement}") for table in tables}
    assert all(judged.stand_in and judged.records == (STORIES,) for judged in results.values())
    assert {label: judged.verdict for label, judged in results.items()} == {
        "srelu": "supported",
        "crrelu": "doubted",
        "squaf": NOT_SHOWN,
    }
    page = "".join(preference_tables(Runs(tmp_path), "mollification"))
    assert "Here a stand-in: a story model" in page
    assert f"../eafo/records/{STORIES}/trials" in page


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.study)
def test_the_recipe_has_the_numbers_of_the_table(table):
    recipe = recipe_named(table.study)
    assert tuple(map(float, table.values)) == recipe.task.betas
    for beta, label, _, cells in table.rows():
        for column, cell in zip(table.columns, cells, strict=True):
            if cell:
                share = 100 if column.name == "reward_accuracy" and not column.percent else 1
                number = recipe.paper.values[label][recipe.task.measure(column.name, float(beta))]
                assert number == pytest.approx(share * float(cell.partition(" ")[0]))


# -- the page, and the tools ------------------------------------------------------------------------------------


def test_what_has_no_records_is_named_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    runs = Runs(tmp_path / "empty")
    for stem in ("smelu", "eafo"):
        text = page_of(paper(stem), [], judge(find_statements([stem]), runs), runs)
        (line,) = (line for line in text.splitlines() if line.startswith("Without records: "))
        assert line.count("`") == 2 * len(find_statements([stem]))
        assert (stem == "eafo") == ("[table-3-vit](recipes/table-3-vit.yaml)" in line)
        assert (stem == "eafo") == ("table-3-vit.yaml): not run, takes ImageNet-1K" in text)
        assert "| statement |" not in text


# -- SmeLU ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smooth", "best", "wide", "expected"),
    [(0.99, 4, 0.22, SHOWN), (0.99, 8, 0.22, SHOWN), (0.96, 4, -0.4, "reversed"), (0.96, 8, -0.4, NOT_SHOWN)],
)
def test_accuracy_and_the_width_of_the_knee(smooth, best, wide, expected, tmp_path, digits):
    """With beta = 8 the best value of Swish lies at an end of its grid, where it can win and not lose."""

    def outcome(trial, seeds):
        chosen = trial.activation
        beta = float(chosen.values.get("beta", 0.0))
        accuracy = {"relu": 0.98, "swish": smooth}.get(chosen.name, smooth - 0.001) - 0.001 * abs(beta - best)
        return {
            "test": {"accuracy": near(accuracy, seeds, noise=0.0002)},
            "difference": differing(1.0 - wide * beta, seeds),
        }

    store(tmp_path, "smelu-figure-4", outcome, digits)
    result = verdict(tmp_path, "smelu.smooth_activations_can_be_more_accurate_with_sgd")
    assert result.evidence.direction == expected
    (part,) = result.evidence.parts
    assert f"swish beta={best} " in part.says  # the most accurate of all
    wider = verdict(tmp_path, "smelu.wider_knees_agree_more_with_sgd")
    assert wider.evidence.direction == (SHOWN if wide > 0 else NOT_SHOWN)
    narrowest, steps = wider.evidence.parts
    assert (narrowest.difference > 0) == (wide > 0)
    assert f"smelu beta={4 if wide > 0 else 0.5} lower than smelu beta=0.25" in narrowest.says
    assert f"{7 if wide > 0 else 0} of 7 steps" in steps.says


@pytest.mark.parametrize(
    ("others", "accuracy", "expected"),
    [(0.6, 0.985, SHOWN), (0.6, 0.9855, SHOWN), (0.6, 0.988, NOT_SHOWN), (0.2, 0.988, "reversed")],
)
def test_smelu_is_comparable_where_it_is_behind_by_little(others, accuracy, expected, tmp_path, digits):
    """With half a tenth of a point more for the others it still is, with three tenths it is not."""

    def outcome(trial, seeds):
        own = trial.activation.name == "smelu"
        size = smooth({trial.activation.name: 0.5 if own else others})(trial, seeds)
        return size | {"test": {"accuracy": near(0.985 if own else accuracy, seeds, noise=0.0001)}}

    store(tmp_path, "smelu-figure-4", outcome, digits)
    result = verdict(tmp_path, "smelu.smelu_is_comparable_or_superior_with_sgd")
    assert result.evidence.direction == expected
    assert len(result.evidence.parts) == 10
    assert "smelu beta=2 better than gelu beta=2 in accuracy, or behind by less than 0.1" in [
        part.says.partition(": ")[2] for part in result.evidence.parts
    ]


# -- lambda-GELU ----------------------------------------------------------------------------------------------


def test_learned_hardness_in_resnet_and_beside_language_models(tmp_path, digits):
    for name in ("adult", "fashion", "cifar-10"):
        store(tmp_path, f"lambda-gelu-{name}", hardened(0.0, bare=0.1), digits)
    assert verdict(tmp_path, "lambda_gelu.learning_hardness_costs_nothing_in_resnet").verdict == "supported"
    order = verdict(tmp_path, "lambda_gelu.order_of_layers_is_robust_in_resnet")
    assert (order.verdict, order.evidence.numbers) == ("supported", {"lambda-gelu-cifar-10": pytest.approx(1.0)})
    language_record(tmp_path / SMALL, shock=0.1, hardened_shock=0.0, learned=2.7)
    language_record(tmp_path / LARGE, shock=0.1, hardened_shock=0.0, learned=1.1, parameters=124_439_808)
    store(tmp_path, "mollification-table-1", in_vision(lam=1.2), digits)
    trend = verdict(tmp_path, "lambda_gelu.networks_made_for_relu_learn_harder_gates")
    assert trend.evidence.numbers["lambda-gelu-adult"] == pytest.approx(2.55)  # 2.1 to 3.0 over four layers
    assert trend.evidence.numbers["ViT-Tiny"] == pytest.approx(1.2)
    assert trend.counts == "6 supported, 3 doubted"


def in_vision(*, lam=1.0, squaf=0.8, first=0.8):
    """Outcomes of ViT-Tiny: accuracies of SQUAF, all of it or the first trained, and what λ-GELU has learned."""
    accuracies = {"squaf": squaf, "squaf first": first}

    def outcome(trial, seeds):
        label = trial.activation.label
        results = {"test": {"accuracy": near(accuracies.get(label, 0.8), seeds, noise=0.0001 * len(label))}}
        results["train"] = {"accuracy": (1.0,) * seeds}
        if label == "lambda_gelu":
            way = {"start": 1.01, "curve": [], "end": [lam] * seeds}
            results["parameters"] = {"blocks.0.mlp.act.lam": way, "blocks.1.mlp.act.lam": way}
        return results

    return outcome


@pytest.mark.parametrize(("lam", "expected"), [(1.2, "supported"), (2.9, NOT_SHOWN)])
def test_learned_hardness_in_a_vision_transformer(lam, expected, tmp_path, digits):
    store(tmp_path, "mollification-table-1", in_vision(lam=lam), digits)
    result = verdict(tmp_path, "lambda_gelu.learning_hardness_in_a_vision_transformer")
    assert result.verdict == expected
    assert result.evidence.numbers["mean"] == pytest.approx(lam)


def test_a_study_without_hardness_says_so(tmp_path, digits):
    def outcome(trial, seeds):
        return {"test": {"accuracy": near(0.8, seeds)}}

    store(tmp_path, "mollification-table-1", outcome, digits)
    with pytest.raises(DataError, match="no hardness of 'lambda_gelu', measured or learned"):
        verdict(tmp_path, "lambda_gelu.learning_hardness_in_a_vision_transformer")


def test_a_table_shows_training_accuracies_and_says_which_runs_it_shares(tmp_path, digits):
    store(tmp_path, "mollification-table-1", in_vision(), digits)
    store(tmp_path, "eafo-table-1", in_vision(), digits)
    runs = Runs(tmp_path)
    mine, theirs = ("".join(study_tables(runs, stem)) for stem in ("eafo", "mollification"))
    assert "| here | on the training examples, % |" in mine
    assert re.search(r"^\| gelu \|.* \| 100\.00 \|$", mine, flags=re.M)
    assert "\nAll rows are the same runs as those of `mollification-table-1`, and count once.\n" in mine
    assert (
        "\nThe rows relu, gelu, elu, prelu, celu, silu, mish, crrelu are the same runs as those of `eafo-table-1`,"
        in theirs
    )


def test_what_became_of_eps_is_told(tmp_path, digits):
    def outcome(trial, seeds):
        results = {"test": {"accuracy": near(0.8, seeds)}}
        if trial.activation.label == "crrelu":
            results["parameters"] = {
                "act.eps": {"start": 0.01, "curve": [], "end": (-0.3, 0.02, *(seeds - 2) * (-0.1,))}
            }
        return results

    studies = []
    for name in ("eafo-table-1", "mollification-table-1-augmented"):
        store(tmp_path, name, outcome, digits)
        studies.append(Runs(tmp_path).study(name))
    assert verdict(tmp_path, "eafo.eps_turns_negative").verdict == NOT_THERE  # which asks for every study
    (statement,) = (item for item in find_statements(["eafo"]) if item.name == "eps_turns_negative")
    evidence = statement.decide(*studies)
    assert evidence.direction == NOT_SHOWN
    assert evidence.measured == (
        "below 0 in 6 of 8 layers and seeds: 2 of 3 (eafo-table-1), 4 of 5 (mollification-table-1-augmented)"
    )


def test_dead_units_are_counted(tmp_path, digits):
    def outcome(dead):
        def of(trial, seeds):
            label = trial.activation.label
            site = {"path": "act", "activation": label, "zero_fraction": (0.5,) * seeds, "entropy": (1.0,) * seeds}
            shares = near(dead if label == "relu" else 0.1, seeds)
            return {"test": {"accuracy": near(0.8, seeds)}, "activity": ({**site, "dead_fraction": shares},)}

        return of

    for share, expected in ((0.2, SHOWN), (0.05, "reversed")):
        store(tmp_path / f"{share}", "mollification-table-1-augmented", outcome(share), digits)
        for name in ("mollification.srelu_leaves_fewer_dead_units", "eafo.crrelu_leaves_fewer_dead_units"):
            result = verdict(tmp_path / f"{share}", name)
            assert result.verdict == expected
            dead = 100 * sum(near(share, 5)) / 5
            assert f"relu: {dead:.2f} % of the units dead, 50 % of the outputs 0" in result.measured


@pytest.mark.parametrize(("squaf", "first", "expected"), [(0.78, 0.83, SHOWN), (0.83, 0.78, "reversed")])
def test_which_squafs_are_trained(squaf, first, expected, tmp_path, digits):
    store(tmp_path, "squaf-table-6-vit-short", in_vision(squaf=squaf, first=first), digits)
    overfits = verdict(tmp_path, "squaf.training_every_squaf_overfits")
    assert [part.direction for part in overfits.evidence.parts] == [expected, expected]  # the accuracy, and the gap
    best = verdict(tmp_path, "squaf.best_in_a_transformer")
    directions = [part.direction for part in best.evidence.parts]
    assert sorted(directions) == sorted([expected] * 5 + ["not run"] * 5)
    assert best.verdict == {SHOWN: "supported", "reversed": "doubted"}[expected]  # what was not run blocks nothing


def test_starts_that_order_the_layers_otherwise_are_seen(tmp_path, digits):
    def outcome(trial, seeds):
        result = hardened(0.0, bare=0.1)(trial, seeds)
        if trial.activation.label == LEARNED[1]:
            turned = [item["end"] for item in reversed(result["hardness"])]
            sites = zip(result["hardness"], turned, strict=True)
            result |= {"hardness": tuple({**site, "end": end} for site, end in sites)}
            result |= {"test": {"accuracy": near(0.84, seeds)}}
        return result

    store(tmp_path, "lambda-gelu-cifar-10", outcome, digits)
    order = verdict(tmp_path, "lambda_gelu.order_of_layers_is_robust_in_resnet")
    assert (order.verdict, order.evidence.numbers) == ("doubted", {"lambda-gelu-cifar-10": pytest.approx(-1 / 3)})
    assert verdict(tmp_path, "lambda_gelu.learning_hardness_costs_nothing_in_resnet").counts == "2 supported, 1 doubted"


def test_one_cell_of_the_grid_that_costs_accuracy(tmp_path, digits):
    def outcome(trial, seeds):
        chosen = trial.activation
        bad = (trial.training.activation_rate, chosen.values.get("temperature")) == (9, 0.9)
        return {"curves": {"validation_accuracy": ((0.80,) * seeds, (0.84 if bad else 0.86,) * seeds)}}

    store(tmp_path, "lambda-gelu-figure-1", outcome, digits)
    result = verdict(tmp_path, "lambda_gelu.every_cell_is_as_good_as_gelu")
    assert result.counts == "15 shown, 1 reversed"
    assert min(part.difference for part in result.evidence.parts) == pytest.approx(-2.0)


@pytest.mark.parametrize(("turned", "expected"), [(0, "supported"), (6, NOT_SHOWN)])
def test_the_rates_of_figure_2(turned, expected, tmp_path, digits):
    def outcome(trial, seeds):
        rate = trial.training.activation_rate if trial.activation.name == "lambda_gelu" else 0
        drift = 0.5 if rate == turned else rate
        way = tuple((1.0 + drift * step,) * seeds for step in (0, 1))
        return {
            "parameters": {"1.lam": {"start": 1.0, "end": way[-1], "curve": way}} if rate else {},
            "curves": {"validation_accuracy": (near(0.85 - 0.03 * (rate == turned != 0), seeds),)},
        }

    store(tmp_path, "lambda-gelu-figure-2-small", outcome, digits)
    drift = verdict(tmp_path, "lambda_gelu.drift_follows_the_rate_with_adamw")
    assert drift.verdict == expected
    assert drift.evidence.numbers["t=0.1 c=9"] == pytest.approx(9.0)
    close = verdict(tmp_path, "lambda_gelu.every_rate_is_as_good_as_gelu_with_adamw")
    assert [part.direction for part in close.evidence.parts] == [SHOWN, SHOWN, "reversed" if turned else SHOWN, SHOWN]


# -- SQUAF ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alone", "expected"), [(1e-7, "as printed"), (1e-6, "smaller")])
def test_the_gain_of_a_squaf_alone_over_all_networks(alone, expected, tmp_path, digits):
    def outcome(trial, seeds):
        label = trial.activation.label
        error = alone if label.startswith("SQUAF") else 1e-3 if label == "ditac" else 1e-2
        return {"test": {"mse": tuple(error * (1 + 0.01 * seed) for seed in range(seeds))}}

    for name in ("squaf-table-3-1d", "squaf-table-3-1d-alone"):
        store(tmp_path, name, outcome, digits)
    result = verdict(tmp_path, "squaf.gains_in_function_fitting")
    assert (result.verdict, result.size) == (SHOWN, expected)
    assert "ditac" in result.evidence.parts[0].says


def test_statements_take_the_papers_own_data_as_soon_as_they_are_there(tmp_path, digits):
    """VGG-8 with its own schedule, and its rate curve on CIFAR-100: then nothing stands in."""

    def outcome(trial, seeds):
        label = trial.activation.label
        accuracy = 0.72 if label in ("squaf", "SQUAF") else 0.70
        test = {"accuracy": near(accuracy, seeds)}
        if trial.activation.mode == "sampled":
            bits = 4.5 - 200 * (trial.activation.price or 0.0)
            test |= {f"accuracy_{mode}": near(value, seeds) for mode, value in MODES_OF_SQUAF.items()}
            test |= {name: near(bits, seeds) for name in ("bits", "bits_huffman", "bits_rans")}
        return {"test": test, "train": {"accuracy": near(accuracy + 0.2, seeds)}}

    for name in ("squaf-table-6-vgg8", "squaf-table-7-vgg", "squaf-figure-3"):
        store(tmp_path, name, outcome, digits)
    for name in ("best_in_a_small_network", "best_student", "few_bits_cost_no_accuracy", "price_lowers_the_rate"):
        result = verdict(tmp_path, f"squaf.{name}")
        assert (result.verdict, result.stand_in) == (SHOWN, ""), name
    gaps = verdict(tmp_path, "squaf.smallest_gap").evidence.parts
    assert sum(part.direction != "not run" for part in gaps) == 7
    assert verdict(tmp_path, "squaf.student_surpasses_its_teacher").verdict == NOT_THERE  # no record of a teacher
    assert verdict(tmp_path, "squaf.polyrelu_does_not_converge").verdict == NOT_SHOWN


MODES_OF_SQUAF = {"sampled": 0.71, "soft": 0.715, "step": 0.71}


def test_doing_better_than_the_paper_is_no_failure(tmp_path):
    def record(name, **milliseconds):
        times = {item: Quantity.mean([value], unit="ms") for item, value in milliseconds.items()}
        modes = {"sampled": "squaf(mode=sampled)", "stairs": "squaf(mode=step)"}
        rows = [{"variant": modes.get(entry, entry), "forward": time, "step": time} for entry, time in times.items()]
        Record.now("bench", command="", rows=rows, settings={}).write(tmp_path / name)

    common = {"before": 1.0, "polynorm": 2.0, "ditac": 2.0, "squaf": 1.01, "sampled": 1.6}
    record(TIMES, **common, crrelu=1.2, stairs=1.3)
    record(MODES, **common, relu=1.0, stairs=1.0)
    result = verdict(tmp_path, "squaf.costs_of_a_transformer")
    assert result.counts == "5 supported, 1 not shown"
    assert result.evidence.parts[-1].direction == NOT_SHOWN  # 1.3 against CRReLU's 1.2
    assert "SQUAF-P 1.584 of SQUAF's (1.58 in bfloat16)" in result.measured


# -- numbers of the papers --------------------------------------------------------------------------------------


def test_the_legible_cells_of_a_torn_table_have_the_printed_means():
    """Mollification, table 1: CELU is legible for every network, and the means are for every function."""
    (table,) = (item for item in EXHIBITS["mollification"] if item.place == "Table 1")
    printed = [
        [float(value) for value in re.findall(r"\d\d\.\d", line)]
        for line in table.also.splitlines()
        if "networks |" in line
    ]
    rows = {}
    for recipe in map(recipe_named, table.recipes):
        if recipe.name.endswith(("-augmented", "-short", "-small")):  # the same row once more
            continue
        rows.setdefault(recipe.data.set, []).append(recipe)
    for of, means in zip(rows.values(), printed, strict=True):
        celu = [recipe.paper.values["celu"]["accuracy"] for recipe in of]
        assert sum(celu) / len(celu) == pytest.approx(means[3], abs=0.051)
        notes = [recipe.paper.note for recipe in of if len(recipe.paper.values) < 7]
        assert all(
            f"GELU {means[0]:.1f}, ELU {means[1]:.1f}, PReLU {means[2]:.1f}" in " ".join(note.split()) for note in notes
        )


def test_what_cannot_be_read_is_told_as_what_follows_from_the_rest():
    """Mollification, table 3: a margin is the chosen reward less the rejected one."""
    (table,) = (item for item in EXHIBITS["mollification"] if item.place == "Table 3")
    for pair in S_RELU.values.values():
        rejected = [float(row[0]) - float(row[2].partition(" ")[0]) for row in pair]
        assert rejected[0] > rejected[1]
        assert all(f"{value:.4f}" in table.also for value in rejected)


def test_recipes_of_distillation_have_the_papers_numbers():
    for name, gaps in GAPS.items():
        printed = recipe_named(name).paper.values
        assert set(gaps) == {label for label, row in printed.items() if "accuracy" in row} - {"relu"}
    squaf = recipe_named("squaf-table-15").activations[-1]
    # Its count of parameters says that all SQUAFs but those of the last stage are trained.
    assert squaf.trained == "all but last stage"


def test_figure_2_is_run_from_the_three_starts_of_the_paper():
    """As in figure 1, whose recipe says how a start is written."""

    def starts(name):
        return {each.label: (each.values["lam"], each.last) for each in recipe_named(name).activations[1:]}

    for name in ("lambda-gelu-figure-2", "lambda-gelu-figure-2-small"):
        assert starts(name) == starts("lambda-gelu-figure-1")
        assert {each.rate for each in recipe_named(name).activations[1:]} == {(1, 3, 6, 9)}


# -- a study that was run in part decides nothing, and says how far it is ---------------------------------------

STUDIES = Path(__file__).parents[1] / "lambda_gelu" / "records"


@pytest.fixture
def partial(tmp_path):
    """lambda-gelu-adult without one of its six trials, and lambda-gelu-fashion whole."""
    for name in ("lambda-gelu-adult", "lambda-gelu-fashion"):
        shutil.copytree(STUDIES / name, tmp_path / name)
    min((tmp_path / "lambda-gelu-adult" / "trials").glob("*.json")).unlink()  # the same one on every disk
    return Runs(tmp_path)


def test_what_is_missing_is_counted(partial):
    assert partial.unfinished == {"lambda-gelu-adult": (5, 6)}
    assert partial.has("lambda-gelu-fashion")
    assert not partial.has("lambda-gelu-adult")


def test_no_statement_rests_on_a_part(partial):
    resting = [statement for statement in find_statements(["lambda_gelu"]) if "lambda-gelu-adult" in statement.needs]
    assert resting
    for item in judge(resting, partial):
        assert item.verdict == NOT_THERE
        assert "lambda-gelu-adult (5 of 6 activations)" in item.measured


def test_its_figures_are_drawn_and_named(partial):
    written = write_figures(partial)
    figures = ("hardness", "validation-accuracy", "order-of-layers")
    drawn = [file_of(name, figure) for name in partial.names for figure in figures]
    assert [item.name for item in written] == drawn
    assert all(value.read_bytes().startswith(b"\x89PNG") for value in written)
    assert sorted(file for _, file, _ in figures_of(partial)) == sorted(entry.name for entry in written)


# -- the order of the layers by hardness, epoch by epoch --------------------------------------------------------

PAIRS = ["uniform and increasing", "uniform and decreasing", "increasing and decreasing"]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs.committed()


@pytest.mark.parametrize("name", [FASHION, ADULT])
def test_each_epoch_is_spearmans_correlation_of_the_two_profiles(runs: Runs, name: str) -> None:
    study, actual = runs.study(name), correlations(runs.study(name))
    assert list(actual) == PAIRS
    uniform, increasing = (
        torch.tensor([way["curve"] for way in study.outcomes[label].parameters.values()]) for label in LEARNED[:2]
    )
    seeds, count = actual[PAIRS[0]], study.outcomes[LEARNED[0]].trial.seeds.count
    assert (len(seeds), {len(seed) for seed in seeds}) == (count, {50})
    for seed in range(count):
        for epoch in (0, 9, 49):
            expected = scipy.stats.spearmanr(uniform[:, epoch, seed], increasing[:, epoch, seed]).statistic
            assert seeds[seed][epoch] == pytest.approx(expected)


def test_fashion_keeps_an_order_that_adult_finds_late(runs: Runs) -> None:
    """What the figures show: the starts are opposite on Adult in the first epoch, and agree on Fashion-MNIST soon."""
    fashion, adult = (correlations(runs.study(name))[PAIRS[2]] for name in (FASHION, ADULT))
    assert mean(seed[9] for seed in fashion) == 1.0
    assert mean(seed[0] for seed in adult) == -1.0
    assert mean(seed[-1] for seed in adult) > 0.8


def test_what_is_not_there_is_left_out(runs: Runs) -> None:
    study = runs.study(FASHION)
    one = study.outcomes[LEARNED[0]]
    alone = replace(study, outcomes={LEARNED[0]: one})
    assert correlations(alone) == {}
    assert order_figure(alone) is None
    # The second seed diverged after three epochs: nothing of it counts, from no pair it is in.
    gone = {
        name: {
            **way,
            "curve": [[a, b if epoch < 3 else None, *rest] for epoch, (a, b, *rest) in enumerate(way["curve"])],
        }
        for name, way in one.parameters.items()
    }
    count = one.trial.seeds.count
    less = replace(study, outcomes={**study.outcomes, LEARNED[0]: replace(one, parameters=gone)})
    assert [len(seeds) for seeds in correlations(less).values()] == [count - 1, count - 1, count]
    unmoved = replace(study, outcomes={**study.outcomes, LEARNED[0]: replace(one, parameters={})})
    assert [len(seeds) for seeds in correlations(unmoved).values()] == [0, 0, count]
    assert (order_figure(unmoved) or b"")[:4] == b"\x89PNG"


def test_equal_layers_have_no_order(runs: Runs) -> None:
    study = runs.study(FASHION)
    one = study.outcomes[LEARNED[0]]
    flat = {
        name: {**way, "curve": [[1.0] * one.trial.seeds.count, *way["curve"][1:]]}
        for name, way in one.parameters.items()
    }
    result = correlations(replace(study, outcomes={**study.outcomes, LEARNED[0]: replace(one, parameters=flat)}))
    assert all(math.isnan(seed[0]) for seed in result[PAIRS[0]])
    assert not any(math.isnan(seed[1]) for seed in result[PAIRS[0]])
