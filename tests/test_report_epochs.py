"""Curves in a report stand at the epochs that were noted, and a loss stays above 0."""

from dataclasses import replace

import pytest

from report_outcomes import outcomes, recipe
from softknee.lab.report import summarise
from softknee.lab.report.drawing import curves, hardness, learned, log_axis

OF = recipe(seeds=4)
NOTED = tuple(range(20, 201, 20))  # ten of two hundred, in the place of ten of ten


def thin(**changes):
    made = [replace(outcome, epochs=NOTED, **changes) for outcome in outcomes(OF) if outcome.trial.kind == "train"]
    return summarise(OF, made)


def test_points_are_at_their_epochs():
    summary = thin()
    assert {band.epochs for band in summary.bands} == {NOTED}
    figure = next(curve for curve in curves(summary) if curve.name == "curve-train_loss")
    assert "after every 20 epochs" in figure.caption
    assert {row["epoch"] for row in figure.chart["data"]["values"]} == {*NOTED}
    moved = [value for value in learned(summary) if value.name.startswith("trajectory")]
    assert moved
    for item in moved:
        assert item.caption.startswith("After every 20 epochs, epoch 0")
        assert {row["x"] for row in item.chart["data"]["values"]} == {0, *NOTED}


def test_every_epoch_is_said_as_before():
    summary = summarise(OF, outcomes(OF))
    assert {band.epochs for band in summary.bands} == {tuple(range(1, 11))}
    assert all("after each epoch" in curve.caption for curve in curves(summary))


def test_an_interval_of_losses_does_not_reach_below_zero():
    rows = [(1.0, 1e-3, 1e-4, 1e-5), (1e-2, 1.1e-2, 0.9e-2, 1e-2)]
    summary = thin(curves={"train_loss": tuple(rows[:1] * 9 + rows[1:])})
    band = summary.bands[0]
    assert band.cut
    assert band.low[:9] == (1e-5,) * 9
    assert 0.0085 < band.low[9] < band.middle[9] == pytest.approx(0.01)
    figure = curves(summary)[0]
    assert "down to the lowest seed" in figure.caption
    assert all(layer["encoding"]["y"]["scale"]["type"] == "log" for layer in figure.chart["layer"])


def test_many_activations_have_their_intervals_at_the_end(monkeypatch):
    monkeypatch.setattr("softknee.lab.report.drawing.MOST_BANDS", 2)
    summary = summarise(OF, outcomes(OF))
    figure = next(curve for curve in curves(summary) if curve.name == "curve-train_loss")
    assert "95 % interval at the end." in figure.caption
    layers = {layer["mark"]["type"]: layer for layer in figure.chart["layer"]}
    assert "area" not in layers
    ends = layers["rule"]["data"]["values"]
    bands = [item for item in summary.bands if item.curve == "train_loss"]
    assert len({end["epoch"] for end in ends}) == len(bands) > 2
    for end, band in zip(ends, bands, strict=True):
        assert end["epoch"] > band.epochs[-1]
        assert (end["low"], end["y"], end["high"]) == (band.low[-1], band.middle[-1], band.high[-1])


def test_an_axis_of_losses_has_numbers_however_narrow_it_is():
    assert log_axis(0.01, 3.0)["axis"]["values"] == pytest.approx([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
    assert log_axis(1e-6, 3.0)["axis"]["values"] == pytest.approx([1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0])
    assert log_axis(0.44, 0.49) == {}  # linear: no 1, 2 or 5 lies there
    summary = thin(curves={"train_loss": ((0.45, 0.46, 0.47, 0.48),) * 10})
    assert "type" not in curves(summary)[0].chart["layer"][0]["encoding"]["y"]["scale"]


def _first(curves):
    return {name: rows[:3] for name, rows in curves.items()}


def test_few_epochs_have_a_number_each():
    summary = summarise(OF, outcomes(OF))
    few = summarise(OF, [replace(outcome, epochs=(1, 2, 3), curves=_first(outcome.curves)) for outcome in outcomes(OF)])
    for of, numbers in ((few, [1, 2, 3]), (summary, None)):
        axes = [layer["encoding"]["x"].get("axis", {}) for curve in curves(of) for layer in curve.chart["layer"]]
        assert all(axis.get("values") == numbers for axis in axes)


def test_the_start_of_a_single_site_can_be_seen():
    summary = summarise(OF, outcomes(OF))
    whole = summary.profiles[0]
    alone = replace(whole, paths=whole.paths[:1], start=((1.0, 3.0),), end=((4.0, 4.0),), distance=((),))
    (figure,) = hardness(replace(summary, profiles=(alone,)))
    dotted = figure.chart["layer"][0]
    assert [(row["x"], row["y"]) for row in dotted["data"]["values"]] == [(0.85, 2.0), (1.15, 2.0)]
    assert dotted["mark"]["strokeDash"] == [2, 3]
    rows = hardness(summary)[0].chart["layer"][0]["data"]["values"]
    assert [row["x"] for row in rows if row["name"] == whole.label] == [*range(1, len(whole.paths) + 1)]


def test_a_vector_has_a_figure_of_its_own():
    way = tuple((0.1 * place,) * 4 for place in range(10))
    moved = {"start": 0.0, "end": way[-1], "curve": way}
    several = moved | {"starts": (-1.0, 0.0, 0.5, 1.5), "start": 0.25}
    summary = thin(parameters={"1.q": moved, "1.z[0]": several, "1.z[1]": moved})
    names = [item.name for item in learned(summary) if item.name.startswith("trajectory-relu")]
    assert names == ["trajectory-relu", "trajectory-relu-z"]
    line = next(trajectory for trajectory in summary.trajectories if trajectory.parameter == "z[0]")
    assert (line.low[0], line.middle[0], line.high[0]) == (-1.0, 0.25, 1.5)
