"""Reports and statements on the click models: what comes first, percent of ReLU's losses, verdicts from records."""

import pytest
from papers.ledger import find_statements
from papers.runs import Runs, recipe_named
from papers.smelu.findings import ONLINE, PAIR, TABLES
from papers.statement import judge
from papers.tables import study_tables

from click_records import NOT, OTHERS, SO, differing, outcomes_of, store
from softknee.lab.report import summarise
from softknee.lab.report.parts import origin_of
from softknee.lab.report.tables import change, markdown, relative_losses

# What compares smooth functions with each other is in test_evidence_headlines.
AMONG_SMOOTH = {"three_families_trade_best_online", "smelu_agrees_and_swish_predicts_better_online"}
NAMES = [
    one.name
    for one in find_statements(["smelu"])
    if {*one.needs} & {*TABLES, ONLINE, PAIR} and one.name not in AMONG_SMOOTH
]


def verdicts(folder):
    ours = [one for one in find_statements(["smelu"]) if one.name in NAMES]
    return {one.statement.name: one for one in judge(ours, Runs(folder))}


def test_statements_wait_for_their_records(tmp_path):
    assert len(NAMES) == 12
    assert {one.verdict for one in verdicts(tmp_path).values()} == {"no records"}


def test_what_the_paper_says_holds_where_it_is_so_and_fails_where_not(tmp_path, rows):
    for folder, scores in (("so", SO), ("not", NOT)):
        for name in TABLES:
            store(tmp_path / folder, name, rows, scores)
        for name in (ONLINE, PAIR):
            store(tmp_path / folder, name, rows, {**scores, "swish": scores[OTHERS]})
    found = verdicts(tmp_path / "so")
    assert {name: one.verdict for name, one in found.items()} == dict.fromkeys(NAMES, "holds")
    assert "relu AUC 0.7000" in found["smelu_models_of_clicks_agree_more"].measured
    assert "-1.00 % from ReLU's" in found["smooth_online_models_agree_more"].measured  # 0.495 against 0.500
    failing = verdicts(tmp_path / "not")
    assert {name: one.verdict for name, one in failing.items()} == dict.fromkeys(NAMES, "fails")
    told = failing["smelu_models_of_clicks_agree_more"].measured
    assert "relu AUC 0.8000, " in told
    assert "smelu beta=2.5 AUC 0.5500, " in told
    text = "".join(study_tables(Runs(tmp_path / "so"), "smelu"))
    assert "| AUC, %: paper | here | prediction difference Δ₁: paper | here |" in text
    assert "| 78.1 | 70.00 [" in text
    assert "| log loss, nats | AUC, % |" in text
    assert "| log loss against relu's, % | ranking loss (1 - AUC) against relu's, % |" in text
    assert " | -1.00 | " in text  # 0.495 against 0.500


def test_models_that_learned_nothing_can_neither_win_nor_lose(tmp_path, rows):
    """They agree with each other, which is no merit, and are worse, which says nothing of the activation."""
    blind = {**SO, "smelu": (0.50, 0.600, 0.001, 0.001), "softplus": (0.50, 0.700, 0.001, 0.001)}
    for name in (*TABLES, ONLINE, PAIR):
        store(tmp_path, name, rows, blind)
    found = verdicts(tmp_path)
    for name in (
        "smelu_models_of_clicks_agree_more",
        "smelu_models_of_clicks_agree_more_when_they_share",
        "smelu_predicts_clicks_better",
        "softplus_agrees_at_the_expense_of_accuracy",
        "selu_is_inferior_online",
    ):
        assert found[name].verdict == "cannot tell", name
    told = found["smelu_models_of_clicks_agree_more"].measured
    assert "smelu beta=2.5 AUC 0.5000 (40 of 40 models learned nothing), " in told
    assert "learned nothing) " in found["softplus_agrees_at_the_expense_of_accuracy"].measured
    assert "smelu" in found["smooth_online_models_agree_more"].measured
    assert found["smooth_online_models_agree_more"].verdict == "partly"  # the other families


# -- the report -------------------------------------------------------------------------------------------------


def test_a_progressive_report_is_about_loss_and_relative_difference(rows):
    recipe = recipe_named("smelu-figure-3-twelve", settings=["activations=[relu, {name: smelu, beta: [0.5, 1.0]}]"])
    summary = summarise(recipe, list(outcomes_of(recipe, rows, SO)))
    assert (summary.metric.name, summary.spread.name) == ("log_loss", "binary")
    table = relative_losses(summary)
    shown = {cells[0].text: [cell.text for cell in cells[1:]] for cells in table.rows}
    relative = [differing(size, 12)["binary"]["value"] for size in (0.9, 0.3)]
    assert shown["relu"] == ["0.00", "0.00", f"{100 * relative[0]:.2f}"]
    # 0.495 against 0.500, and a ranking loss of 0.26 against 0.30.
    assert shown["smelu beta=0.5"] == ["−1.00", "−13.33", f"{100 * relative[1]:.2f}"]
    text = markdown(summary, origin_of(recipe, command="x"))
    assert "the last 50 % of the training examples, each predicted before it was trained on" in text
    assert change(0.495, 0.5) == pytest.approx(-1.0)


def test_a_report_on_a_table_is_about_auc_and_stands_beside_the_paper(rows):
    recipe = recipe_named("smelu-table-1", settings=["activations=[relu, {name: smelu, beta: [1.0, 2.5]}]"])
    summary = summarise(recipe, list(outcomes_of(recipe, rows, SO)))
    assert (summary.metric.name, summary.spread.name) == ("auc", "delta_1")
    assert relative_losses(summary) is None
    beside = {one.measure.name: one for one in summary.paper_tables}
    assert list(beside) == ["auc", "delta_1", "binary"]
    ours = differing(0.3, 40)["delta_1"]
    (row,) = (one for one in beside["delta_1"].rows if one.label == "smelu beta=2.5")
    assert (row.paper, row.value, row.interval) == (0.029, ours["value"], tuple(ours["interval"]))
    assert row.verdict == "worse"  # 0.029 lies below its interval
