"""What the papers' tables and figures have beside scores, as tables that stand below ours.

Table I of the λ-GELU paper has the best validation score, its epoch, the mean of λ and its drift; its figure 1 the
drift and the score over temperature and rate. Tables 1 to 3 of the SmeLU paper have the standard deviation of the AUC.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from .compared import mean
from .lambda_gelu.findings import (
    ADULT,
    CIFAR_10,
    CIFAR_100,
    FASHION,
    GRID,
    HARDENED,
    LEARNED,
    RATES,
    TEMPERATURES,
    TINY_IMAGENET,
    best_validation,
    cell_of,
    drift_of,
    profiles_of,
)
from .runs import Study
from .smelu.findings import APART, IN_ORDER, SAME_START
from .tables import Below
from .text import cell

# Table I of the λ-GELU paper: best validation accuracy in percent, its epoch, the mean of λ, its drift.
_Row = tuple[int, int] | tuple[int, int, float, float]
_UNIFORM, _INCREASING, _DECREASING = LEARNED
TABLE_I: Mapping[str, Mapping[str, _Row]] = {
    ADULT: {
        "gelu": (85, 41), "relu": (86, 40),
        _UNIFORM: (86, 46, 2.45, 3.23), _INCREASING: (86, 46, 8.67, 11.63), _DECREASING: (87, 32, 6.66, 8.10),
    },
    FASHION: {
        "gelu": (86, 49), "relu": (86, 48),
        _UNIFORM: (87, 48, 3.09, 6.48), _INCREASING: (87, 50, 3.41, 6.85), _DECREASING: (87, 49, 3.40, 6.34),
    },
    CIFAR_10: {
        "gelu": (95, 72), "relu": (95, 70),
        _UNIFORM: (95, 75, 1.75, 3.22), _INCREASING: (95, 70, 1.68, 3.51), _DECREASING: (95, 75, 2.43, 4.55),
    },
    CIFAR_100: {
        "gelu": (74, 74), "relu": (73, 72),
        _UNIFORM: (74, 71, 1.89, 3.39), _INCREASING: (74, 69, 1.65, 3.18), _DECREASING: (74, 64, 2.64, 4.23),
    },
    TINY_IMAGENET: {
        "gelu": (72, 90), "relu": (71, 85),
        _UNIFORM: (72, 90, 1.19, 1.36), _INCREASING: (72, 87, 1.21, 1.43), _DECREASING: (72, 90, 1.21, 1.39),
    },
}  # fmt: skip

# Table II: accuracy in percent before the replacement by ReLU and after it.
TABLE_II: Mapping[str, Mapping[str, tuple[float, float]]] = {
    ADULT: {"gelu": (85, 80), HARDENED: (81, 81)},
    FASHION: {"gelu": (86, 83), HARDENED: (86, 85)},
    CIFAR_10: {"gelu": (95, 92), HARDENED: (95, 95)},
    CIFAR_100: {"gelu": (74, 67), HARDENED: (74, 72)},
    TINY_IMAGENET: {"gelu": (71, 68), HARDENED: (71, 72)},
}

# The standard deviation of the AUC over the models, in the order of the recipes' rows.
_AUC_SPREADS = {
    APART: (0.0144, 0.0116, 0.0095, 0.0068, 0.0012, 0.0012, 0.0012, 0.0208, 0.0197, 0.0211, 0.0208, 0.0170),
    IN_ORDER: (0.0068, 0.0008, 0.0007, 0.0011, 0.0011, 0.0011, 0.0007, 0.0203, 0.0216, 0.0215, 0.0180, 0.0180),
    SAME_START: (0.0023, 0.0004, 0.0004, 0.0003, 0.0005, 0.0004, 0.0003, 0.0210, 0.0207, 0.0204, 0.0204, 0.0181),
}
_CLICK_ROWS = (
    "relu",
    *(f"smelu beta={beta:g}" for beta in (1, 1.5, 2, 2.5, 3, 4)),
    *(f"swish beta={beta:g}" for beta in (0.25, 0.5, 1, 2, 4)),
)
AUC_SPREADS: Mapping[str, Mapping[str, float]] = {
    name: dict(zip(_CLICK_ROWS, spreads, strict=True)) for name, spreads in _AUC_SPREADS.items()
}


def hardness_table(study: Study) -> str:
    """Table I of the λ-GELU paper beside ours: its own score, the epoch of it, and how hard the gates became."""
    heads = ["activation", "best validation accuracy, %", "in epoch", "mean λ", "drift of λ"]
    lines = [_head(heads)]
    for label, paper in TABLE_I[study.name].items():
        if label not in study.outcomes:
            continue
        ours = [_told(100 * best_validation(study, label)), _told(mean(study.outcomes[label].selected), 0)]
        if label in LEARNED:
            learned = mean(one for seed in profiles_of(study, label) for one in seed)
            ours += [_told(learned), _told(drift_of(study, label))]
        quoted = [f"{one:g}" for one in paper[:2]] + [f"{one:.2f}" for one in paper[2:]]
        both = [one for pair in zip(quoted, ours, strict=True) for one in pair]
        lines.append(_line([cell(label), *both, *[""] * (2 * len(heads) - 2 - len(both))]))
    swapped = ", ".join(f"{label} {a:g} and {b:g} %" for label, (a, b) in TABLE_II[study.name].items())
    return "".join(lines) + (
        "\nThe other columns of table I: means over the seeds; λ is that of the epoch with the best validation, in the "
        "mean over the layers, its drift the sum of its steps from epoch to epoch over the whole training. Table II of "
        f"the paper, before and after the replacement by ReLU: {swapped}.\n"
    )


def grid_table(study: Study) -> str:
    """Figure 1 of the λ-GELU paper: the drift of λ in each cell, and what the best validation accuracy gains."""
    gelu = best_validation(study, "gelu")
    lines = [_line(["temperature t", *(f"c = {c}" for c in RATES)]), f"|--:|{'--:|' * len(RATES)}\n"]
    for t in TEMPERATURES:
        row = [f"{t:g}"]
        for c in RATES:
            labels = cell_of(t, c)
            if any(label not in study.outcomes for label in labels):
                row.append("")
                continue
            gained = mean(best_validation(study, label) for label in labels) - gelu
            row.append(f"{mean(drift_of(study, label) for label in labels):.2f} ({100 * gained:+.2f})")
        lines.append(_line(row))
    return "".join(lines) + (
        "\nWhat the paper's figure has in its cells: the drift of λ (its colour), and in brackets by how many points "
        "the best validation accuracy is above GELU's (its text); means over three starts and three seeds.\n"
    )


def spread_table(study: Study) -> str:
    """The standard deviations of the AUC in tables 1 to 3 of the SmeLU paper beside ours."""
    lines = [_head(["activation", "standard deviation of the AUC, points"])]
    for label, paper in AUC_SPREADS[study.name].items():
        if label in study.outcomes:
            found = [one for one in study.values(label, "auc") if one is not None]
            ours = f"{100 * statistics.stdev(found):.2f}" if len(found) > 1 else ""
            lines.append(_line([cell(label), f"{100 * paper:.2f}", ours]))
    return "".join(lines) + (
        "\nOver the models. The paper also prints standard deviations of its prediction differences, and does not say "
        "over what; ours have the interval of a jackknife over the models.\n"
    )


def _told(number: float, places: int = 2) -> str:
    return "" if math.isnan(number) else f"{number:.{places}f}"


def _head(heads: list[str]) -> str:
    """The first column, and each other twice: the paper's and ours."""
    both = [one for head in heads[1:] for one in (f"{head}: paper", "here")]
    return _line([heads[0], *both]) + f"|:--|{'--:|' * len(both)}\n"


def _line(row: list[str]) -> str:
    return f"| {' | '.join(row)} |\n"


BELOW: Mapping[str, Below] = {
    **dict.fromkeys(TABLE_I, hardness_table),
    GRID: grid_table,
    **dict.fromkeys(AUC_SPREADS, spread_table),
}
"""By study: what stands below its table."""
