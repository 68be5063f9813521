"""From outcomes to the content of a report: averages with intervals, verdicts, paths, bands. Nothing is drawn here.

A trial with a diverged seed has no averages at all: the survivors alone would make it look better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from ...errors import DataError
from ...measure.estimate import Estimate, Score, score
from ...measure.machine import Hardware, Versions
from ...measure.record import Quantity, Record, without_paths
from ...measure.significance import Comparison, compare_each, compare_sets, holm, may_be_best
from ...registry import get
from ...spec import Activation, SoftTable
from ..compare import wilson
from ..studies.reading import to_yaml
from ..studies.recipe import PAPER_MEASURES, Code, LanguageTask, Paper, Preference, Recipe, Value
from ..studies.trials import Outcome
from ..table import BETTER, SLIGHTLY, WORSE

EQUIVALENT, UNDECIDED = "equivalent", "no difference shown"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number that activations are compared by.

    name:    as in an outcome: "accuracy", "log_loss", "delta_1", ...
    title:   as in the head of a column.
    unit:    what stands behind its values when they are shown; those in "%" are stored as shares.
    logarithmic: it is seen by its order, and shown in powers of ten where a column has several.
    of_sets: it belongs to a set of models (a prediction difference), not to each model.
    bounds:  what it can be: an interval does not reach beyond.
    tolerance: the largest difference that does not matter, as stored, or `relative` to the baseline's value.
    margin:  the same as a difference, once there is a baseline; None where equivalence is not tested.
    """

    name: str
    title: str
    larger_is_better: bool
    unit: str = ""
    logarithmic: bool = False
    of_sets: bool = False
    bounds: tuple[float, float] = (0.0, math.inf)
    tolerance: float | None = None
    relative: bool = False
    margin: float | None = None

    @property
    def scale(self) -> float:
        """What values are multiplied by when they are shown."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def difference_unit(self) -> str:
        """What stands behind a difference, after a blank."""
        return {"%": " points", "": ""}.get(self.unit, f" {self.unit}")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A row against the baseline by one measure: row minus baseline.

    adjusted:    Holm's adjusted p over all rows of this measure.
    equivalence: Holm's adjusted p of the equivalence tests of this measure.
    words:       "better" or "worse", with "slightly" before it where the difference is shown to be within the margin;
                 "equivalent" where only that is shown; or "no difference shown".
    """

    comparison: Comparison
    adjusted: float | None
    equivalence: float | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The time of one step, and relative to the cost baseline; `key` names the record it is from."""

    key: str
    train: Quantity
    infer: Quantity
    train_ratio: Quantity
    infer_ratio: Quantity
    peak_memory: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One activation with one set of values.

    variant:     what of it is learned, whether it is hardened, which epoch is reported, and what it begins with at the
                 last place: values of a knob are a path within one variant.
    key:         names its record.
    diverged:    (seed, epoch) of each seed that diverged. Then there are no averages: `scores`, `differences` and
                 `verdicts` are empty, because a mean of the survivors would be of another, luckier study.
    best:        the measures by which it is the best, or not shown to be worse than the best.
    trained:     how many numbers of one model are trained; None where that is not known.
    inside:      measures inside the networks, averaged over sites: by title, as fractions or nats.
    """

    label: str
    name: str
    values: Mapping[str, Value]
    variant: tuple[bool | str | tuple[str, ...], bool, str | None, tuple[tuple[str, float], ...]]
    key: str
    seeds: tuple[int, ...]
    baseline: bool
    diverged: tuple[tuple[int, int], ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict)
    differences: Mapping[str, Estimate] = field(default_factory=dict)
    cost: Cost | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    best: frozenset[str] = frozenset()
    learning_rate: float = 0.0
    weight_decay: float = 0.0
    seconds: float = 0.0
    trained: int | None = None
    inside: Mapping[str, Score] = field(default_factory=dict)

    def number(self, parameter: str) -> float:
        """The value of a parameter that is a number."""
        return float(self.values[parameter])

    def result(self, measure: Measure) -> Score | Estimate | None:
        return self.differences.get(measure.name) if measure.of_sets else self.scores.get(measure.name)


@dataclass(frozen=True, kw_only=True)
class Knob:
    """Rows of one activation that differ in one parameter, in its order: the path through the plane."""

    name: str
    parameter: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Band:
    """A training curve of one row: the mean over seeds with its interval; or, where seeds diverged, each of them.

    epochs: the epoch of each point.
    cut:    the interval would have reached below 0, where no loss is, and goes down to the lowest seed instead.
    each:   [seed][epoch] of a row with diverged seeds, None from where a seed diverged; empty for all others.
    """

    label: str
    curve: str
    epochs: tuple[int, ...]
    middle: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    cut: bool = False
    each: tuple[tuple[float | None, ...], ...] = ()


Values = Mapping[str, float | tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An activation at one site as it started and as each seed left it: parameters by name, a table as a tuple.

    options: what it is called with beside them.
    """

    label: str
    name: str
    path: str
    start: Values
    ends: tuple[Values, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A parameter at one site after some epochs, epoch 0 being the start: mean, lowest and highest over seeds."""

    label: str
    path: str
    parameter: str
    epochs: tuple[int, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The knob of one row over depth; each of start, end and distance is [site][seed]."""

    label: str
    knob: str
    paths: tuple[str, ...]
    start: tuple[tuple[float, ...], ...]
    end: tuple[tuple[float, ...], ...]
    distance: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A hardened row before and after the limit took its activations' place; the change is after minus before."""

    label: str
    key: str
    limit: str
    before: Score
    after: Score
    change: Comparison
    changed: Score | None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One of the questions of every study, the row that answers it, and the rest of the sentence (from a comma on)."""

    question: str
    label: str
    words: str

    def __str__(self) -> str:
        return f"{self.question}: {self.label}{self.words}"


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What to do, in a sentence, and why: what the tests against the baseline show, and how sure they are."""

    advice: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.advice, *self.reasons))


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A number of a paper and ours, in the unit that is shown.

    value, interval: the mean over seeds, the geometric mean, or the difference of all models, and where it lies; None
             where seeds diverged, or where the activation was not run.
    verdict: "better", "worse", "as in the paper (inside our interval)", or why there is none.
    """

    label: str
    key: str | None
    paper: float
    value: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int
    diverged: int
    verdict: str


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One measure of a paper, its numbers and ours.

    average:      "mean" or "geometric mean", over seeds; "all models together" of a prediction difference.
    paper_places: decimals of the paper's numbers; None for powers of ten.
    places:       decimals of ours.
    best:         who is best there and here, in a sentence; empty of what has no best.
    """

    measure: Measure
    average: str
    rows: tuple[PaperRow, ...]
    paper_places: int | None
    places: int | None
    best: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All that a report shows.

    metric:    the measure of how good a model is: accuracy, or the mean squared error of a regression.
    spread:    the measure of how reproducible: the prediction difference Delta_1; None where it was not measured.
    measures:  all measures, these two among them.
    recommendation: what a reader should do; None where there is no baseline to keep, or nothing beside it.
    sentences: the most accurate, the most reproducible and the cheapest.
    notes:     what a reader must know: diverged trials, a baseline that is not there.
    paper_tables: the numbers of a paper and ours, a measure each; empty where the recipe names none.
    """

    recipe: Recipe
    metric: Measure
    spread: Measure | None
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    baseline: Row | None
    knobs: tuple[Knob, ...]
    bands: tuple[Band, ...]
    shapes: tuple[Shape, ...]
    trajectories: tuple[Trajectory, ...]
    profiles: tuple[Profile, ...]
    replacements: tuple[Replacement, ...]
    recommendation: Recommendation | None
    sentences: tuple[Answer, ...]
    notes: tuple[str, ...]
    seconds: float
    paper_tables: tuple[PaperTable, ...] = ()

    @property
    def judged(self) -> tuple[Row, ...]:
        """The rows that have averages: no seed of them diverged."""
        return tuple(row for row in self.rows if not row.diverged)


DASH = "–"
_DECADES = 100.0  # the ratio from which on no number of decimals suits all of a column


def minus(text: str) -> str:
    return text.replace("-", "−")


def plain(value: float) -> str:
    """A parameter's value: 0.5, 2, 1e−05."""
    return minus(f"{value:.4g}")


def reach(result: Score | Estimate) -> float | None:
    """How far the interval goes from the value, to the side where nothing bounds it."""
    return (
        None if result.interval is None else max(result.value - result.interval[0], result.interval[1] - result.value)
    )


def decimals(results: Iterable[Score | Estimate], *, scale: float = 1.0) -> int:
    """Digits behind the point for a column: two that count in its typical interval; of none, three in the values."""
    shown = [result for result in results if result is not None]
    widths = sorted(scale * wide for result in shown if (wide := reach(result)))
    if widths:
        return place_of(widths[len(widths) // 2])
    sizes = sorted(abs(scale * result.value) for result in shown if result.value)
    return place_of(sizes[len(sizes) // 2], digits=3) if sizes else 2


def column_places(results: Iterable[Score | Estimate], *, scale: float = 1.0, logarithmic: bool = False) -> int | None:
    """`decimals`, or None for powers of ten: of a quantity that is seen by its order where a column has several."""
    shown = list(results)
    sizes = [abs(result.value) for result in shown if result.value]
    if logarithmic and sizes and (max(sizes) > _DECADES * min(sizes) or max(sizes) < 1 / _DECADES):
        return None
    return decimals(shown, scale=scale)


def place_of(size: float, *, digits: int = 2) -> int:
    """How many decimals show this size with that many digits: 0.034 with two has three."""
    return min(8, max(0, digits - 1 - math.floor(math.log10(size))))


def fixed(value: float, places: int | None, *, signed: bool = False) -> str:
    """A number with that many decimals; what rounds to zero has no sign. None: as a power of ten, 1.0e−02."""
    if places is None:
        return minus(f"{value:+.1e}" if signed else f"{value:.1e}")
    text = f"{value:.{places}f}"
    if float(text) == 0:
        return text.lstrip("-")
    return minus(f"{value:+.{places}f}" if signed else text)


def with_reach(result: Score | Estimate | None, places: int | None, *, scale: float = 1.0) -> str:
    """`97.31 ± 0.22`, the 95 % interval being 0.22 to either side; a dash for None."""
    if result is None:
        return DASH
    wide = reach(result)
    value = fixed(scale * result.value, places)
    return value if wide is None else f"{value} ± {fixed(scale * wide, places)}"


def interval_words(interval: tuple[float, float] | None, places: int | None, *, scale: float = 1.0) -> str:
    """`[97.09, 97.53]`, or a dash."""
    if interval is None:
        return DASH
    return f"[{fixed(scale * interval[0], places)}, {fixed(scale * interval[1], places)}]"


def probability(p: float | None) -> str:
    """A p value: 0.032, < 0.0001, or a dash."""
    if p is None:
        return DASH
    if p < 1e-4:
        return "< 0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    every = list(words)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}" if every else ""


FAR = 2.0
"""Further from the rest than this many times the width of the rest, which would have a third of the picture."""
_MOST = 0.2  # of the points may be left out
_FEWEST = 5  # have to stay


def outside(values: Sequence[float]) -> set[int]:
    """The places of the values that are too far from the rest, at one end or at both: a fifth of them at most.

    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
    {5}
    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 12.0])
    set()
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    most = min(int(_MOST * len(order)), len(order) - _FEWEST)
    for gone in range(most, 0, -1):
        for below in range(gone, -1, -1):
            first, last = below, len(order) - (gone - below) - 1
            low, high = values[order[first]], values[order[last]]
            under = low - values[order[first - 1]] if below else math.inf
            over = values[order[last + 1]] - high if below < gone else math.inf
            if 0 < FAR * (high - low) < min(under, over):
                return {*order[:first], *order[last + 1 :]}
    return set()


# What does not matter: half a point of accuracy, 0.1 dB; of losses and differences a share of the baseline's.
_PERCENT: dict[str, Any] = {"unit": "%", "tolerance": 0.005}
_SHARE: dict[str, Any] = {**_PERCENT, "bounds": (0.0, 1.0)}
_LOSS: dict[str, Any] = {"larger_is_better": False, "tolerance": 0.05, "relative": True}
_ANY = (-math.inf, math.inf)
_CODERS = {"entropy": "entropy", "huffman": "Huffman", "rans": "range coder", "packed": "packed"}
# What was done to a language model before its loss was measured.
_AFTER = {
    "": "",
    "_replaced": " with ReLU",
    "_recovered": " with ReLU, recovered",
    "_layerwise": " with ReLU, layer by layer",
    "_continued": " after as many more steps",
}
_SCORES = (
    Measure(name="accuracy", title="test accuracy", larger_is_better=True, **_SHARE),
    Measure(name="psnr", title="PSNR", larger_is_better=True, unit="dB", bounds=_ANY, tolerance=0.1),
    Measure(name="mse", title="mean squared error", logarithmic=True, **_LOSS),
    Measure(name="r2", title="R²", larger_is_better=True, bounds=(-math.inf, 1.0), **_PERCENT),
    Measure(name="ssim", title="SSIM", larger_is_better=True, bounds=(-1.0, 1.0), tolerance=0.005),
    Measure(name="log_loss", title="log loss", unit="nats", **_LOSS),
    Measure(name="auc", title="AUC", larger_is_better=True, **_SHARE),
    Measure(name="calibration_error", title="calibration error", larger_is_better=False, **_SHARE),
    Measure(name="accuracy_sampled", title="accuracy as SQUAF-P", larger_is_better=True, unit="%"),
    Measure(name="accuracy_soft", title="accuracy as SQUAF", larger_is_better=True, unit="%"),
    Measure(name="accuracy_step", title="accuracy as SQUAF-S", larger_is_better=True, unit="%"),
    Measure(name="bits", title="bits per activation (rate)", larger_is_better=False, unit="bits"),
    *(
        Measure(name=f"{mode}bits_{coder}", title=f"{title}{words}", larger_is_better=False, unit="bits")
        for mode, words in (("", ""), ("step_", ", SQUAF-S"))
        for coder, title in _CODERS.items()
    ),
    Measure(name="outside", title="inputs beyond the grid", larger_is_better=False, unit="%"),
    *(
        Measure(name=f"{name}{after}", title=f"{title}{words}", larger_is_better=False, unit=unit)
        for name, title, unit in (
            ("loss", "loss", "nats"),
            ("perplexity", "perplexity", ""),
            ("word_perplexity", "perplexity per word", ""),
        )
        for after, words in _AFTER.items()
    ),
    Measure(name="reward_accuracy", title="reward accuracy", larger_is_better=True, unit="%", bounds=(0.0, 1.0)),
    Measure(name="reward_margin", title="reward margin", larger_is_better=True, unit="nats", bounds=_ANY),
    Measure(name="evaluation_loss", title="evaluation loss", larger_is_better=False, unit="nats"),
    Measure(name="chosen_reward", title="chosen reward", larger_is_better=True, unit="nats", bounds=_ANY),
    Measure(name="rejected_reward", title="rejected reward", larger_is_better=False, unit="nats", bounds=_ANY),
    Measure(name="perplexity_sft", title="perplexity of replies after SFT", larger_is_better=False),
    Measure(name="perplexity_dpo", title="perplexity of replies after DPO", larger_is_better=False),
)
_OF_SETS: dict[str, Any] = {"larger_is_better": False, "of_sets": True, "tolerance": 0.1, "relative": True}
_DIFFERENCES = (
    Measure(name="delta_1", title="prediction difference Δ₁", **_OF_SETS),
    Measure(name="delta_2", title="Δ₂", **_OF_SETS),
    Measure(name="relative", title="relative Δ₁", **_OF_SETS),
    Measure(name="binary", title="Δ₁ relative to the positive label", **_OF_SETS),
    Measure(name="true_label", title="Δ₁ of the true label", **_OF_SETS),
    Measure(name="hamming", title="labels that differ", larger_is_better=False, of_sets=True, **_PERCENT),
)
# How many numbers of one model are trained: no score of a seed, but what a paper reports beside its scores.
PARAMETERS = Measure(name="parameters", title="trained parameters", larger_is_better=False)

_BETA = " beta="  # with several betas of DPO, each number has its own


def score_called(name: str) -> Measure:
    """The score or the prediction difference of that name, as an outcome has it."""
    base, _, beta = name.partition(_BETA)
    measure = next(measure for measure in (*_SCORES, *_DIFFERENCES) if measure.name == base)
    return replace(measure, name=name, title=f"{measure.title}, β = {beta}") if beta else measure


def measured(outcomes: Iterable[Outcome]) -> tuple[Measure, ...]:
    """The measures that any of the outcomes has, in the order they are shown; unknown ones come last."""
    every = list(outcomes)
    scores = _known_measures(_SCORES, (name for outcome in every for name in outcome.test))
    differences = _known_measures(_DIFFERENCES, (name for outcome in every for name in outcome.difference), **_OF_SETS)
    return (*scores, *differences)


def _known_measures(known: Sequence[Measure], names: Iterable[str], **usual: Any) -> list[Measure]:
    """`usual` is what is taken for granted of a measure that is not known."""
    order = {measure.name: place for place, measure in enumerate(known)}
    places = {name: order.get(name.partition(_BETA)[0], len(known)) for name in names}
    return [
        score_called(name)
        if places[name] < len(known)
        else Measure(name=name, title=name.replace("_", " "), **{"larger_is_better": False, **usual})
        for name in sorted(places, key=places.__getitem__)
    ]


def with_margin(measure: Measure, baseline: float) -> Measure:
    """The measure with what does not matter in it, given what the baseline has."""
    if measure.tolerance is None:
        return measure
    return replace(measure, margin=measure.tolerance * (abs(baseline) if measure.relative else 1.0) or None)


def margin_words(measure: Measure) -> str:
    """The margin in words, for a caption."""
    if measure.tolerance is None:
        return ""
    if measure.relative:
        return f"{100 * measure.tolerance:g} % of the baseline's"
    return f"{measure.scale * measure.tolerance:g}{measure.difference_unit or ' points'}"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a report comes from, as text; the facts are (name, words), several machines or versions several of them."""

    command: str
    recipe: str
    facts: Sequence[tuple[str, str]]


def origin_of(recipe: Recipe, *, command: str, records: Sequence[Record] = ()) -> Origin:
    """From the records of the trials; without any, of the machine that this runs on."""
    machines = [record.hardware for record in records] or [Hardware.here()]
    versions = [record.versions for record in records] or [Versions.here()]
    days = sorted(record.created.replace("T", " ").replace("Z", " UTC") for record in records)
    facts = [("Seeds", ", ".join(str(seed) for seed in recipe.seeds.numbers))]
    facts += [("Hardware", words) for words in dict.fromkeys(machine.sentence() for machine in machines)]
    facts += [("Versions", words) for words in dict.fromkeys(version.sentence() for version in versions)]
    facts += [("Measured", " to ".join(dict.fromkeys((days[0], days[-1]))))] if days else []
    return Origin(command=without_paths(command), recipe=to_yaml(recipe), facts=facts)


_ALPHA = 0.05  # of tests; intervals are of 95 %
_NAMED = 4  # rivals that a sentence lists; more are counted


def sentences_of(
    rows: Sequence[Row], metric: Measure, spread: Measure | None, cost_baseline: str
) -> tuple[Answer, ...]:
    """The most accurate, the most reproducible and the cheapest, a sentence each."""
    able = [row for row in rows if not row.diverged]
    title = "Most accurate" if metric.name == "accuracy" else f"Best by {metric.title}"
    second = "Most reproducible" if spread is None or spread.of_sets else f"Best by {spread.title}"
    answers = [_by_measure(able, question, measure) for question, measure in ((title, metric), (second, spread))]
    return tuple(answer for answer in (*answers, _by_cost(able, cost_baseline)) if answer)


def _by_measure(rows: Sequence[Row], question: str, measure: Measure | None) -> Answer | None:
    if measure is None or (ranking := best_and_rivals(rows, measure)) is None:
        return None
    best, rivals = ranking
    had = [result for row in rows if (result := row.result(measure)) is not None]
    places = column_places(had, scale=measure.scale, logarithmic=measure.logarithmic)
    unit = f"\u00a0{measure.unit}" if measure.unit else ""
    number = with_reach(best.result(measure), places, scale=measure.scale).replace(" ", "\u00a0")
    others, seeds = len(had) - 1, len(best.seeds)
    if not others:
        rest = "; there is no other activation to compare it with."
    elif seeds < (4 if measure.of_sets else 2):
        rest = f"; {counted(seeds, 'seed')} {'is' if seeds == 1 else 'are'} too few to tell activations apart."
    elif not rivals:
        rest = "; every other activation is shown to be worse."
    else:
        all_others = "any other activation" if len(rivals) == others else _named(rivals)
        rest = f", but these seeds do not tell it apart from {all_others}."
    return Answer(question=question, label=best.label, words=f", with {measure.title} {number}{unit}{rest}")


def _by_cost(rows: Sequence[Row], cost_baseline: str) -> Answer | None:
    timed = [(row, row.cost.train_ratio) for row in rows if row.cost is not None]
    if not timed:
        return None
    best, ratio = min(timed, key=lambda pair: pair[1].value)
    near = [row for row, other in timed if row is not best and other.low <= ratio.high]
    lead = f", whose training step takes {fixed(ratio.value, 2)} times that of {cost_baseline}"
    if not near:
        rest = "; the quartiles of all others lie above." if len(timed) > 1 else "."
    elif len(near) == len(timed) - 1:
        rest = ", but the quartiles of all others overlap with its own."
    else:
        rest = f", but its quartiles overlap with those of {_named(near)}."
    return Answer(question="Cheapest", label=best.label, words=lead + rest)


def _named(rows: Sequence[Row]) -> str:
    names = [row.label for row in rows[:_NAMED]]
    more = len(rows) - len(names)
    return listed([*names, counted(more, "other")] if more else names)


def recommend(
    rows: Sequence[Row], baseline: Row | None, metric: Measure, spread: Measure | None
) -> Recommendation | None:
    """What the tests against the baseline say to do: use what is shown to be better, or else keep the baseline.

    A difference that is shown to be too small to matter is no reason to change. Where the baseline is kept, what is as
    good and shown to be more reproducible, or cheaper, is named beside it.
    """
    others = [row for row in rows if row is not baseline and metric.name in row.verdicts]
    if baseline is None or baseline.diverged or not others:
        return None
    verdicts = {row.label: row.verdicts[metric.name] for row in others}
    if len(baseline.seeds) < 2:
        return Recommendation(
            advice=f"Keep {baseline.label} for now.",
            reasons=("One seed shows no spread, so nothing can be told apart: run at least five.",),
        )
    more = "more accurate" if metric.name == "accuracy" else f"better by {metric.title}"
    better = [row for row in others if verdicts[row.label].words == BETTER]
    slightly = [row for row in others if verdicts[row.label].words == SLIGHTLY + BETTER]
    same = [row for row in others if verdicts[row.label].words == EQUIVALENT] + slightly
    open_rows = [row for row in others if verdicts[row.label].words == UNDECIDED]
    reasons = []
    if better:
        best, rivals = best_and_rivals(better, metric) or (better[0], ())
        advice = f"Use {best.label}."
        lead = _difference_words(verdicts[best.label], metric)
        reasons.append(f"It is shown to be {more} than {baseline.label}: {lead}.")
        if rivals:
            reasons.append(f"{_named(rivals)} {_verb(rivals)} {more} too, and not shown to be worse than {best.label}.")
        costs = best.cost, baseline.cost
        if costs[0] and costs[1] and costs[0].train_ratio.low > costs[1].train_ratio.high:
            times = costs[0].train_ratio.value / costs[1].train_ratio.value
            reasons.append(f"A training step takes {fixed(times, 2)} times as long.")
    else:
        advice = f"Keep {baseline.label}."
        by = f" by more than {margin_words(metric)}" if slightly else ""
        reasons.append(f"Nothing here is shown to be {more}{by}.")
        reasons += _beside(same, baseline, metric, spread)
    if open_rows:
        ends = [verdicts[row.label].comparison.interval or () for row in open_rows]
        reach = max((abs(end) for interval in ends for end in interval), default=0.0)
        hidden = f": a difference of up to {_amount(reach, metric)} may hide there" if reach else ""
        seeds = counted(len(baseline.seeds), "seed")
        reasons.append(f"With {seeds} {_named(open_rows)} cannot be told from {baseline.label}{hidden}.")
    return Recommendation(advice=advice, reasons=tuple(reasons))


def _beside(same: Sequence[Row], baseline: Row, metric: Measure, spread: Measure | None) -> list[str]:
    """What is as good as the baseline, with what speaks for it."""
    if not same:
        return []
    good = "as accurate" if metric.name == "accuracy" else f"as good by {metric.title}"
    within = f" (within {margin_words(metric)})"
    steady = []
    if spread is not None:
        shown = [row for row in same if (v := row.verdicts.get(spread.name)) and v.words.endswith(BETTER)]
        sign = -1 if spread.larger_is_better else 1
        steady = sorted(shown, key=lambda row: sign * row.verdicts[spread.name].comparison.difference)
    most = baseline.cost.train_ratio.low if baseline.cost else -math.inf
    cheap = [row for row in same if row not in steady and row.cost and row.cost.train_ratio.high < most]
    rest = [row for row in same if row not in steady and row not in cheap]
    reproducible = "more reproducible" if spread is None or spread.of_sets else f"better by {spread.title}"
    lines = []
    for group, also in ((steady, f" and {reproducible}"), (cheap, " and cheaper"), (rest, "")):
        if group:
            lines.append(f"{_named(group)} {_verb(group)} {good}{within}{also}.")
            within = ""
    if steady and spread is not None and spread.of_sets:
        lines.append(f"Use {steady[0].label} where predictions must not change from one training to the next.")
    return lines


def _verb(rows: Sequence[Row]) -> str:
    return "is" if len(rows) == 1 else "are"


def _amount(value: float, measure: Measure) -> str:
    """A difference by a measure as a reader says it: 0.4 points."""
    size = measure.scale * value
    return f"{fixed(size, place_of(size)) if size else 0}{measure.difference_unit}"


def _difference_words(verdict: Verdict, measure: Measure) -> str:
    comparison = verdict.comparison
    size = abs(measure.scale * comparison.difference)
    low, high = comparison.interval or (comparison.difference, comparison.difference)
    places = place_of(measure.scale * (high - low) / 2) if high > low else place_of(size or 1.0)
    number = fixed(measure.scale * comparison.difference, places, signed=True)
    interval = interval_words(comparison.interval, places, scale=measure.scale)
    p = probability(verdict.adjusted)
    p = p if p.startswith("<") else f"= {p}"
    return f"{number}{measure.difference_unit}, 95 % interval {interval}, p {p} after Holm's correction"


def notes_of(recipe: Recipe, outcomes: Sequence[Outcome], rows: Sequence[Row], baseline: Row | None) -> tuple[str, ...]:
    """What a reader must know: the teacher, how examples were judged, diverged trials, what could not be compared."""
    notes = []
    for outcome in outcomes:
        if outcome.trial.kind == "teacher" and (accuracy := outcome.test["accuracy"][0]) is not None:
            build = outcome.trial.model.build
            notes.append(f"The teacher, {build}, has a test accuracy of {100 * accuracy:.2f} %.")
    if (share := recipe.training.progressive) is not None:
        which = "all" if share == 1 else f"the last {100 * share:g} % of the"
        notes.append(
            f"Progressive validation: the scores and differences are of {which} training examples, each predicted "
            "before it was trained on, in a single pass; no test example was read."
        )
    if isinstance(recipe.task, Preference):
        pairs, (name, _) = recipe.task.evaluation_pairs, first_measures(recipe)
        for row in [row for row in rows if name in row.scores][:1]:
            # How much an accuracy of so few pairs says: Wilson's interval of a single run.
            right = round(pairs * row.scores[name].each[0])
            low, high = (100 * end for end in wilson(right, pairs))
            notes.append(
                f"Reward accuracies are shares of {pairs} pairs: {row.label} with seed {row.seeds[0]} prefers {right} "
                f"of them, of which Wilson's 95 % interval goes from {low:.1f} to {high:.1f} %."
            )
    for row in rows:
        if row.diverged:
            gone = listed(f"seed {seed} in epoch {epoch}" for seed, epoch in row.diverged)
            share = f"{len(row.diverged)} of {counted(len(row.seeds), 'seed')}"
            notes.append(
                f"{row.label} diverged with {share} ({gone}). It has a dash in place of averages: those of the "
                "other seeds alone would flatter it."
            )
    if baseline is None or baseline.diverged:
        why = "is not among the activations" if baseline is None else "diverged"
        notes.append(f"The baseline {recipe.baseline} {why}, so there is nothing to test against.")
    return tuple(notes)


def compare(row: Row, other: Row, measure: Measure) -> Comparison | None:
    """Row minus other by a measure, seed by seed over the seeds that both have; None where one has no such number."""
    if measure.of_sets:
        first, second = row.differences.get(measure.name), other.differences.get(measure.name)
        if first is None or second is None or row.seeds != other.seeds:
            return None
        return compare_sets(first, second, margin=measure.margin)
    mine, theirs = (
        dict(zip(side.seeds, side.scores[measure.name].each, strict=True)) if measure.name in side.scores else {}
        for side in (row, other)
    )
    seeds = [seed for seed in mine if seed in theirs]
    pairs = [mine[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    return compare_each(*pairs, margin=measure.margin) if seeds else None


def against_baseline(rows: Sequence[Row], baseline: Row, measure: Measure) -> Mapping[str, Verdict]:
    """The verdict on every other row that can be compared, by its label; the tests of one measure are one family."""
    others = [row for row in rows if row is not baseline]
    comparisons = {row.label: compared for row in others if (compared := compare(row, baseline, measure))}
    adjusted = holm([comparison.p for comparison in comparisons.values()])
    equivalent = holm([comparison.equivalence for comparison in comparisons.values()])
    verdicts = {}
    for (label, comparison), p, same in zip(comparisons.items(), adjusted, equivalent, strict=True):
        small = same is not None and same <= _ALPHA
        words = EQUIVALENT if small else UNDECIDED
        if p is not None and p <= _ALPHA:
            better = (comparison.difference > 0) == measure.larger_is_better
            words = SLIGHTLY * small + (BETTER if better else WORSE)
        verdicts[label] = Verdict(comparison=comparison, adjusted=p, equivalence=same, words=words)
    return verdicts


def best_and_rivals(rows: Sequence[Row], measure: Measure) -> tuple[Row, tuple[Row, ...]] | None:
    """The best row by a measure, and the others that are not shown to be worse; None where no row has the measure.

    Where the best is the baseline its tests were planned; see `may_be_best`.
    """
    had = {row.label: result.value for row in rows if (result := row.result(measure)) is not None}
    if not had:
        return None
    sign = 1 if measure.larger_is_better else -1
    able = [row for row in rows if row.label in had]
    best = max(able, key=lambda row: sign * had[row.label])
    others = [row for row in able if row is not best]
    tested = [None if (comparison := compare(row, best, measure)) is None else comparison.p for row in others]
    rivals = may_be_best(tested, planned=best.baseline)
    return best, tuple(row for row, may in zip(others, rivals, strict=True) if may)


SAME, SAME_INTERVAL = "as in the paper", "as in the paper (inside our interval)"
_MEAN, _GEOMETRIC, ALL_MODELS = "mean", "geometric mean", "all models together"
_SPREAD = 10.0  # from the smallest seed to the largest: a decade
_FEWEST_DIGITS = 2  # that a paper shows of a quantity in powers of ten
_MORE_PLACES = 2  # decimals that ours may have beyond the paper's


def compare_with_paper(paper: Paper | None, rows: Sequence[Row]) -> tuple[PaperTable, ...]:
    """A table for each measure of the paper, in the order of the report; empty where there is none."""
    if paper is None:
        return ()
    by_label = {row.label: row for row in rows}
    printed = dict.fromkeys(name for values in paper.values.values() for name in values)
    tables = []
    for name in sorted(printed, key=lambda name: PAPER_MEASURES.index(name.partition(" beta=")[0])):
        numbers = {label: values[name] for label, values in paper.values.items() if name in values}
        make = _counts if name == PARAMETERS.name else _scores
        tables.append(make(PARAMETERS if make is _counts else score_called(name), numbers, by_label))
    return tuple(tables)


def _scores(measure: Measure, numbers: Mapping[str, float], rows: Mapping[str, Row]) -> PaperTable:
    had = {label: result for label in numbers if label in rows and (result := rows[label].result(measure))}
    scores = [result.each for result in had.values() if isinstance(result, Score)]
    # Where the seeds of any activation spread over decades, and all have a logarithm.
    wide = any(max(each) > _SPREAD * min(each) for each in scores)
    logs = measure.logarithmic and wide and all(min(each) > 0 for each in scores)
    shown = {label: _shown(result, measure, logs=logs) for label, result in had.items()}
    places = None if measure.logarithmic else max(_decimals(number) for number in numbers.values())
    own = None if places is None else min(max(places, decimals(shown.values())), places + _MORE_PLACES)
    compared = []
    for (label, number), half in zip(numbers.items(), _half_units(list(numbers.values()), places), strict=True):
        row, ours = rows.get(label), shown.get(label)
        if ours is not None:
            verdict = _verdict(number, ours, measure, half)
        elif row is None:
            verdict = "not run"
        else:
            gone = len(row.diverged)
            verdict = f"{gone} of {counted(len(row.seeds), 'seed')} diverged" if gone else "not measured"
        value, interval = (None, None) if ours is None else (ours.value, ours.interval)
        compared.append(_paper_row(label, number, row, verdict, value=value, interval=interval))
    values = {label: result.value for label, result in shown.items()}
    return PaperTable(
        measure=measure,
        average=ALL_MODELS if measure.of_sets else _GEOMETRIC if logs else _MEAN,
        rows=tuple(compared),
        paper_places=places,
        places=own,
        best=f"Best by {measure.title}: {_best(numbers, measure)} in the paper, {_best(values, measure)} here.",
    )


def _counts(measure: Measure, numbers: Mapping[str, float], rows: Mapping[str, Row]) -> PaperTable:
    """The number of trained parameters, the same for every seed."""
    compared = []
    for label, number in numbers.items():
        row = rows.get(label)
        ours = None if row is None else row.trained
        verdict = "not known" if ours is None else SAME if ours == number else "more" if ours > number else "fewer"
        compared.append(_paper_row(label, number, row, verdict, value=ours))
    return PaperTable(measure=measure, average="", rows=tuple(compared), paper_places=0, places=0, best="")


def _paper_row(label: str, number: float, row: Row | None, verdict: str, **ours: Any) -> PaperRow:
    key, seeds, gone = (None, 0, 0) if row is None else (row.key, len(row.seeds), len(row.diverged))
    return PaperRow(label=label, key=key, paper=number, seeds=seeds, diverged=gone, verdict=verdict, **ours)


def _verdict(number: float, ours: Score, measure: Measure, half: float) -> str:
    low, high = ours.interval or (ours.value, ours.value)
    slack = 1e-9 * abs(number)  # what a decimal number and its float differ by
    if low - half - slack <= number <= high + half + slack:
        return SAME if ours.interval is None else SAME_INTERVAL
    return BETTER if (ours.value > number) == measure.larger_is_better else WORSE


def _shown(result: Score | Estimate, measure: Measure, *, logs: bool) -> Score:
    """The average, or the difference of all models together, with its interval, in the unit that is shown."""
    each = result.each if isinstance(result, Score) else ()
    scale, interval = measure.scale, result.interval
    if not logs:
        ends = None if interval is None else (scale * interval[0], scale * interval[1])
        return Score(scale * result.value, None, ends, each, measure.larger_is_better)
    over = score([math.log(scale * value) for value in each], larger_is_better=False)
    ends = None if over.interval is None else (math.exp(over.interval[0]), math.exp(over.interval[1]))
    return Score(math.exp(over.value), None, ends, each, measure.larger_is_better)


def _decimals(number: float) -> int:
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _half_units(numbers: Sequence[float], places: int | None) -> list[float]:
    """Half of the last digit of each number: as far as rounding may have moved it."""
    if places is not None:
        return [0.5 * 10.0**-places] * len(numbers)
    digits = max(_FEWEST_DIGITS, *(len(Decimal(repr(number)).normalize().as_tuple().digits) for number in numbers))
    return [0.5 * 10.0 ** (math.floor(math.log10(abs(number))) + 1 - digits) if number else 0.0 for number in numbers]


def _best(values: Mapping[str, float], measure: Measure) -> str:
    if not values:
        return "none"
    best = (max if measure.larger_is_better else min)(values.values())
    return listed(label for label, value in values.items() if value == best)


_INSIDE = {
    "zero_fraction": "outputs exactly 0",
    "dead_fraction": "dead units",
    "entropy": "entropy of inputs",
}


def has_diverged(outcome: Outcome) -> bool:
    return any(epoch is not None for epoch in outcome.diverged)


def bands_of(outcome: Outcome) -> list[Band]:
    """Each training curve: mean and interval over seeds; every seed for itself where one diverged."""
    label, bands = outcome.trial.activation.label, []
    for name, curve in outcome.curves.items():
        if all(value is None for row in curve for value in row):
            continue  # there is nothing to draw
        if has_diverged(outcome):
            each = tuple(tuple(row[seed] for row in curve) for seed in range(len(outcome.diverged)))
            bands.append(Band(label=label, curve=name, epochs=outcome.noted, each=each))
        else:
            points = [score([_number(value) for value in row], larger_is_better=False) for row in curve]
            middle = tuple(point.value for point in points)
            low, high = zip(*(point.interval or (point.value, point.value) for point in points), strict=True)
            cut = name.endswith("loss") and min(low) <= 0
            if cut:
                low = tuple(min(point.each) if end <= 0 else end for end, point in zip(low, points, strict=True))
            bands.append(
                Band(label=label, curve=name, epochs=outcome.noted, middle=middle, low=low, high=high, cut=cut)
            )
    return bands


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def shapes_of(outcome: Outcome) -> list[Shape]:
    """The activation at each site whose parameters moved, where the outcome has all that its formula needs.

    A table has an entry of `parameters` for each of its numbers; one that never moved has none, and no shape is made.
    """
    activation = outcome.trial.activation
    try:
        act = get(activation.name)
    except KeyError:  # of a package that is not installed here, or a module without a definition
        return []
    if not isinstance(act, Activation | SoftTable):
        return []
    params = {p.name for p in act.params}
    known: dict[str, Any] = {p.name: p.start for p in act.params} if isinstance(act, Activation) else {}
    given: dict[str, Any] = {name: value for name, value in activation.values.items() if isinstance(value, int | float)}
    known |= {name: float(value) for name, value in given.items() if name in params}
    options = (
        {name: value for name, value in given.items() if name in act.options} if isinstance(act, SoftTable) else {}
    )
    sites: dict[str, dict[str, list[str]]] = {}
    for key in outcome.parameters:
        path, _, entry = key.rpartition(".")
        name = entry.partition("[")[0]
        if name in params:
            sites.setdefault(path, {}).setdefault(name, []).append(key)
    shapes = []
    for path, names in sites.items():
        if isinstance(act, SoftTable) and len(names.get("z", ())) != 2 * options.get("k", act.options["k"]) + 1:
            continue
        start = known | _values(names, {key: moved["start"] for key, moved in outcome.parameters.items()})
        ends = [
            known | _values(names, {key: moved["end"][seed] for key, moved in outcome.parameters.items()})
            for seed in range(len(outcome.diverged))
            if all(outcome.parameters[key]["end"][seed] is not None for keys in names.values() for key in keys)
        ]
        if ends:
            shape = Shape(
                label=activation.label, name=activation.name, path=path, start=start, ends=tuple(ends), options=options
            )
            shapes.append(shape)
    return shapes


def _values(names: Mapping[str, Sequence[str]], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Of each parameter its number, or those of its table; `names` has the keys of `numbers` for each."""
    return {
        name: tuple(float(numbers[key]) for key in keys) if keys[0].endswith("]") else float(numbers[keys[0]])
        for name, keys in names.items()
    }


def trajectories_of(outcome: Outcome) -> list[Trajectory]:
    """Every parameter that moved, epoch by epoch."""
    trajectories = []
    for key, moved in outcome.parameters.items():
        path, _, name = key.rpartition(".")
        starts = [float(start) for start in moved.get("starts") or [moved["start"]]]
        epochs = [starts, *([value for value in row if value is not None] for row in moved["curve"])]
        if all(epochs) and len(epochs) > 1:
            trajectories.append(
                Trajectory(
                    label=outcome.trial.activation.label,
                    path=path,
                    parameter=name,
                    epochs=(0, *outcome.noted),
                    middle=tuple(sum(row) / len(row) for row in epochs),
                    low=tuple(map(min, epochs)),
                    high=tuple(map(max, epochs)),
                )
            )
    return trajectories


def profile_of(outcome: Outcome) -> Profile | None:
    """The knob over depth, where it was measured and moved."""
    if all(site["start"] == site["end"] for site in outcome.hardness):
        return None

    def column(name: str) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(value for value in site.get(name) or () if value is not None) for site in outcome.hardness)

    return Profile(
        label=outcome.trial.activation.label,
        knob=str(outcome.hardness[0]["knob"]),
        paths=tuple(str(site["path"]) for site in outcome.hardness),
        start=column("start"),
        end=column("end"),
        distance=column("distance"),
    )


def replacement_of(outcome: Outcome, row: Row, metric: Measure) -> Replacement | None:
    """Before and after the limit took the activation's place, by the metric; None where seeds diverged."""
    replaced, before = outcome.replacement, row.scores.get(metric.name)
    after = None if replaced is None else replaced["test"].get(metric.name)
    if replaced is None or before is None or after is None or None in after:
        return None
    changed = replaced.get("changed")
    return Replacement(
        label=row.label,
        key=row.key,
        limit=str(replaced["limit"]),
        before=before,
        after=score(after, larger_is_better=metric.larger_is_better),
        change=compare_each(after, before.each, margin=metric.margin),
        changed=None if changed is None or None in changed else score(changed, larger_is_better=False),
    )


def inside_of(outcome: Outcome) -> dict[str, Score]:
    """Activity over all sites, and the gradient norm over all steps; empty where seeds diverged."""
    if has_diverged(outcome):
        return {}
    scores: dict[str, Score] = {}
    columns = {title: [site.get(name) for site in outcome.activity] for name, title in _INSIDE.items()}
    columns["gradient norm"] = [outcome.gradients.get("mean")]
    columns["its variance over steps"] = [outcome.gradients.get("variance")]
    for title, sites in columns.items():
        each = [site for site in sites if site]
        if each and not any(value is None for site in each for value in site):
            means = [sum(values) / len(values) for values in zip(*each, strict=True)]
            scores[title] = score(means, larger_is_better=False, bounds=(0.0, math.inf))
    seen, unseen = outcome.train.get("accuracy"), outcome.test.get("accuracy")
    if seen and unseen and None not in seen and None not in unseen:
        # By how much accuracy falls from the training examples to the test.
        gap = [_number(trained) - _number(other) for trained, other in zip(seen, unseen, strict=True)]
        scores["generalisation gap"] = score(gap, larger_is_better=False)
    return scores


_CLICKS = "criteo"
RELATIVE = "binary"


def first_measures(recipe: Recipe) -> tuple[str, ...]:
    """The two measures that a report is about, where they are not accuracy and prediction difference."""
    if recipe.training.progressive is not None:
        return "log_loss", RELATIVE
    if isinstance(recipe.task, Code):
        return "accuracy", "bits"
    if isinstance(recipe.task, Preference):
        first = recipe.task.betas[0]
        return tuple(recipe.task.measure(name, first) for name in ("reward_accuracy", "reward_margin"))
    if isinstance(recipe.task, LanguageTask):
        name = "perplexity" if recipe.data.set == "wikitext-2" or recipe.task.kind == "perplexity" else "loss"
        return name, f"{name}_replaced"
    return ("auc", "delta_1") if recipe.data.set == _CLICKS else ()


def summarise(recipe: Recipe, outcomes: Sequence[Outcome]) -> Summary:
    """All that a report of these outcomes shows; the order of activations is that of the recipe."""
    trained = _ordered(recipe, [outcome for outcome in outcomes if outcome.trial.kind == "train"])
    if not trained:
        raise DataError("A report needs at least one trained activation, and there is none; run the study first.")
    measures = measured(trained)
    costs = {}
    for outcome in outcomes:
        for entry in outcome.cost:
            names = ("train", "infer", "train_ratio", "infer_ratio")
            numbers = {name: Quantity(**v) if isinstance(v := entry[name], Mapping) else v for name in names}
            costs[entry["label"]] = Cost(key=outcome.trial.key, peak_memory=entry.get("peak_memory"), **numbers)
    rows = _rows(recipe, trained, measures, costs)
    baseline = next((row for row in rows if row.baseline), None)
    if baseline is not None and not baseline.diverged:
        had = {measure.name: baseline.result(measure) for measure in measures}
        measures = tuple(
            measure if (result := had[measure.name]) is None else with_margin(measure, result.value)
            for measure in measures
        )
    rows = _judged(rows, measures)
    baseline = next((row for row in rows if row.baseline), None)
    first = first_measures(recipe)
    measures = tuple(sorted(measures, key=lambda measure: measure.name not in first))
    metric = next((measure for measure in measures if not measure.of_sets), None)
    if metric is None:
        raise DataError("The outcomes hold no test score; a report needs one for each trained activation.")
    spread = next((other for other in measures if other is not metric and (other.of_sets or other.name in first)), None)
    whole = [outcome for outcome in trained if not has_diverged(outcome)]
    return Summary(
        recipe=recipe,
        metric=metric,
        spread=spread,
        measures=measures,
        rows=rows,
        baseline=baseline,
        knobs=_knobs(rows),
        bands=tuple(band for outcome in trained for band in bands_of(outcome)),
        shapes=tuple(shape for outcome in whole for shape in shapes_of(outcome)),
        trajectories=tuple(trajectory for outcome in whole for trajectory in trajectories_of(outcome)),
        profiles=tuple(profile for outcome in whole if (profile := profile_of(outcome))),
        replacements=tuple(
            result
            for row, outcome in zip(rows, trained, strict=True)
            if (result := replacement_of(outcome, row, metric))
        ),
        recommendation=recommend(rows, baseline, metric, spread),
        sentences=sentences_of(rows, metric, spread, recipe.cost_baseline),
        notes=notes_of(recipe, outcomes, rows, baseline),
        seconds=sum(outcome.seconds for outcome in outcomes),
        paper_tables=compare_with_paper(recipe.paper, rows),
    )


def _ordered(recipe: Recipe, trained: Sequence[Outcome]) -> list[Outcome]:
    """In the order of the recipe's activations; the values of one in rising order."""
    first: dict[str, int] = {}
    for place, choice in enumerate(recipe.activations):
        first.setdefault(choice.name, place)

    def order(outcome: Outcome) -> tuple[int, str, tuple[tuple[float, str], ...]]:
        activation = outcome.trial.activation
        values = tuple(
            (0.0, value) if isinstance(value, str) else (float(value), "") for value in activation.values.values()
        )
        return first.get(activation.name, len(first)), f"{activation.learn}{activation.harden}{activation.per}", values

    return sorted(trained, key=order)


def _rows(
    recipe: Recipe, trained: Sequence[Outcome], measures: Sequence[Measure], costs: Mapping[str, Cost]
) -> tuple[Row, ...]:
    labels = [outcome.trial.activation.label for outcome in trained]
    if doubled := sorted({label for label in labels if labels.count(label) > 1}):
        raise DataError(
            f"Two outcomes have the label {doubled[0]!r}; every activation of a report has a label of its own. If they "
            "are of two versions of the recipe, give only those of one."
        )
    # A label is exact; a name may stand for several rows, of which the first is taken.
    every = labels if recipe.baseline in labels else [outcome.trial.activation.name for outcome in trained]
    basis = every.index(recipe.baseline) if recipe.baseline in every else None
    return tuple(_row(outcome, measures, costs, baseline=place == basis) for place, outcome in enumerate(trained))


def _row(outcome: Outcome, measures: Sequence[Measure], costs: Mapping[str, Cost], *, baseline: bool) -> Row:
    trial, activation = outcome.trial, outcome.trial.activation
    gone = tuple(
        (seed, epoch) for seed, epoch in zip(trial.seeds.numbers, outcome.diverged, strict=False) if epoch is not None
    )
    scores, differences = {}, {}
    for measure in () if gone else measures:
        if measure.of_sets:
            if (difference := outcome.difference.get(measure.name)) is not None:
                differences[measure.name] = estimate_of(difference)
            continue
        each = outcome.test.get(measure.name)
        # R^2 does not exist where all examples have the same target.
        if each is None or (measure.name == "r2" and all(value is None for value in each)):
            continue
        values = [value for value in each if value is not None]
        if len(values) < len(each):
            raise DataError(
                f"{activation.label!r} lacks {measure.name} of {len(each) - len(values)} of {len(each)} seeds, and "
                "none of them diverged; its record is incomplete. Run that trial again."
            )
        scores[measure.name] = score(values, larger_is_better=measure.larger_is_better, bounds=measure.bounds)
    return Row(
        label=activation.label,
        name=activation.name,
        values={**activation.values, **({} if activation.price is None else {"price": activation.price})},
        variant=(
            activation.learn if isinstance(activation.learn, bool | str) else tuple(activation.learn),
            activation.harden,
            activation.select,
            tuple((activation.last or {}).items()),
        ),
        key=trial.key,
        seeds=trial.seeds.numbers,
        baseline=baseline,
        diverged=gone,
        scores=scores,
        differences=differences,
        cost=costs.get(activation.label),
        learning_rate=trial.training.learning_rate,
        weight_decay=trial.training.weight_decay,
        seconds=outcome.seconds,
        trained=outcome.trained,
        inside=inside_of(outcome),
    )


def estimate_of(difference: Mapping[str, Any]) -> Estimate:
    """A prediction difference as an outcome stores it."""
    interval, without = difference.get("interval"), difference.get("without")
    return Estimate(
        difference["value"],
        difference.get("stdev"),
        None if interval is None else (interval[0], interval[1]),
        None if without is None else tuple(without),
    )


def _judged(rows: tuple[Row, ...], measures: Sequence[Measure]) -> tuple[Row, ...]:
    """The rows with their verdicts, and with the measures by which nothing is shown to be better."""
    able = [row for row in rows if not row.diverged]
    baseline = next((row for row in able if row.baseline), None)
    verdicts = {measure.name: against_baseline(able, baseline, measure) if baseline else {} for measure in measures}
    best: dict[str, set[str]] = {}
    for measure in measures:
        if ranking := best_and_rivals(able, measure):
            best[measure.name] = {row.label for row in (ranking[0], *ranking[1])}
    return tuple(
        replace(
            row,
            verdicts={name: verdict[row.label] for name, verdict in verdicts.items() if row.label in verdict},
            best=frozenset(name for name, labels in best.items() if row.label in labels),
        )
        for row in rows
    )


def _knobs(rows: Sequence[Row]) -> tuple[Knob, ...]:
    """Rows that differ in one parameter alone, for each activation that has two of them or more."""
    knobs = []
    for name, variant in dict.fromkeys((row.name, row.variant) for row in rows):
        mine = [row for row in rows if (row.name, row.variant) == (name, variant) and row.values]
        known = dict.fromkeys(parameter for row in mine for parameter in row.values)
        values = {parameter: [row.values.get(parameter) for row in mine] for parameter in known}
        moving = [parameter for parameter, each in values.items() if len(set(each)) > 1]
        if len(moving) == 1 and all(type(value) in (int, float) for value in values[moving[0]]):
            ordered = sorted(mine, key=lambda row, parameter=moving[0]: row.number(parameter))
            knobs.append(Knob(name=name, parameter=moving[0], rows=tuple(ordered)))
    return tuple(knobs)
