"""The tables of a report as cells of text; the page, the Markdown and the LaTeX document are written from these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ...measure.estimate import Estimate, Score
from ..studies.trials import Each, Outcome
from ..table import BASELINE, DENSE, Cell, Table, duration, escape_markdown
from .summary import (
    ALL_MODELS,
    DASH,
    EQUIVALENT,
    RELATIVE,
    SAME_INTERVAL,
    Measure,
    Origin,
    PaperTable,
    Row,
    Summary,
    column_places,
    counted,
    decimals,
    fixed,
    interval_words,
    margin_words,
    place_of,
    plain,
    probability,
    with_reach,
)


def _row(label: str, key: str | None, *cells: str | Cell) -> tuple[Cell, ...]:
    """A name and its cells; a text is a number of the record that the key names."""
    name = Cell(text=label, key=key, kind="name")
    return (name, *(Cell(text=cell, key=key) if isinstance(cell, str) else cell for cell in cells))


def _words(text: str) -> Cell:
    return Cell(text=text, kind="words")


def head_of(measure: Measure) -> str:
    # The unit and the sign of a difference stay with the word before them.
    title = measure.title.replace(" Δ", "\u00a0Δ")
    return f"{title},\u00a0{measure.unit}" if measure.unit else title


def headline(summary: Summary) -> Table:
    """Each activation: the metric, the prediction difference and the cost, with their intervals."""
    shown = [summary.metric, *([summary.spread] if summary.spread else [])]
    places = {measure.name: _places(summary.rows, measure) for measure in shown}
    timed = any(row.cost for row in summary.rows)
    known = any(row.trained is not None for row in summary.rows)
    against = _against(summary, shown)
    rows = []
    for row in summary.rows:
        cells: list[str | Cell] = [_measured(row, measure, places[measure.name]) for measure in shown]
        cells += [DASH if row.trained is None else f"{row.trained:,}"] if known else []
        cells += [_ratio(row)] if timed else []
        cells += _verdicts(row, shown) if against else []
        rows.append(_row(f"{row.label}{BASELINE if row.baseline else ''}", row.key, *cells))
    caption = (
        f"What every activation reached: mean over {counted(len(summary.rows[0].seeds), 'seed')} ± the reach of its "
        "95 % interval (accuracy and losses: t interval; prediction difference: jackknife over models). In bold: the "
        "best, and whatever is not shown to be worse."
    )
    if timed:
        basis = summary.recipe.cost_baseline
        caption += f" Cost: time of a training step relative to {basis}, median ± half the distance of the quartiles."
    head = ("activation", *map(head_of, shown), *("parameters",) * known, *("cost",) * timed, *against)
    return Table(name="headline", caption=caption, head=head, rows=tuple(rows))


def _places(rows: Iterable[Row], measure: Measure) -> int | None:
    results = [result for row in rows if (result := row.result(measure)) is not None]
    return column_places(results, scale=measure.scale, logarithmic=measure.logarithmic)


def _measured(row: Row, measure: Measure, places: int | None) -> Cell:
    if row.diverged:
        gone = f"{len(row.diverged)} of {len(row.seeds)} diverged"
        return Cell(text=DASH, key=row.key, title=gone)
    result = row.result(measure)
    best = measure.name in row.best
    return Cell(
        text=with_reach(result, places, scale=measure.scale),
        key=row.key,
        title=_title(result, measure, places),
        best=best,
    )


def _title(result: Score | Estimate | None, measure: Measure, places: int | None) -> str:
    if result is None:
        return "not measured"
    within = interval_words(result.interval, None if places is None else places + 1, scale=measure.scale)
    spread = "" if result.stdev is None else f", standard deviation {measure.scale * result.stdev:.3g}"
    return f"{measure.title}: 95 % interval {within}{spread}"


def _ratio(row: Row) -> Cell:
    if row.cost is None:
        return Cell(text=DASH, title="not timed")
    ratio, train, infer = row.cost.train_ratio, row.cost.train, row.cost.infer
    title = f"training step {train.value:.3g} {train.unit}, inference {infer.value:.3g} {infer.unit}"
    return Cell(text=ratio.text(2), key=row.cost.key, title=f"{title}; {counted(ratio.repeats, 'repeat')}")


def _against(summary: Summary, shown: Sequence[Measure]) -> list[str]:
    """The heads of the columns of verdicts; there are none where nothing could be compared."""
    if summary.baseline is None or summary.baseline.diverged:
        return []
    names = ["reproducibility" if measure.of_sets else measure.title.removeprefix("test ") for measure in shown]
    return [f"{name} against {summary.baseline.label}" for name in names]


def _verdicts(row: Row, shown: Sequence[Measure]) -> list[Cell]:
    """Each verdict in a word; the first says how many seeds diverged where some did."""
    verdicts = [row.verdicts.get(verdict.name) for verdict in shown]
    words = ["" if row.baseline else DASH if verdict is None else verdict.words for verdict in verdicts]
    if row.diverged:
        words[0] = f"{len(row.diverged)} of {counted(len(row.seeds), 'seed')} diverged"
    return [_words(word) for word in words]


def measures_table(summary: Summary) -> Table | None:
    """Everything else that was measured on the test set."""
    first = {summary.metric.name, summary.spread.name if summary.spread else ""}
    shown = [measure for measure in summary.measures if measure.name not in first]
    if not shown:
        return None
    places = {column.name: _places(summary.rows, column) for column in shown}
    rows = [
        _row(row.label, row.key, *(_measured(row, column, places[column.name]) for column in shown))
        for row in summary.rows
    ]
    where = "test" if summary.recipe.training.progressive is None else "judged"
    caption = f"The other measures on the {where} examples, as in the first table: mean ± reach of the 95 % interval."
    return Table(name="measures", caption=caption, head=("activation", *map(head_of, shown)), rows=rows)


def significance(summary: Summary, measure: Measure) -> Table | None:
    """Every activation against the baseline by one measure."""
    judged = [(row, row.verdicts[measure.name]) for row in summary.judged if measure.name in row.verdicts]
    if not judged or summary.baseline is None:
        return None
    widths = [verdict.comparison.interval for _, verdict in judged if verdict.comparison.interval]
    typical = sorted(measure.scale * (high - low) / 2 for low, high in widths)
    places = place_of(typical[len(typical) // 2]) if typical and typical[len(typical) // 2] > 0 else 3
    places = None if _places(summary.rows, measure) is None else places
    rows = []
    for row, verdict in judged:
        comparison = verdict.comparison
        title = "" if comparison.p_flips is None else f"exact sign-flip test: p {probability(comparison.p_flips)}"
        rows.append(
            _row(
                row.label,
                row.key,
                fixed(measure.scale * comparison.difference, places, signed=True),
                interval_words(comparison.interval, places, scale=measure.scale),
                Cell(text=probability(comparison.p), key=row.key, title=title),
                probability(verdict.adjusted),
                DASH if comparison.effect is None else fixed(comparison.effect, 2, signed=True),
                probability(verdict.equivalence),
                _words(verdict.words),
            )
        )
    how = (
        "jackknife pairs: leaving out one seed at a time on both sides"
        if measure.of_sets
        else "paired t-test over seeds"
    )
    unit = {"%": " in percentage points", "": ""}.get(measure.unit, f" in {measure.unit}")
    margin = f"; “{EQUIVALENT}” means within {margin_words(measure)}, by two one-sided tests" if measure.margin else ""
    title = measure.title[0].upper() + measure.title[1:]
    basis = summary.baseline.label
    caption = f"{title}: each activation minus {basis}{unit}; {how}. Holm's correction is over this table{margin}."
    head = ("activation", "difference", "95 % interval", "p", "p (Holm)", "effect g", "p of equivalence", "verdict")
    return Table(name=f"test-{measure.name}", caption=caption, head=head, rows=rows)


def replacement(summary: Summary) -> Table | None:
    """Hardened activations before and after their hard limit took their place."""
    if not summary.replacements:
        return None
    metric = summary.metric
    scale, every = metric.scale, [score for row in summary.replacements for score in (row.before, row.after)]
    places, rows = decimals(every, scale=scale), []
    for row in summary.replacements:
        change = fixed(scale * row.change.difference, places, signed=True)
        if row.change.interval is not None:
            change += f" {interval_words(row.change.interval, places, scale=scale)}"
        share = DASH if row.changed is None else with_reach(row.changed, decimals([row.changed], scale=100), scale=100)
        ends = [with_reach(score, places, scale=scale) for score in (row.before, row.after)]
        rows.append(_row(row.label, row.key, _words(row.limit), *ends, change, probability(row.change.p), share))
    head = ("activation", "replaced by", f"{head_of(metric)}, before", "after", "change", "p", "predictions changed, %")
    caption = (
        "Before and after: the activation was moved to its hard limit while training; then the limit took its place "
        "with no weight changed. Change: after minus before, seed by seed, with its 95 % interval."
    )
    return Table(name="replacement", caption=caption, head=head, rows=rows)


_SHARES = ("outputs exactly 0", "dead units", "generalisation gap")


def inside(summary: Summary) -> Table | None:
    """Activity, entropy and gradients inside the networks."""
    titles = list(dict.fromkeys(title for row in summary.rows for title in row.inside))
    if not titles:
        return None
    scales = {title: 100.0 if title in _SHARES else 1.0 for title in titles}
    every = {title: [row.inside[title] for row in summary.rows if title in row.inside] for title in titles}
    places = {title: decimals(value, scale=scales[title]) for title, value in every.items()}
    rows = [
        _row(row.label, row.key, *(with_reach(row.inside.get(t), places[t], scale=scales[t]) for t in titles))
        for row in summary.rows
        if row.inside or row.diverged
    ]
    units = {"entropy of inputs": ",\u00a0nats"} | dict.fromkeys(_SHARES, ",\u00a0%")
    head = ("activation", *(f"{title}{units.get(title, '')}" for title in titles))
    caption = (
        "Inside the networks: averages over the activations of a network, then over seeds, ± the reach of the 95 % "
        "interval."
    )
    return Table(name="inside", caption=caption, head=head, rows=rows)


def trials(summary: Summary) -> Table:
    """Which record every row is from, and what it was trained with."""
    rows = []
    for row in summary.rows:
        seeds = "–".join(str(seed) for seed in dict.fromkeys((min(row.seeds), max(row.seeds))))
        rates = plain(row.learning_rate), plain(row.weight_decay)
        texts = (*rates, seeds, str(len(row.diverged)), duration(row.seconds))
        record = Cell(text=row.key, key=row.key, kind="words")
        rows.append(_row(row.label, row.key, record, *(Cell(text=text) for text in texts)))
    head = ("activation", "record", "learning rate", "weight decay", "seeds", "diverged", "time")
    tuned = summary.recipe.tuning is not None
    caption = "What was trained: one record for each trial" + (
        "; learning rate and decay were chosen on the validation examples, with seeds of their own." if tuned else "."
    )
    return Table(name="trials", caption=caption, head=head, rows=rows)


def tested(summary: Summary) -> list[Measure]:
    """The measures that have a table of tests of their own."""
    first = [summary.metric, *([summary.spread] if summary.spread else [])]
    return first + [measure for measure in summary.measures if measure.name == "log_loss" and measure not in first]


def every_table(summary: Summary) -> Sequence[Table]:
    """All tables that there is something to show in, in the order of the page."""
    tests = [significance(summary, measure) for measure in tested(summary)]
    tables = [
        headline(summary),
        *tests,
        replacement(summary),
        measures_table(summary),
        inside(summary),
        trials(summary),
    ]
    return [table for table in tables if table is not None]


TITLE = "Beside the paper"
COLUMNS = (
    *("activation", "measure", "source", "paper", "average", "value", "low", "high", "seeds", "diverged", "verdict"),
    "record",
)


def paper_tables(summary: Summary) -> list[Table]:
    """Each measure of the paper: its number, ours with its interval, and the verdict."""
    source = summary.recipe.paper.source if summary.recipe.paper else ""
    return [_table(measured, source) for measured in summary.paper_tables]


def paper_sentences(summary: Summary) -> list[str]:
    """Who is best in the paper and here, a sentence for each measure."""
    return [measured.best for measured in summary.paper_tables if measured.best]


def paper_note(summary: Summary) -> str:
    """How the study differs from the paper."""
    return summary.recipe.paper.note if summary.recipe.paper and summary.paper_tables else ""


def _table(measured: PaperTable, source: str) -> Table:
    name, title = f"beside-{measured.measure.name}", head_of(measured.measure)
    title = f"{title[0].upper()}{title[1:]}"
    if not measured.average:
        rows = []
        for row in measured.rows:
            ours = DASH if row.value is None else f"{row.value:,.0f}"
            rows.append(_row(row.label, row.key, Cell(text=f"{row.paper:,.0f}"), ours, _words(row.verdict)))
        caption = f"{title} of one model, in the paper ({source}) and here."
        return Table(name=name, caption=caption, head=("activation", "paper", "here", "verdict"), rows=rows)
    rows = [
        _row(
            row.label,
            row.key,
            Cell(text=fixed(row.paper, measured.paper_places)),
            DASH if row.value is None else fixed(row.value, measured.places),
            interval_words(row.interval, measured.places),
            Cell(text=str(row.seeds), title=counted(row.seeds, "seed")),
            Cell(text=str(row.diverged)),
            _words(row.verdict),
        )
        for row in measured.rows
    ]
    average = f"of {ALL_MODELS}" if measured.average == ALL_MODELS else f"{measured.average} over seeds"
    caption = (
        f"{title}, in the paper ({source}) and here: {average} with its 95 % "
        f"interval. “{SAME_INTERVAL}” allows for the rounding of the paper's number."
    )
    if measured.average not in ("mean", ALL_MODELS):
        caption += " Seeds spread over more than a decade: the interval is that of their logarithms."
    head = ("activation", "paper", f"here, {measured.average}", "95 % interval", "seeds", "diverged", "verdict")
    return Table(name=name, caption=caption, head=head, rows=rows)


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
    rows = []
    for row in summary.rows:
        difference = row.differences.get(RELATIVE)
        losses = [(_loss(row, name), _loss(basis, name)) for name in ("log_loss", "auc")]
        numbers = [None if mine is None or not theirs else change(mine, theirs) for mine, theirs in losses]
        numbers.append(None if difference is None else 100 * difference.value)
        signed = (True, True, False)
        cells = [
            Cell(text=DASH, title="not measured") if value is None else fixed(value, 2, signed=sign)
            for value, sign in zip(numbers, signed, strict=True)
        ]
        rows.append(_row(row.label, row.key, *cells))
    losses = (f"{kind} loss against {basis.label}, %" for kind in ("log", "ranking"))
    return Table(
        name="relative-losses",
        caption=f"Progressive losses against those of {basis.label}, and the prediction difference relative to the "
        "predicted share of clicks: the axes of figure 3 of the SmeLU paper. The ranking loss is 1 - AUC. Less is "
        "better.",
        head=("activation", *losses, "relative Δ₁, %"),
        rows=rows,
    )


def _loss(row: Row, name: str) -> float | None:
    score = row.scores.get(name)
    return None if score is None else 1 - score.value if name == "auc" else score.value


def markdown(summary: Summary, origin: Origin) -> str:
    """The whole text. The name of a row leads to its record."""
    text = escape_markdown
    parts = [f"# {text(summary.recipe.title or summary.recipe.name)}"]
    if summary.recommendation:
        parts.append(f"**{text(summary.recommendation.advice)}** {text(' '.join(summary.recommendation.reasons))}")
    answers = [f"- {answer.question}: **{text(answer.label)}**{text(answer.words)}" for answer in summary.sentences]
    parts += ["\n".join(answers), *(f"> {text(note)}" for note in summary.notes)]
    online = relative_losses(summary)
    parts += [table.markdown(DENSE).rstrip() for table in (*every_table(summary), *([online] if online else []))]
    if summary.paper_tables:
        parts.append(f"## {TITLE}")
        parts.append("\n".join(f"- {text(sentence)}" for sentence in paper_sentences(summary)))
        parts += [table.markdown(DENSE).rstrip() for table in paper_tables(summary)]
        parts.append(text(paper_note(summary)))
    parts += ["## Run it again", _fenced(origin.command)]
    parts.append("\n".join(f"- {name}: {text(words)}" for name, words in origin.facts))
    parts.append(_fenced(origin.recipe.rstrip(), "yaml"))
    return "\n\n".join(part for part in parts if part) + "\n"


def _fenced(text: str, kind: str = "") -> str:
    """Between more backticks than the text has in a row."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


RESULTS = (
    *("activation", "name", "values", "measure", "value", "low", "high", "stdev", "seeds", "diverged"),
    *("baseline", "difference", "difference_low", "difference_high", "p", "p_holm", "p_sign_flips", "effect_g"),
    *("margin", "p_equivalence_holm", "verdict", "best", "record"),
)
SEEDS = ("activation", "seed", "measure", "value", "diverged_in_epoch", "record")


def results_csv(summary: Summary) -> str:
    """Averages with intervals, tests and verdicts; unscaled, with all digits, and empty where there is none."""
    lines = [_result(summary, row, measure) for row in summary.rows for measure in summary.measures]
    lines += [_head(row) | {"measure": "parameters", "value": row.trained} for row in summary.rows if row.trained]
    lines += [line for row in summary.rows for line in _costs(row)]
    return Table(head=RESULTS, rows=[[line.get(name) for name in RESULTS] for line in lines]).csv()


def _result(summary: Summary, row: Row, measure: Measure) -> Mapping[str, object]:
    result, verdict = row.result(measure), row.verdicts.get(measure.name)
    line: dict[str, object] = _head(row) | {"measure": measure.name, "best": measure.name in row.best}
    if result is not None:
        low, high = result.interval or (None, None)
        line |= {"value": result.value, "low": low, "high": high, "stdev": result.stdev}
    if verdict is not None and summary.baseline is not None:
        comparison = verdict.comparison
        low, high = comparison.interval or (None, None)
        line |= {
            "baseline": summary.baseline.label,
            "difference": comparison.difference,
            "difference_low": low,
            "difference_high": high,
            "p": comparison.p,
            "p_holm": verdict.adjusted,
            "p_sign_flips": comparison.p_flips,
            "effect_g": comparison.effect,
            "margin": comparison.margin,
            "p_equivalence_holm": verdict.equivalence,
            "verdict": verdict.words,
        }
    return line


def _head(row: Row) -> dict[str, object]:
    return {
        "activation": row.label,
        "name": row.name,
        "values": " ".join(f"{name}={value}" for name, value in row.values.items()),
        "seeds": len(row.seeds),
        "diverged": len(row.diverged),
        "record": row.key,
    }


def _costs(row: Row) -> list[Mapping[str, object]]:
    if row.cost is None:
        return []
    head = _head(row) | {"record": row.cost.key, "seeds": None, "diverged": None}
    names = {"train_time": "train", "infer_time": "infer", "train_ratio": "train_ratio", "infer_ratio": "infer_ratio"}
    quantities = {measure: getattr(row.cost, name) for measure, name in names.items()}
    return [
        head | {"measure": name, "value": quantity.value, "low": quantity.low, "high": quantity.high}
        for name, quantity in quantities.items()
    ]


def paper_csv(summary: Summary) -> str:
    """The numbers of the paper and ours, in the unit of the paper; the column `average` says how ours are averaged."""
    source = summary.recipe.paper.source if summary.recipe.paper else ""
    lines = []
    for measured in summary.paper_tables:
        for row in measured.rows:
            low, high = row.interval or (None, None)
            paper = (row.label, measured.measure.name, source, row.paper)
            ours = (measured.average, row.value, low, high, row.seeds, row.diverged, row.verdict, row.key)
            lines.append(paper + ours)
    return Table(head=COLUMNS, rows=lines).csv()


def seeds_csv(outcomes: Sequence[Outcome]) -> str:
    """Every number that a seed has for itself, and prediction differences without that seed."""
    rows = []
    for outcome in outcomes:
        if outcome.trial.kind != "train":
            continue
        label, key = outcome.trial.activation.label, outcome.trial.key
        for name, each in _by_seed(outcome).items():
            for seed, value, epoch in zip(outcome.trial.seeds.numbers, each, outcome.diverged, strict=True):
                rows.append((label, seed, name, value, epoch, key))
    return Table(head=SEEDS, rows=rows).csv()


def _by_seed(outcome: Outcome) -> dict[str, Each]:
    measures: dict[str, Each] = {}
    for part in ("test", "validation", "train", "gradients"):
        measures |= {f"{part}.{name}": each for name, each in getattr(outcome, part).items()}
    measures |= {f"end.{name}": tuple(moved["end"]) for name, moved in outcome.parameters.items()}
    replaced = outcome.replacement or {}
    measures |= {f"replaced.{name}": tuple(each) for name, each in replaced.get("test", {}).items()}
    if replaced.get("changed"):
        measures["replaced.changed"] = tuple(replaced["changed"])
    finished = [place for place, epoch in enumerate(outcome.diverged) if epoch is None]
    for name, difference in outcome.difference.items():
        if difference.get("without") is not None and len(difference["without"]) == len(finished):
            values = dict(zip(finished, difference["without"], strict=True))
            measures[f"{name}.without_this_seed"] = tuple(values.get(place) for place in range(len(outcome.diverged)))
    return measures
