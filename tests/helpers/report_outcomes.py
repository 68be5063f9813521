"""Made-up outcomes of a small study, drawn with a seed: what the tests of the report read."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from softknee.lab.studies.recipe import Choice, Data, Hardening, Model, Recipe, Seeds, Training
from softknee.lab.studies.trial import Chosen, Trial
from softknee.lab.studies.trials import Outcome
from softknee.measure import accuracy, expected_calibration_error, log_loss, prediction_difference
from softknee.measure.record import Quantity

EPOCHS, EXAMPLES, LABELS = 10, 80, 4
BETAS = (0.25, 0.5, 1.0, 2.0)


def recipe(*, seeds: int = 8, **changes: Any) -> Recipe:
    known: dict[str, Any] = {
        "name": "made-up",
        "title": "Activations on made-up digits",
        "data": Data(set="digits"),
        "model": Model(build="mlp", arguments={"hidden": (128, 128)}),
        "activations": (
            Choice(name="relu"),
            Choice(name="gelu"),
            Choice(name="silu"),
            Choice(name="smelu", values={"beta": BETAS}),
            Choice(name="swish", learn=True),
            Choice(name="lambda_gelu", learn=True, harden=True),
        ),
        "training": Training(epochs=EPOCHS),
        "seeds": Seeds(count=seeds),
        "hardening": Hardening(),
    }
    return Recipe(**known | changes)


def chosen() -> tuple[Chosen, ...]:
    smelus = tuple(Chosen(name="smelu", label=f"smelu beta={beta:g}", values={"beta": beta}) for beta in BETAS)
    return (
        *(Chosen(name=name, label=name) for name in ("relu", "gelu", "silu")),
        *smelus,
        Chosen(name="swish", label="swish learned", values={}, learn=True),
        Chosen(name="lambda_gelu", label="lambda_gelu hardened", values={}, learn=True, harden=True),
    )


def trial(of: Recipe, activations: tuple[Chosen, ...], kind: Any = "train") -> Trial:
    return Trial(
        kind=kind,
        activations=activations,
        data=of.data,
        fingerprint="0" * 64,
        model=of.model,
        training=of.training,
        seeds=of.seeds,
        hardening=of.hardening,
        measures=of.measures,
    )


def outcomes(of: Recipe | None = None, *, diverging: str | None = None) -> list[Outcome]:
    """One outcome for each activation, and the cost of all; `diverging` names a label of which seed 2 diverges."""
    of = of or recipe()
    drawn = torch.Generator().manual_seed(0)
    truth = torch.randint(LABELS, (EXAMPLES,), generator=drawn)
    shared = torch.randn(of.seeds.count, EXAMPLES, LABELS, generator=drawn)
    results = [_outcome(of, item, place, truth, shared, drawn) for place, item in enumerate(chosen())]
    results = [diverge(result) if result.trial.activation.label == diverging else result for result in results]
    return [*results, _cost(of)]


def diverge(outcome: Outcome, seed: int = 2) -> Outcome:
    """The outcome with one seed gone in epoch 4."""

    def without(each: Any) -> tuple[float | None, ...]:
        return tuple(None if place == seed else item for place, item in enumerate(each))

    count = len(outcome.diverged)
    curves = {
        name: tuple(without(each) if epoch >= 3 else each for epoch, each in enumerate(curve))
        for name, curve in outcome.curves.items()
    }
    return replace(
        outcome,
        diverged=tuple(4 if place == seed else None for place in range(count)),
        test={name: without(each) for name, each in outcome.test.items()},
        validation={name: without(each) for name, each in outcome.validation.items()},
        train={name: without(each) for name, each in outcome.train.items()},
        curves=curves,
    )


def _outcome(of: Recipe, one: Chosen, place: int, truth: Tensor, shared: Tensor, drawn: torch.Generator) -> Outcome:
    seeds = of.seeds.count
    smooth = one.values.get("beta", 0.6 if one.name != "relu" else 0.0)
    size = 1.5 * math.exp(-0.25 * smooth)
    own = torch.randn(shared.shape, generator=drawn)
    right = torch.nn.functional.one_hot(truth, LABELS) * (5.0 - 0.5 * (smooth - 1) ** 2)
    logits = right + size * (0.8 * shared + 0.6 * own)
    probs = torch.softmax(logits.double(), dim=2)
    difference = prediction_difference(probs, truth)
    test = {
        "accuracy": accuracy(probs, truth).each,
        "log_loss": log_loss(probs, truth).each,
        "calibration_error": expected_calibration_error(probs, truth).each,
    }
    worse = {name: tuple(0.99 * value for value in each) for name, each in test.items()}
    return Outcome(
        trial=trial(of, (one,)),
        seconds=12.5 + place,
        diverged=(None,) * seeds,
        selected=(EPOCHS,) * seeds,
        test=test,
        validation=worse,
        train=worse,
        curves=_curves(seeds, size, drawn),
        difference={
            name: asdict(getattr(difference, name))
            for name in ("delta_1", "delta_2", "relative", "hamming", "true_label")
        },
        parameters=_parameters(one, seeds, drawn),
        activity=tuple(
            {"path": f"hidden{site}", "zero_fraction": (0.5 - 0.1 * smooth,) * seeds, "dead_fraction": (0.0,) * seeds}
            for site in (1, 2)
        ),
        hardness=_hardness(one, seeds),
        gradients={"mean": (1.0 + smooth,) * seeds, "variance": tuple(0.1 + 0.01 * s for s in range(seeds))},
        replacement=_replacement(one, test["accuracy"]),
    )


def _curves(seeds: int, size: float, drawn: torch.Generator) -> dict[str, Any]:
    def curve(start: float, end: float) -> tuple[tuple[float, ...], ...]:
        noise = 0.02 * torch.randn(EPOCHS, seeds, generator=drawn)
        fall = torch.exp(-0.5 * torch.arange(EPOCHS))[:, None]
        return tuple(tuple(row) for row in (end + (start - end) * fall + noise).tolist())

    return {
        "train_loss": curve(1.4, 0.1 * size),
        "validation_loss": curve(1.4, 0.15 * size),
        "validation_accuracy": curve(0.3, 0.98 - 0.02 * size),
        "gradient_norm": curve(3.0, 0.5),
    }


def _parameters(one: Chosen, seeds: int, drawn: torch.Generator) -> dict[str, Any]:
    name = {"swish": "beta", "lambda_gelu": "lam"}.get(one.name)
    if name is None:
        return {}
    ends = {"hidden1": 1.3, "hidden2": 2.1} if one.name == "swish" else {"hidden1": 159.6, "hidden2": 159.6}
    results = {}
    for path, end in ends.items():
        each = tuple((end + 0.1 * torch.randn(seeds, generator=drawn)).tolist())
        curve = tuple(tuple(1 + (item - 1) * (epoch + 1) / EPOCHS for item in each) for epoch in range(EPOCHS))
        results[f"{path}.{name}"] = {"start": 1.0, "end": each, "curve": curve}
    return results


def _hardness(one: Chosen, seeds: int) -> tuple[dict[str, Any], ...]:
    knobs = {"smelu": "beta", "swish": "beta", "lambda_gelu": "lam"}
    if one.name not in knobs:
        return ()
    ends = {"smelu": one.values.get("beta", 1.0), "swish": 1.7, "lambda_gelu": 159.6}
    return tuple(
        {
            "path": f"hidden{site}",
            "knob": knobs[one.name],
            "start": (one.values.get("beta", 1.0),) * seeds,
            "end": tuple(ends[one.name] + 0.01 * seed * site for seed in range(seeds)),
            "distance": tuple(0.25 / ends[one.name] + 0.001 * seed for seed in range(seeds)),
        }
        for site in (1, 2)
    )


def _replacement(one: Chosen, before: tuple[float, ...]) -> dict[str, Any] | None:
    if not one.harden:
        return None
    after = tuple(value - (0.0125 if place % 4 == 0 else 0.0) for place, value in enumerate(before))
    return {"limit": "relu", "test": {"accuracy": after}, "changed": (0.0125,) * len(before)}


def _cost(of: Recipe) -> Outcome:
    def around(value: float, unit: str) -> Quantity:
        return Quantity.median([value * (1 + 0.01 * step) for step in (-2, -1, 0, 1, 2)], unit=unit)

    ratios = {"relu": 0.93, "gelu": 1.0, "silu": 1.02, "smelu": 0.97, "swish": 1.08, "lambda_gelu": 1.12}
    rows = tuple(
        {
            "label": choice.label,
            "train": around(1.5 * ratios[choice.name], "ms"),
            "infer": around(0.4 * ratios[choice.name], "ms"),
            "train_ratio": around(ratios[choice.name], "times gelu"),
            "infer_ratio": around(ratios[choice.name], "times gelu"),
            "peak_memory": None,
        }
        for choice in chosen()
    )
    return Outcome(trial=trial(of, chosen(), "cost"), seconds=3.0, cost=rows)
