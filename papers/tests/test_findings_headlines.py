"""Claims of the papers' abstracts and conclusions, judged by records made up for the purpose; and numbers of the papers
that have to agree with each other."""

import re
import shlex

import pytest
from papers.exhibits import EXHIBITS
from papers.lambda_gelu.findings import LARGE, LEARNED, SMALL
from papers.preferences import S_RELU
from papers.runs import HERE, Runs, recipe_named
from papers.smelu.findings import ONLINE, TABLES
from papers.squaf.findings import MODES, TIMES
from papers.statement import CANNOT_TELL
from papers.tables import study_tables
from test_findings_clicks import SO
from test_findings_clicks import rows as rows  # a fixture
from test_findings_clicks import store as store_clicks
from test_findings_papers import differing, hardened, language_record, near, store, verdict
from test_findings_papers import digits as digits  # a fixture

from softknee.errors import DataError
from softknee.lab.distilling import PAPER
from softknee.lab.studies.reading import find_recipe
from softknee.measure import Quantity, Record

# -- SmeLU ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("smooth", "wide", "said"), [(0.99, 0.05, "holds"), (0.96, -0.05, "fails")])
def test_accuracy_and_the_width_of_the_knee(smooth, wide, said, tmp_path, digits):
    def outcome(trial, seeds):
        chosen = trial.activation
        accuracy = 0.98 if chosen.name == "relu" else smooth
        return {
            "test": {"accuracy": near(accuracy + 0.001 * float(chosen.values.get("beta", 0.0)), seeds, noise=0.0002)},
            "difference": differing(1.0 - wide * float(chosen.values.get("beta", 0.0)), seeds),
        }

    store(tmp_path, "smelu-figure-4", outcome, digits)
    found = verdict(tmp_path, "smelu.smooth_activations_can_be_more_accurate_with_sgd")
    assert found.verdict == said
    assert len(found.evidence.parts) == 6
    assert "smelu beta=4 " in found.measured  # of each family the most accurate
    wider = verdict(tmp_path, "smelu.wider_knees_agree_more_with_sgd")
    assert wider.verdict == said
    assert [part.says.split()[2] for part in wider.evidence.parts] == [
        f"beta={beta:g}" for beta in (0.5, 1, 1.5, 2, 2.5, 3, 4)
    ]


@pytest.mark.parametrize(("size", "said"), [(0.3, "holds"), (0.85, "fails")])
def test_how_much_lower_the_difference_of_clicks_is(size, said, tmp_path, rows):
    for name in TABLES:
        store_clicks(tmp_path, name, rows, SO | {"smelu": (0.74, 0.495, size, 0.001)})
    found = verdict(tmp_path, "smelu.smelu_lowers_the_difference_by_much")
    assert found.verdict == said
    assert len(found.evidence.parts) == 6


def online(**of):
    """Scores of the online study by the name of the function: the log loss, and how far models stray."""
    return {name: (0.7, loss, size, 0.01) for name, (loss, size) in of.items()}


def test_families_online(tmp_path, rows):
    scores = online(relu=(0.52, 1.0), smelu=(0.50, 0.3), gelu=(0.50, 0.4), swish=(0.48, 0.5), others=(0.50, 0.8))
    store_clicks(tmp_path, ONLINE, rows, scores)
    assert verdict(tmp_path, "smelu.three_families_trade_best_online").verdict == "holds"
    assert verdict(tmp_path, "smelu.smelu_agrees_and_swish_predicts_better_online").verdict == "holds"


def test_a_family_that_always_loses_more_than_relu_has_no_trade_off(tmp_path, rows):
    scores = online(relu=(0.52, 1.0), smelu=(0.55, 0.1), mish=(0.55, 0.1), swish=(0.48, 0.8), others=(0.50, 0.8))
    store_clicks(tmp_path, ONLINE, rows, scores)
    found = verdict(tmp_path, "smelu.three_families_trade_best_online")
    # SmeLU against both; GELU and Swish against Mish, which has no value either, and against TanhExp, as good as they.
    assert [part.verdict for part in found.evidence.parts] == [
        *("fails", "fails"),
        *("holds", CANNOT_TELL),
        *("holds", CANNOT_TELL),
    ]
    both = verdict(tmp_path, "smelu.smelu_agrees_and_swish_predicts_better_online")
    assert [part.verdict for part in both.evidence.parts] == ["fails", "holds"]


# -- lambda-GELU ----------------------------------------------------------------------------------------------


def test_learned_hardness_in_resnet_and_beside_language_models(tmp_path, digits):
    for name in ("adult", "fashion", "cifar-10"):
        store(tmp_path, f"lambda-gelu-{name}", hardened(0.0, bare=0.1), digits)
    assert verdict(tmp_path, "lambda_gelu.learning_hardness_costs_nothing_in_resnet").verdict == "holds"
    order = verdict(tmp_path, "lambda_gelu.order_of_layers_is_robust_in_resnet")
    assert (order.verdict, order.evidence.numbers) == ("holds", {"lambda-gelu-cifar-10": pytest.approx(1.0)})
    language_record(tmp_path / SMALL, shock=0.1, hardened_shock=0.0, learned=2.7)
    language_record(tmp_path / LARGE, shock=0.1, hardened_shock=0.0, learned=1.1, parameters=124_439_808)
    store(tmp_path, "mollification-table-1", in_vision(lam=1.2), digits)
    trend = verdict(tmp_path, "lambda_gelu.networks_made_for_relu_learn_harder_gates")
    assert trend.evidence.numbers["lambda-gelu-adult"] == pytest.approx(2.55)  # 2.1 to 3.0 over four layers
    assert trend.evidence.numbers["ViT-Tiny"] == pytest.approx(1.2)
    assert trend.counts == "6 hold, 3 fail"


def in_vision(*, lam=1.0, squaf=0.8, first=0.8):
    """Outcomes of ViT-Tiny: accuracies of SQUAF, all of it or the first trained, and what λ-GELU has learned."""
    accuracies = {"squaf": squaf, "squaf first": first}

    def outcome(trial, seeds):
        label = trial.activation.label
        found = {"test": {"accuracy": near(accuracies.get(label, 0.8), seeds, noise=0.0001 * len(label))}}
        found["train"] = {"accuracy": (1.0,) * seeds}
        if label == "lambda_gelu":
            way = {"start": 1.01, "curve": [], "end": [lam] * seeds}
            found["parameters"] = {"blocks.0.mlp.act.lam": way, "blocks.1.mlp.act.lam": way}
        return found

    return outcome


@pytest.mark.parametrize(("lam", "said"), [(1.2, "holds"), (2.9, "partly")])
def test_learned_hardness_in_a_vision_transformer(lam, said, tmp_path, digits):
    store(tmp_path, "mollification-table-1", in_vision(lam=lam), digits)
    found = verdict(tmp_path, "lambda_gelu.learning_hardness_in_a_vision_transformer")
    assert found.verdict == said
    assert found.measured.endswith(f"mean λ {lam:.2f}")


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
    assert "\nThese runs are those of `mollification-table-1`, too, and count once.\n" in mine
    assert "\nThe runs of relu, gelu, elu, prelu, celu, silu, mish, crrelu are those of `eafo-table-1`, too," in theirs


def test_what_became_of_eps_is_told(tmp_path, digits):
    def outcome(trial, seeds):
        cells = {"input": (1.0,) * seeds, "spread": (0.5,) * seeds}
        more = 0.1 if trial.activation.label == "crrelu" else 0.0
        when = {**cells, "output": near(2.0 + more, seeds, noise=0.001 + more / 100)}
        found = {"test": {"accuracy": near(0.8, seeds)}}
        found["entropy"] = ({"path": "act", "activation": trial.activation.name, "start": when, "end": when},)
        if trial.activation.label == "crrelu":
            found["parameters"] = {"act.eps": {"start": 0.01, "curve": [], "end": (-0.3, -0.1, 0.02)}}
        return found

    store(tmp_path, "eafo-table-1", outcome, digits)
    found = verdict(tmp_path, "eafo.the_correction_lowers_entropy")
    assert found.verdict == "fails"
    assert len(found.evidence.parts) == 2
    assert found.measured.endswith("; eps is -0.30 to 0.02 by then, below 0 in 2 of 3 layers and seeds")


@pytest.mark.parametrize(("squaf", "first", "said"), [(0.78, 0.83, "holds"), (0.83, 0.78, "fails")])
def test_which_squafs_are_trained(squaf, first, said, tmp_path, digits):
    store(tmp_path, "squaf-table-6-vit-short", in_vision(squaf=squaf, first=first), digits)
    overfits = verdict(tmp_path, "squaf.training_every_squaf_overfits")
    assert [part.verdict for part in overfits.evidence.parts] == [said, said]  # the accuracy, and the gap
    best = verdict(tmp_path, "squaf.best_in_a_transformer")
    assert [part.verdict for part in best.evidence.parts] == [said] * 5 + [CANNOT_TELL] * 5  # half of them not run
    assert best.measured.endswith("; not run: leaky_relu, swish, polyrelu, polynorm, ditac")


def test_starts_that_order_the_layers_otherwise_are_seen(tmp_path, digits):
    def outcome(trial, seeds):
        found = hardened(0.0, bare=0.1)(trial, seeds)
        if trial.activation.label == LEARNED[1]:
            turned = [one["end"] for one in reversed(found["hardness"])]
            sites = zip(found["hardness"], turned, strict=True)
            found |= {"hardness": tuple({**site, "end": end} for site, end in sites)}
            found |= {"test": {"accuracy": near(0.84, seeds)}}
        return found

    store(tmp_path, "lambda-gelu-cifar-10", outcome, digits)
    order = verdict(tmp_path, "lambda_gelu.order_of_layers_is_robust_in_resnet")
    assert (order.verdict, order.evidence.numbers) == ("fails", {"lambda-gelu-cifar-10": pytest.approx(-1 / 3)})
    assert verdict(tmp_path, "lambda_gelu.learning_hardness_costs_nothing_in_resnet").counts == "2 hold, 1 fails"


def test_one_cell_of_the_grid_that_costs_accuracy(tmp_path, digits):
    def outcome(trial, seeds):
        chosen = trial.activation
        bad = (trial.training.activation_rate, chosen.values.get("temperature")) == (9, 0.9)
        return {"curves": {"validation_accuracy": ((0.80,) * seeds, (0.84 if bad else 0.86,) * seeds)}}

    store(tmp_path, "lambda-gelu-figure-1", outcome, digits)
    found = verdict(tmp_path, "lambda_gelu.every_cell_is_as_good_as_gelu")
    assert found.counts == "15 hold, 1 fails"
    assert found.measured == "from -2.00 to +0.00 points of GELU's 86.00 %"


# -- SQUAF ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alone", "said"), [(1e-7, "holds"), (1e-6, "fails")])
def test_the_gain_of_a_squaf_alone_over_all_networks(alone, said, tmp_path, digits):
    def outcome(trial, seeds):
        label = trial.activation.label
        return {"test": {"mse": (alone if label.startswith("SQUAF") else 1e-3 if label == "ditac" else 1e-2,) * seeds}}

    for name in ("squaf-table-3-1d", "squaf-table-3-1d-alone"):
        store(tmp_path, name, outcome, digits)
    found = verdict(tmp_path, "squaf.gains_in_function_fitting")
    assert found.verdict == said
    assert found.measured.startswith("1.0e-03 with ditac")


def test_squaf_s_is_held_against_crrelu_in_one_record(tmp_path):
    def record(name, **milliseconds):
        times = {one: Quantity.mean([value], unit="ms") for one, value in milliseconds.items()}
        modes = {"sampled": "squaf(mode=sampled)", "stairs": "squaf(mode=step)"}
        rows = [{"variant": modes.get(one, one), "forward": time, "step": time} for one, time in times.items()]
        Record.now("bench", command="", rows=rows, settings={}).write(tmp_path / name)

    common = {"before": 1.0, "polynorm": 2.0, "ditac": 2.0, "squaf": 1.5, "sampled": 1.6}
    record(TIMES, **common, crrelu=1.2, stairs=1.3)
    record(MODES, **common, relu=1.0, stairs=1.0)
    found = verdict(tmp_path, "squaf.costs_of_a_transformer")
    assert found.counts == "5 hold, 1 fails"
    assert found.evidence.parts[-1].verdict == "fails"  # 1.3 against CRReLU's 1.2


# -- numbers of the papers --------------------------------------------------------------------------------------


def test_the_legible_cells_of_a_torn_table_have_the_printed_means():
    """Mollification, table 1: CELU is legible for every network, and the means are for every function."""
    (table,) = (one for one in EXHIBITS["mollification"] if one.place == "Table 1")
    printed = [
        [float(one) for one in re.findall(r"\d\d\.\d", line)]
        for line in table.also.splitlines()
        if "networks |" in line
    ]
    rows = {}
    for recipe in map(recipe_named, table.recipes):
        if recipe.name.endswith("-augmented"):  # the same row once more
            continue
        rows.setdefault(recipe.data.set, []).append(recipe)
    for of, means in zip(rows.values(), printed, strict=True):
        celu = [recipe.paper.values["celu"]["accuracy"] for recipe in of]
        assert sum(celu) / len(celu) == pytest.approx(means[3], abs=0.051)
        told = [recipe.paper.note for recipe in of if len(recipe.paper.values) < 7]
        assert all(
            f"GELU {means[0]:.1f}, ELU {means[1]:.1f}, PReLU {means[2]:.1f}" in " ".join(note.split()) for note in told
        )


def test_what_cannot_be_read_is_told_as_what_follows_from_the_rest():
    """Mollification, table 3: a margin is the chosen reward less the rejected one."""
    (table,) = (one for one in EXHIBITS["mollification"] if one.place == "Table 3")
    for pair in S_RELU.values.values():
        rejected = [float(row[0]) - float(row[2].partition(" ")[0]) for row in pair]
        assert rejected[0] > rejected[1]
        assert all(f"{one:.4f}" in table.printed.note for one in rejected)


def test_a_table_of_distillation_has_the_papers_counts_of_parameters():
    tables = {one.place: one.printed for one in EXHIBITS["squaf"] if one.printed is not None}
    for place, pair in (
        ("Tables 7 and 14, figure 5, VGG", ("vgg13", "vgg8")),
        ("Table 15", ("timm:resnet18", "timm:mobilenetv1_100")),
    ):
        table, reported = tables[place], PAPER[pair]
        shown = {label.partition(",")[0]: values[table.heads.index("parameters")] for label, values, _ in table.rows}
        assert {name: f"{count:,}" for name, count in reported.parameters.items()} == {
            name: count for name, count in shown.items() if count
        }
    # Its count of parameters says that all SQUAFs but those of the last stage are trained.
    assert "--where 'all but last stage'" in tables["Table 15"].command


def test_figure_2_is_run_from_the_three_starts_of_the_paper():
    """As in figure 1, whose recipe says how a start is written."""
    (figure,) = (one for one in EXHIBITS["lambda_gelu"] if one.place == "Figure 2")
    starts = {one.label: (one.values["lam"], one.last) for one in recipe_named("lambda-gelu-figure-1").activations[1:]}
    for c, (_, _, command) in zip((1, 3, 6, 9), figure.printed.rows, strict=True):
        *_, file, _, _, option, setting = shlex.split(command)
        assert option == "--set"
        chosen = find_recipe(HERE.parent / file, settings=[setting]).activations[1:]
        assert {one.label: (one.values["lam"], one.last) for one in chosen} == starts
        assert {one.rate for one in chosen} == {c}
