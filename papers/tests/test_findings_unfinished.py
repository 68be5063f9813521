"""A study that was run in part decides nothing, and says how far it is; its figures are drawn all the same."""

import shutil
from pathlib import Path

import pytest
from papers.drawing import figures_of, file_of, write_figures
from papers.ledger import find_statements
from papers.runs import Runs
from papers.statement import NOT_THERE, judge
from test_findings_papers import accuracies, store, verdict
from test_findings_papers import digits as digits  # a fixture

from softknee.errors import ParameterError
from softknee.lab.bench.speed import choose_device
from softknee.lab.bench.wire import Settings
from softknee.lab.studies.trials import Outcome
from softknee.measure import Record

STUDIES = Path(__file__).parents[1] / "lambda_gelu" / "records"


@pytest.fixture
def runs(tmp_path):
    """lambda-gelu-adult without one of its six trials, and lambda-gelu-fashion whole."""
    for name in ("lambda-gelu-adult", "lambda-gelu-fashion"):
        shutil.copytree(STUDIES / name, tmp_path / name)
    min((tmp_path / "lambda-gelu-adult" / "trials").glob("*.json")).unlink()  # the same one on every disk
    return Runs(tmp_path)


def test_what_is_missing_is_counted(runs):
    assert runs.unfinished == {"lambda-gelu-adult": (5, 6)}
    assert runs.has("lambda-gelu-fashion")
    assert not runs.has("lambda-gelu-adult")


def test_no_statement_rests_on_a_part(runs):
    resting = [one for one in find_statements(["lambda_gelu"]) if "lambda-gelu-adult" in one.needs]
    assert resting
    for one in judge(resting, runs):
        assert one.verdict == NOT_THERE
        assert "lambda-gelu-adult (5 of 6 activations)" in one.measured


def test_its_figures_are_drawn_and_named(runs):
    written = write_figures(runs)
    figures = ("hardness", "validation-accuracy", "order-of-layers")
    drawn = [file_of(name, one) for name in runs.names for one in figures]
    assert [one.name for one in written] == drawn
    assert all(one.read_bytes().startswith(b"\x89PNG") for one in written)
    assert sorted(file for _, file, _ in figures_of(runs)) == sorted(one.name for one in written)


def test_a_form_that_is_none_is_refused():
    with pytest.raises(ParameterError, match="no form 'zip' to time, only rans, huffman, packed, bfloat16"):
        Settings(device=choose_device("cpu"), forms=("zip",))


def test_what_was_not_run_does_not_make_the_rest_easier_to_show(tmp_path, digits):
    """The p of each comparison is corrected as if all of the statement's had been made."""
    store(tmp_path, "mollification-table-2", accuracies(lambda label: 0.61 if label == "srelu" else 0.60), digits)
    name = "mollification.srelu_is_best_in_convnext"
    whole = {one.says: one.p for one in verdict(tmp_path, name).evidence.parts}
    for one in (tmp_path / "mollification-table-2" / "trials").glob("*.json"):
        if Outcome.read(Record.read(one)).trial.activation.label in ("mish", "elu", "celu", "prelu"):
            one.unlink()
    found = verdict(tmp_path, name).evidence.parts
    assert [one.p is None for one in found].count(True) == 4
    assert all(one.p >= whole[one.says] * 0.99 for one in found if one.p is not None)
    assert min(one.p for one in found if one.p is not None) == pytest.approx(min(whole.values()), rel=0.5)
