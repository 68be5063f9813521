"""A study made tiny: the whole way from the files to the report in seconds, to see that it runs.

Its numbers mean nothing.

What is small is part of the recipe (`data.limit`, two seeds, one epoch), so that its trials have keys of their own; and
its name is another, so that it has a folder of its own. A smoke run is never taken for the study.

>>> from softknee.lab.studies.reading import find_recipe
>>> small = smoke(find_recipe("quickstart"))
>>> small.name, small.seeds.count, small.training.epochs, [one.title for one in small.activations]
('quickstart-smoke', 2, 1, ['relu', 'lambda_gelu'])
"""

from __future__ import annotations

from dataclasses import replace

from .checking import check, combinations
from .recipe import Choice, Recipe, Tuning

BATCHES = 2  # of an epoch
_MOST_BATCH = 4
_ENDING = "-smoke"
SAID = (
    "Smoke run: two small batches, one epoch, two seeds and at most two of the activations, on the CPU, to see that "
    "everything runs. Its numbers mean nothing."
)


def smoke(recipe: Recipe) -> Recipe:
    """The recipe with two batches an epoch, one epoch, two seeds, at most two activations, no costs, on the CPU.

    Data, model, optimiser and engine stay as they are. The second activation is one that does most: hardened before
    learned before fixed. The paper's numbers are left out: nothing here is to be compared with them.
    """
    batch = min(recipe.training.batch, _MOST_BATCH)
    few = _two(recipe)
    small = replace(
        recipe,
        name=recipe.name[: 64 - len(_ENDING)] + _ENDING,
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


def _single(choice: Choice) -> Choice:
    values = {name: one[0] if isinstance(one, tuple) else one for name, one in choice.values.items()}
    return replace(choice, values=values, rate=choice.rate[0] if isinstance(choice.rate, tuple) else choice.rate)


def _tuning(tuning: Tuning | None) -> Tuning | None:
    if tuning is None:
        return None
    return replace(tuning, learning_rate=tuning.learning_rate[:2], weight_decay=tuning.weight_decay[:2], seeds=1)
