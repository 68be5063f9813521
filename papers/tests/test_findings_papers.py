"""The empirical statements of the four older papers: verdicts that follow from records made up for the purpose."""

from dataclasses import replace

import pytest
import scipy.stats
import torch
from papers.claim import paper
from papers.compared import agrees_more, drops, rank_correlation_of_groups
from papers.lambda_gelu.findings import HARDENED, LARGE, RATES, SMALL, TEMPERATURES
from papers.ledger import find_statements
from papers.pages import comparisons
from papers.pages import page as page_of
from papers.preferences import TABLES
from papers.runs import Runs, recipe_named
from papers.statement import CANNOT_TELL, NOT_THERE, corrected, judge
from papers.tables import study_tables
from softknee.lab.characters import Characters

from softknee.errors import DataError
from softknee.lab import language_models
from softknee.lab.language.loading import AS_LOADED
from softknee.lab.language.wikitext_study import train_models
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.recipe import Data
from softknee.lab.studies.runner import recipe_mapping
from softknee.lab.studies.store import Description
from softknee.lab.studies.trials import Outcome, train_trials
from softknee.measure import Quantity, Record, prediction_difference, spearman


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


# -- mollification and EAFO -----------------------------------------------------------------------------------


def test_srelu_against_the_others_and_against_relu(tmp_path, digits):
    wide = {"srelu": 0.90, "relu": 0.90}
    store(tmp_path, "mollification-table-2", accuracies(lambda label: wide.get(label, 0.62)), digits)
    store(tmp_path, "mollification-table-1", accuracies(lambda label: wide.get(label, 0.92)), digits)
    assert verdict(tmp_path, "mollification.srelu_is_best_in_convnext").verdict == "holds"
    assert verdict(tmp_path, "mollification.srelu_is_best_in_vit").verdict == "fails"
    assert verdict(tmp_path, "mollification.srelu_lifts_convnext").verdict == "holds"
    assert verdict(tmp_path, "mollification.smoothing_helps_convnext").verdict == CANNOT_TELL
    assert verdict(tmp_path, "mollification.smoothing_helps_vit").verdict == CANNOT_TELL
    assert verdict(tmp_path, "mollification.elu_and_celu_differ").verdict == NOT_THERE
    store(tmp_path, "mollification-table-1-deit-cifar-100", accuracies(lambda label: 0.5), digits)
    assert verdict(tmp_path, "mollification.elu_and_celu_differ").verdict == "fails"


def test_a_small_gain_is_not_the_papers(tmp_path, digits):
    means = {"srelu": 0.65, "relu": 0.65}
    store(tmp_path, "mollification-table-2", accuracies(lambda label: means.get(label, 0.60)), digits)
    found = verdict(tmp_path, "mollification.srelu_lifts_convnext")
    assert found.verdict == "partly"
    assert found.counts == "1 holds, 1 fails"
    assert found.evidence.numbers["gain"] == pytest.approx(0.05, abs=0.005)
    compared = found.evidence.parts[0]
    seeds = [near(means.get(label, 0.60), compared.pairs) for label in ("srelu", "gelu")]
    truth = scipy.stats.ttest_rel(*seeds)
    assert compared.interval == pytest.approx(tuple(truth.confidence_interval()))
    low, high = (100 * one for one in truth.confidence_interval())
    assert f": {100 * compared.direction:+.2f} points [{low:.2f}, {high:.2f}], where at least 12.5" in found.measured
    (line,) = [one for one in comparisons([found]) if one.startswith("| `srelu_lifts")]
    assert f" | {compared.pairs} | {compared.direction:+.5f} [{low / 100:.5f}, {high / 100:.5f}] | " in line
    # A statement about some of a study's activations waits for these alone, and says which of the others were not run.
    for one in (tmp_path / "mollification-table-2" / "trials").glob("*.json"):
        if Outcome.read(Record.read(one)).trial.activation.label in ("mish", "relu"):
            one.unlink()
    assert verdict(tmp_path, "mollification.srelu_lifts_convnext").verdict == "partly"
    assert verdict(tmp_path, "mollification.srelu_is_best_in_convnext").measured.endswith("5 of 5; not run: mish")
    assert verdict(tmp_path, "mollification.smoothing_helps_convnext").verdict == NOT_THERE


def test_the_sweep_of_delta(tmp_path, digits):
    def mean(label):
        return 0.9 - 0.05 * float(label.partition("=")[2] or 0) ** 0.3

    store(tmp_path, "mollification-table-4", accuracies(mean), digits)
    found = verdict(tmp_path, "mollification.a_narrow_knee_is_best")
    assert found.verdict == "holds"
    assert len(found.evidence.parts) == 7


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
    for name in (
        "crrelu_is_best_on_cifar_10",
        "the_correction_helps",
        "prelu_is_next",
        "the_correction_lowers_entropy",
    ):
        assert verdict(tmp_path, f"eafo.{name}").verdict == "holds", name
    assert verdict(tmp_path, "eafo.elu_and_celu_are_one").verdict == "fails"  # two points apart here
    assert verdict(tmp_path, "eafo.crrelu_is_best_on_cifar_100").verdict == "no records"


@pytest.mark.parametrize(("slope", "said"), [(-0.1, "holds"), (0.1, "fails"), (0.0, CANNOT_TELL)])
def test_entropy_against_accuracy(slope, said, tmp_path, digits):
    store(tmp_path, "mollification-table-1", entropic(slope), digits)
    found = verdict(tmp_path, "eafo.less_entropy_goes_with_accuracy")
    assert found.verdict == said
    rho, low, high = found.evidence.numbers["correlations"]["output"]
    assert low <= rho <= high
    assert "33 runs of 11 activations" in found.measured
    runs = Runs(tmp_path).study("mollification-table-1").outcomes.values()
    points = [pair for one in runs for pair in zip(one.entropy[0]["end"]["output"], one.test["accuracy"], strict=True)]
    assert rho == pytest.approx(scipy.stats.spearmanr(*zip(*points, strict=True)).statistic)


def test_the_interval_knows_that_seeds_of_one_activation_belong_together():
    random = torch.Generator().manual_seed(1)
    centres = torch.randn(6, 2, generator=random).tolist()
    alone = rank_correlation_of_groups([[(a, b)] for a, b in centres])
    many = rank_correlation_of_groups([[(a, b)] * 9 for a, b in centres])
    assert many[2] - many[1] == pytest.approx(alone[2] - alone[1], abs=0.02)  # 54 points, and no more known
    assert many[2] - many[1] > 0.5


# -- SmeLU ----------------------------------------------------------------------------------------------------


def smooth(sizes):
    """Outcomes whose models disagree as much as `sizes` says of each name; SmeLU less the wider its knee."""

    def outcome(trial, seeds):
        chosen = trial.activation
        size = sizes.get(chosen.name, 0.5) * (1.0 + 0.1 / float(chosen.values.get("beta", 1.0)))
        return {"test": {"accuracy": near(0.985, seeds, noise=0.0)}, "difference": differing(size, seeds)}

    return outcome


def test_smooth_models_agree_more_than_relus(tmp_path, digits):
    sizes = {"relu": 1.0, "swish": 0.8}
    for name in ("smelu-figure-4", "smelu-figure-13"):
        store(tmp_path, name, smooth(sizes), digits)
    figures = {"smelu-figure-4", "smelu-figure-13"}
    names = [one.decide.__name__ for one in find_statements(["smelu"]) if figures >= set(one.needs)]
    assert len(names) == 13
    for name in names:  # with one accuracy for all, no function is more accurate
        said = CANNOT_TELL if "more_accurate" in name else "holds"
        assert verdict(tmp_path, f"smelu.{name}").verdict == said, name
    text = "".join(study_tables(Runs(tmp_path), "smelu"))
    assert "| prediction difference |" in text
    assert "smelu beta=2.5" in text


def test_a_relu_that_agrees_more_is_seen_and_one_optimizer_does_not_wait_for_the_other(tmp_path, digits):
    store(tmp_path, "smelu-figure-4", smooth({"relu": 0.3}), digits)
    for name in ("smooth_models_agree_more", "smelu_has_the_better_trade_off", "other_measures_say_the_same"):
        found = verdict(tmp_path, f"smelu.{name}_with_sgd")
        assert found.verdict == "fails", name
        assert ": higher" in found.measured
        waiting = verdict(tmp_path, f"smelu.{name}_with_adagrad")
        assert waiting.verdict == "no records"
        assert waiting.missing == ("smelu-figure-13",)
    study = Runs(tmp_path).study("smelu-figure-4")
    (same,) = corrected(agrees_more(study, "relu", ["relu"]))
    assert same.verdict == CANNOT_TELL


# -- lambda-GELU ----------------------------------------------------------------------------------------------


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


def test_hardening_makes_the_swap_cheap(tmp_path, digits):
    for name in ("lambda-gelu-fashion", "lambda-gelu-adult"):
        store(tmp_path, name, hardened(0.001, bare=0.04), digits)
    assert verdict(tmp_path, "lambda_gelu.replacing_after_hardening_costs_little").verdict == "holds"
    assert verdict(tmp_path, "lambda_gelu.learning_hardness_costs_nothing").verdict == "holds"
    assert verdict(tmp_path, "lambda_gelu.learned_gates_become_harder").verdict == "holds"
    assert verdict(tmp_path, "lambda_gelu.hardening_costs_accuracy_on_adult").verdict == CANNOT_TELL
    order = verdict(tmp_path, "lambda_gelu.order_of_layers_is_robust")
    assert order.verdict == "partly"  # on both data sets alike
    assert order.evidence.numbers["lambda-gelu-fashion"] == pytest.approx(1.0)
    study = Runs(tmp_path).study("lambda-gelu-adult")
    assert drops(study, "gelu") == pytest.approx([0.04, 0.0401, 0.0402])
    assert drops(study, "relu") == []
    text = "".join(study_tables(Runs(tmp_path), "lambda-gelu"))
    assert "accuracy, %, when replaced" in text
    assert "ReLU: 8" in text


@pytest.mark.parametrize(("drop", "bare", "said"), [(0.001, 0.04, "holds"), (0.04, 0.001, "fails")])
def test_the_bare_swap_against_the_hardened(drop, bare, said, tmp_path, digits):
    def noisy(trial, seeds):
        found = hardened(drop, bare=bare)(trial, seeds)
        if trial.activation.label == "gelu":  # pairs that differ from each other, so that there is a test
            after = tuple(one + 0.0003 * seed for seed, one in enumerate(found["replacement"]["test"]["accuracy"]))
            found["replacement"] = {"limit": "ReLU", "test": {"accuracy": after}}
        return found

    for data in ("fashion", "adult", "cifar-10", "cifar-100", "tiny-imagenet"):
        store(tmp_path, f"lambda-gelu-{data}", noisy, digits)
    names = ("the_bare_swap_costs_more", "replacing_in_resnet", "replacing_in_resnet_on_cifar_100", "replacing_in_deit")
    for name in names:
        assert verdict(tmp_path, f"lambda_gelu.{name}").verdict == said, name


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
    found = verdict(tmp_path, "lambda_gelu.drift_follows_temperature_and_rate")
    assert found.verdict == "holds"
    assert len(found.evidence.parts) == 24
    assert found.evidence.numbers == pytest.approx(
        {f"t={t:g} c={c}": 2 * c / t for t in TEMPERATURES for c in RATES}, rel=1e-9
    )
    best = verdict(tmp_path, "lambda_gelu.the_chosen_cell_is_as_good_as_gelu")
    assert best.evidence.numbers == pytest.approx({"lambda_gelu": 0.855, "gelu": 0.86})
    assert best.verdict == "holds"


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


def test_the_table_of_language_models(tmp_path):
    """From the study itself, tiny, to the page."""
    text = Characters(train=torch.arange(400) % 7, validation=torch.arange(90) % 7, vocabulary=7)
    recipe = language_models.Recipe(
        layers=1, width=8, heads=1, context=8, batch=2, steps=4, warmup=1, recover=0, dropout=0.0, tolerance=0.05
    )
    settings = language_models.Settings(
        recipe=recipe, seeds=(0, 1, 2), device="cpu", rows=("gelu", "lambda_gelu", "relu")
    )
    record = train_models(settings, text, train_name="numbers", command="softknee study wikitext")
    record.write(tmp_path / SMALL)
    runs = Runs(tmp_path)
    page = page_of(paper("lambda_gelu"), [], judge(find_statements(["lambda_gelu"]), runs), runs)
    assert "### λ-GELU, WikiText-2: a GPT-2 of 1,008 parameters from scratch" in page
    assert "| perplexity | free | bare | hardened | replaced |" in page
    assert "trained on numbers (400 tokens)" in page
    assert record.notes[2].endswith("but on: numbers.")


@pytest.mark.parametrize("as_the_paper", [True, False])
def test_language_models(as_the_paper, tmp_path):
    paper, other = {"shock": 0.9, "hardened_shock": 0.3}, {"shock": 0.05, "hardened_shock": 0.0}
    settings = paper if as_the_paper else {**other, "relu": -0.1, "learned": 1.5}
    language_record(tmp_path / SMALL, **settings)
    assert verdict(tmp_path, "lambda_gelu.hardening_lessens_the_shock").missing == (LARGE,)
    language_record(tmp_path / LARGE, **settings, parameters=124_439_808)
    names = [one.decide.__name__ for one in find_statements(["lambda_gelu"]) if one.needs == (SMALL, LARGE)]
    assert len(names) == 4
    found = {name: verdict(tmp_path, f"lambda_gelu.{name}").verdict for name in names}
    if as_the_paper:
        assert set(found.values()) == {"holds"}
        assert len(verdict(tmp_path, "lambda_gelu.hardening_lessens_the_shock").evidence.parts) == 4
    else:
        assert found == {
            "relu_is_worse_in_language_models": "partly",
            "replacing_breaks_language_models": "fails",
            "hardening_lessens_the_shock": "partly",
            "language_models_keep_soft_gates": "fails",
        }


@pytest.mark.parametrize(("gain", "said"), [(0.05, "holds"), (-0.05, "fails"), (None, "cannot tell")])
@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.record.removesuffix(".json"))
def test_preferences(table, gain, said, tmp_path):
    rows = []
    for beta in map(float, table.values):
        for name in (AS_LOADED, table.swap):
            better = gain if name == table.swap else 0.0
            found = {
                f"{one.name}_by_seed": list(near(0.5 + beta / 100 + (better if one.larger else -better), 3))
                for one in table.columns
                if better is not None
            }
            found |= {one.name: Quantity.mean(found[f"{one.name}_by_seed"], unit="") for one in table.columns if found}
            rows.append({"activation": name, "beta": beta, **found})
    record = Record.now("study preference", command="", rows=rows, settings={})
    record.write(tmp_path / table.record)
    (of,) = (one for one in find_statements([table.paper]) if one.needs == (table.record,))
    judged = verdict(tmp_path, of.id)
    assert judged.verdict == said
    assert len(judged.evidence.parts) == len(table.values) * len(table.columns)
    replace(record, rows=record.rows[1:]).write(tmp_path / table.record)
    with pytest.raises(DataError, match=f"lacks {table.title} or GELU at beta {next(iter(table.values))}"):
        verdict(tmp_path, of.id)


# -- the page, and the tools ------------------------------------------------------------------------------------


def test_what_has_no_records_is_a_short_line(tmp_path):
    (tmp_path / "empty").mkdir()
    runs = Runs(tmp_path / "empty")
    for stem in ("smelu", "eafo"):
        text = page_of(paper(stem), [], judge(find_statements([stem]), runs), runs)
        lines = [one for one in text.splitlines() if one.startswith("- ")]
        assert len(lines) == len(find_statements([stem]))
        assert all(one.endswith(".") and "Decided by `" in one for one in lines)
        assert "| statement |" not in text


def test_rank_correlation_is_scipys():
    random = torch.Generator().manual_seed(0)
    for _ in range(5):
        a, b = torch.randint(5, (2, 9), generator=random).double().tolist()
        assert spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic)
