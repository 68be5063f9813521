"""The tables of a report as cells of text; the page, the Markdown and the LaTeX document are written from these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...measure.estimate import Estimate, Score
from ...measure.record import Quantity
from .measures import margin_words
from .numbers import (
    DASH,
    column_places,
    counted,
    decimals,
    duration,
    fixed,
    interval_words,
    place_of,
    plain,
    probability,
    with_reach,
)
from .parts import EQUIVALENT, Measure, Replacement, Row, Summary


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: what it shows, the key of the record it is from, and what it says when pointed at.

    kind: "number" stands right, "words" left, "name" is the head of its row.
    best: it is the best of its column, or not shown to be worse than the best.
    """

    text: str
    key: str | None = None
    title: str = ""
    kind: str = "number"
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its caption; `name` is its anchor."""

    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def name_cell(label: str, key: str | None = None) -> Cell:
    return Cell(text=label, key=key, kind="name")


def head_of(measure: Measure) -> str:
    # The unit and the sign of a difference stay with the word before them.
    title = measure.title.replace(" Δ", "\u00a0Δ")
    return f"{title},\u00a0{measure.unit}" if measure.unit else title


def headline(summary: Summary) -> Table:
    """Each activation: the metric, the prediction difference and the cost, with their intervals."""
    shown = [summary.metric, *([summary.spread] if summary.spread else [])]
    places = {one.name: _places(summary.rows, one) for one in shown}
    timed = any(row.cost for row in summary.rows)
    known = any(row.trained is not None for row in summary.rows)
    rows = []
    for row in summary.rows:
        cells = [Cell(text=f"{row.label}{' (baseline)' if row.baseline else ''}", key=row.key, kind="name")]
        cells += [_measured(row, one, places[one.name]) for one in shown]
        cells += [Cell(text=DASH if row.trained is None else f"{row.trained:,}", key=row.key)] if known else []
        cells += [_ratio(row, row.cost.train_ratio if row.cost else None)] if timed else []
        rows.append((*cells, *_verdicts(row, shown, bool(_against(summary, shown)))))
    seeds = counted(len(summary.rows[0].seeds), "seed")
    caption = (
        f"Mean over {seeds} ± the reach of its 95 % interval (accuracy and losses: t interval; prediction difference: "
        "jackknife over models). In bold: the best, and whatever is not shown to be worse. "
    )
    if timed:
        basis = summary.recipe.cost_baseline
        caption += f"Cost: time of a training step relative to {basis}, median ± half the distance of the quartiles."
    head = (
        "activation",
        *(head_of(one) for one in shown),
        *(("parameters",) if known else ()),
        *(("cost",) if timed else ()),
        *_against(summary, shown),
    )
    return Table(name="headline", caption=caption.strip(), head=head, rows=tuple(rows))


def _places(rows: Iterable[Row], measure: Measure) -> int | None:
    found = [one for row in rows if (one := row.found(measure)) is not None]
    return column_places(found, scale=measure.scale, logarithmic=measure.logarithmic)


def _measured(row: Row, measure: Measure, places: int | None) -> Cell:
    if row.diverged:
        gone = f"{len(row.diverged)} of {len(row.seeds)} diverged"
        return Cell(text=DASH, key=row.key, title=gone)
    found = row.found(measure)
    best = measure.name in row.best
    return Cell(
        text=with_reach(found, places, scale=measure.scale),
        key=row.key,
        title=_title(found, measure, places),
        best=best,
    )


def _title(found: Score | Estimate | None, measure: Measure, places: int | None) -> str:
    if found is None:
        return "not measured"
    within = interval_words(found.interval, None if places is None else places + 1, scale=measure.scale)
    spread = "" if found.stdev is None else f", standard deviation {measure.scale * found.stdev:.3g}"
    return f"{measure.title}: 95 % interval {within}{spread}"


def _ratio(row: Row, ratio: Quantity | None) -> Cell:
    if row.cost is None or ratio is None:
        return Cell(text=DASH, title="not timed")
    title = (
        f"training step {row.cost.train.value:.3g} {row.cost.train.unit}, inference {row.cost.infer.value:.3g} "
        f"{row.cost.infer.unit}; {counted(ratio.repeats, 'repeat')}"
    )
    return Cell(text=ratio.text(2), key=row.cost.key, title=title)


def _against(summary: Summary, shown: Sequence[Measure]) -> list[str]:
    """The heads of the columns of verdicts; there are none where nothing could be compared."""
    if summary.baseline is None or summary.baseline.diverged:
        return []
    return [f"{_short(one)} against {summary.baseline.label}" for one in shown]


def _short(measure: Measure) -> str:
    return "reproducibility" if measure.of_sets else measure.title.removeprefix("test ")


def _verdicts(row: Row, shown: Sequence[Measure], compared: bool) -> list[Cell]:
    """Each verdict in a word; the first says how many seeds diverged where some did."""
    if not compared:
        return []
    found = [row.verdicts.get(one.name) for one in shown]
    words = ["" if row.baseline else DASH if one is None else one.words for one in found]
    if row.diverged:
        words[0] = f"{len(row.diverged)} of {counted(len(row.seeds), 'seed')} diverged"
    return [Cell(text=one, kind="words") for one in words]


def measures_table(summary: Summary) -> Table | None:
    """Everything else that was measured on the test set."""
    first = {summary.metric.name, summary.spread.name if summary.spread else ""}
    shown = [one for one in summary.measures if one.name not in first]
    if not shown:
        return None
    places = {one.name: _places(summary.rows, one) for one in shown}
    rows = tuple(
        (name_cell(row.label, row.key), *(_measured(row, one, places[one.name]) for one in shown))
        for row in summary.rows
    )
    where = "test" if summary.recipe.training.progressive is None else "judged"
    caption = f"The other measures on the {where} examples, as in the first table: mean ± reach of the 95 % interval."
    return Table(name="measures", caption=caption, head=("activation", *map(head_of, shown)), rows=rows)


def significance(summary: Summary, measure: Measure) -> Table | None:
    """Every activation against the baseline by one measure."""
    judged = [(row, row.verdicts[measure.name]) for row in summary.judged if measure.name in row.verdicts]
    if not judged or summary.baseline is None:
        return None
    widths = [one.comparison.interval for _, one in judged if one.comparison.interval]
    typical = sorted(measure.scale * (high - low) / 2 for low, high in widths)
    places = place_of(typical[len(typical) // 2]) if typical and typical[len(typical) // 2] > 0 else 3
    places = None if _places(summary.rows, measure) is None else places
    rows = []
    for row, verdict in judged:
        one = verdict.comparison
        title = "" if one.p_flips is None else f"exact sign-flip test: p {probability(one.p_flips)}"
        rows.append(
            (
                name_cell(row.label, row.key),
                Cell(text=fixed(measure.scale * one.difference, places, signed=True), key=row.key),
                Cell(text=interval_words(one.interval, places, scale=measure.scale), key=row.key),
                Cell(text=probability(one.p), key=row.key, title=title),
                Cell(text=probability(verdict.adjusted), key=row.key),
                Cell(text=DASH if one.effect is None else fixed(one.effect, 2, signed=True), key=row.key),
                Cell(text=probability(verdict.equivalence), key=row.key),
                Cell(text=verdict.words, kind="words"),
            )
        )
    head = ("activation", "difference", "95 % interval", "p", "p (Holm)", "effect g", "p of equivalence", "verdict")
    return Table(name=f"test-{measure.name}", caption=_test_caption(summary, measure), head=head, rows=tuple(rows))


def _test_caption(summary: Summary, measure: Measure) -> str:
    basis = summary.baseline.label if summary.baseline else ""
    how = (
        "jackknife pairs: leaving out one seed at a time on both sides"
        if measure.of_sets
        else "paired t-test over seeds"
    )
    unit = {"%": " in percentage points", "": ""}.get(measure.unit, f" in {measure.unit}")
    margin = f"; “{EQUIVALENT}” means within {margin_words(measure)}, by two one-sided tests" if measure.margin else ""
    title = measure.title[0].upper() + measure.title[1:]
    return f"{title}: each activation minus {basis}{unit}; {how}. Holm's correction is over this table{margin}."


def replacement(summary: Summary) -> Table | None:
    """Hardened activations before and after their hard limit took their place."""
    if not summary.replacements:
        return None
    metric = summary.metric
    places = decimals(
        [one for found in summary.replacements for one in (found.before, found.after)], scale=metric.scale
    )
    head = ("activation", "replaced by", f"{head_of(metric)}, before", "after", "change", "p", "predictions changed, %")
    caption = (
        "The activation was moved to its hard limit while training; then the limit took its place with no weight "
        "changed. Change: after minus before, seed by seed, with its 95 % interval."
    )
    rows = tuple(_replaced(found, places) for found in summary.replacements)
    return Table(name="replacement", caption=caption, head=head, rows=rows)


def _replaced(found: Replacement, places: int) -> tuple[Cell, ...]:
    scale, key, change = found.measure.scale, found.key, found.change
    words = fixed(scale * change.difference, places, signed=True)
    if change.interval is not None:
        words += f" {interval_words(change.interval, places, scale=scale)}"
    share = (
        DASH if found.changed is None else with_reach(found.changed, decimals([found.changed], scale=100), scale=100)
    )
    return (
        name_cell(found.label, key),
        Cell(text=found.limit, kind="words"),
        Cell(text=with_reach(found.before, places, scale=scale), key=key),
        Cell(text=with_reach(found.after, places, scale=scale), key=key),
        Cell(text=words, key=key),
        Cell(text=probability(change.p), key=key),
        Cell(text=share, key=key),
    )


_SHARES = ("outputs exactly 0", "dead units", "generalisation gap")


def inside(summary: Summary) -> Table | None:
    """What was seen inside the networks."""
    titles = list(dict.fromkeys(title for one in summary.inside for title in one.scores))
    if not titles:
        return None
    scales = {title: 100.0 if title in _SHARES else 1.0 for title in titles}
    every = {title: [one.scores[title] for one in summary.inside if title in one.scores] for title in titles}
    places = {title: decimals(found, scale=scales[title]) for title, found in every.items()}
    rows = tuple(
        (
            name_cell(one.label, one.key),
            *(
                Cell(text=with_reach(one.scores.get(title), places[title], scale=scales[title]), key=one.key)
                for title in titles
            ),
        )
        for one in summary.inside
    )
    units = {"entropy of inputs": ",\u00a0nats"} | dict.fromkeys(_SHARES, ",\u00a0%")
    head = ("activation", *(f"{title}{units.get(title, '')}" for title in titles))
    caption = "Averages over the activations of a network, then over seeds, ± the reach of the 95 % interval."
    return Table(name="inside", caption=caption, head=head, rows=rows)


def trials(summary: Summary) -> Table:
    """Which record every row is from, and what it was trained with."""
    rows = tuple(
        (
            name_cell(row.label, row.key),
            Cell(text=row.key, key=row.key, kind="words"),
            Cell(text=plain(row.learning_rate)),
            Cell(text=plain(row.weight_decay)),
            Cell(text="–".join(str(seed) for seed in dict.fromkeys((min(row.seeds), max(row.seeds))))),
            Cell(text=str(len(row.diverged)) if row.diverged else "0"),
            Cell(text=duration(row.seconds)),
        )
        for row in summary.rows
    )
    head = ("activation", "record", "learning rate", "weight decay", "seeds", "diverged", "time")
    tuned = summary.recipe.tuning is not None
    caption = "One record for each trial" + (
        "; learning rate and decay were chosen on the validation examples, with seeds of their own." if tuned else "."
    )
    return Table(name="trials", caption=caption, head=head, rows=rows)


def tested(summary: Summary) -> list[Measure]:
    """The measures that have a table of tests of their own."""
    first = [summary.metric, *([summary.spread] if summary.spread else [])]
    return first + [one for one in summary.measures if one.name == "log_loss" and one not in first]


def every_table(summary: Summary) -> Sequence[Table]:
    """All tables that there is something to show in, in the order of the page."""
    tests = [significance(summary, one) for one in tested(summary)]
    found = [headline(summary), *tests, replacement(summary), measures_table(summary), inside(summary), trials(summary)]
    return [table for table in found if table is not None]
