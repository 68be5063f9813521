"""What is given to the functions of sk.measure: a number for what can be measured, a full sentence for all else."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import softknee as sk
from softknee.errors import SoftkneeError

M = sk.measure


def sure(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def estimate() -> Any:
    return M.prediction_difference(sure(5, 6, 2)).delta_1


def net(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2))


LABELS, TRUTH, BATCHES = torch.tensor([0, 1, 1, 0, 1, 0]), torch.linspace(0, 1, 6), [torch.ones(8, 4)]
SCORED = {"probs": sure(3, 6, 2), "labels": LABELS}
# Arguments that are fine, by the function; the other ones have their defaults.
FINE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ["accuracy", "auc", "log_loss", "ranking_loss", "expected_calibration_error", "reliability"], SCORED
    ),
    **{key: {"predictions": torch.rand(3, 6), "truth": TRUTH} for key in ["mse", "r2", "psnr"]},
    "ssim": {"predictions": torch.rand(2, 9, 9), "truth": torch.rand(9, 9)},
    "prediction_difference": SCORED,
    "activity": {"model": net(sk.nn.SReLU(learn=True)), "batches": BATCHES},
    "entropies": {"model": net(sk.nn.SQUAF(k=4)), "batches": BATCHES},
    "rate": {"model": net(sk.nn.SQUAF(k=4)), "batches": BATCHES},
    "gradient_norms": {"model": nn.Linear(4, 1), "loss": lambda model, x: model(x).sum(), "batches": BATCHES},
    "hardness_profile": {"model": net(sk.nn.LambdaGELU(lam=2.0))},
    "drift": {"profiles": [[1.0, 2.0], [1.5, 2.0]]},
    "spearman": {"a": [1.0, 2.0], "b": [2.0, 1.0]},
    "holm": {"p_values": [0.1, None]},
    "compare_each": {"first": [0.1, 0.2, 0.3], "second": [0.2, 0.3, 0.5]},
    "compare_sets": {"first": estimate(), "second": estimate()},
    "generalisation_gap": {"train": M.mse(torch.rand(3, 6), TRUTH), "test": M.mse(torch.rand(3, 6), TRUTH)},
    "propagation": {"f": "relu", "depth": 3},
    "without_paths": {"text": "at /here/there"},
}
# `loss` is the caller's own code: what it raises about a batch is not ours to word.
OWN = {("gradient_norms", "model"), ("gradient_norms", "batches")}
WRONG: dict[str, Any] = {
    "None": None,
    "text": "text",
    "bytes": b"text",
    "a number": 3,
    "an endless number": 10**400,
    "NaN": math.nan,
    "True": True,
    "a list of text": ["a", "b"],
    "a ragged list": [[1], [2, 3]],
    "an object": object(),
    "a class": nn.ReLU,
    "a function": lambda *given: None,
    "an array": np.ones(3),
    "an array of objects": np.array([None, object()]),
    "whole numbers": torch.arange(4),
    "no dimension": torch.tensor(0.5),
    "complex numbers": torch.ones(4, dtype=torch.cfloat),
    "an empty tensor": torch.zeros(0),
    "an empty matrix": torch.zeros(3, 0),
    "another shape": torch.rand(2, 3, 4, 5),
    "a tensor without numbers": torch.zeros(4, device="meta"),
    "a layer": nn.Linear(3, 3),
}


def asked(function: Callable[..., Any], given: dict[str, Any]) -> str | None:
    """What a call is refused with; None where it is not. Any other exception is a fault."""
    try:
        function(**given)
    except SoftkneeError as error:
        return str(error)
    return None


def test_every_function_is_here():
    functions = {name for name in M.__all__ if inspect.isfunction(getattr(M, name))}
    assert functions - {"write_whole"} == set(FINE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", FINE)
def test_what_cannot_be_measured_is_refused_with_a_sentence(name: str):
    function, fine = getattr(M, name), FINE[name]
    assert asked(function, fine) is None
    refused = 0
    for argument in inspect.signature(function).parameters:
        for what, wrong in WRONG.items():
            if argument == "more" or (name, argument) in OWN:
                continue
            try:
                said = asked(function, {**fine, argument: wrong})
            except Exception as error:
                pytest.fail(f"{name}({argument}={what}) raised {type(error).__name__}: {error}")
            if said is not None:
                refused += 1
                assert said.endswith((".", "?")), f"{name}({argument}={what}): {said}"
                assert len(said.split()) > 5, f"{name}({argument}={what}): {said}"
    assert refused > 10


def test_the_loss_of_gradient_norms_and_what_is_no_list_of_batches():
    model = nn.Linear(4, 1)
    for wrong in (None, "text", nn.ReLU, nn.MSELoss(), torch.ones(1)):
        with pytest.raises(sk.InputError, match="loss must be a function"):
            M.gradient_norms(model, wrong, BATCHES)  # pyright: ignore[reportArgumentType]
    for wrong in (None, 3, "text", {"x": BATCHES[0]}, torch.tensor(1.0), object()):
        with pytest.raises(sk.InputError, match="batches must be an iterable"):
            M.gradient_norms(model, lambda model, x: model(x).sum(), wrong)  # pyright: ignore[reportArgumentType]


def test_traces_and_quantities_take_numbers():
    model = net(sk.nn.LambdaGELU(lam=2.0, learn=True))
    for trace in (M.HardnessTrace(model), M.ParameterTrace(model)):
        for wrong in (None, "first", [1]):
            with pytest.raises(sk.ParameterError, match="recorded under numbers"):
                trace.record(wrong)  # pyright: ignore[reportArgumentType]
        trace.record(0)
        trace.record(0.5)
    assert M.Quantity.mean(np.array([1.0, 3.0]), unit="s").value == 2  # pyright: ignore[reportArgumentType]
    for wrong in (None, ["a"], [None], 3, []):
        with pytest.raises(M.RecordError, match="quantity"):
            M.Quantity.median(wrong, unit="s")  # pyright: ignore[reportArgumentType]
    with pytest.raises(M.RecordError, match="NoneType was given"):
        M.Record.from_json(None)  # pyright: ignore[reportArgumentType]
