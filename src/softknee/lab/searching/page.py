"""The page of a search: what to do, how much of a lead was luck, what is worth its cost, and what was dropped and why.

It is made of what is recorded alone, and written beside it with the definition files of the finalists, which work
wherever a name works, and a page of each like the zoo's.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import softknee as sk

from .. import gallery
from ..chart import Chart, by_name, lines_legend, marks, number, rule_at, svg_of
from ..report.drawing import Figure, looks, on_paper, plane
from ..report.summary import Row, Summary, counted, fixed, interval_words, place_of
from ..studies.reporting import write_report_into
from ..studies.store import Folder, RunStore
from ..studies.trials import Outcome
from ..table import Table, duration
from .proving import UNPROVED
from .search import JUDGEMENT, SearchResult, Tried

REPORT, PAGE = "report", "README.md"


@dataclass(frozen=True)
class Luck:
    """How far a function leads the baseline, in validation or test loss; above 0 is better than the baseline.

    search: in the search, with its seeds, on validation data: what it was chosen by.
    fresh:  on the same data with the study's seeds.
    test:   with these seeds on the test data.
    """

    label: str
    search: float
    fresh: float
    test: float

    @property
    def share(self) -> float:
        """The share of the lead in the search that went with its seeds: 0 none, 1 all of it, above 1 more than that."""
        return 1 - self.fresh / self.search if self.search > 0 else math.nan


def luck_of(result: SearchResult) -> list[Luck]:
    """The leads over the baseline of the recipe, in the search and afterwards, of the finalists and other baselines."""
    assert result.recipe.search is not None
    longest = result.recipe.search.lengths(result.recipe.length)[-1]
    searched = {each.candidate.formula: each.loss(longest) for each in result.tried if each.is_baseline}
    searched |= {label: each.loss(longest) for label, each in result.finalists.items()}
    outcomes = {outcome.trial.activation.label: outcome for outcome in result.outcomes if outcome.trial.kind == "train"}
    losses = {label: (_loss(outcome, "validation"), _loss(outcome, "test")) for label, outcome in outcomes.items()}
    base = result.recipe.baseline
    return [
        Luck(label, searched[base] - loss, losses[base][0] - losses[label][0], losses[base][1] - losses[label][1])
        for label, loss in searched.items()
        if label != base and label in losses
    ]


def _loss(outcome: Outcome, part: str) -> float:
    """The mean loss over the seeds; infinite where one diverged."""
    scores: Mapping[str, Sequence[float | None]] = getattr(outcome, part)
    each = next((scores[name] for name in ("log_loss", "mse", "loss") if name in scores), ())
    finite = [loss for loss in each if loss is not None]
    return statistics.fmean(finite) if finite and len(finite) == len(each) else math.inf


def pareto(summary: Summary) -> list[Row]:
    """The rows that no other row beats or equals in accuracy, reproducibility and cost at once."""
    return [row for row in summary.judged if not any(_beats(other, row, summary) for other in summary.judged)]


def _beats(first: Row, second: Row, summary: Summary) -> bool:
    pairs = list(zip(_aims(first, summary), _aims(second, summary), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _aims(row: Row, summary: Summary) -> list[float]:
    """What is to be small: the metric (with its sign), the spread and the cost, those that were measured."""
    aims = []
    for measure in (summary.metric, summary.spread):
        result = None if measure is None else row.result(measure)
        if measure is not None and result is not None:
            aims.append(-result.value if measure.larger_is_better else result.value)
    return aims + ([] if row.cost is None else [row.cost.train_ratio.value])


# -- the page ---------------------------------------------------------------------------------------------


def write_page(result: SearchResult, place: str | os.PathLike[str], *, command: str) -> Path:
    """Write the page of a search into its folder, and the report of its judgement; where the page is."""
    folder = Folder(place)
    write_report_into(RunStore(Path(folder.url, JUDGEMENT)), command=command)
    out = Path(folder.url, REPORT)
    knees = write_knees(result, out)
    folder.write(f"{REPORT}/luck.svg", luck_figure(result).encode(), what="figure")
    judged = plane(result.summary)
    if judged is not None:
        drawn = svg_of(on_paper([judged]), label=judged.label, dark=True)
        folder.write(f"{REPORT}/plane.svg", drawn.encode(), what="figure")
    folder.write(f"{REPORT}/{PAGE}", render(result, knees, judged).encode(), what="page")
    return out / PAGE


def write_knees(result: SearchResult, out: Path) -> dict[str, Path]:
    """A definition file and a page of every finalist, by label."""
    out.mkdir(parents=True, exist_ok=True)
    knees = {}
    for label, each in result.finalists.items():
        name = label.replace(" ", "_")
        about = f"Found by a search among {counted(len(result.tried), 'function')}: {each.candidate.text}"
        act = each.candidate.definition().with_(name=name, about=about, recipe=each.candidate.text)
        knees[label] = sk.save(act, out / f"{name}.json")
    if knees:
        gallery.write(out, only=[str(path) for path in knees.values()])
    return knees


def render(result: SearchResult, knees: Mapping[str, Path], judged: Figure | None) -> str:
    """The page as Markdown."""
    parts = [
        f"# {result.recipe.title or result.recipe.name}",
        headline(result),
        "## How much was luck",
        luck_table(result).markdown(),
        "![Leads over the baseline in the search and afterwards](luck.svg)",
        "## Accuracy, reproducibility and cost",
        _front_table(result.summary).markdown(),
        *([f"![{judged.label}](plane.svg)", judged.caption] if judged is not None else []),
        f"The whole judgement: [report](../{JUDGEMENT}/report/index.html).",
        "## The finalists",
        _finalists_table(result, knees).markdown(),
        "## What was tried",
        _tried_table(result).markdown(),
        _dropped(result),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def headline(result: SearchResult) -> str:
    """What to do, what was done, and what came of the best candidate."""
    best = next((lead for lead in luck_of(result) if lead.label in result.finalists), None)
    seconds, base = duration(result.seconds), result.recipe.baseline
    drawn = [each for each in result.tried if not each.is_baseline]
    trained = sum(each.reason is None for each in drawn)
    sentences = [str(result.summary.recommendation or "")]
    sentences += [f"{counted(len(drawn), 'candidate')} were drawn, {trained} proved and trained, in {seconds}."]
    if best is not None:
        seeds = result.recipe.seeds.count
        sentences.append(
            f"In the search the best, {best.label}, was {_lead(best.search)} of {base} in validation loss; with "
            f"{seeds} fresh seeds on the same data it is {_lead(best.fresh)}, and on the test data {_lead(best.test)}."
        )
        if best.search > 0:
            share = min(max(best.share, 0.0), 1.0)
            sentences.append(f"Of its lead in the search {100 * share:.0f} % was the luck of the seeds.")
    return " ".join(filter(None, sentences))


def _lead(loss: float) -> str:
    return f"{abs(loss):.4f} {'ahead' if loss >= 0 else 'short'}"


def luck_table(result: SearchResult) -> Table:
    """The leads over the baseline, in the search and afterwards."""
    rows = [
        [lead.label, *(f"{value:+.4f}" for value in (lead.search, lead.fresh, lead.test)), _percent(lead.share)]
        for lead in luck_of(result)
    ]
    base = result.recipe.baseline
    return Table(
        head=["", "search", "fresh seeds", "test", "luck"],
        rows=rows,
        caption=f"Lead over {base} in loss: in the search, with fresh seeds on the same validation data, and on the "
        "test data. Luck is the share of the first that the second lacks.",
    )


def judged_table(result: SearchResult) -> Table:
    """The finalists and the baselines on the test data: the difference to the baseline of the recipe, what of the lead
    in the search was luck, and what a training step costs."""
    summary = result.summary
    metric, luck = summary.metric, {lead.label: lead for lead in luck_of(result)}
    verdicts = {row.label: row.verdicts[metric.name] for row in summary.judged if metric.name in row.verdicts}
    reaches = [wide for each in verdicts.values() if each.comparison.interval for wide in each.comparison.interval]
    places = place_of(metric.scale * max(map(abs, reaches), default=1.0), digits=3)
    timed = any(row.cost is not None for row in summary.judged)
    rows = []
    for row in summary.judged:
        score, verdict = row.result(metric), verdicts.get(row.label)
        compared = ["", "", ""]
        if verdict is not None:
            comparison = verdict.comparison
            difference = fixed(metric.scale * comparison.difference, places, signed=True)
            compared = [difference, interval_words(comparison.interval, places, scale=metric.scale), verdict.words]
        lucky = _percent(luck[row.label].share) if row.label in luck else ""
        costs = ["–" if row.cost is None else f"{row.cost.train_ratio.value:.2f}"] if timed else []
        tried = result.finalists.get(row.label)
        text = row.label if tried is None else f"{row.label}: `{tried.candidate.text}`"
        shown = "–" if score is None else fixed(metric.scale * score.value, places)
        rows.append([text, shown, *compared, lucky, *costs])
    unit = f", {metric.unit}" if metric.unit else ""
    step = [f"step / {summary.recipe.cost_baseline}"] if timed else []
    base = result.recipe.baseline
    return Table(
        head=["", f"{metric.title}{unit}", f"less {base}'s", "95 % interval", "verdict", "luck", *step],
        rows=rows,
        align="lrrrlr" + "r" * timed,
        markup=True,
        caption=f"Means of {counted(result.recipe.seeds.count, 'fresh seed')} on the test data. Luck is the share of "
        f"the lead over {base} in validation loss that the same data did not confirm with fresh seeds.",
    )


def overview_table(results: Mapping[str, SearchResult]) -> Table:
    """Several searches, a row each: what was drawn, proved and dropped, how long it took, and how many won."""
    rows = []
    for name, result in results.items():
        summary = result.summary
        reasons = [each.reason for each in result.tried if each.reason is not None]
        drawn = sum(not each.is_baseline for each in result.tried)
        unproved = sum(reason.startswith(UNPROVED) for reason in reasons)
        better = [row.label for row in summary.judged if _is_better(row, summary) and row.label in result.finalists]
        counts = (drawn, drawn - len(reasons), len(reasons) - unproved, unproved)
        rows.append([name, *counts, duration(result.seconds), f"{len(better)} of {len(result.finalists)}"])
    return Table(
        head=["search", "drawn", "trained", "refuted", "not proved in time", "took", "finalists shown to be better"],
        rows=rows,
        caption="Better than the baseline of the recipe on the test data with fresh seeds, by a paired test with "
        "Holm's correction.",
    )


def _is_better(row: Row, summary: Summary) -> bool:
    verdict = row.verdicts.get(summary.metric.name)
    return verdict is not None and verdict.words.endswith("better")


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.0f} %"


def _front_table(summary: Summary) -> Table:
    front = pareto(summary)
    measures = [measure for measure in (summary.metric, summary.spread) if measure is not None]
    timed = any(row.cost is not None for row in summary.judged)
    rows = []
    for row in summary.judged:
        results = [row.result(measure) for measure in measures]
        cells = [
            "–" if result is None else f"{measure.scale * result.value:.4g}"
            for measure, result in zip(measures, results, strict=True)
        ]
        costs = ["–" if row.cost is None else f"{row.cost.train_ratio.value:.2f}"] if timed else []
        rows.append([row.label, *cells, *costs, "yes" if row in front else ""])
    heads = [f"{measure.title}{f', {measure.unit}' if measure.unit else ''}" for measure in measures]
    return Table(
        head=["", *heads, *([f"training step / {summary.recipe.cost_baseline}"] if timed else []), "on the front"],
        rows=rows,
        caption="Means over the seeds on the test data. On the Pareto front stands what no other beats in all of them; "
        "means that are not told apart can stand on it by chance.",
    )


def _finalists_table(result: SearchResult, knees: Mapping[str, Path]) -> Table:
    rows = []
    for label, each in result.finalists.items():
        proof = each.certificate or {}
        limit = proof.get("limit") or "–"
        name = knees[label].stem
        constant = _shorter((proof.get("lipschitz") or {}).get("upper", "–"))
        smooth = proof.get("smoothness")
        links = f"[{label}]({name}.md)", f"`{each.candidate.text}`", f"[file]({name}.json)"
        rows.append([*links, constant, smooth, limit])
    return Table(
        head=["", "text", "file", "Lipschitz, at most", "continuous derivatives", "hard limit"],
        rows=rows,
        align="lllrrl",
        markup=True,
    )


def _shorter(decimal: str) -> str:
    """An upper bound to six digits, rounded up."""
    try:
        return f"{math.ceil(float(decimal) * 1e6 - 1e-6) / 1e6:g}"
    except (ValueError, OverflowError):
        return decimal


def _tried_table(result: SearchResult) -> Table:
    assert result.recipe.search is not None
    longest = result.recipe.search.lengths(result.recipe.length)[-1]
    by_form: dict[str, list[Tried]] = {}
    for each in result.tried:
        by_form.setdefault(each.candidate.form, []).append(each)
    rows = []
    for form, every in by_form.items():
        proved = [each for each in every if each.reason is None]
        best = min((each.loss(longest) for each in every), default=math.inf)
        formulas = len({each.candidate.formula for each in every})
        rows.append([form, len(every), formulas, len(proved), f"{best:.4f}" if best < math.inf else "–"])
    return Table(head=["form", "drawn", "formulas", "trained", "best validation loss"], rows=rows)


def _dropped(result: SearchResult) -> str:
    reasons = Counter(each.reason for each in result.tried if each.reason is not None)
    if not reasons:
        return "Nothing was dropped."
    lines = [f"- {count}: {reason}" for reason, count in reasons.most_common()]
    unproved = sum(count for reason, count in reasons.items() if reason.startswith(UNPROVED))
    head = f"{sum(reasons.values())} were dropped, {unproved} of them because no proof came in time:"
    return "\n".join([head, "", *lines])


# -- figures ----------------------------------------------------------------------------------------------


def luck_figure(result: SearchResult) -> str:
    """For each finalist and baseline its lead in the search, with fresh seeds, and on the test data."""
    stages = ["search", "fresh seeds", "test"]
    rows = [
        {"name": lead.label, "stage": stage, "lead": value}
        for lead in luck_of(result)
        for stage, value in zip(stages, (lead.search, lead.fresh, lead.test), strict=True)
        if math.isfinite(value)
    ]
    look, shown = looks(result.summary), list(dict.fromkeys(row["name"] for row in rows))
    encoding = {
        "x": {"field": "stage", "type": "nominal", "sort": stages, "axis": {"labelAngle": 0}, "title": None},
        "y": number("lead", title=f"lead over {result.recipe.baseline} in loss"),
        "color": by_name(shown, [look[name].colour for name in shown], legend=lines_legend()),
    }
    chart: Chart = {"width": 420, "height": 240, "layer": [rule_at(y=0), marks("line", rows, encoding, point=True)]}
    return svg_of(chart, label="Leads over the baseline in the search and afterwards", dark=True)
