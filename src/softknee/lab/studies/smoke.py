"""A study made tiny: the whole way from the files to the report in seconds, to see that it runs.

Its numbers mean nothing.

What is small is part of the recipe (`data.limit`, two seeds, one epoch), so that its trials have keys of their own; and
its name is another, so that it has a folder of its own. A smoke run is never taken for the study.

>>> from softknee.lab.studies.reading import find_recipe
>>> small = smoke(find_recipe("quickstart"))
>>> small.name, small.seeds.count, small.training.epochs, [one.title for one in small.activations]
('quickstart-smoke', 2, 1, ['relu', 'lambda_gelu'])
>>> asked = smoke(find_recipe("quickstart"), only=["gelu"])
>>> asked.name, [one.title for one in asked.activations]
('quickstart-smoke-gelu', ['gelu'])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from .checking import check, combinations
from .recipe import Choice, Recipe, Tuning
from .trial import Chosen
from .trials import refuse_unknown, speaks_of

BATCHES = 2  # of an epoch
_MOST_BATCH = 4
_MOST_NAME = 64  # characters of a recipe's name
_MOST_ASKED = 28  # of them for the labels that were asked for
_ENDING = "-smoke"


def said(only: Sequence[str] = ()) -> str:
    """What a smoke run is, for whoever starts one."""
    which = "the activations that were asked for" if only else "at most two of the activations"
    return (
        f"Smoke run: two small batches, one epoch, two seeds and {which}, on the CPU, to see that everything runs. Its "
        "numbers mean nothing."
    )


def smoke(recipe: Recipe, *, only: Sequence[str] = ()) -> Recipe:
    """The recipe with two batches an epoch, one epoch, two seeds, at most two activations, no costs, on the CPU.

    Data, model, optimiser and engine stay as they are. The second activation is one that does most: hardened before
    learned before fixed. The paper's numbers are left out: nothing here is to be compared with them.

    only: labels of activations as `run_study` takes them: the study has these, however many, and a name that says so.
    """
    batch = min(recipe.training.batch, _MOST_BATCH)
    few = _asked(recipe, only) if only else _two(recipe)
    ending = f"{_ENDING}{_slug(only)}"
    small = replace(
        recipe,
        name=recipe.name[: _MOST_NAME - len(ending)] + ending,
        title=f"Smoke run, its numbers mean nothing: {recipe.title or recipe.name}",
        data=replace(recipe.data, limit=BATCHES * batch),
        activations=few,
        training=replace(recipe.training, batch=batch, epochs=1, every=1, precision="float32"),
        # With one epoch what begins later would never run.
        augment=None if recipe.augment is None else replace(recipe.augment, from_epoch=1),
        seeds=replace(recipe.seeds, count=2),
        tuning=_tuning(recipe.tuning),
        # Times of so little work say nothing, and measuring them takes longer than all the rest.
        measures=tuple(one for one in recipe.measures if one != "cost"),
        baseline=next(combinations(few[0])).label,
        cost_baseline=Recipe.cost_baseline,
        device="cpu",
        paper=None,
    )
    return check(small)


def _two(recipe: Recipe) -> tuple[Choice, ...]:
    """The first activation and the one of the others that does most, each with the first of its values."""
    first, *others = (_single(one) for one in recipe.activations)
    # Of equals the last, which in the recipes of a paper is the paper's own.
    most = max(reversed(others), key=lambda one: (one.harden, bool(one.learn)), default=None)
    return (first,) if most is None else (first, most)


def _asked(recipe: Recipe, only: Sequence[str]) -> tuple[Choice, ...]:
    """What the labels mean, in the order of the recipe; of a label that means several values the first."""
    refuse_unknown(only, recipe)
    found: list[Choice] = []
    for choice in recipe.activations:
        every = list(combinations(choice))
        meant = (next((one for one in every if speaks_of(wanted, one)), None) for wanted in only)
        labels = {one.label for one in meant if one is not None}
        found += [_fixed(choice, one) for one in every if one.label in labels]
    return tuple(found)


def _fixed(choice: Choice, chosen: Chosen) -> Choice:
    """The activation with the values of one of its trials, called as that trial is."""
    label = choice.label if chosen.label == choice.title else chosen.label
    return replace(choice, label=label, values=chosen.values, rate=chosen.rate)


def _slug(only: Sequence[str]) -> str:
    """The labels as the end of a folder's name; empty where none was asked for, or nothing of them fits a name."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", " ".join(only)).strip("-.")[:_MOST_ASKED]
    return f"-{words}" if words else ""


def _single(choice: Choice) -> Choice:
    values = {name: one[0] if isinstance(one, tuple) else one for name, one in choice.values.items()}
    return replace(choice, values=values, rate=choice.rate[0] if isinstance(choice.rate, tuple) else choice.rate)


def _tuning(tuning: Tuning | None) -> Tuning | None:
    if tuning is None:
        return None
    return replace(tuning, learning_rate=tuning.learning_rate[:2], weight_decay=tuning.weight_decay[:2], seeds=1)
