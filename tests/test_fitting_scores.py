"""R^2, PSNR and SSIM against scikit-learn and scikit-image; and the scores of a study of functions and pictures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn.metrics import mean_squared_error, r2_score

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.lab.networks import alone, mlp
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.recipe import Data, Model, Seeds, Training
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.running.training import judge
from softknee.lab.studies.trial import Chosen, Trial


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- the scores themselves ----------------------------------------------------------------------------------


def test_errors_of_quantities_are_those_of_scikit_learn() -> None:
    said, truth = drawn(4, 50, 3), drawn(50, 3, seed=1) * torch.tensor([1.0, 5.0, 0.1])
    each = [
        (mean_squared_error(truth, item), r2_score(truth, item, multioutput="variance_weighted"))
        for item in said.numpy()
    ]
    results = [sk.measure.mse(said, truth), sk.measure.r2(said, truth)]
    for score, wanted in zip(results, zip(*each, strict=True), strict=True):
        assert score.each == pytest.approx(wanted, rel=1e-12)
        assert score.value == pytest.approx(np.mean(wanted), rel=1e-12)
    assert [result.larger_is_better for result in results] == [False, True]


@pytest.mark.parametrize(("shape", "data_range"), [((128, 128), 1.0), ((9, 31), 1.0), ((40, 7), 255.0)])
def test_pictures_are_judged_as_by_scikit_image(shape: tuple[int, int], data_range: float) -> None:
    smooth = torch.outer(torch.linspace(0, 3, shape[0]).sin(), torch.linspace(0, 2, shape[1]).cos()).double()
    truth = data_range * (0.5 + 0.4 * smooth)
    # From nearly the same to noise, and one that leaves the range; the last is the negative.
    noise = drawn(3, *shape) - 0.5
    said = torch.stack([truth + s * data_range * entry for s, entry in zip((1e-3, 0.1, 2.0), noise, strict=True)])
    said = torch.cat([said, data_range - truth.unsqueeze(0)])
    wanted = truth.numpy()
    psnr = [peak_signal_noise_ratio(wanted, item, data_range=data_range) for item in said.numpy()]
    ssim = [structural_similarity(wanted, value, data_range=data_range) for value in said.numpy()]
    assert sk.measure.psnr(said, truth, data_range=data_range).each == pytest.approx(psnr, rel=1e-12)
    assert sk.measure.ssim(said, truth, data_range=data_range).each == pytest.approx(ssim, abs=1e-9)
    assert min(ssim) < 0.1
    assert max(ssim) > 0.99


def test_the_ends_of_the_scales() -> None:
    truth = drawn(8, 8)
    perfect, mean = truth.clone(), truth.mean().expand(8, 8)
    said = torch.stack([perfect, mean])
    assert sk.measure.ssim(said, truth).each[0] == pytest.approx(1.0, abs=1e-12)
    assert sk.measure.psnr(said, truth).each[0] == math.inf
    # About the mean of the whole, as for one quantity.
    assert sk.measure.r2(said.flatten(1), truth.flatten()).each == pytest.approx((1.0, 0.0), abs=1e-12)


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda: sk.measure.mse([1.0, 2.0], [1.0, 2.0]), InputError, "with the models in front"),
        (lambda: sk.measure.r2(torch.zeros(2, 3, 1), torch.zeros(3)), InputError, "with the models in front"),
        (lambda: sk.measure.r2(torch.zeros(0, 3), torch.zeros(3)), InputError, "with the models in front"),
        (lambda: sk.measure.mse([[math.nan]], [1.0]), InputError, "predictions hold NaN"),
        (lambda: sk.measure.mse([[1.0]], [math.inf]), InputError, "truth holds NaN or infinity"),
        (lambda: sk.measure.mse("no", [1.0]), InputError, "arrays of numbers"),
        (lambda: sk.measure.mse(torch.zeros(1, 1, dtype=torch.complex64), [1.0]), InputError, "real numbers"),
        (lambda: sk.measure.ssim(torch.zeros(1, 6, 9), torch.zeros(6, 9)), InputError, "each at least 7"),
        (lambda: sk.measure.ssim(torch.zeros(1, 81), torch.zeros(81)), InputError, "height, width"),
        (lambda: sk.measure.psnr([[1.0]], [1.0], data_range=0), ParameterError, "number above 0"),
        (lambda: sk.measure.mse([[1.0]], [1.0], level=2), ParameterError, "level"),
    ],
)
def test_what_cannot_be_judged_is_a_sentence(call, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        call()


# -- in a study ---------------------------------------------------------------------------------------------


def test_seeds_that_diverged_have_no_score_and_a_constant_truth_no_r2() -> None:
    outputs, truth = drawn(3, 49, 1).float(), drawn(49, 1, seed=1).float()
    outputs[1] = math.nan
    result = judge(outputs, truth, task="regression", rows=[0, 2], picture=(7, 7))
    assert set(result) == {"mse", "r2", "psnr", "ssim"}
    for each in result.values():
        assert each[1] is None
        assert None not in (each[0], each[2])
    assert result["psnr"][2] == pytest.approx(-10 * math.log10(result["mse"][2]), rel=1e-12)
    gone = judge(outputs, truth, task="regression", rows=[], picture=(7, 7))
    assert gone == dict.fromkeys(("mse", "r2", "psnr", "ssim"), (None,) * 3)
    flat = judge(outputs, torch.ones(49, 1), task="regression", rows=[0])
    assert set(flat) == {"mse", "r2"}
    assert flat["mse"][0] > 0
    assert flat["r2"] == (None,) * 3


def asked(data: Data, chosen: Chosen, model: Model, *, batch: int, epochs: int, rate: float) -> tuple[Trial, object]:
    examples = load_examples(data)
    made = Trial(
        kind="train",
        activations=(chosen,),
        data=data,
        fingerprint=examples.fingerprint,
        model=model,
        training=Training(optimizer="adam", learning_rate=rate, activation_rate=1.0, batch=batch, epochs=epochs),
        seeds=Seeds(count=2),
        keep=("predictions",),
    )
    return made, examples


def test_a_trial_on_a_picture_says_how_alike_it_is() -> None:
    squaf = Chosen(name="squaf", label="squaf", values={"k": 2, "z": "random"}, learn=True)
    trial, examples = asked(
        Data(set="camera"), squaf, Model(arguments={"hidden": [8]}), batch=1024, epochs=2, rate=0.01
    )
    result = run_trial(trial, examples=examples)
    scores = result.outcome.test
    assert set(scores) == {"mse", "r2", "psnr", "ssim"}
    assert set(result.outcome.train) == {"mse", "r2"}
    assert scores["mse"] == result.outcome.train["mse"]  # the picture is all there is
    said = (
        load(result.files[f"{trial.key}.predictions.safetensors"])["predictions"].reshape(2, 128, 128).double().numpy()
    )
    truth = examples.test_y.reshape(128, 128).double().numpy()
    for seed in range(2):
        psnr, ssim = (
            measure(truth, said[seed], data_range=1.0) for measure in (peak_signal_noise_ratio, structural_similarity)
        )
        assert (scores["psnr"][seed], scores["ssim"][seed]) == pytest.approx((psnr, ssim), abs=1e-6)
    assert scores["psnr"][0] != scores["psnr"][1]


def test_an_activation_alone_learns_a_function() -> None:
    values = {"k": 13, "q": 1 / 13, "alpha": "auto", "z": "random"}
    chosen = Chosen(name="squaf", label="squaf", values=values, learn=("z", "alpha"))
    trial, examples = asked(Data(set="sine-1d"), chosen, Model(build="alone"), batch=980, epochs=6, rate=0.03)
    # Every tenth example is enough here.
    examples = replace(examples, train_x=examples.train_x[::10], train_y=examples.train_y[::10])
    result = run_trial(trial, examples=examples).outcome
    curve = [epoch[0] for epoch in result.curves["train_loss"]]
    assert curve[-1] < 0.5 * curve[0]
    assert result.parameters.keys() == {"0.alpha", *(f"0.z[{i}]" for i in range(27))}


COUNTS = [
    # name and settings; trained numbers of [1, 64, 1], [2, 50, 1], [2, 64, 64, 3], by the SQUAF paper's tables 3 and 2
    ("relu", {}, (193, 201, 4547)),
    ("gelu", {}, (193, 201, 4547)),
    ("leaky_relu", {}, (193, 201, 4547)),
    ("prelu", {"learn": True}, (194, 202, 4549)),
    ("swish", {"learn": True}, (194, 202, 4549)),
    ("crrelu", {"learn": True}, (194, 202, 4549)),
    ("polyrelu", {"learn": True}, (197, 205, 4555)),
    ("polynorm", {"learn": True}, (197, 205, 4555)),
    ("ditac", {"learn": True}, (202, 210, 4565)),
    ("kaf", {"learn": True, "points": 7}, (200, 208, 4561)),
    ("squaf", {"learn": True, "k": 2, "z": "random"}, (200, 208, 4561)),
]


@pytest.mark.parametrize(("name", "knobs", "wanted"), COUNTS, ids=[name for name, *_ in COUNTS])
def test_as_many_numbers_are_trained_as_in_the_paper(name: str, knobs: dict, wanted: tuple[int, ...]) -> None:
    networks = [mlp(widths, activation=name, **knobs) for widths in ((1, 64, 1), (2, 50, 1), (2, 64, 64, 3))]
    assert tuple(map(trained, networks)) == wanted
    assert trained(mlp((2, 64, 64, 4), activation=name, **knobs)) == wanted[-1] + 65


@pytest.mark.parametrize(("k", "wanted"), [(95, 192), (13, 28)])
def test_as_many_numbers_are_trained_alone_as_in_the_paper(k: int, wanted: int) -> None:
    network = alone(activation="squaf", k=k, q=1 / k, alpha="auto", z="random", learn=("z", "alpha"))
    assert trained(network) == wanted
    assert network[0].alpha.item() == pytest.approx(1.5 * k**2, rel=1e-5)


def trained(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters() if p.requires_grad)
