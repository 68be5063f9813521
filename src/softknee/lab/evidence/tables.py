"""The papers' tables beside ours: one for each study, from its records and the numbers that its recipe quotes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from ...measure.estimate import t_quantile
from ..ledger.text import cell
from ..studies.outcome import Outcome
from ..studies.recipe import Recipe
from .commands import command_of
from .runs import Runs, Study

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


def study_tables(runs: Runs, stem: str, figures: Sequence[tuple[str, str, str]] = ()) -> Iterator[str]:
    """A section for every study of one paper, in the order of their names; `figures` are (study, file, caption)."""
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
            f"{' '.join(paper.note.split())} Again: `{command_of(name)}`. [Records](evidence/{name}/trials).\n"
        )
        for of, file, caption in figures:
            if of == name:
                yield f"\n![{caption}](evidence/{file})\n"


def cost_table(runs: Runs, name: str, quoted: Mapping[str, tuple[float, float]], heading: str) -> Iterator[str]:
    """A benchmark of a model beside a paper's times: {name: (inference, training)}, both as multiples of `before`."""
    if not runs.has(name):
        return
    record = runs.benchmark(name)
    first = record.rows[0]
    yield f"\n### {heading}\n\n"
    yield "| activation | inference: paper | here | training: paper | here | peak memory here |\n"
    yield "|:--|--:|--:|--:|--:|--:|\n"
    for row in record.rows:
        label = "gelu" if row is first else _short_name(row["variant"])
        paper = ["" if math.isnan(one) else f"{one:.2f}" for one in quoted.get(label, (math.nan, math.nan))]
        ours = [f"{row[what].value / first[what].value:.3f}" for what in ("forward", "step")]
        memory = f"{row['peak'] / first['peak']:.3f}"
        yield f"| {cell(label)} | {paper[0]} | {ours[0]} | {paper[1]} | {ours[1]} | {memory} |\n"
    shape = "x".join(str(one) for one in next(iter(record.settings["inputs"].values())))
    yield (
        f"\nMultiples of GELU's, {record.hardware.gpu}, {shape} in {record.settings['dtype']}, eager mode, medians of "
        f"turns in one run; activation parameters are trained. The paper's are of A6000s and of its own code. "
        f"[Record](evidence/{name}).\n"
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
    heads = ["activation", "parameters"]
    for measure in measures:
        heads += [f"{_SHOWN[measure][0]}: paper", "here"] if measure in named else [_SHOWN[measure][0]]
    for measure in printed:
        heads += [f"{_DIFFERENCES[measure][0]}: paper", "here"]
    # What a figure shows without numbers, and what a table has beside the scores.
    differ = not values and any(one.difference for one in study.outcomes.values())
    spread, told = ("binary", _DIFFERENCES["binary"][0]) if online else ("delta_1", "prediction difference")
    swapped = any(one.replacement for one in study.outcomes.values())
    heads += ([told] if differ else []) + (["accuracy, %, when replaced"] if swapped else [])
    yield f"| {' | '.join(heads)} |\n|:--|{'--:|' * (len(heads) - 1)}\n"
    best = {measure: _best(study, measure) for measure in measures}
    for label, outcome in study.outcomes.items():
        row = [cell(label), "" if outcome.trained is None else f"{outcome.trained:,}"]
        for measure in measures:
            _, _, form = _SHOWN[measure]
            quoted = values.get(label, {}).get(measure)
            ours = _ours(study.values(label, measure), measure)
            row += ["" if quoted is None else form.format(quoted)] if measure in named else []
            row.append(f"**{ours}**" if best[measure] == label else ours)
        for measure in printed:
            quoted = values.get(label, {}).get(measure)
            row.append("" if quoted is None else _DIFFERENCES[measure][1].format(quoted))
            row.append(_difference(outcome, measure, _DIFFERENCES[measure][1]))
        row += [_difference(outcome, spread, "{:.5f}")] if differ else []
        row += [_replaced(outcome)] if swapped else []
        yield f"| {' | '.join(row)} |\n"


def _difference(outcome: Outcome, measure: str, form: str) -> str:
    """A prediction difference with its interval."""
    found = outcome.difference.get(measure)
    if found is None:
        return ""
    low, high = found.get("interval") or (None, None)
    return form.format(found["value"]) + ("" if low is None else f" [{form.format(low)}, {form.format(high)}]")


def _replaced(outcome: Outcome) -> str:
    found = outcome.replacement
    return "" if found is None else f"{found['limit']}: {_ours(found['test']['accuracy'], 'accuracy')}"


def _best(study: Study, measure: str) -> str:
    larger = measure not in _SMALLER
    means = {label: study.mean(label, measure, logarithmic=measure == "mse") for label in study.outcomes}
    finite = {label: mean for label, mean in means.items() if not math.isnan(mean)}
    return (max if larger else min)(finite, key=finite.__getitem__, default="")


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
