"""The numbers of a paper beside ours: read with care, no part of a trial, and judged as a reader would."""

import csv
import io
import math
from dataclasses import replace

import pytest
from scipy import stats

from report_outcomes import outcomes, recipe
from softknee.errors import RecipeError
from softknee.lab.report import summarise
from softknee.lab.report.summary import origin_of
from softknee.lab.report.tables import markdown, paper_csv, paper_sentences, paper_tables
from softknee.lab.report.writing import latex, render
from softknee.lab.studies.reading import read_recipe, to_yaml
from softknee.lab.studies.recipe import Paper
from softknee.lab.studies.reporting import recipe_of
from softknee.lab.studies.runner import recipe_mapping, run_study
from softknee.lab.studies.store import Description, RunStore
from softknee.lab.studies.trials import train_trials
from trial_models import examples

TEXT = """
name: t
data: {set: digits}
activations: [relu, {name: smelu, beta: [0.5, 1.0]}]
paper: {source: "Some paper, table 1", note: "We draw a line.", values: {relu: {accuracy: 97.5}, smelu beta=1: {mse: 1.0e-2}}}
"""  # noqa: E501


def test_it_is_read_and_written_again():
    result = read_recipe(TEXT)
    assert result.paper == Paper(
        source="Some paper, table 1",
        note="We draw a line.",
        values={"relu": {"accuracy": 97.5}, "smelu beta=1": {"mse": 0.01}},
    )
    assert read_recipe(to_yaml(result)) == result


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("relu: {acc", "rleu: {acc", "paper.values.rleu is no label of the activations (relu, smelu beta=0.5"),
        ("smelu beta=1:", "smelu:", "paper.values.smelu is no label"),
        ("accuracy", "acuracy", "paper.values.relu.acuracy is nothing that is measured. Did you mean 'accuracy'"),
        ("97.5", "high", "paper.values.relu.accuracy must be a number"),
        ('source: "Some paper, table 1", ', "", "paper lacks the key 'source'"),
        ("note:", "notes:", "paper.notes is no key"),
    ],
)
def test_what_is_refused(old, new, said):
    with pytest.raises(RecipeError) as caught:
        read_recipe(TEXT.replace(old, new, 1))
    assert said in str(caught.value)


def test_other_activations_leave_their_numbers_out():
    result = read_recipe(TEXT, settings=["activations=[relu, gelu]"])
    assert result.paper is not None
    assert result.paper.values == {"relu": {"accuracy": 97.5}}


def test_no_trial_and_no_store_depends_on_it():
    with_it, other = read_recipe(TEXT), read_recipe(TEXT.replace("97.5", "97.4"))
    data = examples()
    keys = [
        [trial.key for trial in train_trials(each, data)] for each in (with_it, other, replace(with_it, paper=None))
    ]
    assert keys[0] == keys[1] == keys[2]
    described = [Description(recipe=recipe_mapping(item), fingerprint="0", threads=1) for item in (with_it, other)]
    assert described[0] != described[1]
    described[0].refuse_other(described[1], "here")


def study(values, scores):
    """A summary of made-up outcomes whose test scores are replaced."""
    of = recipe(seeds=8, paper=Paper(source="Some paper, table 1", note="We draw a line.", values=values))
    made = [
        replace(outcome, test=outcome.test | scores.get(outcome.trial.activation.label, {}), trained=4547)
        for outcome in outcomes(of, diverging="silu")
        if outcome.trial.kind == "train"
    ]
    return of, made


SPREAD = tuple(10.0**-power for power in (2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5))
NEAR = tuple(0.0100 + 0.0001 * place for place in range(8))  # 0.0100 to 0.0107
VALUES = {
    "relu": {"accuracy": 10.0, "mse": 1.0e-2, "parameters": 4547},
    "gelu": {"accuracy": 99.99, "mse": 1.0e-9, "parameters": 4546},
    "silu": {"accuracy": 50.0, "parameters": 4999},
    "swish learned": {"mse": 1.0e-4},
}
SCORES = {"relu": {"mse": NEAR}, "gelu": {"mse": NEAR}, "swish learned": {"mse": SPREAD}}


def test_verdicts_and_geometric_means():
    results = {table.measure.name: table for table in summarise(*study(VALUES, SCORES)).paper_tables}
    assert list(results) == ["accuracy", "mse", "parameters"]
    verdicts = {name: [row.verdict for row in item.rows] for name, item in results.items()}
    assert verdicts["accuracy"] == ["better", "worse", "1 of 8 seeds diverged"]
    assert verdicts["parameters"] == ["as in the paper", "more", "fewer"]
    # 1.0e-2 is anything from 0.0095 to 0.0105, and our interval begins at 0.01014.
    assert verdicts["mse"] == [
        "as in the paper (inside our interval)",
        "worse",
        "as in the paper (inside our interval)",
    ]
    assert results["mse"].average == "geometric mean"
    row = results["mse"].rows[2]
    logs = [math.log(value) for value in SPREAD]
    assert row.value == pytest.approx(stats.gmean(SPREAD))
    wanted = stats.t.interval(0.95, 7, loc=sum(logs) / 8, scale=stats.sem(logs))
    assert row.interval == pytest.approx([math.exp(entry) for entry in wanted])
    assert results["mse"].best == "Best by mean squared error: gelu in the paper, swish learned here."


def test_a_mean_where_seeds_are_near_each_other():
    scores = {"relu": {"mse": NEAR}, "gelu": {"mse": tuple(2 * item for item in NEAR)}}
    (result,) = summarise(*study({"relu": {"mse": 0.0098}, "gelu": {"mse": 0.0209}}, scores)).paper_tables
    assert result.average == "mean"
    assert result.rows[0].value == pytest.approx(sum(NEAR) / 8)
    low, high = stats.t.interval(0.95, 7, loc=sum(NEAR) / 8, scale=stats.sem(NEAR))
    assert result.rows[0].interval == pytest.approx((low, high))
    assert [row.verdict for row in result.rows] == ["worse", "as in the paper (inside our interval)"]
    assert result.best == "Best by mean squared error: relu in the paper, relu here."


def test_percent_are_percent_and_rounding_is_the_papers():
    r2 = tuple(0.99996 + 0.000002 * place for place in range(8))
    (result,) = summarise(
        *study({"relu": {"r2": 100.0}, "gelu": {"r2": 99.3}}, {"relu": {"r2": r2}, "gelu": {"r2": r2}})
    ).paper_tables
    assert result.rows[0].value == pytest.approx(99.9967)
    assert [row.verdict for row in result.rows] == ["as in the paper (inside our interval)", "better"]
    assert (result.paper_places, result.places) == (1, 3)
    table = paper_tables(summarise(*study({"relu": {"r2": 100.0}}, {"relu": {"r2": r2}})))[0]
    assert table.caption.startswith("R²,\u00a0%, in the paper (Some paper, table 1) and here: mean over seeds")


def test_every_file_has_it():
    of, made = study(VALUES, SCORES)
    summary, origin = summarise(of, made), origin_of(of, command="x")
    files = {
        "report.md": markdown(summary, origin),
        "index.html": render(replace(summary, bands=(), trajectories=(), shapes=(), profiles=()), origin),
        "report.tex": latex(summary, origin, {}),
    }
    best = paper_sentences(summary)
    assert len(best) == 2
    for name in ("report.md", "index.html", "report.tex"):
        assert "Beside the paper" in files[name]
        assert "We draw a line." in files[name]
        assert all(words in files[name] for words in best)
    assert "| 1.0e−02 |" in files["report.md"]
    assert "1.0e−02" in files["index.html"]
    assert "1.0e$-$02" in files["report.tex"]
    assert "| 4,547 |" in files["report.md"]
    lines = list(csv.DictReader(io.StringIO(paper_csv(summary))))
    assert len(lines) == 9
    line = next(item for item in lines if item["activation"] == "silu" and item["measure"] == "accuracy")
    assert (line["paper"], line["value"], line["seeds"], line["diverged"]) == ("50.0", "", "8", "1")
    line = next(value for value in lines if value["activation"] == "swish learned")
    assert float(line["value"]) == pytest.approx(stats.gmean(SPREAD))
    assert (line["average"], line["source"]) == ("geometric mean", "Some paper, table 1")


def test_without_a_paper_there_is_no_such_section():
    of = recipe(seeds=3)
    summary = summarise(of, outcomes(of))
    assert summary.paper_tables == ()
    text = markdown(summary, origin_of(of, command="x"))
    assert "Beside the paper" not in text
    assert "parameters |" not in text


def test_a_changed_number_trains_nothing_and_reaches_the_next_report(tmp_path):
    text = TEXT.replace("digits", "clusters-3").replace("[relu, {name: smelu, beta: [0.5, 1.0]}]", "[relu]")
    text = text.replace(", smelu beta=1: {mse: 1.0e-2}", "") + "training: {epochs: 1}\nseeds: 1\nmeasures: []\n"
    first = run_study(read_recipe(text), out=tmp_path / "study", threads=1)
    trained: list[str] = []
    changed = read_recipe(text.replace("97.5", "12.5"))
    again = run_study(changed, out=tmp_path / "study", run_trial=lambda trial, **_: trained.append(trial.key))
    assert (again, trained) == (first, [])
    assert recipe_of(RunStore(tmp_path / "study")) == changed
