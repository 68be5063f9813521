"""The trials of a recipe, in an order that never changes: what is trained, what is tuned, what is timed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import ParameterError, RecipeError, did_you_mean
from ..networks import BUILDERS
from ..splits import OWN_PARTS
from .checking import TIMM, combinations
from .examples import Examples
from .outcome import Outcome
from .own_functions import source_fingerprint
from .recipe import FIRST_TUNING_SEED, Data, Recipe, Seeds, Training
from .trial import Chosen, Trial

Tuned = Mapping[str, tuple[float, float]]  # learning rate and weight decay by the label of an activation


def train_trials(recipe: Recipe, examples: Examples, tuned: Tuned | None = None) -> list[Trial]:
    """One trial for each activation and combination of its values, with the seeds of the study.

    tuned:  what `choose_tuned` found; an activation that is not in it has the recipe's own values.
    """
    common = _common(recipe, examples)
    measures = tuple(one for one in recipe.measures if one != "cost")
    trials = []
    for chosen in every_chosen(recipe):
        rate, decay = (tuned or {}).get(chosen.label, (recipe.training.learning_rate, recipe.training.weight_decay))
        trials.append(
            Trial(
                kind="train",
                activations=(chosen,),
                training=_training(recipe, chosen, rate, decay),
                seeds=recipe.seeds,
                select=recipe.select,
                hardening=recipe.hardening if chosen.harden else None,
                measures=measures,
                keep=recipe.keep,
                augment=recipe.augment,
                **common,
            )
        )
    return trials


def tuning_trials(recipe: Recipe, examples: Examples) -> list[Trial]:
    """For each activation every learning rate with every weight decay of `tuning`, on seeds that the study has not."""
    if recipe.tuning is None:
        return []
    common = _common(recipe, examples)
    rates = recipe.tuning.learning_rate or (recipe.training.learning_rate,)
    decays = recipe.tuning.weight_decay or (recipe.training.weight_decay,)
    return [
        Trial(
            kind="tune",
            activations=(chosen,),
            training=_training(recipe, chosen, rate, decay),
            seeds=Seeds(count=recipe.tuning.seeds, first=FIRST_TUNING_SEED),
            select=recipe.select,
            hardening=recipe.hardening if chosen.harden else None,
            augment=recipe.augment,
            **common,
        )
        for chosen in every_chosen(recipe)
        for rate in rates
        for decay in decays
    ]


def choose_tuned(outcomes: Iterable[Outcome]) -> dict[str, tuple[float, float]]:
    """For each activation the learning rate and weight decay with the lowest mean validation loss; of equals the first.

    A setting with which fewer seeds diverged comes before one with more, however well the others did. An activation
    that diverged with every seed of every setting is left out.
    """
    best: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {}
    for outcome in outcomes:
        trial = outcome.trial
        losses = outcome.validation.get("log_loss", outcome.validation.get("mse", ()))
        finite = [one for one in losses if one is not None and math.isfinite(one)]
        if not finite:
            continue
        rank = (float(len(trial.seeds.numbers) - len(finite)), sum(finite) / len(finite))
        label = trial.activation.label
        if label not in best or rank < best[label][0]:
            best[label] = rank, (trial.training.learning_rate, trial.training.weight_decay)
    return {label: settings for label, (_, settings) in best.items()}


def cost_trial(recipe: Recipe, examples: Examples) -> Trial | None:
    """The trial that times every activation in turns, and the baseline of the costs; None where it is not asked for."""
    if "cost" not in recipe.measures:
        return None
    every = list(every_chosen(recipe))
    if recipe.cost_baseline not in [one.label for one in every]:
        every.append(Chosen(name=recipe.cost_baseline, label=recipe.cost_baseline))
    # Hardening changes what the parameters are, and not what a step costs; images are timed as they are.
    return Trial(
        kind="cost",
        activations=tuple(replace(one, harden=False) for one in every),
        training=recipe.training,
        seeds=recipe.seeds,
        measures=("cost",),
        cost_baseline=recipe.cost_baseline,
        **{**_common(recipe, examples), "init": "default"},
    )


def every_chosen(recipe: Recipe) -> Iterator[Chosen]:
    """The activations of a study with each combination of their values, in the order of the recipe."""
    for choice in recipe.activations:
        yield from combinations(choice)


def speaks_of(wanted: str, chosen: Chosen) -> bool:
    """Whether a label that was asked for means this activation: "smelu" means every value of it, "smelu beta=1" one."""
    return chosen.label == wanted or chosen.label.startswith(f"{wanted} ")


def refuse_unknown(only: Sequence[str], recipe: Recipe) -> None:
    """Raise where a label was asked for that means none of the study's activations."""
    every = list(every_chosen(recipe))
    for wanted in only:
        if not any(speaks_of(wanted, one) for one in every):
            labels = [one.label for one in every]
            near = did_you_mean(wanted, labels) or f" It has {', '.join(labels)}."
            raise ParameterError(f"The study {recipe.name!r} has no activation {wanted!r}.{near}")


def _training(recipe: Recipe, chosen: Chosen, rate: float, decay: float) -> Training:
    own = {} if chosen.rate is None else {"activation_rate": chosen.rate}
    return replace(recipe.training, learning_rate=rate, weight_decay=decay, **own)


def _common(
    recipe: Recipe,
    examples: Examples,
) -> dict[str, Any]:
    _check_loss(recipe, examples)
    own = recipe.model.build not in BUILDERS and not recipe.model.build.startswith(TIMM)
    return {
        "data": _anywhere(recipe.data),
        "fingerprint": examples.fingerprint,
        "model": recipe.model,
        "init": recipe.init,
        "device": recipe.device,
        "source": source_fingerprint(recipe.model.build, folder=examples.base) if own else "",
    }


def _anywhere(data: Data) -> Data:
    """The data without the place of the file, which says nothing of what is in it."""
    if data.file is None:
        # A data set by name has its own test part; one that comes in its three parts also one for validation.
        own = {"validation": Data.validation} if data.set in OWN_PARTS else {}
        return replace(data, test=Data.test, **own)
    return replace(data, file=Path(data.file.replace("\\", "/")).name)


def _check_loss(recipe: Recipe, examples: Examples) -> None:
    loss, classes = recipe.training.loss, examples.classes
    kinds = ("mse",) if classes == 0 else ("cross_entropy", *(["bce_with_logits"] if classes == 2 else []))
    if loss in ("auto", *kinds):
        return
    raise RecipeError(
        f"training.loss {loss!r} does not fit {examples.name}, which is a {examples.task}"
        f"{f' with {classes} classes' if classes else ''}: leave it out, or take {' or '.join(kinds)}."
    )
