"""Regions of classes and learned SQUAFs are drawn of the models that a study kept, or of the ends in its records."""

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fit_runs import finished
from softknee.errors import DataError
from softknee.lab.fits import Fit
from softknee.lab.fits.drawing import COLOURS, bounds_of, classes_at, decided, learned_fits, regions, shapes, sites_of
from softknee.lab.studies.running.training import read_tensors
from softknee.registry import get


def kept(fit: Fit) -> dict[str, torch.Tensor]:
    file = Path(fit.run.url) / "files" / f"{fit.outcome.trial.key}.models.safetensors"
    return read_tensors(file.read_bytes())


def away_from_jumps(x: torch.Tensor, *, q: float) -> torch.Tensor:
    """Where the window of five points does not jump to the next one within rounding: not half way between two."""
    return (x / q % 1 - 0.5).abs() > 1e-3


def test_the_class_at_every_place_is_that_of_the_kept_weights():
    run = finished("clusters")
    relu = run.fits[0]
    place = relu.seed("accuracy")
    w = {name: item[place].double() for name, item in kept(relu).items()}
    left, right, bottom, top = bounds_of(run)
    result = decided(relu, place, points=21)
    assert not torch.equal(result, result.flip(0))  # several classes, and the way up matters
    assert not torch.equal(result, result.flip(1))
    for row, upright in enumerate(np.linspace(top, bottom, 21)):
        for column, across in enumerate(np.linspace(left, right, 21)):
            x = torch.tensor([across, upright])
            hidden = (w["0.weight"] @ x + w["0.bias"]).relu()
            outputs = w["4.weight"] @ (w["2.weight"] @ hidden + w["2.bias"]).relu() + w["4.bias"]
            best, second = outputs.topk(2).values.tolist()
            if best - second > 1e-5:
                assert int(result[row, column]) == int(outputs.argmax())


def test_the_points_that_are_rimmed_are_those_that_the_outcome_counts_as_missed():
    run = finished("clusters")
    figure = regions(run).figure
    words = [
        row["text"] for layer in figure["layer"] if layer["mark"]["type"] == "text" for row in layer["data"]["values"]
    ]
    marks = [layer for layer in figure["layer"] if layer["mark"]["type"] == "point"]
    pictures = [layer["mark"]["url"] for layer in figure["layer"] if layer["mark"]["type"] == "image"]
    for place, fit in enumerate(run.fits):
        seed = fit.seed("accuracy")
        right = classes_at(fit, seed, run.examples.test_x) == run.examples.test_y
        assert right.double().mean() == pytest.approx(fit.outcome.test["accuracy"][seed])
        count = 2 * run.examples.classes  # right and missed of each class
        points = [len(layer["data"]["values"]) for layer in marks[count * place : count * (place + 1)]]
        assert sum(points[1::2]) == int((~right).sum())
        assert sum(points) == len(run.examples.test_y)
        assert f"{100 * sum(fit.outcome.test['accuracy']) / 3:.1f} %" in words
        assert f"seed {seed}: {100 * fit.outcome.test['accuracy'][seed]:.1f} %" in words
        file = io.BytesIO(base64.b64decode(pictures[place].partition(",")[2]))
        colours = np.asarray(Image.open(file)) / 255
        first = np.array([int(COLOURS[0][part : part + 2], 16) / 255 for part in (1, 3, 5)])
        here = decided(fit, seed) == 0
        assert np.allclose(colours[here.numpy()], 0.38 * first + 0.62, atol=0.003)


def test_learned_curves_are_those_of_the_kept_parameters():
    run = finished("clusters")
    (fit,) = learned_fits(run)
    sites = sites_of(fit, "accuracy")
    assert [site.path for site in sites] == ["1", "3"]
    seed, weights = fit.seed("accuracy"), kept(fit)
    for site in sites:
        q, alpha = (fit.outcome.parameters[f"{site.path}.{name}"]["end"][seed] for name in ("q", "alpha"))
        values = {"q": q, "alpha": alpha, "z": weights[f"{site.path}.z"][seed].flatten()}
        expected = get("squaf")(site.x, k=2, window=5, **values)
        assert torch.allclose(site.end, expected, atol=1e-5)
        assert torch.allclose(site.points, values["q"] * torch.arange(-2, 3))
        assert not torch.allclose(site.start, site.end, atol=1e-3)
        assert len(site.others) == 2
        assert 0.5 < float(site.shares.sum()) <= 1.0


def test_without_models_the_ends_in_the_record_give_the_same_curves():
    run = finished("clusters")
    (fit,) = learned_fits(run)
    bare = replace(fit, files={})
    assert not bare.weights
    for item, other in zip(sites_of(fit, "accuracy"), sites_of(bare, "accuracy"), strict=True):
        # The ends in a record went through a logarithm and back: q, and with it every x, may differ in the last bits.
        assert torch.allclose(item.x, other.x, rtol=1e-5, atol=1e-5)
        assert torch.allclose(item.points, other.points, rtol=1e-5, atol=1e-5)
        for name, q in (("end", float(item.points.diff()[0])), ("start", 0.5)):
            whole = away_from_jumps(item.x, q=q)
            assert int(whole.sum()) > 1000
            assert torch.allclose(getattr(item, name)[whole], getattr(other, name)[whole], atol=1e-5)
        assert len(other.shares) == 0


def test_the_figure_has_a_panel_for_each_layer_with_start_end_and_points():
    run = finished("clusters")
    (fit,) = learned_fits(run)
    figure = shapes(run, measure="accuracy").figure
    for panel, site in zip(figure["concat"], sites_of(fit, "accuracy"), strict=True):
        _, *others, start, end, points = (layer["data"]["values"] for layer in panel["layer"])
        assert len(others) == 2
        assert np.allclose([row["y"] for row in start], site.start)
        assert np.allclose([row["y"] for row in end], site.end)
        assert np.allclose([row["x"] for row in points], site.points)
    line = finished("line")
    line.fits[:] = [item for item in line.fits if item.name == "relu"]
    with pytest.raises(DataError, match="no SQUAF with learned parameters"):
        shapes(line, measure="mse")
