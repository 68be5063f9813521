"""The papers' tables and ours, the figures below them, and the command that makes each study or record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from softknee.files import write_whole
from softknee.lab.report import summarise
from softknee.lab.report.drawing import FEWEST_DRAWN, pdf_figures
from softknee.lab.studies.recipe import Language, Preference, Recipe
from softknee.lab.studies.trials import Outcome
from softknee.lab.table import COLONS, Table
from softknee.measure.estimate import t_quantile
from softknee.measure.significance import may_be_best

from .lambda_gelu import findings as hardness
from .lambda_gelu.findings import LEARNED, TABLE_I, TABLE_II
from .lambda_gelu.findings import RECIPES as LANGUAGE_RECIPES
from .runs import (
    Runs,
    Study,
    command_of_recipe,
    command_of_row,
    commands_of_rows,
    folded,
    labels_of_recipe,
    recipe_named,
)
from .smelu.findings import AUC_SPREADS
from .squaf.findings import CODED, MODES, TIMES
from .statement import MEASURES, SMALLER, mean, wins
from .text import cell

# -- commands ---------------------------------------------------------------------------------------------

_FOLDER = "papers/squaf/records"
_MODEL = "softknee bench model timm:vit_tiny_patch16_224 --replacing gelu --device cuda --repeats 9 --seconds 1"
_SQUAF = "squaf(k=16, q=0.25, z=gelu, learn=all"
_MODES = f"--swap '{_SQUAF})' --swap '{_SQUAF}, mode=sampled)' --swap '{_SQUAF}, mode=step)' --batch 256"
# Records that a command of its own makes; all others are studies by recipe.
COMMANDS = {
    **{name: command_of_recipe(recipe) for name, recipe in LANGUAGE_RECIPES.items()},
    TIMES: f"{_MODEL} --swap relu --swap lrelu --swap 'prelu(learn=all)' --swap 'swish(learn=all)' "
    f"--swap 'crrelu(learn=all)' --swap polyrelu --swap polynorm --swap ditac {_MODES} --dtype f32 "
    f"--json {_FOLDER}/{TIMES}",
    MODES: f"{_MODEL} --swap relu {_MODES} --dtype bf16 --json {_FOLDER}/{MODES}",
}


def command_of(name: str) -> str:
    """What makes the records of this name.

    >>> command_of("squaf-table-12")
    'softknee study run papers/squaf/recipes/table-12.yaml'
    """
    return COMMANDS.get(name) or command_of_recipe(name)


def need_of(name: str) -> str:
    """What the study of this name takes; empty for a record that a command of its own makes.

    >>> need_of("squaf-table-4-vit"), need_of("squaf-table-5")
    ('takes ImageNet-1K', 'takes the weights of gpt2')
    >>> need_of("squaf-table-7-wrn")
    '11 rows of 5 seeds with 240 epochs'
    """
    if name in COMMANDS:
        return ""
    recipe = recipe_named(name)
    if recipe.data.set == "imagenet":
        return "takes ImageNet-1K"
    kind, _, model = recipe.model.build.partition(":")
    if kind == "pretrained":
        return f"takes the weights of {model}"
    return f"{len(labels_of_recipe(recipe))} rows of {recipe.seeds.count} seeds with {recipe.length} epochs"


def command_to_look(name: str) -> str:
    """The command of a record without the file that it writes."""
    return command_of(name).partition(" --json")[0]


# -- the table of a study ------------------------------------------------------------------------------------

# The differences of a set of models that papers print, which have their interval from the jackknife.
_DIFFERENCES = {
    "delta_1": ("prediction difference Δ₁", "{:.4f}"),
    "binary": ("Δ₁ relative to the positive label", "{:.3f}"),
}
_ONLINE = ("log_loss", "auc")  # what predictions before training are judged by
# Those that the SmeLU paper's figures 13 to 15 show beside that of its figure 4: name, factor, form.
_OTHER_DIFFERENCES = {
    "delta_2": ("Δ₂", 1.0, "{:.5f}"),
    "true_label": ("Δ₁ of the true label", 1.0, "{:.5f}"),
    "hamming": ("labels that differ, %", 100.0, "{:.3f}"),
}
_TITLES = {measure: words[0] for table in (MEASURES, _DIFFERENCES) for measure, words in table.items()}
Below = Callable[[Study], str]
"""Makes what stands below the table of one study."""


def study_tables(
    runs: Runs,
    stem: str,
    figures: Sequence[tuple[str, str, str]] = (),
    below: Mapping[str, Below] | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A section for every study of one paper, in the order of their names.

    figures:   (study, file, caption).
    below:     by study: what else the paper's table or figure has, which stands below ours.
    stand_ins: by study: in which way it stands in for the paper's setting.
    """
    for name in runs.names:
        if not name.startswith(f"{stem}-") or name.endswith(".json"):
            continue
        study, recipe = runs.study(name), runs.recipe(name)
        paper = recipe.paper
        if paper is None or isinstance(recipe.task, Preference):  # these have tables of their own
            continue
        yield f"\n### {paper.source}: {recipe.title}\n\n"
        yield _table(study, recipe)
        yield folded(command_of_row(name, label) for label in labels_of_recipe(recipe))
        counts = sorted({len(outcome.diverged) for outcome in study.outcomes.values()})
        seeds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        if name in runs.unfinished:
            done, whole = runs.unfinished[name]
            yield f"\nUnfinished: {done} of {whole} activations were run so far.\n"
        scale = ", of logarithms for mean squared errors" if "mse" in _measures(recipe) else ""
        stand_in = f"**Stand-in:** {stand_ins[name]}. " if stand_ins and name in stand_ins else ""
        commits = f", commit {', '.join(study.commits)}" if study.commits else ", commit not recorded"
        taught = ""
        if study.teacher is not None:
            taught = f"The teacher's accuracy is {_percent(mean(study.teacher.test['accuracy']))} % here. "
        yield (
            f"\n{seeds} seeds on {', '.join(study.machines)}{commits}: mean and 95 % interval{scale}; ° is not shown "
            "to be worse than the best, corrected over the rows of this table. "
            f"{stand_in}{taught}{' '.join(paper.note.split())} Again: `{command_of(name)}`. "
            f"[Records](records/{name}/trials).\n"
        )
        yield _shared(runs, name)
        if name in (below or {}):
            yield "\n" + (below or {})[name](study)
        for drawn, file, caption in figures:
            if drawn == name:
                yield f"\n![{caption}](records/{file})\n"


def _shared(runs: Runs, name: str) -> str:
    """Which rows are runs of another study, too, where that has the same network, data and settings."""
    lines, keys = [], runs.study(name).keys
    for other in runs.names:
        if other == name or other.endswith(".json"):
            continue
        theirs = set(runs.study(other).keys.values())
        if both := [label for label, key in keys.items() if key in theirs]:
            rows = "All rows" if len(both) == len(keys) else f"The rows {', '.join(both)}"
            lines.append(f"\n{rows} are the same runs as those of `{other}`, and count once.\n")
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
        paper = ["" if math.isnan(ratio) else f"{ratio:.2f}" for ratio in quoted.get(label, (math.nan, math.nan))]
        ours = [f"{row[what].value / first[what].value:.3f}" for what in ("forward", "step")]
        memory = f"{row['peak'] / first['peak']:.3f}"
        rows.append([cell(label), paper[0], ours[0], paper[1], ours[1], memory])
    head = ["activation", "inference: paper", "here", "training: paper", "here", "peak memory here"]
    yield _markdown(head, rows)
    shape = "x".join(map(str, next(iter(record.settings["inputs"].values()))))
    yield (
        f"\nMultiples of GELU's, {record.hardware.gpu}, {shape} in {record.settings['dtype']}, eager mode, medians of "
        f"turns in one run; activation parameters are trained. The paper's are of A6000s and of its own code. "
        "SQUAF, SQUAF-P, SQUAF-S, Swish and CRReLU run in one fused kernel each, PolyReLU and PolyNorm as plain torch "
        "operations; DiTAC was timed with a fused kernel, which is no longer here: in plain operations it takes "
        "longer. So the columns compare implementations as much as functions. Again: "
        f"`{command_of(name)}`. [Record](records/{name}).\n"
    )
    yield folded(commands_of_rows(record))


def _short_name(variant: str) -> str:
    """Of "squaf(k=16, mode=sampled)" the name; SQUAF-P and SQUAF-S are modes of SQUAF."""
    mode = {"mode=sampled": "-p", "mode=step": "-s"}
    return variant.partition("(")[0] + next((after for word, after in mode.items() if word in variant), "")


def _measures(recipe: Recipe) -> list[str]:
    """The scores that the table has: those that the paper prints, or else what the study is about."""
    named = {measure for row in recipe.paper.values.values() for measure in row} if recipe.paper else set()
    online = recipe.training.progressive is not None
    usual = _ONLINE if online else ["perplexity"] if isinstance(recipe.task, Language) else ["accuracy"]
    return [measure for measure in MEASURES if measure in named and measure != "bits"] or list(usual)  # below it


def _table(study: Study, recipe: Recipe) -> str:
    """A row for each activation of the recipe; those that were not run have the paper's numbers alone."""
    assert recipe.paper is not None
    values, outcomes = recipe.paper.values, study.outcomes
    named = {measure for row in values.values() for measure in row}
    online, measures = recipe.training.progressive is not None, _measures(recipe)
    columns: list[tuple[str, Callable[[str], str]]] = [("activation", cell)]

    def add(title: str, ours: Callable[[str], str], measure: str = "") -> None:
        """A column of ours, behind the paper's where it prints this measure."""
        if measure in named:
            columns.append((f"{title}: paper", lambda label: _as_printed(values, label, measure)))
        columns.append(("here" if measure in named else title, lambda label: ours(label) if label in outcomes else ""))

    def differ(measure: str, form: str, scale: float = 1.0) -> Callable[[str], str]:
        return lambda label: _difference(outcomes[label], measure, form, scale=scale)

    trained = {label: outcome.trained for label, outcome in outcomes.items()}
    add("parameters", lambda label: "" if trained[label] is None else f"{trained[label]:,}", "parameters")
    for measure in measures:
        add(_TITLES[measure], _marked(study, measure).__getitem__, measure)
    for measure, (title, form) in _DIFFERENCES.items():
        if measure in named:
            add(title, differ(measure, form), measure)
    if online and "relu" in outcomes:
        # The axes of the SmeLU paper's figure 3: losses in percent of ReLU's.
        for measure, title in zip(_ONLINE, ("log loss", "ranking loss (1 - AUC)"), strict=True):
            add(f"{title} against relu's, %", lambda label, measure=measure: _change(study, label, "relu", measure))
    # What a figure shows without numbers, and what a table has beside the scores.
    if not values and any(outcome.difference for outcome in outcomes.values()):
        spread, title = ("binary", _TITLES["binary"]) if online else ("delta_1", "prediction difference")
        add(title, differ(spread, "{:.5f}"))
        for measure, (title, scale, form) in _OTHER_DIFFERENCES.items():
            if not online and all(measure in outcome.difference for outcome in outcomes.values()):
                add(title, differ(measure, form, scale))
    if "accuracy" in measures and all(outcome.train.get("accuracy") for outcome in outcomes.values()):
        add("on the training examples, %", lambda label: _percent(mean(outcomes[label].train["accuracy"])))
    if any(outcome.replacement for outcome in outcomes.values()):
        add(f"{_TITLES[measures[0]]}, when replaced", lambda label: _replaced(outcomes[label], measures[0]))
    labels = dict.fromkeys([*labels_of_recipe(recipe), *outcomes])
    return _markdown([head for head, _ in columns], [[write(label) for _, write in columns] for label in labels])


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.2f}"


def _as_printed(values: Mapping[str, Mapping[str, float]], label: str, measure: str) -> str:
    """What a paper has, with as many digits as the column has there; errors that span decades as ours."""
    if measure not in values.get(label, {}):
        return ""
    value = values[label][measure]
    if measure == "parameters":
        return f"{value:,.0f}"
    if measure == "mse":
        return MEASURES[measure][2].format(value)
    column = [row[measure] for row in values.values() if measure in row]
    places = max(len(f"{number:.6f}".rstrip("0").partition(".")[2]) for number in column)
    return f"{value:.{places}f}"


def _change(study: Study, label: str, basis: str, measure: str) -> str:
    """By how many percent the mean loss is above that of the basis; the ranking loss is 1 - AUC."""
    mine, theirs = study.mean(label, measure), study.mean(basis, measure)
    return f"{100 * ((1 - mine) / (1 - theirs) - 1 if measure == 'auc' else mine / theirs - 1):+.2f}"


def _difference(outcome: Outcome, measure: str, form: str, *, scale: float = 1.0) -> str:
    stored = outcome.difference.get(measure)
    if stored is None:
        return ""
    low, high = stored.get("interval") or (None, None)
    ends = "" if low is None or high is None else f" [{form.format(scale * low)}, {form.format(scale * high)}]"
    return form.format(scale * stored["value"]) + ends


def _replaced(outcome: Outcome, measure: str) -> str:
    replacement = outcome.replacement
    return "" if replacement is None else f"{replacement['limit']}: {_ours(replacement['test'][measure], measure)}"


def _marked(study: Study, measure: str) -> Mapping[str, str]:
    """Of each activation its mean and interval: bold the best, with ° what these seeds do not show to be worse."""
    larger, logarithmic = measure not in SMALLER, measure == "mse"
    marked = {label: _ours(study.values(label, measure), measure) for label in study.outcomes}
    means = {label: study.mean(label, measure, logarithmic=logarithmic) for label in study.outcomes}
    finite = {label: mean for label, mean in means.items() if not math.isnan(mean)}
    if not finite:
        return marked
    best = (max if larger else min)(finite, key=finite.__getitem__)
    others = [label for label in finite if label != best]
    tested = [part.p for part in wins(study, best, others, measure)]
    for label, p, may in zip(others, tested, may_be_best(tested), strict=True):
        marked[label] += "°" if may and p is not None else ""
    return marked | {best: f"**{marked[best]}**"}


def _ours(values: Sequence[float | None], measure: str) -> str:
    """The mean and its interval, with the number of seeds that diverged."""
    _, scale, form, _ = MEASURES[measure]
    numbers = [value for value in values if value is not None]
    diverged = len(values) - len(numbers)
    after = f" ({diverged} diverged)" if diverged else ""
    if not numbers:
        return "diverged"
    back = float
    if measure == "mse":
        numbers, back = [math.log(max(number, 1e-300)) for number in numbers], math.exp
    middle = statistics.fmean(numbers)
    if len(numbers) == 1:
        return form.format(scale * back(middle)) + after
    reach = t_quantile(len(numbers) - 1, 0.95) * statistics.stdev(numbers) / math.sqrt(len(numbers))
    # An interval does not reach beyond what the score can be.
    most = math.inf if measure in (*SMALLER, "psnr") else 1.0
    ends = (back(middle - reach), back(middle), min(back(middle + reach), most))
    low, mid, high = (form.format(scale * end) for end in ends)
    return f"{mid} [{low}, {high}]{after}"


# -- what stands below some of them -----------------------------------------------------------------------


def hardness_table(study: Study) -> str:
    """Table I of the λ-GELU paper beside ours: its own score, the epoch of it, and how hard the gates became."""
    heads = ["activation", "best validation accuracy, %", "in epoch", "mean λ", "drift of λ"]
    rows = []
    for label, paper in TABLE_I[study.name].items():
        if label not in study.outcomes:
            continue
        ours = [mean(hardness.best_validations(study, label)), mean(study.outcomes[label].selected)]
        if label in LEARNED:
            ours += [hardness.mean_hardness(study, label), hardness.drift_of(study, label)]
        quoted = [f"{number:g}" for number in paper[:2]] + [f"{number:.2f}" for number in paper[2:]]
        shown = ["" if math.isnan(number) else f"{number:.{0 if i == 1 else 2}f}" for i, number in enumerate(ours)]
        both = [text for pair in zip(quoted, shown, strict=True) for text in pair]
        rows.append([cell(label), *both, *[""] * (2 * len(heads) - 2 - len(both))])
    swapped = ", ".join(f"{label} {a:g} and {b:g} %" for label, (a, b) in TABLE_II[study.name].items())
    return _markdown(_both(heads), rows) + (
        "\nThe other columns of table I: means over the seeds; λ is that of the epoch with the best validation, in the "
        "mean over the layers, its drift the sum of its steps from epoch to epoch over the whole training. Table II of "
        f"the paper, before and after the replacement by ReLU: {swapped}.\n"
    )


def grid_table(study: Study) -> str:
    """Figures 1 and 2 of the λ-GELU paper: the drift of λ in each cell, and what the best validation accuracy gains."""
    gelu, cells = mean(hardness.best_validations(study, "gelu")), hardness.cells_of(study)
    rates = sorted({c for _, c in cells})
    rows = []
    for t in sorted({t for t, _ in cells}):
        row = [f"{t:g}"]
        for c in rates:
            labels = cells.get((t, c), ())
            if len(labels) < len(hardness.MODES):
                row.append("")
                continue
            gained = mean(seed for label in labels for seed in hardness.best_validations(study, label)) - gelu
            row.append(f"{mean(hardness.drift_of(study, label) for label in labels):.2f} ({gained:+.2f})")
        rows.append(row)
    head = ["temperature t", *(f"c = {c:g}" for c in rates)]
    return _markdown(head, rows, align="r" * len(head)) + (
        "\nWhat the paper's figure has in its cells: the drift of λ (its colour), and in brackets by how many points "
        "the best validation accuracy is above GELU's (its text); means over three starts and three seeds.\n"
    )


def spread_table(study: Study) -> str:
    """The standard deviations of the AUC in tables 1 to 3 of the SmeLU paper beside ours."""
    rows = []
    for label, paper in AUC_SPREADS[study.name].items():
        if label in study.outcomes:
            aucs = [auc for auc in study.values(label, "auc") if auc is not None]
            ours = f"{100 * statistics.stdev(aucs):.2f}" if len(aucs) > 1 else ""
            rows.append([cell(label), f"{100 * paper:.2f}", ours])
    return _markdown(_both(["activation", "standard deviation of the AUC, points"]), rows) + (
        "\nOver the models. The paper also prints standard deviations of its prediction differences, and does not say "
        "over what; ours have the interval of a jackknife over the models.\n"
    )


def coding_table(study: Study) -> str:
    """The modes of SQUAF-P and the bits of its activations: figure 3 of the SQUAF paper."""
    heads = ["activation", "accuracy, %: SQUAF-P", "switched to SQUAF", "switched to SQUAF-S"]
    heads += ["bits an activation: equation 12", "Huffman: paper", "here", "range coder", "SQUAF-S, Huffman"]
    coders = ("bits", "bits_huffman", "bits_rans", "step_bits_huffman")
    rows = []
    for label, outcome in study.outcomes.items():
        if "bits" in outcome.test:
            right = [_ours(study.values(label, f"accuracy_{mode}"), "accuracy") for mode in ("sampled", "soft", "step")]
            bits = [_ours(study.values(label, coder), "bits") for coder in coders]
            printed = study.printed.get(label, {}).get("bits")
            rows.append([cell(label), *right, bits[0], "" if printed is None else f"{printed:g}", *bits[1:]])
    return _markdown(heads, rows) + (
        "\nSQUAF takes 32 bits an activation. The accuracy of SQUAF-P is here the mean of several draws, in the table "
        "above that of one; bits are those of the symbols of some test images, each layer a message of its own with "
        "table and header.\n"
    )


def swap_table(runs: Runs) -> Iterator[str]:
    """Table II of the λ-GELU paper: accuracies before and after the replacement, the paper's beside ours."""
    head = ["data", "activation", "accuracy, %: paper", "replaced: paper", "here", "replaced: here"]
    lines = []
    for name, rows in TABLE_II.items():
        outcomes = runs.study(name).outcomes if name in runs.names else {}
        for label, printed in rows.items():
            ours = ["not run yet"] * 2
            if label in outcomes and (replacement := outcomes[label].replacement) is not None:
                both = (outcomes[label].test["accuracy"], replacement["test"]["accuracy"])
                ours = ["diverged" if math.isnan(value := mean(each)) else f"{100 * value:.2f}" for each in both]
            data = name.removeprefix("lambda-gelu-")
            lines.append([data, cell(label), *(f"{value:g}" for value in printed), *ours])
    yield _markdown(head, lines, align="llrrrr")
    yield "\nOf the validation set in the paper, of the test set here: means over the seeds.\n"
    yield folded(command_of_row(name, label) for name, rows in TABLE_II.items() for label in rows)


def _both(heads: list[str]) -> list[str]:
    """The first column, and each other twice: the paper's and ours."""
    return [heads[0], *(text for head in heads[1:] for text in (f"{head}: paper", "here"))]


def _markdown(head: list[str], rows: list[list[str]], align: str = "") -> str:
    return Table(head=head, rows=rows, align=align, markup=True).markdown(COLONS)


BELOW: Mapping[str, Below] = {
    **dict.fromkeys(TABLE_I, hardness_table),
    **dict.fromkeys((hardness.GRID, hardness.SWEEP, hardness.SMALL_SWEEP), grid_table),
    **dict.fromkeys(AUC_SPREADS, spread_table),
    **dict.fromkeys(CODED, coding_table),
}
"""By study: what stands below its table."""


# -- figures of a study's report, as PNG beside its records ------------------------------------------------

# Which figures of a report the page shows, by study.
DRAWN: dict[str, Sequence[str]] = {
    "smelu-figure-4": ("plane",),
    "smelu-figure-13": ("plane",),
    "smelu-figure-3": ("plane",),
    "smelu-figure-3-twelve": ("plane",),
    **dict.fromkeys(TABLE_I, ("hardness", "validation-accuracy", hardness.FIGURE)),
    "mollification-table-1": ("plane", "validation-accuracy"),
    "mollification-table-2": ("plane", "validation-accuracy"),
    "mollification-table-2-augmented": ("validation-accuracy",),
    "squaf-table-6-vgg8-short": ("validation-accuracy",),
    **dict.fromkeys(("squaf-figure-3", "squaf-figure-3-short"), ("plane", "shapes")),
}


_INTERVALS = ", 95 % intervals (of the difference where there are four models or more)"


def file_of(study: str, figure: str) -> str:
    """The name of the figure's file, which stands next to the records of the study."""
    return f"{study}-{figure}.png"


def write_figures(runs: Runs) -> list[Path]:
    """Draw the figures of the studies that are there, whole or in part."""
    written = []
    for name, wanted in DRAWN.items():
        if name not in runs.names:
            continue
        study = runs.study(name)
        report = pdf_figures(summarise(runs.recipe(name), list(study.outcomes.values())), png=True, only=wanted)
        drawn = {figure: content for figure, (content, _) in report.items()}
        if hardness.FIGURE in wanted and (order := hardness.order_figure(study)) is not None:
            drawn[hardness.FIGURE] = order
        for figure in wanted:
            if figure in drawn:
                path = runs.paths[name].with_name(file_of(name, figure))
                written.append(write_whole(path, drawn[figure], what="figure"))
    return written


def figures_of(runs: Runs) -> list[tuple[str, str, str]]:
    """(study, file, caption) of the figures that are there."""
    captions = {
        "plane": f"Accuracy or loss against prediction difference{_INTERVALS}; a line joins the values of a knob",
        "hardness": "The learned knob by depth, mean over seeds from the lowest to the highest; dotted the start",
        "validation-accuracy": "Validation accuracy over the epochs, mean over seeds with its 95 % interval, which "
        "stands at the end where many lines would hide it",
        hardness.FIGURE: hardness.CAPTION,
        "shapes": "What the activation has become after training: dashed as it began, the mean of the seeds, and a "
        "band from the lowest to the highest",
    }

    def caption(name: str, figure: str) -> str:
        if name in CODED and figure == "plane":
            return "Accuracy of one draw of SQUAF-P against the bits an activation (equation 12), 95 % intervals"
        few = all(len(outcome.diverged) < FEWEST_DRAWN for outcome in runs.study(name).outcomes.values())
        without = captions[figure].replace(_INTERVALS, " of two models each, which have no interval")
        return without if few else captions[figure]

    return [
        (name, file_of(name, figure), caption(name, figure))
        for name, wanted in DRAWN.items()
        for figure in wanted
        if name in runs.paths and runs.paths[name].with_name(file_of(name, figure)).is_file()
    ]
