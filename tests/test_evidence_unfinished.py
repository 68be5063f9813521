"""A study that was run in part decides nothing, and says how far it is; its figures are drawn all the same."""

import shutil
from pathlib import Path

import pytest

from softknee.errors import ParameterError
from softknee.lab import evidence
from softknee.lab.evidence.drawing import figures_of, file_of, write_figures
from softknee.lab.evidence.runs import Runs
from softknee.lab.evidence.statement import NOT_THERE
from softknee.measure.speed import choose_device
from softknee.measure.wire_speed import Settings

STUDIES = Path(__file__).parent.parent / "docs" / "evidence"


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
    resting = [one for one in evidence.find(["lambda_gelu"]) if "lambda-gelu-adult" in one.needs]
    assert resting
    for one in evidence.judge(resting, runs):
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
