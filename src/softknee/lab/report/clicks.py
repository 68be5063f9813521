"""What is particular to reports on clicks: which measures come first, and losses in percent of the baseline's.

One row in four or five is a click, so that the accuracy is that of a model that never expects one. The SmeLU paper
judges such models by AUC (its tables 1 to 3); and online, where each example is predicted before it is trained on, by
the change of the logarithmic and of the ranking loss (1 - AUC) against ReLU, beside the prediction difference relative
to the predicted share of clicks (its figure 3).
"""

from __future__ import annotations

from ..studies.recipe import Recipe
from .numbers import DASH, fixed
from .parts import Row, Summary
from .tables import Cell, Table, name_cell

_CLICKS = "criteo"
_RELATIVE = "binary"


def first_measures(recipe: Recipe) -> tuple[str, ...]:
    """The names of the metric and of the prediction difference that a report is about, where they are not the usual."""
    if recipe.training.progressive is not None:
        return "log_loss", _RELATIVE
    return ("auc", "delta_1") if recipe.data.set == _CLICKS else ()


def progressive_note(recipe: Recipe) -> tuple[str, ...]:
    """What the scores of a progressive study are of."""
    share = recipe.training.progressive
    if share is None:
        return ()
    which = "all" if share == 1 else f"the last {100 * share:g} % of the"
    return (
        f"Progressive validation: the scores and differences are of {which} training examples, each predicted before "
        "it was trained on, in a single pass; no test example was read.",
    )


def change(value: float, baseline: float) -> float:
    """By how many percent a loss is above that of the baseline.

    >>> change(0.55, 0.5), change(0.45, 0.5)
    (10.0..., -9.99...)
    """
    return 100 * (value / baseline - 1)


def relative_losses(summary: Summary) -> Table | None:
    """The losses of a progressive study in percent of the baseline's, as the axes of the paper's figure 3."""
    basis = summary.baseline
    if summary.recipe.training.progressive is None or basis is None or basis.diverged:
        return None
    rows = tuple(
        (
            name_cell(row.label, row.key),
            *(_change(row, basis, name) for name in ("log_loss", "auc")),
            _relative(row),
        )
        for row in summary.rows
    )
    return Table(
        name="relative-losses",
        caption=f"Progressive losses against those of {basis.label}, and the prediction difference relative to the "
        "predicted share of clicks: the axes of figure 3 of the SmeLU paper. The ranking loss is 1 - AUC. Less is "
        "better.",
        head=(
            "activation",
            f"log loss against {basis.label}, %",
            f"ranking loss against {basis.label}, %",
            "relative Δ₁, %",
        ),
        rows=rows,
    )


def _loss(row: Row, name: str) -> float | None:
    found = row.scores.get(name)
    return None if found is None else 1 - found.value if name == "auc" else found.value


def _change(row: Row, basis: Row, name: str) -> Cell:
    mine, theirs = _loss(row, name), _loss(basis, name)
    if mine is None or not theirs:
        return Cell(text=DASH, title="not measured")
    return Cell(text=fixed(change(mine, theirs), 2, signed=True), key=row.key)


def _relative(row: Row) -> Cell:
    found = row.differences.get(_RELATIVE)
    if found is None:
        return Cell(text=DASH, title="not measured")
    return Cell(text=fixed(100 * found.value, 2), key=row.key)
