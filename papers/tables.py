"""The papers' tables beside ours: one for each study, from its records and the numbers that its recipe quotes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from softknee.lab.studies.recipe import Recipe
from softknee.lab.studies.trials import Outcome
from softknee.lab.table import COLONS, Table
from softknee.measure.estimate import t_quantile
from softknee.measure.significance import may_be_best

from .commands import command_of
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
from .runs import Runs, Study
from .smelu.findings import APART, IN_ORDER, SAME_START
from .statement import mean, wins
from .text import cell

# What a measure is called, what it is multiplied by to be shown, and how.
_SHOWN = {
    "mse": ("mean squared error", 1.0, "{:.1e}"),
    "r2": ("R², %", 100.0, "{:.1f}"),
    "psnr": ("PSNR, dB", 1.0, "{:.2f}"),
    "ssim": ("SSIM", 1.0, "{:.4f}"),
    "accuracy": ("accuracy, %", 100.0, "{:.2f}"),
    "log_loss": ("log loss, nats", 1.0, "{:.4f}"),
    "auc": ("AUC, %", 100.0, "{:.2f}"),
}
_SMALLER = ("mse", "log_loss")  # is better
# The differences of a set of models that papers print, which have their interval from the jackknife.
_DIFFERENCES = {
    "delta_1": ("prediction difference Δ₁", "{:.4f}"),
    "binary": ("Δ₁ relative to the positive label", "{:.3f}"),
}
_ONLINE = ("log_loss", "auc")  # what predictions before training are judged by
# Those that the SmeLU paper's figures 13 to 15 show beside that of its figure 4: name, factor, form.
_FURTHER = {
    "delta_2": ("Δ₂", 1.0, "{:.5f}"),
    "true_label": ("Δ₁ of the true label", 1.0, "{:.5f}"),
    "hamming": ("labels that differ, %", 100.0, "{:.3f}"),
}
Below = Callable[[Study], str]
"""Makes what stands below the table of one study."""


def study_tables(
    runs: Runs, stem: str, figures: Sequence[tuple[str, str, str]] = (), below: Mapping[str, Below] | None = None
) -> Iterator[str]:
    """A section for every study of one paper, in the order of their names.

    figures: (study, file, caption).
    below:   by study: what else the paper's table or figure has, which stands below ours.
    """
    for name in runs.names:
        if not name.startswith(f"{stem}-") or name.endswith(".json"):
            continue
        study, recipe = runs.study(name), runs.recipe(name)
        paper = recipe.paper
        if paper is None:
            continue
        yield f"\n### {paper.source}: {recipe.title}\n\n"
        yield from _table(study, recipe)
        seeds = len(next(iter(study.outcomes.values())).diverged)
        if name in runs.unfinished:
            done, whole = runs.unfinished[name]
            yield f"\nUnfinished: {done} of {whole} activations were run so far.\n"
        scale = ", of logarithms for mean squared errors" if "mse" in _measures(recipe) else ""
        yield (
            f"\n{seeds} seeds on {', '.join(study.machines)}: mean and 95 % interval{scale}. "
            f"{' '.join(paper.note.split())} Again: `{command_of(name)}`. [Records](records/{name}/trials).\n"
        )
        yield _shared(runs, name)
        if name in (below or {}):
            yield "\n" + (below or {})[name](study)
        for of, file, caption in figures:
            if of == name:
                yield f"\n![{caption}](records/{file})\n"


def _shared(runs: Runs, name: str) -> str:
    """Which rows are runs of another study, too, where that has the same network, data and settings."""
    lines = []
    for other in runs.names:
        if other == name or other.endswith(".json"):
            continue
        both = [label for label, key in runs.keys(name).items() if key in runs.keys(other).values()]
        if both:
            every = len(both) == len(runs.keys(name))
            rows = "These runs" if every else f"The runs of {', '.join(both)}"
            lines.append(f"\n{rows} are those of `{other}`, too, and count once.\n")
    return "".join(lines)


def cost_table(runs: Runs, name: str, quoted: Mapping[str, tuple[float, float]], heading: str) -> Iterator[str]:
    """A benchmark of a model beside a paper's times: {name: (inference, training)}, both as multiples of `before`."""
    if not runs.has(name):
        return
    record = runs.benchmark(name)
    first = record.rows[0]
    yield f"\n### {heading}\n\n"
    rows = []
    for row in record.rows:
        label = "gelu" if row is first else _short_name(row["variant"])
        paper = ["" if math.isnan(one) else f"{one:.2f}" for one in quoted.get(label, (math.nan, math.nan))]
        ours = [f"{row[what].value / first[what].value:.3f}" for what in ("forward", "step")]
        memory = f"{row['peak'] / first['peak']:.3f}"
        rows.append([cell(label), paper[0], ours[0], paper[1], ours[1], memory])
    head = ["activation", "inference: paper", "here", "training: paper", "here", "peak memory here"]
    yield _markdown(head, rows)
    shape = "x".join(str(one) for one in next(iter(record.settings["inputs"].values())))
    yield (
        f"\nMultiples of GELU's, {record.hardware.gpu}, {shape} in {record.settings['dtype']}, eager mode, medians of "
        f"turns in one run; activation parameters are trained. The paper's are of A6000s and of its own code. "
        "DiTAC was timed with a fused kernel, which is no longer here: in plain operations it takes longer. Again: "
        f"`{command_of(name)}`. [Record](records/{name}).\n"
    )


def _short_name(variant: str) -> str:
    """Of "squaf(k=16, mode=sampled)" the name; SQUAF-P and SQUAF-S are modes of SQUAF."""
    mode = {"mode=sampled": "-p", "mode=step": "-s"}
    return variant.partition("(")[0] + next((after for word, after in mode.items() if word in variant), "")


def _measures(recipe: Recipe) -> list[str]:
    """The scores that the table has: those that the paper prints, or else what the study is about."""
    named = {one for of in recipe.paper.values.values() for one in of} if recipe.paper else set()
    online = recipe.training.progressive is not None
    return [one for one in _SHOWN if one in named] or list(_ONLINE if online else ["accuracy"])


def _table(study: Study, recipe: Recipe) -> Iterator[str]:
    assert recipe.paper is not None
    values = recipe.paper.values
    online = recipe.training.progressive is not None
    named = {one for of in values.values() for one in of}
    measures = _measures(recipe)
    printed = [one for one in _DIFFERENCES if one in named]
    counted = "parameters" in named
    heads = ["activation", *(("parameters: paper", "here") if counted else ("parameters",))]
    for measure in measures:
        heads += [f"{_SHOWN[measure][0]}: paper", "here"] if measure in named else [_SHOWN[measure][0]]
    for measure in printed:
        heads += [f"{_DIFFERENCES[measure][0]}: paper", "here"]
    # What a figure shows without numbers, and what a table has beside the scores.
    differ = not values and any(one.difference for one in study.outcomes.values())
    spread, told = ("binary", _DIFFERENCES["binary"][0]) if online else ("delta_1", "prediction difference")
    swapped = any(one.replacement for one in study.outcomes.values())
    further = [one for one in _FURTHER if differ and not online and _all_have(study, one)]
    # The axes of the SmeLU paper's figure 3: losses in percent of ReLU's.
    basis = "relu" if online and "relu" in study.outcomes else ""
    heads += [f"log loss against {basis}'s, %", f"ranking loss (1 - AUC) against {basis}'s, %"] if basis else []
    heads += ([told] if differ else []) + [_FURTHER[one][0] for one in further]
    fitted = "accuracy" in measures and all(one.train.get("accuracy") for one in study.outcomes.values())
    heads += ["on the training examples, %"] if fitted else []
    heads += ["accuracy, %, when replaced"] if swapped else []
    rows = []
    ours = {measure: _marked(study, measure) for measure in measures}
    for label, outcome in study.outcomes.items():
        quoted = values.get(label, {}).get("parameters")
        row = [cell(label), *(["" if quoted is None else f"{quoted:,.0f}"] if counted else [])]
        row.append("" if outcome.trained is None else f"{outcome.trained:,}")
        for measure in measures:
            form = _SHOWN[measure][2]
            row += [_as_printed(values, label, measure, form)] if measure in named else []
            row.append(ours[measure][label])
        for measure in printed:
            form = _DIFFERENCES[measure][1]
            row += [_as_printed(values, label, measure, form), _difference(outcome, measure, form)]
        row += [_change(study, label, basis, one) for one in _ONLINE] if basis else []
        row += [_difference(outcome, spread, "{:.5f}")] if differ else []
        row += [_difference(outcome, one, _FURTHER[one][2], scale=_FURTHER[one][1]) for one in further]
        row += [_mean_of(outcome.train["accuracy"])] if fitted else []
        row += [_replaced(outcome)] if swapped else []
        rows.append(row)
    yield _markdown(heads, rows)


def _as_printed(values: Mapping[str, Mapping[str, float]], label: str, measure: str, form: str) -> str:
    """What a paper has, with as many digits as the column has there; errors that span decades as ours."""
    if measure not in values.get(label, {}):
        return ""
    if form.endswith("e}"):
        return form.format(values[label][measure])
    places = max(len(f"{of[measure]:.6f}".rstrip("0").partition(".")[2]) for of in values.values() if measure in of)
    return f"{values[label][measure]:.{places}f}"


def _change(study: Study, label: str, basis: str, measure: str) -> str:
    """By how many percent the mean loss is above that of the basis; the ranking loss is 1 - AUC."""
    mine, theirs = (study.mean(one, measure) for one in (label, basis))
    return f"{100 * ((1 - mine) / (1 - theirs) - 1 if measure == 'auc' else mine / theirs - 1):+.2f}"


def _all_have(study: Study, measure: str) -> bool:
    return all(measure in one.difference for one in study.outcomes.values())


def _difference(outcome: Outcome, measure: str, form: str, *, scale: float = 1.0) -> str:
    """A prediction difference with its interval."""
    found = outcome.difference.get(measure)
    if found is None:
        return ""
    low, high = found.get("interval") or (None, None)
    ends = "" if low is None or high is None else f" [{form.format(scale * low)}, {form.format(scale * high)}]"
    return form.format(scale * found["value"]) + ends


def _mean_of(accuracies: Sequence[float | None]) -> str:
    """The mean over the seeds that came to their end, in percent."""
    there = [one for one in accuracies if one is not None]
    return f"{100 * statistics.fmean(there):.2f}" if there else ""


def _replaced(outcome: Outcome) -> str:
    found = outcome.replacement
    return "" if found is None else f"{found['limit']}: {_ours(found['test']['accuracy'], 'accuracy')}"


def _marked(study: Study, measure: str) -> Mapping[str, str]:
    """Of each activation its mean and interval: bold the best, with ° what these seeds do not show to be worse."""
    larger, logarithmic = measure not in _SMALLER, measure == "mse"
    marked = {label: _ours(study.values(label, measure), measure) for label in study.outcomes}
    means = {label: study.mean(label, measure, logarithmic=logarithmic) for label in study.outcomes}
    finite = {label: mean for label, mean in means.items() if not math.isnan(mean)}
    if not finite:
        return marked
    best = (max if larger else min)(finite, key=finite.__getitem__)
    others = [label for label in finite if label != best]
    tested = [one.p for one in wins(study, best, others, measure, larger=larger, logarithmic=logarithmic)]
    for label, p, may in zip(others, tested, may_be_best(tested), strict=True):
        marked[label] += "°" if may and p is not None else ""
    return marked | {best: f"**{marked[best]}**"}


def _ours(values: Sequence[float | None], measure: str) -> str:
    """The mean and its interval, with the number of seeds that diverged."""
    _, scale, form = _SHOWN[measure]
    found = [one for one in values if one is not None]
    gone = len(values) - len(found)
    after = f" ({gone} diverged)" if gone else ""
    if not found:
        return "diverged"
    logarithmic = measure == "mse"
    numbers = [math.log(max(one, 1e-300)) for one in found] if logarithmic else found
    mean = statistics.fmean(numbers)
    reach = 0.0
    if len(numbers) > 1:
        reach = t_quantile(len(numbers) - 1, 0.95) * statistics.stdev(numbers) / math.sqrt(len(numbers))
    back = math.exp if logarithmic else float
    # An interval does not reach beyond what the score can be.
    most = math.inf if measure in (*_SMALLER, "psnr") else 1.0
    ends = (back(mean - reach), back(mean), min(back(mean + reach), most))
    low, middle, high = (form.format(scale * one) for one in ends)
    return f"{middle} [{low}, {high}]{after}" if len(numbers) > 1 else f"{middle}{after}"


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
    rows = []
    for label, paper in TABLE_I[study.name].items():
        if label not in study.outcomes:
            continue
        ours = [_told(100 * best_validation(study, label)), _told(mean(study.outcomes[label].selected), 0)]
        if label in LEARNED:
            learned = mean(one for seed in profiles_of(study, label) for one in seed)
            ours += [_told(learned), _told(drift_of(study, label))]
        quoted = [f"{one:g}" for one in paper[:2]] + [f"{one:.2f}" for one in paper[2:]]
        both = [one for pair in zip(quoted, ours, strict=True) for one in pair]
        rows.append([cell(label), *both, *[""] * (2 * len(heads) - 2 - len(both))])
    swapped = ", ".join(f"{label} {a:g} and {b:g} %" for label, (a, b) in TABLE_II[study.name].items())
    return _markdown(_both(heads), rows) + (
        "\nThe other columns of table I: means over the seeds; λ is that of the epoch with the best validation, in the "
        "mean over the layers, its drift the sum of its steps from epoch to epoch over the whole training. Table II of "
        f"the paper, before and after the replacement by ReLU: {swapped}.\n"
    )


def grid_table(study: Study) -> str:
    """Figure 1 of the λ-GELU paper: the drift of λ in each cell, and what the best validation accuracy gains."""
    gelu = best_validation(study, "gelu")
    rows = []
    for t in TEMPERATURES:
        row = [f"{t:g}"]
        for c in RATES:
            labels = cell_of(t, c)
            if any(label not in study.outcomes for label in labels):
                row.append("")
                continue
            gained = mean(best_validation(study, label) for label in labels) - gelu
            row.append(f"{mean(drift_of(study, label) for label in labels):.2f} ({100 * gained:+.2f})")
        rows.append(row)
    head = ["temperature t", *(f"c = {c}" for c in RATES)]
    return _markdown(head, rows, align="r" * len(head)) + (
        "\nWhat the paper's figure has in its cells: the drift of λ (its colour), and in brackets by how many points "
        "the best validation accuracy is above GELU's (its text); means over three starts and three seeds.\n"
    )


def spread_table(study: Study) -> str:
    """The standard deviations of the AUC in tables 1 to 3 of the SmeLU paper beside ours."""
    rows = []
    for label, paper in AUC_SPREADS[study.name].items():
        if label in study.outcomes:
            found = [one for one in study.values(label, "auc") if one is not None]
            ours = f"{100 * statistics.stdev(found):.2f}" if len(found) > 1 else ""
            rows.append([cell(label), f"{100 * paper:.2f}", ours])
    return _markdown(_both(["activation", "standard deviation of the AUC, points"]), rows) + (
        "\nOver the models. The paper also prints standard deviations of its prediction differences, and does not say "
        "over what; ours have the interval of a jackknife over the models.\n"
    )


def _told(number: float, places: int = 2) -> str:
    return "" if math.isnan(number) else f"{number:.{places}f}"


def _both(heads: list[str]) -> list[str]:
    """The first column, and each other twice: the paper's and ours."""
    return [heads[0], *(text for head in heads[1:] for text in (f"{head}: paper", "here"))]


def _markdown(head: list[str], rows: list[list[str]], align: str = "") -> str:
    return Table(head=head, rows=rows, align=align, markup=True).markdown(COLONS)


BELOW: Mapping[str, Below] = {
    **dict.fromkeys(TABLE_I, hardness_table),
    GRID: grid_table,
    **dict.fromkeys(AUC_SPREADS, spread_table),
}
"""By study: what stands below its table."""
