"""Figures of fitted pictures and functions show the predictions that the study kept, and the numbers of its records."""

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from fit_runs import finished
from softknee.errors import DataError
from softknee.lab.chart import coloured
from softknee.lab.data.synthetic import function_values, load_picture
from softknee.lab.fits import Fit, Run
from softknee.lab.fits.drawing import compare_pictures, curves, gallery, heat_map, power_of_ten
from softknee.lab.fits.runs import mean_of, median_seed
from softknee.lab.studies.running.training import read_tensors


def kept(fit: Fit) -> torch.Tensor:
    """The predictions as the file has them, without the code under test."""
    file = Path(fit.run.url) / "files" / f"{fit.outcome.trial.key}.predictions.safetensors"
    return read_tensors(file.read_bytes())["predictions"]


def images(figure) -> list[np.ndarray]:
    """Colours [rows, columns, 3] of every picture, from 0 to 1."""
    addresses = [layer["mark"]["url"] for layer in figure["layer"] if layer["mark"]["type"] == "image"]
    files = [io.BytesIO(base64.b64decode(address.partition(",")[2])) for address in addresses]
    return [np.asarray(Image.open(file)) / 255 for file in files]


def texts(figure) -> list[str]:
    if "layer" not in figure:
        return [
            text for name in ("hconcat", "vconcat", "concat") for part in figure.get(name, ()) for text in texts(part)
        ]
    rows = [row for layer in figure["layer"] if layer["mark"]["type"] == "text" for row in layer["data"]["values"]]
    return [row["text"] if isinstance(row["text"], str) else "\n".join(row["text"]) for row in rows]


def same(picture: np.ndarray, values: np.ndarray, ramp: str = "gray", low: float = 0.0, high: float = 1.0) -> bool:
    """Whether a picture shows these values, to the eight bits of its colours."""
    return np.allclose(picture, coloured(torch.as_tensor(values), ramp, low, high).numpy(), atol=0.003)


def test_the_median_is_of_the_seeds_that_have_a_number_and_a_mean_only_of_all():
    assert median_seed((5.0, 1.0, 3.0)) == 2
    assert median_seed((5.0, None, 3.0, 4.0)) == 3
    assert median_seed((2.0, 1.0)) == 1  # the lower of two
    with pytest.raises(DataError, match="every seed diverged"):
        median_seed((None, None))
    assert mean_of((1.0, 2.0)) == 1.5
    assert mean_of((1.0, None)) is None


def test_a_gallery_shows_the_median_seed_its_errors_and_the_means():
    run = finished("camera")
    original = load_picture("camera").numpy()
    figure = gallery(run).figure
    shown, words = images(figure), texts(figure)
    assert same(shown[0], original)
    largest = 0.0
    assert [fit.title for fit in run.fits] == ["ReLU", "GELU", "SQUAF"]
    for place, fit in enumerate(run.fits):
        pictures = kept(fit).reshape(3, 128, 128).numpy()
        each = [peak_signal_noise_ratio(original, picture, data_range=1.0) for picture in pictures]
        middle = int(np.argsort(each)[1])
        assert same(shown[1 + 2 * place], pictures[middle])
        largest = max(largest, float(np.quantile(abs(pictures[middle] - original).astype(float), 0.99)))
        alike = np.mean([structural_similarity(original, item, data_range=1.0) for item in pictures])
        assert f"{np.mean(each):.2f} dB, SSIM {alike:.4f}" in words
        assert fit.number(middle) == middle  # the seeds are 0, 1 and 2
        assert words.count(f"seed {middle}") >= 1
    for place, fit in enumerate(run.fits):
        errors = abs(kept(fit)[fit.seed("psnr")].reshape(128, 128).numpy() - original)
        assert same(shown[2 + 2 * place], errors, "magma_r", 0.0, largest)
    assert any("median PSNR of 3" in word for word in words)


def test_pictures_of_several_studies_stand_side_by_side():
    runs = [finished("camera"), finished("page")]
    few = compare_pictures(runs, names=("relu", "squaf")).figure
    shown = images(few)
    assert len(shown) == 6
    for line, run in enumerate(runs):
        assert same(shown[3 * line], load_picture(run.data).numpy())
        for column, label in enumerate(("relu", "squaf"), start=1):
            (fit,) = [item for item in run.fits if item.label == label]
            assert same(shown[3 * line + column], kept(fit)[fit.seed("psnr")].reshape(128, 128).numpy())
    every = compare_pictures(runs).figure
    assert len(images(every)) == 7  # gelu stands in one row alone
    assert texts(every).count("not trained") == 1
    with pytest.raises(DataError, match="no predictions of polynorm were kept"):
        compare_pictures(runs, names=("polynorm",))


def test_curves_are_the_function_and_the_predictions_of_networks_and_of_squaf_alone():
    runs = [finished("alone"), finished("line")]
    figure = curves(runs).figure
    x = torch.linspace(-1, 1, 4001)
    target = function_values("sine-1d", x.unsqueeze(1)).flatten().numpy()
    fits = [*runs[1].fits, *runs[0].fits]  # networks first
    assert [fit.title for fit in fits] == ["ReLU", "SQUAF", "SQUAF alone"]
    for place, fit in enumerate(fits):
        left, right = figure["vconcat"][place]["hconcat"]
        each = (kept(fit).flatten(1).double() - torch.from_numpy(target)).square().mean(dim=1)
        middle = int(each.argsort()[1])
        drawn = kept(fit)[middle].flatten().double().numpy()
        grey, line, error = (layer["data"]["values"] for layer in (*left["layer"][:2], right["layer"][0]))
        for rows, values in ((grey, target), (line, drawn), (error, abs(drawn - target))):
            assert rows[0]["x"] == -1
            assert rows[-1]["x"] == 1
            places = [round(2000 * (row["x"] + 1)) for row in rows]
            assert np.allclose([row["y"] for row in rows], values[places], atol=1e-5)
        assert len(grey) > 100
        assert len(error) == len(x)
        assert f"MSE {power_of_ten(float(each[middle]))}" in texts(figure)
    only = curves(runs, names=("relu",)).figure
    assert len(only["vconcat"]) == 1


def test_a_function_of_two_inputs_is_shown_with_the_second_upwards():
    run = finished("field")
    shown = images(gallery(run).figure)
    side = np.linspace(-1, 1, 101)
    places = torch.tensor([[[x, y] for x in side] for y in side[::-1]])
    truth = function_values("sine-2d", places)[..., 0].numpy()
    reach = float(run.examples.test_y.abs().max())
    assert same(shown[0], truth, "RdBu_r", -reach, reach)
    fit = run.fits[1]
    predictions = kept(fit)[fit.seed("mse")].flatten().numpy()
    # The test part has the first input in the outer loop.
    assert same(shown[3], predictions.reshape(101, 101).T[::-1].copy(), "RdBu_r", -reach, reach)
    assert not same(shown[3], predictions.reshape(101, 101), "RdBu_r", -reach, reach)


def test_the_heat_map_has_the_means_of_the_outcomes_and_the_numbers_of_the_paper():
    run = finished("grid")
    figure = heat_map(run).figure
    words = texts(figure)
    by_label = {fit.label: fit.outcome.test["psnr"] for fit in run.fits}
    for q in (0.25, 0.5):
        for h in (1, 4):
            each = by_label[f"q={q} h={h}"]
            # t of 2 degrees of freedom is 4.3027.
            half = 4.302652729911275 * np.std(each, ddof=1) / 3**0.5
            assert f"{sum(each) / 3:.2f}\n±{half:.2f}" in words
    assert {"51.50", "24.25"} <= set(words)
    paper = figure["hconcat"][0]["layer"][0]
    # The paper has numbers on the diagonal alone, and the largest of all.
    assert {(row["q"], row["h"]): row["psnr"] for row in paper["data"]["values"]} == {(0.25, 1): 51.5, (0.5, 4): 24.25}
    assert paper["encoding"]["color"]["scale"]["domain"][1] == 51.5


def test_seeds_that_diverged_are_said_and_not_averaged():
    whole = finished("camera")
    relu, gelu, squaf = whole.fits
    gone = replace(relu.outcome, diverged=(1, 1, 1), test=dict.fromkeys(("psnr", "ssim", "mse"), (None,) * 3))
    scores = {name: (None, *each[1:]) for name, each in gelu.outcome.test.items()}
    partly = replace(gelu.outcome, diverged=(2, None, None), test=scores)
    run = Run(store=whole.store, recipe=whole.recipe)
    run.fits.extend(replace(fit, outcome=item, run=run) for fit, item in ((relu, gone), (gelu, partly)))
    run.fits.append(replace(squaf, run=run))
    figure = gallery(run).figure
    assert "every seed diverged" in texts(figure)
    assert "1 of 3 seeds diverged" in texts(figure)
    assert len(images(figure)) == 1 + 2 * 2 + 1  # the last is the scale of errors


def test_examples_of_another_machine_may_differ_in_last_bits_and_not_in_more(monkeypatch: pytest.MonkeyPatch):
    here = finished("field").examples
    for off, refused in ((3e-8, False), (0.01, True)):
        other = replace(here, test_y=here.test_y + off, fingerprint="of another machine")
        monkeypatch.setattr("softknee.lab.fits.runs.recipe_examples", lambda *_, other=other, **__: other)
        run = finished("field")
        if refused:
            with pytest.raises(DataError, match="trained on other examples than 'sine-2d' has now"):
                gallery(run)
        else:
            assert len(images(gallery(run).figure)) == 5 + 2
            assert "its test part is the same but for last bits" in run.notes[0]
