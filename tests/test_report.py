"""What a report shows: averages, verdicts, the best and their rivals, diverged trials. Nothing is drawn here."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
import torch
from scipy import stats

from report_outcomes import BETAS, chosen, outcomes, recipe
from softknee.errors import DataError
from softknee.lab.report import summarise
from softknee.lab.report.summary import (
    EQUIVALENT,
    UNDECIDED,
    Measure,
    Row,
    Summary,
    against_baseline,
    best_and_rivals,
    counted,
    decimals,
    fixed,
    listed,
    place_of,
    probability,
    recommend,
    with_reach,
)
from softknee.lab.report.tables import every_table, headline
from softknee.lab.studies.recipe import Seeds
from softknee.lab.studies.trials import Outcome
from softknee.lab.table import BETTER, WORSE, duration
from softknee.measure.estimate import score

ACCURACY = Measure(name="accuracy", title="accuracy", larger_is_better=True, margin=0.02)
LOSS = Measure(name="loss", title="loss", larger_is_better=False)


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    return outcomes(recipe())


@pytest.fixture(scope="module")
def summary(found: list[Outcome]) -> Summary:
    return summarise(recipe(), found)


def by_label(summary: Summary) -> dict[str, Row]:
    return {row.label: row for row in summary.rows}


def test_averages_are_those_of_the_seeds(summary: Summary, found: list[Outcome]) -> None:
    rows = by_label(summary)
    assert list(rows) == [choice.label for choice in chosen()]
    for outcome in found[:-1]:
        row = rows[outcome.trial.activation.label]
        each = [item for item in outcome.test["accuracy"] if item is not None]
        assert row.scores["accuracy"].value == pytest.approx(statistics.fmean(each))
        assert row.differences["delta_1"].value == outcome.difference["delta_1"]["value"]
        assert row.differences["delta_1"].interval == outcome.difference["delta_1"]["interval"]
        assert row.key == outcome.trial.key
        assert row.cost is not None
        assert row.cost.key == found[-1].trial.key


def test_verdicts_are_scipys_paired_tests_with_holms_correction_by_hand(summary: Summary, found: list[Outcome]) -> None:
    numbers = {outcome.trial.activation.label: outcome.test["log_loss"] for outcome in found[:-1]}
    truth = {label: stats.ttest_rel(each, numbers["relu"]) for label, each in numbers.items() if label != "relu"}
    ordered = sorted(truth, key=lambda label: truth[label].pvalue)
    largest = 0.0
    for rank, label in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - rank) * truth[label].pvalue))
        verdict = by_label(summary)[label].verdicts["log_loss"]
        assert verdict.comparison.p == pytest.approx(truth[label].pvalue, rel=1e-6, abs=1e-14)
        assert verdict.adjusted == pytest.approx(largest, rel=1e-6, abs=1e-13)
        interval = truth[label].confidence_interval(0.95)
        assert verdict.comparison.interval == pytest.approx((interval.low, interval.high), rel=1e-6)
        shown = {BETTER if truth[label].statistic < 0 else WORSE}
        assert verdict.words.removeprefix("slightly ") in (shown if largest <= 0.05 else {EQUIVALENT, UNDECIDED})
    assert by_label(summary)["relu"].verdicts == {}
    assert by_label(summary)["relu"].baseline


def test_a_diverged_trial_is_never_averaged(found: list[Outcome]) -> None:
    gone = outcomes(recipe(), diverging="smelu beta=2")
    summary = summarise(recipe(), gone)
    row = by_label(summary)["smelu beta=2"]
    assert row.diverged == ((2, 4),)
    assert (row.scores, row.differences, row.verdicts, row.best) == ({}, {}, {}, frozenset())
    assert any("smelu beta=2 diverged with 1 of 8 seeds (seed 2 in epoch 4)" in note for note in summary.notes)
    assert all(answer.label != "smelu beta=2" and "smelu beta=2" not in answer.words for answer in summary.sentences)
    (cells,) = [cells for cells in headline(summary).rows if cells[0].text == "smelu beta=2"]
    assert [cell.text for cell in cells[1:3]] == ["–", "–"]
    assert cells[4].text == "1 of 8 seeds diverged"
    # It is no member of the family: seven tests and not eight.
    before = by_label(summarise(recipe(), found))["gelu"].verdicts["log_loss"]
    after = by_label(summary)["gelu"].verdicts["log_loss"]
    assert before.comparison == after.comparison
    smallest = min(
        (item.verdicts["log_loss"] for item in summary.judged if item.verdicts), key=lambda one: one.adjusted or 9
    )
    assert smallest.adjusted == pytest.approx(7 * (smallest.comparison.p or 0))
    # Its curves are drawn seed by seed, and end where it diverged.
    (band,) = [band for band in summary.bands if band.label == "smelu beta=2" and band.curve == "train_loss"]
    assert band.middle == ()
    assert [value is None for value in band.each[2]] == [False] * 3 + [True] * 7
    assert all(None not in each for place, each in enumerate(band.each) if place != 2)


def test_a_path_has_the_values_of_one_knob_in_order(found: list[Outcome]) -> None:
    shuffled = [found[place] for place in (5, 3, 9, 0, 8, 6, 1, 7, 4, 2)]
    summary = summarise(recipe(), shuffled)
    (knob,) = summary.knobs
    assert (knob.name, knob.parameter) == ("smelu", "beta")
    assert [row.number("beta") for row in knob.rows] == list(BETAS)
    # One that learns its beta is no point of the path.
    learned = replace(found[4].trial.activation, label="smelu learned", values={"beta": 0.7}, learn=True)
    more = replace(found[4], trial=replace(found[4].trial, activations=(learned,)))
    assert [len(knob.rows) for knob in summarise(recipe(), [*found, more]).knobs] == [4]


def made(label: str, each: list[float], *, baseline: bool = False, measure: str = "accuracy", first: int = 0) -> Row:
    seeds = tuple(range(first, first + len(each)))
    scores = {measure: score(each, larger_is_better=measure == "accuracy")}
    return Row(
        label=label,
        name=label,
        values={},
        variant=(False, False, ()),
        key="0",
        seeds=seeds,
        baseline=baseline,
        scores=scores,
    )


def test_words_of_verdicts() -> None:
    base = [0.90, 0.91, 0.92, 0.93, 0.90, 0.94]
    noise = [0.001, -0.002, 0.002, 0.0, -0.001, 0.001]
    shifts = {"up": 0.05, "down": -0.05, "bit": 0.005, "same": 0.0}
    rows = [made("base", base, baseline=True)]
    rows += [made(name, [b + shift + n for b, n in zip(base, noise, strict=True)]) for name, shift in shifts.items()]
    rows.append(made("wild", [b + 40 * n for b, n in zip(base, noise, strict=True)]))
    words = {label: item.words for label, item in against_baseline(rows, rows[0], ACCURACY).items()}
    assert words == {
        "up": BETTER,
        "down": WORSE,
        "bit": f"slightly {BETTER}",
        "same": EQUIVALENT,
        "wild": UNDECIDED,
    }
    losses = [replace(row, scores={"loss": row.scores["accuracy"]}) for row in rows]
    assert against_baseline(losses, losses[0], LOSS)["up"].words == WORSE


def test_rows_are_paired_by_the_number_of_the_seed() -> None:
    base, other = [0.9, 0.8, 0.7, 0.6], [0.81, 0.72, 0.61, 0.5]
    rows = [made("base", base, baseline=True), made("other", other, first=1)]  # seeds 0 to 3, and 1 to 4
    one = against_baseline(rows, rows[0], ACCURACY)["other"].comparison
    assert one.seeds == 3
    assert one.difference == pytest.approx(statistics.fmean([0.81 - 0.8, 0.72 - 0.7, 0.61 - 0.6]))


def test_the_best_comes_alone_only_where_the_others_are_shown_to_be_worse() -> None:
    base = [0.90, 0.91, 0.92, 0.93, 0.90, 0.94]
    rows = [made("best", base), made("near", base[::-1]), made("far", [item - 0.1 + item / 50 for item in base])]
    result = best_and_rivals(rows, ACCURACY)
    assert result is not None
    assert result[0].label == "best"
    assert [row.label for row in result[1]] == ["near"]
    assert best_and_rivals(rows, LOSS) is None


def test_the_truly_best_is_among_the_best_in_95_of_100_studies() -> None:
    draws = torch.Generator().manual_seed(0)
    means, kept, alone = (0.0, 0.0, 0.0, 0.0, 0.001), 0, 0
    for _ in range(300):
        noise = torch.randn(len(means), 6, generator=draws, dtype=torch.float64)
        rows = [made(str(place), (mean + noise[place]).tolist()) for place, mean in enumerate(means)]
        result = best_and_rivals(rows, ACCURACY)
        assert result is not None
        kept += "4" in {result[0].label, *(row.label for row in result[1])}
        alone += not result[1]
    assert kept / 300 > 0.95 - 3 * math.sqrt(0.95 * 0.05 / 300)
    assert alone < 30


def test_sentences_claim_no_more_than_the_seeds_bear(summary: Summary) -> None:
    accurate, reproducible, cheap = summary.sentences
    assert str(accurate).replace("\u00a0", " ") == (
        "Most accurate: smelu beta=2, with test accuracy 100.0 ± 0.0 %, but these seeds do not tell it apart from "
        "gelu, silu, smelu beta=0.5, smelu beta=1 and 2 others."
    )
    assert (reproducible.question, reproducible.label) == ("Most reproducible", "smelu beta=2")
    assert (cheap.label, cheap.words) == (
        "relu",
        ", whose training step takes 0.93 times that of gelu; the quartiles of all others lie above.",
    )


def test_two_seeds_are_said_to_be_too_few() -> None:
    few = recipe(seeds=2)
    summary = summarise(few, outcomes(few))
    assert "2 seeds are too few" in summary.sentences[1].words  # a jackknife needs four
    single = recipe(seeds=1)
    alone = [replace(outcome, difference={}) for outcome in outcomes(recipe(seeds=2))]
    alone = [
        replace(
            item,
            trial=replace(item.trial, seeds=single.seeds),
            diverged=item.diverged[:1],
            test={name: each[:1] for name, each in item.test.items()},
            train={},
            curves={},
            parameters={},
            activity=(),
            hardness=(),
            gradients={},
            replacement=None,
        )
        for item in alone
    ]
    summary = summarise(single, alone)
    assert "1 seed is too few" in summary.sentences[0].words
    assert all(row.scores["accuracy"].interval is None for row in summary.rows)
    assert every_table(summary)


def test_a_baseline_that_is_not_there_is_said_to_be_missing(found: list[Outcome]) -> None:
    summary = summarise(recipe(baseline="mish"), found)
    assert summary.baseline is None
    assert any("mish is not among" in note for note in summary.notes)
    assert headline(summary).head == ("activation", "test accuracy,\u00a0%", "prediction difference\u00a0Δ₁", "cost")
    gone = summarise(recipe(), outcomes(recipe(), diverging="relu"))
    assert any("baseline relu diverged" in note for note in gone.notes)
    assert all(not row.verdicts for row in gone.rows)


def test_a_label_is_the_baseline_before_a_name_is(found: list[Outcome]) -> None:
    assert summarise(recipe(baseline="smelu beta=1"), found).baseline == next(
        row for row in summarise(recipe(baseline="smelu beta=1"), found).rows if row.label == "smelu beta=1"
    )
    named = summarise(recipe(baseline="smelu"), found).baseline
    assert named is not None
    assert named.label == "smelu beta=0.25"


def test_a_regression_has_an_error_and_no_plane(found: list[Outcome]) -> None:
    errors = [replace(item, test={"mse": item.test["log_loss"]}, difference={}) for item in found[:-1]]
    summary = summarise(recipe(), [*errors, found[-1]])
    assert (summary.metric.name, summary.spread) == ("mse", None)
    assert summary.sentences[0].question == "Best by mean squared error"
    assert summary.metric.margin == pytest.approx(
        0.05 * statistics.fmean(value or 0 for value in found[0].test["log_loss"])
    )


def test_replacement_is_after_minus_before_by_seed(summary: Summary, found: list[Outcome]) -> None:
    (item,) = summary.replacements
    assert (item.label, item.limit) == ("lambda_gelu hardened", "relu")
    assert item.change.difference == pytest.approx(-0.0125 / 4)
    truth = stats.ttest_rel(item.after.each, item.before.each)
    assert item.change.p == pytest.approx(truth.pvalue)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: [], "run the study first"),
        (lambda found: [found[0], found[0]], "label 'relu'"),
        (lambda found: [replace(found[0], test={"accuracy": (None,) * 8})], "record is incomplete"),
        (lambda found: [replace(found[0], test={}, difference={})], "no test score"),
    ],
    ids=["none", "twice", "incomplete", "no score"],
)
def test_refusals(change, words: str, found: list[Outcome]) -> None:
    with pytest.raises(DataError, match=words):
        summarise(recipe(), change(found))


def test_numbers_have_the_digits_that_their_intervals_bear() -> None:
    assert [place_of(size) for size in (0.22, 0.034, 3.4, 120.0)] == [2, 3, 1, 0]
    column = [score([0.97, 0.98, 0.96], larger_is_better=True), score([0.9, 0.91, 0.95], larger_is_better=True)]
    assert decimals(column, scale=100) == 1
    assert with_reach(column[0], 1, scale=100) == "97.0 ± 2.5"
    assert with_reach(None, 2) == "–"
    assert fixed(-0.001, 2) == "0.00"
    assert fixed(-0.25, 1, signed=True) == "−0.2"
    assert fixed(0.25, 2, signed=True) == "+0.25"
    assert [probability(p) for p in (None, 0.5, 0.0312, 0.0042, 3e-7)] == ["–", "0.500", "0.031", "0.0042", "< 0.0001"]
    assert [duration(s) for s in (2.34, 48.2, 185.0, 7500.0)] == ["2.3 s", "48 s", "3 min 5 s", "2 h 5 min"]
    assert (listed(["a"]), listed(["a", "b", "c"]), listed([])) == ("a", "a, b and c", "")
    assert (counted(1, "seed"), counted(2, "seed")) == ("1 seed", "2 seeds")


def test_other_seeds_than_the_baselines_leave_no_comparison_of_sets(found: list[Outcome]) -> None:
    moved = replace(found[1], trial=replace(found[1].trial, seeds=Seeds(count=8, first=100)))
    row = by_label(summarise(recipe(), [found[0], moved]))["gelu"]
    assert row.verdicts == {}


# -- the recommendation -----------------------------------------------------------------------------------

POINTS = Measure(name="accuracy", title="test accuracy", larger_is_better=True, unit="%", tolerance=0.005, margin=0.005)
BASE = (0.90, 0.901, 0.899, 0.9, 0.902, 0.898)


def judged(**accuracies: tuple[float, ...]) -> list[Row]:
    """Rows with these accuracies, relu the baseline, with their verdicts."""
    rows = [made(name, list(each), baseline=name == "relu") for name, each in accuracies.items()]
    verdicts = against_baseline(rows, rows[0], POINTS)
    return [replace(row, verdicts={"accuracy": verdicts[row.label]} if row.label in verdicts else {}) for row in rows]


def moved(by: float, noise: float = 0.0002) -> tuple[float, ...]:
    return tuple(value + by + noise * (-1) ** place * place for place, value in enumerate(BASE))


def advice(**accuracies: tuple[float, ...]) -> str:
    rows = judged(relu=BASE, **accuracies)
    return str(recommend(rows, rows[0], POINTS, None))


def test_the_better_one_is_recommended_with_its_lead_and_its_rivals() -> None:
    words = advice(good=moved(0.02), worse=moved(-0.02))
    assert words.startswith("Use good. It is shown to be more accurate than relu: +")
    assert "points, 95 % interval [" in words
    assert "p < 0.0001 after Holm's correction" in words
    assert "worse" not in words
    near = tuple(value + 0.0004 * (-1) ** place - 0.0001 for place, value in enumerate(moved(0.02)))
    assert "other is more accurate too, and not shown to be worse than good." in advice(good=moved(0.02), other=near)


def test_the_baseline_is_kept_where_nothing_is_shown_to_be_better() -> None:
    assert advice(worse=moved(-0.02)) == "Keep relu. Nothing here is shown to be more accurate."
    assert advice(same=moved(0.0)) == (
        "Keep relu. Nothing here is shown to be more accurate. same is as accurate (within 0.5 points)."
    )
    # shown, and too small to matter: no reason to change
    assert advice(same=moved(0.002)) == (
        "Keep relu. Nothing here is shown to be more accurate by more than 0.5 points. "
        "same is as accurate (within 0.5 points)."
    )


def test_what_the_seeds_cannot_tell_is_said_with_its_size() -> None:
    noisy = tuple(value + 0.02 * (-1) ** place for place, value in enumerate(BASE))
    words = advice(noisy=noisy)
    reach = max(abs(end) for end in judged(relu=BASE, noisy=noisy)[1].verdicts["accuracy"].comparison.interval or ())
    assert words == (
        "Keep relu. Nothing here is shown to be more accurate. With 6 seeds noisy cannot be told from relu: a "
        f"difference of up to {100 * reach:.1f} points may hide there."
    )


def test_there_is_none_without_a_baseline_or_without_rivals_and_one_seed_is_too_few() -> None:
    rows = judged(relu=(0.9,), other=(0.95,))
    assert recommend(rows, None, POINTS, None) is None
    assert recommend(rows[:1], rows[0], POINTS, None) is None
    assert "One seed shows no spread" in str(recommend(rows, rows[0], POINTS, None))


def test_a_report_begins_with_it_everywhere(summary: Summary) -> None:
    from softknee.lab.report.summary import origin_of
    from softknee.lab.report.tables import markdown
    from softknee.lab.report.writing import latex, render

    assert summary.recommendation is not None
    origin, words = origin_of(summary.recipe, command="softknee study made-up"), summary.recommendation.advice
    page, text, tex = render(summary, origin), markdown(summary, origin), latex(summary, origin, {})
    assert page.index(words) < page.index("<section") < page.index("data-figure") < page.index("<table")
    assert text.index(f"**{words}**") < text.index("Most accurate") < text.index("|")
    assert tex.index(words) < tex.index("Most accurate")
    assert page.index('id="table-headline-caption"') < page.index("<thead>")
    assert text.index("What every activation reached") < text.index("|")
